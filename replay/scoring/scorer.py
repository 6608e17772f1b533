"""The scorer: (trace, verdicts, policy) → score."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from replay.errors import TraceError
from replay.scoring.accuracy import Counts, accuracy, churn, population
from replay.scoring.cost import cost
from replay.scoring.curves import amoc, delay_curves
from replay.scoring.delay import Delays, delay
from replay.scoring.intervals import judge, rows_by_detector
from replay.scoring.log import VerdictLog
from replay.scoring.policy import Policy
from replay.scoring.ranking import ranking
from replay.scoring.resampling import Interval, Resampling
from replay.scoring.sheet import Groups, Number, Sheet
from replay.scoring.truth import Truth, data_hash, onsets_beside
from replay.scoring.wall import publish_lag, wall

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from replay.errors import DetectorError
    from replay.scoring.intervals import Blame, Rows
    from replay.scoring.truth import Onsets
    from replay.traces import Trace

__all__ = [
    "SCHEMA",
    "DetectorScore",
    "Score",
    "Stratum",
    "blank",
    "finite",
    "score",
    "with_infinity",
]

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Stratum:
    """The score of one detector on some of the jobs.

    Attributes:
        jobs: How many jobs.
        metrics: Name → value; None where undefined.
        undefined: Name → why it is undefined.
    """

    jobs: int
    metrics: Mapping[str, Number]
    undefined: Mapping[str, str]

    def document(self) -> dict[str, Any]:
        """The score by name."""
        return {
            "jobs": self.jobs,
            "metrics": dict(self.metrics),
            "undefined": dict(self.undefined),
        }


@dataclass(frozen=True, slots=True)
class DetectorScore:
    """The score of one detector.

    Attributes:
        metrics: Name → value; None where undefined.
        undefined: Name → why it is undefined.
        jobs: Job → name → value.
        intervals: Name → 95 % interval.
        strata: Property of jobs → its value → the score on those jobs.
        baseline: A reference that every real detector has to beat.
        curves: Threshold sweep and delay curves, if asked for.
        failures: Job that it crashed on → what happened. It was silent from there on.
    """

    metrics: Mapping[str, Number]
    undefined: Mapping[str, str]
    jobs: Mapping[str, Mapping[str, Number]] = field(repr=False)
    intervals: Mapping[str, Interval] = field(default_factory=dict, repr=False)
    strata: Mapping[str, Mapping[str, Stratum]] = field(default_factory=dict, repr=False)
    baseline: bool = False
    curves: Mapping[str, Any] | None = field(default=None, repr=False)
    failures: Mapping[str, str] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """The score by name."""
        found: dict[str, Any] = {
            "baseline": self.baseline,
            "metrics": dict(self.metrics),
            "undefined": dict(self.undefined),
            "intervals": {key: found.document() for key, found in self.intervals.items()},
            "jobs": {job: dict(row) for job, row in self.jobs.items()},
        }
        if self.strata:
            found["strata"] = {
                by: {value: stratum.document() for value, stratum in strata.items()}
                for by, strata in self.strata.items()
            }
        if self.curves is not None:
            found["curves"] = dict(self.curves)
        if self.failures:
            found["failures"] = dict(self.failures)
        return found

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> Self:
        """Read what :meth:`document` wrote."""
        return cls(
            metrics=document["metrics"],
            undefined=document["undefined"],
            jobs=document["jobs"],
            intervals={
                key: Interval(**found) for key, found in document.get("intervals", {}).items()
            },
            strata={
                by: {value: Stratum(**found) for value, found in strata.items()}
                for by, strata in document.get("strata", {}).items()
            },
            baseline=document.get("baseline", False),
            curves=document.get("curves"),
            failures=document.get("failures", {}),
        )


def with_infinity(scored: DetectorScore | Stratum, key: str) -> Number:
    """A metric, infinite where only misses keep it from being a number; None where undefined."""
    if scored.undefined.get(key, "").startswith("infinite"):
        return math.inf
    return scored.metrics.get(key)


def finite(value: Number) -> Number:
    """A number as JSON can say it: None where it is infinite."""
    return None if value is None or math.isinf(value) else value


@dataclass(frozen=True, slots=True)
class Score:
    """What a set of verdicts is worth.

    Attributes:
        detectors: Name → score, in declared order.
        settings: What the score depends on: data, policy, seed, versions.
        source: Where it was read from, if it was.
    """

    detectors: Mapping[str, DetectorScore]
    settings: Mapping[str, Any] = field(repr=False)
    source: str = ""

    def __getitem__(self, detector: str) -> DetectorScore:
        return self.detectors[detector]

    def document(self) -> dict[str, Any]:
        """The score as one JSON document; null for what is undefined."""
        return {
            "schema": SCHEMA,
            "detectors": {name: scored.document() for name, scored in self.detectors.items()},
            "settings": dict(self.settings),
        }

    def json(self) -> str:
        """The document as text; the same score gives the same bytes."""
        return json.dumps(self.document(), ensure_ascii=False, allow_nan=False, indent=1) + "\n"

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a score from the folder of a run, or from the file in it.

        Raises:
            TraceError: It is no score.
        """
        file = Path(path)
        if file.is_dir():
            file /= "score.json"
        try:
            document = json.loads(file.read_text("utf-8"))
            if document["schema"] != SCHEMA:
                raise TraceError(
                    "an unknown schema", str(file), column="schema", value=repr(document["schema"])
                )
            detectors = {
                name: DetectorScore.of_document(found)
                for name, found in document["detectors"].items()
            }
            return cls(detectors, document["settings"], str(path))
        except FileNotFoundError as error:
            raise TraceError("there is no such file", str(file), remedy="a run's folder") from error
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise TraceError(
                "not a score", str(file), remedy="the score.json that a run wrote"
            ) from error


def blank(trace: Trace, detectors: Sequence[str], policy: Policy) -> Score:
    """The score of detectors that have said nothing yet: every metric's name, at little cost."""
    return score(
        trace,
        VerdictLog.of(trace, [], detectors),
        policy=replace(policy, resamples=0),
        detectors=detectors,
        onsets=onsets_beside(trace.source),
    )


def score(
    trace: Trace,
    log: VerdictLog,
    *,
    policy: Policy | None = None,
    detectors: Sequence[str] = (),
    baselines: Iterable[str] = (),
    onsets: Onsets | None = None,
    publish_lag_ms: NDArray[np.float64] | None = None,
    curves: bool = False,
    failures: Iterable[DetectorError] = (),
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
        publish_lag_ms: float64[n] of a live run: milliseconds by which each alert left late.
        curves: Also sweep thresholds and draw delay curves.
        failures: Detectors that crashed, each on a job.
        settings: What else to record beside the score: speed, seed, ``comparable=False`` if some
            jobs were left out.

    Raises:
        TraceError: A verdict is about a job that the trace does not have.
        UsageError: A label is not in the label map.
    """
    policy = policy or Policy()
    truth = Truth.of(trace, policy.labels, onsets)
    names = [*detectors, *sorted(set(log.words("detector")) - set(detectors))]
    components = truth.components() if policy.cluster == "component" else None
    cluster = np.arange(len(truth.jobs)) if components is None else components
    resampling = Resampling(cluster, policy.resamples, policy.seed)
    sheets = _Sheets(truth, policy, log, resampling, publish_lag_ms)
    reference = set(baselines)
    crashed: dict[str, dict[str, str]] = {}
    for failure in failures:
        crashed.setdefault(failure.detector, {})[failure.job] = failure.what
    scored = {
        name: replace(
            sheets.score(rows, baseline=name in reference, curves=curves),
            failures=crashed.get(name, {}),
        )
        for name, rows in rows_by_detector(log, truth, names)
    }
    about = _settings(trace, truth, policy)
    if components is not None:
        about["components"] = dict(zip(truth.jobs, components.tolist(), strict=True))
    return Score(scored, about | dict(settings or {}))


@dataclass(frozen=True, slots=True)
class _Sheets:
    """Fills in the sheets of one detector after another."""

    truth: Truth
    policy: Policy
    log: VerdictLog
    resampling: Resampling
    publish_lag_ms: NDArray[np.float64] | None

    def score(self, rows: Rows, *, baseline: bool, curves: bool) -> DetectorScore:
        """Judge one detector's rows: all jobs, each job, each stratum."""
        truth, policy = self.truth, self.policy
        blame = judge(rows, truth, policy)
        whole = self._sheet(rows, blame, Groups.whole(len(truth.jobs)))
        if self.publish_lag_ms is not None:
            publish_lag(whole, self.publish_lag_ms)
        each = self._sheet(rows, blame, Groups.each(truth.jobs))
        metrics, undefined = whole.column(0)
        return DetectorScore(
            metrics=metrics,
            undefined=undefined,
            jobs=dict(zip(truth.jobs, each.rows(), strict=True)),
            intervals=self._intervals(whole, blame),
            strata={by: self._strata(rows, blame, by) for by in policy.by},
            baseline=baseline,
            curves=self._curves(rows, blame) if curves else None,
        )

    def _sheet(self, rows: Rows, blame: Blame, groups: Groups) -> Sheet:
        truth, policy = self.truth, self.policy
        sheet = Sheet(groups)
        counts = Counts.of(truth, blame)
        accuracy(sheet, truth, blame, counts)
        ranking(sheet, truth, blame)
        delay(sheet, truth, blame, policy)
        cost(sheet, truth, blame, counts, policy.cost)
        churn(sheet, truth, blame)
        population(sheet, truth)
        wall(sheet, truth, blame, rows, self.log)
        return sheet

    def _strata(self, rows: Rows, blame: Blame, by: str) -> dict[str, Stratum]:
        groups = Groups.by({"gpu_generation": self.truth.generation}[by])
        sheet = self._sheet(rows, blame, groups)
        jobs = np.bincount(groups.of_job, minlength=len(groups)).tolist()
        return {
            name: Stratum(jobs[number], *sheet.column(number))
            for number, name in enumerate(groups.names)
        }

    def _intervals(self, sheet: Sheet, blame: Blame) -> dict[str, Interval]:
        truth = self.truth
        quantiles = [
            Delays.of(truth, blame, zero).quantiles(
                {f"latency_{name}_p{percent}_all": percent for percent in (50, 90)}
            )
            for name, zero in truth.zeros.items()
        ]
        return self.resampling.intervals(sheet.parts, quantiles)

    def _curves(self, rows: Rows, blame: Blame) -> dict[str, Any]:
        return {
            "amoc": amoc(rows, self.truth, self.policy),
            "delay": delay_curves(self.truth, blame),
        }


def _settings(trace: Trace, truth: Truth, policy: Policy) -> dict[str, Any]:
    return {
        "data_hash": data_hash(trace),
        "jobs": len(truth.jobs),
        "positives": int(np.count_nonzero(truth.positive)),
        "negatives": int(np.count_nonzero(truth.negative)),
        "labels": truth.label_counts(),
        **policy.document(),
        "comparable": True,
        "versions": {"alert-replay": version("alert-replay"), "numpy": np.__version__},
    }
