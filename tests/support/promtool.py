"""Asks promtool: what expressions give, which alerts fire, whether unit tests hold."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

from detectors.rules.labels import NAME
from detectors.rules.notation import parse_labels

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from detectors.rules.labels import Labels
    from detectors.rules.series import Block

__all__ = ["answers", "firing", "notation", "promtool", "verdict_of_tests"]

_IMPOSSIBLE = "[{labels: never_there, value: 12345}]"
_ANSWER = re.compile(
    r'expr: (?P<expr>"(?:\\.|[^"\\])*"), time: (?P<time>\S+?),\s*'
    r"(?:exp:[^\n]*\n\s*got: ?(?P<got>.*?)|err: (?P<error>.*?))(?=\n\s*expr: |\Z)",
    re.DOTALL,
)


def promtool() -> str:
    """Where promtool is; tests that need it are never skipped."""
    found = shutil.which("promtool")
    assert found, "promtool is not installed: apt-get install prometheus"
    return found


def _run(path: Path) -> tuple[int, str]:
    done = subprocess.run(
        [promtool(), "test", "rules", str(path)], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def verdict_of_tests(path: Path) -> bool:
    """Whether a unit test file passes."""
    return _run(path)[0] == 0


def notation(values: Iterable[float | None]) -> str:
    """Values in the notation of test series, repeats written short."""
    out: list[tuple[str, int]] = []
    for value in values:
        text = "_" if value is None else repr(float(value)).removesuffix(".0")
        if out and out[-1][0] == text:
            out[-1] = (text, out[-1][1] + 1)
        else:
            out.append((text, 1))
    return " ".join(
        text if count == 1 else (f"_x{count}" if text == "_" else f"{text}+0x{count - 1}")
        for text, count in out
    )


def series_lines(block: Block) -> dict[str, str]:
    """The series of a block on a regular grid from 0, as ``input_series`` wants them."""
    from detectors.rules.labels import show  # noqa: PLC0415 - only wanted here

    lines = {}
    for row, labels in enumerate(block.labels):
        values = [
            block.values[block.index[row, column]]
            if block.index[row, column + 1] > block.index[row, column]
            else None
            for column in range(len(block.grid))
        ]
        lines[show(labels)] = notation(values)
    return lines


def _document(
    folder: Path,
    series: Mapping[str, str],
    queries: Sequence[tuple[str, str]],
    rules: str,
    interval: str,
) -> Path:
    lines = [f"evaluation_interval: {interval}"]
    if rules:
        (folder / "rules.yml").write_text(rules)
        lines.append("rule_files: [rules.yml]")
    lines += ["tests:", f"- interval: {interval}", "  input_series:"]
    for name, values in series.items():
        lines += [f"  - series: {json.dumps(name)}", f"    values: {json.dumps(values)}"]
    lines.append("  promql_expr_test:")
    for expr, time in queries:
        lines += [
            f"  - expr: {json.dumps(expr)}",
            f"    eval_time: {time}",
            f"    exp_samples: {_IMPOSSIBLE}",
        ]
    path = folder / "ask.yml"
    path.write_text("\n".join(lines))
    return path


def answers(
    folder: Path,
    series: Mapping[str, str],
    queries: Sequence[tuple[str, str]],
    rules: str = "",
    interval: str = "15s",
) -> dict[tuple[str, str], dict[Labels, float] | str]:
    """What promtool gives for each (expression, time): samples, or the error's text."""
    _, text = _run(_document(folder, series, queries, rules, interval))
    found: dict[tuple[str, str], dict[Labels, float] | str] = {}
    for match in _ANSWER.finditer(text):
        key = (json.loads(match["expr"]), match["time"])
        found[key] = match["error"] if match["error"] is not None else _samples(match["got"])
    assert found or not queries, text
    return found


def _samples(text: str) -> dict[Labels, float]:
    """Read ``{a="b"} 1E+00, {a="c"} 2E+00``."""
    out: dict[Labels, float] = {}
    rest = text.strip()
    while rest and rest != "nil":
        labels, rest = parse_labels(rest)
        found = re.match(r"\s*(\S+?)(?:,\s*|$)", rest)
        assert found, rest
        out[labels] = float(found[1])
        rest = rest[found.end() :].strip()
    return out


def firing(
    folder: Path, series: Mapping[str, str], rules: str, times: Sequence[str]
) -> list[set[Labels]]:
    """The label sets of the alerts that fire at each of some times."""
    queries = [('ALERTS{alertstate="firing"}', time) for time in times]
    found = answers(folder, series, queries, rules)
    out = []
    for query in queries:
        samples = found[query]
        assert not isinstance(samples, str), samples
        out.append(
            {
                tuple(pair for pair in labels if pair[0] not in {NAME, "alertstate"})
                for labels in samples
            }
        )
    return out
