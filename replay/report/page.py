"""A score as one HTML page: no script, no network, every text escaped."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from replay.report.table import strata_tables, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from replay.report.table import Table
    from replay.scoring import GateResult, Score

__all__ = ["html"]

_HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width">
<title>alert-replay score</title>
<style>
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif }
body { margin: 2rem auto; max-width: 75rem; padding: 0 1rem }
div { overflow-x: auto }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
caption { text-align: left; font-weight: 600; padding: .5rem 0 }
th, td { padding: .3rem .7rem; text-align: right; border-bottom: 1px solid #8884 }
th { vertical-align: bottom }
th.left, td.left { text-align: left }
tr.dim, small { opacity: .65 }
.failed { font-weight: 600 }
</style>
</head>
<body>
<h1>alert-replay score</h1>
"""


def html(score: Score, results: Sequence[GateResult] = ()) -> str:
    """The score table with its intervals, every stratum, and the gates.

    Args:
        score: The score.
        results: How it stands against its gates.
    """
    tables = [table(score, leaderboard=True), *strata_tables(score)]
    parts = [part for shown in tables for part in _table(shown)]
    return "".join((_HEAD, *parts, *_gates(results), "</body>\n</html>\n"))


def _table(shown: Table) -> Iterator[str]:
    sides = [' class="left"' if name.startswith("<") else "" for name in shown.columns]
    names = [name.removeprefix("<").replace("\n", "") for name in shown.columns]
    yield f"<div><table>\n<caption>{escape(shown.title)}</caption>\n"
    yield _row("th", names, sides)
    for number, row in enumerate(shown.rows):
        yield _row("td", row, sides, dim=number in shown.dim)
    yield "</table></div>\n"
    if shown.notes:
        notes = "".join(f"<li>{escape(note)}</li>\n" for note in shown.notes)
        yield f"<ul>\n{notes}</ul>\n"


def _row(tag: str, cells: Sequence[str], sides: Sequence[str], *, dim: bool = False) -> str:
    """A row; what stands on a cell's second line is its interval."""
    written = []
    for cell, side in zip(cells, sides, strict=True):
        value, _, interval = cell.partition("\n")
        below = f"<br><small>{escape(interval)}</small>" if interval else ""
        written.append(f"<{tag}{side}>{escape(value)}{below}</{tag}>")
    mark = ' class="dim"' if dim else ""
    return f"<tr{mark}>{''.join(written)}</tr>\n"


def _gates(results: Sequence[GateResult]) -> Iterator[str]:
    if not results:
        return
    failed = sum(not result.passed for result in results)
    yield f"<h2>Gates: {len(results) - failed} passed, {failed} failed</h2>\n<ul>\n"
    for result in results:
        mark, word = ("", "passed") if result.passed else (' class="failed"', "failed")
        text = f"{word}: {result.detector}: {result.gate} ({result.message})"
        yield f"<li{mark}>{escape(text)}</li>\n"
    yield "</ul>\n"
