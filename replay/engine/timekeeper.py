"""Keeps a paced replay to its time, and keeps the books on how well that went."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replay.clock import Clock, Pacer
from replay.engine.options import nanoseconds
from replay.engine.report import Lateness
from replay.errors import ReplayError

if TYPE_CHECKING:
    from collections.abc import Callable

    from replay.clock import Segment, Wall
    from replay.engine.options import Playback

__all__ = ["Timekeeper"]


class Timekeeper:
    """The clock of a paced replay, the waiting on it, and the books.

    Args:
        wall: Wall time.
        playback: How to play; its policies for being late.
        replay_ns: Where replay time stands; it does not run yet.
        speed: Replay time per wall time.

    Attributes:
        clock: Replay time.
        horizon_ns: What is waited for; replay time has not really come further than this.
        lateness: How late publications of alerts were when they left.
        cleared: How late they were when the sink had taken all of them.
        running_ns: Wall nanoseconds in which replay time ran.
        travelled_ns: Replay nanoseconds played through meanwhile.
        sink_ns: Wall nanoseconds spent publishing.
    """

    def __init__(self, wall: Wall, playback: Playback, replay_ns: int, speed: float) -> None:
        self._wall = wall
        self.clock = Clock(wall, replay_ns, speed, paused=True)
        self.pacer = Pacer(wall, playback.pacing)
        self._began_ns = self.clock.segment.wall_ns
        self._when_late = playback.when_late
        self._late_ns = nanoseconds(playback.late_wall_s)
        self._tolerance_ns = nanoseconds(playback.tolerance_wall_s)
        self._stall_ns = nanoseconds(playback.stall_wall_s)
        self._unix_offset_ns = 0
        self.check_suspension(first=True)
        self._due_ns = self._planned_ns = self._began_ns
        self._stood_ns = replay_ns
        self.horizon_ns = replay_ns
        self.lateness = Lateness()
        self.cleared = Lateness()
        self.lag_ns = 0
        self.late = self.early = self.stalls = 0
        self.running_ns = self.travelled_ns = self.sink_ns = self.slipped_ns = 0

    def wall_ns(self) -> int:
        """Wall nanoseconds since it began."""
        return self._wall.monotonic_ns() - self._began_ns

    def position_ns(self) -> int:
        """How far the replay has come."""
        return min(self.clock.now_ns(), self.horizon_ns)

    def pause(self) -> None:
        """Let replay time stand still."""
        if not self.clock.paused:
            self._account(self.clock.pause())

    def resume(self) -> None:
        """Let it run, from where it stands."""
        if self.clock.paused:
            self.clock.resume()

    def set_speed(self, speed: float) -> None:
        """Run at another speed from now on."""
        self._account(self.clock.set_speed(speed))

    def jump(self, replay_ns: int) -> None:
        """Be somewhere else, now."""
        self._account(self.clock.jump(replay_ns))
        self._stood_ns = self.horizon_ns = replay_ns

    def _account(self, ended: Segment) -> None:
        """Book a stretch that has ended."""
        now = self.clock.segment.wall_ns
        if not ended.paused:
            here = min(ended.at(now), self.horizon_ns)
            self.running_ns += now - ended.wall_ns
            self.travelled_ns += here - self._stood_ns
            self._stood_ns = here

    def speed_achieved(self) -> float | None:
        """Replay time played through per wall time in which it ran; None before it has run."""
        now = self._wall.monotonic_ns()
        running, travelled, segment = self.running_ns, self.travelled_ns, self.clock.segment
        if not segment.paused:
            running += now - segment.wall_ns
            travelled += min(segment.at(now), self.horizon_ns) - self._stood_ns
        return travelled / running if running > 0 else None

    def wait(self, replay_ns: int, prepare: Callable[[], object]) -> bool:
        """Wait until replay time has come that far. False when woken before.

        Raises:
            ReplayError: It is later than ``fail`` tolerates.
        """
        self.horizon_ns = replay_ns
        pacer = self.pacer
        due = self._due_ns = self._planned_ns = self.clock.due_ns(replay_ns)
        if not pacer.wait(due, prepare):
            return False
        if pacer.overslept_ns > self._stall_ns:
            pacer.overslept_ns = 0
            self.stalls += 1
            self._slip(replay_ns)
            self._planned_ns = self._due_ns
        elif pacer.now_ns - due > self._late_ns:
            self._follow_policy(replay_ns, pacer.now_ns - due)
        return True

    def _follow_policy(self, replay_ns: int, late_ns: int) -> None:
        if self._when_late == "slip":
            self._slip(replay_ns)
        if self._when_late == "fail" and late_ns > self._tolerance_ns:
            raise ReplayError(
                f"The replay fell {late_ns / 1e9:.3f} s behind at replay second"
                f" {replay_ns / 1e9:.3f}; {self._tolerance_ns / 1e9:g} s are tolerated.",
                "a lower --speed, or --when-late catch-up",
            )

    def stamps(self) -> tuple[float, float]:
        """When what leaves now was due, and when it leaves, in Unix seconds."""
        offset = self._unix_offset_ns
        return (self._due_ns + offset) / 1e9, (self.pacer.now_ns + offset) / 1e9

    def left(self, alerts: int, *, paced: bool) -> None:
        """Called just after messages have left; keeps the books.

        Args:
            alerts: How many alerts were among them.
            paced: Whether they had been waited for.
        """
        before = self.pacer.now_ns
        now = self.pacer.read()
        self.sink_ns += now - before
        if alerts and paced:
            late = self.lag_ns = before - self._planned_ns
            self.lateness.add(late)
            self.late += late > self._late_ns
            self.early += late < 0
            self.cleared.add(now - self._planned_ns)

    def unpaced(self) -> tuple[float, float]:
        """When something leaves that was due just when it could leave."""
        now = (self.pacer.read() + self._unix_offset_ns) / 1e9
        return now, now

    def check_suspension(self, *, first: bool = False) -> None:
        """Compare with the calendar: a suspended machine's monotonic clock may stand still."""
        offset = self._wall.unix_ns() - self._wall.monotonic_ns()
        if first or abs(offset - self._unix_offset_ns) > self._stall_ns:
            self.stalls = 0 if first else self.stalls + 1
            self._unix_offset_ns = offset

    def _slip(self, replay_ns: int) -> None:
        """Let it be this time now: replay time has stood still since."""
        ended = self.clock.slip(replay_ns)
        self._due_ns = self.clock.segment.wall_ns
        self.slipped_ns += self._due_ns - ended.due(replay_ns)
        self._account(ended)
