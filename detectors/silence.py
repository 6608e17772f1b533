"""Who is missing when everybody shouts?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from detectors.docket import Docket
from detectors.windows import Fleet, Lately, Storm
from replay.api import Detector

if TYPE_CHECKING:
    from collections.abc import Iterable

    from replay.api import Alert, Job, Verdict

__all__ = ["Silence"]


class Silence(Detector):
    """Blames the node whose last words came just before a storm that it then takes no part in.

    A dead node cannot complain that its peers are gone. But silence alone proves little on a
    stream of alerts, where most nodes are silent most of the time; so only a node that had just
    spoken is missed, and only if most of the fleet is heard.

    ::

        09:59:58  a: xid_48           last words
        10:00:04  b, c, d, e: reset   a storm without a
        10:00:34  still no word of a  blamed

    Cost: constant per alert, and a look at the recent speakers per storm. Source: missing
    heartbeats, which training frameworks take for dead workers after minutes.

    Args:
        job: The job to watch.
        last_words: Seconds before the storm in which a node must have spoken to be missed.
        patience: Seconds of silence, from the storm's beginning, that are long enough.
        share: Share of the job's nodes, 0 to 1, that must be heard in that time.
        most: How many nodes may be missed; if there are more, none is blamed.

    Examples:
        >>> from replay.api import Alert, Job
        >>> detector = Silence(Job("Job1", tuple("abcdefgh")))
        >>> rows = [(900.0, "a", "xid_48"), *((904.0, node, "reset") for node in "bcdefg")]
        >>> for seq, row in enumerate(rows):
        ...     _ = detector.observe(Alert("Job1", seq, *row))
        >>> detector.wake_at, [verdict.node for verdict in detector.advance(934.0)]
        (934.0, ['a'])

    """

    def __init__(
        self,
        job: Job,
        *,
        last_words: float = 30.0,
        patience: float = 30.0,
        share: float = 0.4,
        most: int = 2,
    ) -> None:
        super().__init__(job)
        if not last_words > 0 or not patience > 0:
            raise ValueError(f"times must be positive, not {last_words} and {patience}")
        if not 0 <= share <= 1:
            raise ValueError(f"share must be from 0 to 1, not {share}")
        if most < 1:
            raise ValueError(f"most must be at least 1, not {most}")
        self._patience = patience
        self._quorum = share * len(job.nodes)
        self._most = most
        self._fleet = Fleet(job, window=180.0, share=1.0)
        self._storm = Storm(job)
        self._speakers = Lately(last_words)
        self._said: dict[str, tuple[float, int, str]] = {}  # node → its newest alert
        self._missed: list[str] = []
        self._docket = Docket(job)

    def observe(self, alert: Alert) -> Iterable[Verdict]:
        """Note who speaks; when a storm begins, note who had just spoken."""
        _, seq, at, node, kind = alert
        if not self._docket.knows(node):
            return ()
        if self._fleet.add(node, kind, at) and self._storm.add(node, at):
            self._speakers.forget(at)
            self._missed = list(self._speakers)
            self.wake_at = at + self._patience
        self._speakers.add(node, at)
        self._said[node] = at, seq, kind
        return ()

    def advance(self, now: float) -> Iterable[Verdict]:  # noqa: ARG002 - the storm's beginning counts
        """The storm has lasted: who of those is still silent, and is the fleet heard?"""
        self.wake_at = None
        return self._judge()

    def _judge(self) -> list[Verdict]:
        start = self._storm.start
        if start is None:
            return []
        silent = [node for node in self._missed if self._said[node][0] < start - 0.5]
        heard = sum(at >= start for at, _, _ in self._said.values())
        if heard < self._quorum or len(silent) > self._most:
            return []
        return [
            verdict
            for node in silent
            for verdict in self._docket.blame(
                node,
                score=heard / len(silent),
                reason=f"silent since {self._said[node][2]}, while {heard} nodes complain",
                evidence=(self._said[node][1],),
            )
        ]
