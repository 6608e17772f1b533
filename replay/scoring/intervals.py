"""From rows to blame: when each node was raised, for how long, and whether that counts.

A *unit* is a node in a job, or the job itself. Per (detector, unit), in the order (time, seq), a
raise opens an interval, a raise while open revises it, a retract closes it, and a retract while
closed is an orphan. An interval still open at the end lasts to the end of the window, which is
the job's end plus the grace.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from replay.scoring.truth import find
from replay.scoring.words import coded

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from replay.scoring.log import VerdictLog
    from replay.scoring.policy import Policy
    from replay.scoring.truth import Truth

__all__ = ["Blame", "Rows", "judge", "rows_by_detector"]

NEVER = np.iinfo(np.int64).max
"""Stands for "no such moment" only while the earliest of several is looked for."""

# what a unit is
JOB, LABELLED, STRANGER, PHANTOM = range(4)


@dataclass(frozen=True, slots=True)
class Rows:
    """Verdicts of one detector, by (unit, time, seq).

    Attributes:
        unit: int64[n], number of the unit, ascending.
        at_ns: int64[n], since the job's start.
        raises: bool[n], False for a retract.
        score: float64[n].
        row: int64[n], row in the log.
        unit_job: int32[u], the job of each unit.
        unit_kind: int8[u]: the job itself, a labelled node, a node that alerted but has no label
            (stranger), or one that the job does not know (phantom).
        unit_pair: int64[u], which of the truth's pairs a labelled node is; -1 for other units.
    """

    unit: NDArray[np.int64]
    at_ns: NDArray[np.int64]
    raises: NDArray[np.bool_]
    score: NDArray[np.float64]
    row: NDArray[np.int64]
    unit_job: NDArray[np.int32]
    unit_kind: NDArray[np.int8]
    unit_pair: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.unit)

    def where(self, keep: NDArray[np.bool_]) -> Self:
        """Some of the rows; the units stay."""
        return replace(
            self,
            unit=self.unit[keep],
            at_ns=self.at_ns[keep],
            raises=self.raises[keep],
            score=self.score[keep],
            row=self.row[keep],
        )


def rows_by_detector(
    log: VerdictLog, truth: Truth, detectors: Sequence[str]
) -> Iterator[tuple[str, Rows]]:
    """Sort a log and join it with the truth; one piece for each detector, said or unsaid.

    Raises:
        TraceError: A verdict is about a job that the trace does not have.
    """
    rank = {name: number for number, name in enumerate(detectors)}
    detector = log.codes("detector", rank)
    log.check_jobs(truth.jobs)
    job = log.codes("job_id", {name: number for number, name in enumerate(truth.jobs)})
    node, size = _node_codes(log, truth)
    key = job * (size + 1) + (node + 1)
    at_ns = log.time_ns - truth.start_ns[job]
    raises = log.codes("action", {"retract": 0, "raise": 1}).astype(np.bool_)
    score = log.table.column("score").to_numpy()

    seq = log.table.column("seq").to_numpy()
    order = _order((detector, key, at_ns, seq), (raises, score))
    bounds = np.searchsorted(detector[order], np.arange(len(detectors) + 1))
    for number, name in enumerate(detectors):
        rows = order[bounds[number] : bounds[number + 1]]
        keys, unit = _runs(key[rows])
        unit_job = keys // (size + 1)
        kind, pair = _kinds(unit_job, keys % (size + 1) - 1, truth)
        yield (
            name,
            Rows(
                unit=unit,
                at_ns=at_ns[rows],
                raises=raises[rows],
                score=score[rows],
                row=rows,
                unit_job=unit_job.astype(np.int32),
                unit_kind=kind,
                unit_pair=pair,
            ),
        )


def _node_codes(log: VerdictLog, truth: Truth) -> tuple[NDArray[np.int64], int]:
    """Codes of nodes: the trace's, then phantoms; -1 for the whole job. And how many there are."""
    codes, words = coded(log.table.column("ip"))
    numbers = {name: number for number, name in enumerate(truth.nodes)}
    for word in words:
        numbers.setdefault(word, len(numbers))
    return np.array([*(numbers[word] for word in words), -1], np.int64)[codes], len(numbers)


def _order(
    keys: tuple[NDArray[np.int64], ...], ties: tuple[NDArray[Any], ...]
) -> NDArray[np.int64]:
    """Rows by (detector, unit, time, seq); equal ones by what they say, never by their place."""
    detector, unit, at_ns, seq = keys
    in_order = bool((seq[1:] >= seq[:-1]).all())  # then a stable sort need not look at it
    packed = _pack(detector, unit, at_ns)
    if packed is None:
        order = np.lexsort((seq, at_ns, unit, detector))
    elif in_order:
        order = np.argsort(packed, kind="stable")
    else:
        order = np.lexsort((seq, packed))
    same = np.ones(max(len(order) - 1, 0), np.bool_)
    for column in keys:
        ordered = column[order]
        same &= ordered[1:] == ordered[:-1]
    return np.lexsort((*ties, seq, at_ns, unit, detector)) if same.any() else order


def _pack(*columns: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """Several columns as one of the same order; None where the numbers are too large for that."""
    packed = np.zeros(len(columns[0]), np.int64)
    size = 1
    for column in columns if len(packed) else ():
        low, high = int(column.min()), int(column.max())
        step = int(np.gcd.reduce(column - low)) or 1  # whole seconds need no nanoseconds
        span = (high - low) // step + 1
        size *= span
        if size >= 1 << 63:
            return None
        packed = packed * span + (column - low) // step
    return packed


def _runs(keys: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Distinct values of sorted keys, and the number of the run each row is in."""
    first = np.ones(len(keys), np.bool_)
    first[1:] = keys[1:] != keys[:-1]
    return keys[first], np.cumsum(first) - 1


def _kinds(
    job: NDArray[np.int64], node: NDArray[np.int64], truth: Truth
) -> tuple[NDArray[np.int8], NDArray[np.int64]]:
    size = len(truth.nodes)
    key = np.where((node >= 0) & (node < size), job * size + node, -1)
    pair = find(truth.keys, key)
    stranger = find(truth.stranger_keys, key) >= 0
    kind = np.select(
        [node < 0, pair >= 0, stranger], [JOB, LABELLED, STRANGER], default=PHANTOM
    ).astype(np.int8)
    return kind, pair


@dataclass(frozen=True, slots=True)
class Blame:
    """What one detector's verdicts come to, under a policy. N labelled pairs, J jobs.

    Attributes:
        raised: bool[N], blamed under the policy.
        at_ns: int64[N], detection time since the job's start, where raised.
        score: float64[N], where raised.
        held_ns: int64[N], how long raised in all.
        row: int64[N], the row of the log that began the blame, where raised.
        late: bool[N], raised only after the window.
        strangers: int64[J], blamed nodes that alerted but have no label.
        phantoms: int64[J], blamed nodes that the job does not know.
        alarmed: bool[J], something in it was blamed.
        alarm_ns: int64[J], when first, where alarmed.
        churn: Counts by job: ``raises`` (intervals opened), ``retractions``, ``revisions``,
            ``reraises`` (openings after the first), ``orphan_retractions``, ``early_verdicts``,
            ``late_verdicts``.
    """

    raised: NDArray[np.bool_]
    at_ns: NDArray[np.int64]
    score: NDArray[np.float64]
    held_ns: NDArray[np.int64]
    row: NDArray[np.int64]
    late: NDArray[np.bool_]
    strangers: NDArray[np.int64]
    phantoms: NDArray[np.int64]
    alarmed: NDArray[np.bool_]
    alarm_ns: NDArray[np.int64]
    churn: dict[str, NDArray[np.int64]] = field(repr=False)


def judge(rows: Rows, truth: Truth, policy: Policy) -> Blame:
    """Run the state machine over one detector's rows and apply the policy."""
    jobs = len(truth.jobs)
    close_ns = truth.end_ns + _ns(policy.grace_s)
    job = rows.unit_job[rows.unit]
    early = rows.at_ns < 0
    late = rows.at_ns > close_ns[job]
    inside = rows.where(~(early | late))
    opens, ends_ns, churn = _intervals(inside, close_ns)
    found = _blamed(inside, opens, ends_ns, policy)

    pairs = len(truth.job)
    labelled = np.flatnonzero(rows.unit_kind == LABELLED)
    pair = rows.unit_pair[labelled]
    raised = np.zeros(pairs, np.bool_)
    at_ns, held_ns, row = (np.zeros(pairs, np.int64) for _ in range(3))
    score = np.zeros(pairs, np.float64)
    raised[pair] = found.blamed[labelled]
    at_ns[pair] = found.at_ns[labelled]
    score[pair] = found.score[labelled]
    row[pair] = found.row[labelled]
    held = np.bincount(
        inside.unit[opens], weights=ends_ns - inside.at_ns[opens], minlength=len(rows.unit_job)
    )
    held_ns[pair] = held[labelled].astype(np.int64)
    late_raised = np.zeros(pairs, np.bool_)
    late_units = np.unique(rows.unit[late & rows.raises])
    late_pairs = rows.unit_pair[late_units]
    late_raised[late_pairs[late_pairs >= 0]] = True

    def count(kind: int) -> NDArray[np.int64]:
        return np.bincount(rows.unit_job[found.blamed & (rows.unit_kind == kind)], minlength=jobs)

    alarm_ns = np.full(jobs, NEVER)
    np.minimum.at(alarm_ns, rows.unit_job[found.blamed], found.at_ns[found.blamed])
    return Blame(
        raised=raised,
        at_ns=at_ns,
        score=score,
        held_ns=held_ns,
        row=row,
        late=late_raised & ~raised,
        strangers=count(STRANGER),
        phantoms=count(PHANTOM),
        alarmed=alarm_ns != NEVER,
        alarm_ns=np.where(alarm_ns != NEVER, alarm_ns, 0),
        churn={
            name: np.bincount(inside.unit_job[inside.unit[where]], minlength=jobs)
            for name, where in churn.items()
        }
        | {
            "early_verdicts": np.bincount(job[early], minlength=jobs),
            "late_verdicts": np.bincount(job[late], minlength=jobs),
        },
    )


def _ns(seconds: float) -> int:
    return round(seconds * 1_000_000_000)


def _intervals(
    rows: Rows, close_ns: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], dict[str, NDArray[np.bool_]]]:
    """Rows that open an interval, when each interval ends, and which rows do what."""
    n = len(rows)
    first = np.ones(n, np.bool_)
    first[1:] = rows.unit[1:] != rows.unit[:-1]
    was_open = np.zeros(n, np.bool_)
    was_open[1:] = rows.raises[:-1] & ~first[1:]
    opening = rows.raises & ~was_open
    opens = np.flatnonzero(opening)
    # the next row that is no revision ends the interval: a retract, or another unit's first row
    stops = np.flatnonzero(~(rows.raises & was_open))
    after = np.append(stops, n)[np.searchsorted(stops, opens, side="right")]
    safe = np.minimum(after, n - 1)
    closed = (after < n) & (rows.unit[safe] == rows.unit[opens])
    ends_ns = np.where(closed, rows.at_ns[safe], close_ns[rows.unit_job[rows.unit[opens]]])
    unit_starts = np.zeros(len(rows.unit_job), np.int64)
    opened_before: NDArray[np.int64] = np.cumsum(opening) - opening
    unit_starts[rows.unit[first]] = opened_before[first]
    churn = {
        "raises": opening,
        "retractions": ~rows.raises & was_open,
        "revisions": rows.raises & was_open,
        "reraises": opening & (opened_before > unit_starts[rows.unit]),
        "orphan_retractions": ~rows.raises & ~was_open,
    }
    return opens, ends_ns, churn


@dataclass(frozen=True, slots=True)
class _Found:
    """By unit: whether it is blamed, since when, how sure, and by which row of the log."""

    blamed: NDArray[np.bool_]
    at_ns: NDArray[np.int64]
    score: NDArray[np.float64]
    row: NDArray[np.int64]


def _blamed(
    rows: Rows,
    opens: NDArray[np.int64],
    ends_ns: NDArray[np.int64],
    policy: Policy,
) -> _Found:
    """Apply the policy to the intervals of each unit."""
    units = len(rows.unit_job)
    unit = rows.unit[opens]
    starts_ns = rows.at_ns[opens]
    hold_ns = _ns(policy.hold_s)
    if policy.kind == "final":
        # only the last row of a unit tells whether it is open at the end
        last = np.ones(len(rows), np.bool_)
        last[:-1] = rows.unit[1:] != rows.unit[:-1]
        open_at_end = np.zeros(units, np.bool_)
        open_at_end[rows.unit[last]] = rows.raises[last]
        final = np.ones(len(opens), np.bool_)
        final[:-1] = unit[1:] != unit[:-1]
        counts = final & open_at_end[unit]
    else:
        counts = ends_ns - starts_ns >= hold_ns
    found = _Found(
        np.zeros(units, np.bool_),
        np.zeros(units, np.int64),
        np.zeros(units),
        np.zeros(units, np.int64),
    )
    chosen = np.flatnonzero(counts)
    blamed, where = np.unique(unit[chosen], return_index=True)
    chosen = chosen[where]
    found.blamed[blamed] = True
    found.at_ns[blamed] = starts_ns[chosen] + hold_ns
    found.row[blamed] = rows.row[opens[chosen]]
    if policy.kind == "final":
        found.score[rows.unit[last]] = rows.score[last]
    else:
        raised = np.flatnonzero(rows.raises)
        names, begin = np.unique(rows.unit[raised], return_index=True)
        if len(names):
            found.score[names] = np.maximum.reduceat(rows.score[raised], begin)
    return found
