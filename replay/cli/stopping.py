"""Ctrl-C and SIGTERM: they end a replay early and cleanly, a second one at once."""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Stop", "stoppable"]


class Stop:
    """Whether somebody asked for the end, and how."""

    signal: int | None = None

    @property
    def asked(self) -> bool:
        """Whether somebody did."""
        return self.signal is not None

    @property
    def exit_code(self) -> int:
        """As shells have it: 130 after Ctrl-C, 143 after SIGTERM; 0 if nobody asked."""
        return 0 if self.signal is None else 128 + self.signal


@contextlib.contextmanager
def stoppable(asked: Callable[[Stop], None]) -> Iterator[Stop]:
    """Hear both signals while the block runs.

    Args:
        asked: Called in the main thread at the first one.
    """
    stop = Stop()

    def hear(number: int, _: object) -> None:
        stop.signal = number
        for other, handler in before.items():
            signal.signal(other, handler)
        asked(stop)

    both = (int(signal.SIGINT), int(signal.SIGTERM))
    before = {number: signal.signal(number, hear) for number in both}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
