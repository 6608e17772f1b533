"""A score as Markdown, for pull requests and step summaries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replay.report.table import table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replay.report.table import Table
    from replay.scoring import GateResult, Score

__all__ = ["markdown", "markdown_table"]


def markdown(score: Score, results: Sequence[GateResult] = ()) -> str:
    """The score table and the gates; references stand in italics."""
    parts = [markdown_table(table(score))]
    if results:
        failed = sum(not result.passed for result in results)
        parts.append(f"**Gates: {len(results) - failed} passed, {failed} failed**\n")
        parts.append(
            "".join(
                f"- {'passed' if result.passed else '**failed**'}: {_text(result.detector)}: "
                f"{_text(result.gate)} ({_text(result.message)})\n"
                for result in results
            )
        )
    return "\n".join(parts)


def markdown_table(shown: Table) -> str:
    """Any table of ours as Markdown."""
    headers = [header.removeprefix("<").replace("\n", "") for header in shown.columns]
    marks = [":---" if header.startswith("<") else "---:" for header in shown.columns]
    lines = [f"{_text(shown.title)}\n", _row(headers), _row(marks)]
    for number, row in enumerate(shown.rows):
        cells = [_text(cell.replace("\n", " ")) for cell in row]
        if number in shown.dim:
            cells = [f"*{cell}*" for cell in cells]
        lines.append(_row(cells))
    if shown.notes:
        lines.append("")
        lines.extend(f"- {_text(note)}" for note in shown.notes)
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _text(text: str) -> str:
    """Text that Markdown takes as it is, names of metrics aside."""
    for mark in "\\|*<>[]`":
        text = text.replace(mark, f"\\{mark}")
    return " ".join(text.split())
