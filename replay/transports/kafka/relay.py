"""A topic as a pipe: what one process publishes it reads back itself, once and in order."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Self

from replay.errors import TransportError
from replay.messages import JobEnded
from replay.transports.kafka.sink import KafkaSink
from replay.transports.kafka.source import KafkaSource

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from replay.messages import Message
    from replay.transports.kafka.outbox import Policy, Sending
    from replay.transports.kafka.settings import Settings

__all__ = ["Relay"]


class Relay:
    """A sink, and the source of what goes into it; closing the sink ends the source.

    Args:
        settings: The topic; made when it is missing. Others may publish to it as well.
        run: Id of the replay that is published.
        on_loss: See :data:`~replay.transports.kafka.outbox.Policy`.
        note: Told, in a sentence, what a person should know.
        wall: Gives Unix seconds.

    Attributes:
        sink: For the engine.
        source: For the host.

    Raises:
        TransportError: The broker does not let us in, or the topic is not as asked for.
    """

    def __init__(
        self,
        settings: Settings,
        run: str,
        *,
        on_loss: Policy = "wait",
        note: Callable[[str], None] = lambda _: None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        sink = KafkaSink(settings, on_loss=on_loss, note=note, wall=wall)
        try:
            self.source = KafkaSource(settings, run=run, new=True, note=note)
        except BaseException:
            sink.abandon()
            raise
        self.sink = _RelaySink(sink, self.source)

    @property
    def lost(self) -> int:
        """Alerts that did not come out as they went in; a job with a wrong checksum counts as one."""
        counters = self.source.counters
        return counters.gaps + counters.corrupt

    def figures(self) -> dict[str, Any]:
        """How the carrying went."""
        return {
            **asdict(self.sink.report),
            **asdict(self.source.counters),
            "poisoned": self.source.poisoned,
        }


class _RelaySink:
    """Counts the ends that go through it, for the source to know when it has seen them all."""

    def __init__(self, sink: KafkaSink, source: KafkaSource) -> None:
        self._sink = sink
        self._source = source
        self._ends = 0

    @property
    def report(self) -> Sending:
        """What has been done so far."""
        return self._sink.report

    def publish(self, messages: Sequence[Message]) -> None:
        """As :meth:`KafkaSink.publish`."""
        self._ends += sum(isinstance(message, JobEnded) for message in messages)
        self._sink.publish(messages)

    def close(self) -> None:
        """As :meth:`KafkaSink.close`; then the source ends where this did.

        Raises:
            TransportError: The broker forgot some of it.
        """
        try:
            self._sink.close()
        except BaseException:
            self._source.ends = 0
            raise
        if losses := self._sink.report.losses:  # what is gone cannot be waited for
            self._source.ends = 0
            raise TransportError(
                f"The broker forgot {sum(loss.records for loss in losses)} records"
                " that it had acknowledged.",
                "the same command again, on a broker that keeps its log",
            )
        self._source.ends = self._ends

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
            self._sink.abandon()
            self._source.ends = 0
