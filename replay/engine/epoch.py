"""One stretch of replay without a step back: the tape, and what stands in the heap beside it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from replay.engine.environment import LAST, URGENT, TapeEnvironment
from replay.messages import AlertSlice, JobEnded, JobStarted, Watermark
from replay.timeline import PIECE, Reel

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    import simpy

    from replay.messages import Message
    from replay.timeline import Timeline

    Steps = Generator[simpy.Event, None, None]

__all__ = ["Epoch", "Score"]


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
        numbers = range(len(timeline.slots))
        self.by_begin = sorted(numbers, key=lambda number: timeline.slots[number].begin_ns)
        self.by_end = sorted(numbers, key=lambda number: timeline.slots[number].end_ns)


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
        counts: How many alerts of each job have been published.
    """

    def __init__(
        self,
        score: Score,
        number: int,
        entry_ns: int,
        stop_ns: int,
        deliver: Callable[[Sequence[Message], int], bool],
        stamp: Callable[[], tuple[float | None, float | None, bool]],
        before: Epoch | None = None,
    ) -> None:
        self.number = number
        self.over = False
        self._score = score
        self._run = score.run
        self._reel = score.reel
        self._slots = score.timeline.slots
        self._deliver = deliver
        self._stamp = stamp
        self._entry_ns = entry_ns
        instant = bisect_left(score.times, entry_ns)
        self.env = TapeEnvironment(score.times, self._emit, instant, initial_time=entry_ns)
        self._slice = score.starts[instant]
        self._skip = 0
        self.behind = score.numbers[self._slice]
        self.allowance = len(score.timeline)
        self.active: dict[int, None] = dict(before.active) if before else {}
        self.counts: list[int] = list(before.counts) if before else [0] * len(self._slots)
        self.env.process(self._starts())
        self.env.process(self._ends())
        self.env.process(self._finale(max(stop_ns, entry_ns)))

    @property
    def behind_after_instant(self) -> int:
        """Alerts behind the position once the next instant, or the rest of this one, is out."""
        cursor = self.env.cursor
        if cursor == len(self._score.times):
            return self.behind
        return self._score.numbers[self._score.starts[cursor + 1]]

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
        return [self._ended(slot, now, complete=False) for slot in self.active]

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
            self._deliver((self._ended(number, end, complete=True),), 0)
        self.over = True

    def _finale(self, stop_ns: int) -> Steps:
        """Stop after everything that happens at the last moment."""
        yield self.env.alarm(stop_ns, LAST)
        self.over = True

    def _ended(self, number: int, end_ns: int, *, complete: bool) -> JobEnded:
        slot = self._slots[number]
        return JobEnded(
            self._run, self.number, slot.job.id, slot.at(end_ns), self.counts[number], complete
        )

    def _emit(self, instant: int) -> bool:
        """Publish an instant. False when some of it is left."""
        stop = self._score.starts[instant + 1]
        while True:
            before = self.behind
            going_on = self._deliver(self._cut(stop), self.behind - before)
            if self._slice == stop:
                return True
            if not going_on:
                return False

    def _cut(self, stop: int) -> list[Message]:
        """The next slices of this instant: a handful, and never beyond the allowance."""
        first, skip, numbers = self._slice, self._skip, self._score.numbers
        goal = min(self.behind + PIECE, self.allowance)
        last, leave = stop, 0
        if numbers[stop] <= goal:
            self._slice, self._skip = stop, 0
        else:
            last, leave = self._part(stop, goal)
        self.behind = numbers[last] - leave
        run, number, counts = self._run, self.number, self.counts
        scheduled, published, catch_up = self._stamp()
        messages: list[Message] = []
        for index, batch in enumerate(
            self._reel.batches(first, last, self.env.now_ns, skip, leave), first
        ):
            counts[self._reel.job(index)] += len(batch.seq)
            messages.append(AlertSlice(run, number, batch, scheduled, published, catch_up))
        return messages

    def _part(self, stop: int, goal: int) -> tuple[int, int]:
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
