"""The two sides of a transport: a sink that takes messages, a source that gives them; a pipe has both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from replay.messages import Message

__all__ = ["Pipe", "Sink", "Source"]


class Sink(Protocol):
    """Where the engine publishes to; a context manager that closes itself."""

    def publish(self, messages: Sequence[Message]) -> None:
        """Take messages, in order; may block while the sink is full.

        Raises:
            TransportError: The sink is gone, or will never take them.
        """

    def close(self) -> None:
        """Wait until all that was taken is safe, then let go. May be called twice."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class Source(Protocol):
    """Where a host reads from; a context manager that closes itself."""

    def poll(self, timeout: float) -> Sequence[Message] | None:
        """Give the next messages, in order.

        Args:
            timeout: Wall seconds to wait for the first one.

        Returns:
            Messages; empty when none came in time; None when no more will ever come.

        Raises:
            TransportError: The source is gone.
        """

    def close(self) -> None:
        """Let go. May be called twice."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class Pipe(Protocol):
    """Both ends in one process: the source gives what goes into the sink, and ends with it."""

    @property
    def sink(self) -> Sink:
        """For the engine."""

    @property
    def source(self) -> Source:
        """For the host."""

    @property
    def lost(self) -> int:
        """Alerts that went in and will never come out."""

    def figures(self) -> dict[str, Any]:
        """How the carrying went, as a JSON object. Wall times differ from run to run."""
