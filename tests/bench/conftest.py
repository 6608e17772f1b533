"""The table of ratios that the benchmarks print at the end."""

from __future__ import annotations

import os
from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class Line:
    """One row of the table."""

    name: str
    measure: str
    reference: str
    target: str
    seen: str
    met: bool | None


_lines: list[Line] = []


@pytest.fixture
def table():
    """Takes rows: ``table(name, measure, reference, target, seen, met)``; None is no target."""

    def take(name, measure, reference, target, seen, met=None):
        _lines.append(Line(name, measure, reference, target, seen, met))

    return take


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Whatever stands in this folder is a benchmark."""
    for item in items:
        if "tests/bench/" in item.path.as_posix():
            item.add_marker(pytest.mark.bench)


def pytest_terminal_summary(terminalreporter):
    if not _lines:
        return
    terminalreporter.section("ratios")
    rows = [("", "measure", "reference", "target", "seen", "")]
    words = {True: "met", False: "NOT MET", None: ""}
    rows += [
        (line.name, line.measure, line.reference, line.target, line.seen, words[line.met])
        for line in sorted(_lines, key=lambda line: (len(line.name.split(".")[0]), line.name))
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(6)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        terminalreporter.write_line("  ".join(cells).rstrip())
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    terminalreporter.write_line(f"load average {load} on {os.cpu_count()} cores")
