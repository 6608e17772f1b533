"""Collects what the workers said: each verdict once, until every job is judged."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from replay.errors import TransportError
from replay.transports.kafka.clients import client
from replay.transports.wire import Judged, PoisonError, decode_verdict, verdict_id

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from replay.messages import TimedVerdict
    from replay.transports.kafka.clients import Consumer
    from replay.transports.kafka.settings import Settings

__all__ = ["Collected", "collect"]

_POLL_S = 0.2
_AT_ONCE = 5000


@dataclass(slots=True)
class Collected:
    """The verdicts of one run.

    Attributes:
        run: Id of the replay.
        verdicts: Each once, of the last epoch of each job; in no particular order.
        judged: Job → how its judging ended, in its last epoch.
        missing: Jobs that were asked for and are not judged to their end.
        detectors: Who judged.
        duplicates: Verdicts that came again, and were dropped.
        conflicts: Those of them that did not say the same: their detector is not deterministic.
        poisoned: Records that made no sense.
    """

    run: str = ""
    verdicts: list[TimedVerdict] = field(default_factory=list)
    judged: dict[str, Judged] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    detectors: tuple[str, ...] = ()
    duplicates: int = 0
    conflicts: int = 0
    poisoned: int = 0

    @property
    def complete(self) -> bool:
        """Whether every job was judged to its end, on every alert."""
        ends = self.judged.values()
        return not self.missing and all(end.complete and not end.missing for end in ends)

    def sentences(self) -> Iterator[str]:
        """What a person should know of it."""
        yield f"run {self.run}: {len(self.verdicts)} verdicts on {len(self.judged)} jobs"
        if self.duplicates:
            yield f"{self.duplicates} verdicts came again and were dropped"
        if self.conflicts:
            yield f"{self.conflicts} of them did not say the same: a detector is not deterministic"
        if self.poisoned:
            yield f"{self.poisoned} records made no sense"
        for job, end in self.judged.items():
            if end.missing:
                yield f"{job}: {end.missing} of {end.count} alerts never reached the detectors"
            if not end.complete:
                yield f"{job}: the replay was stopped before its end"
            for detector, why in end.failed.items():
                yield f"{job}: detector {detector} was stopped: {why}"
        if self.missing:
            yield f"not judged to the end: {', '.join(self.missing)}"


class _Run:
    """What came of one run."""

    def __init__(self) -> None:
        self.said: dict[str, TimedVerdict] = {}
        self.counts: dict[tuple[str, int, str], int] = {}
        self.ends: dict[tuple[str, int], Judged] = {}
        self.duplicates = 0
        self.conflicts = 0

    def take(self, said: TimedVerdict | Judged) -> None:
        if isinstance(said, Judged):
            known = self.ends.get((said.job, said.epoch))
            self.ends[said.job, said.epoch] = said if known is None else _joined(known, said)
            return
        name = verdict_id(said.run, said.epoch, said.detector, said.job, said.number)
        first = self.said.get(name)
        if first is None:
            self.said[name] = said
            key = said.job, said.epoch, said.detector
            self.counts[key] = self.counts.get(key, 0) + 1
        else:
            self.duplicates += 1
            self.conflicts += (first.at, first.verdict) != (said.at, said.verdict)

    def last(self, job: str) -> Judged | None:
        """The end of a job's last epoch."""
        epochs = [epoch for name, epoch in self.ends if name == job]
        return self.ends[job, max(epochs)] if epochs else None

    def is_whole(self, job: str) -> bool:
        """Whether the job is judged, and all that was said of it is here."""
        end = self.last(job)
        return end is not None and all(
            self.counts.get((job, end.epoch, detector), 0) >= count
            for detector, count in end.verdicts.items()
        )


def _joined(one: Judged, other: Judged) -> Judged:
    """The same end as told by two groups with different detectors, or twice by one."""
    return Judged(
        one.run,
        one.epoch,
        one.job,
        one.at,
        one.count,
        min(one.missing, other.missing),
        one.complete,
        {**one.verdicts, **other.verdicts},
        {**one.failed, **other.failed},
    )


def collect(
    settings: Settings,
    jobs: Collection[str],
    *,
    run: str | None = None,
    idle: float = 30.0,
    note: Callable[[str], None] = lambda _: None,
    mono: Callable[[], float] = time.monotonic,
) -> Collected:
    """Read a topic of verdicts until every job is judged, or nothing came for a while.

    Args:
        settings: The topic.
        jobs: Ids of the jobs that will be judged.
        run: The replay; None takes the one whose records came last.
        idle: Wall seconds without a record after which it is taken as it is.
        note: Told, in a sentence, what a person should know.
        mono: Gives wall seconds that never go back.

    Raises:
        TransportError: The broker does not let us in, there is no such topic, or nothing in it.
    """
    kafka = client(settings)
    partitions = kafka.topics(settings).get(settings.topic)
    if partitions is None:
        raise TransportError(
            f"There is no topic {settings.topic!r} at {settings.servers}.",
            "alert-replay detect makes it",
        )
    consumer = kafka.reader(settings, range(partitions))
    reading = _Reading(jobs, run)
    try:
        last = mono()
        while not reading.is_whole(consumer, range(partitions)):
            if reading.read(consumer):
                last = mono()
            elif mono() - last > idle:
                break
    finally:
        consumer.close()
    if reading.newest is None:
        what = f"run {run!r}" if run is not None else "any run"
        raise TransportError(
            f"Topic {settings.topic!r} at {settings.servers} holds no verdict of {what}.",
            "alert-replay detect --to this topic",
        )
    if len(reading.runs) > 1:
        note(f"{len(reading.runs)} runs are in this topic; taking {reading.newest}")
    return reading.collected()


class _Reading:
    """What was read so far, of all runs."""

    def __init__(self, jobs: Collection[str], run: str | None) -> None:
        self.jobs = jobs
        self.only = run
        self.runs: dict[str, _Run] = {}
        self.newest: str | None = None
        self._newest_wall = float("-inf")
        self._positions: dict[int, int] = {}
        self._poisoned = 0

    def read(self, consumer: Consumer) -> bool:
        """Take what has come; whether there was any."""
        records = consumer.poll(_POLL_S, _AT_ONCE)
        for record in records:
            self._positions[record.partition] = record.offset + 1
            try:
                said = decode_verdict(record.value)
            except PoisonError:
                self._poisoned += 1
                continue
            if self.only is not None and said.run != self.only:
                continue
            self.runs.setdefault(said.run, _Run()).take(said)
            if record.wall >= self._newest_wall:
                self._newest_wall, self.newest = record.wall, said.run
        return bool(records)

    def is_whole(self, consumer: Consumer, partitions: Iterable[int]) -> bool:
        """Whether the newest run is judged, and nothing newer is known to lie in the topic."""
        if self.newest is None:
            return False
        if self.only is None:
            for partition in partitions:
                end = consumer.end(partition)
                if end is None or self._positions.get(partition, 0) < end:
                    return False
        return all(self.runs[self.newest].is_whole(job) for job in self.jobs)

    def collected(self) -> Collected:
        """The newest run, each job in its last epoch."""
        newest = self.newest or ""
        run = self.runs[newest]
        judged = {job: end for job in self.jobs if (end := run.last(job)) is not None}
        epochs = dict.fromkeys(self.jobs, 0)
        for said in run.said.values():
            epochs[said.job] = max(epochs.get(said.job, 0), said.epoch)
        epochs |= {job: end.epoch for job, end in judged.items()}
        verdicts = [
            said
            for said in run.said.values()
            if said.job in self.jobs and said.epoch == epochs[said.job]
        ]
        return Collected(
            newest,
            verdicts,
            judged,
            tuple(job for job in self.jobs if not run.is_whole(job)),
            tuple(dict.fromkeys(name for end in judged.values() for name in end.verdicts)),
            run.duplicates,
            run.conflicts,
            self._poisoned,
        )
