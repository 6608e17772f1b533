"""The player: the face of the engine, for any thread."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Literal

from replay.clock import LADDER, SystemWall, ratio
from replay.engine.drive import Drive
from replay.engine.options import MAX, Playback, nanoseconds
from replay.engine.report import Lateness, Played, PlayerState, Status
from replay.timeline import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from replay.clock import Wall
    from replay.engine.drive import Detectors, Steps
    from replay.engine.environment import TapeEnvironment
    from replay.engine.options import Speed
    from replay.messages import Message
    from replay.observer import Observer
    from replay.timeline import Timeline

__all__ = ["Player"]


class Player:
    """Plays a timeline into a sink, once. Its controls may be called from any thread.

    :meth:`play` is called on the thread that is to be the engine's; it calls ``publish`` there
    and returns when the replay is over. Controls leave a command, wake the engine and wait until
    it has obeyed. On the engine's own thread (a detector in lock step, an observer, a signal
    handler) they do not wait, and take effect after the publication under way.

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

    Raises:
        UsageError: Nothing lies between where to begin and where to end.

    Examples:
        >>> from replay.traces.model import EVENTS, Trace, TraceJob
        >>> from replay.timeline import Timeline
        >>> job = TraceJob("Job1", "1970-01-01 00:00:00", "1970-01-01 00:01:00", "", {}, 0, 6 * 10**10)
        >>> timeline = Timeline.build(Trace((job,), EVENTS.empty_table()))
        >>> Player(timeline, lambda messages: print(type(messages[0]).__name__)).play().complete
        JobStarted
        JobEnded
        True

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
        self._own_wall = SystemWall() if wall is None else None
        self._drive = Drive(
            timeline,
            playback or Playback(),
            publish,
            run,
            wall or self._own_wall or SystemWall(),
            observer,
            settle,
            tuple(companions),
        )
        self._commands = self._drive.commands
        self._marks = sorted(nanoseconds(mark) for mark in marks)
        self._ready = tuple(ready)
        self._status: Status = "ready"

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
            for ready in self._ready:
                ready()
            self._status = "playing"
            self._drive.run()
            return self._report()
        except BaseException as error:
            failure = self._drive.failure
            if failure is None or failure is error:
                raise
            raise failure from None  # SimPy has made a copy of it; this is the original
        finally:
            self._status = "ended"
            self._commands.close()
            if self._own_wall is not None:
                self._own_wall.close()

    def pause(self) -> None:
        """Stand still; returns when nothing more will be published."""
        self._commands.put(self._drive.pause, until_rest=True)

    def resume(self) -> None:
        """Go on."""
        self._commands.put(self._drive.resume)

    def stop(self) -> None:
        """End it here; the jobs under way are marked as incomplete."""
        self._drive.stopped = True
        self._commands.put(lambda: None)  # wakes the engine, and waits until it has ended

    def set_speed(self, speed: Speed) -> None:
        """Play at another speed from now on.

        Raises:
            ValueError: It is neither a positive finite number nor ``"max"``.
        """
        if speed != MAX:
            ratio(speed)
        self._commands.put(lambda: self._drive.set_speed(speed))

    def faster(self) -> None:
        """The next speed up the ladder; above its top, ``"max"``."""

        def act() -> None:
            speed = self._drive.speed
            if speed != MAX:
                above = bisect_right(LADDER, speed)
                self._drive.set_speed(LADDER[above] if above < len(LADDER) else MAX)

        self._commands.put(act)

    def slower(self) -> None:
        """The next speed down the ladder."""

        def act() -> None:
            speed = self._drive.speed
            below = len(LADDER) if speed == MAX else bisect_left(LADDER, speed)
            self._drive.set_speed(LADDER[max(0, below - 1)])

        self._commands.put(act)

    def step(self, what: Literal["instant", "alert"] | int = "instant") -> None:
        """Publish the next instant, alert, or so many alerts, at once; then rest.

        Raises:
            ValueError: It is none of these.
        """
        number = {"instant": 0, "alert": 1}.get(what, -1) if isinstance(what, str) else what
        if number < 0 or what == 0:
            raise ValueError(f"step {what!r} is neither 'instant', 'alert' nor a positive number")

        def act() -> None:
            epoch = self._drive.epoch
            self._drive.step(epoch.behind + number if number else epoch.behind_after_instant)

        self._commands.put(act, until_rest=True)

    def step_until(self, *, node: str = "", kind: str = "") -> None:
        """Publish everything up to the next such alert, at once; then rest.

        Rests where it is when there is no such alert ahead.

        Args:
            node: Regular expression for the whole of its node.
            kind: Regular expression for the whole of its kind.

        Raises:
            UsageError: It is not a regular expression.
        """
        self._timeline.matching(node, kind, after=len(self._timeline))

        def act() -> None:
            behind = self._drive.epoch.behind
            goal = self._timeline.matching(node, kind, behind)
            self._drive.step(behind if goal is None else goal)

        self._commands.put(act, until_rest=True)

    def step_until_verdict(self) -> None:
        """Publish instant after instant, at once, until :meth:`heard` is called; then rest.

        Goes on to the end when it never is.
        """
        self._commands.put(self._drive.step_until_heard, until_rest=True)

    def heard(self) -> None:
        """A detector has spoken. For the host to call, from any thread; never waits."""
        if self._drive.listening:
            self._commands.put(self._drive.hear, wait=False)

    def burst(self, until_s: float) -> None:
        """Publish everything up to and including a replay time, at once; then rest."""
        until_ns = nanoseconds(until_s)
        self._commands.put(lambda: self._drive.step(0, until_ns), until_rest=True)

    def seek(self, to_s: float, *, detectors: Detectors | None = None) -> None:
        """Go on from another replay time.

        Args:
            to_s: Replay seconds; limited to what is played.
            detectors: What becomes of the detectors. ``reset`` begins a new epoch there, as if
                the replay had been started there; it is what going back does unless told
                otherwise. ``catch-up`` publishes what lies between at once, marked; it is what
                going forward does. Going back, it begins a new epoch at the beginning and
                catches up from there. ``keep`` skips what lies between; only forward.

        Raises:
            ValueError: ``keep`` was asked for to go back.
        """
        to_ns = nanoseconds(to_s)
        settled = not self._commands.pending  # else what was asked for before decides where we are
        if detectors == "keep" and settled and to_ns < self._drive.position_ns():
            raise ValueError("detectors cannot be kept when going back")
        self._commands.put(lambda: self._drive.seek(to_ns, detectors))

    def seek_by(
        self, seconds: float, *, detectors: Literal["reset", "catch-up"] | None = None
    ) -> None:
        """Go so many replay seconds forward, or back; ``detectors`` as :meth:`seek` takes it."""
        by_ns = nanoseconds(seconds)
        self._commands.put(lambda: self._drive.seek(self._drive.position_ns() + by_ns, detectors))

    def seek_percent(self, percent: float) -> None:
        """Go to a part of what is played, by time."""
        begin_ns, end_ns = self._drive.begin_ns, self._drive.end_ns
        to_ns = begin_ns + round((end_ns - begin_ns) * percent / 100)
        self._commands.put(lambda: self._drive.seek(to_ns))

    def seek_job(self, job_id: str) -> None:
        """Go to a job's own zero.

        Raises:
            UsageError: There is no such job.
        """
        zero_ns = self._timeline.slot(job_id).zero_ns
        self._commands.put(lambda: self._drive.seek(zero_ns))

    def seek_mark(self, direction: Literal[1, -1]) -> None:
        """Go to the next mark, or to the one before; nowhere if there is none."""

        def act() -> None:
            here = self._drive.position_ns()
            after = bisect_right(self._marks, here)
            number = after if direction > 0 else bisect_left(self._marks, here) - 1
            if 0 <= number < len(self._marks):
                self._drive.seek(self._marks[number])

        self._commands.put(act)

    def state(self) -> PlayerState:
        """How it is going; for any thread, at any time."""
        drive = self._drive
        time, epoch, position = drive.time, drive.epoch, drive.position_ns()
        length, total = drive.end_ns - drive.begin_ns, len(self._timeline)
        if length > 0:
            progress = min(1.0, max(0.0, (position - drive.begin_ns) / length))
        else:
            progress = epoch.behind / total if total else float(self._status == "ended")
        status: Status = self._status
        if status == "playing" and (drive.stepping or drive.paused):
            status = "stepping" if drive.stepping else "paused"
        return PlayerState(
            status=status,
            position_s=position / SECOND,
            begin_s=drive.begin_ns / SECOND,
            end_s=drive.end_ns / SECOND,
            progress=progress,
            alerts=epoch.behind,
            alerts_total=total,
            published=drive.published,
            speed=drive.speed,
            speed_achieved=None if time is None else time.speed_achieved(),
            lag_wall_s=0.0 if time is None else time.lag_ns / 1e9,
            late=0 if time is None else time.late,
            early=0 if time is None else time.early,
            epoch=epoch.number,
            jumps=len(drive.jumps),
            sink_wall_s=0.0 if time is None else time.sink_ns / 1e9,
        )

    @property
    def stopping(self) -> bool:
        """Whether it was told to stop."""
        return self._drive.stopped

    def lateness(self) -> list[tuple[float, int]]:
        """How late slices have left so far, as :meth:`Lateness.counts` gives it."""
        time = self._drive.time
        return [] if time is None else time.lateness.counts()

    def _report(self) -> Played:
        drive = self._drive
        time = drive.time
        wall_ns = 0 if time is None else time.wall_ns()
        return Played(
            complete=not drive.stopped,
            epochs=drive.epoch.number + 1,
            alerts=drive.published,
            caught_up=drive.caught_up,
            speed=drive.speed,
            speed_achieved=None if time is None else time.speed_achieved(),
            planned_wall_s=drive.planned_wall_s(),
            wall_s=None if time is None else wall_ns / 1e9,
            paused_wall_s=0.0 if time is None else (wall_ns - time.running_ns) / 1e9,
            sink_wall_s=0.0 if time is None else time.sink_ns / 1e9,
            lateness=Lateness() if time is None else time.lateness,
            cleared=Lateness() if time is None else time.cleared,
            late=0 if time is None else time.late,
            early=0 if time is None else time.early,
            slipped_wall_s=0.0 if time is None else time.slipped_ns / 1e9,
            stalls=0 if time is None else time.stalls,
            jumps=tuple(drive.jumps),
        )
