"""The seam on confluent-kafka: several times faster, and the extra ``fast``.

Sole importer of ``confluent_kafka``. It never fails while being built: why it cannot connect is
told to a callback, and only while it is polled.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import time
from typing import TYPE_CHECKING, Any

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient, ClusterMetadata, NewTopic  # type: ignore[attr-defined]  # its stub forgets two

from replay.errors import TransportError
from replay.transports.kafka.clients import LostError, Mark, Received
from replay.transports.kafka.settings import unmade, unreachable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from replay.transports.kafka.clients import Consumer, Owner, Producer
    from replay.transports.kafka.settings import Settings

__all__ = ["Confluent"]

FETCH_WAIT_MS = 50
_MOMENT_S = 0.1
_MOMENTS = 10

_NEVER = {
    ck.KafkaError.INVALID_RECORD,
    ck.KafkaError.INVALID_TIMESTAMP,
    ck.KafkaError.MSG_SIZE_TOO_LARGE,
    ck.KafkaError.POLICY_VIOLATION,
    ck.KafkaError.RECORD_LIST_TOO_LARGE,
    ck.KafkaError.TOPIC_AUTHORIZATION_FAILED,
    ck.KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    ck.KafkaError.TOPIC_EXCEPTION,
    ck.KafkaError.UNSUPPORTED_COMPRESSION_TYPE,
    ck.KafkaError.UNSUPPORTED_VERSION,
}
_FINAL = (ck.KafkaError._AUTHENTICATION, ck.KafkaError._SSL)  # noqa: SLF001 - public names of the library
_TRANSIENT = {
    ck.KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001 - public names of the library
    ck.KafkaError._MAX_POLL_EXCEEDED,  # noqa: SLF001 - likewise
    ck.KafkaError._PARTITION_EOF,  # noqa: SLF001 - likewise
    ck.KafkaError._TIMED_OUT,  # noqa: SLF001 - likewise
    ck.KafkaError._TRANSPORT,  # noqa: SLF001 - likewise
    ck.KafkaError.UNKNOWN_TOPIC_OR_PART,
}


_QUIET = logging.getLogger("confluent_kafka")
_QUIET.addHandler(logging.NullHandler())  # stderr is ours


class _Ear:
    """Listens to why the client cannot connect."""

    def __init__(self) -> None:
        self.cause = ""
        self.is_final = False
        self.fatal: ck.KafkaError | None = None  # after this a producer does nothing any more

    def __call__(self, error: ck.KafkaError) -> None:
        if error.fatal():
            self.fatal = error
        if self.is_final or error.code() == ck.KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001 - a public name
            return
        self.cause = error.str()
        self.is_final = error.code() in _FINAL or "certificate" in self.cause


def _options(settings: Settings, ear: _Ear, **options: Any) -> dict[str, Any]:
    return {
        **settings.properties,
        "bootstrap.servers": settings.servers,
        "reconnect.backoff.max.ms": 1000,
        "error_cb": ear,
        "logger": _QUIET,
        "allow.auto.create.topics": False,
        **options,
    }


def _connect(settings: Settings, made: Any, ear: _Ear) -> ClusterMetadata:
    """Wait until the broker answers; its topics."""
    deadline = time.monotonic() + settings.wait
    while True:
        left = max(deadline - time.monotonic(), 0.1)
        try:
            found: ClusterMetadata = made.list_topics(timeout=min(left, 1.0))
        except ck.KafkaException as error:
            made.poll(0)
            cause = ear.cause or error.args[0].str()
            if ear.is_final or time.monotonic() >= deadline:
                raise unreachable(settings, cause, waited=not ear.is_final) from error
        else:
            return found


def _build(settings: Settings, kind: Any, **options: Any) -> tuple[Any, _Ear]:
    ear = _Ear()
    try:
        return kind(_options(settings, ear, **options)), ear
    except (ck.KafkaException, ValueError) as error:
        raise unreachable(settings, str(error), waited=False) from error


class Confluent:
    """confluent-kafka as a :class:`~replay.transports.kafka.clients.Client`."""

    name = "confluent"

    def topics(self, settings: Settings) -> dict[str, int]:
        """Every topic with its number of partitions."""
        admin, ear = _build(settings, AdminClient)
        topics = _connect(settings, admin, ear).topics
        return {name: len(topic.partitions) for name, topic in topics.items()}

    def create(self, settings: Settings, partitions: int) -> None:
        """Make the topic; nothing happens when it is there."""
        admin, ear = _build(settings, AdminClient)
        _connect(settings, admin, ear)
        made = admin.create_topics([NewTopic(settings.topic, partitions, settings.replication)])
        try:
            made[settings.topic].result(max(settings.wait, 1))
        except ck.KafkaException as error:
            if error.args[0].code() != ck.KafkaError.TOPIC_ALREADY_EXISTS:
                raise unmade(settings, error.args[0].str()) from error

    def producer(self, settings: Settings) -> Producer:
        """Connect a producer."""
        made, ear = _build(
            settings,
            ck.Producer,
            **{
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": settings.linger_ms,
                "batch.size": 1_000_000,
                # a record that expires before a later one is sent would change the order
                "message.timeout.ms": 2**31 - 1,
                "queue.buffering.max.messages": max(100_000, 2 * settings.unacked),
            },
        )
        _connect(settings, made, ear)
        return _Producer(made, settings, ear)

    def reader(
        self, settings: Settings, partitions: Iterable[int], *, new: bool = False
    ) -> Consumer:
        """Connect a reader of some partitions, from their beginning or from now on."""
        # the library wants a group name even where there is no group
        made, ear = _build(settings, ck.Consumer, **_READING, **{"group.id": "none"})
        _connect(settings, made, ear)
        places = [ck.TopicPartition(settings.topic, p, ck.OFFSET_BEGINNING) for p in partitions]
        if new:
            try:
                for place in places:
                    ends = made.get_watermark_offsets(place, timeout=max(settings.wait, 1))
                    place.offset = ends[1]
            except ck.KafkaException as error:
                made.close()
                raise unreachable(settings, error.args[0].str()) from error
        made.assign(places)
        return _Consumer(made, settings, ear)

    def member(self, settings: Settings, group: str, owner: Owner) -> Consumer:
        """Connect a member of a consumer group."""
        made, ear = _build(
            settings,
            ck.Consumer,
            **_READING,
            **{
                "group.id": group,
                "session.timeout.ms": int(settings.session * 1000),
                "heartbeat.interval.ms": int(settings.session * 1000 / 4),
                "partition.assignment.strategy": "cooperative-sticky",
            },
        )
        _connect(settings, made, ear)
        return _Member(made, settings, ear, owner)


_READING: dict[str, Any] = {
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "fetch.wait.max.ms": FETCH_WAIT_MS,
}


class _Delivery:
    """Records that were handed over together; their delivery callback."""

    __slots__ = ("error", "left", "offset")

    def __init__(self, count: int) -> None:
        self.left = count
        self.error: ck.KafkaError | None = None
        self.offset: int | None = None

    @property
    def is_done(self) -> bool:
        return not self.left

    def told(self, error: ck.KafkaError | None, message: ck.Message) -> None:
        self.left -= 1
        if error is not None:
            self.error = error
        elif self.offset is None:
            offset = message.offset()
            self.offset = -1 if offset is None else offset


class _Producer:
    def __init__(self, made: ck.Producer, settings: Settings, ear: _Ear) -> None:
        self._made = made
        self._settings = settings
        self._ear = ear

    def send(
        self,
        topic: str,
        partition: int,
        parcels: Sequence[tuple[bytes, Sequence[bytes]]],
        headers: Sequence[tuple[str, bytes]] = (),
    ) -> _Delivery:
        delivery = _Delivery(sum(len(values) for _, values in parcels))
        produce, told = self._made.produce, delivery.told
        if headers:
            produce = functools.partial(produce, headers=list(headers))
        try:
            for key, values in parcels:
                for value in values:
                    produce(topic, value, key, partition, told)
        except ck.KafkaException as error:
            raise self._failed(error.args[0]) from error
        except BufferError as error:
            raise LostError(str(error)) from error
        return delivery

    def offset(self, delivery: Any) -> int:
        if delivery.error is not None:
            raise self._failed(delivery.error)
        return -1 if delivery.offset is None else int(delivery.offset)

    def serve(self, timeout: float) -> None:
        try:
            self._made.poll(timeout)
        except ck.KafkaException as error:
            raise self._failed(error.args[0]) from error

    def close(self, timeout: float) -> None:
        with contextlib.suppress(ck.KafkaException):  # it is lost already
            if self._made.flush(timeout):
                self._made.purge()
                self._made.flush(1)

    def _why(self) -> ck.KafkaError | None:
        """Why this producer is lost: told to the ear, or raised by the next poll, a moment later."""
        for _ in range(_MOMENTS):
            if self._ear.fatal is not None:
                break
            try:
                self._made.poll(_MOMENT_S)
            except ck.KafkaException as error:
                told: ck.KafkaError = error.args[0]
                return told
        return self._ear.fatal

    def _failed(self, error: ck.KafkaError) -> LostError | TransportError:
        if error.code() == ck.KafkaError._FATAL:  # noqa: SLF001 - a public name of the library
            error = self._why() or error
        if error.code() == ck.KafkaError._UNSUPPORTED_FEATURE:  # noqa: SLF001 - as above
            return unreachable(self._settings, error.str(), waited=False)
        if error.code() in _NEVER:
            return TransportError(
                f"Kafka at {self._settings.servers} does not take a record"
                f" for topic {self._settings.topic!r}: {error.str()}."
            )
        return LostError(error.str())


class _Consumer:
    def __init__(self, made: ck.Consumer, settings: Settings, ear: _Ear) -> None:
        self._made = made
        self._settings = settings
        self._ear = ear

    def poll(self, timeout: float, most: int) -> list[Received]:
        first = self._made.poll(timeout)
        if first is None:
            self._check()
            return []
        messages = [first]
        if most > 1:
            messages += self._made.consume(most - 1, 0)
        received = []
        for message in messages:
            error = message.error()
            if error is not None:
                self._refuse(error)
                continue
            received.append(
                Received(
                    message.partition() or 0,
                    message.offset() or 0,
                    message.key(),
                    message.value(),
                    message.timestamp()[1] / 1000,
                )
            )
        return received

    def _check(self) -> None:
        """Speak up when the broker has begun to refuse us."""
        if self._ear.is_final:
            raise unreachable(self._settings, self._ear.cause, waited=False)

    def _refuse(self, error: ck.KafkaError) -> None:
        if error.code() not in _TRANSIENT:
            raise TransportError(
                f"Topic {self._settings.topic!r} at {self._settings.servers}"
                f" cannot be read: {error.str()}."
            )

    def end(self, partition: int) -> int | None:
        try:
            _, end = self._made.get_watermark_offsets(
                ck.TopicPartition(self._settings.topic, partition), cached=True
            )
        except ck.KafkaException:
            return None
        return end if end >= 0 else None

    def commit(self, marks: Mapping[int, Mark]) -> bool:
        raise NotImplementedError("a reader without a group has nowhere to commit to")

    def close(self) -> None:
        self._made.close()


class _Member(_Consumer):
    """A member of a group; its callbacks run inside :meth:`poll`."""

    def __init__(self, made: ck.Consumer, settings: Settings, ear: _Ear, owner: Owner) -> None:
        super().__init__(made, settings, ear)
        self._owner = owner
        made.subscribe(
            [settings.topic], on_assign=self._gained, on_revoke=self._revoked, on_lost=self._lost
        )

    def _gained(self, made: ck.Consumer, partitions: list[ck.TopicPartition]) -> None:
        committed = made.committed(partitions, timeout=max(self._settings.wait, 1))
        marks = {stored.partition: _mark(stored) for stored in committed}
        positions = self._owner.gained(marks)
        made.incremental_assign(
            [ck.TopicPartition(self._settings.topic, p, at) for p, at in positions.items()]
        )

    def _revoked(self, made: ck.Consumer, partitions: list[ck.TopicPartition]) -> None:
        self._owner.lost([tp.partition for tp in partitions])
        made.incremental_unassign(partitions)

    def _lost(self, made: ck.Consumer, partitions: list[ck.TopicPartition]) -> None:
        self._revoked(made, partitions)

    def commit(self, marks: Mapping[int, Mark]) -> bool:
        owned = {tp.partition for tp in self._made.assignment()}
        offsets = [
            ck.TopicPartition(self._settings.topic, p, mark.offset, str(mark.done))
            for p, mark in marks.items()
            if p in owned
        ]
        try:
            if offsets:
                self._made.commit(offsets=offsets, asynchronous=False)
        except ck.KafkaException:  # changing hands; the next owner reads again what we read
            return False
        return True


def _mark(stored: ck.TopicPartition) -> Mark | None:
    if stored.offset < 0:
        return None
    done = stored.metadata or ""
    return Mark(stored.offset, int(done) if done.isdecimal() else None)
