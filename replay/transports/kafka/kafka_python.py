"""The seam on kafka-python, the client that is always there.

Sole importer of ``kafka``. What differs from what people know of it: ``send`` never waits for
memory, ``flush`` and ``close`` say nothing of failures, the constructor says why it could not
connect only in its log, and a rebalance listener runs on another thread and must not call back.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import re
import ssl
import threading
import time
import warnings
from collections import deque
from typing import TYPE_CHECKING, Any, Self, TypeVar

from kafka import (  # type: ignore[import-untyped]  # it has no types
    ConsumerRebalanceListener,
    KafkaAdminClient,
    KafkaConsumer,
    KafkaProducer,
    TopicPartition,
)
from kafka import errors as refusals
from kafka.coordinator.assignors.cooperative_sticky import (  # type: ignore[import-untyped]  # it has no types
    CooperativeStickyAssignor,
)
from kafka.net.compat import KafkaNetClient  # type: ignore[import-untyped]  # it has no types
from kafka.structs import OffsetAndMetadata  # type: ignore[import-untyped]  # it has no types

from replay.errors import TransportError
from replay.transports.kafka.clients import LostError, Mark, Received
from replay.transports.kafka.settings import unmade, unreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from replay.transports.kafka.clients import Consumer, Owner, Producer
    from replay.transports.kafka.settings import Settings

__all__ = ["KafkaPython"]

T = TypeVar("T")

BATCH_BYTES = 256 * 1024
FOREVER_MS = 2**31 - 1  # a record that expires before a later one is sent would change the order
FETCH_WAIT_MS = 50  # some brokers sleep on a waiting fetch even when data is there
_GRACE_S = 1.0
_TRY_S = 2.0  # the first attempt to connect; its log is read before the next

_NEVER = (
    refusals.AuthorizationError,
    refusals.InvalidRecordError,
    refusals.InvalidTimestampError,
    refusals.InvalidTopicError,
    refusals.MessageSizeTooLargeError,
    refusals.PolicyViolationError,
    refusals.RecordListTooLargeError,
    refusals.UnsupportedCompressionTypeError,
    refusals.UnsupportedVersionError,
)
"""What no second try will change."""

_OPTIONS = {
    "client.id": "client_id",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.password": "sasl_plain_password",
    "sasl.username": "sasl_plain_username",
    "security.protocol": "security_protocol",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
}


def _options(settings: Settings) -> dict[str, Any]:
    options: dict[str, Any] = {
        _OPTIONS[name]: value for name, value in settings.properties.items() if name in _OPTIONS
    }
    if "security_protocol" in options:
        options["security_protocol"] = options["security_protocol"].upper()
    if settings.properties.get("ssl.endpoint.identification.algorithm") == "none":
        options["ssl_check_hostname"] = False
    return options | {
        "bootstrap_servers": settings.servers.split(","),
        "reconnect_backoff_max_ms": 1000,
    }


def _words(error: BaseException) -> str:
    """An error of the library without its number, and without the text it may lack."""
    return re.sub(r"^\[Error -?\d+\] ", "", str(error)).removesuffix(": None")


class _Ear(logging.Handler):
    """Listens to why the client cannot connect: it says so nowhere else."""

    _CAUSE = re.compile(
        r"Bootstrap connection to \S+ failed: (.*?)(?: \(backoff [^)]*\))?$", re.DOTALL
    )
    _FINAL = ("certificate", "Sasl", "SASL", "SSL")

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.cause = ""
        self._log = logging.getLogger("kafka")

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the cause, and a telling one rather than what follows from it."""
        match = self._CAUSE.search(record.getMessage())
        if match is None or self.is_final:
            return
        if not self.cause or "RequestTimedOutError" not in match[1]:  # that may be our own haste
            self.cause = match[1]

    @property
    def is_final(self) -> bool:
        """Whether waiting is of no use."""
        return any(word in self.cause for word in self._FINAL)

    def __enter__(self) -> Self:
        self._log.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._log.removeHandler(self)


def _connect(settings: Settings, make: Callable[..., T], **options: Any) -> T:
    """Build a client object, trying until the broker answers or time is up."""
    if not any(isinstance(h, logging.NullHandler) for h in logging.getLogger("kafka").handlers):
        logging.getLogger("kafka").addHandler(logging.NullHandler())  # stderr is ours
    deadline = time.monotonic() + settings.wait
    patience = _TRY_S
    with _Ear() as ear:
        while True:
            left = max(deadline - time.monotonic(), 0.1)
            try:
                return _make(make, min(left, patience), **_options(settings), **options)
            except refusals.KafkaTimeoutError as error:
                patience *= 2  # a slow broker gets its time, an early word of refusal is heard
                cause = ear.cause or _words(error)
                if ear.is_final or time.monotonic() >= deadline:
                    raise unreachable(settings, cause, waited=not ear.is_final) from error
            except (refusals.KafkaError, ssl.SSLError, OSError, ValueError, RuntimeError) as error:
                raise unreachable(settings, _words(error), waited=False) from error


def _make(make: Callable[..., T], timeout: float, **options: Any) -> T:
    """Build a client object, which fails in time: a handshake that is not answered has no end.

    One that fails on the way leaves its connections open; they are closed here.
    """
    begun: list[KafkaNetClient] = []
    late = threading.Event()

    def net_client(**configs: Any) -> KafkaNetClient:
        begun.append(KafkaNetClient(**configs))
        return begun[-1]

    def close() -> None:
        for net in begun:
            with contextlib.suppress(RuntimeError):  # it is closed already
                net.close()

    def give_up() -> None:
        late.set()
        close()

    watchdog = threading.Timer(timeout + _GRACE_S, give_up)
    watchdog.daemon = True
    watchdog.start()
    try:
        made = make(kafka_client=net_client, bootstrap_timeout_ms=int(timeout * 1000), **options)
    except BaseException as error:
        if late.is_set():
            raise refusals.KafkaTimeoutError("the handshake was not answered") from error
        close()
        raise
    finally:
        watchdog.cancel()
        watchdog.join()
    if late.is_set():  # it came at the very last moment, and is closed
        raise refusals.KafkaTimeoutError("the handshake was answered too late")
    return made


class KafkaPython:
    """kafka-python as a :class:`~replay.transports.kafka.clients.Client`."""

    name = "kafka-python"

    def topics(self, settings: Settings) -> dict[str, int]:
        """Every topic with its number of partitions."""
        admin = _connect(settings, KafkaAdminClient)
        try:
            described = admin.describe_topics()
        except refusals.KafkaError as error:
            raise unreachable(settings, _words(error)) from error
        finally:
            admin.close()
        return {topic["name"]: len(topic["partitions"]) for topic in described}

    def create(self, settings: Settings, partitions: int) -> None:
        """Make the topic; nothing happens when it is there."""
        admin = _connect(settings, KafkaAdminClient)
        wanted = {"num_partitions": partitions, "replication_factor": settings.replication}
        try:
            admin.create_topics({settings.topic: wanted})
        except refusals.TopicAlreadyExistsError:
            pass
        except refusals.KafkaError as error:
            raise unmade(settings, _words(error)) from error
        finally:
            admin.close()

    def producer(self, settings: Settings) -> Producer:
        """Connect a producer."""
        if importlib.util.find_spec("crc32c") is None:
            warnings.warn(
                "crc32c is not installed: kafka-python is two to three times slower without it;"
                " pip install 'kafka-python[crc32c]'",
                RuntimeWarning,
                stacklevel=2,
            )
        made = _connect(
            settings,
            KafkaProducer,
            acks="all",
            enable_idempotence=True,
            metrics_enabled=False,
            linger_ms=settings.linger_ms,
            batch_size=BATCH_BYTES,
            delivery_timeout_ms=FOREVER_MS,
            max_block_ms=int(max(settings.wait, 1) * 1000),
            allow_auto_create_topics=False,
        )
        return _Producer(made, settings)

    def reader(
        self, settings: Settings, partitions: Iterable[int], *, new: bool = False
    ) -> Consumer:
        """Connect a reader of some partitions, from their beginning or from now on."""
        made = _connect(settings, KafkaConsumer, **_READING)
        owned = [TopicPartition(settings.topic, partition) for partition in partitions]
        made.assign(owned)
        made.seek_to_beginning(*owned)
        if new:
            try:
                ends = made.end_offsets(owned)
            except refusals.KafkaError as error:
                made.close(autocommit=False, timeout_ms=5000)
                raise unreachable(settings, _words(error)) from error
            for partition, end in ends.items():
                made.seek(partition, end)
        return _Consumer(made, settings)

    def member(self, settings: Settings, group: str, owner: Owner) -> Consumer:
        """Connect a member of a consumer group."""
        made = _connect(
            settings,
            KafkaConsumer,
            **_READING,
            group_id=group,
            session_timeout_ms=int(settings.session * 1000),
            heartbeat_interval_ms=int(settings.session * 1000 / 4),
            partition_assignment_strategy=[CooperativeStickyAssignor],
        )
        return _Member(made, settings, owner)


_READING: dict[str, Any] = {
    "enable_auto_commit": False,
    "metrics_enabled": False,
    "auto_offset_reset": "earliest",
    "fetch_max_wait_ms": FETCH_WAIT_MS,
    "allow_auto_create_topics": False,
}


class _Delivery:
    """The library's futures of records that were handed over together."""

    __slots__ = ("_left", "futures")

    def __init__(self, futures: list[Any]) -> None:
        self.futures = futures
        self._left = len(futures)

    @property
    def is_done(self) -> bool:
        futures, left = self.futures, self._left
        while left and futures[left - 1].is_done:
            left -= 1
        self._left = left
        return not left


class _Producer:
    def __init__(self, made: KafkaProducer, settings: Settings) -> None:
        self._made = made
        self._settings = settings

    def send(
        self,
        topic: str,
        partition: int,
        parcels: Sequence[tuple[bytes, Sequence[bytes]]],
        headers: Sequence[tuple[str, bytes]] = (),
    ) -> _Delivery:
        send, listed = self._made.send, list(headers) or None
        try:
            return _Delivery(
                [
                    send(topic, value, key, listed, partition)
                    for key, values in parcels
                    for value in values
                ]
            )
        except (refusals.KafkaError, AssertionError) as error:
            raise self._failed(error) from error

    def offset(self, delivery: Any) -> int:
        for future in delivery.futures:
            if future.exception is not None:
                raise self._failed(future.exception)
        offset: int = delivery.futures[0].value.offset
        return offset

    def serve(self, timeout: float) -> None:
        time.sleep(timeout)  # it works on a thread of its own

    def close(self, timeout: float) -> None:
        try:
            self._made.close(timeout)
        except refusals.KafkaError:  # it gives up before it has let go
            self._made._sender.force_close()  # noqa: SLF001 - there is no other way
            self._made._closed = True  # noqa: SLF001 - or it tries once more when it is collected

    def _failed(self, error: BaseException) -> LostError | TransportError:
        if isinstance(error, _NEVER):
            return TransportError(
                f"Kafka at {self._settings.servers} does not take a record"
                f" for topic {self._settings.topic!r}: {_words(error)}."
            )
        return LostError(_words(error))


class _Consumer:
    def __init__(self, made: KafkaConsumer, settings: Settings) -> None:
        self._made = made
        self._settings = settings

    def poll(self, timeout: float, most: int) -> list[Received]:
        try:
            fetched = self._made.poll(int(timeout * 1000), max_records=most)
        except refusals.KafkaError as error:
            raise TransportError(
                f"Topic {self._settings.topic!r} at {self._settings.servers}"
                f" cannot be read: {_words(error)}."
            ) from error
        return [
            Received(r.partition, r.offset, r.key, r.value, r.timestamp / 1000)
            for records in fetched.values()
            for r in records
        ]

    def end(self, partition: int) -> int | None:
        try:
            end: int | None = self._made.highwater(TopicPartition(self._settings.topic, partition))
        except refusals.IllegalStateError:  # not ours any more
            return None
        return end

    def commit(self, marks: Mapping[int, Mark]) -> bool:
        raise NotImplementedError("a reader without a group has nowhere to commit to")

    def close(self) -> None:
        try:
            self._made.close(autocommit=False, timeout_ms=5000)
        except refusals.KafkaError:  # it could not say goodbye, and has let go of nothing
            self._made._client.close()  # noqa: SLF001 - there is no other way


class _Member(_Consumer, ConsumerRebalanceListener):  # type: ignore[misc]  # it has no types
    """A member of a group.

    Its listener is called on the library's IO thread, where nothing may be asked of it, and perhaps
    before the assignment is in force. So it only notes what was taken away; what is ours is looked
    up after each poll.
    """

    def __init__(self, made: KafkaConsumer, settings: Settings, owner: Owner) -> None:
        super().__init__(made, settings)
        self._owner = owner
        self._placed: set[int] = set()
        self._taken: deque[int] = deque()
        made.subscribe([settings.topic], listener=self)

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        self._taken.extend(tp.partition for tp in revoked)

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        pass  # the assignment itself is looked at

    def poll(self, timeout: float, most: int) -> list[Received]:
        received = super().poll(timeout, most)
        self._rejoin()
        taken = {self._taken.popleft() for _ in range(len(self._taken))}
        owned = {tp.partition for tp in self._made.assignment()}
        lost = self._placed & taken | self._placed - owned
        self._placed -= lost
        gained = owned - self._placed
        if lost:
            self._owner.lost(sorted(lost))
        if gained:
            self._place(sorted(gained))
        moved = lost | gained
        return [r for r in received if r.partition not in moved] if moved else received

    def _rejoin(self) -> None:
        """Join again where the library forgot that it was about to.

        It joins anew when it hears of partitions. When the time to poll is over while the broker
        still works on that, it forgets why it joined, never looks at the answer, and sends no
        heartbeat any more.
        """
        coordinator = self._made._coordinator  # noqa: SLF001 - there is no other way
        if coordinator.rejoining and not coordinator.need_rejoin():
            coordinator.request_rejoin()

    def _place(self, partitions: Sequence[int]) -> None:
        """Begin new partitions where their marks say; one that is gone again is left out."""
        topic = self._settings.topic
        try:
            marks = {p: self._mark(TopicPartition(topic, p)) for p in partitions}
        except refusals.KafkaError as error:
            raise unreachable(self._settings, _words(error)) from error
        for partition, offset in self._owner.gained(marks).items():
            try:
                self._made.seek(TopicPartition(topic, partition), offset)
            except (AssertionError, refusals.IllegalStateError):
                self._owner.lost([partition])
            else:
                self._placed.add(partition)

    def _mark(self, partition: TopicPartition) -> Mark | None:
        committed = self._made.committed(
            partition, metadata=True, timeout_ms=int(max(self._settings.wait, 1) * 1000)
        )
        if committed is None or committed.offset < 0:
            return None
        done = committed.metadata or ""
        return Mark(committed.offset, int(done) if done.isdecimal() else None)

    def commit(self, marks: Mapping[int, Mark]) -> bool:
        owned = {tp.partition for tp in self._made.assignment()}
        offsets = {
            TopicPartition(self._settings.topic, partition): OffsetAndMetadata(
                mark.offset, str(mark.done), -1
            )
            for partition, mark in marks.items()
            if partition in owned
        }
        try:
            self._made.commit(offsets, timeout_ms=10_000)
        except refusals.KafkaError:  # changing hands; the next owner reads again what we read
            return False
        return True
