"""Traces made of a few numbers, sinks that remember, and what to compare of what they got."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from hypothesis import strategies as st

from replay.messages import AlertSlice, JobEnded, JobStarted, Watermark
from replay.traces.model import EVENTS, Trace, TraceJob

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from replay.clock import ManualClock
    from replay.messages import Message

SECOND = 10**9


class Row(NamedTuple):
    """One alert: seconds since the job's start, node, kind."""

    at: float
    node: str = "a"
    kind: str = "x"


@dataclass(frozen=True)
class Work:
    """One job: its end in seconds, and its alerts in the order of the file."""

    end: float = 10
    rows: tuple[Row, ...] = ()
    nodes: tuple[str, ...] = ("a", "b")
    start_ns: int = 0


def trace_of(*works: Work) -> Trace:
    """A trace of Job1, Job2, ..."""
    jobs = tuple(
        TraceJob(
            id=f"Job{number}",
            start_time=f"start of {number}",
            end_time=f"end of {number}",
            gpu_generation="Hopper",
            ip_status=dict.fromkeys(work.nodes, "normal"),
            start_ns=work.start_ns,
            end_ns=work.start_ns + round(work.end * SECOND),
        )
        for number, work in enumerate(works, 1)
    )
    flat = [(number, row) for number, work in enumerate(works) for row in work.rows]
    columns = [
        pa.array([number for number, _ in flat], pa.int32()),
        pa.array([row.node for _, row in flat], pa.string()).dictionary_encode(),
        pa.array([f"at {row.at}" for _, row in flat], pa.string()),
        pa.array([row.kind for _, row in flat], pa.string()).dictionary_encode(),
        pa.array([round(row.at * SECOND) for _, row in flat], pa.int64()),
    ]
    return Trace(jobs, pa.table(columns, schema=EVENTS), "made by hand")


def ticking(*seconds: float, end: float = 10, node: str = "a") -> Trace:
    """One job with an alert at each of these seconds."""
    return trace_of(Work(end, tuple(Row(at, node, f"k{i % 3}") for i, at in enumerate(seconds))))


_rows = st.builds(
    Row,
    st.one_of(st.integers(-3, 12), st.sampled_from((0.5, 2.25, 2.75, 7.5))),
    st.sampled_from("abcd"),
    st.sampled_from("xyz"),
)
_works = st.builds(Work, st.integers(0, 10), st.lists(_rows, max_size=12).map(tuple))
traces = st.lists(_works, min_size=1, max_size=4).map(lambda works: trace_of(*works))
"""Small traces with everything that may be odd: ties, no order, alerts outside, empty jobs."""

schedules = st.sampled_from(
    ("together", "sequence", "sequence:2", "stagger:3", "stagger:random:9", "pool:1", "pool:2")
)


@dataclass
class Recorder:
    """A sink that remembers what came, and when the wall clock said so."""

    clock: ManualClock | None = None
    messages: list[Message] = field(default_factory=list)
    walls: list[int] = field(default_factory=list)

    def __call__(self, messages: Sequence[Message]) -> None:
        assert messages
        self.messages += messages
        now = self.clock.now_ns if self.clock else 0
        self.walls += [now] * len(messages)

    def alerts_by_wall(self) -> list[tuple[int, float]]:
        """(wall nanoseconds, trace seconds) of every alert."""
        return [
            (wall, alert.at)
            for wall, message in zip(self.walls, self.messages, strict=True)
            if isinstance(message, AlertSlice)
            for alert in message.batch
        ]


def alerts(messages: Iterable[Message]) -> list[tuple]:
    """Every alert, whichever pieces it came in."""
    return [
        tuple(alert)
        for message in messages
        if isinstance(message, AlertSlice)
        for alert in message.batch
    ]


def skeleton(messages: Iterable[Message], *, epochs: bool = False) -> list[tuple]:
    """All that must not depend on speed: starts, alerts one by one, ends."""
    story: list[tuple] = []
    for message in messages:
        epoch = (message.epoch,) if epochs else ()
        match message:
            case JobStarted():
                story.append((*epoch, "started", message.job, message.start_time, message.at))
            case AlertSlice():
                story += [(*epoch, *alert) for alert in message.batch]
            case JobEnded():
                ended = (message.job, message.at, message.count, message.complete)
                story.append((*epoch, "ended", *ended))
            case Watermark():
                pass
    return story


def check_protocol(messages: Iterable[Message]) -> None:
    """Per job and epoch: started, then times that never go back, then ended; marks hold."""
    newest: dict[tuple[int, str], float] = {}
    marks: dict[tuple[int, str], float] = {}
    ended: set[tuple[int, str]] = set()
    for message in messages:
        match message:
            case JobStarted():
                key = message.epoch, message.job.id
                assert key not in newest
                newest[key] = message.at
            case AlertSlice():
                key = message.epoch, message.batch.job
                assert message.batch.at >= newest[key]
                assert message.batch.at > marks.get(key, float("-inf"))
                assert len(message.batch)
                newest[key] = message.batch.at
            case Watermark() | JobEnded():
                key = message.epoch, message.job
                assert message.at >= newest[key]
                newest[key] = marks[key] = message.at
        assert key not in ended
        if isinstance(message, JobEnded):
            ended.add(key)
