"""Two detectors on the same jobs: is one really better, or did the jobs fall that way?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from replay.errors import UsageError
from replay.scoring.accuracy import (
    Counts,
    JobCounts,
    false_alarms,
    job_rates,
    node_rates,
)
from replay.scoring.cost import score_cost
from replay.scoring.resampling import Interval, Resampling, bounds
from replay.scoring.scorer import finite, with_infinity
from replay.scoring.sheet import Groups, Sheet

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from replay.scoring.scorer import DetectorScore, Score
    from replay.scoring.sheet import Number

__all__ = ["Comparison", "Delta", "compare", "mcnemar"]

_MEANS = ("hit_at_", "recall_at_k", "ac_at_", "avg_at_", "mrr", "map")
"""Means over the jobs in which they are defined."""

_ELIGIBLE = ("recall_at_", "rmdd_", "aurt_")
"""Means over positives that have the zero which ends the name."""


@dataclass(frozen=True, slots=True)
class Delta:
    """One metric of A minus the same of B.

    Attributes:
        a: Of A; None where undefined, infinite where misses make it so.
        b: Of B.
        delta: ``a - b``; None where either is, or both are infinite.
        interval: Of ``delta``.
        share_above: Share of the resamples with a positive delta; None where none is defined.
    """

    a: Number
    b: Number
    delta: Number
    interval: Interval
    share_above: float | None

    def document(self) -> dict[str, Any]:
        """The difference by name."""
        return {
            "a": finite(self.a),
            "b": finite(self.b),
            "delta": finite(self.delta),
            "interval": self.interval.document(),
            "share_above": self.share_above,
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """A against B, job by job.

    Attributes:
        a: Name of A.
        b: Name of B.
        jobs: How many jobs both watched.
        positives: How many of their nodes were faulty.
        comparable: False when jobs were left out of either.
        deltas: Metric → difference.
        wins: Jobs in which A named fewer nodes wrongly (missed or blamed without cause).
        losses: Jobs in which B did.
        ties: How many jobs are left.
        only_a: Jobs that A got exactly right and B did not.
        only_b: The other way round.
        mcnemar_p: Exact two-sided p-value of the two numbers before.
    """

    a: str
    b: str
    jobs: int
    positives: int
    comparable: bool
    deltas: Mapping[str, Delta]
    wins: tuple[str, ...]
    losses: tuple[str, ...]
    ties: int
    only_a: int
    only_b: int
    mcnemar_p: float

    @property
    def same(self) -> bool:
        """Whether no metric and no job tells them apart."""
        apart = self.wins or self.losses or self.only_a or self.only_b
        return not apart and all(delta.a == delta.b for delta in self.deltas.values())

    def document(self) -> dict[str, Any]:
        """The comparison by name."""
        return {
            "a": self.a,
            "b": self.b,
            "jobs": self.jobs,
            "positives": self.positives,
            "comparable": self.comparable,
            "metrics": {key: delta.document() for key, delta in self.deltas.items()},
            "wins": list(self.wins),
            "losses": list(self.losses),
            "ties": self.ties,
            "mcnemar": {"only_a": self.only_a, "only_b": self.only_b, "p": self.mcnemar_p},
        }


def mcnemar(only_a: int, only_b: int) -> float:
    """Exact two-sided p-value (McNemar, 1947): the discordant jobs as fair coins.

    Examples:
        >>> mcnemar(5, 0)
        0.0625

    """
    n = only_a + only_b
    tail = sum(math.comb(n, k) for k in range(min(only_a, only_b) + 1))
    return min(1.0, float(2 * tail / 2**n))


def compare(a: Score, b: Score, detector_a: str, detector_b: str) -> Comparison:
    """Compare a detector of one score with a detector of another.

    Jobs are resampled with the same weights for both, as the settings of ``a`` say.

    Raises:
        UsageError: The scores are about other data or labels, or lack the detector.
    """
    for key in ("data_hash", "labels"):
        if a.settings[key] != b.settings[key]:
            raise UsageError(
                f"The two runs cannot be compared: they differ in {key}.",
                "score both on the same jobs, with the same label map",
            )
    left, right = _find(a, detector_a), _find(b, detector_b)
    rows_a, rows_b = list(left.jobs.values()), list(right.jobs.values())
    try:
        sheet_a, sheet_b = _sheet(rows_a), _sheet(rows_b)
    except KeyError as error:
        raise UsageError(f"A row of a job lacks {error}.", "score the runs again") from error
    wrong_a, wrong_b = (_column(rows, "fp") + _column(rows, "fn") for rows in (rows_a, rows_b))
    only_a = int(np.count_nonzero((wrong_a == 0) & (wrong_b > 0)))
    only_b = int(np.count_nonzero((wrong_b == 0) & (wrong_a > 0)))
    return Comparison(
        a=detector_a,
        b=detector_b,
        jobs=a.settings["jobs"],
        positives=a.settings["positives"],
        comparable=a.settings["comparable"] and b.settings["comparable"],
        deltas=_deltas(left, right, sheet_a, sheet_b, _resampling(a)),
        wins=tuple(job for job, better in zip(left.jobs, wrong_a < wrong_b, strict=True) if better),
        losses=tuple(job for job, worse in zip(left.jobs, wrong_a > wrong_b, strict=True) if worse),
        ties=int(np.count_nonzero(wrong_a == wrong_b)),
        only_a=only_a,
        only_b=only_b,
        mcnemar_p=mcnemar(only_a, only_b),
    )


def _find(score: Score, detector: str) -> DetectorScore:
    if detector not in score.detectors:
        known = ", ".join(score.detectors) or "none"
        raise UsageError(
            f"{score.source or 'The score'} has no detector {detector!r}.", f"of {known}"
        )
    return score[detector]


def _resampling(score: Score) -> Resampling:
    settings = score.settings
    alone = range(settings["jobs"])
    cluster = np.array(list(settings.get("components", {}).values()) or alone, np.int64)
    return Resampling(cluster, settings["resamples"], settings["seed"])


def _deltas(
    left: DetectorScore, right: DetectorScore, a: Sheet, b: Sheet, resampling: Resampling
) -> dict[str, Delta]:
    sampled_a, sampled_b = resampling.sample(a.parts), resampling.sample(b.parts)
    deltas = {}
    for key in left.metrics:
        if key in a.parts and key in b.parts:
            delta = sampled_a[key] - sampled_b[key]
            clusters = resampling.count(a.parts[key].touched | b.parts[key].touched)
            defined = delta[~np.isnan(delta)]
            share = float(np.mean(defined > 0)) if len(defined) else None
            interval = bounds(delta, clusters)
        elif key in right.metrics and key.startswith("latency_") and key.endswith("_all"):
            why = "no interval: a quantile is not made of parts of jobs"
            share, interval = None, Interval(None, None, 0.0, 0, why)
        else:
            continue
        value_a, value_b = with_infinity(left, key), with_infinity(right, key)
        deltas[key] = Delta(value_a, value_b, _apart(value_a, value_b), interval, share)
    return deltas


def _apart(a: Number, b: Number) -> Number:
    if a is None or b is None or a == b == math.inf:
        return None
    return a - b


def _column(rows: Sequence[Mapping[str, Number]], key: str) -> NDArray[np.float64]:
    return np.array([np.nan if row[key] is None else row[key] for row in rows], np.float64)


def _sheet(rows: Sequence[Mapping[str, Number]]) -> Sheet:
    """The parts of metrics, taken back out of per-job rows."""

    def column(key: str) -> NDArray[np.float64]:
        return _column(rows, key)

    def whole(key: str) -> NDArray[np.int64]:
        return _column(rows, key).astype(np.int64)

    sheet = Sheet(Groups.whole(len(rows)))
    counts = Counts(whole("tp"), whole("fp"), whole("fn"), whole("tn"))
    node_rates(sheet, counts)
    states = (column(f"job_{state}") > 0 for state in ("tp", "fp", "fn", "tn"))
    job_rates(sheet, JobCounts(*states))
    false_alarms(sheet, counts.fp, column("negative_node_hours"))
    score_cost(sheet, column("cost"), column("cost_null"))
    for key in rows[0] if rows else ():
        if key.startswith(_MEANS):
            many = (~np.isnan(column(key))).astype(np.int64)
        elif key.startswith(_ELIGIBLE):
            zero = key.split("_", 2 + key.startswith("recall"))[-1]
            many = counts.tp + counts.fn - whole(f"positives_zero_undefined_{zero}")
        else:
            continue
        sheet.ratio(key, np.where(many > 0, column(key) * many, 0.0), many, "no job has it")
    return sheet
