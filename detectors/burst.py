"""A node that alerts many times within a short while."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING

from detectors.docket import Docket
from detectors.windows import RareOnsets
from replay.api import Detector, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from replay.api import Alert, Job

__all__ = ["Burst"]


class Burst(Detector):
    """Blames a node that raises ``threshold`` alerts of rare kinds within ``window``.

    Hardware that fails complains in bursts: a link that flaps, a memory bank whose errors come
    faster and faster. Counting bursts instead of totals keeps a node that grumbles all day from
    winning, and a burst is known the moment it is complete. An alert counts if its node began to
    raise its kind not long ago and that was a surprise in this job; what the whole fleet says, and
    what is written twice in one instant, does not count.

    ::

        a: ecc    ecc    ecc    ecc    ecc       spread over the day: no burst
        b:               nic flap nic            3 within 60 s: blamed

    Cost: constant per alert; remembers the last ``threshold`` alerts of each node. Source: the
    burst rules that fleet health monitors keep for driver errors (so many within so long, per
    node), scaled from days to the length of a job.

    Args:
        job: The job to watch.
        window: Seconds within which the alerts must fall.
        threshold: How many alerts make a burst.
        margin: Nats by which an onset's surprise must exceed what chance alone brings about in a
            job of this size and age.

    Examples:
        >>> from replay.api import Alert, Job
        >>> burst = Burst(Job("Job1", tuple("abcdefgh")), window=30)
        >>> for seq, at in enumerate([900.0, 912.0, 924.0]):
        ...     _ = burst.advance(at) if burst.wake_at is not None else ()
        ...     for verdict in burst.observe(Alert("Job1", seq, at, "b", "link_flap")):
        ...         print(at, verdict.node, verdict.reason, verdict.evidence)
        924.0 b 3 alerts in 24 s (0, 1, 2)

    """

    def __init__(
        self, job: Job, *, window: float = 60.0, threshold: int = 3, margin: float = 0.3
    ) -> None:
        super().__init__(job)
        if not window > 0:
            raise ValueError(f"window must be positive, not {window}")
        if threshold < 1:
            raise ValueError(f"threshold must be at least 1, not {threshold}")
        self._window = window
        self._threshold = threshold
        self._margin = margin
        self._onsets = RareOnsets(job, most=1.0 + math.exp(-margin))
        self._rare: dict[tuple[str, str], float] = {}  # (node, kind) → its newest alert
        self._recent: dict[str, deque[tuple[float, int]]] = {}
        self._docket = Docket(job)

    def observe(self, alert: Alert) -> Iterable[Verdict]:
        """Count the alert; blame its node if that makes a burst."""
        _, seq, at, node, kind = alert
        if self._onsets.add(alert):
            self._rare.pop((node, kind), None)
            self.wake_at = self._onsets.due
            return ()
        newest = self._rare.get((node, kind))
        if newest is None or newest == at:
            return ()
        self._rare[node, kind] = at
        return self._count(node, at, seq)

    def advance(self, now: float) -> Iterable[Verdict]:
        """Count the onsets that turned out to be rare, and their nodes' own."""
        verdicts: list[Verdict] = []
        for onset in self._onsets.settled(now):
            if onset.surprise - self._onsets.chances(onset.at) >= self._margin:
                self._rare[onset.node, onset.kind] = onset.at
                verdicts += self._count(onset.node, onset.at, onset.seq)
        self.wake_at = self._onsets.due
        return verdicts

    def finish(self) -> Iterable[Verdict]:
        """Count the rest."""
        return self.advance(float("inf"))

    def _count(self, node: str, at: float, seq: int) -> Iterable[Verdict]:
        recent = self._recent.get(node)
        if recent is None:
            recent = self._recent[node] = deque(maxlen=self._threshold)
        recent.append((at, seq))
        times = [when for when, _ in recent]  # an onset is counted late, so they may be unordered
        span = max(times) - min(times)
        if len(recent) < self._threshold or span > self._window:
            return ()
        return self._docket.blame(
            node,
            score=self._threshold / (1.0 + span),
            reason=f"{self._threshold} alerts in {span:g} s",
            evidence=tuple(sorted(number for _, number in recent)),
        )
