"""The writing end: every message once and in order, acknowledged, whatever the broker does."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

from replay.messages import AlertSlice, JobStarted
from replay.transports.kafka.outbox import Outbox
from replay.transports.wire import Encoder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

    from replay.messages import Message
    from replay.transports.kafka.outbox import Policy, Sending
    from replay.transports.kafka.settings import Settings

__all__ = ["KafkaSink"]


class KafkaSink:
    """Publishes messages to a topic, keyed by job. Arguments and errors as of :class:`Outbox`."""

    def __init__(
        self,
        settings: Settings,
        *,
        on_loss: Policy = "wait",
        note: Callable[[str], None] = lambda _: None,
        wall: Callable[[], float] = time.time,
        mono: Callable[[], float] = time.monotonic,
    ) -> None:
        self._encoder = Encoder()
        self._outbox = Outbox(settings, on_loss=on_loss, note=note, wall=wall, mono=mono)

    def publish(self, messages: Sequence[Message]) -> None:
        """Take messages, in order; waits while too many records are under way.

        Raises:
            TransportError: A record was refused, or the broker is away and the policy is to fail.
        """
        self._outbox.put_all(self._records(messages))

    def _records(
        self, messages: Sequence[Message]
    ) -> Iterator[tuple[str, list[bytes], int, float]]:
        encode = self._encoder.encode
        for message in messages:
            if isinstance(message, AlertSlice):
                batch = message.batch
                yield batch.job, encode(message), int(batch.seq[-1]), batch.at
            else:
                job = message.job.id if isinstance(message, JobStarted) else message.job
                yield job, encode(message), -1, message.at

    def close(self) -> None:
        """Wait until every record is acknowledged, then let go; raises as :meth:`publish`."""
        self._outbox.close()

    def abandon(self) -> None:
        """Let go at once; what is under way gets a few seconds."""
        self._outbox.close(at_once=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            self.abandon()

    @property
    def report(self) -> Sending:
        """What has been done so far."""
        return self._outbox.report
