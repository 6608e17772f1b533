"""Bytes on disk become traces here, and traces become bytes."""

from __future__ import annotations

from replay.traces.findings import Finding, Findings
from replay.traces.locate import FORMS, Form
from replay.traces.model import EVENTS, Trace, TraceJob
from replay.traces.names import natural_key
from replay.traces.reading import open  # noqa: A004 - `replay.open(path)` reads as it should
from replay.traces.write import form_for, write

__all__ = [
    "EVENTS",
    "FORMS",
    "Finding",
    "Findings",
    "Form",
    "Trace",
    "TraceJob",
    "form_for",
    "natural_key",
    "open",
    "write",
]
