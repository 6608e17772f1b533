"""Bytes on disk become traces here, and traces become bytes."""

from __future__ import annotations

from replay.traces.model import EVENTS, Trace, TraceJob

__all__ = ["EVENTS", "Trace", "TraceJob"]
