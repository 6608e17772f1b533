"""A SimPy environment that reads a sorted tape beside its heap."""

from __future__ import annotations

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
        emit: Called with an instant's number when its time has come. It answers False when it
            has to be called again for the same instant.
        begin: The first instant to play.
        stop: The instant after the last one to play; None means the end.
        initial_time: Where time begins.

    Attributes:
        gate: Called with a time before something happens then; the step does nothing when it
            answers False. While it is None, one step plays all instants up to the next event.

    Examples:
        >>> seen = []
        >>> env = TapeEnvironment([1, 3, 5], lambda number: seen.append((env.now, number)) or True)
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
        emit: Callable[[int], bool],
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
        times, queue = self._times, self._queue
        number = self._cursor
        while number < self._stop:
            at = times[number]
            if queue and queue[0] < (at, NORMAL):
                break
            gate = self.gate
            if gate is not None and not gate(at):
                return
            self._now = at
            if not self._emit(number):
                return
            number += 1
            self._cursor = number
            if gate is not None:
                return
        gate = self.gate
        if gate is not None and queue and not gate(int(queue[0][0])):
            return
        super().step()
