"""The JSONL form: a job a line, its events inside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from replay.traces.check import JOB_KEYS, describe, text_fault
from replay.traces.columns import EVENT_COLUMNS, Rows
from replay.traces.files import Lines
from replay.traces.findings import Place, named, shown
from replay.traces.records import BadJsonError, Repeated, load_json

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from replay.traces.build import TraceBuilder
    from replay.traces.findings import Findings
    from replay.traces.texts import Column

__all__ = ["read_jsonl"]

_OPENINGS = {"{": "jq -c .", "[": "jq -c '.[]'"}  # a first line of JSON that people read


def read_jsonl(paths: Iterable[Path], builder: TraceBuilder) -> None:
    """Read files of jobs into a builder.

    Raises:
        TraceError: When strict and something is wrong.
    """
    for path in paths:
        lines = Lines(path, builder.findings)
        for text in lines:
            bare = text.strip()
            if lines.number == 1 and bare in _OPENINGS:
                what, remedy = (
                    "JSON over many lines, where a trace has a job a line",
                    _OPENINGS[bare],
                )
                builder.findings.error("bad-json", what, lines.place, remedy=remedy)
                break
            if bare:
                _read_job(text, lines.place, builder)
            else:
                builder.findings.warn("blank-line", "a blank line, skipped", lines.place)


def _read_job(text: str, place: Place, builder: TraceBuilder) -> None:
    findings = builder.findings
    try:
        record = load_json(text)
    except BadJsonError as error:
        findings.error("bad-json", error.what, place, remedy=error.remedy)
        return
    if not isinstance(record, dict):
        what = f"{describe(record)} in place of a job's object"
        findings.error("not-object", what, place, remedy="write one job a line")
        return
    events = record.get("events")
    if not isinstance(events, list):
        missing = "events" not in record
        what = "the key is missing" if missing else f"{describe(events)} in place of a list"
        remedy = 'write "events": [] if there are none'
        findings.error("no-events-key", what, place, "events", remedy=remedy)
        return
    number = builder.add_job(record, place, (*JOB_KEYS, "events"))
    if number is None:
        return
    columns, kept = _columns(events, place, findings)
    job = np.full(len(kept), number, np.int32)
    builder.add_events(Rows(job, columns, lambda row: _event(place, kept[row])))


def _event(place: Place, number: int) -> Place:
    return Place(place.path, place.line, f"events[{number}].")


def _columns(
    events: list[Any], place: Place, findings: Findings
) -> tuple[dict[str, Column], range | list[int]]:
    """The events as columns, and the number of the event behind each row."""
    try:
        if all(type(event) is dict and len(event) == len(EVENT_COLUMNS) for event in events):
            return _as_arrays(events), range(len(events))
    except (KeyError, UnicodeEncodeError, pa.ArrowException):
        pass  # some event is faulty: go one by one and say which
    kept = [i for i, event in enumerate(events) if _is_event(event, _event(place, i), findings)]
    return _as_arrays([events[i] for i in kept]), kept


def _as_arrays(events: list[dict[str, Any]]) -> dict[str, Column]:
    return {
        column: pa.array([event[column] for event in events], pa.string())
        for column in EVENT_COLUMNS
    }


def _is_event(event: Any, place: Place, findings: Findings) -> bool:
    before = findings.errors
    if not isinstance(event, dict):
        findings.error("not-object", f"{describe(event)} in place of an event", place)
        return False
    if isinstance(event, Repeated):
        findings.error("duplicate-key", event.what, place, named(event.key), remedy="keep one")
    for column in EVENT_COLUMNS:
        if column not in event:
            findings.error("missing-key", "the key is missing", place, column, remedy="add it")
        elif fault := text_fault(event[column]):
            value = shown(event[column])
            findings.error("not-text", fault, place, column, value, "write it as text")
    if extra := [key for key in event if key not in EVENT_COLUMNS]:
        what = "a key that is no part of an event, left out"
        findings.warn("extra-key", what, place, named(extra[0]))
    return findings.errors == before
