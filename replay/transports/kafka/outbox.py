"""Records on their way out: each in order and acknowledged, whatever the broker does.

Records are kept until they are acknowledged, and only so many are; ``put`` waits for room. One
thread looks after what is under way: it takes acknowledgements, notes outages, and when a producer
is lost it builds a new one and sends again what was not acknowledged, in order. What the broker
had written but not yet acknowledged is then there twice, which the reader sees by the ``seq``.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, get_args

from replay.errors import TransportError
from replay.transports.kafka.clients import LostError, client
from replay.transports.kafka.partitions import partition_of
from replay.transports.kafka.settings import unmade
from replay.transports.wire import job_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from replay.transports.kafka.clients import Client, Delivery, Producer
    from replay.transports.kafka.settings import Settings

__all__ = ["Loss", "Outage", "Outbox", "Policy", "Sending", "ensure_topic"]

Policy = Literal["wait", "pause", "fail"]
"""What to do while the broker is away: keep the schedule as long as there is room for records,
stand still from the first second on, or give up."""

OUTAGE_S = 1.0
"""Wall seconds without an acknowledgement that make an outage."""

DEFAULT_PARTITIONS = 4
_TENDING_S = 0.05
_WAITING_S = 0.002
_CLOSING_S = 5.0
_GROUP = 500  # records that are sent, acknowledged and sent again together
_ASKING_S = 5.0  # in an outage, how often the broker is asked whether it is there at all
_PATIENCE = 6  # how often it may say so while nothing is acknowledged, before a producer is lost
_FRUITLESS = 5  # producers that brought nothing through, one after the other


@dataclass(slots=True)
class Outage:
    """A time in which the broker acknowledged nothing, and the replay was not at its pace.

    Attributes:
        start_wall: Unix seconds at which the first record that had to wait was sent.
        end_wall: Unix seconds at which it was acknowledged; None while it lasts.
        records: How many records had to wait.
    """

    start_wall: float
    end_wall: float | None = None
    records: int = 0


@dataclass(frozen=True, slots=True)
class Loss:
    """Records that the broker had acknowledged and then forgot.

    Attributes:
        partition: Where.
        records: How many.
        start_wall: Unix seconds, a second before the first of them was acknowledged at most.
        end_wall: Unix seconds at which the last of them was acknowledged.
        jobs: Job → ``seq`` and ``t`` of its last alert among them, where it has any.
    """

    partition: int
    records: int
    start_wall: float
    end_wall: float
    jobs: dict[str, tuple[int, float]]


@dataclass(slots=True)
class Sending:
    """What an outbox has done so far.

    Attributes:
        sent: Records handed to it.
        acked: Records acknowledged.
        unacked: Records under way.
        partitions: Partition → records acknowledged there.
        blocked_seconds: Wall seconds that publishing had to wait for room.
        producers: Producers built; more than one means that one was lost.
        outages: When the broker was away.
        losses: What the broker forgot.
    """

    sent: int = 0
    acked: int = 0
    unacked: int = 0
    partitions: dict[int, int] = field(default_factory=dict)
    blocked_seconds: float = 0.0
    producers: int = 0
    outages: list[Outage] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)


class _Sent:
    """Records that go to a partition together: sent, acknowledged and sent again as one."""

    __slots__ = ("delivery", "headers", "mono", "parcels", "partition", "records", "told")

    def __init__(self, partition: int, headers: Sequence[tuple[str, bytes]], mono: float) -> None:
        self.partition = partition
        self.headers = headers
        self.mono = mono
        self.parcels: list[tuple[bytes, Sequence[bytes]]] = []  # key, values
        self.told: list[tuple[str, int, float]] = []  # job, number and time of its last alert
        self.records = 0
        self.delivery: Delivery | None = None


class _Written:
    """What is known of a partition: its end, when it had grown how far, and its jobs."""

    __slots__ = ("end", "jobs", "steps")

    def __init__(self) -> None:
        self.end = 0
        self.steps: list[tuple[int, float]] = []
        self.jobs: dict[str, tuple[int, float]] = {}

    def acked(self, sent: _Sent, offset: int, wall: float) -> None:
        # after a repeat the broker may not say where a record is, or say it wrongly
        self.end = max(self.end, offset) + sent.records
        if not self.steps or wall - self.steps[-1][1] >= OUTAGE_S:
            self.steps.append((self.end - 1, wall))
        for job, seq, at in sent.told:
            self.jobs[job] = (seq, at)


def ensure_topic(settings: Settings, kafka: Client) -> int:
    """Make the topic when it is missing, check it when it is there; its number of partitions.

    Raises:
        TransportError: It cannot be made, or has another number of partitions than asked for.
    """
    there = kafka.topics(settings).get(settings.topic)
    if there is None:
        wanted = settings.partitions or DEFAULT_PARTITIONS
        _make_topic(settings, kafka, wanted)
        return wanted
    if settings.partitions not in {None, there}:
        raise TransportError(
            f"Topic {settings.topic!r} at {settings.servers} has {there} partitions,"
            f" {settings.partitions} were asked for.",
            "another topic; partitions added to a live one would split its jobs",
        )
    return there


def _make_topic(settings: Settings, kafka: Client, partitions: int) -> None:
    """Make the topic, and wait until brokers tell readers of it, too."""
    kafka.create(settings, partitions)
    give_up = time.monotonic() + max(settings.wait, 1)
    while settings.topic not in kafka.topics(settings):
        if time.monotonic() > give_up:
            raise unmade(settings, "it was made, but does not appear")
        time.sleep(_TENDING_S)


class Outbox:
    """Sends records to one topic, keyed by job.

    Args:
        settings: Where.
        on_loss: See :data:`Policy`.
        note: Told, in a sentence, when the broker goes away, comes back, or lost something.
        wall: Gives Unix seconds.
        mono: Gives wall seconds that never go back.

    Raises:
        TransportError: The broker does not let us in, or the topic is not as asked for.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        on_loss: Policy = "wait",
        note: Callable[[str], None] = lambda _: None,
        wall: Callable[[], float] = time.time,
        mono: Callable[[], float] = time.monotonic,
    ) -> None:
        if on_loss not in get_args(Policy):
            raise ValueError(f"on_loss={on_loss!r} is none of {', '.join(get_args(Policy))}")
        self._settings = settings
        self._on_loss = on_loss
        self._note = note
        self._wall = wall
        self._mono = mono
        self._kafka = client(settings)
        self._partitions = ensure_topic(settings, self._kafka)
        self._places: dict[str, tuple[bytes, int]] = {}
        self._pending: deque[_Sent] = deque()
        self._under_way = 0  # records in it
        self._group = min(_GROUP, settings.unacked)
        self._written: dict[int, _Written] = {}
        self._unsure: set[int] = set()  # partitions that may have been forgotten
        self._report = Sending()
        self._outage: Outage | None = None
        self._progress = self._asked = mono()
        self._answers = 0
        self._error: TransportError | None = None
        self._fruitless = 0
        self._closed = False
        self._changed = threading.Condition(threading.RLock())
        self._producer: Producer | None = self._new_producer()
        self._tending = threading.Thread(target=self._tend, name="kafka-outbox", daemon=True)
        self._tending.start()

    def put(
        self,
        job: str,
        values: Sequence[bytes],
        headers: Sequence[tuple[str, bytes]] = (),
        *,
        last_seq: int = -1,
        at: float = 0.0,
    ) -> None:
        """Take records of one job, in order; waits while too many are under way.

        Args:
            job: Whose they are; decides key and partition.
            values: The records.
            headers: Of every one of them.
            last_seq: Number of the last of them, if they are alerts; to say later what was lost.
            at: Their trace time, likewise.

        Raises:
            TransportError: A record was refused, or the broker is away and the policy is to fail.
        """
        self.put_all([(job, values, last_seq, at)], headers)

    def put_all(
        self,
        puts: Iterable[tuple[str, Sequence[bytes], int, float]],
        headers: Sequence[tuple[str, bytes]] = (),
    ) -> None:
        """As :meth:`put` for many: each a job, its records, the number of the last, their time."""
        with self._changed:
            now = self._mono()
            packed: dict[int, _Sent] = {}  # partition → what goes there next
            try:
                for job, values, last_seq, at in self._in_parts(puts):
                    count = len(values)
                    if not self._has_room(count):
                        self._dispatch(packed)
                        self._wait_for_room(count)
                        now = self._mono()
                    key, partition = self._places.get(job) or self._place(job)
                    sent = packed.get(partition)
                    if sent is None or sent.records + count > self._group:
                        if sent is not None:
                            self._send(packed.pop(partition))
                        sent = packed[partition] = _Sent(partition, headers, now)
                    sent.parcels.append((key, values))
                    if last_seq >= 0:
                        sent.told.append((job, last_seq, at))
                    sent.records += count
                    self._under_way += count
                    self._report.sent += count
            finally:
                self._dispatch(packed)

    def _in_parts(
        self, puts: Iterable[tuple[str, Sequence[bytes], int, float]]
    ) -> Iterator[tuple[str, Sequence[bytes], int, float]]:
        """The same, none larger than what is sent together."""
        for put in puts:
            job, values, last_seq, at = put
            count = len(values)
            if count <= self._group:
                yield put
                continue
            for first in range(0, count, self._group):
                part = values[first : first + self._group]
                seq = last_seq if last_seq < 0 else last_seq - count + first + len(part)
                yield job, part, seq, at

    def _dispatch(self, packed: dict[int, _Sent]) -> None:
        while packed:
            self._send(packed.popitem()[1])

    def flush(self) -> None:
        """Wait until every record is acknowledged; raises as :meth:`put`."""
        with self._changed:
            while self._pending:
                self._check()
                self._settle()
                if self._pending:
                    self._changed.wait(_WAITING_S)
            self._check()

    def close(self, *, at_once: bool = False) -> None:
        """Let go, after :meth:`flush` or at once. May be called twice."""
        try:
            if not (at_once or self._closed):
                self.flush()
        finally:
            self._let_go()

    @property
    def report(self) -> Sending:
        """A copy of what has been done so far, for any thread."""
        with self._changed:
            return replace(
                self._report,
                unacked=self._under_way,
                partitions=dict(self._report.partitions),
                outages=[replace(outage) for outage in self._report.outages],
                losses=list(self._report.losses),
            )

    # ------------------------------------------------------------------ sending

    def _place(self, job: str) -> tuple[bytes, int]:
        place = self._places.get(job)
        if place is None:
            key = job_key(job)
            place = self._places[job] = key, partition_of(key, self._partitions)
        return place

    def _send(self, sent: _Sent) -> None:
        self._pending.append(sent)
        self._hand_over(sent)

    def _hand_over(self, sent: _Sent) -> None:
        """Give records to the producer, if there is one; else they wait for the next."""
        if self._producer is None:
            return
        try:
            sent.delivery = self._producer.send(
                self._settings.topic, sent.partition, sent.parcels, sent.headers
            )
        except LostError as error:
            self._lose(error)
        except TransportError as error:
            self._error = error
            raise

    def _has_room(self, records: int) -> bool:
        """Whether records may go out now; not while the replay is to stand still."""
        if self._closed or self._error is not None:
            return False
        if self._on_loss == "pause" and self._outage is not None:
            return False
        return self._under_way + records <= self._settings.unacked

    def _wait_for_room(self, records: int) -> None:
        began = self._mono()
        while True:
            self._check()
            self._settle()
            if self._has_room(records):
                break
            self._changed.wait(_WAITING_S)
        self._report.blocked_seconds += self._mono() - began

    def _check(self) -> None:
        if self._error is not None:
            raise self._error
        if self._closed:
            raise TransportError(
                f"What goes to topic {self._settings.topic!r} at {self._settings.servers}"
                " is closed."
            )

    # ------------------------------------------------------------------ looking after what is sent

    def _tend(self) -> None:
        """Take acknowledgements, and replace a lost producer, until all is closed."""
        while True:
            time.sleep(_TENDING_S)
            with self._changed:
                self._settle()
                self._watch()
                lost = self._producer is None
                away = self._outage is not None and self._mono() - self._asked > _ASKING_S
            if self._closed or self._error is not None:
                return
            if lost:
                self._replace()
            elif away:
                self._ask()

    def _settle(self) -> None:
        """Take note of what was acknowledged, in the order it was sent."""
        producer, pending = self._producer, self._pending
        if producer is None:
            return
        before = len(pending)
        wall = self._wall()
        try:
            producer.serve(0)
            while pending and pending[0].delivery is not None and pending[0].delivery.is_done:
                self._acked(pending[0], producer.offset(pending[0].delivery), wall)
                pending.popleft()
        except LostError as error:
            self._lose(error)
        except TransportError as error:
            self._error = error
        if len(pending) < before:
            self._progress = self._mono()
            self._fruitless = self._answers = 0
            self._changed.notify_all()

    def _acked(self, sent: _Sent, offset: int, wall: float) -> None:
        written = self._written.get(sent.partition)
        if written is None:
            written = self._written[sent.partition] = _Written()
        if sent.partition in self._unsure:
            self._unsure.discard(sent.partition)
            if 0 <= offset < written.end:
                self._forgotten(sent.partition, written, offset)
                written = self._written[sent.partition] = _Written()
        written.acked(sent, offset, wall)
        records = sent.records
        self._under_way -= records
        self._report.acked += records
        counts = self._report.partitions
        counts[sent.partition] = counts.get(sent.partition, 0) + records

    def _watch(self) -> None:
        """Note the beginning and the end of an outage."""
        waited = 0.0
        if self._pending:
            waited = self._mono() - max(self._pending[0].mono, self._progress)
        if waited > OUTAGE_S:
            if self._outage is None:
                self._outage = Outage(self._wall() - waited)
                self._report.outages.append(self._outage)
                self._note(f"Kafka at {self._settings.servers} has not answered for a second.")
            self._outage.records = max(self._outage.records, self._under_way)
            if self._on_loss == "fail" and waited > self._settings.wait:
                self._error = TransportError(
                    f"Kafka at {self._settings.servers} has acknowledged nothing for"
                    f" {waited:.0f} s; {self._under_way} records are lost.",
                    "--on-broker-loss wait",
                )
                self._changed.notify_all()
        elif self._outage is not None:
            self._outage.end_wall = self._wall()
            took = self._outage.end_wall - self._outage.start_wall
            self._note(f"Kafka is back after {took:.1f} s.")
            self._outage = None
            self._changed.notify_all()

    # ------------------------------------------------------------------ a lost producer

    def _new_producer(self) -> Producer:
        producer = self._kafka.producer(self._settings)
        self._report.producers += 1
        return producer

    def _lose(self, error: LostError) -> None:
        """Give the producer up; what it did not bring through, in order, is to be sent again."""
        producer, self._producer = self._producer, None
        if producer is None:
            return
        wall = self._wall()
        again: deque[_Sent] = deque()
        broken: set[int] = set()
        for sent in self._pending:
            offset = None if sent.partition in broken else _offset(producer, sent)
            if offset is None:
                broken.add(sent.partition)
                sent.delivery = None
                again.append(sent)
            else:
                self._acked(sent, offset, wall)
        self._pending = again
        self._fruitless += 1
        if self._fruitless > _FRUITLESS:
            self._error = TransportError(
                f"Kafka at {self._settings.servers} takes no record for topic"
                f" {self._settings.topic!r}: {error}."
            )
        self._note(f"The producer is lost ({error}); sending again what was not acknowledged.")
        threading.Thread(target=producer.close, args=(0,), daemon=True).start()

    def _replace(self) -> None:
        """Build a new producer and send again what was not acknowledged; no lock while waiting."""
        try:
            partitions = self._kafka.topics(self._settings).get(self._settings.topic)
            if partitions is None:
                _make_topic(self._settings, self._kafka, self._partitions)
            producer = self._new_producer()
        except TransportError as error:
            self._note(str(error))
            return
        with self._changed:
            if partitions is not None and partitions < self._partitions:
                self._partitions = partitions
                self._places.clear()
                self._repack()
            self._producer = producer
            self._unsure |= self._written.keys()
            for sent in list(self._pending):
                self._hand_over(sent)

    def _repack(self) -> None:
        """The topic came back with fewer partitions: see anew what goes where."""
        again: deque[_Sent] = deque()
        for old in self._pending:
            packed: dict[int, _Sent] = {}
            for key, values in old.parcels:
                partition = partition_of(key, self._partitions)
                if partition not in packed:
                    packed[partition] = _Sent(partition, old.headers, old.mono)
                packed[partition].parcels.append((key, values))
                packed[partition].records += len(values)
            for told in old.told:
                packed[partition_of(job_key(told[0]), self._partitions)].told.append(told)
            again.extend(packed.values())
        self._pending = again

    def _ask(self) -> None:
        """In an outage, see whether the broker is there without the topic, or without an ear."""
        self._asked = self._mono()
        try:
            topics = self._kafka.topics(self._settings.but(wait=1.0))
        except TransportError:
            self._answers = 0
            return
        self._answers += 1
        with self._changed:
            if self._settings.topic not in topics:
                self._lose(LostError("the topic is gone"))
            elif self._answers > _PATIENCE:
                self._lose(LostError("the broker answers, but acknowledges nothing"))

    def _forgotten(self, partition: int, written: _Written, offset: int) -> None:
        place = max(bisect_right(written.steps, (offset, 0.0)) - 1, 0)
        loss = Loss(
            partition,
            written.end - offset,
            written.steps[place][1],
            self._wall(),
            dict(written.jobs),
        )
        self._report.losses.append(loss)
        self._note(
            f"The broker forgot {loss.records} records of partition {partition}"
            " that it had acknowledged."
        )

    def _let_go(self) -> None:
        with self._changed:
            if self._closed:
                return
            self._closed = True
            producer, self._producer = self._producer, None
            self._changed.notify_all()
        self._tending.join()
        if producer is not None:
            producer.close(_CLOSING_S if self._pending else 0.5)
            self._producer = producer
            self._settle()
            self._producer = None


def _offset(producer: Producer, sent: _Sent) -> int | None:
    """Where records were written; None where that is not known."""
    if sent.delivery is None or not sent.delivery.is_done:
        return None
    try:
        return producer.offset(sent.delivery)
    except (LostError, TransportError):
        return None
