"""What verdicts are worth: (trace, verdicts, policy) → score. Pure; the only room with the truth."""

from __future__ import annotations

from replay.scoring.gate import Drop, Gate, GateResult, check, lower_is_better
from replay.scoring.keeping import keep, make_room
from replay.scoring.log import ROWS, VerdictLog, read_log, verdict_row
from replay.scoring.paired import Comparison, Delta, compare, mcnemar
from replay.scoring.policy import PROFILES, Cost, LabelMap, Policy
from replay.scoring.resampling import Interval
from replay.scoring.scorer import (
    SCHEMA,
    DetectorScore,
    Score,
    Stratum,
    blank,
    finite,
    score,
    with_infinity,
)
from replay.scoring.truth import Onsets, Truth, data_hash, onsets_beside, read_onsets

__all__ = [
    "PROFILES",
    "ROWS",
    "SCHEMA",
    "Comparison",
    "Cost",
    "Delta",
    "DetectorScore",
    "Drop",
    "Gate",
    "GateResult",
    "Interval",
    "LabelMap",
    "Onsets",
    "Policy",
    "Score",
    "Stratum",
    "Truth",
    "VerdictLog",
    "blank",
    "check",
    "compare",
    "data_hash",
    "finite",
    "keep",
    "lower_is_better",
    "make_room",
    "mcnemar",
    "onsets_beside",
    "read_log",
    "read_onsets",
    "score",
    "verdict_row",
    "with_infinity",
]
