"""A trace in memory: jobs, and their alerts as Arrow columns. Text stays as it was written."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa

from replay.api import Job
from replay.errors import UsageError
from replay.traces.findings import Findings
from replay.traces.texts import NAMES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from replay.traces.locate import Form

__all__ = ["EVENTS", "Trace", "TraceJob"]

EVENTS = pa.schema(
    [
        ("job", pa.int32()),
        ("ip", NAMES),
        ("event_time", pa.string()),
        ("event", NAMES),
        ("at", pa.int64()),
    ]
)
"""Columns of :attr:`Trace.events`."""


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job of a trace, as written.

    Attributes:
        id: ``job_id``.
        start_time: As written.
        end_time: As written.
        gpu_generation: As written.
        ip_status: Node → label as written, in the order written. This is the truth: it goes to
            ``scoring`` and nowhere else.
        start_ns: ``start_time`` as nanoseconds on the trace's own clock, which has no zone.
        end_ns: ``end_time`` likewise.
    """

    id: str
    start_time: str
    end_time: str
    gpu_generation: str
    ip_status: Mapping[str, str] = field(repr=False)
    start_ns: int = 0
    end_ns: int = 0

    @property
    def duration_ns(self) -> int:
        """From start to end, in nanoseconds."""
        return self.end_ns - self.start_ns

    @property
    def public(self) -> Job:
        """The job as a detector may see it."""
        return Job(self.id, tuple(sorted(self.ip_status)), self.gpu_generation)


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Jobs in natural order, and all their alerts.

    Attributes:
        jobs: The jobs.
        events: Columns of :data:`EVENTS`: ``job`` (index into ``jobs``, ascending), ``ip``,
            ``event_time`` (as written), ``event``, and ``at`` (nanoseconds since that job's
            start; may be negative). Rows of one job keep the order of the file. They may come in
            several chunks; those of ``ip`` and of ``event`` share their dictionary.
        source: What was read, as the user named it.
        form: The form it was read from; None when it was made.
        findings: What was odd or refused while reading.

    Two traces are equal when their jobs and the text of their alerts are.
    """

    jobs: tuple[TraceJob, ...]
    events: pa.Table = field(repr=False)
    source: str = ""
    form: Form | None = None
    findings: Findings = field(default_factory=Findings, repr=False)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Trace):
            return NotImplemented
        same = _plain(self.events).equals(_plain(other.events))
        return self.jobs == other.jobs and bool(same)

    __hash__ = None  # type: ignore[assignment] # as for any value with columns in it

    def __len__(self) -> int:
        return len(self.jobs)

    def __iter__(self) -> Iterator[TraceJob]:
        return iter(self.jobs)

    @property
    def job_ids(self) -> tuple[str, ...]:
        """Ids of the jobs, in order."""
        return tuple(job.id for job in self.jobs)

    @property
    def bounds(self) -> tuple[int, ...]:
        """``len(jobs) + 1`` row numbers: job ``i`` owns rows ``bounds[i]`` to ``bounds[i+1]``."""
        column = self.events.column("job").to_numpy()
        edges = np.searchsorted(column, np.arange(len(self.jobs) + 1, dtype=column.dtype))
        return tuple(int(edge) for edge in edges)

    def job(self, job_id: str) -> Self:
        """The trace of one job alone.

        Raises:
            UsageError: There is no such job.
        """
        return self.select([job_id])

    def select(self, job_ids: Iterable[str]) -> Self:
        """The trace of some jobs, in the order they have here.

        Raises:
            UsageError: One of them does not exist.
        """
        wanted = list(job_ids)
        index = {job.id: i for i, job in enumerate(self.jobs)}
        for job_id in wanted:
            if job_id not in index:
                raise UsageError(
                    f"There is no job {job_id!r} in {self.source or 'this trace'}.",
                    _known(job_id, list(index)),
                )
        keep = sorted({index[job_id] for job_id in wanted})
        bounds = self.bounds
        pieces = [self.events.slice(bounds[i], bounds[i + 1] - bounds[i]) for i in keep]
        events = pa.concat_tables(pieces) if pieces else EVENTS.empty_table()
        numbers = np.repeat(
            np.arange(len(keep), dtype=np.int32), [bounds[i + 1] - bounds[i] for i in keep]
        )
        events = events.set_column(0, EVENTS.field("job"), pa.array(numbers, pa.int32()))
        return replace(self, jobs=tuple(self.jobs[i] for i in keep), events=events)


def _known(job_id: str, known: list[str]) -> str:
    """The job that may have been meant; else the first ones that there are."""
    folded = {each.casefold(): each for each in known}
    if near := difflib.get_close_matches(job_id.casefold(), folded, n=1):
        return folded[near[0]]
    return f"one of {', '.join(known[:10])}{', ...' if len(known) > 10 else ''}" if known else ""


def _plain(events: pa.Table) -> pa.Table:
    """The columns with every name spelt out."""
    return pa.table(
        [
            column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
            for column in events.columns
        ],
        names=events.column_names,
    ).combine_chunks()
