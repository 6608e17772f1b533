"""Two times: wall time, which passes, and replay time, which is worked out from it.

All arithmetic is in whole nanoseconds. Wall time is read and slept on through :class:`Wall`, so
that everything above can be tried with :class:`ManualClock`, which never really sleeps.
"""

from __future__ import annotations

import contextlib
import heapq
import math
import os
import select
import threading
import time
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import count
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["LADDER", "Clock", "ManualClock", "Pacer", "Segment", "SystemWall", "Wall", "ratio"]

LADDER = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
"""Speeds that "faster" and "slower" step through."""

_HOUR = 3600 * 10**9
_SHORTEST_SPIN = 50_000
_LONGEST_SPIN = 1_000_000
_OUTLIER = 5_000_000


def ratio(speed: float) -> Fraction:
    """A speed as the exact fraction that its digits say.

    Raises:
        ValueError: It is not a positive finite number.

    Examples:
        >>> ratio(0.1)
        Fraction(1, 10)

    """
    if not 0 < speed < math.inf:
        raise ValueError(f"speed {speed!r} is not a positive finite number")
    return Fraction(repr(float(speed)))


class Wall(Protocol):
    """Wall time: read it, sleep on it, and be woken."""

    rung: bool
    """True from :meth:`wake` until :meth:`hush`."""

    def monotonic_ns(self) -> int:
        """Nanoseconds that never go back."""

    def unix_ns(self) -> int:
        """Nanoseconds since 1970, for dating what is published."""

    def sleep(self, seconds: float | None) -> bool:
        """Sleep; None sleeps until woken. True when woken, at once while ``rung``."""

    def wake(self) -> None:
        """End the sleep under way or the next one. For any thread."""

    def hush(self) -> None:
        """Be deaf to the wake-ups so far."""


class SystemWall:
    """The machine's own clock, with a pipe that wakes it from its sleep."""

    def __init__(self) -> None:
        self.rung = False
        self._lock = threading.RLock()  # a signal handler may interrupt its own thread in here
        self._pipe: tuple[int, int] | None = None

    def monotonic_ns(self) -> int:
        """Nanoseconds that never go back."""
        return time.monotonic_ns()

    def unix_ns(self) -> int:
        """Nanoseconds since 1970."""
        return time.time_ns()

    def sleep(self, seconds: float | None) -> bool:
        """Sleep; None sleeps until woken. True when woken, at once while ``rung``."""
        with self._lock:
            if self.rung:
                return True
            if self._pipe is None:
                self._pipe = os.pipe()
                os.set_blocking(self._pipe[0], False)
            ear = self._pipe[0]
        ready, _, _ = select.select([ear], [], [], seconds)
        return bool(ready)

    def wake(self) -> None:
        """End the sleep under way or the next one. For any thread, and signal handlers."""
        with self._lock:
            if self._pipe is not None and not self.rung:
                os.write(self._pipe[1], b"!")
            self.rung = True

    def hush(self) -> None:
        """Be deaf to the wake-ups so far."""
        with self._lock:
            self.rung = False
            if self._pipe is not None:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._pipe[0], 64)

    def close(self) -> None:
        """Give the pipe back. May be called twice; a later sleep opens another one."""
        with self._lock:
            if self._pipe is not None:
                os.close(self._pipe[0])
                os.close(self._pipe[1])
                self._pipe = None


class ManualClock:
    """Wall time that passes only by sleeping on it or moving it: for tests, and instant.

    Actions put down with :meth:`at` happen when their time comes, in the middle of a sleep, as a
    person pressing a key would.

    Args:
        start_ns: What it shows at first.
        tick_ns: How long a reading takes, so that a loop of readings ends.
        oversleep_ns: How much longer than asked the n-th sleep takes.
        unix_ns: Seconds since 1970 when it shows 0.

    Examples:
        >>> clock = ManualClock(tick_ns=0)
        >>> clock.at(1.5, clock.wake)
        >>> clock.sleep(2.0), clock.monotonic_ns()
        (True, 1500000000)

    """

    def __init__(
        self,
        start_ns: int = 0,
        *,
        tick_ns: int = 1000,
        oversleep_ns: Callable[[int], int] = lambda _: 0,
        unix_ns: int = 1_000_000_000 * 10**9,
    ) -> None:
        self.rung = False
        self.now_ns = start_ns
        self.readings = 0
        self.sleeps: list[float | None] = []
        self._tick_ns = tick_ns
        self._oversleep_ns = oversleep_ns
        self._epoch_ns = unix_ns
        self._actions: list[tuple[int, int, Callable[[], object]]] = []
        self._number = count()

    def monotonic_ns(self) -> int:
        """The time it shows; a reading takes a moment."""
        self.readings += 1
        self.now_ns += self._tick_ns
        return self.now_ns

    def unix_ns(self) -> int:
        """The same, since 1970."""
        self.readings += 1
        return self._epoch_ns + self.now_ns

    def at(self, seconds: float, action: Callable[[], object]) -> None:
        """Do something when the clock shows this many seconds."""
        heapq.heappush(self._actions, (round(seconds * 1e9), next(self._number), action))

    def advance(self, seconds: float) -> None:
        """Move on without being woken, as work that takes time does."""
        until = self.now_ns + round(seconds * 1e9)
        while self._actions and self._actions[0][0] <= until:
            self._act()
        self.now_ns = max(self.now_ns, until)

    def sleep(self, seconds: float | None) -> bool:
        """Move on to the end of the sleep, or to the action that wakes it.

        Raises:
            RuntimeError: The sleep has no end and nothing is left that could wake it.
        """
        self.sleeps.append(seconds)
        until = None
        if seconds is not None:
            until = self.now_ns + round(seconds * 1e9) + self._oversleep_ns(len(self.sleeps) - 1)
        while not self.rung and self._actions and (until is None or self._actions[0][0] <= until):
            self._act()
        if self.rung:
            return True
        if until is None:
            raise RuntimeError("asleep for ever: nothing is left to wake this clock")
        self.now_ns = max(self.now_ns, until)
        return False

    def wake(self) -> None:
        """End the sleep under way or the next one."""
        self.rung = True

    def hush(self) -> None:
        """Be deaf to the wake-ups so far."""
        self.rung = False

    def _act(self) -> None:
        due, _, action = heapq.heappop(self._actions)
        self.now_ns = max(self.now_ns, due)
        action()


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of wall time in which replay time runs evenly.

    Attributes:
        wall_ns: Monotonic time at which it begins.
        replay_ns: Replay time at which it begins.
        speed: Replay time per wall time.
        paused: True when replay time stands still.
        steps: The speed as replay time to wall time, two whole numbers.
    """

    wall_ns: int
    replay_ns: int
    speed: Fraction
    paused: bool
    steps: tuple[int, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", self.speed.as_integer_ratio())

    def at(self, wall_ns: int) -> int:
        """Replay time at a monotonic time in this segment, rounded down."""
        if self.paused or wall_ns <= self.wall_ns:
            return self.replay_ns
        replay, wall = self.steps
        return self.replay_ns + (wall_ns - self.wall_ns) * replay // wall

    def due(self, replay_ns: int) -> int:
        """The first monotonic time at which replay time is this far, as if it never paused."""
        replay, wall = self.steps
        return self.wall_ns - (self.replay_ns - replay_ns) * wall // replay


class Clock:
    """Replay time: runs at a speed, pauses, jumps; exact to the nanosecond.

    Every change reads wall time once, and replay time is the same just before and just after it
    (unless the change is a jump). May be read from any thread.

    Args:
        wall: Where wall time comes from.
        replay_ns: Replay time at first.
        speed: Replay time per wall time.
        paused: Begin paused.

    Attributes:
        segment: The stretch that holds now.
        segments: All of them, in order.
        generation: How many changes there have been.

    Examples:
        >>> wall = ManualClock(tick_ns=0)
        >>> clock = Clock(wall, speed=10)
        >>> wall.advance(1)
        >>> _ = clock.set_speed(0.5)
        >>> wall.advance(1)
        >>> clock.now_ns() / 1e9
        10.5

    """

    def __init__(
        self, wall: Wall, replay_ns: int = 0, speed: float = 1.0, *, paused: bool = False
    ) -> None:
        self._wall = wall
        self._lock = threading.RLock()  # a signal handler may interrupt a change and read
        self.segment = Segment(wall.monotonic_ns(), replay_ns, ratio(speed), paused)
        self.segments = [self.segment]
        self.generation = 0

    @property
    def speed(self) -> float:
        """Replay time per wall time."""
        return float(self.segment.speed)

    @property
    def paused(self) -> bool:
        """Whether replay time stands still."""
        return self.segment.paused

    def now_ns(self) -> int:
        """Replay time now."""
        with self._lock:  # a change under way has read wall time already
            return self.segment.at(self._wall.monotonic_ns())

    def due_ns(self, replay_ns: int) -> int:
        """The monotonic time at which replay time will be this far, if nothing changes."""
        return self.segment.due(replay_ns)

    def pause(self) -> Segment:
        """Stand still. Gives the stretch that this has ended, as every change does."""
        return self._change(paused=True)

    def resume(self) -> Segment:
        """Go on from where it stands."""
        return self._change(paused=False)

    def set_speed(self, speed: float) -> Segment:
        """Run at another speed from now on.

        Raises:
            ValueError: It is not a positive finite number.
        """
        return self._change(speed=ratio(speed))

    def jump(self, replay_ns: int) -> Segment:
        """Be at another replay time, now."""
        return self._change(replay_ns=replay_ns)

    def slip(self, replay_ns: int) -> Segment:
        """Jump a little, so often that it is not kept among the segments."""
        return self._change(replay_ns=replay_ns, kept=False)

    def _change(
        self,
        *,
        replay_ns: int | None = None,
        speed: Fraction | None = None,
        paused: bool | None = None,
        kept: bool = True,
    ) -> Segment:
        with self._lock:
            old = self.segment
            wall_ns = self._wall.monotonic_ns()
            self.segment = Segment(
                wall_ns,
                old.at(wall_ns) if replay_ns is None else replay_ns,
                old.speed if speed is None else speed,
                old.paused if paused is None else paused,
            )
            if kept:
                self.segments.append(self.segment)
            else:
                self.segments[-1] = self.segment
            self.generation += 1
        return old


class Pacer:
    """Waits until a monotonic time: sleeps for most of it, spins for the rest, is never early.

    How much it spins follows from how late its sleeps have ended: a moving mean and three mean
    deviations (as TCP estimates its round trips, Jacobson 1988), at least 50 µs, at most 1 ms,
    and never more than a tenth of the wait.

    Args:
        wall: Whose time to wait on.
        pacing: ``sleep`` never spins, ``spin`` does nothing else, ``hybrid`` does both.

    Attributes:
        now_ns: The newest reading.
        overslept_ns: How late the newest sleep ended.
    """

    def __init__(self, wall: Wall, pacing: Literal["sleep", "hybrid", "spin"] = "hybrid") -> None:
        if pacing not in {"sleep", "hybrid", "spin"}:
            raise ValueError(f"pacing {pacing!r} is none of sleep, hybrid, spin")
        self._wall = wall
        self._pacing = pacing
        self._mean = 100_000.0
        self._deviation = 50_000.0
        self.now_ns = wall.monotonic_ns()
        self.overslept_ns = 0

    def wait(self, due_ns: int, prepare: Callable[[], object] | None = None) -> bool:
        """Wait. False when woken before it was due.

        When the newest reading is already past, nothing is waited for or read. Either way
        ``now_ns`` is a reading that says so.

        Args:
            due_ns: Monotonic time to wait for.
            prepare: Called between sleeping and spinning, to get ready what is due. How long
                it takes is learned, too.
        """
        if self.now_ns >= due_ns:
            return True
        wall = self._wall
        now = self.now_ns = wall.monotonic_ns()
        if now >= due_ns:
            return True
        wake_ns = due_ns - self._margin(due_ns - now)
        slept = False
        while now < wake_ns:
            wish = min(wake_ns - now, _HOUR)
            if wall.sleep(wish / 1e9):
                return False
            slept = True
            self.now_ns = wall.monotonic_ns()
            self.overslept_ns = self.now_ns - now - wish
            now = self.now_ns
        if prepare is not None:
            prepare()
            now = wall.monotonic_ns()
        if slept and self.overslept_ns <= _OUTLIER:  # a stall says nothing about the timer
            self._learn(now - wake_ns)
        while now < due_ns:
            if wall.rung:
                return False
            now = wall.monotonic_ns()
        self.now_ns = now
        return True

    def read(self) -> int:
        """Take a new reading."""
        self.now_ns = self._wall.monotonic_ns()
        return self.now_ns

    def _margin(self, gap_ns: int) -> int:
        """How long before it is due to stop sleeping."""
        if self._pacing != "hybrid":
            return gap_ns if self._pacing == "spin" else 0
        wanted = self._mean + 3 * self._deviation
        return min(int(max(_SHORTEST_SPIN, min(wanted, _LONGEST_SPIN))), gap_ns // 10)

    def _learn(self, late_ns: int) -> None:
        """Take in how much later than asked all was ready."""
        error = late_ns - self._mean
        self._mean += error / 8
        self._deviation += (abs(error) - self._deviation) / 4
