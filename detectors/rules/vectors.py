"""Instant vectors at many steps at once: a matrix, or only the runs in it that matter."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np

from detectors.rules import tables
from detectors.rules.keys import places, spread, starts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from detectors.rules.labels import Labels

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]
    Numbers = NDArray[np.int64]

__all__ = ["Runs", "Vector"]


@dataclass(frozen=True, slots=True)
class Runs:
    """A matrix of series by steps, most of which is empty or 0: what else there is, run by run.

    Attributes:
        shape: How many series and steps.
        row: int64[r], ascending.
        begin: int64[r], ascending in each row: the first step of each run.
        end: int64[r]: the step after its last one, no later than the next run of the row begins.
        value: float64[r]: what each run holds throughout.
        since: int64[n]: the step from which on each series is there, with the value 0 where no
            run says otherwise. None: series are there in their runs only.
    """

    shape: tuple[int, int]
    row: Numbers
    begin: Numbers
    end: Numbers
    value: Floats
    since: Numbers | None = None

    @classmethod
    def of_cells(
        cls,
        shape: tuple[int, int],
        row: Numbers,
        step: Numbers,
        value: Floats,
        since: Numbers | None = None,
    ) -> Self:
        """Build from single cells: int64[c], int64[c] and float64[c], in order."""
        return cls(shape, row, step, step + 1, value, since)

    def cells(self) -> tuple[Numbers, Numbers, Floats]:
        """The rows, steps and values of all cells in runs, in order."""
        size = self.end - self.begin
        if (size == 1).all():
            return self.row, self.begin, self.value
        return np.repeat(self.row, size), spread(self.begin, size), np.repeat(self.value, size)

    @property
    def many(self) -> int:
        """How many cells there are in runs."""
        return int((self.end - self.begin).sum())

    @property
    def values(self) -> Floats:
        """The whole matrix."""
        matrix = np.zeros(self.shape)
        row, step, value = self.cells()
        matrix[row, step] = value
        return matrix

    @property
    def present(self) -> Mask:
        """Where in it series are there."""
        if self.since is not None:
            return np.arange(self.shape[1]) >= self.since[:, None]
        matrix = np.zeros(self.shape, bool)
        row, step, _ = self.cells()
        matrix[row, step] = True
        return matrix

    @property
    def seen(self) -> Numbers:
        """The rows that are there at any step, ascending."""
        if self.since is not None:
            return np.flatnonzero(self.since < self.shape[1])
        return self.row[starts(self.row)]

    def only(self, kept: Mask) -> Runs:
        """Series that are there in some of the runs only: bool[r]."""
        return Runs(self.shape, self.row[kept], self.begin[kept], self.end[kept], self.value[kept])

    def rows(self, rows: Numbers) -> Runs:
        """Some of the rows, ascending."""
        row = places(rows, self.shape[0])[self.row]
        kept = row >= 0
        since = None if self.since is None else self.since[rows]
        left = self.only(kept)
        return replace(left, shape=(len(rows), self.shape[1]), row=row[kept], since=since)


class Vector:
    """An instant vector at each of k steps.

    Attributes:
        labels: n label sets.
        drop: bool[n] or None: names to be dropped when the query is done.
        runs: What there is in it, where that is little; else None.
    """

    __slots__ = ("_present", "_values", "drop", "labels", "runs")

    def __init__(
        self,
        labels: Sequence[Labels],
        values: Floats | None,
        present: Mask | None,
        drop: Mask | None = None,
        runs: Runs | None = None,
    ) -> None:
        self.labels = labels
        self.drop = drop
        self.runs = runs
        self._values = values
        self._present = present

    @classmethod
    def sparse(cls, labels: Sequence[Labels], runs: Runs, drop: Mask | None = None) -> Self:
        """Build from what there is in it."""
        return cls(labels, None, None, drop, runs)

    @classmethod
    def of(
        cls, labels: Sequence[Labels], body: tuple[Floats, Mask] | Runs, drop: Mask | None = None
    ) -> Self:
        """Build from either."""
        if isinstance(body, Runs):
            return cls.sparse(labels, body, drop)
        return cls(labels, *body, drop)

    @classmethod
    def empty(cls, steps: int) -> Self:
        """No series."""
        return cls([], np.zeros((0, steps)), np.zeros((0, steps), bool))

    @property
    def values(self) -> Floats:
        """float64[n, k]."""
        if self._values is None:
            self._values = self._only_runs.values
        return self._values

    @property
    def present(self) -> Mask:
        """bool[n, k]; a series is absent where this is false, whatever its value."""
        if self._present is None:
            self._present = self._only_runs.present
        return self._present

    @property
    def _only_runs(self) -> Runs:
        if self.runs is None:
            raise TypeError("a vector has no values")
        return self.runs

    @property
    def steps(self) -> int:
        """How many steps."""
        return self.values.shape[1] if self.runs is None else self.runs.shape[1]

    def at(self, row: Numbers, step: Numbers) -> Floats:
        """The values of some series, each at one step at which it is there: float64[q].

        Args:
            row: int64[q].
            step: int64[q].
        """
        runs = self.runs
        if runs is None:
            return self.values[row, step]
        if not len(runs.row):
            return np.zeros(len(row))
        steps = runs.shape[1]
        place = np.searchsorted(runs.row * steps + runs.begin, row * steps + step, side="right") - 1
        found = (place >= 0) & (runs.row[place] == row) & (step < runs.end[place])
        return np.where(found, runs.value[place], 0.0)

    def rows(self, rows: Numbers) -> Vector:
        """Some of its series, in the order given."""
        labels = tables.chosen(self.labels, rows)
        drop = None if self.drop is None else self.drop[rows]
        if self.runs is not None and (rows[1:] > rows[:-1]).all():
            return Vector.sparse(labels, self.runs.rows(rows), drop)
        return Vector(labels, self.values[rows], self.present[rows], drop)

    def named(self, labels: Sequence[Labels], drop: Mask | None = None) -> Vector:
        """The same values under other labels."""
        if self.runs is not None:
            return Vector.sparse(labels, self.runs, drop)
        return Vector(labels, self.values, self.present, drop)

    def seen(self) -> Vector:
        """Those of its series that are there at any step."""
        runs = self.runs
        rows = np.flatnonzero(self.present.any(axis=1)) if runs is None else runs.seen
        return self if len(rows) == len(self.labels) else self.rows(rows)

    def only(self, present: Mask) -> Vector:
        """The same series where ``present`` holds as well; those left without a step go."""
        both = self.present & present
        rows = np.flatnonzero(both.any(axis=1))
        drop = None if self.drop is None else self.drop[rows]
        return Vector(tables.chosen(self.labels, rows), self.values[rows], both[rows], drop)

    def where(self, holds: Callable[[Floats], Mask]) -> Vector:
        """The same series where their values fulfil a condition, which sees each by itself."""
        runs = self.runs
        if runs is None or (runs.since is not None and holds(np.zeros(1)).any()):
            return self.only(holds(self.values))
        return Vector.sparse(self.labels, runs.only(holds(runs.value)), self.drop)

    def mapped(self, function: Callable[[Floats], Floats]) -> Vector:
        """The same series with other values, each made from one by itself."""
        runs = self.runs
        if runs is not None and (runs.since is None or _plain_zero(function(np.zeros(1)))):
            other = replace(runs, value=function(runs.value))
            return Vector.sparse(self.labels, other, self.drop)
        return Vector(self.labels, function(self.values), self.present, self.drop)

    def unbroken(self) -> tuple[Numbers, Numbers, Numbers]:
        """Where series are there without a break: rows, first steps, steps after the last."""
        runs = self.runs
        if runs is None or runs.since is not None:
            edges = np.diff(np.pad(self.present, ((0, 0), (1, 1))).astype(np.int8), axis=1)
            row, begin = np.nonzero(edges == 1)  # both go row by row
            return row, begin, np.nonzero(edges == -1)[1]
        row, begin, end = runs.row, runs.begin, runs.end
        apart = np.flatnonzero((row[1:] != row[:-1]) | (begin[1:] != end[:-1]))
        first = np.append(0, apart + 1)[: len(row)]
        last = np.append(apart, len(row) - 1)[: len(row)]
        return row[first], begin[first], end[last]


def _plain_zero(values: Floats) -> bool:
    return bool(values[0] == 0 and not np.signbit(values[0]))
