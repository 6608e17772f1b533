"""What another detector had better not hear: wrappers that drop alerts before it listens.

Each takes any detector as ``inner`` (see :mod:`detectors.inner`); they nest.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from detectors.inner import Maker, Wrapper
from detectors.kinds import DistinctKinds
from detectors.windows import Fleet
from replay.api import AlertBatch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from replay.api import Alert, Job, Verdict

__all__ = ["Dedup", "Suppress"]


class _Filter(Wrapper):
    """Lets some alerts through."""

    def observe(self, alert: Alert) -> Iterable[Verdict]:
        """Let the inner detector observe, if the alert passes."""
        return super().observe(alert) if self._passes(alert) else ()

    def observe_batch(self, batch: AlertBatch) -> Iterable[Verdict]:
        """Let the inner detector observe what passes."""
        kept = [number for number, alert in enumerate(batch.alerts) if self._passes(alert)]
        if not kept:
            return ()
        if len(kept) < len(batch):
            batch = AlertBatch(
                batch.job,
                batch.at,
                batch.seq[kept],
                batch.node[kept],
                batch.kind[kept],
                batch.nodes,
                batch.kinds,
            )
        return super().observe_batch(batch)

    @abstractmethod
    def _passes(self, alert: Alert) -> bool:
        """Whether the inner detector hears of it; called once for every alert, in order."""


class Dedup(_Filter):
    """Lets a detector hear only the beginning of what a node goes on saying.

    An alert is dropped if its node raised the same kind within ``ttl`` seconds before, counted from
    the newest one, dropped or not.

    ::

        stream   a: ecc  a: ecc  b: ecc  a: ecc   ... 3 minutes ...   a: ecc
        inner    a: ecc          b: ecc                               a: ecc

    Cost: constant per alert. Source: the deduplication window of fleet health monitors, where one
    node with a loose card wrote 800,000 rows that held 29 different messages.

    Args:
        job: The job to watch.
        inner: Makes the detector inside.
        ttl: Seconds for which a kind is remembered.

    Examples:
        >>> from detectors.baselines import Loudest
        >>> from replay.api import Alert, Job
        >>> loudest = Dedup(Job("Job1", ("a", "b")), inner=Loudest)
        >>> for seq, (node, kind) in enumerate(["ax", "ax", "ax", "bx", "by"]):
        ...     _ = loudest.observe(Alert("Job1", seq, 1.0 * seq, node, kind))
        >>> [(verdict.node, verdict.reason) for verdict in loudest.finish()]
        [('b', 'most alerts: 2')]

    """

    def __init__(self, job: Job, *, inner: Maker = DistinctKinds, ttl: float = 180.0) -> None:
        super().__init__(job, inner=inner)
        self._fleet = Fleet(job, window=ttl, share=1.0)

    def _passes(self, alert: Alert) -> bool:
        return self._fleet.add(alert.node, alert.kind, alert.at)


class Suppress(_Filter):
    """Keeps from a detector what much of the fleet says at once.

    If everybody shows it, it is not the node. A kind is dropped as long as a share of the job's
    nodes has raised it within ``window``; the first few, before there are so many, still pass.

    ::

        stream   a: reset  b: reset  c: reset  d: reset  a: xid_48       of 8 nodes, share 0.3
        inner    a: reset  b: reset                      a: xid_48

    Cost: constant per alert. Source: "all copies are abnormal, so it is not this one", in
    localization at the level of operators and of logs.

    Args:
        job: The job to watch.
        inner: Makes the detector inside.
        window: Seconds within which the nodes must raise the kind.
        share: Share of the job's nodes, above 0 to 1; never fewer than two nodes.

    Examples:
        >>> from detectors.baselines import Loudest
        >>> from replay.api import Alert, Job
        >>> loudest = Suppress(Job("Job1", tuple("abcd")), inner=Loudest, share=0.5)
        >>> for seq, (node, kind) in enumerate(["ax", "bx", "cx", "cx", "dx", "ay", "ay"]):
        ...     _ = loudest.observe(Alert("Job1", seq, 1.0 * seq, node, kind))
        >>> [(verdict.node, verdict.reason) for verdict in loudest.finish()]
        [('a', 'most alerts: 3')]

    """

    def __init__(
        self,
        job: Job,
        *,
        inner: Maker = DistinctKinds,
        window: float = 60.0,
        share: float = 0.3,
    ) -> None:
        super().__init__(job, inner=inner)
        self._fleet = Fleet(job, window=window, share=share)

    def _passes(self, alert: Alert) -> bool:
        self._fleet.add(alert.node, alert.kind, alert.at)
        return not self._fleet.wide(alert.kind)
