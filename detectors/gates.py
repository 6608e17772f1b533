"""Second thoughts: wrappers that hold back, limit or take back what another detector says.

Each takes any detector as ``inner`` (see :mod:`detectors.inner`); they nest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from detectors.docket import Docket
from detectors.inner import Maker, Wrapper
from detectors.kinds import DistinctKinds
from replay.api import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from replay.api import Alert, AlertBatch, Job

__all__ = ["Breaker", "Continuity", "Recovery", "TopK"]


class Continuity(Wrapper):
    """Passes a blame on only after it has stood for a while.

    A blame that the inner detector takes back in time was never spoken. Worth it around detectors
    that do take blames back; around one that blames once and for all it is a delay.

    ::

        inner   raise a ─────── retract a      raise b ────────────────────
        outer                                  ├─ hold ─┤ raise b

    Cost: constant per verdict. Source: the continuity check of machine-level outlier detection in
    training clusters, which asks for four minutes; scaled here to the age of the job.

    Args:
        job: The job to watch.
        inner: Makes the detector inside.
        hold: Seconds a blame must stand at least.
        share: The same as a share of the time since the job's start; the longer of the two holds.

    Examples:
        >>> from detectors.baselines import AccuseAll
        >>> from replay.api import Job
        >>> gate = Continuity(Job("Job1", ("a",)), inner=AccuseAll, hold=30)
        >>> list(gate.advance(0.0)), gate.wake_at
        ([], 30.0)
        >>> [verdict.node for verdict in gate.advance(30.0)]
        ['a']

    """

    def __init__(
        self, job: Job, *, inner: Maker = DistinctKinds, hold: float = 30.0, share: float = 0.0
    ) -> None:
        super().__init__(job, inner=inner)
        if not hold > 0:
            raise ValueError(f"hold must be positive, not {hold}")
        if share < 0:
            raise ValueError(f"share must not be negative, not {share}")
        self._hold = hold
        self._share = share
        self._held: dict[str | None, tuple[float, Verdict]] = {}  # node → when it is due, blame
        self._spoken: set[str | None] = set()

    def _pass(self, said: Iterable[Verdict]) -> Iterator[Verdict]:
        for verdict in said:
            if verdict.action == "retract":
                if self._held.pop(verdict.node, None) is None:
                    self._spoken.discard(verdict.node)
                    yield verdict
            elif verdict.node in self._spoken:
                yield verdict
            else:
                hold = max(self._hold, self._share * self._now)
                due, _ = self._held.get(verdict.node, (self._now + hold, verdict))
                self._held[verdict.node] = due, verdict
        self._set_due()

    def _expire(self) -> Iterator[Verdict]:
        ripe = [node for node, (due, _) in self._held.items() if due <= self._now]
        for node in ripe:
            self._spoken.add(node)
            yield self._held.pop(node)[1]
        self._set_due()

    def _last(self, said: Iterable[Verdict]) -> Iterable[Verdict]:
        """No more time will come: what still stands is passed on."""
        yield from self._pass(said)
        for _, verdict in self._held.values():
            yield verdict

    def _set_due(self) -> None:
        self._due = min((due for due, _ in self._held.values()), default=None)


class Breaker(Wrapper):
    """Stops a detector that blames too many nodes.

    The first few blames pass; when one more comes than the limit allows, the breaker opens, says so
    about the job as a whole, and lets no new node through for the rest of the job.

    ::

        inner   raise a  raise b  raise c  raise d          raise e
        outer   raise a  raise b  raise c  (job: breaker)

    Every detector here that is no baseline has such a breaker inside, with these very limits. The
    wrapper gives one to detectors that have none, or a lower limit to those that do.

    Cost: constant per verdict. Source: the circuit breaker of fleet health controllers, which stop
    when half of the nodes would be taken out within minutes.

    Args:
        job: The job to watch.
        inner: Makes the detector inside.
        nodes: How many different nodes may be blamed, however small the job is.
        share: The same as a share of the job's nodes, 0 to 1; the larger of the two holds.

    Examples:
        >>> from detectors.baselines import AccuseAll
        >>> from replay.api import Job
        >>> breaker = Breaker(Job("Job1", ("a", "b", "c")), inner=AccuseAll, nodes=2)
        >>> [verdict.node for verdict in breaker.advance(0.0)]
        ['a', 'b', None]

    """

    def __init__(
        self, job: Job, *, inner: Maker = DistinctKinds, nodes: int = 3, share: float = 0.1
    ) -> None:
        super().__init__(job, inner=inner)
        self._docket = Docket(job, nodes=nodes, share=share)

    def _pass(self, said: Iterable[Verdict]) -> Iterator[Verdict]:
        for verdict in said:
            if verdict.node is None or verdict.node in self._docket:
                if verdict.action == "retract" and verdict.node is not None:
                    self._docket.clear(verdict.node)
                yield verdict
            elif verdict.action == "raise":
                yield from self._docket.blame(
                    verdict.node,
                    score=verdict.score,
                    reason=verdict.reason,
                    evidence=verdict.evidence,
                )


class Recovery(Wrapper):
    """Takes a blame back when the node is well again.

    A node is well when it raises an alert of a kind that says so, or when it has been quiet for
    a while. Which kinds say so is for the user to name; none is known here.

    ::

        inner   raise a
        stream  a: flap, flap      b: ...     a: link_up
        outer   raise a                       retract a

    Cost: constant per alert. Source: the healthy events by which fleet health monitors clear
    a node.

    Args:
        job: The job to watch.
        inner: Makes the detector inside.
        kinds: Kinds of alert that say that a node is well again.
        quiet: Seconds without any alert of the node after which it counts as well; 0 for never.

    Examples:
        >>> from detectors.baselines import FirstAlert
        >>> from replay.api import Alert, Job
        >>> gate = Recovery(Job("Job1", ("a", "b")), inner=FirstAlert, kinds=("link_up",), quiet=0)
        >>> for seq, kind in enumerate(["link_down", "link_up"]):
        ...     for verdict in gate.observe(Alert("Job1", seq, 1.0 * seq, "a", kind)):
        ...         print(verdict.action, verdict.node, verdict.reason)
        raise a alerted first
        retract a link_up

    """

    def __init__(
        self,
        job: Job,
        *,
        inner: Maker = DistinctKinds,
        kinds: tuple[str, ...] = (),
        quiet: float = 1800.0,
    ) -> None:
        super().__init__(job, inner=inner)
        if quiet < 0:
            raise ValueError(f"quiet must not be negative, not {quiet}")
        self._kinds = frozenset(kinds)
        self._quiet = quiet
        self._blamed: dict[str, float] = {}  # node → its newest alert, or when it was blamed

    def observe(self, alert: Alert) -> Iterable[Verdict]:
        """Let the inner detector observe, then look for recovery."""
        said = list(super().observe(alert))
        if alert.node in self._blamed:
            self._blamed[alert.node] = alert.at
            if alert.kind in self._kinds:
                del self._blamed[alert.node]
                said.append(Verdict(alert.node, "retract", reason=alert.kind))
        return said

    def observe_batch(self, batch: AlertBatch) -> Iterable[Verdict]:
        """Let the inner detector observe, then look for recovery."""
        if self._kinds or self._blamed:
            return [verdict for alert in batch.alerts for verdict in self.observe(alert)]
        return super().observe_batch(batch)

    def _pass(self, said: Iterable[Verdict]) -> Iterator[Verdict]:
        for verdict in said:
            if verdict.node is not None and verdict.action == "raise":
                self._blamed.setdefault(verdict.node, self._now)
            elif verdict.node is not None:
                self._blamed.pop(verdict.node, None)
            yield verdict
        self._set_due()

    def _expire(self) -> Iterator[Verdict]:
        blamed, quiet = self._blamed, self._quiet
        for node in [node for node, newest in blamed.items() if newest + quiet <= self._now]:
            del self._blamed[node]
            yield Verdict(node, "retract", reason=f"quiet for {self._quiet:g} s")
        self._set_due()

    def _set_due(self) -> None:
        if self._quiet:
            newest = min(self._blamed.values(), default=None)
            self._due = None if newest is None else newest + self._quiet


class TopK(Wrapper):
    """Keeps at most ``k`` nodes blamed: a surer blame replaces the least sure.

    ::

        k = 1   raise a 0.4        raise b 0.3    raise c 0.9
        outer   raise a                           retract a, raise c

    Cost: constant per verdict. Source: node-level top-k, the way in which localization is scored
    and acted on. Where any raise counts, prefer an inner detector that waits until it is sure.

    Args:
        job: The job to watch.
        inner: Makes the detector inside.
        k: How many nodes may be blamed at a time.

    Examples:
        >>> from detectors.baselines import AccuseAll
        >>> from replay.api import Job
        >>> top = TopK(Job("Job1", ("a", "b", "c")), inner=AccuseAll)
        >>> [verdict.node for verdict in top.advance(0.0)]
        ['a']

    """

    def __init__(self, job: Job, *, inner: Maker = DistinctKinds, k: int = 1) -> None:
        super().__init__(job, inner=inner)
        if k < 1:
            raise ValueError(f"k must be at least 1, not {k}")
        self._k = k
        self._scores: dict[str, float] = {}

    def _pass(self, said: Iterable[Verdict]) -> Iterator[Verdict]:
        for verdict in said:
            if verdict.node is None:
                yield verdict
            elif verdict.action == "retract":
                if self._scores.pop(verdict.node, None) is not None:
                    yield verdict
            elif verdict.node in self._scores or len(self._scores) < self._k:
                self._scores[verdict.node] = verdict.score
                yield verdict
            else:
                yield from self._replace(verdict)

    def _replace(self, verdict: Verdict) -> Iterator[Verdict]:
        weakest = min(self._scores, key=self._scores.__getitem__)
        if verdict.node is None or verdict.score <= self._scores[weakest]:
            return
        del self._scores[weakest]
        yield Verdict(weakest, "retract", reason=f"{verdict.node} is surer")
        self._scores[verdict.node] = verdict.score
        yield verdict
