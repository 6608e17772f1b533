"""Curves as data: thresholds swept (activity monitoring), and recall against delay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from replay.scoring.accuracy import Counts, accuracy
from replay.scoring.delay import Delays, delay, kaplan_meier, seconds
from replay.scoring.intervals import judge
from replay.scoring.sheet import Groups, Sheet

if TYPE_CHECKING:
    from replay.scoring.intervals import Blame, Rows
    from replay.scoring.policy import Policy
    from replay.scoring.sheet import Number
    from replay.scoring.truth import Truth

__all__ = ["amoc", "delay_curves"]

MOST_THRESHOLDS = 50


def amoc(rows: Rows, truth: Truth, policy: Policy) -> list[dict[str, Number]]:
    """Activity monitoring operating characteristic (Fawcett and Provost, 1999).

    At each threshold the detector is judged as if it had not said the raises that score less; a
    retract stays. Thresholds are the distinct scores, from the highest; of very many, evenly
    spread ones.

    Returns:
        One row per threshold: false alarms per 1000 node-hours, and recall, median delay and area
        under recall against time for every zero, named as in the score.
    """
    scores = np.unique(rows.score[rows.raises])[::-1]
    if len(scores) > MOST_THRESHOLDS:
        scores = scores[np.linspace(0, len(scores) - 1, MOST_THRESHOLDS).round().astype(np.int64)]
    return [_at(float(threshold), rows, truth, policy) for threshold in scores]


def _at(threshold: float, rows: Rows, truth: Truth, policy: Policy) -> dict[str, Number]:
    blame = judge(rows.where(~rows.raises | (rows.score >= threshold)), truth, policy)
    sheet = Sheet(Groups.whole(len(truth.jobs)))
    accuracy(sheet, truth, blame, Counts.of(truth, blame))
    delay(sheet, truth, blame, policy)
    metrics, _ = sheet.column(0)
    shown = ["tp", "fp", "recall", "false_alarms_per_1000_node_hours"]
    for zero in truth.zeros:
        shown.append(f"latency_{zero}_p50_all")
        shown.extend(f"aurt_{seconds(limit)}_{zero}" for limit in policy.within)
    return {"threshold": threshold} | {key: metrics[key] for key in shown}


def delay_curves(truth: Truth, blame: Blame) -> dict[str, dict[str, Any]]:
    """Share of the eligible positives detected by each delay, from every zero.

    Returns:
        Zero → ``eligible`` (how many), ``delay_s`` and ``recall`` (the step function, misses in
        its denominator), ``km_delay_s`` and ``km_recall`` (the same with misses censored at the
        job's end).
    """
    curves = {}
    for name, zero in truth.zeros.items():
        delays = Delays.of(truth, blame, zero)
        steps, counts = np.unique(delays.ns[delays.hit], return_counts=True)
        times, share = kaplan_meier(delays.observed_ns, delays.hit)
        curves[name] = {
            "eligible": len(delays.hit),
            "delay_s": (steps / 1e9).tolist(),
            "recall": (np.cumsum(counts) / max(len(delays.hit), 1)).tolist(),
            "km_delay_s": (times / 1e9).tolist(),
            "km_recall": (1 - share).tolist(),
        }
    return curves
