"""When does one node begin to complain faster than its peers?"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from detectors.docket import Docket
from detectors.windows import Lately, Onsets
from replay.api import Detector

if TYPE_CHECKING:
    from collections.abc import Iterable

    from detectors.windows import Onset
    from replay.api import Alert, Job, Verdict

__all__ = ["RateChange"]


class _Onsets(Onsets):
    """Onsets whose surprise is minus log of the peers' rate when they came, per second."""

    def __init__(self, job: Job, warm_up: float) -> None:
        super().__init__(job)
        self._size = max(1, len(job.nodes))
        self._warm_up = warm_up
        self._busy = Lately(60.0)
        self._begun = 0

    def _wait(self, onset: Onset) -> None:
        self._begun += 1
        self._busy.add(onset.node, onset.at)
        hours = self._size * max(onset.at, 0.0) / 3600.0 + self._warm_up
        overall = (self._begun + self._warm_up) / hours / 3600.0
        lately = len(self._busy) / (60.0 * self._size)
        super()._wait(onset._replace(surprise=-math.log(max(overall, lately))))


class RateChange(Detector):
    """Blames a node whose rate of onsets has changed for the worse; takes it back when that ends.

    A one-sided CUSUM per node. Under the old rate onsets come as they come to the node's peers,
    under the new one ``ratio`` times as often. Each onset of the node's own adds log(ratio) to
    its sum, each second takes off (ratio - 1) times the peers' rate (in the whole job, or in the
    last minute if that is more), and a sum never falls below zero. The bar rises with the log of
    the occasions on which chance may have reached it, so that a long job of many nodes is not
    blamed for its length.

    ::

        sum                    ┌─┐
         14 ─ ─ ─ ─ ─ ─ ─ ─ ─ ─│─│─ ─ ─ ─   bar: blamed
              ┌╮            ┌─┘  ╲
         0 ───┘ ╲───────────┘     ╲──────   taken back

    Cost: constant per alert. Source: Page's CUSUM for Poisson counts, in the place of the
    change-point detection that finds slow nodes from their iteration times.

    Args:
        job: The job to watch.
        ratio: How many times the peers' rate is a change worth finding, above 1.
        margin: Added to the bar, in nats.
        warm_up: Node-hours of a rate of one onset an hour that stand for what the job has not
            shown yet.

    Examples:
        >>> from replay.api import Alert, Job
        >>> detector = RateChange(Job("Job1", tuple("abcdefgh")))
        >>> for seq, kind in enumerate(["xid_48", "remap", "ecc"]):
        ...     _ = detector.observe(Alert("Job1", seq, 90000.0 + seq, "b", kind))
        >>> [verdict.reason for verdict in detector.finish()]
        ['3 onsets in 2 s']

    """

    def __init__(
        self, job: Job, *, ratio: float = 100.0, margin: float = 0.0, warm_up: float = 5.0
    ) -> None:
        super().__init__(job)
        if not ratio > 1:
            raise ValueError(f"ratio must be above 1, not {ratio}")
        if not warm_up > 0:
            raise ValueError(f"warm_up must be positive, not {warm_up}")
        self._ratio = ratio
        self._margin = margin
        self._warm_up = warm_up
        self._size = max(1, len(job.nodes))
        self._onsets = _Onsets(job, warm_up)
        self._sums: dict[str, tuple[float, float]] = {}  # node → when, sum
        self._run: dict[str, list[Onset]] = {}  # node → onsets since its sum was zero
        self._docket = Docket(job)

    def observe(self, alert: Alert) -> Iterable[Verdict]:
        """Take the alert down; whether it is its node's own shows later."""
        if self._onsets.add(alert):
            self.wake_at = self._onsets.due
        return ()

    def advance(self, now: float) -> Iterable[Verdict]:
        """Add up the onsets whose delay is over."""
        verdicts: list[Verdict] = []
        for onset in self._onsets.settled(now):
            verdicts += self._add(onset)
        self.wake_at = self._onsets.due
        return verdicts

    def finish(self) -> Iterable[Verdict]:
        """Add up the rest."""
        return self.advance(float("inf"))

    def _add(self, onset: Onset) -> list[Verdict]:
        at, node = onset.at, onset.node
        rate = math.exp(-onset.surprise)
        before, total = self._sums.get(node, (at, 0.0))
        total -= (self._ratio - 1.0) * rate * (at - before)
        run = self._run.setdefault(node, [])
        verdicts: list[Verdict] = []
        if total <= 0.0:
            total = 0.0
            run.clear()
            verdicts += self._docket.clear(node, reason="its rate is back to normal")
        total += math.log(self._ratio)
        run.append(onset)
        self._sums[node] = at, total
        watched = self._size * max(at, 0.0) + 3600.0 * self._warm_up
        bar = self._margin + math.log(watched / 10.0)
        if total >= bar:
            verdicts += self._docket.blame(
                node,
                score=total - bar + 1.0,
                reason=f"{len(run)} onsets in {at - run[0].at:g} s",
                evidence=tuple(one.seq for one in run),
            )
        return verdicts
