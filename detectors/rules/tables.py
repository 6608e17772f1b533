"""Label sets of many series: a list of them, or a table that builds each when it is looked at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

import numpy as np

from detectors.rules.keys import distinct
from detectors.rules.labels import METADATA, Labels, keep, nameless, without

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from numpy.typing import NDArray

    from detectors.rules.labels import Matcher

__all__ = ["Table", "bare", "chosen", "grouped", "matching"]


class Table(Sequence[Labels]):
    """Label sets that all have the same label names, column by column.

    Args:
        columns: Label name → its words, and each series' number of one, int64[n]. Names ascend;
            no word is empty.

    Examples:
        >>> table = Table({"event": (["hang"], np.zeros(2, int)), "ip": (["a", "b"], np.arange(2))})
        >>> table[1]
        (('event', 'hang'), ('ip', 'b'))

    """

    __slots__ = ("_columns", "_sets")

    def __init__(self, columns: dict[str, tuple[Sequence[str], NDArray[np.int64]]]) -> None:
        self._columns = columns
        self._sets: list[Labels] | None = None

    def __len__(self) -> int:
        """How many there are."""
        return len(next(iter(self._columns.values()))[1])

    @overload
    def __getitem__(self, row: int) -> Labels: ...
    @overload
    def __getitem__(self, row: slice) -> Sequence[Labels]: ...
    def __getitem__(self, row: int | slice) -> Labels | Sequence[Labels]:
        """One of them, or some."""
        if isinstance(row, slice) or self._sets is not None:
            return self._built[row]
        return tuple([(name, words[code[row]]) for name, (words, code) in self._columns.items()])

    @property
    def _built(self) -> list[Labels]:
        if self._sets is None:
            pairs = []
            for name, (words, code) in self._columns.items():
                column = [(name, word) for word in words]
                pairs.append([column[number] for number in code.tolist()])
            self._sets = list(zip(*pairs, strict=True))
        return self._sets

    def __iter__(self) -> Iterator[Labels]:
        """All of them."""
        return iter(self._built)

    def rows(self, rows: NDArray[np.int64]) -> Table:
        """Some of them, in the order given."""
        return Table({name: (words, code[rows]) for name, (words, code) in self._columns.items()})

    def only(self, names: Collection[str]) -> Table | None:
        """With these labels alone; None if none of them is there."""
        columns = {name: column for name, column in self._columns.items() if name in names}
        return Table(columns) if columns else None

    @property
    def names(self) -> frozenset[str]:
        """The names of its labels."""
        return frozenset(self._columns)

    @property
    def unique(self) -> bool:
        """Whether no two of them are the same."""
        return len(distinct(self._numbers)[0]) == len(self)

    def distinct(self) -> tuple[list[Labels], NDArray[np.int64]]:
        """The different ones, ascending, and int64[n]: which of them each is."""
        _, first, which = distinct(self._numbers)
        found = [self[row] for row in first.tolist()]
        order = sorted(range(len(found)), key=found.__getitem__)
        place = np.empty(len(found), np.int64)
        place[order] = np.arange(len(found))
        return [found[number] for number in order], place[which]

    @property
    def _numbers(self) -> NDArray[np.int64]:
        """A number for each that only its equals have."""
        number = np.zeros(len(self), np.int64)
        for words, code in self._columns.values():
            number = number * len(words) + code
        return number

    def matching(self, matcher: Matcher) -> NDArray[np.bool_]:
        """Which of them satisfy a condition: bool[n]."""
        if matcher.name not in self._columns:
            return np.full(len(self), matcher.matches(""))
        words, code = self._columns[matcher.name]
        return np.array([matcher.matches(word) for word in words], bool)[code]


def chosen(series: Sequence[Labels], rows: NDArray[np.int64]) -> Sequence[Labels]:
    """Some label sets, in the order given."""
    if isinstance(series, Table):
        return series.rows(rows)
    return [series[row] for row in rows.tolist()]


def bare(series: Sequence[Labels]) -> tuple[Sequence[Labels], bool]:
    """Label sets without the metric's name, and whether no two of them are the same."""
    if isinstance(series, Table):
        table = series.only(series.names - METADATA)
        if table is not None:
            return table, table.unique
    labels = [nameless(one) for one in series]
    return labels, len(set(labels)) == len(labels)


def grouped(
    series: Sequence[Labels], names: Collection[str], *, leave_out: bool
) -> tuple[list[Labels], NDArray[np.int64]]:
    """What is left of label sets.

    Args:
        series: n label sets.
        names: The labels that are kept, or left out.
        leave_out: Which of the two.

    Returns:
        The different ones, ascending, and int64[n]: which of them each series has.
    """
    if isinstance(series, Table):
        left = series.only(series.names.difference(names) if leave_out else names)
        return ([()], np.zeros(len(series), np.int64)) if left is None else left.distinct()
    strip = without if leave_out else keep
    keys = [strip(labels, names) for labels in series]
    found = sorted(set(keys))
    number = dict(zip(found, range(len(found)), strict=True))
    return found, np.fromiter(map(number.__getitem__, keys), np.int64, len(keys))


def matching(series: Sequence[Labels], matcher: Matcher) -> NDArray[np.bool_]:
    """Which label sets satisfy a condition: bool[n]; each value is tried once."""
    if isinstance(series, Table):
        return series.matching(matcher)
    column = [dict(labels).get(matcher.name, "") for labels in series]
    fits = {value: matcher.matches(value) for value in set(column)}
    return np.array([fits[value] for value in column], bool)
