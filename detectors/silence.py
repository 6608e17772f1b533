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


EVE = 10.0  # seconds before a storm is recognized in which its first alerts came
COMPANY = 3  # nodes that make a kind the storm's


class Silence(Detector):
    """Blames the node that begins to complain just before a storm that it then takes no part in.

    A dead node cannot complain that its peers are gone. But silence alone proves little on a
    stream of alerts, where most nodes are silent most of the time; so only a node that had just
    begun to complain is missed, and only if much of the fleet is heard. It may go on repeating
    itself; what counts is that it does not say what the others say.

    ::

        09:59:58  a: xid_48             last words
        10:00:04  b, c, d, e: reset     a storm without a
        10:00:34  no reset from a       blamed

    Cost: constant per alert, and a look at the recent speakers per storm. Source: missing
    heartbeats, which training frameworks take for dead workers after minutes.

    Args:
        job: The job to watch.
        last_words: Seconds before the storm in which a node must have begun to complain.
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
        last_words: float = 20.0,
        patience: float = 30.0,
        share: float = 0.3,
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
        self._said: dict[str, tuple[int, str]] = {}  # node → its newest onset
        self._missed: dict[str, tuple[int, str]] = {}
        self._docket = Docket(job)

    def observe(self, alert: Alert) -> Iterable[Verdict]:
        """Note who begins to complain; when a storm begins, note who had just done so."""
        _, seq, at, node, kind = alert
        if not self._fleet.add(node, kind, at):
            return ()
        self._speakers.add(node, at)
        self._said[node] = seq, kind
        if self._storm.add(node, at):
            self._missed = {speaker: self._said[speaker] for speaker in self._speakers}
            self.wake_at = at + self._patience
        return ()

    def advance(self, now: float) -> Iterable[Verdict]:  # noqa: ARG002 - the storm's beginning counts
        """The storm has lasted: who of those has no part in it, and is the fleet heard?"""
        self.wake_at = None
        start = self._storm.start
        if start is None:
            return []
        since = start - EVE
        heard = sum(self._fleet.joins(node, since, COMPANY) for node in self.job.nodes)
        missed = [node for node in self._missed if not self._fleet.joins(node, since, COMPANY)]
        if heard < self._quorum or len(missed) > self._most:
            return []
        return [
            verdict
            for node in missed
            for verdict in self._docket.blame(
                node,
                score=heard / len(missed),
                reason=f"{self._missed[node][1]}, then not among {heard} nodes in a storm",
                evidence=(self._missed[node][0],),
            )
        ]
