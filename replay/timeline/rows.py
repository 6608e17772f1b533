"""The rows of a trace that are to be played: filtered, kept inside their job, in order."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from replay.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from replay.traces.model import Trace, TraceJob

__all__ = [
    "REACH",
    "SECOND",
    "TOO_FAR",
    "Rows",
    "check_reach",
    "keep_inside",
    "pattern",
    "spread_out",
]

SECOND = 10**9
"""Nanoseconds."""

REACH = 2**62  # twice this still fits into int64
TOO_FAR = (
    "The jobs reach further than 146 years of replay time.",
    "correct the stamp that is far away, --outside clip, another --schedule, or fewer jobs",
)


class Rows(NamedTuple):
    """Alerts of some jobs as columns, each job's together."""

    jobs: tuple[TraceJob, ...]
    job: NDArray[np.int32]
    at: NDArray[np.int64]
    node: NDArray[np.int32]
    kind: NDArray[np.int32]
    node_names: list[str]
    kind_names: list[str]

    @classmethod
    def of(cls, trace: Trace, job: str, node: str, kind: str, exclude_kind: str) -> Rows:
        """The rows that fit the patterns."""
        job_fits, node_fits = pattern(job, "job"), pattern(node, "node")
        kind_fits, kind_left_out = pattern(kind, "kind"), pattern(exclude_kind, "exclude-kind")
        if job:
            trace = trace.select(item.id for item in trace.jobs if job_fits(item.id))
        events = trace.events
        nodes, node_names = _codes(events.column("ip"))
        kinds, kind_names = _codes(events.column("event"))
        rows = cls(
            trace.jobs,
            events.column("job").to_numpy(),
            _times(events.column("at")),
            nodes,
            kinds,
            node_names,
            kind_names,
        )
        if not (node or kind or exclude_kind):
            return rows
        good_node = np.array([node_fits(name) for name in node_names], bool)
        good_kind = np.array(
            [kind_fits(name) and not (exclude_kind and kind_left_out(name)) for name in kind_names],
            bool,
        )
        return rows.where(good_node[nodes] & good_kind[kinds])

    def where(self, wanted: NDArray[np.bool_] | NDArray[np.int64]) -> Rows:
        """Some of the rows, or all of them in another order."""
        return self._replace(
            job=self.job[wanted],
            at=self.at[wanted],
            node=self.node[wanted],
            kind=self.kind[wanted],
        )

    def bounds(self) -> list[int]:
        """``len(jobs) + 1`` row numbers between which each job's rows lie."""
        edges: list[int] = np.searchsorted(
            self.job, np.arange(len(self.jobs) + 1, dtype=self.job.dtype)
        ).tolist()
        return edges

    def unsorted(self) -> NDArray[np.int64]:
        """The rows that are earlier than the row before them in the same job."""
        back = (self.at[1:] < self.at[:-1]) & (self.job[1:] == self.job[:-1])
        return np.flatnonzero(back) + 1

    def instants(self) -> NDArray[np.bool_]:
        """Which rows of sorted ones begin another instant of their job."""
        new = np.ones(len(self.at), bool)
        new[1:] = (self.at[1:] != self.at[:-1]) | (self.job[1:] != self.job[:-1])
        return new

    def sorted(self) -> Rows:
        """The same rows, each job's by time; rows of one instant stay as they are.

        Columns are moved in place.
        """
        unsorted = self.unsorted()
        if not len(unsorted):
            return self
        bounds = self.bounds()
        for number in np.unique(self.job[unsorted]).tolist():
            rows = slice(bounds[number], bounds[number + 1])
            order = np.argsort(self.at[rows], kind="stable")
            for column in (self.at, self.node, self.kind):
                column[rows] = column[rows][order]
        return self


def pattern(text: str, name: str) -> _Match:
    """What a whole word must look like; anything, if there is no pattern."""
    try:
        compiled = re.compile(text)
    except re.error as error:
        raise UsageError(
            f"{name} {text!r} is not a regular expression: {error}.", "'nic_.*', or 'a|b'"
        ) from error
    return _Match(compiled if text else None)


class _Match(NamedTuple):
    pattern: re.Pattern[str] | None

    def __call__(self, word: str) -> bool:
        return self.pattern is None or self.pattern.fullmatch(word) is not None


def _times(column: pa.ChunkedArray[Any]) -> NDArray[np.int64]:
    """A column of times as one array of our own."""
    return np.concatenate([np.zeros(0, np.int64), *(chunk.to_numpy() for chunk in column.chunks)])


def _codes(column: pa.ChunkedArray[Any]) -> tuple[NDArray[np.int32], list[str]]:
    """A dictionary column as codes of our own and names."""
    chunks: list[Any] = column.chunks
    if not chunks:
        return np.zeros(0, np.int32), []
    words = chunks[0].dictionary
    if not all(chunk.dictionary.equals(words) for chunk in chunks):
        return _codes(column.unify_dictionaries())
    return np.concatenate([chunk.indices.to_numpy() for chunk in chunks]), words.to_pylist()


def check_reach(rows: Rows) -> None:
    """Refuse times so far away that sums of them might not fit into int64 nanoseconds."""
    longest = max((abs(job.duration_ns) for job in rows.jobs), default=0)
    if longest > REACH or (len(rows.at) and max(-int(rows.at.min()), int(rows.at.max())) > REACH):
        raise UsageError(*TOO_FAR)


def keep_inside(rows: Rows, outside: str) -> tuple[Rows, int, int]:
    """Apply the policy for alerts outside their job; count those before and after it."""
    if outside not in {"keep", "clip", "drop"}:
        raise UsageError(f"outside {outside!r} is none of keep, clip, drop.")
    early, late = rows.at < 0, np.zeros(len(rows.at), bool)
    ends = np.fromiter((max(0, job.duration_ns) for job in rows.jobs), np.int64, len(rows.jobs))
    for end, start, stop in zip(ends, rows.bounds(), rows.bounds()[1:], strict=False):
        np.greater(rows.at[start:stop], end, out=late[start:stop])
    before, after = int(np.count_nonzero(early)), int(np.count_nonzero(late))
    if outside == "clip":
        at = np.where(early, 0, rows.at)
        at[late] = ends[rows.job[late]]
        rows = rows._replace(at=at)
    elif outside == "drop":
        rows = rows.where(~(early | late))
    return rows, before, after


def spread_out(rows: Rows, spread: str, seed: int) -> Rows:
    """Give alerts that are stamped with a whole second a place inside it, keeping their order."""
    if spread not in {"none", "even", "random"}:
        raise UsageError(f"spread {spread!r} is none of none, even, random.")
    if spread == "none" or not len(rows.at):
        return rows
    phase = np.fromiter((job.start_ns % SECOND for job in rows.jobs), np.int64, len(rows.jobs))
    whole = (rows.at + phase[rows.job]) % SECOND == 0
    new = rows.instants()
    first = np.flatnonzero(new)
    group = np.cumsum(new) - 1
    size = np.diff(np.append(first, len(new)))[group]
    rank = np.arange(len(new)) - first[group]
    if spread == "even":
        within = rank * SECOND // size
    else:
        draws = _draws(seed, len(new))
        within = draws[np.lexsort((draws, group))]
    return rows._replace(at=rows.at + np.where(whole, within, 0)).sorted()


def _draws(seed: int, count: int) -> NDArray[np.int64]:
    """Numbers in [0, 1 s) by SplitMix64 (Steele, Lea and Flood, 2014): the same everywhere."""
    with np.errstate(over="ignore"):
        golden = np.uint64(0x9E3779B97F4A7C15)
        state = (np.arange(1, count + 1, dtype=np.uint64) + np.uint64(seed % 2**64)) * golden
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return ((state ^ (state >> np.uint64(31))) % np.uint64(SECOND)).astype(np.int64)
