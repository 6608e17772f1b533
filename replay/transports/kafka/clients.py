"""The seam between our transport and a Kafka client: as little as we need of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from replay.errors import PluginError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from replay.transports.kafka.settings import Settings

__all__ = [
    "Client",
    "Consumer",
    "Delivery",
    "LostError",
    "Mark",
    "Owner",
    "Producer",
    "Received",
    "client",
]


class LostError(Exception):
    """A record was not delivered, and this producer will not do it; a new one may."""


class Received(NamedTuple):
    """A record as it came.

    Attributes:
        partition: Its partition.
        offset: Its place there.
        key: The job's id, if it is one of ours.
        value: What :mod:`replay.transports.wire` understands; None is a tombstone.
        wall: Unix seconds at which the producer says it was sent.
    """

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    wall: float


class Mark(NamedTuple):
    """How far a group has come in a partition.

    Attributes:
        offset: Where a new owner begins to read.
        done: What lies before this has been dealt with; between the two are records of jobs that
            were still open, and of some that were over. None where the broker did not keep it.
    """

    offset: int
    done: int | None


class Delivery(Protocol):
    """Records under way that were handed over together."""

    @property
    def is_done(self) -> bool:
        """Whether the fate of all of them is known."""


class Producer(Protocol):
    """Sends records, idempotently, acknowledged by all replicas; each key has one partition."""

    def send(
        self,
        topic: str,
        partition: int,
        parcels: Sequence[tuple[bytes, Sequence[bytes]]],
        headers: Sequence[tuple[str, bytes]] = (),
    ) -> Delivery:
        """Hand over records, in order; does not wait.

        Args:
            topic: Where to.
            partition: Where there.
            parcels: Each a key, and the values of records that have it; at least one.
            headers: What goes with each.

        Raises:
            LostError: This producer is of no more use.
            TransportError: A record can never be sent.
        """

    def offset(self, delivery: Delivery) -> int:
        """Where the first of them was written; negative where the broker does not say.

        Raises:
            LostError: One was not, and this producer will not do it.
            TransportError: One was not, and never will be.
        """

    def serve(self, timeout: float) -> None:
        """Let the client work for up to ``timeout`` wall seconds.

        Raises:
            LostError: This producer is of no more use.
            TransportError: The broker will never take its records.
        """

    def close(self, timeout: float) -> None:
        """Let go; what is still under way gets ``timeout`` wall seconds."""


class Consumer(Protocol):
    """Reads the partitions it was given, or those its group gives it."""

    def poll(self, timeout: float, most: int) -> list[Received]:
        """The next records, at most ``most``; empty when none came in ``timeout`` wall seconds.

        Raises:
            TransportError: The broker refuses this reader, or a record is damaged.
        """

    def end(self, partition: int) -> int | None:
        """The offset behind the last record, as of the newest fetch; None before any."""

    def commit(self, marks: Mapping[int, Mark]) -> bool:
        """Store how far the group has come; False when the group is changing hands."""

    def close(self) -> None:
        """Leave the group at once."""


class Owner(Protocol):
    """Told, on the polling thread, when a group takes partitions away and gives new ones.

    Partitions that stay are not mentioned and go on where they were.
    """

    def lost(self, partitions: Iterable[int]) -> None:
        """These belong to someone else now."""

    def gained(self, marks: Mapping[int, Mark | None]) -> Mapping[int, int]:
        """These are ours from now on; what is committed for each → where to read it from."""


class Client(Protocol):
    """A Kafka client library. Whatever cannot be reached or is refused is a TransportError."""

    @property
    def name(self) -> str:
        """What people call it."""

    def topics(self, settings: Settings) -> dict[str, int]:
        """Every topic with its number of partitions."""

    def create(self, settings: Settings, partitions: int) -> None:
        """Make the topic; nothing happens when it is there."""

    def producer(self, settings: Settings) -> Producer:
        """Connect a producer."""

    def reader(
        self, settings: Settings, partitions: Iterable[int], *, new: bool = False
    ) -> Consumer:
        """Connect a reader of some partitions, from their beginning.

        Args:
            settings: Where.
            partitions: Which.
            new: Leave out what is there already, or most of it.
        """

    def member(self, settings: Settings, group: str, owner: Owner) -> Consumer:
        """Connect a member of a consumer group."""


def client(settings: Settings) -> Client:
    """The client that the settings ask for.

    Raises:
        PluginError: It is not installed.
    """
    if settings.client_name == "kafka-python":
        from replay.transports.kafka import kafka_python  # noqa: PLC0415 - only the one that is used

        return kafka_python.KafkaPython()
    try:
        from replay.transports.kafka import confluent  # noqa: PLC0415 - only the one that is used
    except ModuleNotFoundError as error:
        raise PluginError(
            "confluent-kafka is not installed.", "pip install 'alert-replay[fast]'"
        ) from error
    return confluent.Confluent()
