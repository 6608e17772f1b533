"""How a replay went, and how it is going."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from replay.engine.options import Speed

__all__ = ["Jump", "Lateness", "Played", "PlayerState", "Status"]

Status = Literal["ready", "playing", "paused", "stepping", "ended"]
"""What a player is doing."""


class Lateness:
    """Counts how late things were, in eight buckets to each doubling.

    Examples:
        >>> late = Lateness()
        >>> for wall_ns in (1000, 1000, 2_000_000):
        ...     late.add(wall_ns)
        >>> late.count, late.max_s, f"{late.quantile(0.5):.1e}"
        (3, 0.002, '9.9e-07')

    """

    def __init__(self) -> None:
        self.count = 0
        self.max_ns = 0
        self._buckets: dict[int, int] = {}

    def add(self, wall_ns: int, weight: int = 1) -> None:
        """Count one."""
        self.count += weight
        self.max_ns = max(self.max_ns, wall_ns)
        shift = max(0, wall_ns.bit_length() - 4)
        bucket = (wall_ns >> shift) << shift
        self._buckets[bucket] = self._buckets.get(bucket, 0) + weight

    @property
    def max_s(self) -> float:
        """The longest, in wall seconds."""
        return self.max_ns / 1e9

    def counts(self) -> list[tuple[float, int]]:
        """Wall seconds, to 6 %, and how often; ascending. For any thread, at any time."""
        return [
            ((bucket + (1 << max(0, bucket.bit_length() - 4)) / 2) / 1e9, number)
            for bucket, number in sorted(self._buckets.copy().items())
        ]

    def quantile(self, share: float) -> float | None:
        """Wall seconds that this share was not later than, to 6 %; None when nothing counted."""
        rest = share * self.count
        for bucket, number in sorted(self._buckets.items()):
            rest -= number
            if rest <= 0:
                width = 1 << max(0, bucket.bit_length() - 4)
                return min(bucket + width / 2, self.max_ns) / 1e9
        return None


@dataclass(frozen=True, slots=True)
class Jump:
    """Replay time that was not played through.

    Attributes:
        before_s: Replay seconds before the jump.
        after_s: Replay seconds after it.
        epoch: The epoch after it.
        why: What caused it.
    """

    before_s: float
    after_s: float
    epoch: int
    why: Literal["seek", "loop", "gap"]


@dataclass(frozen=True, slots=True)
class PlayerState:
    """A moment of a replay, for those who look on.

    Attributes:
        status: What the player is doing.
        position_s: Replay seconds now.
        begin_s: Where the replay begins.
        end_s: Where it ends.
        progress: From 0 to 1, by time; by alerts where it takes no time.
        alerts: Alerts behind the position.
        alerts_total: All alerts.
        published: Alerts published so far, in all epochs.
        speed: Speed asked for.
        speed_achieved: Speed achieved while playing; None where no clock is read.
        lag_wall_s: How late the newest slice was.
        late: Publications later than the threshold.
        early: Publications that were early. Always 0.
        epoch: The epoch.
        jumps: How many jumps there have been.
        sink_wall_s: Wall seconds spent inside the sink so far.
    """

    status: Status
    position_s: float
    begin_s: float
    end_s: float
    progress: float
    alerts: int
    alerts_total: int
    published: int
    speed: Speed
    speed_achieved: float | None
    lag_wall_s: float
    late: int
    early: int
    epoch: int
    jumps: int
    sink_wall_s: float


@dataclass(frozen=True, slots=True)
class Played:
    """How a replay went.

    Attributes:
        complete: True when it was not stopped early.
        epochs: How many epochs there were.
        alerts: Alerts published, in all epochs.
        caught_up: Those of them published unpaced by a seek.
        speed: Speed asked for at the end.
        speed_achieved: Replay seconds played per wall second, pauses apart; None in virtual time.
        planned_wall_s: What the plan said; None in virtual time.
        wall_s: What it took, with pauses; None in virtual time.
        paused_wall_s: Pauses in it.
        sink_wall_s: Wall seconds spent inside the sink.
        lateness: How late publications of alerts were when they left.
        cleared: How late they were when the sink had taken all of them.
        late: How many were later than the threshold.
        early: How many were early. Always 0.
        slipped_wall_s: How much replay time stood still for being late.
        stalls: How often the machine or the process had been suspended.
        jumps: Replay time that was not played through.
    """

    complete: bool
    epochs: int
    alerts: int
    caught_up: int
    speed: Speed
    speed_achieved: float | None
    planned_wall_s: float | None
    wall_s: float | None
    paused_wall_s: float
    sink_wall_s: float
    lateness: Lateness = field(repr=False)
    cleared: Lateness = field(repr=False)
    late: int
    early: int
    slipped_wall_s: float
    stalls: int
    jumps: tuple[Jump, ...]
