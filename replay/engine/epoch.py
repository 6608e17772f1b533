"""One stretch of replay without a step back: the tape, and what stands in the heap beside it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from replay.engine.environment import LAST, URGENT, TapeEnvironment
from replay.messages import JobEnded, JobStarted, Watermark
from replay.timeline import PIECE, Reel

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    import simpy
    from numpy.typing import NDArray

    from replay.messages import AlertSlice, Message
    from replay.timeline import Timeline

    Steps = Generator[simpy.Event, None, None]

__all__ = ["GROUP", "UNSTAMPED", "Epoch", "Score", "Stamp"]

Stamp = tuple[float | None, float | None, bool]
"""``scheduled_wall``, ``published_wall`` and ``catch_up`` of a slice."""

UNSTAMPED: Stamp = (None, None, False)
"""What slices are made with, and how they leave in virtual time."""

GROUP = 64
"""Most alerts of several instants that are published together in virtual time."""


class Score:
    """What every epoch of a replay reads from: a timeline, in the forms that are quick to read."""

    def __init__(self, timeline: Timeline, run: str) -> None:
        self.timeline = timeline
        self.run = run
        self.reel = Reel(timeline)
        # One at a time, a memoryview gives plain integers twice as fast as an array does.
        self.times = timeline.instant_ns.data
        self.starts = timeline.instant_starts.data
        self.numbers = timeline.numbers.data
        self.reached = timeline.numbers[timeline.instant_starts].data
        numbers = range(len(timeline.slots))
        self.by_begin = sorted(numbers, key=lambda number: timeline.slots[number].begin_ns)
        self.by_end = sorted(numbers, key=lambda number: timeline.slots[number].end_ns)


class _Prepared(NamedTuple):
    """An instant, or the rest of one, whose messages are there already."""

    first: int
    last: int
    behind: int
    messages: list[AlertSlice]


class Epoch:
    """Walks the tape from one time on, and starts and ends the jobs.

    Args:
        score: What to play.
        number: The epoch's number.
        entry_ns: Where it begins; jobs that run then are entered there.
        stop_ns: Where it ends, inclusive.
        deliver: Takes messages; answers False when the rest of the instant has to wait.
        stamp: Gives ``scheduled_wall``, ``published_wall`` and ``catch_up`` of what leaves now.
        before: The epoch that this one continues, with the jobs that are under way.

    Attributes:
        env: The SimPy environment.
        behind: Alerts behind the position.
        allowance: It stops when so many are behind it.
        over: True when all is played.
        active: The jobs under way, in the order they were started.
    """

    def __init__(
        self,
        score: Score,
        number: int,
        entry_ns: int,
        stop_ns: int,
        deliver: Callable[[Sequence[Message], int], bool],
        stamp: Callable[[], Stamp],
        before: Epoch | None = None,
    ) -> None:
        self.number = number
        self.over = False
        self._score = score
        self._run = score.run
        self._slots = score.timeline.slots
        self._deliver = deliver
        self._stamp = stamp
        self._entry_ns = entry_ns
        instant = bisect_left(score.times, entry_ns)
        self.env = TapeEnvironment(score.times, self._emit, instant, initial_time=entry_ns)
        self._slice = score.starts[instant]
        self._skip = 0
        self._prepared: _Prepared | None = None
        self.behind = score.numbers[self._slice]
        self.allowance = len(score.timeline)
        self.active: dict[int, None] = dict(before.active) if before else {}
        # Alerts of each job that this epoch, and those it continues, have left out.
        self.left_out = self.tally()
        if before:
            self.left_out += before.left_out - before.tally()
        self.env.process(self._starts())
        self.env.process(self._ends())
        self.env.process(self._finale(max(stop_ns, entry_ns)))

    @property
    def behind_after_instant(self) -> int:
        """Alerts behind the position once the next instant, or the rest of this one, is out."""
        cursor = self.env.cursor
        return self.behind if cursor == len(self._score.times) else self._score.reached[cursor + 1]

    def watermarks(self, now: int) -> list[Message]:
        """That all is out up to this time, for every job under way; nothing if it is not."""
        cursor = self.env.cursor
        if cursor < len(self._score.times) and self._score.times[cursor] <= now:
            return []
        return [
            Watermark(self._run, self.number, self._slots[slot].job.id, self._slots[slot].at(now))
            for slot in self.active
        ]

    def broken_off(self, now: int) -> list[Message]:
        """The end of every job under way, before its time."""
        counts = self.tally() - self.left_out
        return [self._ended(slot, now, int(counts[slot]), complete=False) for slot in self.active]

    def _starts(self) -> Steps:
        """Start every job when its time comes; those under way at the entry, at once."""
        env = self.env
        for number in self._score.by_begin:
            slot = self._slots[number]
            if number in self.active or slot.end_ns < self._entry_ns:
                continue
            if slot.begin_ns > env.now:
                yield env.alarm(slot.begin_ns, URGENT)
            self.active[number] = None
            started = JobStarted(
                self._run, self.number, slot.job, slot.start_time, slot.at(env.now_ns)
            )
            self._deliver((started,), 0)

    def _ends(self) -> Steps:
        """End every job when its time comes; those whose end was skipped, at once."""
        env = self.env
        for number in self._score.by_end:
            end = self._slots[number].end_ns
            if end < self._entry_ns and number not in self.active:
                continue
            if end >= env.now:
                yield env.alarm(end)
            del self.active[number]
            count = self._slots[number].count - int(self.left_out[number])
            self._deliver((self._ended(number, end, count, complete=True),), 0)
        self.over = True

    def _finale(self, stop_ns: int) -> Steps:
        """Stop after everything that happens at the last moment."""
        yield self.env.alarm(stop_ns, LAST)
        self.over = True

    def _ended(self, number: int, end_ns: int, count: int, *, complete: bool) -> JobEnded:
        slot = self._slots[number]
        return JobEnded(self._run, self.number, slot.job.id, slot.at(end_ns), count, complete)

    def _emit(self, number: int, upto: int) -> int:
        """Publish an instant, or several where nothing comes between. Which one is next."""
        score, prepared = self._score, self._prepared
        if prepared is not None and self._fits(prepared):
            self._publish_prepared(prepared)
            return number + 1
        if upto - number > 1:
            until = bisect_right(score.reached, self.behind + GROUP, number + 1, upto + 1) - 1
            if until > number:
                self._publish_until(until)
                return until
        stop = score.starts[number + 1]
        while self._publish_part(stop):
            pass
        return number + (self._slice == stop)

    def _publish_until(self, instant: int) -> None:
        """Publish whole instants."""
        first, self._slice = self._slice, self._score.starts[instant]
        before, self.behind = self.behind, self._score.reached[instant]
        self._publish(self._make(first, self._slice), self.behind - before)

    def _publish_part(self, stop: int) -> bool:
        """Publish some slices of an instant. False when it is done, or the rest has to wait."""
        first, skip, before = self._slice, self._skip, self.behind
        numbers = self._score.numbers
        goal = min(before + PIECE, self.allowance)
        if goal <= before:
            return False
        last, leave = stop, 0
        if numbers[stop] <= goal:
            self._slice, self._skip = stop, 0
        else:
            last, leave = self._cut(stop, goal)
        self.behind = numbers[last] - leave
        messages = self._make(first, last, skip, leave)
        return self._publish(messages, self.behind - before) and self._slice < stop

    def _cut(self, stop: int, goal: int) -> tuple[int, int]:
        """Where to cut an instant that is too long.

        Returns:
            The slice after the last one to publish, and how many of its alerts to leave.
        """
        numbers = self._score.numbers
        whole = bisect_right(numbers, goal, self._slice, stop) - 1
        rest = goal - numbers[whole]
        if rest and goal == self.allowance:
            self._slice, self._skip = whole, rest
            return whole + 1, numbers[whole + 1] - goal
        self._slice, self._skip = whole, 0
        return whole, 0

    def prepare(self) -> None:
        """Make the next instant's messages, so that they can leave at once when it is due."""
        cursor = self.env.cursor
        if self._prepared is None and not self._skip and cursor < len(self._score.times):
            first, last = self._slice, self._score.starts[cursor + 1]
            behind = self._score.numbers[last]
            if behind <= self.behind + PIECE:
                self._prepared = _Prepared(first, last, behind, self._make(first, last))
                self._put_stamps(self._prepared.messages)  # what has just been done is done quickly

    def _fits(self, prepared: _Prepared) -> bool:
        """Whether it is what comes next, and may."""
        return prepared.first == self._slice and prepared.behind <= self.allowance

    def _publish_prepared(self, prepared: _Prepared) -> None:
        """Publish an instant whose messages are there."""
        self._slice = prepared.last
        before, self.behind = self.behind, prepared.behind
        self._publish(prepared.messages, prepared.behind - before)

    def _publish(self, messages: list[AlertSlice], alerts: int) -> bool:
        """Stamp and publish. False when whatever comes next in this instant has to wait."""
        self._prepared = None
        self._put_stamps(messages)
        return self._deliver(messages, alerts)

    def _put_stamps(self, messages: list[AlertSlice]) -> None:
        stamp = self._stamp()
        if stamp is not UNSTAMPED or messages[0].scheduled_wall is not None:
            for message in messages:
                message.scheduled_wall, message.published_wall, message.catch_up = stamp

    def _make(self, first: int, last: int, skip: int = 0, leave: int = 0) -> list[AlertSlice]:
        """Slices as messages; of the first and the last, perhaps only a part."""
        return self._score.reel.slices(
            first, last, run=self._score.run, epoch=self.number, skip=skip, leave=leave
        )

    def tally(self) -> NDArray[np.int64]:
        """Alerts of each job that are behind the position."""
        timeline = self._score.timeline
        jobs = timeline.slice_job[: self._slice]
        sizes = np.diff(timeline.numbers[: self._slice + 1])
        tally = np.bincount(jobs, sizes, len(self._slots)).astype(np.int64)
        if self._skip:
            tally[timeline.slice_job[self._slice]] += self._skip
        return tally
