"""Whose turn is first: ranks within a job, and precision against recall over thresholds.

Raised labelled nodes rank by score, then by earlier detection. What is still equal is averaged
over every order it could have; the order of a file decides nothing, for the key order of
``ip_status`` may itself give the answer away. Silent nodes are not retrieved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from replay.scoring.sheet import divide

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from replay.scoring.intervals import Blame
    from replay.scoring.sheet import Sheet
    from replay.scoring.truth import Truth

__all__ = ["Ranking", "ranking"]

TOP = (1, 3, 5)
DEEPEST = 5


@dataclass(frozen=True, slots=True)
class Ranking:
    """Groups of equals, job by job, best first.

    Attributes:
        job: int64[t], ascending.
        before: int64[t], nodes of the job that rank above this group.
        found: int64[t], positives among them.
        size: int64[t], nodes in the group.
        positives: int64[t], positives in the group.
    """

    job: NDArray[np.int64]
    before: NDArray[np.int64]
    found: NDArray[np.int64]
    size: NDArray[np.int64]
    positives: NDArray[np.int64]

    @classmethod
    def of(cls, truth: Truth, blame: Blame) -> Self:
        """Rank the raised nodes of the population."""
        pairs = np.flatnonzero((truth.positive | truth.negative) & blame.raised)
        job = truth.job[pairs].astype(np.int64)
        score, at_ns = blame.score[pairs], blame.at_ns[pairs]
        order = np.lexsort((at_ns, -score, job))
        begins = _changes(job[order], score[order], at_ns[order])
        job = job[order][begins]
        size = np.diff(np.append(begins, len(order)))
        positives = np.add.reduceat(truth.positive[pairs][order], begins, dtype=np.int64)
        return cls(job, _before(job, size), _before(job, positives), size, positives)

    def retrieved(self, k: int) -> NDArray[np.float64]:
        """By group: expected number of its positives among the first k of the job."""
        taken = np.clip(k - self.before, 0, self.size)
        return self.positives * taken / self.size

    def missed(self, k: int) -> NDArray[np.float64]:
        """By group: chance that none of its positives is among the first k of the job."""
        taken = np.clip(k - self.before, 0, self.size)
        return none_drawn(self.size, self.positives, taken)

    def reciprocal(self) -> NDArray[np.float64]:
        """By group: expected 1 / rank of its first positive; 0 where one ranks above, or none."""
        leading = np.flatnonzero((self.found == 0) & (self.positives > 0))
        expected = np.zeros(len(self.job))
        for group in leading.tolist():
            size, positives = int(self.size[group]), int(self.positives[group])
            places = np.arange(1, size - positives + 2)
            # P(first positive at or after place x) = C(size - x + 1, p) / C(size, p)
            tail = np.concatenate(
                ([1.0], np.cumprod((size - positives + 1 - places) / (size + 1 - places)))
            )
            chance = tail[:-1] - tail[1:]
            expected[group] = float(np.sum(chance / (self.before[group] + places)))
        return expected


def none_drawn(
    size: NDArray[np.int64], special: NDArray[np.int64], drawn: NDArray[np.int64]
) -> NDArray[np.float64]:
    """C(size - special, drawn) / C(size, drawn): the chance to draw none of the special ones.

    Examples:
        >>> none_drawn(np.array([4]), np.array([1]), np.array([2])).tolist()
        [0.5]

    """
    chance = np.ones(len(size))
    for step in range(int(drawn.max(initial=0))):
        still = step < drawn
        left = np.maximum(size - special - step, 0)
        chance = np.where(still, chance * left / np.maximum(size - step, 1), chance)
    return chance


def _changes(*columns: NDArray[Any]) -> NDArray[np.int64]:
    """Rows of sorted columns that differ from the row before."""
    first = np.zeros(len(columns[0]), np.bool_)
    first[:1] = True
    for column in columns:
        first[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(first)


def _before(job: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sum of the counts that stand earlier in the same job."""
    running = np.cumsum(counts) - counts
    begins = _changes(job)
    return running - np.repeat(running[begins], np.diff(np.append(begins, len(job))))


def ranking(sheet: Sheet, truth: Truth, blame: Blame) -> None:
    """Everything that depends on the order of the raised nodes."""
    _top(sheet, truth, Ranking.of(truth, blame))
    _thresholds(sheet, truth, blame)


def _top(sheet: Sheet, truth: Truth, ranked: Ranking) -> None:
    jobs = len(truth.jobs)
    positives = truth.job_sum(truth.positive)
    nodes = positives + truth.job_sum(truth.negative)
    faulty = positives > 0
    why = "there is no positive job"

    def mean(key: str, per_job: NDArray[np.float64]) -> None:
        sheet.ratio(key, np.where(faulty, per_job, 0.0), faulty, why)

    def summed(per_group: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.bincount(ranked.job, per_group, jobs).astype(np.float64)

    found = {k: summed(ranked.retrieved(k)) for k in range(1, DEEPEST + 1)}
    share = {k: divide(found[k], np.minimum(k, positives)) for k in found}
    for k in TOP:
        silent = np.ones(jobs)
        np.multiply.at(silent, ranked.job, ranked.missed(k))
        mean(f"hit_at_{k}", 1 - silent)
        mean(f"recall_at_k{k}", divide(found[k], positives))
        mean(f"ac_at_{k}", share[k])
        mean(f"chance_hit_at_{k}", 1 - none_drawn(nodes, positives, np.minimum(k, nodes)))
    mean("avg_at_5", np.sum([share[k] for k in found], axis=0) / DEEPEST)
    mean("mrr", summed(ranked.reciprocal()))


@dataclass(frozen=True, slots=True)
class _Sweep:
    """Steps of a threshold going down, group by group: one per distinct score.

    Attributes:
        group: int64[s], ascending.
        score: float64[s], the threshold.
        tp: int64[s], positives of the group with at least this score.
        raised: int64[s], nodes of the group with at least this score.
        gained: int64[s], positives with exactly this score.
    """

    group: NDArray[np.int64]
    score: NDArray[np.float64]
    tp: NDArray[np.int64]
    raised: NDArray[np.int64]
    gained: NDArray[np.int64]

    @classmethod
    def of(cls, truth: Truth, blame: Blame, group_of_job: NDArray[np.int64]) -> Self:
        pairs = np.flatnonzero((truth.positive | truth.negative) & blame.raised)
        group, score = group_of_job[truth.job[pairs]], blame.score[pairs]
        order = np.lexsort((-score, group))
        begins = _changes(group[order], score[order])
        gained = np.add.reduceat(truth.positive[pairs][order], begins, dtype=np.int64)
        size = np.diff(np.append(begins, len(order)))
        group = group[order][begins]
        return cls(
            group=group,
            score=score[order][begins],
            tp=_before(group, gained) + gained,
            raised=_before(group, size) + size,
            gained=gained,
        )


def _average_precision(sweep: _Sweep, positives: NDArray[np.int64]) -> NDArray[np.float64]:
    """Σ (R_i - R_{i-1}) P_i over distinct scores, by group; NaN where there is no positive."""
    steps = sweep.gained * sweep.tp / sweep.raised
    area = np.bincount(sweep.group, weights=steps, minlength=len(positives))
    return divide(area, positives)


def _thresholds(sheet: Sheet, truth: Truth, blame: Blame) -> None:
    groups = sheet.groups
    job_positives = truth.job_sum(truth.positive)
    positives = groups.sum(job_positives)
    negatives = groups.sum(truth.job_sum(truth.negative))
    why = "there is no positive node"
    sweep = _Sweep.of(truth, blame, groups.of_job)
    pooled = _average_precision(sweep, positives)
    sheet.put("ap_micro", pooled, why)
    each = np.arange(len(truth.jobs))
    per_job = _average_precision(_Sweep.of(truth, blame, each), job_positives)
    defined = ~np.isnan(per_job)
    sheet.ratio("map", np.where(defined, per_job, 0.0), defined, why)
    recall = divide(
        np.bincount(sweep.group, weights=sweep.gained, minlength=len(groups)), positives
    )
    rest = (1 - recall) * divide(positives, positives + negatives)
    sheet.put("ap_sklearn", pooled + rest, why)
    _oracle(sheet, sweep, positives, why)


def _oracle(sheet: Sheet, sweep: _Sweep, positives: NDArray[np.int64], why: str) -> None:
    """The best F1 over thresholds, and the highest threshold that reaches it."""
    f1 = 2 * sweep.tp / (sweep.raised + positives[sweep.group])
    order = np.lexsort((-sweep.score, -f1, sweep.group))
    order = order[_changes(sweep.group[order])]
    order = order[positives[sweep.group[order]] > 0]
    best = np.where(positives > 0, 0.0, np.nan)
    threshold = np.full(len(positives), np.nan)
    best[sweep.group[order]] = f1[order]
    threshold[sweep.group[order]] = sweep.score[order]
    sheet.put("oracle_f1", best, why)
    sheet.put("oracle_threshold", threshold, "no labelled node was raised", (positives == 0, why))
