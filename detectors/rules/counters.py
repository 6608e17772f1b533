"""The metric that rules are written against, as a scrape would see it.

``llm_alert_events_total{job_id,ip,event}`` counts a job's alerts. A virtual scraper reads it at
whole multiples of the scrape interval, trace time; an alert counts from the first scrape at or
after it. What a series shows before its first alert is the zero policy:

==========  ====================================================================================
none        nothing, as a plain counter; the first alert is no increase
two-step    0 at the first scrape after its first alert, the true count from the next one on
cross       0 from the start, for every node and every kind named beforehand
seen        0 from the start, for every series that will ever be there: looks ahead
==========  ====================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np

from detectors.rules import tables
from detectors.rules.keys import distinct, order_of, places, starts
from detectors.rules.labels import NAME, Labels, make
from detectors.rules.series import Block, Rises

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["METRIC", "ZEROS", "Census", "Counters", "History", "Zero"]

_T = TypeVar("_T", bound=np.generic)

METRIC = "llm_alert_events_total"
Zero = Literal["none", "two-step", "cross", "seen"]
ZEROS: tuple[Zero, ...] = ("none", "two-step", "cross", "seen")


@dataclass(frozen=True, slots=True)
class History:
    """All alerts of one job, as columns in order.

    Attributes:
        job: The job's id.
        members: The job's nodes.
        at: float64[n] trace seconds since the job's start, ascending.
        node: int[n], codes into ``nodes``.
        kind: int[n], codes into ``kinds``.
        nodes: Names of nodes.
        kinds: Names of kinds.
        end: Trace seconds since the job's start at which the job ended.
    """

    job: str
    members: tuple[str, ...]
    at: NDArray[np.float64]
    node: NDArray[np.int64]
    kind: NDArray[np.int64]
    nodes: Sequence[str]
    kinds: Sequence[str]
    end: float


class Census:
    """Every counter of a job, at any scrapes.

    Args:
        history: The job's alerts.
        scrape: Milliseconds between scrapes, which fall on whole multiples of it.
        zero: See the module.
        vocabulary: The kinds that ``cross`` begins with.

    Attributes:
        size: How many series there are in the end.
    """

    def __init__(
        self, history: History, scrape: int, zero: Zero, vocabulary: Sequence[str] = ()
    ) -> None:
        nodes, kinds = list(history.nodes), list(history.kinds)
        width = max(len(kinds) + len(vocabulary), 1)
        named: NDArray[np.int64] = np.zeros(0, np.int64)
        if zero == "cross":
            rows, columns = _numbers(nodes, history.members), _numbers(kinds, vocabulary)
            named = (rows[:, None] * width + columns).reshape(-1)
        begun = len(np.unique(named))
        pair = np.concatenate([named, history.node.astype(np.int64) * width + history.kind])
        unique, first, which = distinct(pair)
        order = order_of(first)  # of their first alerts
        place = np.empty(len(unique), np.int64)
        place[order] = np.arange(len(unique))
        row = place[which[len(named) :]]
        self.size = len(unique)
        self._labels = _labels(history.job, nodes, kinds, *np.divmod(unique[order], width))
        tick = _scrape_at(history.at, scrape)
        # when a series is there: from its first scrape on, or always
        self._shown = np.full(self.size, _ALWAYS)
        if zero != "seen" and self.size > begun:
            self._shown[begun:] = tick[first[order[begun:]] - len(named)]
        zeros = np.flatnonzero(self._shown == _ALWAYS)
        if zero == "two-step":
            zeros = np.arange(self.size)
            tick = np.maximum(tick, self._shown[row] + scrape)
        self._row, self._tick, self._value = _rising(
            np.concatenate([zeros, row]),
            np.concatenate([self._shown[zeros], tick]),
            np.repeat([0.0, 1.0], [len(zeros), len(row)]),
        )

    def block(self, grid: NDArray[np.int64]) -> Block:
        """The series that are there by the last of some scrapes.

        Args:
            grid: int64[m] milliseconds, ascending.
        """
        last = grid[-1] if len(grid) else _ALWAYS - 1
        there = np.flatnonzero(self._shown <= last)
        known = np.flatnonzero(self._tick <= last)
        row, column = self._row[known], np.searchsorted(grid, self._tick[known])
        newest = _last_of_each(row, column)  # of what came before the first scrape, too
        rank = places(there, self.size)[row[newest]]
        rises = Rises(rank, column[newest], self._value[known[newest]])
        return Block.rising(tables.chosen(self._labels, there), grid, rises)


_ALWAYS = int(np.iinfo(np.int64).min) + 1


def _numbers(words: list[str], wanted: Sequence[str]) -> NDArray[np.int64]:
    """The places of some words in a list, to which they are added where they are not in it."""
    known = {word: number for number, word in reversed(list(enumerate(words)))}
    for word in wanted:
        if word not in known:
            known[word] = len(words)
            words.append(word)
    return np.array([known[word] for word in wanted], np.int64)


def _rising(
    row: NDArray[np.int64], tick: NDArray[np.int64], count: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Counts by series and time, summed up in each series: each time once, in order."""
    order = order_of(row)
    row, tick, total = row[order], tick[order], np.cumsum(count[order])
    begins = starts(row)
    before = np.append(0.0, total)[begins]
    newest = _last_of_each(row, tick)
    value = total - np.repeat(before, np.diff(begins, append=len(row)))
    return row[newest], tick[newest], value[newest]


def _last_of_each(row: NDArray[np.int64], column: NDArray[np.int64]) -> NDArray[np.int64]:
    """The places of the last of equal neighbours."""
    if not len(row):
        return np.zeros(0, np.int64)
    differs = (row[1:] != row[:-1]) | (column[1:] != column[:-1])
    return np.flatnonzero(np.append(differs, True))


def _labels(
    job: str,
    nodes: Sequence[str],
    kinds: Sequence[str],
    node: NDArray[np.int64],
    kind: NDArray[np.int64],
) -> Sequence[Labels]:
    """The label sets of a job's counters, by their numbers in ``nodes`` and ``kinds``."""
    if job and all(nodes) and all(kinds):
        only = np.zeros(len(node), np.int64)
        columns = {
            NAME: ([METRIC], only),
            "event": (kinds, kind),
            "ip": (nodes, node),
            "job_id": ([job], only),
        }
        return tables.Table(columns)
    return [  # what is empty is no label
        make({NAME: METRIC, "event": kinds[other], "ip": nodes[one], "job_id": job})
        for one, other in zip(node.tolist(), kind.tolist(), strict=True)
    ]


def _scrape_at(at: NDArray[np.float64], scrape: int) -> NDArray[np.int64]:
    """The first scrapes that see what happened at some seconds."""
    tick = np.ceil(at * 1000 / scrape).astype(np.int64) * scrape
    while (late := tick / 1000.0 < at).any():  # what rounding did
        tick[late] += scrape
    while (early := (tick - scrape) / 1000.0 >= at).any():
        tick[early] -= scrape
    return tick


class Counters:
    """The counters of one job, alert by alert and scrape by scrape.

    Args:
        job: The job's id.
        members: Its nodes.
        zero: See the module; ``seen`` cannot be had without the future.
        vocabulary: The kinds that ``cross`` begins with.
        reach: Milliseconds for which scrapes are kept.

    Examples:
        >>> counters = Counters("Job1", ("a",), "none", (), 300_000)
        >>> counters.count("a", "hang")
        >>> counters.scrape(15_000)
        >>> counters.block().values.tolist()
        [1.0]

    """

    def __init__(
        self, job: str, members: Sequence[str], zero: Zero, vocabulary: Sequence[str], reach: int
    ) -> None:
        self._job = job
        self._two_step = zero == "two-step"
        self._reach = reach
        self._row: dict[tuple[str, str], int] = {}
        self._nodes: dict[str, int] = {}
        self._kinds: dict[str, int] = {}
        self._codes: list[tuple[int, int]] = []
        self._labels: Sequence[Labels] = ()
        self._counts: NDArray[np.float64] = np.zeros(0)
        self._grid: list[int] = []
        self._values: NDArray[np.float64] = np.zeros((0, 0))
        self._first: list[int] = []  # of each series, the time of its first scrape
        if zero == "cross":
            for node in members:
                for kind in vocabulary:
                    self._new(node, kind)

    def _new(self, node: str, kind: str) -> int:
        row = self._row[node, kind] = len(self._codes)
        codes = [
            words.setdefault(word, len(words))
            for words, word in ((self._nodes, node), (self._kinds, kind))
        ]
        self._codes.append((codes[0], codes[1]))
        if row >= len(self._counts):
            size = max(64, 2 * row)
            self._counts = _grown(self._counts, (size,))
        return row

    def count(self, node: str, kind: str) -> None:
        """Take in one alert."""
        row = self._row.get((node, kind))
        if row is None:
            row = self._new(node, kind)
        self._counts[row] += 1

    def scrape(self, at: int) -> None:
        """Read all counters at ``at`` milliseconds."""
        rows, column = len(self._codes), len(self._grid)
        if rows > self._values.shape[0] or column >= self._values.shape[1]:
            self._make_room(rows, column)
            column = len(self._grid)
        self._grid.append(at)
        counts = self._counts[:rows]
        if self._two_step:
            counts = np.where(np.arange(rows) < len(self._first), counts, 0.0)
        self._values[:rows, column] = counts
        self._first += [at] * (rows - len(self._first))

    def _make_room(self, rows: int, column: int) -> None:
        """Let old scrapes go, and grow where that is not enough."""
        oldest = self._grid[-1] - self._reach if self._grid else 0
        drop = int(np.searchsorted(self._grid, oldest, side="left"))
        if drop * 2 >= column > 0 and drop:
            self._values = np.ascontiguousarray(self._values[:, drop:])
            del self._grid[:drop]
            column -= drop
        height = max(self._values.shape[0], 64)
        while height < rows:
            height *= 2
        width = max(self._values.shape[1], 64)
        while width <= column:
            width *= 2
        self._values = _grown(self._values, (height, width))

    def block(self, ahead: Sequence[int] = ()) -> Block:
        """What has been scraped, as far back as rules may look.

        Args:
            ahead: Milliseconds of later scrapes to add, as they will be if no alert comes before.
        """
        rows, columns = len(self._first), len(self._grid)
        oldest = self._grid[-1] - self._reach if self._grid else 0
        begin = int(np.searchsorted(self._grid, oldest, side="left"))
        values = self._values[:rows, begin:columns]
        if ahead:
            counts = np.repeat(self._counts[:rows, None], len(ahead), axis=1)
            values = np.concatenate([values, counts], axis=1)
        grid = np.array([*self._grid[begin:], *ahead], np.int64)
        first = np.searchsorted(grid, np.array(self._first, np.int64))
        if len(self._labels) != rows:
            codes = np.array(self._codes[:rows], np.int64).T
            self._labels = _labels(self._job, list(self._nodes), list(self._kinds), *codes)
        return Block.growing(self._labels, grid, values, first)


def _grown(array: NDArray[_T], shape: tuple[int, ...]) -> NDArray[_T]:
    """A larger array with the same contents in its corner."""
    larger = np.zeros(tuple(map(max, array.shape, shape)), array.dtype)
    larger[tuple(map(slice, array.shape))] = array
    return larger
