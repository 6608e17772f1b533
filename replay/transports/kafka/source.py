"""The reading end without a group: all partitions of a topic."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

from replay.errors import TransportError
from replay.messages import JobEnded
from replay.transports.kafka.clients import client
from replay.transports.wire import Counters, Decoder, PoisonError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from replay.messages import Message
    from replay.transports.kafka.settings import Settings

__all__ = ["KafkaSource"]

AT_ONCE = 5000
_LOOK_S = 0.2  # how often to look whether the end has become known


class KafkaSource:
    """Reads the messages of a topic, each once and in order within its job.

    Args:
        settings: Where.
        run: Read this replay only; None reads all there are.
        new: Leave out what is there already; for a replay that has not begun.
        ends: How many jobs will end; after that many no more will come. None never ends.
        note: Told, in a sentence, of every record that makes no sense.

    Attributes:
        ends: As given; may be set later, from any thread, when it becomes known.
        counters: Losses and repeats seen.
        poisoned: Records that made no sense.

    Raises:
        TransportError: The broker does not let us in, or there is no such topic.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        run: str | None = None,
        new: bool = False,
        ends: int | None = None,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        kafka = client(settings)
        partitions = kafka.topics(settings).get(settings.topic)
        if partitions is None:
            raise TransportError(
                f"There is no topic {settings.topic!r} at {settings.servers}.",
                "alert-replay publish makes it",
            )
        self.counters = Counters()
        self.poisoned = 0
        self.ends = ends
        self._ended = 0
        self._note = note
        self._settings = settings
        self._decoders = [Decoder(self.counters, run=run) for _ in range(partitions)]
        self._consumer = kafka.reader(settings, range(partitions), new=new)
        self._closed = False

    def poll(self, timeout: float) -> Sequence[Message] | None:
        """Give the next messages; None when as many jobs have ended as were expected.

        Raises:
            TransportError: The source is closed, or the broker refuses it.
        """
        if self._closed:
            raise TransportError(f"The source of topic {self._settings.topic!r} is closed.")
        deadline = time.monotonic() + timeout
        while self.ends is None or self._ended < self.ends:
            left = max(deadline - time.monotonic(), 0.0)
            if messages := self._read(min(left, _LOOK_S)):
                return messages
            if left == 0:
                return []
        return None

    def _read(self, timeout: float) -> list[Message]:
        messages: list[Message] = []
        for record in self._consumer.poll(timeout, AT_ONCE):
            try:
                messages += self._decoders[record.partition].decode(record.value)
            except PoisonError as error:
                self.poisoned += 1
                self._note(f"partition {record.partition}, offset {record.offset}: {error}")
        self._ended += sum(isinstance(message, JobEnded) for message in messages)
        return messages

    def close(self) -> None:
        """Let go. May be called twice."""
        if not self._closed:
            self._closed = True
            self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
