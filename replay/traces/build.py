"""From what a reader found to a :class:`Trace`: jobs and rows checked, timed, put in order."""

from __future__ import annotations

from array import array
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from replay.traces.check import JOB_KEYS, check_job, warn_of_job
from replay.traces.columns import Inspection, run_starts
from replay.traces.findings import shown
from replay.traces.model import EVENTS, Trace
from replay.traces.names import natural_key
from replay.traces.tally import Run, Tally
from replay.traces.texts import picked

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

_MANY = 1000  # pieces of a column; more make every look at it slow


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
        self._starts, self._spans = array("q"), array("q")  # nanoseconds, a job each
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
        self._starts.append(job.start_ns)
        self._spans.append(job.duration_ns)
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
        for each in (self._places, self._tallies, self._starts, self._spans):
            del each[number:]

    def add_events(self, rows: Rows) -> None:
        """Take in rows of events, in the order of the file.

        Raises:
            TraceError: When strict and something is wrong.
        """
        inspection = Inspection(rows, self.findings)
        ip, event = inspection.names("ip"), inspection.names("event")
        texts, ns = inspection.times()
        job = pa.array(rows.job)
        at = inspection.offsets(texts, ns, picked(np.frombuffer(self._starts, np.int64), job))
        columns = [job, ip, texts, event, pa.array(at)]
        piece = pa.RecordBatch.from_arrays(columns, schema=EVENTS)
        good = _together(rows.job, inspection.bad, len(self._jobs))
        if good is None:
            self._take(piece, rows.place)
        else:
            self._take(piece.take(good), lambda row: rows.place(int(good[row])))

    def build(self, source: str, form: Form) -> Trace:
        """The trace, with its jobs in natural order."""
        for job, place, tally in zip(self._jobs, self._places, self._tallies, strict=True):
            warn_of_job(job, tally.events, place, self.findings)
            tally.warn(self.outside, self.findings)
        order = sorted(range(len(self._jobs)), key=lambda i: natural_key(self._jobs[i].id))
        jobs = tuple(self._jobs[i] for i in order)
        return Trace(jobs, self._events(order), source, form, self.findings)

    def _take(self, piece: pa.RecordBatch, place: Callable[[int], Place]) -> None:
        """Keep checked rows, counting what is odd, job by job."""
        job: NDArray[np.int32] = piece.column("job").to_numpy()
        at: NDArray[np.int64] = piece.column("at").to_numpy()
        ip: Column = piece.column("ip")
        codes: NDArray[np.intp] = ip.indices.to_numpy().astype(np.intp)
        nodes = ip.dictionary.to_pylist()
        edges = [*run_starts(job).tolist(), len(job)]
        for start, stop in pairwise(edges):
            run = Run(piece, start, at[start:stop], codes[start:stop], nodes, place)
            self._tallies[job[start]].add(run)
        self._pieces.append(self._within(piece))

    def _events(self, order: Sequence[int]) -> pa.Table:
        """All rows, job by job in that order; rows of one job keep the order of the file."""
        events = pa.Table.from_batches(self._pieces, EVENTS).unify_dictionaries()
        rank = np.empty(len(order), np.int32)
        rank[list(order)] = np.arange(len(order), dtype=np.int32)
        runs, lengths = _runs(self._pieces)
        self._pieces.clear()
        ranks = rank[runs]
        by_rank = np.argsort(ranks, kind="stable")
        if (ranks[1:] < ranks[:-1]).any():
            events = _moved(events, ranks, lengths, by_rank)
        job = np.repeat(ranks[by_rank], lengths[by_rank])
        return events.set_column(0, EVENTS.field("job"), pa.array(job))

    def _within(self, piece: pa.RecordBatch) -> pa.RecordBatch:
        if self.outside == "keep":
            return piece
        at = piece.column("at").to_numpy()
        spans = np.frombuffer(self._spans, np.int64)[piece.column("job").to_numpy()]
        clipped = np.clip(at, 0, spans)
        if self.outside == "drop":
            return piece.filter(pa.array(at == clipped))
        return piece.set_column(4, EVENTS.field("at"), pa.array(clipped))


def _together(job: NDArray[np.int32], bad: NDArray[np.bool_], jobs: int) -> NDArray[np.intp] | None:
    """Which rows to take, and in which order, so that each job's good rows lie together.

    None when all rows can stay as they are.
    """
    if np.count_nonzero(job[1:] != job[:-1]) < jobs:
        return np.flatnonzero(~bad) if bad.any() else None
    order = np.argsort(job, kind="stable")
    return order[~bad[order]]


def _runs(pieces: Sequence[pa.RecordBatch]) -> tuple[NDArray[np.int32], NDArray[np.intp]]:
    """Whose rows come one after another, run by run, and how many they are."""
    numbers, lengths = [np.empty(0, np.int32)], [np.empty(0, np.intp)]
    for piece in pieces:
        job: NDArray[np.int32] = piece.column("job").to_numpy()
        starts = run_starts(job)
        numbers.append(job[starts])
        lengths.append(np.diff(starts, append=len(job)))
    return np.concatenate(numbers), np.concatenate(lengths)


def _moved(
    events: pa.Table, ranks: NDArray[np.int32], lengths: NDArray[np.intp], order: NDArray[np.intp]
) -> pa.Table:
    """The rows with their runs in another order, the one that sorts their ranks."""
    if len(order) > max(_MANY, len(events) // _MANY):  # short runs: move row by row
        rows = np.argsort(np.repeat(ranks, lengths), kind="stable")
        return events.combine_chunks().take(rows)
    starts = np.cumsum(lengths) - lengths
    runs = zip(starts[order].tolist(), lengths[order].tolist(), strict=True)
    return pa.concat_tables([events.slice(start, length) for start, length in runs])
