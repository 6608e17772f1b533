"""A node that alerts many times within a short while.

Hardware that fails tends to complain in bursts: a link that flaps, a memory bank whose errors
come faster and faster. Counting *bursts* instead of totals keeps a node that grumbles evenly all
day from winning, and a burst is known the moment it is complete.

Two things look like bursts and are not, and this detector leaves them out: the same complaint
written twice in one instant, and a kind of alert that a good part of the fleet raises at the
same time (if everybody shows it, it is not the node).

Source: the burst rules that fleet health monitors keep for driver errors (so many within so
long, per node); the parameters are scaled from days to the length of a job.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING

from replay.api import Detector, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from replay.api import Alert, Job

__all__ = ["Burst"]


class Burst(Detector):
    """Blames a node that raises ``threshold`` alerts within ``window``, once per job.

    Constant work per alert; memory: the last ``threshold`` alerts of each node, and one time for
    each node and kind.

    Args:
        job: The job to watch.
        window: Seconds within which the alerts must fall.
        threshold: How many alerts make a burst.
        fleet: Share of the job's nodes, 0 to 1, from which on a kind counts as fleet-wide and
            its alerts no longer count, as long as that many nodes raised it within ``window``.

    Examples:
        >>> from replay.api import Alert, Job
        >>> burst = Burst(Job("Job1", tuple("abcdefgh")), window=10, threshold=3)
        >>> for seq, (at, node) in enumerate([(0.0, "a"), (50.0, "b"), (52.0, "b"), (59.0, "b")]):
        ...     for verdict in burst.observe(Alert("Job1", seq, at, node, "link_flap")):
        ...         print(at, verdict.node, verdict.reason, verdict.evidence)
        59.0 b 3 alerts in 9 s (1, 2, 3)

    """

    def __init__(
        self, job: Job, *, window: float = 60.0, threshold: int = 5, fleet: float = 0.3
    ) -> None:
        super().__init__(job)
        if not window > 0:
            raise ValueError(f"window must be positive, not {window}")
        if threshold < 1:
            raise ValueError(f"threshold must be at least 1, not {threshold}")
        if not 0 < fleet <= 1:
            raise ValueError(f"fleet must be above 0 and at most 1, not {fleet}")
        self._window = window
        self._threshold = threshold
        self._crowd = max(2.0, fleet * len(job.nodes))
        self._members = frozenset(job.nodes)
        self._last: dict[
            str, OrderedDict[str, float]
        ] = {}  # kind → node → newest time, oldest first
        self._recent: dict[str, deque[tuple[float, int]]] = {}
        self._blamed: set[str] = set()

    def observe(self, alert: Alert) -> Iterable[Verdict]:
        """Count the alert; name its node if that makes a burst."""
        _, seq, at, node, kind = alert
        if self._members and node not in self._members:
            return ()
        showing = self._last.get(kind)
        if showing is None:
            showing = self._last[kind] = OrderedDict()
        if showing.pop(node, None) == at:
            showing[node] = at
            return ()
        showing[node] = at
        self._forget(showing, at - self._window)
        if len(showing) >= self._crowd or node in self._blamed:
            return ()
        recent = self._recent.get(node)
        if recent is None:
            recent = self._recent[node] = deque(maxlen=self._threshold)
        recent.append((at, seq))
        span = at - recent[0][0]
        if len(recent) < self._threshold or span > self._window:
            return ()
        self._blamed.add(node)
        return (
            Verdict(
                node,
                score=self._threshold / (1.0 + span),
                reason=f"{self._threshold} alerts in {span:g} s",
                evidence=tuple(number for _, number in recent),
            ),
        )

    @staticmethod
    def _forget(showing: OrderedDict[str, float], before: float) -> None:
        """Drop the nodes whose newest alert of this kind is older than ``before``."""
        while True:
            node = next(iter(showing))
            if showing[node] >= before:
                return
            del showing[node]
