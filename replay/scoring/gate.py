"""Gates: what a score must not be, for a build to pass."""

from __future__ import annotations

import difflib
import operator
import re
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Self

from replay.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from replay.scoring.scorer import Score

__all__ = ["Drop", "Gate", "GateResult", "check", "lower_is_better"]

_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_GATE = re.compile(
    r"(?:(?P<detector>.+?)\s*:\s*)?(?P<metric>\S+?)\s*(?P<sign><=|>=|<|>)\s*(?P<limit>\S+)"
)
_WALL = re.compile(r".*_ms_.*|live_1x_.*")
_LESS = re.compile(
    r"(job_)?(fp|fn)|fpr|latency_.*|job_latency_.*|rmdd_.*|km_median_.*|km_rmst_.*|cost|.*false_alarm.*"
    r"|collateral_per_hit|.*_raised|earliness_mean|.*_ms_.*|live_1x_.*|late_.*|early_verdicts"
    r"|fp_node_seconds|job_alerts_seen_mean|reraises|retractions|revisions|orphan_retractions"
)


def lower_is_better(metric: str) -> bool:
    """Whether less of a metric is better.

    Examples:
        >>> lower_is_better("latency_start_p50"), lower_is_better("f1"), lower_is_better("cost_score")
        (True, False, False)

    """
    return _LESS.fullmatch(metric) is not None


@dataclass(frozen=True, slots=True)
class GateResult:
    """One gate on one detector.

    Attributes:
        gate: The gate, in words.
        detector: The detector it was held against.
        passed: Whether the gate is met.
        message: What was found, unrounded.
    """

    gate: str
    detector: str
    passed: bool
    message: str


@dataclass(frozen=True, slots=True)
class Gate:
    """Fails where ``metric sign limit`` holds, and where the metric is undefined.

    Attributes:
        metric: Its name.
        sign: ``<``, ``<=``, ``>`` or ``>=``.
        limit: Of the metric.
        detector: The only detector to hold it against; None for all that are no references.
    """

    metric: str
    sign: str
    limit: float
    detector: str | None = None

    def __str__(self) -> str:
        return f"{self.metric} {self.sign} {self.limit:g}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``"recall_at_300_job_alert < 0.8"`` or ``"burst: f1 < 0.5"``.

        Raises:
            UsageError: It is not of that form.

        Examples:
            >>> Gate.parse("burst: f1<0.50")
            Gate(metric='f1', sign='<', limit=0.5, detector='burst')

        """
        found = _GATE.fullmatch(text.strip())
        limit = _finite(found["limit"]) if found else None
        if not found or limit is None:
            raise UsageError(f"{text!r} is not a gate.", '"f1 < 0.8" or "burst: f1 < 0.8"')
        return cls(found["metric"], found["sign"], limit, found["detector"])

    @property
    def is_of_the_wall(self) -> bool:
        """Whether its metric is about wall time, and exists in live scores only."""
        return _WALL.fullmatch(self.metric) is not None

    def check(self, score: Score) -> Iterator[GateResult]:
        """Hold it against every detector it is for.

        Raises:
            UsageError: There is no such metric or detector.
        """
        for detector in _detectors(score, self.detector):
            value = _metric(score, detector, self.metric)
            if value is None:
                yield GateResult(str(self), detector, False, _null(score, detector, self.metric))
            else:
                passed = not _OPERATORS[self.sign](value, self.limit)
                yield GateResult(str(self), detector, passed, f"{self.metric} is {value!r}")


@dataclass(frozen=True, slots=True)
class Drop:
    """Fails where a metric got worse than in an earlier score by more than allowed.

    Attributes:
        metric: Its name.
        most: How much worse it may be.
    """

    metric: str
    most: float

    def __str__(self) -> str:
        return f"{self.metric} drops by at most {self.most:g}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``"f1=0.02"``.

        Raises:
            UsageError: It is not of that form.
        """
        metric, _, number = text.partition("=")
        most = _finite(number)
        if not metric.strip() or most is None or most < 0:
            raise UsageError(f"{text!r} is not a largest drop.", "--max-drop f1=0.02")
        return cls(metric.strip(), most)

    def check(self, score: Score, baseline: Score) -> Iterator[GateResult]:
        """Hold every detector that is no reference against itself in the earlier score.

        Raises:
            UsageError: There is no such metric.
        """
        for detector in _detectors(baseline, None):
            before = _metric(baseline, detector, self.metric)
            if detector not in score.detectors:
                yield GateResult(str(self), detector, False, "the detector is missing")
                continue
            value = _metric(score, detector, self.metric)
            if value is None or before is None:
                null = score if value is None else baseline
                yield GateResult(str(self), detector, False, _null(null, detector, self.metric))
                continue
            worse = value - before if lower_is_better(self.metric) else before - value
            message = f"{self.metric} went from {before!r} to {value!r}"
            yield GateResult(str(self), detector, worse <= self.most, message)


def check(
    score: Score,
    gates: Sequence[Gate],
    drops: Sequence[Drop] = (),
    baseline: Score | None = None,
) -> list[GateResult]:
    """Hold a score against its gates.

    Args:
        score: The score.
        gates: What it must not be.
        drops: How much worse than ``baseline`` it may be.
        baseline: An earlier score on the same data.

    Raises:
        UsageError: A metric or detector does not exist, or the baseline is about other data.
    """
    if drops and baseline is None:
        raise UsageError("A largest drop needs something to drop from.", "--baseline score.json")
    results = [result for gate in gates for result in gate.check(score)]
    if baseline is not None:
        if baseline.settings["data_hash"] != score.settings["data_hash"]:
            raise UsageError(
                f"The baseline {baseline.source} was scored on other data.", "score the same trace"
            )
        results += [result for drop in drops for result in drop.check(score, baseline)]
    return results


def _detectors(score: Score, only: str | None) -> list[str]:
    """The detector asked for; else all that are no references; else all."""
    if only is None:
        real = [name for name, scored in score.detectors.items() if not scored.baseline]
        return real or list(score.detectors)
    if only not in score.detectors:
        known = ", ".join(score.detectors) or "none"
        raise UsageError(
            f"A gate names the detector {only!r}, which was not scored.", f"of {known}"
        )
    return [only]


def _metric(score: Score, detector: str, metric: str) -> float | None:
    metrics = score[detector].metrics
    if metric not in metrics:
        close = difflib.get_close_matches(metric, metrics, 5, 0.0)
        raise UsageError(f"There is no metric {metric!r}.", ", ".join(close))
    return metrics[metric]


def _null(score: Score, detector: str, metric: str) -> str:
    return f"{metric} is undefined: {score[detector].undefined.get(metric, 'null')}"


def _finite(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if isfinite(number) else None
