"""What can be said about a replay before it begins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from replay.timeline.tape import Timeline

__all__ = ["Facts", "Plan"]


@dataclass(frozen=True, slots=True)
class Facts:
    """What the rows were like when the timeline was built.

    Attributes:
        left_out: Alerts that the filters, or ``outside="drop"``, took away.
        unsorted: Alerts earlier than the row before them in the same job.
        before_start: Alerts before their job's start.
        after_end: Alerts after their job's end.
        tied: Alerts that share their instant with another alert of their job.
        largest_instant: Most alerts of all jobs at one instant.
        longest_gap_s: Longest silence, in replay seconds.
        longest_gap_at_s: Where it begins.
    """

    left_out: int = 0
    unsorted: int = 0
    before_start: int = 0
    after_end: int = 0
    tied: int = 0
    largest_instant: int = 0
    longest_gap_s: float = 0.0
    longest_gap_at_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What a replay at one speed will take.

    Attributes:
        speed: Trace seconds per wall second.
        wall_s: Planned wall seconds.
        peak_per_wall_s: Most alerts in any wall second.
        jumps: Silences that will be cut short.
        skipped_s: Trace seconds cut out of them.
    """

    speed: float
    wall_s: float
    peak_per_wall_s: int
    jumps: int = 0
    skipped_s: float = 0.0

    @classmethod
    def of(cls, timeline: Timeline, speed: float, max_gap_s: float | None = None) -> Plan:
        """Plan the whole of a timeline.

        Raises:
            ValueError: The speed is not a positive finite number.
        """
        if not 0 < speed < float("inf"):
            raise ValueError(f"speed {speed!r} is not a positive finite number")
        gaps = np.diff(timeline.landmarks_ns)
        cut = np.zeros(0, np.int64)
        if max_gap_s is not None:
            limit = round(max_gap_s * 1e9)
            cut = gaps[gaps > limit] - limit
        skipped = int(cut.sum())
        length = timeline.end_ns - timeline.begin_ns
        return cls(
            speed=speed,
            wall_s=(length - skipped) / 1e9 / speed,
            peak_per_wall_s=_peak(timeline, round(speed * 1e9)),
            jumps=len(cut),
            skipped_s=skipped / 1e9,
        )


def _peak(timeline: Timeline, window_ns: int) -> int:
    """Most alerts in any half-open window of this length."""
    times = timeline.instant_ns
    if not len(times):
        return 0
    counts = timeline.numbers[timeline.instant_starts]
    headroom = np.iinfo(np.int64).max - int(times[-1])
    ends = np.searchsorted(times, times + min(window_ns, headroom), side="left")
    return int((counts[ends] - counts[:-1]).max())
