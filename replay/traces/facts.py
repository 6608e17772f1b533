"""What a job or a trace is like, in numbers: for ``jobs`` and ``info``."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from replay.traces.times import SECOND

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from replay.traces.model import Trace, TraceJob
    from replay.traces.texts import Column

__all__ = ["JobFacts", "Kind", "facts_of_jobs", "recurring_nodes", "shared_nodes"]

BINS = 60
"""Columns of a sparkline."""


@dataclass(frozen=True, slots=True)
class Kind:
    """How often a kind of alert occurs.

    Attributes:
        name: The kind.
        alerts: How many alerts of it there are.
        nodes: How many nodes it comes from.
    """

    name: str
    alerts: int
    nodes: int


@dataclass(frozen=True, slots=True)
class JobFacts:
    """One job in numbers. Holds no truth.

    Attributes:
        id: The job.
        start_time: As written.
        end_time: As written.
        gpu_generation: As written.
        duration: Seconds.
        nodes: How many nodes it lists.
        alerts: How many alerts it has.
        alerting: How many of its nodes alert.
        unlisted: How many nodes alert without being listed.
        kinds: Kinds of alert, the most frequent first.
        first: Seconds since the start of the first alert; None without one.
        last: Likewise of the last.
        outside: How many alerts lie before the start or after the end.
        unsorted: How many alerts come after a later one in the file.
        tied: How many alerts share their instant with another.
        repeated: How many alerts are the same as an earlier one, in all columns.
        bursts: Alerts in :data:`BINS` equal slices of the time from the earlier of the start and
            the first alert to the later of the end and the last.
    """

    id: str
    start_time: str
    end_time: str
    gpu_generation: str
    duration: float
    nodes: int
    alerts: int
    alerting: int
    unlisted: int
    kinds: tuple[Kind, ...]
    first: float | None
    last: float | None
    outside: int
    unsorted: int
    tied: int
    repeated: int
    bursts: tuple[int, ...]


def facts_of_jobs(trace: Trace) -> list[JobFacts]:
    """Facts of every job, in order."""
    bounds = trace.bounds
    return [
        _facts(job, trace.events.slice(first, last - first))
        for job, first, last in zip(trace.jobs, bounds[:-1], bounds[1:], strict=True)
    ]


def shared_nodes(trace: Trace, job_id: str) -> dict[str, int]:
    """Other job → how many of this job's nodes it lists too, where there are any.

    Tokens may recur: the same machine, or the same pseudonym, served both.

    Raises:
        UsageError: There is no such job.
    """
    (mine,) = trace.job(job_id).jobs
    shared = {
        job.id: len(mine.ip_status.keys() & job.ip_status.keys())
        for job in trace.jobs
        if job.id != job_id
    }
    return {other: count for other, count in shared.items() if count}


def recurring_nodes(trace: Trace) -> tuple[int, int]:
    """How many nodes the jobs list in all, and how many of them more than one job lists."""
    jobs_of = Counter(node for job in trace.jobs for node in job.ip_status)
    return len(jobs_of), sum(1 for count in jobs_of.values() if count > 1)


def _facts(job: TraceJob, rows: pa.Table) -> JobFacts:
    at: NDArray[np.int64] = rows.column("at").to_numpy()
    alerting = set(_words(rows.column("ip")))
    listed = len(alerting & job.ip_status.keys())
    return JobFacts(
        id=job.id,
        start_time=job.start_time,
        end_time=job.end_time,
        gpu_generation=job.gpu_generation,
        duration=job.duration_ns / SECOND,
        nodes=len(job.ip_status),
        alerts=len(at),
        alerting=listed,
        unlisted=len(alerting) - listed,
        kinds=_kinds(rows),
        first=int(at.min()) / SECOND if len(at) else None,
        last=int(at.max()) / SECOND if len(at) else None,
        outside=int(np.count_nonzero((at < 0) | (at > job.duration_ns))),
        unsorted=int(np.count_nonzero(np.diff(at) < 0)),
        tied=_tied(at),
        repeated=_repeated(rows),
        bursts=_bursts(at, job.duration_ns),
    )


def _words(column: Column) -> list[str]:
    words: list[str] = column.unique().to_pylist()
    return words


def _kinds(rows: pa.Table) -> tuple[Kind, ...]:
    plain = pa.table(
        [rows.column(name).cast(pa.string()) for name in ("event", "ip")], ["event", "ip"]
    )
    groups = plain.group_by("event").aggregate([("ip", "count"), ("ip", "count_distinct")])
    kinds = [
        Kind(row["event"], row["ip_count"], row["ip_count_distinct"]) for row in groups.to_pylist()
    ]
    return tuple(sorted(kinds, key=lambda kind: (-kind.alerts, kind.name)))


def _tied(at: NDArray[np.int64]) -> int:
    _, counts = np.unique(at, return_counts=True)
    return int(counts[counts > 1].sum())


def _repeated(rows: pa.Table) -> int:
    names = ["ip", "event_time", "event"]
    plain = pa.table([rows.column(name).cast(pa.string()) for name in names], names)
    return rows.num_rows - plain.group_by(names).aggregate([]).num_rows


def _bursts(at: NDArray[np.int64], duration: int) -> tuple[int, ...]:
    """Counts in equal slices; whole numbers throughout, so that no rounding moves an alert."""
    first = min(int(at.min()), 0) if len(at) else 0
    last = max(int(at.max()), duration) if len(at) else duration
    width = max(-(-(last - first + 1) // BINS), 1)
    counts = np.bincount((at - first) // width, minlength=BINS)
    return tuple(int(count) for count in counts)
