"""The folder form: a folder a job, with ``meta.json`` and ``event_report.csv``."""

from __future__ import annotations

import csv
import os
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from replay.errors import TraceError
from replay.traces.check import describe
from replay.traces.columns import EVENT_COLUMNS, Rows
from replay.traces.files import Lines, read_text
from replay.traces.findings import Place, named, shown
from replay.traces.records import BadJsonError, load_json
from replay.traces.times import parse_one

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from replay.traces.build import TraceBuilder

__all__ = ["EVENTS_FILE", "META_FILE", "PACKED_ENDINGS", "read_folders"]

META_FILE = "meta.json"
EVENTS_FILE = "event_report.csv"
PACKED_ENDINGS = ("", ".gz", ".zst")
"""What may follow the name of a text file."""

_ROWS = 1 << 16  # rows checked at once
_LONGEST_FIELD = 1 << 30


def read_folders(paths: Iterable[Path], builder: TraceBuilder) -> None:
    """Read job folders into a builder.

    Raises:
        TraceError: When strict and something is wrong.
    """
    csv.field_size_limit(_LONGEST_FIELD)
    for path in paths:
        try:
            meta, events = _only(path, META_FILE), _only(path, EVENTS_FILE)
            number = _read_meta(meta, builder)
        except TraceError as error:
            builder.findings.caught(error)
            continue
        if number is not None and not _read_events(events, number, builder):
            builder.forget(number)


def _read_events(path: Path, number: int, builder: TraceBuilder) -> bool:
    """Read a job's events; False when nothing of them can be read."""
    try:
        return _Report(path, number, builder).read()
    except TraceError as error:
        builder.findings.caught(error)
        return False


def _only(folder: Path, name: str) -> Path:
    """The one file of that name, packed or not."""
    paths = [folder / (name + ending) for ending in PACKED_ENDINGS]
    found = [path for path in paths if os.path.lexists(path)]
    if not found:
        what = f"the job's folder has no {name}"
        raise TraceError(what, str(folder), remedy=f"add {name}")
    if len(found) > 1:
        what, value = f"{name} is there twice", str(found[1])
        raise TraceError(what, str(found[0]), value=value, remedy="keep one")
    return found[0]


def _read_meta(path: Path, builder: TraceBuilder) -> int | None:
    text = read_text(path, builder.findings)
    if text is None:
        return None
    try:
        record = load_json(text)
    except BadJsonError as error:
        place = Place(str(path), text.count("\n", 0, error.position) + 1)
        builder.findings.error("bad-json", error.what, place, remedy=error.remedy)
        return None
    if not isinstance(record, dict):
        what = f"{describe(record)} in place of a job's object"
        builder.findings.error("not-object", what, Place(str(path)), remedy="write {...}")
        return None
    return builder.add_job(record, Place(str(path)))


class _Report:
    """Reads one ``event_report.csv``."""

    def __init__(self, path: Path, number: int, builder: TraceBuilder) -> None:
        self.path = str(path)
        self.number = number
        self.builder = builder
        self.findings = builder.findings
        self.lines = Lines(path, builder.findings)
        self.reader = csv.reader(iter(self.lines), strict=True)
        self.header: list[str] = []

    def read(self) -> bool:
        """Read all rows into the builder; False when the header makes that impossible."""
        rows = self._rows()
        line, self.header = next(rows, (1, []))
        if not self._is_header(line):
            return False
        where = [self.header.index(column) for column in EVENT_COLUMNS]
        while chunk := list(islice(rows, _ROWS)):
            columns = {
                column: pa.array([row[i] for _, row in chunk], pa.string())
                for column, i in zip(EVENT_COLUMNS, where, strict=True)
            }
            job = np.full(len(chunk), self.number, np.int32)
            numbers = [line for line, _ in chunk]
            self.builder.add_events(Rows(job, columns, self._places(numbers)))
        return True

    def _places(self, numbers: list[int]) -> Callable[[int], Place]:
        return lambda row: Place(self.path, numbers[row])

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """The header, then the rows that fit it; each with the line it begins on."""
        while True:
            begun, consumed = self.lines.number + 1, self.reader.line_num
            try:
                row = next(self.reader)
            except StopIteration:
                return
            except csv.Error as error:
                self._refuse(error, begun)
                continue
            line = self.lines.number if self.reader.line_num == consumed + 1 else begun
            if not self.header or (len(row) == len(self.header) and row != self.header):
                yield line, row
            else:
                self._skip(row, line)

    def _is_header(self, line: int) -> bool:
        place, header = Place(self.path, line), self.header
        before = self.findings.errors
        wanted = ",".join(EVENT_COLUMNS)
        if not header:
            self.findings.error("no-header", "no header", place, remedy=f"begin with {wanted}")
        elif any(parse_one(field) is not None for field in header):
            what, value = "a row of data in place of the header", shown(",".join(header))
            self.findings.error("no-header", what, place, "", value, f"begin with {wanted}")
        else:
            self._check_columns(place)
        return self.findings.errors == before

    def _check_columns(self, place: Place) -> None:
        header = self.header
        for column in EVENT_COLUMNS:
            found = [i for i, name in enumerate(header, start=1) if name == column]
            if not found:
                what, value = "the column is missing", shown(",".join(header))
                self.findings.error("missing-column", what, place, column, value, "add it")
            elif len(found) > 1:
                what = f"the column is there twice, as columns {found[0]} and {found[1]}"
                self.findings.error("duplicate-column", what, place, column, remedy="keep one")
        for name in header:
            if name not in EVENT_COLUMNS:
                what = "a column that is no part of an event, left out"
                self.findings.warn("extra-column", what, place, named(name))

    def _skip(self, row: list[str], line: int) -> None:
        place, width = Place(self.path, line), len(self.header)
        if not row:
            self.findings.warn("blank-line", "a blank line, skipped", place)
        elif row == self.header:
            what = "the header again, among the rows"
            self.findings.error("header-again", what, place, remedy="remove the line")
        else:
            what = f"{len(row)} fields where the header has {width}"
            remedy = (
                "quote a field that holds a comma" if len(row) > width else "add what is missing"
            )
            self.findings.error("row-width", what, place, "", shown(",".join(row)), remedy)

    def _refuse(self, error: csv.Error, line: int) -> None:
        what, remedy = str(error), "write the row as CSV"
        if what.startswith("unexpected end"):
            lost = self.lines.number - line
            what = "a quote that is never closed"
            what += f", with {lost} lines behind it" if lost else ""
            remedy = "close it, or double it inside a quoted field"
        elif "expected after" in what:
            what, remedy = "text after a closing quote", "double a quote inside a quoted field"
        elif what.startswith("new-line"):
            what, remedy = "a carriage return inside a field without quotes", "end lines with LF"
        self.findings.error("bad-csv", what, Place(self.path, line), remedy=remedy)
