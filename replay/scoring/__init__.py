"""What verdicts are worth: (trace, verdicts, policy) → score. Pure; the only room with the truth."""

from __future__ import annotations

from replay.scoring.log import ROWS, VerdictLog, read_log, verdict_row
from replay.scoring.policy import PROFILES, Cost, LabelMap, Policy
from replay.scoring.scorer import SCHEMA, DetectorScore, Score, score
from replay.scoring.truth import Onsets, Truth, data_hash, read_onsets

__all__ = [
    "PROFILES",
    "ROWS",
    "SCHEMA",
    "Cost",
    "DetectorScore",
    "LabelMap",
    "Onsets",
    "Policy",
    "Score",
    "Truth",
    "VerdictLog",
    "data_hash",
    "read_log",
    "read_onsets",
    "score",
    "verdict_row",
]
