"""What every real detector has to beat: six rules of thumb that know nothing about faults.

Three say the same whatever the stream holds (:class:`Silent`, :class:`AccuseAll`,
:class:`Random`). Three look at one plain thing (:class:`Loudest`, :class:`FirstAlert`,
:class:`MostKinds`) and name exactly one node per job with alerts, whether or not anything is
wrong. Tables show all of them dimmed.

**When they speak.** A raise cannot be undone where any raise counts, so a baseline that followed
its leader through the stream would be charged for every node that ever led. Loudest and
MostKinds therefore speak once. By default that is the end of the job: their ``hit_at_1`` is then
what counting alone can reach with the whole job in view, the most favourable reading, and their
latency is the whole job. With ``after=60`` they speak 60 s after the job's first alert, for a
comparison that is fair to both speed and accuracy.

A node outside the job (see :class:`replay.api.Job`) is never named, except where the job
lists no nodes at all.
"""

from __future__ import annotations

import random
from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from replay.api import Detector, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from replay.api import Alert, AlertBatch, Job

__all__ = ["AccuseAll", "FirstAlert", "Loudest", "MostKinds", "Random", "Silent"]


class Silent(Detector):
    """Never says anything: the price of missing every fault.

    Examples:
        >>> from replay.api import Alert, Job
        >>> silent = Silent(Job("Job1", ("a", "b")))
        >>> list(silent.observe(Alert("Job1", 0, 1.0, "a", "nic_down")))
        []

    """

    baseline: ClassVar[bool] = True

    def __init__(self, job: Job) -> None:
        super().__init__(job)

    def observe(self, alert: Alert) -> Iterable[Verdict]:  # noqa: ARG002 - it does not listen
        """Say nothing."""
        return ()

    def observe_batch(self, batch: AlertBatch) -> Iterable[Verdict]:  # noqa: ARG002 - it does not listen
        """Say nothing."""
        return ()


class _AtStart(Silent):
    """Names nodes when the job starts, without looking at a single alert."""

    wake_at: float | None = 0.0

    @abstractmethod
    def _accused(self) -> Iterable[str]:
        """The nodes to name."""

    def advance(self, now: float) -> Iterable[Verdict]:  # noqa: ARG002 - it speaks once
        """Name them."""
        return self.finish()

    def finish(self) -> Iterable[Verdict]:
        """Name them, should the job have ended at its very start."""
        if self.wake_at is None:
            return ()
        self.wake_at = None
        return [Verdict(node, reason="without looking") for node in self._accused()]


class AccuseAll(_AtStart):
    """Blames every node of the job at its start: full recall, and the precision of chance.

    Examples:
        >>> from replay.api import Job
        >>> [verdict.node for verdict in AccuseAll(Job("Job1", ("a", "b"))).advance(0.0)]
        ['a', 'b']

    """

    def _accused(self) -> Iterable[str]:
        return self.job.nodes


class Random(_AtStart):
    """Blames nodes drawn by lot at the job's start.

    The draw depends on the seed, the job's id and its nodes, and on nothing else.

    Args:
        job: The job to watch.
        seed: Another seed, another draw.
        count: How many nodes to blame.

    Examples:
        >>> from replay.api import Job
        >>> job = Job("Job1", ("a", "b", "c"))
        >>> [verdict.node for verdict in Random(job, seed=1).advance(0.0)]
        ['b']

    """

    def __init__(self, job: Job, *, seed: int = 0, count: int = 1) -> None:
        super().__init__(job)
        if count < 0:
            raise ValueError(f"count must not be negative, not {count}")
        self._seed = seed
        self._count = count

    def _accused(self) -> Iterable[str]:
        lot = random.Random(f"{self._seed}/{self.job.id}")  # noqa: S311 - a lot, not a secret
        return lot.sample(self.job.nodes, min(self._count, len(self.job.nodes)))


class FirstAlert(Detector):
    """Blames the node that alerts first, at once.

    Where several nodes alert in that first instant, the trace's own order decides.

    Examples:
        >>> from replay.api import Alert, Job
        >>> first = FirstAlert(Job("Job1", ("a", "b")))
        >>> [verdict.node for verdict in first.observe(Alert("Job1", 0, 1.0, "b", "nic_down"))]
        ['b']
        >>> list(first.observe(Alert("Job1", 1, 1.0, "a", "nic_down")))
        []

    """

    baseline: ClassVar[bool] = True

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._members = frozenset(job.nodes)
        self._spoken = False

    def observe(self, alert: Alert) -> Iterable[Verdict]:
        """Name the node of the first alert."""
        if self._spoken or (self._members and alert.node not in self._members):
            return ()
        self._spoken = True
        return (Verdict(alert.node, reason="alerted first", evidence=(alert.seq,)),)

    def observe_batch(self, batch: AlertBatch) -> Iterable[Verdict]:
        """Name the node of the first alert."""
        return () if self._spoken else super().observe_batch(batch)


class _Leader(Detector):
    """Names the one node with the highest tally, once.

    Args:
        job: The job to watch.
        after: Seconds from the job's first alert to the verdict; None waits for the job's end.
    """

    baseline: ClassVar[bool] = True

    def __init__(self, job: Job, *, after: float | None = None) -> None:
        super().__init__(job)
        if after is not None and not after > 0:
            raise ValueError(f"after must be positive, not {after}")
        self._members = frozenset(job.nodes)
        self._after = after
        self._waiting = True
        self._spoken = False

    @abstractmethod
    def _tally(self) -> dict[str, tuple[int, ...]]:
        """What each node has so far, in order of first appearance; more is worse."""

    @abstractmethod
    def _reason(self, tally: tuple[int, ...]) -> str:
        """The verdict in words."""

    def _start(self, at: float) -> None:
        """The first alert is here: set the alarm."""
        self._waiting = False
        if self._after is not None:
            self.wake_at = at + self._after

    def advance(self, now: float) -> Iterable[Verdict]:  # noqa: ARG002 - it speaks once
        """Name the leader so far."""
        self.wake_at = None
        return self.finish()

    def finish(self) -> Iterable[Verdict]:
        """Name the leader, unless one was named before; ties go to the earlier alert."""
        tallies = {
            node: tally
            for node, tally in self._tally().items()
            if not self._members or node in self._members
        }
        if self._spoken or not tallies:
            return ()
        self._spoken = True
        node = max(tallies, key=tallies.__getitem__)
        return (Verdict(node, score=float(tallies[node][0]), reason=self._reason(tallies[node])),)


class Loudest(_Leader):
    """Blames the node with the most alerts.

    Args:
        job: The job to watch.
        after: Seconds from the job's first alert to the verdict; None waits for the job's end.

    Examples:
        >>> from replay.api import Alert, Job
        >>> loudest = Loudest(Job("Job1", ("a", "b")))
        >>> for seq, node in enumerate("abb"):
        ...     _ = loudest.observe(Alert("Job1", seq, 1.0 * seq, node, "ecc"))
        >>> [(verdict.node, verdict.reason) for verdict in loudest.finish()]
        [('b', 'most alerts: 2')]

    """

    def __init__(self, job: Job, *, after: float | None = None) -> None:
        super().__init__(job, after=after)
        self._count: dict[str, int] = {}

    def observe(self, alert: Alert) -> Iterable[Verdict]:
        """Count the alert."""
        if self._waiting:
            self._start(alert.at)
        self._count[alert.node] = self._count.get(alert.node, 0) + 1
        return ()

    def observe_batch(self, batch: AlertBatch) -> Iterable[Verdict]:
        """Count the alerts."""
        if self._waiting:
            self._start(batch.at)
        count, nodes = self._count, batch.nodes
        for code in batch.node.tolist():
            node = nodes[code]
            count[node] = count.get(node, 0) + 1
        return ()

    def _tally(self) -> dict[str, tuple[int, ...]]:
        return {node: (count,) for node, count in self._count.items()}

    def _reason(self, tally: tuple[int, ...]) -> str:
        return f"most alerts: {tally[0]}"


class MostKinds(_Leader):
    """Blames the node with the most distinct kinds of alert; then the one with more alerts.

    Args:
        job: The job to watch.
        after: Seconds from the job's first alert to the verdict; None waits for the job's end.

    Examples:
        >>> from replay.api import Alert, Job
        >>> most = MostKinds(Job("Job1", ("a", "b")))
        >>> for seq, (node, kind) in enumerate([("a", "ecc"), ("a", "ecc"), ("b", "ecc"), ("b", "xid")]):
        ...     _ = most.observe(Alert("Job1", seq, 1.0 * seq, node, kind))
        >>> [(verdict.node, verdict.reason) for verdict in most.finish()]
        [('b', 'most kinds: 2 in 2 alerts')]

    """

    def __init__(self, job: Job, *, after: float | None = None) -> None:
        super().__init__(job, after=after)
        self._kinds: dict[str, dict[str, int]] = {}

    def observe(self, alert: Alert) -> Iterable[Verdict]:
        """Count the alert under its kind."""
        if self._waiting:
            self._start(alert.at)
        kinds = self._kinds.setdefault(alert.node, {})
        kinds[alert.kind] = kinds.get(alert.kind, 0) + 1
        return ()

    def _tally(self) -> dict[str, tuple[int, ...]]:
        return {node: (len(kinds), sum(kinds.values())) for node, kinds in self._kinds.items()}

    def _reason(self, tally: tuple[int, ...]) -> str:
        return f"most kinds: {tally[0]} in {tally[1]} alerts"
