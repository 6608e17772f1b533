"""Random draws that are the same on every machine.

numpy promises the raw stream of a bit generator for ever, but not what ``Generator`` makes of it;
C libraries disagree on the last bit of ``log`` and ``exp``. So everything here rests on the raw
stream and on ``+ - * / sqrt``, which IEEE 754 defines to the bit.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from itertools import pairwise
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

__all__ = ["Draws", "Table", "exp", "log", "stratum"]

T = TypeVar("T")
LN2 = 0.6931471805599453
POOL = 512  # uniforms fetched at once: most jobs need a few thousand


def log(x: float) -> float:
    """Natural logarithm of a positive number, to the same bit everywhere.

    Examples:
        >>> abs(log(10.0) - 2.302585092994046) < 1e-15
        True

    """
    mantissa, exponent = math.frexp(x)
    if mantissa < 0.7071067811865476:
        mantissa, exponent = mantissa * 2.0, exponent - 1
    z = (mantissa - 1.0) / (mantissa + 1.0)  # ln m = 2 atanh z, |z| < 0.172
    square, total = z * z, 0.0
    for odd in range(21, 0, -2):
        total = total * square + 1.0 / odd
    return exponent * LN2 + 2.0 * z * total


def exp(x: float) -> float:
    """Exponential of a moderate number, to the same bit everywhere.

    Examples:
        >>> abs(exp(1.0) - 2.718281828459045) < 1e-14
        True

    """
    power = math.floor(x / LN2 + 0.5)
    rest, total = x - power * LN2, 1.0
    for term in range(16, 0, -1):
        total = total * rest / term + 1.0
    return math.ldexp(total, power)


class Table(Generic[T]):
    """Things to choose from, by weight.

    Args:
        weights: Thing → weight; weights are zero or more and need not add up to one.
    """

    __slots__ = ("_edges", "items")

    def __init__(self, weights: Mapping[T, float]) -> None:
        self.items: tuple[T, ...] = tuple(weights)
        total, edges = 0.0, []
        for weight in weights.values():
            total += weight
            edges.append(total)
        self._edges = [edge / total for edge in edges]

    @property
    def shares(self) -> tuple[tuple[T, float], ...]:
        """Things with their probabilities."""
        edges = (0.0, *self._edges)
        return tuple(
            (item, high - low)
            for item, (low, high) in zip(self.items, pairwise(edges), strict=True)
        )

    def at(self, unit: float) -> T:
        """The thing that a number in [0, 1) falls on."""
        return self.items[min(bisect_right(self._edges, unit), len(self.items) - 1)]


class Draws:
    """One stream of draws, named by numbers: equal names give equal streams.

    Args:
        seed: The trace's seed.
        name: What the stream is for, for instance (job number, concern).

    Examples:
        >>> Draws(7, 0).whole(1, 6) == Draws(7, 0).whole(1, 6)
        True

    """

    __slots__ = ("_bits", "_pool")

    def __init__(self, seed: int, *name: int) -> None:
        self._bits = np.random.PCG64(np.random.SeedSequence(seed, spawn_key=name))
        self._pool: list[float] = []

    def units(self, n: int) -> NDArray[np.float64]:
        """Take ``n`` uniform numbers in [0, 1)."""
        raw: NDArray[np.uint64] = self._bits.random_raw(n)
        return (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def words(self, n: int) -> list[int]:
        """Take ``n`` random 16-bit numbers."""
        raw: NDArray[np.uint64] = self._bits.random_raw(-(-n // 4))
        return [word >> shift & 0xFFFF for word in raw.tolist() for shift in (0, 16, 32, 48)][:n]

    def unit(self) -> float:
        """Take a uniform number in [0, 1)."""
        if not self._pool:
            self._pool = self.units(POOL).tolist()
        return self._pool.pop()

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self.unit() < probability

    def whole(self, low: int, high: int) -> int:
        """Take a whole number from ``low`` to ``high``, both included."""
        return low + int(self.unit() * (high - low + 1))

    def choose(self, items: Sequence[T]) -> T:
        """Take one of these, all equally likely."""
        return items[int(self.unit() * len(items))]

    def sample(self, items: Sequence[T], n: int) -> list[T]:
        """Take ``n`` different ones of these (all, if there are fewer), in random order."""
        pool = list(items)
        for i in range(min(n, len(pool))):
            j = self.whole(i, len(pool) - 1)
            pool[i], pool[j] = pool[j], pool[i]
        return pool[:n]

    def exponential(self, mean: float) -> float:
        """Take a waiting time of a process without memory."""
        return -mean * log(1.0 - self.unit())

    def poisson(self, mean: float) -> int:
        """Take the number of arrivals that fit in ``mean`` waiting times of one."""
        count, spent = 0, self.exponential(1.0)
        while spent < mean:
            count, spent = count + 1, spent + self.exponential(1.0)
        return count

    def geometric(self, mean: float) -> int:
        """Take a number of tries, 1 or more, with this mean."""
        return 1 if mean <= 1.0 else 1 + int(log(1.0 - self.unit()) / log(1.0 - 1.0 / mean))

    def pareto(self, alpha: float) -> float:
        """Take a Pareto number: 1 or more, with tail exponent ``alpha``."""
        return exp(-log(1.0 - self.unit()) / alpha)

    def lognormal(self, median: float, sigma: float) -> float:
        """Take a number whose logarithm is normal (Marsaglia's polar method)."""
        while True:
            x, y = 2.0 * self.unit() - 1.0, 2.0 * self.unit() - 1.0
            square = x * x + y * y
            if 0.0 < square < 1.0:
                return median * exp(sigma * x * math.sqrt(-2.0 * log(square) / square))

    def ranked(self, rank: int, of: int) -> float:
        """Take the ``rank``-th smallest of ``of`` uniforms: Beta(rank, of - rank + 1)."""
        return sorted(self.unit() for _ in range(of))[rank - 1]


def stratum(seed: int, number: int, *name: int, block: int = 50) -> float:
    """A uniform number in [0, 1) for the ``number``-th of many, spread evenly over each block.

    Every run of ``block`` numbers has one in each 1/``block``, so that shares come out as asked
    for, and yet number ``i`` does not depend on how many there are.

    Examples:
        >>> sorted(int(stratum(7, i, block=5) * 5) for i in range(5, 10))
        [0, 1, 2, 3, 4]

    """
    draws = Draws(seed, *name, number // block)
    slots = draws.sample(range(block), block)
    return (slots[number % block] + Draws(seed, *name, number // block, number).unit()) / block
