"""The book on each suspect: what it said, in which company, and what the fleet did then.

A node becomes a suspect when it begins to raise a kind of alert that has a *weight*: evidence
against nodes, known from elsewhere (fitted, or given). What is noted about a suspect are plain
numbers, the *features*, each taken from what has happened so far, so that the same code serves
while a job runs and when a model is fitted on jobs that are over.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from detectors.windows import Lately, Onsets, Storm

if TYPE_CHECKING:
    from collections.abc import Mapping

    from detectors.windows import Onset
    from replay.api import Alert, Job

__all__ = ["FEATURES", "Look", "Suspect", "Suspects", "Weights"]

FEATURES = (
    "first",  # weight of the strongest kind, up to 3; other nodes that raise it too discount it
    "first_beyond",  # what it weighs beyond 3
    "second",  # weight of the next kind, up to 2.3
    "more",  # 1 if there are more than two
    "alone",  # 1 if there is only one
    "shared",  # log of the number of other nodes that raised these kinds then, up to 1.5
    "steady",  # log of repeats, times the share of those at least POLL apart
    "rapid",  # log of repeats, times the share of those that came faster, up to 1.5
    "flood",  # what that is beyond 2.5
    "surge",  # log of how many more nodes than usual began to complain since, from 0 to 2.2
    "close",  # from 0 to 1: how soon after the first evidence a storm began, within a minute
    "absent",  # 1 if the node says nothing any more while the storm is on
    "fleet",  # log of the job's nodes, from 3 to 5
    "exposure",  # log of the node-hours in which a false suspicion may have come up, up to 4.5
    "age",  # log of seconds since the newest evidence, up to 6
    "over",  # 1 if the job is over
)
"""Names of the features, in order."""

POLL = 8.0  # seconds between repeats that make them look like a monitor's polling
EPISODE = 300.0  # seconds without evidence after which a suspicion begins anew
LOOKS = (20.0, 40.0, 80.0, 160.0, 320.0, 600.0)  # seconds after evidence to look again


@dataclass(frozen=True, slots=True)
class Weights:
    """How strongly each kind speaks against the node that raises it; log-odds.

    Attributes:
        calm: Kind → weight while the fleet is calm.
        storm: Kind → weight while a storm is on.
    """

    calm: Mapping[str, float] = field(default_factory=dict)
    storm: Mapping[str, float] = field(default_factory=dict)

    def telling(self, floor: float) -> frozenset[str]:
        """The kinds that weigh at least ``floor``, in calm or in storm."""
        tables = (self.calm, self.storm)
        return frozenset(k for table in tables for k, weight in table.items() if weight >= floor)


@dataclass(slots=True)
class _Trail:
    """What one node has said of one kind."""

    onsets: int = 0
    newest: float = 0.0
    steady: int = 0  # repeats since the newest onset, at least POLL apart
    rapid: int = 0  # repeats since, closer than that


@dataclass(slots=True)
class Suspect:
    """A node that has said something of weight, and not long ago.

    Attributes:
        node: Which.
        first: When its first evidence came.
        newest: When its newest came.
        weights: Kind → weight.
        evidence: ``seq`` of the alerts.
        usual: Nodes that begin to complain in a minute, at the time of the first evidence.
        surge: The feature, at its highest.
    """

    node: str
    first: float
    newest: float
    usual: float
    weights: dict[str, float] = field(default_factory=dict)
    evidence: list[int] = field(default_factory=list)
    surge: float = 0.0


class Look(NamedTuple):
    """A suspect, and its features at the time of looking."""

    suspect: Suspect
    features: list[float]


class Suspects:
    """Keeps the book on all suspects of one job.

    Args:
        job: The job being watched.
        weights: What each kind says.
        floor: Least weight that makes a suspect.

    Attributes:
        due: When :meth:`look` is wanted next; None for not yet.
        onsets: The onsets that weights are looked up for.
    """

    def __init__(self, job: Job, weights: Weights, *, floor: float = 1.0) -> None:
        self.due: float | None = None
        self.onsets = Onsets(job, kinds=weights.telling(floor))
        self._size = max(1, len(job.nodes))
        self._weights = weights
        self._floor = floor
        self._storm = Storm(job, least=3)
        self._active = Lately(60.0)
        self._begun = 0
        self._now = 0.0
        self._trails: dict[tuple[str, str], _Trail] = {}
        self._spoke: dict[str, float] = {}
        self._suspects: dict[str, Suspect] = {}
        self._looks: list[tuple[float, str]] = []

    def add(self, alert: Alert) -> None:
        """Take in one alert."""
        _, _, at, node, kind = alert
        self._now = at
        trail = self._trails.get((node, kind))
        if trail is None:
            trail = self._trails[node, kind] = _Trail()
        if self.onsets.add(alert):
            self._begin(at, node, trail)
            self._set_due()
        elif at - trail.newest >= POLL:
            trail.steady += 1
        else:
            trail.rapid += 1
        trail.newest = at
        self._spoke[node] = at

    def _begin(self, at: float, node: str, trail: _Trail) -> None:
        trail.onsets += 1
        trail.steady = trail.rapid = 0
        self._begun += 1
        self._active.add(node, at)
        if self._storm.add(node, at):
            for suspect in self._suspects.values():
                if at - suspect.newest <= EPISODE:
                    self._look_at(suspect.node, (at + 10.0, at + 30.0))

    def look(self, now: float) -> list[Look]:
        """Look at the suspects about whom something may have changed; time has come to ``now``."""
        self._now = now
        for onset in self.onsets.settled(now):
            self.weigh(onset)
        nodes = []
        while self._looks and self._looks[0][0] <= now:
            nodes.append(heapq.heappop(self._looks)[1])
        found = [self._suspects[node] for node in dict.fromkeys(nodes) if node in self._suspects]
        for node in [n for n, s in self._suspects.items() if now - s.newest > 3 * EPISODE]:
            del self._suspects[node]
        self._set_due()
        return [Look(suspect, self._features(suspect)) for suspect in found]

    def last_look(self) -> list[Look]:
        """Look at all suspects: the job is over."""
        for onset in self.onsets.settled(math.inf):
            self.weigh(onset)
        suspects = self._suspects.values()
        return [Look(suspect, self._features(suspect, over=True)) for suspect in suspects]

    def stormy(self, onset: Onset) -> bool:
        """Whether a storm was on when the onset came, and had not just begun."""
        start = self._storm.start
        return start is not None and start + 3.0 < onset.at and self._storm.on(onset.at)

    def weigh(self, onset: Onset) -> None:
        """Note an onset against its node, if it has weight."""
        at, node, kind, seq, _ = onset
        table = self._weights.storm if self.stormy(onset) else self._weights.calm
        weight = table.get(kind, 0.0) / self._trails[node, kind].onsets
        if weight < self._floor:
            return
        suspect = self._suspects.get(node)
        if suspect is None or at - suspect.newest > EPISODE:
            usual = 60.0 * self._begun / max(at + 60.0, 300.0)
            suspect = self._suspects[node] = Suspect(node, at, at, usual)
        suspect.newest = at
        suspect.weights[kind] = max(weight, suspect.weights.get(kind, 0.0))
        suspect.evidence.append(seq)
        self._look_at(node, (self._now, *(at + later for later in LOOKS)))

    def _set_due(self) -> None:
        self.due = self.onsets.due
        if self._looks and (self.due is None or self._looks[0][0] < self.due):
            self.due = self._looks[0][0]

    def _look_at(self, node: str, times: tuple[float, ...]) -> None:
        for at in times:
            heapq.heappush(self._looks, (at, node))

    def _features(self, suspect: Suspect, *, over: bool = False) -> list[float]:
        """What is known about a suspect by now; see :data:`FEATURES`."""
        node, first, storm, now = suspect.node, suspect.first, self._storm, self._now
        shared = {
            kind: self.onsets.fleet.others(node, kind, first, 60.0) for kind in suspect.weights
        }
        weights = sorted(
            (weight / (1.0 + shared[kind]) for kind, weight in suspect.weights.items()),
            reverse=True,
        )
        trails = [self._trails[node, kind] for kind in suspect.weights]
        steady = sum(trail.steady for trail in trails)
        rapid = sum(trail.rapid for trail in trails)
        repeats = math.log1p(steady + rapid)
        flood = repeats * (rapid + 1.0) / (steady + rapid + 1.0)
        self._active.forget(now)
        surge = math.log((len(self._active) + 1.0) / (suspect.usual + 1.0))
        suspect.surge = max(suspect.surge, min(surge, 2.2))
        lag = math.inf if storm.start is None else storm.start - first
        return [
            min(weights[0], 3.0),
            max(weights[0] - 3.0, 0.0),
            min(weights[1], 2.3) if len(weights) > 1 else 0.0,
            float(len(weights) > 2),
            float(len(weights) == 1),
            min(math.log1p(sum(shared.values())), 1.5),
            math.log1p(steady) * steady / (steady + rapid + 1.0),
            min(flood, 1.5),
            max(flood - 2.5, 0.0),
            suspect.surge,
            max(0.0, 1.0 - abs(lag) / 60.0) if lag >= -3.0 else 0.0,
            float(storm.on(now) and self._spoke[node] < storm.newest - 5.0),
            min(max(math.log(self._size), 3.0), 5.0),
            min(math.log1p(max(0.0, now) / 3600.0 * self._size), 4.5),
            min(math.log1p(now - suspect.newest), 6.0),
            float(over),
        ]
