"""Rules on kinds: the same one again, and different ones together.

Both look at what only one node says: a kind that much of the fleet raises at the same time is left
out (see :class:`detectors.windows.Onsets`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from detectors.docket import Docket
from detectors.windows import RareOnsets
from replay.api import Detector

if TYPE_CHECKING:
    from collections.abc import Iterable

    from detectors.windows import Onset
    from replay.api import Alert, AlertBatch, Job, Verdict

__all__ = ["DistinctKinds", "Tolerance"]


class Tolerance(Detector):
    """Blames a node that raises a rare kind again and again: ``count`` times within ``window``.

    One alert may be a glitch; the same again after a while is a condition. Repeats that follow
    within ``apart`` belong to one complaint. A kind that the job has shown often does not count,
    see :class:`detectors.windows.RareOnsets`. Kinds named in ``certain`` are enough once.

    ::

        a: nic_down .. .....nic_down ..... nic_down     count 3, window 300: blamed at the third
        b: nic_down nic_down nic_down                   one complaint

    Cost: constant per alert. Source: the tolerance rules of production training clusters (a
    network alert twice in five minutes, a switch down in two polls, some faults at once).

    Args:
        job: The job to watch.
        count: How many complaints are too many.
        window: Seconds within which they must come.
        apart: Seconds that part two complaints.
        margin: Nats by which a kind's surprise must exceed what chance alone brings about in a job
            of this size and age; at 0, the kind is new to the job.
        kinds: The only kinds to look at; none for all.
        certain: Kinds that are enough once.

    Examples:
        >>> from replay.api import Alert, Job
        >>> rule = Tolerance(Job("Job1", tuple("abcdefgh")), count=3)
        >>> for seq, at in enumerate([900.0, 901.0, 925.0, 950.0]):
        ...     _ = rule.advance(at) if rule.wake_at is not None and rule.wake_at < at else ()
        ...     for verdict in rule.observe(Alert("Job1", seq, at, "b", "nic_down")):
        ...         print(at, verdict.node, verdict.reason)
        950.0 b nic_down 3 times in 50 s

    """

    def __init__(
        self,
        job: Job,
        *,
        count: int = 4,
        window: float = 300.0,
        apart: float = 8.0,
        margin: float = -0.6,
        kinds: tuple[str, ...] = (),
        certain: tuple[str, ...] = (),
    ) -> None:
        super().__init__(job)
        if count < 1:
            raise ValueError(f"count must be at least 1, not {count}")
        if not window > 0 or apart < 0:
            raise ValueError(f"window and apart must not be negative, not {window} and {apart}")
        self._count = count
        self._window = window
        self._apart = apart
        self._kinds = frozenset(kinds)
        self._certain = frozenset(certain)
        self._margin = margin
        self._onsets = RareOnsets(job, most=1.0 + math.exp(-margin))
        self._complaints: dict[tuple[str, str], list[tuple[float, int]]] = {}
        self._rare: set[tuple[str, str]] = set()
        self._docket = Docket(job)

    def observe(self, alert: Alert) -> Iterable[Verdict]:
        """Count the alert; blame its node if that is one too many."""
        _, seq, at, node, kind = alert
        if kind in self._certain:
            return self._docket.blame(node, reason=f"{kind} is certain", evidence=(seq,))
        if self._kinds and kind not in self._kinds:
            return ()
        key = node, kind
        if self._onsets.add(alert):
            self._rare.discard(key)
            self.wake_at = self._onsets.due
        complaints = self._complaints.get(key)
        if complaints is None:
            complaints = self._complaints[key] = []
        if complaints and at - complaints[-1][0] < self._apart:
            return ()
        complaints.append((at, seq))
        del complaints[: -self._count]
        return self._judge(node, kind) if key in self._rare else ()

    def advance(self, now: float) -> Iterable[Verdict]:
        """See which of the new complaints are rare."""
        verdicts: list[Verdict] = []
        for onset in self._onsets.settled(now):
            if onset.surprise - self._onsets.chances(onset.at) >= self._margin:
                self._rare.add((onset.node, onset.kind))
                verdicts += self._judge(onset.node, onset.kind)
        self.wake_at = self._onsets.due
        return verdicts

    def finish(self) -> Iterable[Verdict]:
        """See the rest."""
        return self.advance(float("inf"))

    def _judge(self, node: str, kind: str) -> Iterable[Verdict]:
        complaints = self._complaints[node, kind]
        span = complaints[-1][0] - complaints[0][0]
        if len(complaints) < self._count or span > self._window:
            return ()
        return self._docket.blame(
            node,
            score=self._count / (1.0 + span),
            reason=f"{kind} {self._count} times in {span:g} s",
            evidence=tuple(seq for _, seq in complaints),
        )


class DistinctKinds(Detector):
    """Blames a node that begins to raise several rare kinds at once.

    A fault shows in more than one place: the card, its driver and the link say so in different
    words. Noise is one word at a time. How much a kind counts is how surprising it is in this
    very job, see :class:`detectors.windows.RareOnsets`; repeats count once.

    ::

        a: ecc  ecc  ecc  ecc            one kind, and not rare
        b:         xid_48 remap          two rare kinds within 30 s: blamed

    Cost: constant per alert. Source: deduplication and distinct-kind counting of fleet health
    monitors.

    Args:
        job: The job to watch.
        kinds: How many kinds it takes.
        window: Seconds within which they must begin.
        margin: Nats by which their surprise must exceed what chance alone brings about in a
            job of this size and age.

    Examples:
        >>> from replay.api import Alert, Job
        >>> rule = DistinctKinds(Job("Job1", tuple("abcdefgh")))
        >>> for seq, kind in enumerate(["xid_48", "remap"]):
        ...     _ = rule.observe(Alert("Job1", seq, 900.0 + seq, "b", kind))
        >>> rule.wake_at, [verdict.reason for verdict in rule.advance(911.0)]
        (910.0, ['begins 2 rare kinds: remap, xid_48'])

    """

    def __init__(
        self, job: Job, *, kinds: int = 2, window: float = 30.0, margin: float = 9.0
    ) -> None:
        super().__init__(job)
        if kinds < 1:
            raise ValueError(f"kinds must be at least 1, not {kinds}")
        if not window > 0:
            raise ValueError(f"window must be positive, not {window}")
        self._least = kinds
        self._window = window
        self._margin = margin
        self._onsets = RareOnsets(job)
        self._begun: dict[str, dict[str, Onset]] = {}
        self._docket = Docket(job)

    def observe(self, alert: Alert) -> Iterable[Verdict]:
        """Take the alert down; whether it is its node's own shows later."""
        if self._onsets.add(alert):
            self.wake_at = self._onsets.due
        return ()

    def observe_batch(self, batch: AlertBatch) -> Iterable[Verdict]:
        """Take the alerts down; whether they are their nodes' own shows later."""
        add = self._onsets.add
        for alert in batch.alerts:
            add(alert)
        self.wake_at = self._onsets.due
        return ()

    def advance(self, now: float) -> Iterable[Verdict]:
        """Weigh the onsets whose delay is over."""
        verdicts = [v for onset in self._onsets.settled(now) for v in self._weigh(onset)]
        self.wake_at = self._onsets.due
        return verdicts

    def finish(self) -> Iterable[Verdict]:
        """Weigh the rest."""
        return self.advance(float("inf"))

    def _weigh(self, onset: Onset) -> Iterable[Verdict]:
        at, node = onset.at, onset.node
        begun = self._begun.setdefault(node, {})
        begun[onset.kind] = onset
        lately = [other for other in begun.values() if at - other.at <= self._window]
        excess = sum(other.surprise for other in lately) - self._onsets.chances(at)
        if len(lately) < self._least or excess < self._margin:
            return ()
        return self._docket.blame(
            node,
            score=excess,
            reason=f"begins {len(lately)} rare kinds: {', '.join(sorted(o.kind for o in lately))}",
            evidence=tuple(sorted(other.seq for other in lately)),
        )
