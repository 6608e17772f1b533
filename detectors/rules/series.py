"""Samples: many series on one grid of times, looked up by windows for many steps at once."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import numpy as np

from detectors.rules.errors import Unsupported
from detectors.rules.labels import NAME, Labels, Matcher, show

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

__all__ = ["STALE", "Block", "Storage", "Vector", "Windows", "is_stale"]

_STALE_BITS = np.uint64(0x7FF0000000000002)
STALE: float = np.array([_STALE_BITS]).view(np.float64)[0]
"""The value that ends a series at once; a NaN that no arithmetic makes."""

Times = "NDArray[np.int64]"


def is_stale(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which values are staleness markers."""
    bits = np.ascontiguousarray(values).view(np.uint64)
    return np.equal(bits, _STALE_BITS)


@dataclass(slots=True)
class Vector:
    """An instant vector at each of k steps.

    Attributes:
        labels: n label sets.
        values: float64[n, k].
        present: bool[n, k]; a series is absent where this is false, whatever its value.
        drop: bool[n] or None: names to be dropped when the query is done.
    """

    labels: list[Labels]
    values: NDArray[np.float64]
    present: NDArray[np.bool_]
    drop: NDArray[np.bool_] | None = None

    @classmethod
    def empty(cls, steps: int) -> Self:
        """No series."""
        return cls([], np.zeros((0, steps)), np.zeros((0, steps), bool))

    def rows(self, rows: NDArray[np.int64]) -> Vector:
        """Some of its series, in the order given."""
        drop = None if self.drop is None else self.drop[rows]
        return Vector(
            [self.labels[row] for row in rows], self.values[rows], self.present[rows], drop
        )

    def only(self, present: NDArray[np.bool_]) -> Vector:
        """The same series where ``present`` holds as well; those left without a step go."""
        both = self.present & present
        rows = np.flatnonzero(both.any(axis=1))
        kept = self.rows(rows)
        kept.present = both[rows]
        return kept


@dataclass(slots=True)
class Block:
    """Series that share one ascending grid of times, some with gaps.

    Attributes:
        labels: n label sets.
        grid: int64[m] milliseconds.
        times: int64[s] milliseconds of all samples, series after series.
        values: float64[s].
        index: int64[n, m + 1]; of series i, the sample at or after ``grid[j]`` has the number
            ``index[i, j]``, and ``index[i, m]`` is one past its last.
        drop: bool[n] or None: see :class:`Vector`.
    """

    labels: list[Labels]
    grid: NDArray[np.int64]
    times: NDArray[np.int64]
    values: NDArray[np.float64]
    index: NDArray[np.int64]
    drop: NDArray[np.bool_] | None = None
    _live: Block | None = field(default=None, repr=False)
    _falls: NDArray[np.int64] | None = field(default=None, repr=False)

    @classmethod
    def dense(
        cls,
        labels: list[Labels],
        grid: NDArray[np.int64],
        values: NDArray[np.float64],
        present: NDArray[np.bool_],
    ) -> Self:
        """Build from a matrix, float64[n, m], and where it holds samples."""
        rows, columns = present.shape
        index = np.zeros((rows, columns + 1), np.int64)
        np.cumsum(present, axis=1, out=index[:, 1:])
        if rows:
            totals = index[:, -1].copy()
            index += (np.cumsum(totals) - totals)[:, None]
        times = np.broadcast_to(grid, (rows, columns))[present]
        return cls(labels, grid, times, values[present], index)

    def rows(self, rows: Sequence[int]) -> Block:
        """Some of the series; the samples are shared."""
        if len(rows) == len(self.labels):
            return self
        labels = [self.labels[row] for row in rows]
        falls = self.falls  # found once for all
        block = Block(labels, self.grid, self.times, self.values, self.index[list(rows)])
        block._falls = falls
        return block

    @property
    def falls(self) -> NDArray[np.int64]:
        """Numbers of the samples that are less than the one before them in their series."""
        if self._falls is None:
            falling = np.flatnonzero(self.values[1:] < self.values[:-1]) + 1
            first = self.index[:, 0][self.index[:, 0] < self.index[:, -1]]
            self._falls = np.setdiff1d(falling, first, assume_unique=True)
        return self._falls

    @property
    def live(self) -> Block:
        """Without staleness markers, as ranges see it."""
        if self._live is None:
            stale = is_stale(self.values)
            if stale.any():
                before = np.concatenate([[0], np.cumsum(stale)])
                index = self.index - before[self.index]
                self._live = Block(
                    self.labels, self.grid, self.times[~stale], self.values[~stale], index
                )
            else:
                self._live = self
        return self._live

    def before(self, at: NDArray[np.int64], *, inclusive: bool) -> NDArray[np.int64]:
        """For every series and time, the number of the first sample after it: int64[n, k].

        Args:
            at: int64[k] milliseconds.
            inclusive: Whether a sample at that very time counts as before.
        """
        positions = np.searchsorted(self.grid, at, side="right" if inclusive else "left")
        return self.index[:, positions]


@dataclass(slots=True)
class Windows:
    """A range of samples for every series and step.

    Attributes:
        block: Where the samples are.
        lo: int64[n, k]: the number of the first one.
        hi: int64[n, k]: one past the last one.
        start: int64[k] milliseconds: where the range begins.
        end: int64[k] milliseconds: where it ends.
        at: int64[k] milliseconds: the step itself.
    """

    block: Block
    lo: NDArray[np.int64]
    hi: NDArray[np.int64]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    at: NDArray[np.int64]

    @classmethod
    def over(
        cls,
        block: Block,
        at: NDArray[np.int64],
        end: NDArray[np.int64],
        length: int,
        *,
        left_open: bool,
    ) -> Self:
        """The windows of ``length`` milliseconds that end at ``end``."""
        start = end - length
        lo = block.before(start, inclusive=left_open)
        hi = block.before(end, inclusive=True)
        return cls(block, lo, hi, start, end, at)

    @property
    def count(self) -> NDArray[np.int64]:
        """Samples in each: int64[n, k]."""
        return self.hi - self.lo


class Storage:
    """Series by label set.

    Attributes:
        refused: Series that cannot be evaluated, and why not.
        version: Counts changes.

    Examples:
        >>> storage = Storage()
        >>> storage.append((("__name__", "x"),), [0, 60_000], [1.0, 2.0])
        >>> [block.values.tolist() for block in storage.select((Matcher("__name__", "=", "x"),))]
        [[1.0, 2.0]]

    """

    def __init__(self) -> None:
        self._loose: dict[Labels, tuple[list[int], list[float]]] = {}
        self._blocks: list[Block] = []
        self._built: list[Block] | None = None
        self._found: dict[tuple[Matcher, ...], list[Block]] = {}
        self.refused: dict[Labels, str] = {}
        self.version = 0

    def append(self, labels: Labels, times: Iterable[int], values: Iterable[float]) -> None:
        """Add samples, later than those the series has, in milliseconds."""
        known_times, known_values = self._loose.setdefault(labels, ([], []))
        known_times.extend(times)
        known_values.extend(values)
        self._changed()

    def add(self, block: Block) -> None:
        """Add a block of series that are not here yet."""
        self._blocks.append(block)
        self._changed()

    def replace(self, block: Block, oldest: int) -> None:
        """Put one block in the place of all others, and let samples before ``oldest`` go."""
        self._blocks = [block]
        for labels, (times, values) in list(self._loose.items()):
            if times[-1] < oldest:
                del self._loose[labels]
            elif len(times) > 64 and times[len(times) // 2] < oldest:
                begin = bisect_left(times, oldest)
                del times[:begin], values[:begin]
        self._changed()

    def _changed(self) -> None:
        self._built = None
        self._found.clear()
        self.version += 1

    def select(self, matchers: tuple[Matcher, ...]) -> list[Block]:
        """The series that satisfy all matchers.

        Raises:
            Unsupported: One of them is refused.
        """
        if matchers not in self._found:
            for labels, reason in self.refused.items():
                if _all_match(matchers, dict(labels)):
                    raise Unsupported(show(labels), reason)
            found = []
            for block in self._all():
                rows = _matching_rows(block.labels, matchers)
                if rows:
                    found.append(block.rows(rows))
            self._found[matchers] = found
        return self._found[matchers]

    def _all(self) -> list[Block]:
        if self._built is None:
            self._built = list(self._blocks)
            if self._loose:
                self._built.append(_gather(self._loose))
        return self._built


def _gather(loose: dict[Labels, tuple[list[int], list[float]]]) -> Block:
    """Bring loose series onto one grid, in the order in which they came."""
    grid = np.unique(np.concatenate([np.array(times, np.int64) for times, _ in loose.values()]))
    values = np.zeros((len(loose), len(grid)))
    present = np.zeros(values.shape, bool)
    for row, (times, samples) in enumerate(loose.values()):
        columns = np.searchsorted(grid, np.array(times, np.int64))
        values[row, columns] = np.array(samples, np.float64)
        present[row, columns] = True
    return Block.dense(list(loose), grid, values, present)


def _all_match(matchers: tuple[Matcher, ...], pairs: dict[str, str]) -> bool:
    return all(matcher.matches(pairs.get(matcher.name, "")) for matcher in matchers)


def _matching_rows(series: list[Labels], matchers: tuple[Matcher, ...]) -> list[int]:
    """Numbers of the series that satisfy all matchers; each value is tried once."""
    rows = list(range(len(series)))
    for matcher in sorted(matchers, key=lambda one: one.name != NAME):
        seen: dict[str, bool] = {}
        kept = []
        for row in rows:
            value = ""
            for name, text in series[row]:
                if name == matcher.name:
                    value = text
                    break
            if value not in seen:
                seen[value] = matcher.matches(value)
            if seen[value]:
                kept.append(row)
        rows = kept
    return rows
