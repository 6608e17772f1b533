"""How other threads talk to the engine: commands in a queue, obeyed between slices."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from replay.clock import Wall

__all__ = ["Commands"]


class _Command(NamedTuple):
    act: Callable[[], None]
    until_rest: bool
    done: threading.Event


class Commands:
    """A queue from any thread to the engine's, which it wakes.

    Args:
        wall: The clock the engine sleeps on.

    Attributes:
        pending: What was asked for and not yet obeyed; to look whether there is anything.
    """

    def __init__(self, wall: Wall) -> None:
        self._wall = wall
        self.pending: deque[_Command] = deque()
        self._awaiting_rest: list[threading.Event] = []
        self._lock = threading.RLock()  # a signal handler may interrupt its own thread in here
        self._closed = False
        self._engine: int | None = None

    def open(self) -> None:
        """This thread is the engine's."""
        self._engine = threading.get_ident()

    def close(self) -> None:
        """The engine has ended: nothing is obeyed any more, and nobody waits any longer."""
        with self._lock:
            self._closed = True
            for command in self.pending:
                command.done.set()
            self.pending.clear()
        self.rest()

    def put(self, act: Callable[[], None], *, until_rest: bool = False, wait: bool = True) -> None:
        """Ask for something, and wait until it is done.

        The engine's own thread does not wait, nor does anyone before the engine has begun.

        Args:
            act: What the engine's thread is to do.
            until_rest: Wait until the engine rests after it.
            wait: False returns at once.
        """
        command = _Command(act, until_rest, threading.Event())
        with self._lock:
            if self._closed:
                return
            self.pending.append(command)
            waits = wait and self._engine not in {None, threading.get_ident()}
        self._wall.wake()
        if waits:
            command.done.wait()

    def obey(self) -> None:
        """Do what was asked for first. Only on the engine's thread."""
        self._wall.hush()
        command = self.pending.popleft()
        if command.until_rest:
            self._awaiting_rest.append(command.done)
        command.act()
        if not command.until_rest:
            command.done.set()

    def rest(self) -> None:
        """The engine rests: whoever waited for that may go on."""
        for done in self._awaiting_rest:
            done.set()
        self._awaiting_rest.clear()
