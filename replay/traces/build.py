"""From what a reader found to a :class:`Trace`: jobs and rows checked, timed, put in order."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from replay.traces.check import JOB_KEYS, check_job, warn_of_job
from replay.traces.columns import Inspection, job_runs
from replay.traces.findings import shown
from replay.traces.model import EVENTS, Trace
from replay.traces.names import natural_key
from replay.traces.tally import Run, Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from replay.traces.columns import Rows
    from replay.traces.findings import Findings, Place
    from replay.traces.locate import Form
    from replay.traces.model import TraceJob
    from replay.traces.texts import Column

__all__ = ["Outside", "TraceBuilder"]

Outside = Literal["keep", "clip", "drop"]
"""What becomes of alerts before their job's start or after its end."""

_SLICE = 1 << 22  # rows taken at once


class TraceBuilder:
    """Takes jobs and rows of events from a reader, checks them, and makes a trace.

    Args:
        findings: Takes what is wrong or odd.
        outside: What to do with alerts outside their job's span.

    Attributes:
        numbers: Job id → the number by which its rows name it.
        refused: Ids of jobs that were refused; their rows are refused with them.
    """

    def __init__(self, findings: Findings, outside: Outside = "keep") -> None:
        self.findings = findings
        self.outside = outside
        self.numbers: dict[str, int] = {}
        self.refused: set[str] = set()
        self._jobs: list[TraceJob] = []
        self._places: list[Place] = []
        self._tallies: list[Tally] = []
        self._pieces: list[pa.RecordBatch] = []

    def add_job(
        self, record: Mapping[str, Any], place: Place, keys: Sequence[str] = JOB_KEYS
    ) -> int | None:
        """Take in a job's record; its number, or None when it was refused.

        Args:
            record: What was read.
            place: Where.
            keys: Keys that may be there without being reported as left out.

        Raises:
            TraceError: When strict and something is wrong.
        """
        job = check_job(record, place, self.findings, keys)
        if job is None:
            self.refuse(record)
            return None
        if job.id in self.numbers:
            what = f"the job is there already, at {self._places[self.numbers[job.id]]}"
            remedy = "give each job its own id"
            self.findings.error("duplicate-job", what, place, "job_id", shown(job.id), remedy)
            return None
        number = self.numbers[job.id] = len(self._jobs)
        self._jobs.append(job)
        self._places.append(place)
        self._tallies.append(Tally(job))
        return number

    def refuse(self, record: Mapping[str, Any]) -> None:
        """Remember that a job was refused."""
        if isinstance(job_id := record.get("job_id"), str):
            self.refused.add(job_id)

    def forget(self, number: int) -> None:
        """Refuse the newest job after all, before any of its rows came."""
        job = self._jobs.pop()
        del self.numbers[job.id]
        self.refused.add(job.id)
        del self._places[number:], self._tallies[number:]

    def add_events(self, rows: Rows) -> None:
        """Take in rows of events, in the order of the file.

        Raises:
            TraceError: When strict and something is wrong.
        """
        inspection = Inspection(rows, self.findings)
        ip, event = inspection.names("ip"), inspection.names("event")
        texts, ns = inspection.times()
        starts = np.array([job.start_ns for job in self._jobs], np.int64)
        at = inspection.offsets(texts, ns, starts[rows.job])
        columns = [pa.array(rows.job), ip, texts, event, pa.array(at)]
        piece = pa.RecordBatch.from_arrays(columns, schema=EVENTS)
        place = rows.place
        if inspection.bad.any():
            good = np.flatnonzero(~inspection.bad)
            piece = piece.take(good)
            place = lambda row: rows.place(int(good[row]))  # noqa: E731 - shorter than its def
        self._tally(piece, place)
        self._pieces.append(self._within(piece))

    def build(self, source: str, form: Form) -> Trace:
        """The trace, with its jobs in natural order."""
        for job, place, tally in zip(self._jobs, self._places, self._tallies, strict=True):
            warn_of_job(job, tally.events, place, self.findings)
            tally.warn(self.outside, self.findings)
        order = sorted(range(len(self._jobs)), key=lambda i: natural_key(self._jobs[i].id))
        events = pa.Table.from_batches(self._pieces, EVENTS).unify_dictionaries()
        self._pieces.clear()
        events = _by_job(events, order)
        return Trace(tuple(self._jobs[i] for i in order), events, source, form, self.findings)

    def _tally(self, piece: pa.RecordBatch, place: Callable[[int], Place]) -> None:
        """Count what is odd, job by job."""
        at: NDArray[np.int64] = piece.column("at").to_numpy()
        ip: Column = piece.column("ip")
        codes: NDArray[np.int32] = ip.indices.to_numpy()
        nodes = ip.dictionary.to_pylist()
        for number, where in job_runs(piece.column("job").to_numpy(), len(self._jobs)):
            run = Run(piece, where, at[where], codes[where], nodes, place)
            self._tallies[number].add(run)

    def _within(self, piece: pa.RecordBatch) -> pa.RecordBatch:
        if self.outside == "keep":
            return piece
        at = piece.column("at").to_numpy()
        spans = np.array([job.duration_ns for job in self._jobs], np.int64)
        clipped = np.clip(at, 0, spans[piece.column("job").to_numpy()])
        if self.outside == "drop":
            return piece.filter(pa.array(at == clipped))
        return piece.set_column(4, EVENTS.field("at"), pa.array(clipped))


def _by_job(events: pa.Table, order: Sequence[int]) -> pa.Table:
    """Rows sorted by the rank of their job, and renumbered; rows of one job keep their order."""
    rank = np.empty(len(order), np.int32)
    rank[list(order)] = np.arange(len(order), dtype=np.int32)
    job = rank[events.column("job").to_numpy()]
    if np.all(job[1:] >= job[:-1]):
        return events.set_column(0, EVENTS.field("job"), pa.array(job))
    runs = sorted(job_runs(job, len(order)), key=itemgetter(0))
    slices = [where for _, where in runs if isinstance(where, slice)]
    if slices:
        pieces = [events.slice(where.start, where.stop - where.start) for where in slices]
        events = pa.concat_tables(pieces)
    else:
        events = _taken(events, np.concatenate([where for _, where in runs]))
    job = np.concatenate([job[where] for _, where in runs])
    return events.set_column(0, EVENTS.field("job"), pa.array(job))


def _taken(events: pa.Table, where: NDArray[np.intp]) -> pa.Table:
    """Take rows, a column and a few million rows at a time, to spare memory."""
    columns = []
    for name in EVENTS.names:
        column: Column = events.column(name).unify_dictionaries().combine_chunks()
        events = events.drop_columns(name)
        slices = [where[i : i + _SLICE] for i in range(0, len(where), _SLICE)]
        columns.append(pa.chunked_array([column.take(rows) for rows in slices]))
    return pa.table(columns, schema=EVENTS)
