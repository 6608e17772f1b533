"""Event-driven localization: certain kinds at once, the rest by episodes of comparison.

The shape is that of published accounts of how a large training operator localizes faults from one
unified stream of events (the runtime analyser in arXiv 2509.16293). It is not the algorithm of any
particular paper, and nothing here was checked against one.

Documented there:

* every source is brought into one form, (node, time, kind): here the stream comes that way;
* some kinds are *certain*, and the verdict falls at once;
* others are *tolerated* until they come again within a window;
* otherwise nodes are compared with each other every 10 seconds for up to 5 rounds; the majority is
  healthy, the odd ones out are flagged, and the highest total of flags wins;
* when nothing clears the bar the case is escalated to slower, stronger tests.

Inferred, and to be read with doubt:

* the set of recent kinds takes the place of stack traces when nodes are compared, and single nodes
  that of parallel groups: the stream holds neither stacks nor topology;
* an episode begins when a storm breaks out (or with a kind named as trigger);
* kinds of unknown role are weighed by how surprising they are in this job;
* a node that takes no part in the storm is the odder for it;
* a verdict is taken back when the fleet turns out to show the same.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from typing import TYPE_CHECKING

from detectors.docket import Docket
from detectors.windows import RareOnsets, Storm
from replay.api import Detector, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from detectors.windows import Onset
    from replay.api import Alert, Job

__all__ = ["Episodes"]

EVERY = 10.0  # seconds from round to round
APART = 8.0  # seconds that part two complaints of a tolerated kind
COMPANY = 3  # nodes that make a kind the storm's
EVE = 2.0  # seconds by which a storm's recognition may precede the culprit's word
ODD = 1.0  # nats for taking no part in a storm, and against taking part


class Episodes(Detector):
    """Blames by class of kind: certain at once, tolerated when repeated, others by comparison.

    ::

        certain     xid_79 on a ─────────────────────────────► blame a
        tolerated   nic_down on a ─── again within window ───► blame a
        unknown     several rare kinds on a ─────────────────► blame a
        storm       round 1  2  3  4  5: whose kinds are odd?
                    flags a  a  a                            ► blame a
                    none clear                               ► escalate, never guess

    Cost: constant per alert, and up to five looks at the recent onsets per storm. Source: the
    event-driven runtime analyser described in arXiv 2509.16293. Documented there are certain and
    tolerated kinds, rounds of comparison in which the majority is healthy, and escalation; that
    kinds take the place of stacks, that a storm begins an episode, and that kinds of unknown role
    are weighed by their surprise is inferred. :mod:`detectors.episodes` has the whole list.

    Args:
        job: The job to watch.
        certain: Kinds that are enough once.
        tolerated: Kinds that are enough when they come ``count`` times within ``window``.
        trigger: Kinds that begin an episode by themselves.
        noise: Kinds that mean nothing.
        count: See ``tolerated``.
        window: Seconds; see ``tolerated``.
        rounds: At most so many looks in an episode.
        flags: So many of them must agree.
        look_back: Seconds before the storm that are looked at too.
        calm: Nats of surprise beyond chance that are enough without a storm.
        bar: Nats of surprise beyond chance that make a node odd in an episode.
        escalate: Whether to raise the job as a whole when an episode ends without a verdict.

    Examples:
        >>> from replay.api import Alert, Job
        >>> detector = Episodes(Job("Job1", tuple("abcdefgh")), certain=("xid_79",))
        >>> [v.reason for v in detector.observe(Alert("Job1", 0, 900.0, "b", "xid_79"))]
        ['xid_79 is certain']

    """

    def __init__(
        self,
        job: Job,
        *,
        certain: tuple[str, ...] = (),
        tolerated: tuple[str, ...] = (),
        trigger: tuple[str, ...] = (),
        noise: tuple[str, ...] = (),
        count: int = 2,
        window: float = 300.0,
        rounds: int = 5,
        flags: int = 3,
        look_back: float = 60.0,
        calm: float = 12.0,
        bar: float = 5.0,
        escalate: bool = False,
    ) -> None:
        super().__init__(job)
        if count < 1:
            raise ValueError(f"count must be at least 1, not {count}")
        if not 1 <= flags <= rounds:
            raise ValueError(f"flags must be from 1 to the {rounds} rounds, not {flags}")
        if not window > 0 or not look_back > 0:
            raise ValueError(f"times must be positive, not {window} and {look_back}")
        self._certain = frozenset(certain)
        self._tolerated = frozenset(tolerated)
        self._trigger = frozenset(trigger)
        self._noise = frozenset(noise)
        self._count = count
        self._window = window
        self._rounds = rounds
        self._needed = flags
        self._look_back = look_back
        self._calm = calm
        self._bar = bar
        self._escalate = escalate
        self._onsets = RareOnsets(job)
        self._storm = Storm(job)
        self._complaints: dict[tuple[str, str], deque[tuple[float, int]]] = {}
        self._own: dict[str, dict[str, Onset]] = {}  # node → kind → its newest rare onset
        self._start = 0.0
        self._round = 0  # of the episode; 0 while there is none
        self._next: float | None = None
        self._flags: Counter[str] = Counter()
        self._docket = Docket(job)

    def observe(self, alert: Alert) -> Iterable[Verdict]:
        """Act on certain and tolerated kinds; take the rest down."""
        kind = alert.kind
        if kind in self._noise:
            return ()
        if kind in self._certain:
            reason = f"{kind} is certain"
            return self._docket.blame(alert.node, reason=reason, evidence=(alert.seq,))
        if self._onsets.add(alert):
            if self._storm.add(alert.node, alert.at):
                self._begin(alert.at)
            self._set_alarm()
        if kind in self._trigger and not self._round:
            self._begin(alert.at)
            self._set_alarm()
        return self._tolerate(alert) if kind in self._tolerated else ()

    def advance(self, now: float) -> Iterable[Verdict]:
        """Weigh what is settled; compare the nodes if a round is due."""
        verdicts = self._settle(now)
        if self._next is not None and self._next <= now:
            verdicts += self._compare(now)
        self._set_alarm()
        return verdicts

    def finish(self) -> Iterable[Verdict]:
        """Weigh the rest; an episode that has not come to its end ends without a verdict."""
        return self._settle(float("inf"))

    def _tolerate(self, alert: Alert) -> Iterable[Verdict]:
        key = alert.node, alert.kind
        complaints = self._complaints.setdefault(key, deque(maxlen=self._count))
        if complaints and alert.at - complaints[-1][0] < APART:
            return ()
        complaints.append((alert.at, alert.seq))
        span = alert.at - complaints[0][0]
        if len(complaints) < self._count or span > self._window:
            return ()
        return self._docket.blame(
            alert.node,
            reason=f"{alert.kind} {self._count} times in {span:g} s",
            evidence=tuple(seq for _, seq in complaints),
        )

    def _settle(self, now: float) -> list[Verdict]:
        verdicts: list[Verdict] = []
        for onset in self._onsets.settled(now):
            own = self._own.setdefault(onset.node, {})
            own[onset.kind] = onset
            for kind in [kind for kind, old in own.items() if onset.at - old.at > self._look_back]:
                del own[kind]
            excess = self._surprise(own.values()) - self._onsets.chances(onset.at)
            if len(own) > 1 and excess >= self._calm:
                verdicts += self._blame(onset.node, list(own.values()), excess)
        return verdicts

    @staticmethod
    def _surprise(onsets: Iterable[Onset]) -> float:
        return sum(onset.surprise for onset in onsets)

    def _blame(self, node: str, onsets: list[Onset], score: float) -> Iterable[Verdict]:
        return self._docket.blame(
            node,
            score=score,
            reason=f"alone with {', '.join(sorted(onset.kind for onset in onsets))}",
            evidence=tuple(sorted(onset.seq for onset in onsets)),
        )

    # an episode

    def _begin(self, at: float) -> None:
        self._start, self._round = at, 1
        self._next = at + EVERY
        self._flags.clear()

    def _compare(self, now: float) -> list[Verdict]:
        """One round: flag the odd ones out; blame, go on, or give up."""
        verdicts = self._take_back()
        scores = self._oddness(now)
        for node, score in scores.items():
            if score >= self._bar:
                self._flags[node] += 1
        clear = [node for node, flags in self._flags.items() if flags >= self._needed]
        for node in sorted(clear, key=lambda node: (-scores.get(node, 0.0), node))[:2]:
            onsets = list(self._own[node].values())
            verdicts += self._blame(node, onsets, scores.get(node, self._bar))
        if self._round < self._rounds:
            self._round += 1
            self._next = now + EVERY
            return verdicts
        if self._escalate and not self._docket.accused():
            verdicts.append(Verdict(None, reason="escalate: no node stands out"))
        self._round, self._next = 0, None
        return verdicts

    def _oddness(self, now: float) -> dict[str, float]:
        """For each node with rare onsets of its own: how odd it is among the others."""
        since = self._start - self._look_back
        chance = math.log(max(1, len(self.job.nodes)) * (now - since) / RareOnsets.SPAN)
        fleet = self._onsets.fleet
        scores = {}
        for node, own in self._own.items():
            lately = [onset for onset in own.values() if since <= onset.at <= self._start + EVE]
            surprise = sum(
                onset.surprise / (1.0 + fleet.others(node, onset.kind, onset.at, self._look_back))
                for onset in lately
            )
            if lately:
                joins = fleet.joins(node, self._start - EVERY, COMPANY)
                scores[node] = surprise - chance + (-ODD if joins else ODD)
        return scores

    def _take_back(self) -> list[Verdict]:
        """Clear the nodes whose kinds turned out to be the fleet's."""
        fleet = self._onsets.fleet
        return [
            verdict
            for node in self._docket.accused()
            if self._own.get(node) and all(fleet.wide(kind) for kind in self._own[node])
            for verdict in self._docket.clear(node, reason="the fleet shows the same")
        ]

    def _set_alarm(self) -> None:
        times = [at for at in (self._onsets.due, self._next) if at is not None]
        self.wake_at = min(times, default=None)
