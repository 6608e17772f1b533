"""Where many jobs stand on one axis: a schedule is nothing but a zero for each job."""

from __future__ import annotations

import heapq
import math
import random
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self

from replay.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Schedule", "Span", "seconds"]

_UNITS = {"ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9, "d": 86400 * 10**9}
_FORMS = "together, sequence[:GAP], stagger[:EVERY], stagger:random:WITHIN, pool:K"
_MINUTE = _UNITS["m"]


def seconds(text: str | float) -> float:
    """Read a duration: a number of seconds, or a number with a unit.

    Raises:
        UsageError: It is neither, or not finite.

    Examples:
        >>> seconds("90"), seconds("1.5m"), seconds("250ms"), seconds(3)
        (90.0, 90.0, 0.25, 3.0)

    """
    return _nanoseconds(text) / 1e9


def _nanoseconds(text: str | float) -> int:
    match = re.fullmatch(r"\s*(.*?)\s*(ms|s|m|h|d)?\s*", str(text))
    try:
        number = float(match[1]) if match else math.nan
    except ValueError:
        number = math.nan
    if match is None or not math.isfinite(number):
        raise UsageError(f"{text!r} is not a duration.", "90, 90s, 1.5m, 2h or 250ms")
    return round(number * _UNITS[match[2] or "s"])


@dataclass(frozen=True, slots=True)
class Span:
    """How far a job reaches around its own zero, in nanoseconds.

    Attributes:
        lead: From zero to its earliest alert; zero or negative.
        tail: From zero to its end or its last alert; zero or positive.
    """

    lead: int
    tail: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """How jobs are laid out: all at once, one after the other, one every so often, K at a time.

    Attributes:
        form: ``together`` puts every zero at 0; ``sequence`` starts a job when the one before
            has ended; ``stagger`` starts one every so often; ``pool`` keeps K running.
        gap_ns: Silence between jobs in a sequence; time between zeros when staggered; the
            length of the interval that zeros are drawn from when staggered at random.
        at_random: Draw staggered zeros, seeded.
        workers: K of a pool.

    Examples:
        >>> spans = [Span(-5, 10), Span(0, 10), Span(-1, 10)]
        >>> Schedule("sequence", gap_ns=2).zeros(spans)
        [0, 12, 25]
        >>> Schedule.parse("pool:2").zeros(spans)
        [0, 0, 11]

    """

    form: Literal["together", "sequence", "stagger", "pool"] = "together"
    gap_ns: int = 0
    at_random: bool = False
    workers: int = 1

    def __post_init__(self) -> None:
        if self.gap_ns < 0:
            raise UsageError(f"schedule {self.form}: a gap of {self.gap_ns / 1e9} s is negative.")
        if self.workers < 1:
            raise UsageError(f"schedule pool:{self.workers}: a pool needs at least one worker.")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a schedule from its words.

        Raises:
            UsageError: It is none of the known forms.

        Examples:
            >>> Schedule.parse("sequence:30s").gap_ns
            30000000000
            >>> Schedule.parse("stagger:random:1h").at_random
            True

        """
        match text.strip().split(":"):
            case ["together"]:
                return cls()
            case ["sequence", *rest] if len(rest) < 2:
                return cls("sequence", _nanoseconds(rest[0]) if rest else 0)
            case ["stagger", "random", within]:
                return cls("stagger", _nanoseconds(within), at_random=True)
            case ["stagger", *rest] if len(rest) < 2:
                return cls("stagger", _nanoseconds(rest[0]) if rest else _MINUTE)
            case ["pool", workers] if workers.isdecimal():
                return cls("pool", workers=int(workers))
        raise UsageError(f"There is no schedule {text!r}.", f"one of: {_FORMS}")

    def zeros(self, spans: Sequence[Span], seed: int = 0) -> list[int]:
        """Where each job's own zero stands, in nanoseconds of replay time.

        Args:
            spans: How far each job reaches, in the order the jobs are played.
            seed: Of the random starts.
        """
        if self.form == "sequence":
            return self._pooled(spans, 1)
        if self.form == "pool":
            return self._pooled(spans, self.workers)
        if self.form == "stagger" and self.at_random:
            draws = random.Random(seed)  # noqa: S311 - a seeded draw, not a secret
            return [int(draws.random() * self.gap_ns) for _ in spans]
        return [number * self.gap_ns for number, _ in enumerate(spans)]

    def _pooled(self, spans: Sequence[Span], workers: int) -> list[int]:
        """Give each job to the worker that is free first; every worker's first zero is 0."""
        zeros: list[int] = []
        free: list[int] = []
        for span in spans:
            begin = span.lead if len(free) < workers else heapq.heappop(free) + self.gap_ns
            zeros.append(begin - span.lead)
            heapq.heappush(free, zeros[-1] + span.tail)
        return zeros
