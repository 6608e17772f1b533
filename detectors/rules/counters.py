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

from detectors.rules.labels import NAME, Labels, make
from detectors.rules.series import Block

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["METRIC", "ZEROS", "Census", "Counters", "History", "Zero"]

_T = TypeVar("_T", bound=np.generic)

METRIC = "llm_alert_events_total"
Zero = Literal["none", "two-step", "cross", "seen"]
ZEROS: tuple[Zero, ...] = ("none", "two-step", "cross", "seen")


def series_labels(job: str, node: str, kind: str) -> Labels:
    """The label set of one counter."""
    pairs = ((NAME, METRIC), ("event", kind), ("ip", node), ("job_id", job))
    return pairs if kind and node and job else make(pairs)


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
        width = max(len(history.kinds), 1)
        pair = history.node.astype(np.int64) * width + history.kind
        unique, first, which = np.unique(pair, return_index=True, return_inverse=True)
        names: dict[tuple[str, str], int] = {}
        if zero == "cross":
            for node in history.members:
                for kind in vocabulary:
                    names[node, kind] = len(names)
        begun = len(names)
        place = np.zeros(len(unique), np.int64)
        order = np.argsort(first, kind="stable")  # of their first alerts
        codes = (column.tolist() for column in np.divmod(unique[order], width))
        place[order] = [
            names.setdefault((history.nodes[node], history.kinds[kind]), len(names))
            for node, kind in zip(*codes, strict=True)
        ]
        self._row = place[which.reshape(-1)]
        self._at = history.at
        self._job = history.job
        self._names = list(names)
        self._shown = np.full(len(names), np.iinfo(np.int64).min)
        if zero != "seen" and len(unique):
            shown = _scrape_at(history.at[first], scrape)
            late = place >= begun
            self._shown[place[late]] = shown[late]
        self._two_step = zero == "two-step"
        self.size = len(names)

    def block(self, grid: NDArray[np.int64]) -> Block:
        """The series that are there by the last of some scrapes.

        Args:
            grid: int64[m] milliseconds, ascending.
        """
        there = np.flatnonzero(self._shown <= grid[-1]) if len(grid) else np.zeros(0, np.int64)
        rank = np.full(self.size, -1)
        rank[there] = np.arange(len(there))
        moments = grid / 1000.0
        end = int(np.searchsorted(self._at, moments[-1], side="right")) if len(grid) else 0
        row, column = rank[self._row[:end]], np.searchsorted(moments, self._at[:end], side="left")
        shape = len(there), len(grid)
        alerts = np.bincount(row * shape[1] + column, minlength=shape[0] * shape[1])
        values = np.cumsum(alerts.reshape(shape), axis=1, dtype=np.float64)
        shown = self._shown[there]
        first = np.searchsorted(grid, shown)
        if self._two_step:
            begun = np.flatnonzero(grid[first] == shown) if len(grid) else first
            values[begun, first[begun]] = 0.0
        names = [self._names[number] for number in there.tolist()]
        bare, metric = _bare(self._job, names), (NAME, METRIC)
        labels = [(metric, *pairs) for pairs in bare]
        block = Block.rising(labels, grid, values, first)
        block.tell(
            bare,
            {
                NAME: [METRIC] * len(names),
                "job_id": [self._job] * len(names),
                "ip": [node for node, _ in names],
                "event": [kind for _, kind in names],
            },
        )
        return block


def _bare(job: str, names: Sequence[tuple[str, str]]) -> list[Labels]:
    """One job's counters without the metric's name; what is the same in several is one object."""
    nodes = {node: ("ip", node) for node, _ in names}
    kinds = {kind: ("event", kind) for _, kind in names}
    if not (job and all(nodes) and all(kinds)):
        return [series_labels(job, node, kind)[1:] for node, kind in names]
    owner = ("job_id", job)
    return [(kinds[kind], nodes[node], owner) for node, kind in names]


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
        self._labels: list[Labels] = []
        self._counts: NDArray[np.float64] = np.zeros(0)
        self._grid: list[int] = []
        self._values: NDArray[np.float64] = np.zeros((0, 0))
        self._first: list[int] = []  # of each series, the time of its first scrape
        if zero == "cross":
            for node in members:
                for kind in vocabulary:
                    self._new(node, kind)

    def _new(self, node: str, kind: str) -> int:
        row = self._row[node, kind] = len(self._labels)
        self._labels.append(series_labels(self._job, node, kind))
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
        rows, column = len(self._labels), len(self._grid)
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
        return Block.growing(self._labels[:rows], grid, values, first)


def _grown(array: NDArray[_T], shape: tuple[int, ...]) -> NDArray[_T]:
    """A larger array with the same contents in its corner."""
    larger = np.zeros(tuple(map(max, array.shape, shape)), array.dtype)
    larger[tuple(map(slice, array.shape))] = array
    return larger
