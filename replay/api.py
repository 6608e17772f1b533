"""The one door for plug-ins: what a detector sees, and what it may say.

Needs nothing but the standard library (its columns are numpy arrays). A detector imports from here and from
nowhere else in ``replay``. What is not here cannot reach a detector: no truth, no end of the
job, no totals, no wall clock.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Alert", "AlertBatch", "Detector", "Job", "Learner", "Lesson", "Verdict"]


@dataclass(frozen=True, slots=True)
class Job:
    """A training job as it looks when it starts.

    Attributes:
        id: Its name, an opaque string.
        nodes: The nodes it runs on, opaque tokens, sorted. Alerts may also come from others.
        gpu_generation: For instance ``"Hopper"``; empty when unknown.
    """

    id: str
    nodes: tuple[str, ...] = ()
    gpu_generation: str = ""


class Alert(NamedTuple):
    """One alert event.

    Attributes:
        job: The job's id.
        seq: Its number within the job, from 0, in the order (time, row in the file).
        at: Trace seconds since the job's start; may be negative.
        node: The node that alerted.
        kind: What the alert says.
    """

    job: str
    seq: int
    at: float
    node: str
    kind: str


_alert_of = partial(tuple.__new__, Alert)  # twice as fast as calling Alert, a million times a run


class AlertBatch:
    """All alerts of one job at one instant, as columns; iterates as :class:`Alert`.

    The arrays are read-only, shared between detectors, and valid during the call: copy what you
    keep. Codes are dense and in the order of first appearance, so ``len(batch.kinds)`` bounds
    every code seen so far. What a code's number is carries no meaning: a verdict must not depend
    on it.

    Args:
        job: The job's id.
        at: Trace seconds since the job's start.
        seq: int64[n], numbers within the job, increasing by one.
        node: int32[n], codes into ``nodes``.
        kind: int32[n], codes into ``kinds``.
        nodes: The job's nodes first, then every other node seen so far.
        kinds: Every kind seen so far.

    Examples:
        >>> import numpy as np
        >>> batch = AlertBatch("Job1", 3.0, np.array([0, 1]), np.array([1, 0], np.int32),
        ...                    np.array([0, 0], np.int32), ["a", "b"], ["nic_down"])
        >>> [alert.node for alert in batch]
        ['b', 'a']

    """

    __slots__ = ("_alerts", "at", "job", "kind", "kinds", "node", "nodes", "seq")

    def __init__(
        self,
        job: str,
        at: float,
        seq: NDArray[np.int64],
        node: NDArray[np.int32],
        kind: NDArray[np.int32],
        nodes: Sequence[str],
        kinds: Sequence[str],
    ) -> None:
        self.job = job
        self.at = at
        self.seq = seq
        self.node = node
        self.kind = kind
        self.nodes = nodes
        self.kinds = kinds
        self._alerts: tuple[Alert, ...] | None = None

    @property
    def alerts(self) -> tuple[Alert, ...]:
        """The same alerts as objects, built once and shared."""
        if self._alerts is None:
            count = len(self.seq)
            rows = zip(
                repeat(self.job, count),
                self.seq.tolist(),
                repeat(self.at, count),
                map(self.nodes.__getitem__, self.node.tolist()),
                map(self.kinds.__getitem__, self.kind.tolist()),
                strict=True,
            )
            self._alerts = tuple(map(_alert_of, rows))
        return self._alerts

    def __iter__(self) -> Iterator[Alert]:
        return iter(self.alerts)

    def __len__(self) -> int:
        return len(self.seq)

    def __repr__(self) -> str:
        return f"AlertBatch(job={self.job!r}, at={self.at!r}, n={len(self)})"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a detector says about one node, or about the job as a whole.

    A verdict carries no time: the host stamps it.

    Attributes:
        node: The node blamed, or None for "something is wrong with this job".
        action: ``"raise"`` blames, ``"retract"`` takes it back.
        score: How sure, higher is surer; finite.
        reason: For people; free text.
        evidence: ``seq`` of the alerts it rests on.
    """

    node: str | None
    action: Literal["raise", "retract"] = "raise"
    score: float = 1.0
    reason: str = ""
    evidence: tuple[int, ...] = ()


class Detector(ABC):
    """An online detector. One object watches one job, so there is nothing to reset.

    The host calls :meth:`observe_batch` for every instant that has alerts, in trace order;
    :meth:`advance` when trace time has reached :attr:`wake_at`, after the alerts of that very
    instant and before any later one; :meth:`finish` once, when the job is over. The same calls
    come at every speed and over every transport, so a detector that uses neither the wall clock
    nor unseeded randomness gives the same verdicts everywhere.

    Subclasses name their options as keyword-only arguments with defaults::

        class Burst(Detector):
            def __init__(self, job: Job, *, window: float = 60.0, threshold: int = 5) -> None:
                super().__init__(job)

    Attributes:
        job: The job being watched.
        wake_at: Trace seconds since the job's start at which :meth:`advance` is wanted, or None.
            After a wake-up it must be None or later than the wake-up.
    """

    baseline: ClassVar[bool] = False
    """True for reference detectors that tables show dimmed."""

    wake_at: float | None = None

    def __init__(self, job: Job, **options: Any) -> None:
        if options:
            unknown = ", ".join(sorted(options))
            raise TypeError(f"{type(self).__name__} has no option {unknown}")
        self.job = job

    @abstractmethod
    def observe(self, alert: Alert) -> Iterable[Verdict]:
        """Take in one alert. Called in trace order; must not block."""

    def observe_batch(self, batch: AlertBatch) -> Iterable[Verdict]:
        """Take in all alerts of one instant; override for speed, with the same verdicts."""
        verdicts: list[Verdict] = []
        for alert in batch.alerts:
            said = self.observe(alert)
            try:
                verdicts.extend(said)
            except TypeError:
                if isinstance(said, Verdict):
                    name = type(self).__name__
                    raise TypeError(
                        f"{name}.observe gave one verdict, not many: yield it"
                    ) from None
                raise
        return verdicts

    def advance(self, now: float) -> Iterable[Verdict]:  # noqa: ARG002 - subclasses use it
        """Trace time has reached ``now`` (the wake-up asked for), with or without alerts."""
        return ()

    def finish(self) -> Iterable[Verdict]:
        """The job is over; last words."""
        return ()


@dataclass(frozen=True, slots=True)
class Lesson:
    """A job that is over, with the answer: what :meth:`Learner.fit` learns from.

    It goes to a class and never to a detector at work.

    Attributes:
        job: The job.
        batches: Its alerts, in order.
        end: Trace seconds since the job's start at which it ended.
        labels: Node → whether it was faulty. Nodes of unknown state are left out.
        group: Jobs of one group share nodes, so they belong on one side of any split.
    """

    job: Job
    batches: Sequence[AlertBatch]
    end: float
    labels: Mapping[str, bool]
    group: str = ""


class Learner(Detector):
    """A detector that is fitted on other jobs before it watches one.

    Subclasses have an option ``model``: the path of a JSON file that holds what :meth:`fit` gave,
    or that very document.
    """

    @classmethod
    @abstractmethod
    def fit(cls, lessons: Sequence[Lesson]) -> dict[str, Any]:
        """Learn from jobs whose answer is known.

        Args:
            lessons: The jobs. Equal lessons in equal order give equal models.

        Returns:
            The model, as a JSON document.

        Raises:
            ValueError: There is too little to learn from.
            ModuleNotFoundError: Fitting needs a package that is not installed.
        """
