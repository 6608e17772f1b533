"""Samples: many series on one grid of times, looked up by windows for many steps at once."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from detectors.rules import tables
from detectors.rules.errors import Unsupported
from detectors.rules.keys import places, starts
from detectors.rules.labels import Labels, Matcher, show

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

__all__ = ["STALE", "Block", "Rises", "Storage", "Windows", "is_stale"]

_STALE_BITS = np.uint64(0x7FF0000000000002)
STALE: float = np.array([_STALE_BITS]).view(np.float64)[0]
"""The value that ends a series at once; a NaN that no arithmetic makes."""

Times = "NDArray[np.int64]"


def is_stale(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which values are staleness markers."""
    bits = np.ascontiguousarray(values).view(np.uint64)
    return np.equal(bits, _STALE_BITS)


@dataclass(frozen=True, slots=True)
class Rises:
    """Series without gaps that never fall, by the samples at which they begin and rise.

    Attributes:
        row: int64[r], ascending; every series has one.
        column: int64[r], ascending in each row, whose first is the first sample.
        value: float64[r]: what they are from that column on.
    """

    row: NDArray[np.int64]
    column: NDArray[np.int64]
    value: NDArray[np.float64]

    @property
    def first(self) -> NDArray[np.int64]:
        """int64[n]: where each series begins, counted in rises."""
        return starts(self.row)

    def filled(self, columns: int) -> NDArray[np.float64]:
        """All samples, float64[n, m], the first ones repeated before themselves."""
        first = self.first
        begin = self.column.copy()
        begin[first] = 0
        end = np.append(begin[1:], columns)
        end[np.append(first[1:], len(begin)) - 1] = columns
        return np.repeat(self.value, end - begin).reshape(len(first), columns)

    def rows(self, rows: NDArray[np.int64]) -> Rises:
        """Some of the series, ascending."""
        row = places(rows, int(self.row[-1]) + 1)[self.row]
        kept = row >= 0
        return Rises(row[kept], self.column[kept], self.value[kept])


class Block:
    """Series that share one ascending grid of times.

    Some have gaps; those that have none, from their first sample to the end of the grid, can be
    kept as a matrix (:meth:`growing`) or by their rises (:meth:`rising`), in which things are
    much cheaper to look up.

    Attributes:
        labels: n label sets.
        grid: int64[m] milliseconds.
        drop: bool[n] or None: names to be dropped when the query is done.
        first: Of series without gaps, int64[n]: the column of the first sample; else None.
        rises: Of series that never fall, their rises; else None.
    """

    __slots__ = (
        "_bare",
        "_falling",
        "_falls",
        "_filled",
        "_flat",
        "_live",
        "_matching",
        "drop",
        "first",
        "grid",
        "labels",
        "rises",
    )

    def __init__(
        self,
        labels: Sequence[Labels],
        grid: NDArray[np.int64],
        flat: _Flat | None = None,
        filled: NDArray[np.float64] | None = None,
        first: NDArray[np.int64] | None = None,
        rises: Rises | None = None,
    ) -> None:
        self.labels = labels
        self.grid = grid
        self.first = first
        self.rises = rises
        self.drop: NDArray[np.bool_] | None = None
        self._flat = flat
        self._filled = filled
        self._live: Block | None = None
        self._falls: NDArray[np.int64] | None = None
        self._falling: bool | None = None if rises is None else False
        self._bare: tuple[Sequence[Labels], bool] | None = None
        self._matching: dict[Matcher, NDArray[np.bool_]] = {}

    @classmethod
    def dense(
        cls,
        labels: Sequence[Labels],
        grid: NDArray[np.int64],
        values: NDArray[np.float64],
        present: NDArray[np.bool_],
    ) -> Self:
        """Build from a matrix, float64[n, m], and where it holds samples."""
        return cls(labels, grid, _Flat.of(grid, values, present))

    @classmethod
    def growing(
        cls,
        labels: Sequence[Labels],
        grid: NDArray[np.int64],
        values: NDArray[np.float64],
        first: NDArray[np.int64],
    ) -> Self:
        """Build from a matrix whose series have no gap after their first sample.

        Args:
            labels: n label sets.
            grid: int64[m] milliseconds.
            values: float64[n, m]; taken over, and changed.
            first: int64[n]: the column of each series' first sample, less than m.
        """
        before = np.arange(len(grid)) < first[:, None]
        if before.any():
            start = values[np.arange(len(first)), first]
            values = np.where(before, start[:, None], values)
        return cls(labels, grid, None, values, first)

    @classmethod
    def rising(cls, labels: Sequence[Labels], grid: NDArray[np.int64], rises: Rises) -> Self:
        """Build from the rises of series that never fall."""
        return cls(labels, grid, first=rises.column[rises.first], rises=rises)

    @property
    def filled(self) -> NDArray[np.float64] | None:
        """Of series without gaps, float64[n, m], the first value repeated before it; else None."""
        if self._filled is None and self.rises is not None:
            self._filled = self.rises.filled(len(self.grid))
        return self._filled

    def _flattened(self) -> _Flat:
        if self._flat is None:
            if self.filled is None or self.first is None:
                raise TypeError("a block has no samples")
            present = np.arange(len(self.grid)) >= self.first[:, None]
            self._flat = _Flat.of(self.grid, self.filled, present)
        return self._flat

    @property
    def times(self) -> NDArray[np.int64]:
        """int64[s] milliseconds of all samples, series after series."""
        return self._flattened().times

    @property
    def values(self) -> NDArray[np.float64]:
        """float64[s]."""
        return self._flattened().values

    @property
    def index(self) -> NDArray[np.int64]:
        """int64[n, m + 1]; of series i, the sample at or after ``grid[j]`` has the number
        ``index[i, j]``, and ``index[i, m]`` is one past its last.
        """  # noqa: D205 - what it is takes two lines
        return self._flattened().index

    def rows(self, rows: NDArray[np.int64]) -> Block:
        """Some of the series, ascending; the samples are shared."""
        if len(rows) == len(self.labels):
            return self
        labels = tables.chosen(self.labels, rows)
        if self.rises is not None:
            return Block.rising(labels, self.grid, self.rises.rows(rows))
        if self._filled is not None and self.first is not None:
            block = Block(labels, self.grid, None, self._filled[rows], self.first[rows])
            block._falling = None if self.falling else False
        else:
            flat, falls = self._flattened(), self.falls  # found once for all
            block = Block(labels, self.grid, _Flat(flat.times, flat.values, flat.index[rows]))
            block._falls = falls
        if self._bare is not None and self._bare[1]:
            block._bare = tables.chosen(self._bare[0], rows), True
        return block

    @property
    def bare(self) -> tuple[Sequence[Labels], bool]:
        """The label sets without names, and whether no two are the same."""
        if self._bare is None:
            self._bare = tables.bare(self.labels)
        return self._bare

    def matching(self, matcher: Matcher) -> NDArray[np.bool_]:
        """Which series satisfy a condition: bool[n]."""
        if matcher not in self._matching:
            self._matching[matcher] = tables.matching(self.labels, matcher)
        return self._matching[matcher]

    @property
    def falling(self) -> bool:
        """Whether any series falls."""
        if self._falling is None:
            if self._filled is not None:
                self._falling = bool((self._filled[:, 1:] < self._filled[:, :-1]).any())
            else:
                self._falling = len(self.falls) > 0
        return self._falling

    @property
    def falls(self) -> NDArray[np.int64]:
        """Numbers of the samples that are less than the one before them in their series."""
        if self._falls is None:
            values, index = self.values, self.index
            falling = np.flatnonzero(values[1:] < values[:-1]) + 1
            first = index[:, 0][index[:, 0] < index[:, -1]]
            self._falls = np.setdiff1d(falling, first, assume_unique=True)
        return self._falls

    @property
    def live(self) -> Block:
        """Without staleness markers, as ranges see it."""
        if self._live is None:
            self._live = self
            if self.first is None and (stale := is_stale(self.values)).any():
                before = np.concatenate([[0], np.cumsum(stale)])
                index = self.index - before[self.index]
                flat = _Flat(self.times[~stale], self.values[~stale], index)
                self._live = Block(self.labels, self.grid, flat)
        return self._live

    def before(self, at: NDArray[np.int64], *, inclusive: bool) -> NDArray[np.int64]:
        """For every series and time, the number of the first sample after it: int64[n, k].

        Args:
            at: int64[k] milliseconds.
            inclusive: Whether a sample at that very time counts as before.
        """
        return self.index[:, self.columns(at, inclusive=inclusive)]

    def columns(self, at: NDArray[np.int64], *, inclusive: bool) -> NDArray[np.int64]:
        """For every time, the column of the first grid time after it: int64[k]."""
        return np.searchsorted(self.grid, at, side="right" if inclusive else "left")

    def newest(
        self, at: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.bool_]]:
        """The newest sample of each series at each time, its time, and whether there is one."""
        if self.filled is not None and self.first is not None:
            column = self.columns(at, inclusive=True) - 1
            shape = (len(self.labels), len(at))
            stamp = np.broadcast_to(self.grid[np.maximum(column, 0)], shape)
            return self.filled[:, np.maximum(column, 0)], stamp, self.first[:, None] <= column
        number = self.before(at, inclusive=True)
        has = number > self.index[:, :1]
        if not len(self.values):
            return np.zeros(has.shape), np.zeros(has.shape, np.int64), has
        number = np.where(has, number - 1, 0)
        return self.values[number], self.times[number], has


@dataclass(frozen=True, slots=True)
class _Flat:
    """Samples in one row; see the properties of :class:`Block`."""

    times: NDArray[np.int64]
    values: NDArray[np.float64]
    index: NDArray[np.int64]

    @classmethod
    def of(
        cls,
        grid: NDArray[np.int64],
        values: NDArray[np.float64],
        present: NDArray[np.bool_],
    ) -> Self:
        rows, columns = present.shape
        index = np.zeros((rows, columns + 1), np.int64)
        np.cumsum(present, axis=1, out=index[:, 1:])
        if rows:
            totals = index[:, -1].copy()
            index += (np.cumsum(totals) - totals)[:, None]
        times = np.broadcast_to(grid, (rows, columns))[present]
        return cls(times, values[present], index)


class Windows:
    """A range of samples for every series and step.

    Args:
        block: Where the samples are.
        at: int64[k] milliseconds: the steps.
        end: int64[k] milliseconds: where the ranges end.
        length: How long they are.
        left_open: Whether their left ends are left out.

    Attributes:
        block: Where the samples are.
        at: int64[k] milliseconds: the steps.
        start: int64[k] milliseconds: where the ranges begin.
        end: int64[k] milliseconds: where they end.
        low: int64[k]: the first column of the grid inside.
        high: int64[k]: one past the last column inside.
    """

    __slots__ = ("_hi", "_lo", "at", "block", "end", "high", "low", "start")

    def __init__(
        self,
        block: Block,
        at: NDArray[np.int64],
        end: NDArray[np.int64],
        length: int,
        *,
        left_open: bool,
    ) -> None:
        self.block = block
        self.at = at
        self.end = end
        self.start = end - length
        self.low = block.columns(self.start, inclusive=left_open)
        self.high = block.columns(end, inclusive=True)
        self._lo: NDArray[np.int64] | None = None
        self._hi: NDArray[np.int64] | None = None

    @property
    def lo(self) -> NDArray[np.int64]:
        """int64[n, k]: the number of the first sample."""
        if self._lo is None:
            self._lo = self.block.index[:, self.low]
        return self._lo

    @property
    def hi(self) -> NDArray[np.int64]:
        """int64[n, k]: one past the number of the last sample."""
        if self._hi is None:
            self._hi = self.block.index[:, self.high]
        return self._hi

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
                matching = np.ones(len(block.labels), bool)
                for matcher in matchers:
                    matching &= block.matching(matcher)
                rows = np.flatnonzero(matching)
                if len(rows):
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
