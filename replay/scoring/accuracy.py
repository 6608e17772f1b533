"""Who was blamed, rightly and wrongly: nodes, jobs, false alarms per node-hour, churn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from replay.scoring.sheet import divide
from replay.scoring.truth import IGNORED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from replay.scoring.intervals import Blame
    from replay.scoring.sheet import Sheet
    from replay.scoring.truth import Truth

__all__ = [
    "Counts",
    "JobCounts",
    "accuracy",
    "churn",
    "f_beta",
    "false_alarms",
    "job_rates",
    "job_states",
    "node_rates",
    "population",
]

HOUR_NS = 3_600_000_000_000
RULE_OF_THREE = 2.995732
"""-ln 0.05: with no event seen in H hours, the mean time between events is above H / this, at 95 %."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Right and wrong by job, int64[J] each."""

    tp: NDArray[np.int64]
    fp: NDArray[np.int64]
    fn: NDArray[np.int64]
    tn: NDArray[np.int64]

    @classmethod
    def of(cls, truth: Truth, blame: Blame) -> Self:
        """Count raised and silent nodes of the population."""
        return cls(
            tp=truth.job_sum(truth.positive & blame.raised),
            fp=truth.job_sum(truth.negative & blame.raised),
            fn=truth.job_sum(truth.positive & ~blame.raised),
            tn=truth.job_sum(truth.negative & ~blame.raised),
        )


def f_beta(beta: float) -> Any:
    """The formula of F-beta over (tp, fp, fn); NaN only where all three are 0."""
    square = beta * beta

    def formula(tp: NDArray[Any], fp: NDArray[Any], fn: NDArray[Any]) -> NDArray[np.float64]:
        return divide((1 + square) * tp, (1 + square) * tp + square * fn + fp)

    return formula


def _mcc(
    tp: NDArray[Any], fp: NDArray[Any], fn: NDArray[Any], tn: NDArray[Any]
) -> NDArray[np.float64]:
    tp, fp, fn, tn = (np.asarray(part, np.float64) for part in (tp, fp, fn, tn))
    # in pairs: the product of all four margins of a large trace would lose digits
    margins = np.sqrt((tp + fp) * (tn + fn)) * np.sqrt((tp + fn) * (tn + fp))
    return np.clip(divide(tp * tn - fp * fn, margins), -1, 1)


def _balanced(
    tp: NDArray[Any], fp: NDArray[Any], fn: NDArray[Any], tn: NDArray[Any]
) -> NDArray[np.float64]:
    balanced: NDArray[np.float64] = (divide(tp, tp + fn) + divide(tn, tn + fp)) / 2
    return balanced


@dataclass(frozen=True, slots=True)
class JobCounts:
    """Alarmed and silent jobs, bool[J] each; a job without a labelled node is in none of them."""

    tp: NDArray[Any]
    fp: NDArray[Any]
    fn: NDArray[Any]
    tn: NDArray[Any]

    @classmethod
    def of(cls, truth: Truth, blame: Blame) -> Self:
        """Tell right alarms from wrong ones."""
        faulty, healthy = job_states(truth)
        return cls(
            tp=faulty & blame.alarmed,
            fp=healthy & blame.alarmed,
            fn=faulty & ~blame.alarmed,
            tn=healthy & ~blame.alarmed,
        )


def job_states(truth: Truth) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Positive jobs (a positive node) and negative ones (a negative node and no positive)."""
    faulty = truth.job_sum(truth.positive) > 0
    return faulty, (truth.job_sum(truth.negative) > 0) & ~faulty


def accuracy(sheet: Sheet, truth: Truth, blame: Blame, counts: Counts) -> None:
    """Everything that depends on who was blamed, not on when."""
    node_rates(sheet, counts)
    _outside(sheet, truth, blame, counts)
    job_rates(sheet, JobCounts.of(truth, blame))
    false_alarms(sheet, counts.fp, (counts.fp + counts.tn) * truth.end_ns / HOUR_NS)


def node_rates(sheet: Sheet, counts: Counts) -> None:
    """Rates over nodes, pooled and averaged over jobs."""
    tp, fp, fn, tn = counts.tp, counts.fp, counts.fn, counts.tn
    for key, values in (("tp", tp), ("fp", fp), ("fn", fn), ("tn", tn)):
        sheet.count(key, values)
    sheet.ratio("precision", tp, tp + fp, "no labelled node was raised")
    sheet.ratio("recall", tp, tp + fn, "there is no positive node")
    for key, beta in (("f1", 1.0), ("f0_5", 0.5), ("f2", 2.0)):
        why = "there is no positive node and none was raised"
        sheet.formula(key, f_beta(beta), (tp, fp, fn), why)
    sheet.ratio("fpr", fp, fp + tn, "there is no negative node")
    sheet.formula("mcc", _mcc, (tp, fp, fn, tn), "a margin of the two-by-two table is empty")
    why = "there is no positive node, or no negative one"
    sheet.formula("balanced_accuracy", _balanced, (tp, fp, fn, tn), why)
    sheet.ratio("prevalence", tp + fn, tp + fp + fn + tn, "no node is labelled")
    for name, rates in (
        ("precision", divide(tp, tp + fp)),
        ("recall", divide(tp, tp + fn)),
        ("f1", f_beta(1.0)(tp, fp, fn)),
    ):
        defined = ~np.isnan(rates)
        why = f"{name} is undefined in every job"
        sheet.ratio(f"{name}_macro", np.where(defined, rates, 0.0), defined, why)
        sheet.count(f"{name}_macro_n", defined)
    matched = (fp == 0) & (fn == 0)
    sheet.ratio("exact_match_rate", matched, np.ones_like(matched), "there is no job")
    jaccard = divide(tp, tp + fp + fn)
    defined = ~np.isnan(jaccard)
    why = "no job has a positive or a raised node"
    sheet.ratio("jaccard_mean", np.where(defined, jaccard, 0.0), defined, why)
    sheet.ratio("collateral_per_hit", np.where(tp > 0, fp, 0), tp, "there is no hit")


def _outside(sheet: Sheet, truth: Truth, blame: Blame, counts: Counts) -> None:
    """Blame beyond the population and beyond the window, and recall label by label."""
    ignored = truth.job_sum((truth.state == IGNORED) & blame.raised)
    sheet.count("ignored_raised", ignored)
    sheet.count("unlabelled_raised", blame.strangers)
    sheet.count("phantom_raised", blame.phantoms)
    everything = counts.tp + counts.fp + ignored + blame.strangers + blame.phantoms
    sheet.ratio("precision_strict", counts.tp, everything, "no node was raised")
    sheet.count("late_tp", truth.job_sum(truth.positive & blame.late))
    sheet.count("late_fp", truth.job_sum(truth.negative & blame.late))
    for number, label in enumerate(truth.labels):
        if truth.label_meanings[number] == "positive":
            one = truth.label == number
            sheet.ratio(
                f"recall_status_{label}",
                truth.job_sum(one & blame.raised),
                truth.job_sum(one),
                "no node has this label",
            )


def job_rates(sheet: Sheet, counts: JobCounts) -> None:
    """Rates over jobs."""
    tp, fp, fn, tn = counts.tp, counts.fp, counts.fn, counts.tn
    for key, values in (("job_tp", tp), ("job_fp", fp), ("job_fn", fn), ("job_tn", tn)):
        sheet.count(key, values)
    sheet.ratio("job_precision", tp, tp | fp, "no labelled job was alarmed")
    sheet.ratio("job_recall", tp, tp | fn, "there is no positive job")
    why = "there is no positive job and none was alarmed"
    sheet.formula("job_f1", f_beta(1.0), (tp, fp, fn), why)
    sheet.ratio("healthy_job_false_alarm_rate", fp, fp | tn, "there is no negative job")


def false_alarms(sheet: Sheet, false: NDArray[np.int64], hours: NDArray[np.float64]) -> None:
    """False alarms against the hours that healthy nodes were watched."""
    sheet.count("negative_node_hours", hours)
    why = "no negative node was watched for any time"
    sheet.ratio("false_alarms_per_1000_node_hours", 1000 * false, hours, why)
    sheet.ratio("mtbfa_node_hours", hours, false, "there is no false alarm")
    total, wrong = sheet.values["negative_node_hours"], sheet.groups.sum(false)
    sheet.put(
        "mtbfa_lower95_node_hours",
        np.where((wrong == 0) & (total > 0), total / RULE_OF_THREE, np.nan),
        "there are false alarms: see mtbfa_node_hours",
        (total == 0, why),
    )


def churn(sheet: Sheet, truth: Truth, blame: Blame) -> None:
    """How often the detector spoke, and how long it kept nodes raised."""
    for key, values in blame.churn.items():
        sheet.count(key, values)
    for key, which in (("tp_node_seconds", truth.positive), ("fp_node_seconds", truth.negative)):
        held = np.zeros(len(truth.jobs), np.int64)
        np.add.at(held, truth.job[which], blame.held_ns[which])
        sheet.count(key, held / 1e9)


def population(sheet: Sheet, truth: Truth) -> None:
    """Facts about the truth that every rate rests on."""
    labelled = truth.positive | truth.negative
    silent = labelled & ~truth.zeros["node_alert"].known
    size = max(len(truth.nodes), 1)
    strangers = np.bincount(truth.stranger_keys // size, minlength=len(truth.jobs))
    sheet.count("labelled_nodes", truth.job_sum(labelled))
    sheet.count("labelled_nodes_without_event", truth.job_sum(silent))
    sheet.count("unlabelled_nodes_with_event", strangers)
