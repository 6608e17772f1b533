"""A member of a consumer group that judges: reads alerts, publishes verdicts, loses nothing.

The state of a job is never stored. What is committed for a partition is where its oldest open job
starts, so whoever owns the partition next reads the open jobs again from their start, builds the
same state, and says the same verdicts under the same ids. Commits come only when a job is over and
its verdicts are acknowledged.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from replay.errors import TransportError
from replay.messages import AlertSlice, JobEnded, JobStarted
from replay.transports.kafka.case import Case
from replay.transports.kafka.clients import Mark, client
from replay.transports.kafka.outbox import Outbox
from replay.transports.wire import Counters, Decoder, PoisonError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from replay.errors import DetectorError
    from replay.messages import Message
    from replay.transports.kafka.case import JobWatch
    from replay.transports.kafka.clients import Received
    from replay.transports.kafka.settings import Settings

__all__ = ["OnPoison", "Work", "Worker"]

OnPoison = Literal["dlq", "skip", "fail"]
"""What to do with a record that makes no sense: keep it in ``TOPIC.dlq``, leave it, or give up."""

_POLL_S = 0.2
_AT_MOST = 500  # records between two commits
_BATCH_S = 5.0  # and wall seconds: a group gives up on a member that does not poll
_TOPIC_S = 0.5
_OWN_JOB = "dead letters"  # they have no job, and need an order of their own


@dataclass(slots=True)
class Work:
    """What a worker has done so far.

    Attributes:
        records: Records read, again or for the first time.
        alerts: Alerts among them that were delivered.
        jobs: Jobs judged to their end.
        verdicts: Verdicts published, again or for the first time.
        skipped: Records of jobs that another owner had judged to their end.
        counters: Losses and repeats.
        dead_letters: Reason → records that made no sense.
        failures: Detectors that crashed on a job.
        open_jobs: Jobs begun and not over.
        partitions: Partitions owned.
        lag: Records of these partitions that are not read yet.
        committed_lag: Records that a new owner would have to read.
        unacked: Verdicts under way.
        rebalances: How often partitions came or went.
    """

    records: int = 0
    alerts: int = 0
    jobs: int = 0
    verdicts: int = 0
    skipped: int = 0
    counters: Counters = field(default_factory=Counters)
    dead_letters: Counter[str] = field(default_factory=Counter)
    failures: list[DetectorError] = field(default_factory=list)
    open_jobs: int = 0
    partitions: int = 0
    lag: int = 0
    committed_lag: int = 0
    unacked: int = 0
    rebalances: int = 0


class _Open(NamedTuple):
    """A job that has begun and is not over, and the offset of its start."""

    start: int
    case: Case


class _Share:
    """A partition that is ours: where it stands, and its open jobs."""

    __slots__ = ("committed", "decoder", "done", "found", "jobs", "next")

    def __init__(self, mark: Mark, counters: Counters) -> None:
        self.committed = mark.offset
        self.done = mark.done
        self.found: int | None = None
        self.next = mark.offset
        self.decoder = Decoder(counters)
        self.jobs: dict[tuple[str, str], _Open] = {}

    @property
    def mark(self) -> Mark:
        """Where the next owner would have to begin."""
        oldest = min((job.start for job in self.jobs.values()), default=self.next)
        return Mark(oldest, max(self.next, self.done or 0))


class Worker:
    """Judges the jobs of the partitions that its group gives it.

    Args:
        source: The topic with alerts.
        target: The topic for verdicts; made when it is missing.
        group: Name of the consumer group.
        watch: Makes what watches a job.
        on_poison: See :data:`OnPoison`.
        idle_exit: Stop after so many wall seconds without a record; None never stops.
        note: Told, in a sentence, what a person should know.
        mono: Gives wall seconds that never go back.

    Attributes:
        work: What was done so far.

    Raises:
        TransportError: The broker does not let us in, or there is no such topic.
    """

    def __init__(
        self,
        source: Settings,
        target: Settings,
        group: str,
        watch: Callable[[], JobWatch],
        *,
        on_poison: OnPoison = "dlq",
        idle_exit: float | None = None,
        note: Callable[[str], None] = lambda _: None,
        mono: Callable[[], float] = time.monotonic,
    ) -> None:
        if on_poison not in get_args(OnPoison):
            raise ValueError(f"on_poison={on_poison!r} is none of {', '.join(get_args(OnPoison))}")
        self._source = source
        self._watch = watch
        self._on_poison = on_poison
        self._idle_exit = idle_exit
        self._note = note
        self._mono = mono
        self._shares: dict[int, _Share] = {}
        self._most = _AT_MOST
        self._heard = mono()
        self._stopping = False
        self._dead: Outbox | None = None
        self.work = Work()
        kafka = client(source)
        deadline = mono() + source.wait
        while source.topic not in kafka.topics(source):
            if mono() >= deadline:
                raise TransportError(
                    f"There is no topic {source.topic!r} at {source.servers}.",
                    "alert-replay publish makes it; --wait-for-broker waits longer for it",
                )
            time.sleep(_TOPIC_S)
        self._outbox = Outbox(target, note=note)
        self._consumer = kafka.member(source, group, self)

    @property
    def standing(self) -> Work:
        """A copy of what was done so far, for any thread."""
        return replace(
            self.work,
            counters=replace(self.work.counters),
            dead_letters=self.work.dead_letters.copy(),
            failures=self.work.failures.copy(),
        )

    def stop(self) -> None:
        """Finish what is in hand, commit, and leave the group; from any thread or a signal."""
        self._stopping = True

    def run(self) -> Work:
        """Judge until told to stop, or until nothing came for long enough.

        Raises:
            TransportError: The broker refuses us, or a record made no sense and that is to fail.
        """
        try:
            self._heard = self._mono()
            while not self._stopping:
                began = self._mono()
                if self._step():
                    self._heard = self._mono()
                    self._pace(self._heard - began)
                elif self._idle_exit is not None and self._mono() - self._heard > self._idle_exit:
                    break
        finally:
            self._leave()
        return self.work

    # ------------------------------------------------------------------ the group's doing

    def lost(self, partitions: Iterable[int]) -> None:
        """These belong to someone else now, who will read their open jobs from the start."""
        self.work.rebalances += 1
        for partition in partitions:
            self._shares.pop(partition, None)

    def gained(self, marks: Mapping[int, Mark | None]) -> Mapping[int, int]:
        """These are ours from now on: begin where the oldest open job does."""
        self.work.rebalances += 1
        self._heard = self._mono()
        for partition, mark in marks.items():
            self._shares[partition] = _Share(mark or Mark(0, 0), self.work.counters)
        return {partition: self._shares[partition].next for partition in marks}

    # ------------------------------------------------------------------ reading

    def _step(self) -> bool:
        """Read, judge, publish, wait for acknowledgement, commit; whether anything came."""
        records = self._consumer.poll(_POLL_S, self._most)
        for record in records:
            share = self._shares.get(record.partition)
            if share is not None and record.offset >= share.next:
                self._take(share, record)
        if records:
            self._safe()
            self._commit()
        self._measure()
        return bool(records)

    def _pace(self, took: float) -> None:
        """Read less at a time when detectors are slow, so that the group hears of us."""
        wanted = self._most * _BATCH_S / max(took, 1e-9)
        self._most = max(1, min(_AT_MOST, int(wanted)))

    def _take(self, share: _Share, record: Received) -> None:
        self.work.records += 1
        try:
            messages = share.decoder.decode(record.value)
        except PoisonError as error:
            if self._is_old(share, record, error):
                self.work.skipped += 1
            else:
                self._poison(record, error)
        else:
            for message in messages:
                self._judge(share, message, record.offset)
        share.next = record.offset + 1

    def _is_old(self, share: _Share, record: Received, error: PoisonError) -> bool:
        """Whether a former owner has dealt with this record.

        Where the broker does not keep how far that one came, a job whose start is not here is taken
        to be over if its records were there before we came.
        """
        if share.done is not None:
            return record.offset < share.done
        if share.found is None:
            share.found = self._consumer.end(record.partition) or 0
        return error.reason == "no-start" and record.offset < share.found

    def _judge(self, share: _Share, message: Message, offset: int) -> None:
        if isinstance(message, JobStarted):
            self._begin(share, message, offset)
        key = message.run, _job(message)
        case = share.jobs[key].case
        if isinstance(message, AlertSlice):
            self.work.alerts += len(message.batch)
        if records := case.feed(message):
            self._outbox.put(key[1], records)
        if isinstance(message, JobEnded):
            self.work.jobs += 1
            self.work.verdicts -= 1  # the last record is no verdict
            self.work.failures += case.failures
            del share.jobs[key]
        self.work.verdicts += len(records)

    def _begin(self, share: _Share, message: JobStarted, offset: int) -> None:
        key = message.run, message.job.id
        known = share.jobs.get(key)
        share.jobs[key] = _Open(offset, Case(self._watch()) if known is None else known.case)

    # ------------------------------------------------------------------ poison

    def _poison(self, record: Received, error: PoisonError) -> None:
        self.work.dead_letters[error.reason] += 1
        place = f"{self._source.topic}, partition {record.partition}, offset {record.offset}"
        if self._on_poison == "fail":
            raise TransportError(f"{place}: {error}.", "--on-poison dlq keeps such records aside")
        if self.work.dead_letters[error.reason] == 1:
            self._note(f"{place}: {error} (the first of its kind; all are counted)")
        if self._on_poison == "dlq":
            self._bury(record, error)

    def _bury(self, record: Received, error: PoisonError) -> None:
        if self._dead is None:
            topic = self._source.on(f"{self._source.topic}.dlq").but(partitions=1)
            self._dead = Outbox(topic, note=self._note)
        headers = [
            ("topic", self._source.topic.encode()),
            ("partition", str(record.partition).encode()),
            ("offset", str(record.offset).encode()),
            ("key", record.key or b""),
            ("reason", error.reason.encode()),
            ("error", str(error).encode(errors="backslashreplace")),
        ]
        self._dead.put(_OWN_JOB, [record.value or b""], headers)

    # ------------------------------------------------------------------ committing

    def _safe(self) -> None:
        """Wait until everything said so far is acknowledged."""
        self._outbox.flush()
        if self._dead is not None:
            self._dead.flush()

    def _commit(self) -> None:
        marks = {
            partition: share.mark
            for partition, share in self._shares.items()
            if share.mark.offset > share.committed
        }
        if marks and self._consumer.commit(marks):
            for partition, mark in marks.items():
                if partition in self._shares:
                    self._shares[partition].committed = mark.offset

    def _measure(self) -> None:
        """How far behind we are."""
        lag = committed_lag = 0
        for partition, share in self._shares.items():
            end = self._consumer.end(partition)
            if end is not None:
                lag += max(end - share.next, 0)
                committed_lag += max(end - share.committed, 0)
        self.work.lag, self.work.committed_lag = lag, committed_lag
        self.work.unacked = self._outbox.report.unacked
        self.work.partitions = len(self._shares)
        self.work.open_jobs = sum(len(share.jobs) for share in self._shares.values())

    def _leave(self) -> None:
        """What is published but not acknowledged will be said again by the next owner."""
        self._consumer.close()
        for outbox in (self._outbox, self._dead):
            if outbox is not None:
                outbox.close(at_once=True)


def _job(message: Message) -> str:
    if isinstance(message, JobStarted):
        return message.job.id
    return message.batch.job if isinstance(message, AlertSlice) else message.job
