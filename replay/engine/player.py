"""The player: drives a replay through its epochs, and obeys."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from contextlib import ExitStack
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import simpy

from replay.clock import LADDER, SystemWall, ratio
from replay.engine.controls import Commands
from replay.engine.epoch import Epoch, Score
from replay.engine.options import MAX, Playback, nanoseconds
from replay.engine.realtime import frozen_garbage, realtime
from replay.engine.report import Jump, Lateness, Played, PlayerState
from replay.engine.timekeeper import Timekeeper
from replay.errors import UsageError
from replay.timeline import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

    from replay.clock import Wall
    from replay.engine.environment import TapeEnvironment
    from replay.messages import Message
    from replay.observer import Observer
    from replay.timeline import Timeline

    Steps = Generator[simpy.Event, None, None]

__all__ = ["Player"]

Detectors = Literal["reset", "catch-up", "keep"]
_Status = Literal["ready", "playing", "paused", "stepping", "ended"]


class Player:
    """Plays a timeline into a sink, once. Its controls may be called from any thread.

    :meth:`play` is called on the thread that is to be the engine's; it calls ``publish`` there
    and returns when the replay is over. Controls leave a command, wake the engine and wait until
    it has obeyed. On the engine's own thread (a detector in lock step, an observer) they do not
    wait, and take effect after the publication under way.

    Args:
        timeline: What to play.
        publish: Takes messages, in order; may block.
        playback: How to play.
        run: Id of this replay.
        wall: Wall time; the machine's own unless told otherwise.
        observer: Looks on.
        marks: Replay seconds that :meth:`seek_mark` goes to.
        ready: Called one after the other before the clock starts; each returns when it is ready.
        settle: Called after every publication of a step that goes for a verdict; returns when
            the detectors have answered. Not needed where they run inside ``publish``.
        companions: SimPy processes to start in every epoch, given the environment.

    Examples:
        >>> from replay.timeline import Timeline
        >>> from replay.traces.model import EVENTS, Trace, TraceJob
        >>> job = TraceJob("Job1", "1970-01-01 00:00:00", "1970-01-01 00:00:09", "", {}, 0, 9 * 10**9)
        >>> trace = Trace((job,), EVENTS.empty_table())
        >>> Player(Timeline.build(trace), lambda messages: print(type(messages[0]).__name__)).play().alerts
        JobStarted
        JobEnded
        0

    """

    def __init__(
        self,
        timeline: Timeline,
        publish: Callable[[Sequence[Message]], object],
        playback: Playback | None = None,
        *,
        run: str = "",
        wall: Wall | None = None,
        observer: Observer | None = None,
        marks: Iterable[float] = (),
        ready: Iterable[Callable[[], object]] = (),
        settle: Callable[[], object] | None = None,
        companions: Iterable[Callable[[TapeEnvironment], Steps]] = (),
    ) -> None:
        self._timeline = timeline
        self._sink = publish
        self._playback = playback = playback or Playback()
        self._wall = wall or SystemWall()
        self._observer = observer
        self._marks = sorted(nanoseconds(mark) for mark in marks)
        self._ready = tuple(ready)
        self._settle = settle
        self._companions = tuple(companions)
        self._score = Score(timeline, run)
        self._begin_ns, self._end_ns = _limits(timeline, playback)
        self._gaps = _silences(timeline, self._begin_ns, self._end_ns, playback.max_gap_s)
        self._commands = Commands(self._wall)
        self._room = ExitStack()
        self._time: Timekeeper | None = None
        self._speed: float | Literal["max"] = playback.speed
        self._paused = playback.start_paused
        self._stepping = self._listening = self._stopped = False
        self._step_to_ns: int | None = None
        self._catch_up_to_ns: int | None = None
        self._delay_ns = 0
        self._status: Literal["ready", "playing", "ended"] = "ready"
        self._failure: BaseException | None = None
        self._published = self._caught_up = 0
        self._jumps: list[Jump] = []
        self._ticker: simpy.Process | None = None
        self._epoch = self._enter(0, self._begin_ns)

    def play(self) -> Played:
        """Play; returns when the replay is over.

        Raises:
            ReplayError: It fell behind and was told to fail.
            TransportError: The sink is gone.
        """
        if self._status != "ready":
            raise RuntimeError("a player plays once")
        self._commands.open()
        try:
            with self._room:
                self._room.enter_context(frozen_garbage())
                for ready in self._ready:
                    ready()
                if self._speed != MAX:
                    self._keep_time(self._speed)
                self._status = "playing"
                self._play_loops()
                return self._report()
        except BaseException as error:
            if self._failure is None or self._failure is error:
                raise
            raise self._failure from None  # SimPy has made a copy of it; this is the original
        finally:
            self._status = "ended"
            self._commands.close()
            if isinstance(self._wall, SystemWall):
                self._wall.close()

    def _play_loops(self) -> None:
        loops = self._playback.loops
        done = 0
        while True:
            self._delay_ns = 0 if self._speed == MAX else nanoseconds(self._playback.delay_wall_s)
            self._play_epoch()
            done += 1
            if self._stopped or done == loops:
                return
            here = self._position_ns()
            self._epoch = self._enter(self._epoch.number + 1, self._begin_ns)
            self._stand_at(self._begin_ns)
            self._jumped(here, self._begin_ns, "loop")

    def _play_epoch(self) -> None:
        """Play until all is over; a seek may put another epoch in the place of this one."""
        while not self._epoch.over:
            self._epoch.env.step()
        self._deliver(self._epoch.broken_off(self._position_ns()), 0)
        self._catch_up_to_ns = None
        self._stop_stepping()
        if self._time is not None:
            self._time.pause()

    def _enter(self, number: int, entry_ns: int, before: Epoch | None = None) -> Epoch:
        """Begin an epoch."""
        epoch = Epoch(
            self._score, number, entry_ns, self._end_ns, self._deliver, self._stamp, before
        )
        epoch.env.gate = self._gate
        for companion in self._companions:
            epoch.env.process(companion(epoch.env))
        if self._time is not None:
            self._ticker = epoch.env.process(self._ticks(self._time, epoch))
        return epoch

    # What happens when: the gate, called before every instant and event

    def _gate(self, at_ns: int) -> bool:
        """Obey, rest, wait. False when the world may have changed meanwhile."""
        if self._commands:
            self._commands.obey()
            return False
        if self._catch_up_to_ns is not None:
            return at_ns < self._catch_up_to_ns or self._arrive(self._catch_up_to_ns)
        if self._stepping:
            return self._may_step(at_ns) or self._finish_step()
        if self._paused:
            self._commands.rest()
            self._wall.sleep(None)
            return False
        if self._time is None or self._speed == MAX:
            self._epoch.env.gate = None
            return True
        return self._wait(self._time, at_ns)

    def _wait(self, time: Timekeeper, at_ns: int) -> bool:
        """Wait until it is due. False when woken."""
        if time.clock.paused:
            if self._delay_ns and not self._wait_before_loop(time):
                return False
            time.resume()
        if self._gaps:
            self._cut_silence(time, at_ns)
        return time.wait(at_ns) and not self._commands

    def _wait_before_loop(self, time: Timekeeper) -> bool:
        deadline = time.pacer.read() + self._delay_ns
        reached = time.pacer.wait(deadline)
        self._delay_ns = 0 if reached else max(0, deadline - time.pacer.read())
        return reached

    def _cut_silence(self, time: Timekeeper, at_ns: int) -> None:
        """Jump to where no more than ``max_gap_s`` of a silence is left."""
        number = bisect_left(self._gaps, at_ns, key=lambda gap: gap[0]) - 1
        if number < 0:
            return
        resume_ns = self._gaps[number][1]
        here = time.clock.now_ns()
        if at_ns > self._gaps[number][0] and here < resume_ns:
            time.jump(resume_ns)
            self._jumped(here, resume_ns, "gap")

    def _arrive(self, at_ns: int) -> bool:
        """A seek has caught up."""
        self._catch_up_to_ns = None
        self._stand_at(at_ns)
        return False

    def _may_step(self, at_ns: int) -> bool:
        if self._step_to_ns is not None:
            return at_ns <= self._step_to_ns
        return self._epoch.behind < self._epoch.allowance

    def _finish_step(self) -> bool:
        """A step has reached its goal: rest there."""
        epoch = self._epoch
        position = epoch.env.now_ns if self._step_to_ns is None else self._step_to_ns
        self._stop_stepping()
        self._paused = True
        self._stand_at(position)
        if epoch.between_instants:
            self._deliver(epoch.watermarks(position), 0)
        return False

    def _stop_stepping(self) -> None:
        self._stepping = self._listening = False
        self._step_to_ns = None
        self._epoch.allowance = len(self._timeline)

    def _stand_at(self, at_ns: int) -> None:
        if self._time is not None:
            self._time.jump(at_ns)

    # What leaves

    def _stamp(self) -> tuple[float | None, float | None, bool]:
        """When the slice that is about to leave was due, when it leaves, and whether late."""
        catching_up = self._catch_up_to_ns is not None
        if self._time is None or self._speed == MAX:
            return None, None, catching_up
        if catching_up or self._stepping:
            return (*self._time.unpaced(), catching_up)
        return (*self._time.on_time(self._epoch.env.now_ns), False)

    def _deliver(self, messages: Sequence[Message], alerts: int) -> bool:
        """Publish. False when whatever comes next in this instant has to wait."""
        if not messages:
            return True
        try:
            self._sink(messages)
        except BaseException as error:
            self._failure = error
            raise
        self._published += alerts
        if self._catch_up_to_ns is not None:
            self._caught_up += alerts
        if self._time is not None and self._speed != MAX:
            self._time.left()
        if self._observer is not None:
            for message in messages:
                self._observer.published(message)
        if self._listening and alerts and self._settle is not None:
            self._settle()
        if self._commands:
            self._epoch.env.gate = self._gate
            return False
        return not self._stepping or self._epoch.behind < self._epoch.allowance

    def _ticks(self, time: Timekeeper, epoch: Epoch) -> Steps:
        """Say every so often that time has passed; a change of speed starts the wait anew."""
        env = epoch.env
        while self._speed != MAX:
            period = max(1, nanoseconds(self._playback.tick_wall_s * self._speed))
            try:
                yield env.timeout(max(0, time.clock.now_ns() - env.now_ns) + period)
            except simpy.Interrupt:
                continue
            self._deliver(epoch.watermarks(env.now_ns), 0)
            time.check_suspension()

    # Controls

    def pause(self) -> None:
        """Stand still; returns when nothing more will be published."""

        def act() -> None:
            self._stop_stepping()
            self._paused = True
            if self._time is not None:
                self._time.pause()

        self._commands.put(act, until_rest=True)

    def resume(self) -> None:
        """Go on."""

        def act() -> None:
            self._stop_stepping()
            self._paused = False

        self._commands.put(act)

    def set_speed(self, speed: float | Literal["max"]) -> None:
        """Play at another speed from now on.

        Raises:
            ValueError: It is neither a positive finite number nor ``"max"``.
        """
        if speed != MAX:
            ratio(speed)
        self._commands.put(lambda: self._change_speed(speed))

    def faster(self) -> None:
        """The next speed up the ladder; above its top, ``"max"``."""

        def act() -> None:
            if self._speed != MAX:
                above = bisect_right(LADDER, self._speed)
                self._change_speed(LADDER[above] if above < len(LADDER) else MAX)

        self._commands.put(act)

    def slower(self) -> None:
        """The next speed down the ladder."""

        def act() -> None:
            below = len(LADDER) if self._speed == MAX else bisect_left(LADDER, self._speed)
            self._change_speed(LADDER[max(0, below - 1)])

        self._commands.put(act)

    def step(self, what: Literal["instant", "alert"] | int = "instant") -> None:
        """Publish the next instant, alert, or so many alerts, at once; then rest.

        Raises:
            ValueError: The number is less than 1.
        """
        if what not in {"instant", "alert"} and not (isinstance(what, int) and what > 0):
            raise ValueError(f"step {what!r} is neither 'instant', 'alert' nor a positive number")

        def act() -> None:
            behind = self._epoch.behind
            if what == "instant":
                self._go_stepping(max(behind, self._epoch.behind_after_instant))
            else:
                self._go_stepping(behind + (1 if what == "alert" else int(what)))

        self._commands.put(act, until_rest=True)

    def step_until(self, *, node: str = "", kind: str = "") -> None:
        """Publish everything up to the next such alert, at once; then rest.

        Does nothing when there is no such alert ahead.

        Args:
            node: Regular expression for the whole of its node.
            kind: Regular expression for the whole of its kind.

        Raises:
            UsageError: It is not a regular expression.
        """
        self._timeline.matching(node, kind, after=len(self._timeline))

        def act() -> None:
            goal = self._timeline.matching(node, kind, self._epoch.behind)
            self._go_stepping(self._epoch.behind if goal is None else goal)

        self._commands.put(act, until_rest=True)

    def step_until_verdict(self) -> None:
        """Publish instant after instant, at once, until :meth:`heard` is called; then rest."""

        def act() -> None:
            self._go_stepping(len(self._timeline))
            self._listening = True

        self._commands.put(act, until_rest=True)

    def heard(self) -> None:
        """A detector has spoken. For the host to call, from any thread."""
        if self._listening:
            self._commands.put(self._hear, wait=False)

    def _hear(self) -> None:
        if self._listening:
            self._epoch.allowance = self._epoch.behind

    def burst(self, until_s: float) -> None:
        """Publish everything up to and including a replay time, at once; then rest."""
        until_ns = nanoseconds(until_s)

        def act() -> None:
            self._go_stepping(len(self._timeline))
            self._step_to_ns = until_ns

        self._commands.put(act, until_rest=True)

    def seek(self, to_s: float, *, detectors: Detectors | None = None) -> None:
        """Go on from another replay time.

        Args:
            to_s: Replay seconds; limited to what is played.
            detectors: What becomes of the detectors. ``reset`` begins a new epoch there, as if
                the replay had been started there; it is what going back does unless told
                otherwise. ``catch-up`` publishes what lies between at once, marked; it is what
                going forward does. Going back it begins a new epoch at the beginning and catches
                up from there. ``keep`` skips what lies between; only forward.

        Raises:
            ValueError: ``keep`` was asked for to go back.
        """
        to_ns = nanoseconds(to_s)
        if detectors == "keep" and to_ns < self._position_ns():
            raise ValueError("detectors cannot be kept when going back")
        self._commands.put(lambda: self._seek(to_ns, detectors))

    def seek_by(self, seconds: float) -> None:
        """Go so many replay seconds forward, or back."""
        self._commands.put(lambda: self._seek(self._position_ns() + nanoseconds(seconds)))

    def seek_percent(self, percent: float) -> None:
        """Go to a part of what is played, by time."""
        length = self._end_ns - self._begin_ns
        to_ns = self._begin_ns + round(length * percent / 100)
        self._commands.put(lambda: self._seek(to_ns))

    def seek_job(self, job_id: str) -> None:
        """Go to a job's own zero.

        Raises:
            UsageError: There is no such job.
        """
        zero_ns = self._timeline.slot(job_id).zero_ns
        self._commands.put(lambda: self._seek(zero_ns))

    def seek_mark(self, direction: Literal[1, -1]) -> None:
        """Go to the next mark, or to the one before; nowhere if there is none."""

        def act() -> None:
            here = self._position_ns()
            if direction > 0:
                number = bisect_right(self._marks, here)
            else:
                number = bisect_left(self._marks, here) - 1
            if 0 <= number < len(self._marks):
                self._seek(self._marks[number])

        self._commands.put(act)

    def stop(self) -> None:
        """End it here; the jobs under way are marked as incomplete."""

        def act() -> None:
            self._stopped = True
            self._epoch.over = True

        self._commands.put(act)

    def _go_stepping(self, allowance: int) -> None:
        if self._time is not None:
            self._time.pause()
        self._stop_stepping()
        self._stepping = True
        self._epoch.allowance = allowance

    def _change_speed(self, speed: float | Literal["max"]) -> None:
        before, self._speed = self._speed, speed
        if speed == MAX:
            if self._time is not None:
                self._time.pause()
        elif self._time is None or before == MAX:
            self._keep_time(speed)
        else:
            self._time.set_speed(speed)
            if self._ticker is not None and self._ticker.is_alive:
                self._ticker.interrupt()

    def _keep_time(self, speed: float) -> None:
        """Begin to be paced, at the position where virtual time has come to."""
        here = self._epoch.env.now_ns
        if self._time is None:
            self._room.enter_context(realtime(self._playback.switch_interval_s))
            self._time = Timekeeper(self._wall, self._playback, here, speed)
        else:
            self._time.set_speed(speed)
            self._time.jump(here)
        self._ticker = self._epoch.env.process(self._ticks(self._time, self._epoch))

    def _seek(self, to_ns: int, detectors: Detectors | None = None) -> None:
        """Go somewhere else; the clock stands there until the gate sets it going."""
        if self._stepping:
            self._stop_stepping()
            self._paused = True
        if self._time is not None:
            self._time.pause()
        to_ns = min(max(to_ns, self._begin_ns), self._end_ns)
        here, epoch = self._position_ns(), self._epoch
        forward = to_ns >= here
        how = detectors or ("catch-up" if forward else "reset")
        self._catch_up_to_ns = to_ns if how == "catch-up" else None
        if how == "catch-up":
            if not forward:
                self._epoch = self._enter(epoch.number + 1, self._begin_ns)
        elif how == "keep" and forward:
            if to_ns > epoch.env.now:
                self._epoch = self._enter(epoch.number, to_ns, before=epoch)
            self._stand_at(to_ns)
        else:
            self._epoch = self._enter(epoch.number + 1, to_ns)
            self._stand_at(to_ns)
        self._jumped(here, to_ns, "seek")

    # What can be seen from outside

    def _position_ns(self) -> int:
        """How far the replay has come."""
        now = self._epoch.env.now_ns
        if self._time is None or self._speed == MAX or self._catch_up_to_ns is not None:
            return now
        return now if self._stepping else max(now, self._time.position_ns())

    def _jumped(self, before_ns: int, after_ns: int, why: Literal["seek", "loop", "gap"]) -> None:
        jump = Jump(before_ns / SECOND, after_ns / SECOND, self._epoch.number, why)
        self._jumps.append(jump)
        if self._observer is not None:
            self._observer.jumped(jump.before_s, jump.after_s, jump.epoch)

    def state(self) -> PlayerState:
        """How it is going; for any thread, at any time."""
        time, epoch = self._time, self._epoch
        position, length = self._position_ns(), self._end_ns - self._begin_ns
        behind, total = epoch.behind, len(self._timeline)
        if self._status != "playing":
            status: _Status = self._status
        else:
            status = "stepping" if self._stepping else "paused" if self._paused else "playing"
        if length > 0:
            progress = (position - self._begin_ns) / length
        else:
            progress = behind / total if total else float(self._status == "ended")
        return PlayerState(
            status=status,
            position_s=position / SECOND,
            begin_s=self._begin_ns / SECOND,
            end_s=self._end_ns / SECOND,
            progress=progress,
            alerts=behind,
            alerts_total=total,
            published=self._published,
            speed=self._speed,
            speed_achieved=None if time is None else time.speed_achieved,
            lag_wall_s=0.0 if time is None else time.lag_ns / 1e9,
            late=0 if time is None else time.late,
            epoch=epoch.number,
            jumps=len(self._jumps),
            sink_wall_s=0.0 if time is None else time.sink_ns / 1e9,
        )

    def _report(self) -> Played:
        time = self._time
        wall_ns = None if time is None else time.wall_ns
        return Played(
            complete=not self._stopped,
            epochs=self._epoch.number + 1,
            alerts=self._published,
            caught_up=self._caught_up,
            speed=self._speed,
            speed_achieved=None if time is None else time.speed_achieved,
            planned_wall_s=self.planned_wall_s,
            wall_s=None if wall_ns is None else wall_ns / 1e9,
            paused_wall_s=0.0
            if time is None or wall_ns is None
            else (wall_ns - time.running_ns) / 1e9,
            sink_wall_s=0.0 if time is None else time.sink_ns / 1e9,
            lateness=Lateness() if time is None else time.lateness,
            late=0 if time is None else time.late,
            early=0 if time is None else time.early,
            slipped_wall_s=0.0 if time is None else time.slipped_ns / 1e9,
            stalls=0 if time is None else time.stalls,
            jumps=tuple(self._jumps),
        )

    @property
    def planned_wall_s(self) -> float | None:
        """Wall seconds that all loops take at the speed first asked for; None if unknowable."""
        playback = self._playback
        if playback.speed == MAX or playback.loops is None:
            return None
        cut = sum(resume - begin for begin, resume in self._gaps)
        length = (self._end_ns - self._begin_ns - cut) / SECOND / playback.speed
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
            f"a start before {timeline.end_ns / SECOND:g} s",
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
    times = [begin_ns, *inside, end_ns]
    return [(before, after - most) for before, after in pairwise(times) if after - before > most]
