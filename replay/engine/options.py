"""What a replay is asked to do, as one frozen value."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from replay.clock import ratio

__all__ = ["MAX", "Playback", "Speed", "nanoseconds"]

Speed = float | Literal["max"]
"""Trace seconds per wall second, or :data:`MAX`."""

MAX: Literal["max"] = "max"
"""The speed of virtual time: nothing is waited for and no clock is read."""


def nanoseconds(seconds: float) -> int:
    """Seconds as whole nanoseconds."""
    return round(seconds * 1e9)


@dataclass(frozen=True, slots=True)
class Playback:
    """How to play a timeline. Times are replay seconds unless they say wall.

    Attributes:
        speed: Trace seconds per wall second, or ``"max"``.
        start_paused: Wait to be resumed before the first message that is not a warm-up.
        start_s: Where to begin; None is the beginning of the first job.
        warm_up: Publish what lies before ``start_s`` at once, marked, so that detectors know it.
        end_s: Where to end, inclusive; None is the end of the last job.
        duration_s: How long to play; None is to the end.
        loops: How often to play; None is for ever.
        delay_wall_s: Wall seconds to wait before each loop.
        max_gap_s: A longer silence is cut down to this; None cuts nothing.
        when_late: What to do about being late: ``catch-up`` keeps to the schedule and publishes
            at once; ``slip`` lets replay time stand still meanwhile; ``fail`` gives up.
        late_wall_s: From when on a slice is counted as late, and slips.
        tolerance_wall_s: From when on ``fail`` fails.
        stall_wall_s: A sleep that ends later than this was a suspended machine or process;
            replay time stood still meanwhile.
        pacing: How to wait: ``sleep``, ``spin``, or ``hybrid``.
        tick_wall_s: Wall seconds between watermarks.
        switch_interval_s: The interpreter's thread switch interval while paced; None leaves it.
    """

    speed: Speed = MAX
    start_paused: bool = False
    start_s: float | None = None
    warm_up: bool = False
    end_s: float | None = None
    duration_s: float | None = None
    loops: int | None = 1
    delay_wall_s: float = 0.0
    max_gap_s: float | None = 86400.0
    when_late: Literal["catch-up", "slip", "fail"] = "catch-up"
    late_wall_s: float = 0.001
    tolerance_wall_s: float = 1.0
    stall_wall_s: float = 10.0
    pacing: Literal["sleep", "hybrid", "spin"] = "hybrid"
    tick_wall_s: float = 0.1
    switch_interval_s: float | None = 0.0001

    def __post_init__(self) -> None:
        if self.speed != MAX:
            ratio(self.speed)
        if self.when_late not in {"catch-up", "slip", "fail"}:
            raise ValueError(f"when_late {self.when_late!r} is none of catch-up, slip, fail")
        if self.pacing not in {"sleep", "hybrid", "spin"}:
            raise ValueError(f"pacing {self.pacing!r} is none of sleep, hybrid, spin")
        if self.loops is not None and self.loops < 1:
            raise ValueError(f"loops {self.loops!r} is less than 1")
        if self.end_s is not None and self.duration_s is not None:
            raise ValueError("end_s and duration_s both say where to end")
        for name in ("start_s", "end_s"):
            self._check(name, -math.inf)
        for name in ("duration_s", "delay_wall_s", "max_gap_s", "late_wall_s"):
            self._check(name, 0)
        for name in ("tolerance_wall_s", "stall_wall_s", "tick_wall_s", "switch_interval_s"):
            self._check(name, 0)
        if self.tick_wall_s == 0:
            raise ValueError("tick_wall_s is 0")

    def _check(self, name: str, least: float) -> None:
        value = getattr(self, name)
        if value is not None and not (math.isfinite(value) and value >= least):
            raise ValueError(f"{name} {value!r} is not a finite number of at least {least}")
