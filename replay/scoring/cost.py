"""What the mistakes and the waiting cost, against saying nothing at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from replay.scoring.accuracy import job_states
from replay.scoring.sheet import divide

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from replay.scoring.accuracy import Counts
    from replay.scoring.intervals import Blame
    from replay.scoring.policy import Cost
    from replay.scoring.sheet import Sheet
    from replay.scoring.truth import Truth

__all__ = ["cost", "score_cost"]


def cost(sheet: Sheet, truth: Truth, blame: Blame, counts: Counts, weights: Cost) -> None:
    """Price every job; a hit whose zero does not exist pays for no delay."""
    late_s = np.zeros(len(truth.jobs))
    if weights.zero in truth.zeros:
        zero = truth.zeros[weights.zero]
        hit = truth.positive & blame.raised & zero.known
        waited_s = np.clip((blame.at_ns[hit] - zero.at_ns[hit]) / 1e9, 0, weights.tau_s)
        np.add.at(late_s, truth.job[hit], waited_s)
    _, healthy = job_states(truth)
    paid = (
        weights.c_fn * counts.fn
        + weights.c_fp * counts.fp
        + weights.c_delay_per_hour * late_s / 3600
        + weights.c_healthy_job_alarm * (healthy & blame.alarmed)
    )
    silence = weights.c_fn * (counts.tp + counts.fn)
    score_cost(sheet, paid, silence)


def score_cost(sheet: Sheet, paid: NDArray[Any], silence: NDArray[Any]) -> None:
    """What was paid, against what silence would have cost: 100 is perfect, 0 is silence."""
    sheet.count("cost", paid)
    sheet.count("cost_null", silence)
    sheet.formula("cost_score", _score, (paid, silence), "silence would cost nothing")


def _score(paid: NDArray[Any], silence: NDArray[Any]) -> NDArray[np.float64]:
    return divide(100 * (silence - paid), silence)
