"""The scorer: (trace, verdicts, policy) → score."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from replay.scoring.accuracy import Counts, accuracy, churn, population
from replay.scoring.delay import delay
from replay.scoring.intervals import judge, rows_by_detector
from replay.scoring.policy import Policy
from replay.scoring.sheet import Groups, Number, Sheet
from replay.scoring.truth import Truth, data_hash

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from replay.scoring.intervals import Blame
    from replay.scoring.log import VerdictLog
    from replay.scoring.truth import Onsets
    from replay.traces import Trace

__all__ = ["SCHEMA", "DetectorScore", "Score", "score"]

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class DetectorScore:
    """The score of one detector.

    Attributes:
        metrics: Name → value; None where undefined.
        undefined: Name → why it is undefined.
        jobs: Job → name → value.
        baseline: A reference that every real detector has to beat.
    """

    metrics: Mapping[str, Number]
    undefined: Mapping[str, str]
    jobs: Mapping[str, Mapping[str, Number]] = field(repr=False)
    baseline: bool = False


@dataclass(frozen=True, slots=True)
class Score:
    """What a set of verdicts is worth.

    Attributes:
        detectors: Name → score, in declared order.
        settings: What the score depends on: data, policy, seed, versions.
    """

    detectors: Mapping[str, DetectorScore]
    settings: Mapping[str, Any] = field(repr=False)

    def __getitem__(self, detector: str) -> DetectorScore:
        return self.detectors[detector]

    def document(self) -> dict[str, Any]:
        """The score as one JSON document; null for what is undefined."""
        return {
            "schema": SCHEMA,
            "detectors": {
                name: {
                    "baseline": scored.baseline,
                    "metrics": dict(scored.metrics),
                    "undefined": dict(scored.undefined),
                    "jobs": {job: dict(row) for job, row in scored.jobs.items()},
                }
                for name, scored in self.detectors.items()
            },
            "settings": dict(self.settings),
        }


def score(
    trace: Trace,
    log: VerdictLog,
    *,
    policy: Policy | None = None,
    detectors: Sequence[str] = (),
    baselines: Iterable[str] = (),
    onsets: Onsets | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Score:
    """Score verdicts against the truth of a trace.

    Pure: the same rows in another order, jobs in another order, and the keys of ``ip_status`` in
    another order give the same score to the last bit.

    Args:
        trace: The trace, with its truth.
        log: The verdicts.
        policy: How to judge them.
        detectors: Declared detectors, in the order to list them in; one that said nothing is
            scored all the same. Others in the log follow in the order of their names.
        baselines: Which of them are references.
        onsets: When faults began, where that is known; gives the zero ``onset``.
        settings: What else to record beside the score: speed, seed, whether jobs were filtered.

    Raises:
        TraceError: A verdict is about a job that the trace does not have.
        UsageError: A label is not in the label map.
    """
    policy = policy or Policy()
    truth = Truth.of(trace, policy.labels, onsets)
    names = [*detectors, *sorted(set(log.words("detector")) - set(detectors))]
    reference = set(baselines)
    scored = {
        name: _score(truth, judge(rows, truth, policy), policy, baseline=name in reference)
        for name, rows in rows_by_detector(log, truth, names)
    }
    return Score(scored, _settings(trace, truth, policy, settings or {}))


def _score(truth: Truth, blame: Blame, policy: Policy, *, baseline: bool) -> DetectorScore:
    whole = _sheet(truth, blame, policy, Groups.whole(len(truth.jobs)))
    each = _sheet(truth, blame, policy, Groups.each(truth.jobs))
    metrics, undefined = whole.column(0)
    jobs = {job: each.column(number)[0] for number, job in enumerate(truth.jobs)}
    return DetectorScore(metrics, undefined, jobs, baseline)


def _sheet(truth: Truth, blame: Blame, policy: Policy, groups: Groups) -> Sheet:
    sheet = Sheet(groups)
    accuracy(sheet, truth, blame, Counts.of(truth, blame))
    churn(sheet, truth, blame)
    population(sheet, truth)
    delay(sheet, truth, blame, policy)
    return sheet


def _settings(
    trace: Trace, truth: Truth, policy: Policy, more: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "data_hash": data_hash(trace),
        "jobs": len(truth.jobs),
        "positives": int(np.count_nonzero(truth.positive)),
        "negatives": int(np.count_nonzero(truth.negative)),
        "labels": truth.label_counts(),
        **policy.document(),
        "versions": {"alert-replay": version("alert-replay"), "numpy": np.__version__},
        **more,
    }
