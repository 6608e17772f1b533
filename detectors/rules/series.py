"""Samples: many series on one grid of times, looked up by windows for many steps at once."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from detectors.rules.errors import Unsupported
from detectors.rules.labels import Labels, Matcher, nameless, show

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


class Block:
    """Series that share one ascending grid of times.

    Some have gaps; those that have none, from their first sample to the end of the grid, can be
    kept as a matrix (:meth:`growing`), which is much cheaper to look things up in.

    Attributes:
        labels: n label sets.
        grid: int64[m] milliseconds.
        drop: bool[n] or None: see :class:`Vector`.
        filled: Of growing series, float64[n, m], the first value repeated before it; else None.
        first: Of growing series, int64[n]: the column of the first sample; else None.
    """

    __slots__ = (
        "_bare",
        "_columns",
        "_falling",
        "_falls",
        "_flat",
        "_live",
        "drop",
        "filled",
        "first",
        "grid",
        "labels",
    )

    def __init__(
        self,
        labels: list[Labels],
        grid: NDArray[np.int64],
        flat: _Flat | None = None,
        filled: NDArray[np.float64] | None = None,
        first: NDArray[np.int64] | None = None,
    ) -> None:
        self.labels = labels
        self.grid = grid
        self.filled = filled
        self.first = first
        self.drop: NDArray[np.bool_] | None = None
        self._flat = flat
        self._live: Block | None = None
        self._falls: NDArray[np.int64] | None = None
        self._falling: bool | None = None
        self._bare: tuple[list[Labels], bool] | None = None
        self._columns: dict[str, list[str]] = {}

    @classmethod
    def dense(
        cls,
        labels: list[Labels],
        grid: NDArray[np.int64],
        values: NDArray[np.float64],
        present: NDArray[np.bool_],
    ) -> Self:
        """Build from a matrix, float64[n, m], and where it holds samples."""
        return cls(labels, grid, _Flat.of(grid, values, present))

    @classmethod
    def growing(
        cls,
        labels: list[Labels],
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
    def rising(
        cls,
        labels: list[Labels],
        grid: NDArray[np.int64],
        values: NDArray[np.float64],
        first: NDArray[np.int64],
    ) -> Self:
        """Build as :meth:`growing` does, from series that never fall and are 0 before they begin."""
        if len(grid):
            np.maximum(values, values[np.arange(len(first)), first][:, None], out=values)
        block = cls(labels, grid, None, values, first)
        block._falling = False
        return block

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

    def rows(self, rows: Sequence[int]) -> Block:
        """Some of the series; the samples are shared."""
        if len(rows) == len(self.labels):
            return self
        labels, chosen = [self.labels[row] for row in rows], list(rows)
        bare = None
        if self._bare is not None and self._bare[1]:
            bare = [self._bare[0][row] for row in rows], True
        if self.filled is not None and self.first is not None:
            block = Block(labels, self.grid, None, self.filled[chosen], self.first[chosen])
            block._falling = None if self.falling else False
            block._bare = bare
            return block
        flat, falls = self._flattened(), self.falls  # found once for all
        block = Block(labels, self.grid, _Flat(flat.times, flat.values, flat.index[chosen]))
        block._falls = falls
        block._bare = bare
        return block

    @property
    def bare(self) -> tuple[list[Labels], bool]:
        """The label sets without names, and whether no two are the same."""
        if self._bare is None:
            labels = [nameless(series) for series in self.labels]
            self._bare = labels, len(set(labels)) == len(labels)
        return self._bare

    def tell(self, bare: list[Labels], columns: dict[str, list[str]]) -> None:
        """Say what is known already.

        Args:
            bare: The label sets without names, no two of which are the same.
            columns: Label → what each series has for it.
        """
        self._bare = bare, True
        self._columns.update(columns)

    def column(self, name: str) -> list[str]:
        """What each series has for a label; empty where it has none."""
        if name not in self._columns:
            self._columns[name] = [dict(labels).get(name, "") for labels in self.labels]
        return self._columns[name]

    @property
    def falling(self) -> bool:
        """Whether any series falls."""
        if self._falling is None:
            if self.filled is not None:
                self._falling = bool((self.filled[:, 1:] < self.filled[:, :-1]).any())
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
            if self.filled is None and (stale := is_stale(self.values)).any():
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
                rows = _matching_rows(block, matchers)
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


def _matching_rows(block: Block, matchers: tuple[Matcher, ...]) -> list[int]:
    """Numbers of the series that satisfy all matchers; each value is tried once."""
    rows = list(range(len(block.labels)))
    for matcher in matchers:
        column = block.column(matcher.name)
        fits = {value: matcher.matches(value) for value in set(column)}
        if not all(fits.values()):
            rows = [row for row in rows if fits[column[row]]]
    return rows
