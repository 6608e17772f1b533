"""What happens on the engine's thread: going from epoch to epoch, waiting, publishing, obeying."""

from __future__ import annotations

from bisect import bisect_left
from contextlib import ExitStack
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Literal

import simpy

from replay.engine.controls import Commands
from replay.engine.epoch import UNSTAMPED, Epoch, Score
from replay.engine.options import MAX, nanoseconds
from replay.engine.realtime import realtime
from replay.engine.report import Jump
from replay.engine.timekeeper import Timekeeper
from replay.errors import UsageError
from replay.timeline import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from replay.clock import Wall
    from replay.engine.environment import TapeEnvironment
    from replay.engine.epoch import Stamp
    from replay.engine.options import Playback, Speed
    from replay.messages import Message
    from replay.observer import Observer
    from replay.timeline import Timeline

    Steps = Generator[simpy.Event, None, None]

__all__ = ["Detectors", "Drive"]

Detectors = Literal["reset", "catch-up", "keep"]


class Drive:
    """Moves a replay. All of it belongs to the engine's thread, except reading its attributes.

    Three things can move it. *Pacing* waits for every instant on the clock. *Catching up* and
    *stepping* go from instant to instant without waiting, to a time or to a number of alerts,
    while the clock stands; catching up is finished before any command is obeyed. In virtual time
    nothing is waited for and there is no clock.

    Args:
        timeline: What to play.
        playback: How to play.
        publish: The sink.
        run: Id of this replay.
        wall: Wall time.
        observer: Looks on.
        settle: See :class:`Player`.
        companions: See :class:`Player`.

    Attributes:
        commands: What other threads ask for.
        epoch: The epoch under way.
        time: The paced clock and its books; None while no clock has been needed.
        speed: Speed asked for.
        paused: Whether it rests, or will when it has caught up.
        stepping: Whether it goes to a goal, to rest there.
        stopped: Set by any thread to end it.
        begin_ns: Where what is played begins.
        end_ns: Where it ends.
        failure: What the sink raised.
        published: Alerts published.
        caught_up: Those of them published to catch up.
        jumps: Replay time that was not played through.
    """

    def __init__(
        self,
        timeline: Timeline,
        playback: Playback,
        publish: Callable[[Sequence[Message]], object],
        run: str,
        wall: Wall,
        observer: Observer | None,
        settle: Callable[[], object] | None,
        companions: tuple[Callable[[TapeEnvironment], Steps], ...],
    ) -> None:
        self.commands = Commands(wall)
        self.speed: Speed = playback.speed
        self.paused = playback.start_paused
        self.stepping = self.stopped = False
        self.time: Timekeeper | None = None
        self.failure: BaseException | None = None
        self.published = self.caught_up = 0
        self.jumps: list[Jump] = []
        self._timeline = timeline
        self._playback = playback
        self._sink = publish
        self._wall = wall
        self._observer = observer
        self._settle = settle
        self._companions = companions
        self._score = Score(timeline, run)
        self.begin_ns, self.end_ns = _limits(timeline, playback)
        self._entry_ns = timeline.begin_ns if playback.warm_up else self.begin_ns
        self._silences = _silences(timeline, self.begin_ns, self.end_ns, playback.max_gap_s)
        self._room = ExitStack()
        self._step_to_ns: int | None = None
        self._listening = False
        self._catch_up_to_ns: int | None = None
        self._delay_ns = 0
        self._ticker: simpy.Process | None = None
        self.epoch = self._enter(0, self._entry_ns)

    def run(self) -> None:
        """Play all loops."""
        with self._room:
            if self.speed != MAX:
                self._keep_time(self.speed)
            loops = self._playback.loops
            done = 0
            while not self.stopped and done != loops:
                if done:
                    self._jump_to(self._entry_ns, "loop")
                self._play_once()
                done += 1

    def _play_once(self) -> None:
        """Play until all is over; a seek may put another epoch in the place of this one."""
        self._delay_ns = 0 if self.speed == MAX else nanoseconds(self._playback.delay_wall_s)
        self._catch_up_to_ns = self.begin_ns if self._entry_ns < self.begin_ns else None
        while not self.epoch.over:
            self.epoch.env.step()
        self._deliver(self.epoch.broken_off(self.position_ns()), 0)
        self.stop_stepping()
        self._stand()

    def _enter(self, number: int, entry_ns: int, before: Epoch | None = None) -> Epoch:
        """Begin an epoch."""
        epoch = Epoch(
            self._score, number, entry_ns, self.end_ns, self._deliver, self._stamp, before
        )
        epoch.env.gate = self._gate
        self._stood_ns = entry_ns
        for companion in self._companions:
            epoch.env.process(companion(epoch.env))
        self._ticker = None
        return epoch

    def _keep_time(self, speed: float) -> None:
        """Have a clock, which stands where virtual time has come to."""
        here = max(self.epoch.env.now_ns, self._stood_ns)
        if self.time is None:
            self._room.enter_context(realtime(self._playback.switch_interval_s))
            self.time = Timekeeper(self._wall, self._playback, here, speed)
        else:
            self.time.set_speed(speed)
            self.time.jump(here)

    # What may happen when: the gate is asked before every instant and event

    def _gate(self, at_ns: int) -> bool:
        """Obey, rest, wait. False when the world may have changed meanwhile."""
        if self.stopped:
            self.epoch.over = True
            return False
        if self._catch_up_to_ns is not None:
            return at_ns < self._catch_up_to_ns or self._arrive(self._catch_up_to_ns)
        if self.commands.pending:
            self.commands.obey()
            return False
        if self.stepping:
            return self._may_step(at_ns) or self._finish_step()
        return self._rest() if self.paused else self._go(at_ns)

    def _rest(self) -> bool:
        """Tell whoever waits for it, and sleep until the next command."""
        self.commands.rest()
        self._wall.sleep(None)
        return False

    def _go(self, at_ns: int) -> bool:
        """Wait until it is due. False when the world may have changed meanwhile."""
        time = self.time
        if time is None or self.speed == MAX:
            self.epoch.env.gate = None
            return True
        if time.clock.paused:
            return self._set_off(time)
        if self._silences:
            self._cut_silence(time, at_ns)
        return time.wait(at_ns, self.epoch.prepare) and not self.commands.pending

    def _set_off(self, time: Timekeeper) -> bool:
        """Set the clock going, after the delay before a loop."""
        if self._delay_ns:
            deadline = time.pacer.read() + self._delay_ns
            reached = time.pacer.wait(deadline)
            self._delay_ns = 0 if reached else max(1, deadline - time.pacer.read())
            if not reached:
                return False
        time.resume()
        if self._ticker is not None and self._ticker.is_alive:
            self._ticker.interrupt()
        else:
            self._ticker = self.epoch.env.process(self._ticks(time, self.epoch))
        return False

    def _cut_silence(self, time: Timekeeper, at_ns: int) -> None:
        """Jump to where no more than ``max_gap_s`` of a silence is left."""
        number = bisect_left(self._silences, at_ns, key=itemgetter(0)) - 1
        if number >= 0:
            here, go_on_ns = time.clock.now_ns(), self._silences[number][1]
            if here < go_on_ns:
                time.jump(go_on_ns)
                self._jumped(here, go_on_ns, "gap")

    def _arrive(self, at_ns: int) -> bool:
        """A seek has caught up."""
        self._catch_up_to_ns = None
        self._stand(at_ns)
        return False

    def _may_step(self, at_ns: int) -> bool:
        if self._step_to_ns is not None:
            return at_ns <= self._step_to_ns
        return self.epoch.behind < self.epoch.allowance

    def _finish_step(self) -> bool:
        """A step has reached its goal: rest there."""
        here = self.position_ns()
        if self._step_to_ns is not None:
            here = max(here, self._step_to_ns)
        self.stop_stepping()
        self.paused = True
        self._stand(here)
        self._deliver(self.epoch.watermarks(here), 0)
        return False

    def _stand(self, at_ns: int | None = None) -> None:
        """Let the clock stand, where it is or somewhere else."""
        if at_ns is not None:
            self._stood_ns = at_ns
        if self.time is not None:
            self.time.pause()
            if at_ns is not None:
                self.time.jump(at_ns)

    # What leaves

    def _stamp(self) -> Stamp:
        """When the slice that is about to leave was due, when it leaves, whether it catches up."""
        catching_up = self._catch_up_to_ns is not None
        if self.time is None or self.speed == MAX:
            return (None, None, True) if catching_up else UNSTAMPED
        if catching_up or self.stepping:
            return (*self.time.unpaced(), catching_up)
        return (*self.time.stamps(), False)

    def _deliver(self, messages: Sequence[Message], alerts: int) -> bool:
        """Publish. False when whatever comes next in this instant has to wait."""
        if not messages:
            return True
        try:
            self._sink(messages)
        except BaseException as error:
            self.failure = error
            raise
        self.published += alerts
        if self._catch_up_to_ns is not None:
            self.caught_up += alerts
        if self.time is not None and self.speed != MAX:
            self.time.left(alerts, paced=not self.stepping and self._catch_up_to_ns is None)
        if self._observer is not None:
            for message in messages:
                self._observer.published(message)
        if self._listening and alerts and self._settle is not None:
            self._settle()
        if self.commands.pending:
            self.epoch.env.gate = self._gate
            return False
        return not self.stepping or self.epoch.behind < self.epoch.allowance

    def _ticks(self, time: Timekeeper, epoch: Epoch) -> Steps:
        """Say every so often that time has passed, while it does."""
        env = epoch.env
        while not time.clock.paused:
            period = max(1, nanoseconds(self._playback.tick_wall_s * time.clock.speed))
            try:
                yield env.timeout(max(0, time.clock.now_ns() - env.now_ns) + period)
            except simpy.Interrupt:  # the speed has changed: measure anew
                continue
            self._deliver(epoch.watermarks(env.now_ns), 0)
            time.check_suspension()

    # What commands do

    def pause(self) -> None:
        """Rest."""
        self.stop_stepping()
        self.paused = True
        self._stand()

    def resume(self) -> None:
        """Go on."""
        self.stop_stepping()
        self.paused = False

    def set_speed(self, speed: Speed) -> None:
        """Go on at another speed."""
        before, self.speed = self.speed, speed
        if speed == MAX:
            self._stand()
        elif self.time is None or before == MAX:
            self._keep_time(speed)
        else:
            self.time.set_speed(speed)
            if self._ticker is not None and self._ticker.is_alive:
                self._ticker.interrupt()

    def step(self, allowance: int, to_ns: int | None = None) -> None:
        """Go to a goal without waiting, and rest there.

        Args:
            allowance: How many alerts are to be behind.
            to_ns: The time to go to instead.
        """
        self._stand()
        self.stop_stepping()
        self.stepping = True
        self._step_to_ns = to_ns
        if to_ns is None:
            self.epoch.allowance = min(allowance, len(self._timeline))

    def step_until_heard(self) -> None:
        """Go on without waiting until :meth:`hear`, and rest there; or go to the end."""
        self.step(0)
        self.epoch.allowance = len(self._timeline) + 1
        self._listening = True

    @property
    def listening(self) -> bool:
        """Whether a step waits for a verdict."""
        return self._listening

    def hear(self) -> None:
        """There has been a verdict."""
        if self._listening:
            self.epoch.allowance = self.epoch.behind

    def stop_stepping(self) -> None:
        """Give up the goal, if there is one."""
        self.stepping = self._listening = False
        self._step_to_ns = None
        self.epoch.allowance = len(self._timeline)

    def seek(self, to_ns: int, detectors: Detectors | None = None) -> None:
        """Go somewhere else; see :meth:`Player.seek`."""
        to_ns = min(max(to_ns, self.begin_ns), self.end_ns)
        here, epoch = self.position_ns(), self.epoch
        if detectors == "keep" and to_ns < here:
            return  # the replay has gone past it since it was asked for: nothing lies between
        if self.stepping:
            self.stop_stepping()
            self.paused = True
        self._stand()
        how = detectors or ("catch-up" if to_ns >= here else "reset")
        self._catch_up_to_ns = to_ns if how == "catch-up" else None
        if how == "catch-up" and to_ns < here:
            self.epoch = self._enter(epoch.number + 1, self._entry_ns)
        elif how == "keep" and to_ns > epoch.env.now_ns:
            self.epoch = self._enter(epoch.number, to_ns, before=epoch)
        elif how == "reset":
            self.epoch = self._enter(epoch.number + 1, to_ns)
        if how != "catch-up":
            self._stand(to_ns)
        self._jumped(here, to_ns, "seek")

    def _jump_to(self, to_ns: int, why: Literal["loop"]) -> None:
        here = self.position_ns()
        self.epoch = self._enter(self.epoch.number + 1, to_ns)
        self._stand(to_ns)
        self._jumped(here, to_ns, why)

    def _jumped(self, before_ns: int, after_ns: int, why: Literal["seek", "loop", "gap"]) -> None:
        jump = Jump(before_ns / SECOND, after_ns / SECOND, self.epoch.number, why)
        self.jumps.append(jump)
        if self._observer is not None:
            self._observer.jumped(jump.before_s, jump.after_s, jump.epoch)

    # What can be seen from any thread

    def position_ns(self) -> int:
        """How far the replay has come."""
        now = self.epoch.env.now_ns
        if self.time is None or self.speed == MAX:
            return max(now, self._stood_ns)
        return max(now, self.time.position_ns())

    def planned_wall_s(self) -> float | None:
        """Wall seconds that all loops take at the speed first asked for; None if unknowable."""
        playback = self._playback
        if playback.speed == MAX or playback.loops is None:
            return None
        cut = sum(go_on - begin for begin, go_on in self._silences)
        length = (self.end_ns - self.begin_ns - cut) / SECOND / playback.speed
        return playback.loops * (playback.delay_wall_s + length)


def _limits(timeline: Timeline, playback: Playback) -> tuple[int, int]:
    """Where to begin and to end.

    Raises:
        UsageError: Nothing lies between the two.
    """
    begin, end = timeline.begin_ns, timeline.end_ns
    if playback.start_s is not None:
        begin = max(begin, nanoseconds(playback.start_s))
    if playback.duration_s is not None:
        end = min(end, begin + nanoseconds(playback.duration_s))
    if playback.end_s is not None:
        end = min(end, nanoseconds(playback.end_s))
    if begin > end:
        raise UsageError(
            f"Nothing lies between replay second {begin / SECOND:g} and {end / SECOND:g}.",
            f"{timeline.begin_ns / SECOND:g} to {timeline.end_ns / SECOND:g}, or a part of it",
        )
    return begin, end


def _silences(
    timeline: Timeline, begin_ns: int, end_ns: int, most_s: float | None
) -> list[tuple[int, int]]:
    """Silences longer than ``most_s``: when each begins, and when all but that much is over."""
    if most_s is None:
        return []
    most = nanoseconds(most_s)
    marks = timeline.landmarks_ns
    inside = marks[(marks > begin_ns) & (marks < end_ns)].tolist()
    return [
        (before, after - most)
        for before, after in pairwise([begin_ns, *inside, end_ns])
        if after - before > most
    ]
