"""Keys pressed in a terminal while a replay runs, as words."""

from __future__ import annotations

import os
import select
import sys
import threading
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

__all__ = ["KEYS", "Keys"]

KEYS = {
    b" ": "pause",
    b".": "step",
    b"\x1b[C": "forward",
    b"\x1b[D": "back",
    b"\x1b[A": "faster",
    b"\x1b[B": "slower",
    b"t": "truth",
    b"q": "quit",
}
"""What a terminal sends → what it means."""


class Keys:
    """Reads single keys from a terminal on a thread of its own, and puts the terminal back.

    Args:
        pressed: Called with a word of :data:`KEYS`, on the reading thread.
        descriptor: The terminal; standard input unless told otherwise.
    """

    def __init__(self, pressed: Callable[[str], None], descriptor: int | None = None) -> None:
        self._pressed = pressed
        self._terminal = sys.stdin.fileno() if descriptor is None else descriptor
        self._stop, self._stopping = os.pipe()
        self._thread = threading.Thread(target=self._read, name="keys", daemon=True)

    def __enter__(self) -> Self:
        import termios
        import tty

        self._before = termios.tcgetattr(self._terminal)
        tty.setcbreak(self._terminal)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        import termios

        os.write(self._stopping, b"x")
        self._thread.join()
        os.close(self._stop)
        os.close(self._stopping)
        termios.tcsetattr(self._terminal, termios.TCSADRAIN, self._before)

    def _read(self) -> None:
        while True:
            ready, _, _ = select.select([self._terminal, self._stop], [], [])
            if self._stop in ready:
                return
            typed = os.read(self._terminal, 16)
            if not typed:
                return
            for word in words(typed):
                self._pressed(word)


def words(typed: bytes) -> Iterator[str]:
    r"""What was typed, key by key; what means nothing is passed over.

    Examples:
        >>> list(words(b"q\x1b[Cx."))
        ['quit', 'forward', 'step']

    """
    while typed:
        key = next((key for key in KEYS if typed.startswith(key)), typed[:1])
        if key in KEYS:
            yield KEYS[key]
        typed = typed.removeprefix(key)
