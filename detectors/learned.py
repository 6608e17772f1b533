"""What other jobs teach: which kinds go with faults, and what guilt looks like in time.

Two layers, both fitted on jobs whose answer is known:

1. Log-odds. How much oftener do faulty nodes begin to raise a kind than normal ones, while the
   fleet is calm and while a storm is on (see :class:`detectors.windows.Storm`)? Each node of a job
   counts once per kind; Laplace's rule keeps rare kinds modest. No kind is known by name: a name is
   only a key into the table.
2. A logistic model over online features (:data:`detectors.suspects.FEATURES`): the weights of the
   kinds a node began to raise, how many other nodes raise them, whether repeats look like polling
   or like chatter, whether the fleet stumbles soon after, and so on.

:class:`LogOdds` uses the first layer alone, :class:`Learned` both. Thresholds are chosen on jobs
that the weights and coefficients were not fitted on, and below them the detectors abstain.

Source: log-level diagnosis drops what also appears in good jobs and ranks the rest by what sets
bad nodes apart; the features follow what papers on localization in training clusters look at.
Fitting needs scikit-learn (the ``learn`` extra); detecting does not.
"""

from __future__ import annotations

import functools
import json
import math
from abc import abstractmethod
from collections.abc import Mapping  # noqa: TC003 - the plug-in door reads the annotation
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detectors.docket import Docket
from detectors.fitting import SCHEMA, fit
from detectors.suspects import FEATURES, Suspects, Weights
from replay.api import Learner

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from detectors.suspects import Look, Suspect
    from replay.api import Alert, AlertBatch, Job, Lesson, Verdict

__all__ = ["Learned", "LogOdds", "Model"]

SHIPPED = Path(__file__).with_name("learned.json")
"""Fitted on synthetic traces: good for trying out, worth nothing on anybody's real alerts."""


@dataclass(frozen=True, slots=True)
class Model:
    """What was learned.

    Attributes:
        weights: Kind → log-odds, in calm and in storm.
        coefficients: One for each of :data:`detectors.suspects.FEATURES`.
        intercept: Of the logistic model.
        threshold: Probability from which on :class:`Learned` blames.
        odds: Sum of weights from which on :class:`LogOdds` blames.
    """

    weights: Weights
    coefficients: tuple[float, ...]
    intercept: float
    threshold: float
    odds: float

    @classmethod
    def read(cls, source: Path | Mapping[str, Any]) -> Model:
        """Take a model from its document, or from the JSON file that holds it.

        Raises:
            ValueError: It is not a model, or not of this version.
            OSError: The file cannot be read.
        """
        if isinstance(source, Path):
            return _read_file(source, source.stat().st_mtime_ns)
        try:
            if source["schema"] != SCHEMA:
                raise ValueError(f"the model's schema is {source['schema']!r}, not {SCHEMA!r}")
            coefficients = source["coefficients"]
            return cls(
                Weights(dict(source["weights"]["calm"]), dict(source["weights"]["storm"])),
                tuple(float(coefficients[name]) for name in FEATURES),
                float(source["intercept"]),
                float(source["threshold"]),
                float(source["odds"]),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a fitted model: {type(error).__name__} {error}") from error

    def probability(self, features: Sequence[float]) -> float:
        """How likely a suspect with these features is the culprit."""
        total = self.intercept
        for coefficient, value in zip(self.coefficients, features, strict=True):
            total += coefficient * value
        return 1.0 / (1.0 + math.exp(-max(-60.0, min(60.0, total))))


@functools.cache
def _read_file(path: Path, version: int) -> Model:  # noqa: ARG001 - a file that changed is read anew
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    return Model.read(document)


class _Fitted(Learner):
    """Blames suspects whose score reaches a threshold."""

    def __init__(
        self, job: Job, *, model: Path | Mapping[str, Any] | None, threshold: float | None
    ) -> None:
        super().__init__(job)
        self._model = Model.read(SHIPPED if model is None else model)
        self._threshold = self._fitted_threshold() if threshold is None else threshold
        self._suspects = Suspects(job, self._model.weights)
        self._docket = Docket(job)

    def observe(self, alert: Alert) -> Iterable[Verdict]:
        """Take the alert down; what it means shows when its delay is over."""
        self._suspects.add(alert)
        self.wake_at = self._suspects.due
        return ()

    def observe_batch(self, batch: AlertBatch) -> Iterable[Verdict]:
        """Take the alerts down; what they mean shows when their delay is over."""
        add = self._suspects.add
        for alert in batch.alerts:
            add(alert)
        self.wake_at = self._suspects.due
        return ()

    def advance(self, now: float) -> Iterable[Verdict]:
        """Look at the suspects about whom something may have changed."""
        looks = self._suspects.look(now)
        self.wake_at = self._suspects.due
        return self._judge(looks)

    def finish(self) -> Iterable[Verdict]:
        """Look at all suspects once more."""
        return self._judge(self._suspects.last_look())

    def _judge(self, looks: Iterable[Look]) -> list[Verdict]:
        verdicts: list[Verdict] = []
        for suspect, features in looks:
            score = self._score(features)
            if score >= self._threshold:
                verdicts += self._docket.blame(
                    suspect.node,
                    score=score,
                    reason=_in_words(suspect),
                    evidence=tuple(suspect.evidence),
                )
        return verdicts

    @abstractmethod
    def _score(self, features: Sequence[float]) -> float:
        """How much speaks against a suspect."""

    @abstractmethod
    def _fitted_threshold(self) -> float:
        """From which score on the model says to blame."""

    @classmethod
    def fit(cls, lessons: Sequence[Lesson]) -> dict[str, Any]:
        """Learn weights, coefficients and thresholds; serves both detectors of this module.

        Everything that is chosen is chosen on jobs that were held out, in five parts that keep
        groups together: coefficients on features made with other parts' weights, thresholds on
        scores made with other parts' coefficients.

        Args:
            lessons: Jobs whose answer is known.

        Returns:
            The model.

        Raises:
            ValueError: There is no faulty node or no normal one to learn from, or too few groups.
            ModuleNotFoundError: scikit-learn is not installed.
        """
        return fit(lessons)


class LogOdds(_Fitted):
    """Blames a node when the kinds it begins to raise together weigh enough.

    A kind's weight is how much oftener faulty nodes begin to raise it than normal ones, in other
    jobs, as log-odds; the more nodes raise it at the same time, the less it counts.

    ::

        kind       weight    node a        node b
        xid_48        2.8    10:00:01
        link_flap     0.1    10:00:02      10:00:01
        remap         2.8    10:00:04
                             5.7: blamed   0.1

    Cost: constant per alert. Source: log-level diagnosis, which drops what good jobs show too and ranks the rest
    by what sets bad nodes apart; see :mod:`detectors.learned`.

    Args:
        job: The job to watch.
        model: JSON file made by ``alert-replay fit``, or its document; None for the one fitted
            on synthetic traces.
        threshold: Sum of weights from which on to blame; None for the fitted one.

    Examples:
        >>> from replay.api import Alert, Job
        >>> detector = LogOdds(Job("Job1", tuple("abcdefgh")))
        >>> for seq, kind in enumerate(["xid_48", "row_remap_failure"]):
        ...     _ = detector.observe(Alert("Job1", seq, 600.0 + seq, "b", kind))
        >>> [(verdict.node, verdict.evidence) for verdict in detector.finish()]
        [('b', (0, 1))]

    """

    def __init__(
        self,
        job: Job,
        *,
        model: Path | Mapping[str, Any] | None = None,
        threshold: float | None = None,
    ) -> None:
        super().__init__(job, model=model, threshold=threshold)

    def _score(self, features: Sequence[float]) -> float:
        return sum(features[:3])  # the strongest kind and the next

    def _fitted_threshold(self) -> float:
        return self._model.odds


class Learned(_Fitted):
    """Blames a node when a logistic model finds its guilt likely enough.

    ::

        10:00:01  a begins to raise xid_48 (2.8)            probability 0.3
        10:00:11  nobody else raises it: it is a's own      0.4
        10:00:13  a storm begins, a is not in it            0.8: blamed

    What it weighs: the log-odds of the kinds that a node begins to raise, how many other nodes
    raise them too, whether they come again like polls or like chatter, how soon the fleet
    stumbles, whether the node takes part in that, and the size and age of the job.

    Cost: constant per alert; a look at a suspect costs as much as it has kinds. Source: log-level
    diagnosis, which drops what good jobs show too and ranks the rest by what sets bad nodes apart;
    see :mod:`detectors.learned`.

    Args:
        job: The job to watch.
        model: JSON file made by ``alert-replay fit``, or its document; None for the one fitted
            on synthetic traces.
        threshold: Probability from which on to blame; None for the fitted one.

    Examples:
        >>> from replay.api import Alert, Job
        >>> detector = Learned(Job("Job1", tuple("abcdefgh")))
        >>> for seq, kind in enumerate(["xid_48", "row_remap_failure"]):
        ...     _ = detector.observe(Alert("Job1", seq, 600.0 + seq, "b", kind))
        >>> [(verdict.node, verdict.evidence) for verdict in detector.finish()]
        [('b', (0, 1))]

    """

    def __init__(
        self,
        job: Job,
        *,
        model: Path | Mapping[str, Any] | None = None,
        threshold: float | None = None,
    ) -> None:
        super().__init__(job, model=model, threshold=threshold)

    def _score(self, features: Sequence[float]) -> float:
        return self._model.probability(features)

    def _fitted_threshold(self) -> float:
        return self._model.threshold


def _in_words(suspect: Suspect) -> str:
    kinds = sorted(suspect.weights.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{kind} {weight:.1f}" for kind, weight in kinds[:3])
