"""Alerts written by hand, as messages and as a trace, and a player for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from replay.api import AlertBatch, Detector, Job
from replay.host import JobHost
from replay.messages import AlertSlice, JobEnded, JobStarted
from replay.plugins import DetectorSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from replay.api import Verdict
    from replay.messages import Message, TimedVerdict
    from replay.traces.model import Trace

__all__ = [
    "TINY_TRACES",
    "Check",
    "Row",
    "TinyTrace",
    "batches",
    "bound",
    "play",
    "raise_failure",
    "said_to_each",
    "spec_of",
    "stream",
    "verdicts",
]

Check = Callable[[], None]
"""Raises ``AssertionError`` where something breaks a rule; named for the rule."""

Row = tuple[float, str, str]
"""An alert written by hand: trace seconds since the job's start, node, kind."""

START_TIME = "1969-12-31 23:00:00"  # so that event times pass the first second of 1970


def stream(
    job: Job,
    alerts: Iterable[Row],
    *,
    end: float = 0.0,
    run: str = "hand-made",
    epoch: int = 0,
) -> list[Message]:
    """The messages by which a replay would deliver these alerts.

    Args:
        job: The job.
        alerts: (trace seconds, node, kind); sorted here by time, equal times keep their order.
        end: Trace seconds at which the job ends, unless an alert comes later.
        run: Id of the replay.
        epoch: See :class:`~replay.messages.JobStarted`.

    Examples:
        >>> messages = stream(Job("Job1", ("a", "b")), [(1.0, "b", "ecc"), (1.0, "a", "ecc")], end=9)
        >>> [type(message).__name__ for message in messages]
        ['JobStarted', 'AlertSlice', 'JobEnded']

    """
    rows = sorted(alerts, key=itemgetter(0))
    first = min(0.0, rows[0][0]) if rows else 0.0
    messages: list[Message] = [JobStarted(run, epoch, job, START_TIME, first)]
    messages += [AlertSlice(run, epoch, batch) for batch in batches(job, rows)]
    last = max(end, rows[-1][0]) if rows else end
    messages.append(JobEnded(run, epoch, job.id, float(last), len(rows)))
    return messages


def batches(job: Job, rows: Sequence[Row]) -> Iterator[AlertBatch]:
    """Rows as batches; names get their codes when they are first seen."""
    nodes = {node: code for code, node in enumerate(job.nodes)}
    kinds: dict[str, int] = {}
    seq = 0
    for at, group in groupby(rows, key=itemgetter(0)):
        names = [(node, kind) for _, node, kind in group]
        node = np.array([nodes.setdefault(name, len(nodes)) for name, _ in names], np.int32)
        kind = np.array([kinds.setdefault(name, len(kinds)) for _, name in names], np.int32)
        numbers = np.arange(seq, seq + len(names), dtype=np.int64)
        for column in (numbers, node, kind):
            column.setflags(write=False)
        yield AlertBatch(job.id, float(at), numbers, node, kind, tuple(nodes), tuple(kinds))
        seq += len(names)


def bound(check: Callable[..., None], *arguments: Any) -> Check:
    """A check of something given, under the name and docstring of the check."""

    def bound_check() -> None:
        check(*arguments)

    bound_check.__name__ = bound_check.__qualname__ = check.__name__
    bound_check.__doc__ = check.__doc__
    return bound_check


def spec_of(detector: DetectorSpec | type[Detector] | str) -> DetectorSpec:
    """A detector given as a class, as text, or as what these become."""
    if isinstance(detector, DetectorSpec):
        return detector
    return DetectorSpec.parse(detector) if isinstance(detector, str) else DetectorSpec.of(detector)


def said_to_each(spec: DetectorSpec, messages: Iterable[Message]) -> list[list[TimedVerdict]]:
    """What a detector says to each message.

    Raises:
        DetectorError: It crashed or broke its contract.
    """
    host = JobHost([spec])
    said = [host.feed(message) for message in messages]
    raise_failure(host)
    return said


def verdicts(spec: DetectorSpec, messages: Iterable[Message]) -> list[tuple[float, Verdict]]:
    """When and what a detector says; raises as :func:`said_to_each`."""
    return [(timed.at, timed.verdict) for said in said_to_each(spec, messages) for timed in said]


def raise_failure(host: JobHost) -> None:
    """Raise the first failure of a host's detectors, if there is one."""
    if host.tally.failures:
        raise host.tally.failures[0]


def play(
    job: Job,
    alerts: Iterable[Row],
    *detectors: DetectorSpec | type[Detector] | str,
    end: float = 0.0,
) -> list[TimedVerdict]:
    """What detectors say to alerts written by hand.

    Args:
        job: The job.
        alerts: As for :func:`stream`.
        detectors: Classes, or text such as ``"burst:window=30"``.
        end: Trace seconds at which the job ends, unless an alert comes later.

    Raises:
        DetectorError: A detector crashed or broke its contract.

    Examples:
        >>> alerts = [(0.0, "a", "ecc"), (9.0, "b", "xid"), (12.0, "b", "ecc")]
        >>> for timed in play(Job("Job1", ("a", "b", "c")), alerts, "loudest", end=60.0):
        ...     print(timed.at, timed.detector, timed.verdict.node)
        60.0 loudest b

    """
    host = JobHost([spec_of(detector) for detector in detectors])
    said = [timed for m in stream(job, alerts, end=end) for timed in host.feed(m)]
    raise_failure(host)
    return said


@dataclass(frozen=True, slots=True)
class TinyTrace:
    """A job small enough to be read.

    Attributes:
        name: What it shows.
        job: The job.
        alerts: (trace seconds, node, kind), in order.
        end: Trace seconds at which the job ends.
        faulty: The truth: nodes that are to blame. Never reaches a detector.
    """

    name: str
    job: Job
    alerts: tuple[Row, ...] = ()
    end: float = 600.0
    faulty: frozenset[str] = frozenset()

    def messages(self) -> list[Message]:
        """As :func:`stream`."""
        return stream(self.job, self.alerts, end=self.end)

    def trace(self) -> Trace:
        """The same as a trace, with its truth."""
        import pyarrow as pa  # noqa: PLC0415 - heavy, and few tests need it

        from replay.traces.model import EVENTS, Trace, TraceJob  # noqa: PLC0415 - imports Arrow

        start = np.datetime64(START_TIME, "ns")
        offsets = [np.timedelta64(round(at * 1e9), "ns") for at, _, _ in self.alerts]
        status = {node: "faulty" if node in self.faulty else "normal" for node in self.job.nodes}
        end = start + np.timedelta64(round(self.end * 1e9), "ns")
        job = TraceJob(
            self.job.id,
            START_TIME,
            _written(end),
            self.job.gpu_generation,
            status,
            int(start.astype(np.int64)),
            int(end.astype(np.int64)),
        )
        columns: list[list[Any]] = [
            [0] * len(self.alerts),
            [node for _, node, _ in self.alerts],
            [_written(start + offset) for offset in offsets],
            [kind for _, _, kind in self.alerts],
            [int(offset.astype(np.int64)) for offset in offsets],
        ]
        arrays = [pa.array(c, item.type) for c, item in zip(columns, EVENTS, strict=True)]
        return Trace((job,), pa.Table.from_arrays(arrays, schema=EVENTS), self.name)


def _written(moment: np.datetime64) -> str:
    text = str(moment.astype("datetime64[s]")).replace("T", " ")
    nanos = int(moment.astype(np.int64)) % 10**9
    return text + f".{nanos:09d}".rstrip("0") if nanos else text


_FOUR = ("node-a", "node-b", "node-c", "node-d")
_EIGHT = tuple(f"node-{letter}" for letter in "abcdefgh")


def _mixed() -> Iterator[Row]:
    """A few minutes of everything: lone alerts, ties, repeats, three kinds at five rates."""
    at = 0
    for number in range(160):
        at += (0, 0, 1, 0, 7, 0, 0, 13, 2, 0)[number % 10]
        node = _EIGHT[(number * number + number // 3) % 8]
        yield float(at), node, ("ecc", "nic_down", "pcie_replay")[(number // 2 + number * 5) % 3]


TINY_TRACES: tuple[TinyTrace, ...] = (
    TinyTrace("quiet", Job("quiet", _FOUR)),
    TinyTrace("lone", Job("lone", _FOUR, "Hopper"), ((0.0, "node-b", "ecc"),)),
    TinyTrace(
        "culprit",  # one node fails and takes the others with it
        Job("culprit", _FOUR, "Hopper"),
        (
            (12.0, "node-c", "ecc"),
            (13.0, "node-c", "ecc"),
            (13.0, "node-c", "xid"),
            (15.0, "node-c", "ecc"),
            (18.0, "node-c", "nic_down"),
            (19.0, "node-a", "nccl_timeout"),
            (19.0, "node-b", "nccl_timeout"),
            (19.0, "node-c", "nccl_timeout"),
            (19.0, "node-d", "nccl_timeout"),
            (20.0, "node-c", "ecc"),
            (48.0, "node-a", "process_exit"),
        ),
        60.0,
        faulty=frozenset({"node-c"}),
    ),
    TinyTrace(
        "storm",  # every node, twice, in one instant
        Job("storm", _EIGHT),
        tuple((5.0, node, kind) for kind in ("link_flap", "ecc") for node in _EIGHT * 15),
        end=5.0,
    ),
    TinyTrace(
        "chatter",  # a healthy node that complains evenly
        Job("chatter", _FOUR),
        tuple((10.0 * number, "node-d", "fan_speed") for number in range(60)),
    ),
    TinyTrace("mixed", Job("mixed", _EIGHT, "Ampere"), tuple(_mixed()), 900.0),
    TinyTrace(
        "strangers",  # before the start, after the end, and from nodes outside the job
        Job("strangers", _FOUR),
        (
            (-120.0, "node-a", "ecc"),
            (-0.5, "node-z", "ecc"),
            (10.0, "node-y", "never seen before"),
            (10.0, "node-b", "ecc"),
            (700.0, "node-y", "ecc"),
        ),
    ),
    TinyTrace(
        "nameless",  # a job that lists no nodes
        Job("nameless"),
        ((1.0, "node-x", "ecc"), (2.0, "node-x", "ecc"), (2.0, "node-w", "xid")),
    ),
    TinyTrace(
        "repeats",  # the same row again and again
        Job("repeats", _FOUR),
        tuple((float(number // 8), "node-b", "ecc") for number in range(48)),
    ),
    TinyTrace(
        "pause",  # a long silence between two alerts
        Job("pause", _FOUR),
        ((0.0, "node-a", "ecc"), (6000.0, "node-a", "ecc"), (6000.0, "node-b", "ecc")),
        7200.0,
    ),
)
"""Ten jobs small enough to be read, each with its own trap."""
