"""A SimPy environment that reads a sorted tape beside its heap."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

import simpy
from simpy.events import NORMAL, URGENT, EventPriority

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["LAST", "NORMAL", "URGENT", "TapeEnvironment"]

LAST = EventPriority(2)
"""Priority of what happens when everything else of an instant is over."""


class TapeEnvironment(simpy.Environment):
    """Two sources of events in one order: the tape's instants, and everything else in the heap.

    A heap entry costs about two microseconds; an instant on the tape costs a tenth of that.
    At one time the order is: urgent events, the tape, ordinary events, :data:`LAST` ones.
    Time is whole nanoseconds.

    Args:
        times: The tape: times of its instants, ascending.
        emit: Called with the number of an instant whose time has come, and the number up to
            which nothing else happens. It plays that instant, and may play more of them (the
            time is then that of the first); it answers which instant is next.
        begin: The first instant to play.
        stop: The instant after the last one to play; None means the end.
        initial_time: Where time begins.

    Attributes:
        gate: Called with a time before something happens then; the step does nothing when it
            answers False. While it is None, one step plays all instants up to the next event.

    Examples:
        >>> seen = []
        >>> def emit(number, upto):
        ...     seen.append((env.now, number))
        ...     return number + 1
        >>> env = TapeEnvironment([1, 3, 5], emit)
        >>> def ticker():
        ...     while env.now < 4:
        ...         yield env.timeout(3)
        ...         seen.append((env.now, "tick"))
        >>> _ = env.process(ticker())
        >>> env.run()
        >>> seen
        [(1, 0), (3, 1), (3, 'tick'), (5, 2), (6, 'tick')]

    """

    def __init__(
        self,
        times: Sequence[int],
        emit: Callable[[int, int], int],
        begin: int = 0,
        stop: int | None = None,
        initial_time: int = 0,
    ) -> None:
        super().__init__(initial_time)
        self._times = times
        self._emit = emit
        self._cursor = begin
        self._stop = len(times) if stop is None else stop
        self.gate: Callable[[int], bool] | None = None

    @property
    def cursor(self) -> int:
        """The next instant on the tape."""
        return self._cursor

    @property
    def now_ns(self) -> int:
        """The time, as the whole number it is."""
        return int(self._now)

    def alarm(self, at: int, priority: EventPriority = NORMAL) -> simpy.Event:
        """An event at an absolute time, with a priority among those of the same time."""
        event = simpy.Event(self)
        event._ok = True  # noqa: SLF001 - as SimPy's own Timeout, which knows no priority
        event._value = None  # noqa: SLF001 - likewise
        self.schedule(event, priority, at - self._now)
        return event

    def peek(self) -> int | float:
        """Time of the next instant or event; infinity when there is none."""
        if self._cursor < self._stop:
            return min(self._times[self._cursor], super().peek())
        return super().peek()

    def step(self) -> None:
        """Play the next instant of the tape, or process the next event of the heap.

        Raises:
            EmptySchedule: Neither has anything left.
        """
        times, queue, gate = self._times, self._queue, self.gate
        number = self._cursor
        if number < self._stop and not (queue and queue[0] < (times[number], NORMAL)):
            if gate is None:
                self._play_tape()
            elif gate(times[number]):
                self._now = times[number]
                self._cursor = self._emit(number, number + 1)
            return
        if gate is None or not queue or gate(int(queue[0][0])):
            super().step()

    def _play_tape(self) -> None:
        """Play instants for as long as they come before the heap's head and nothing is gated."""
        times, queue, emit = self._times, self._queue, self._emit
        number, upto, head = self._cursor, 0, None
        while self.gate is None:
            if upto == 0 or (queue and queue[0] is not head):
                head = queue[0] if queue else None
                upto = self._stop if head is None else self._before(head)
            if number >= upto:
                return
            self._now = times[number]
            self._cursor = emit(number, upto)
            if self._cursor - number > 1:
                self._now = times[self._cursor - 1]
            number = self._cursor

    def _before(self, head: tuple[int | float, int, int, simpy.Event]) -> int:
        """How far the tape may be played before this entry of the heap."""
        bisect = bisect_right if head[1] >= NORMAL else bisect_left
        return bisect(self._times, head[0], self._cursor, self._stop)
