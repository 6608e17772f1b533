"""Who spoke up just before the storm?"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Literal

from detectors.docket import Docket
from detectors.windows import RareOnsets, Storm
from replay.api import Detector

if TYPE_CHECKING:
    from collections.abc import Iterable

    from detectors.windows import Onset
    from replay.api import Alert, Job, Verdict

__all__ = ["FirstInStorm"]


class FirstInStorm(Detector):
    """Blames the node that first began to raise something rare before a storm.

    When one node fails, it says so itself (if it can) and then the fleet stalls. So when a storm
    begins, look back: of the onsets that were a node's own and surprising, the earliest is the
    best guess. With a resolution of one second several may be earliest.

    ::

        10:00:01  a: xid_48           rare, and a's own
        10:00:04  b, c, d, e: reset   a storm: look back, blame a

    Cost: constant per alert, and one look back per storm. Source: temporal precedence, as used by
    on-call engineers and by log-level diagnosis.

    Args:
        job: The job to watch.
        look_back: Seconds before the storm in which to look.
        margin: Nats by which an onset's surprise must exceed what chance alone brings about in a
            job of this size and age.
        patience: Seconds from the storm's beginning to the verdict. A job that ends before was
            being taken down.
        ties: What to do if several nodes are earliest: blame ``all`` of them, the ``first`` in
            the trace's order, or ``none``.

    Examples:
        >>> from replay.api import Alert, Job
        >>> detector = FirstInStorm(Job("Job1", tuple("abcdefgh")))
        >>> rows = [(900.0, "a", "xid_48"), *((904.0, node, "reset") for node in "bcde")]
        >>> for seq, row in enumerate(rows):
        ...     _ = detector.observe(Alert("Job1", seq, *row))
        >>> _ = detector.advance(910.0)
        >>> [(verdict.node, verdict.reason) for verdict in detector.advance(919.0)]
        [('a', 'xid_48, 4 s before the storm')]

    """

    def __init__(
        self,
        job: Job,
        *,
        look_back: float = 30.0,
        margin: float = 0.0,
        patience: float = 15.0,
        ties: Literal["all", "first", "none"] = "all",
    ) -> None:
        super().__init__(job)
        if not look_back > 0 or not patience > 0:
            raise ValueError(f"times must be positive, not {look_back} and {patience}")
        self._look_back = look_back
        self._margin = margin
        self._patience = patience
        self._ties = ties
        self._onsets = RareOnsets(job, most=1.0 + math.exp(-margin))
        self._storm = Storm(job)
        self._recent: deque[Onset] = deque()
        self._verdict_at: float | None = None
        self._docket = Docket(job)

    def observe(self, alert: Alert) -> Iterable[Verdict]:
        """Take the alert down; see whether a storm begins with it."""
        if self._onsets.add(alert):
            if self._storm.add(alert.node, alert.at):
                self._verdict_at = alert.at + self._patience
            self._set_alarm()
        return ()

    def advance(self, now: float) -> Iterable[Verdict]:
        """Note the onsets whose delay is over; look back if it is time."""
        self._settle(now)
        verdicts: list[Verdict] = []
        if self._verdict_at is not None and self._verdict_at <= now:
            self._verdict_at = None
            verdicts = self._look_at_the_past()
        self._set_alarm()
        return verdicts

    def _settle(self, now: float) -> None:
        for onset in self._onsets.settled(now):
            if onset.surprise - self._onsets.chances(onset.at) >= self._margin:
                self._recent.append(onset)
            while self._recent and onset.at - self._recent[0].at > self._look_back:
                self._recent.popleft()

    def _look_at_the_past(self) -> list[Verdict]:
        start = self._storm.start
        if start is None:
            return []
        found = [o for o in self._recent if start - self._look_back <= o.at <= start]
        earliest = {o.node: o for o in reversed(found) if o.at == found[0].at}
        if len(earliest) > 1 and self._ties == "none":
            return []
        blamed = sorted(earliest.values(), key=lambda onset: onset.seq)
        return [
            verdict
            for onset in (blamed[:1] if self._ties == "first" else blamed)
            for verdict in self._docket.blame(
                onset.node,
                score=onset.surprise,
                reason=f"{onset.kind}, {start - onset.at:g} s before the storm",
                evidence=(onset.seq,),
            )
        ]

    def _set_alarm(self) -> None:
        times = [at for at in (self._onsets.due, self._verdict_at) if at is not None]
        self.wake_at = min(times, default=None)
