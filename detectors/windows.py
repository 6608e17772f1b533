"""What the detectors here remember of a stream, and for how long.

Two facts about real alert streams shape it. Most rows are repeats: one node has shouted the same
kind a hundred thousand times. And what most of the fleet says at once is about the fleet, not
about a node. So the detectors look at *onsets*: the first time that a node raises a kind after
a while without it, provided that the rest of the fleet does not raise it too.

Memory is bounded by nodes times kinds, however long a job runs.

Source: the deduplication window and the fleet-wide suppression of fleet health monitors; "all
copies are abnormal, so it is not this one" in operator-level and log-level diagnosis.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict, deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator

    from replay.api import Alert, Job

__all__ = ["Fleet", "Lately", "Onset", "Onsets", "RareOnsets", "Storm"]


class Lately:
    """Which nodes did something within the last ``window`` seconds; each counts once.

    Args:
        window: Seconds after which a node is forgotten; an age of exactly ``window`` still counts.

    Examples:
        >>> lately = Lately(10)
        >>> [lately.add(node, at) for at, node in [(0.0, "a"), (5.0, "b"), (8.0, "a"), (16.0, "c")]]
        [True, True, False, True]
        >>> list(lately)
        ['a', 'c']

    """

    __slots__ = ("_newest", "_oldest", "_window")

    def __init__(self, window: float) -> None:
        self._window = window
        self._oldest = -math.inf  # nobody did it earlier; may be behind
        self._newest: OrderedDict[str, float] = OrderedDict()  # oldest first

    def add(self, node: str, at: float) -> bool:
        """The node did it at ``at``, which never goes back; say whether it had not done it lately."""
        newest, before = self._newest, at - self._window
        last = newest.get(node)
        if last == at:
            return False
        newest[node] = at
        newest.move_to_end(node)
        if self._oldest < before:
            while (oldest := newest[next(iter(newest))]) < before:
                newest.popitem(last=False)
            self._oldest = oldest
        return last is None or last < before

    def forget(self, now: float) -> None:
        """Drop the nodes that did it more than ``window`` seconds before ``now``."""
        newest, before = self._newest, now - self._window
        while newest and newest[next(iter(newest))] < before:
            newest.popitem(last=False)

    def get(self, node: str) -> float:
        """When the node last did it; minus infinity if that is too long ago."""
        return self._newest.get(node, -math.inf)

    def items(self) -> Iterable[tuple[str, float]]:
        """Nodes and when each last did it, oldest first."""
        return self._newest.items()

    def __contains__(self, node: object) -> bool:
        return node in self._newest

    def __iter__(self) -> Iterator[str]:
        return iter(self._newest)

    def __len__(self) -> int:
        return len(self._newest)


class Fleet:
    """Who lately raised what, and which kinds are fleet-wide.

    Args:
        job: The job being watched. Nodes outside it are not counted, unless it lists none.
        window: Seconds for which an alert is remembered.
        share: Share of the job's nodes, above 0 to 1, that makes a kind fleet-wide when they raise
            it within ``window``.
        fewest: Fewest nodes that make one, however small the job.

    Examples:
        >>> from replay.api import Job
        >>> fleet = Fleet(Job("Job1", ("a", "b", "c", "d")), window=10, share=0.5)
        >>> [fleet.add(node, "nccl", at) for node, at in [("a", 0.0), ("a", 5.0), ("b", 5.0)]]
        [True, False, True]
        >>> fleet.wide("nccl")
        True

    """

    def __init__(self, job: Job, *, window: float, share: float, fewest: int = 2) -> None:
        if not window > 0:
            raise ValueError(f"window must be positive, not {window}")
        if not 0 < share <= 1:
            raise ValueError(f"share must be above 0 and at most 1, not {share}")
        self._window = window
        self._crowd = max(fewest, share * len(job.nodes))
        self._members = frozenset(job.nodes)
        self._nodes: dict[str, Lately] = {}

    def add(self, node: str, kind: str, at: float) -> bool:
        """Take in one alert; say whether it is an onset."""
        if self._members and node not in self._members:
            return False
        nodes = self._nodes.get(kind)
        if nodes is None:
            nodes = self._nodes[kind] = Lately(self._window)
        return nodes.add(node, at)

    def wide(self, kind: str) -> bool:
        """Whether the kind was fleet-wide at its newest alert."""
        return len(self._nodes.get(kind, ())) >= self._crowd

    def joins(self, node: str, since: float, company: int) -> bool:
        """Whether the node, since then, raised a kind that so many nodes raise."""
        return any(
            len(nodes) >= company and nodes.get(node) >= since for nodes in self._nodes.values()
        )

    def others(self, node: str, kind: str, at: float, within: float) -> int:
        """How many other nodes last raised the kind within so many seconds of ``at``."""
        nodes = self._nodes.get(kind)
        if nodes is None:
            return 0
        return sum(other != node and abs(newest - at) <= within for other, newest in nodes.items())


class Onset(NamedTuple):
    """A node begins to raise a kind of alert.

    ``surprise`` says how unusual that is, in nats; see :class:`RareOnsets`.
    """

    at: float
    node: str
    kind: str
    seq: int
    surprise: float = 0.0


class Onsets:
    """The onsets that are a node's own, each known ``settle`` seconds late.

    The delay lets the rest of the fleet speak up: an onset counts only if its kind is not
    fleet-wide when the delay is over.

    Args:
        job: The job being watched.
        window: See :class:`Fleet`.
        share: See :class:`Fleet`.
        settle: Seconds from an onset to its judgement. With 0 it falls at the end of the instant.
        kinds: The only kinds whose onsets are given; None for all.

    Attributes:
        fleet: Who lately raised what.
        due: When the next onset is settled; None if none waits.
    """

    def __init__(
        self,
        job: Job,
        *,
        window: float = 180.0,
        share: float = 0.1,
        settle: float = 10.0,
        kinds: Container[str] | None = None,
    ) -> None:
        if settle < 0:
            raise ValueError(f"settle must not be negative, not {settle}")
        self.fleet = Fleet(job, window=window, share=share, fewest=3)
        self.due: float | None = None
        self._settle = settle
        self._kinds = kinds
        self._waiting: deque[Onset] = deque()

    def add(self, alert: Alert) -> bool:
        """Take in one alert; say whether it is an onset, the fleet's or its node's own."""
        _, seq, at, node, kind = alert
        if not self.fleet.add(node, kind, at):
            return False
        if self._kinds is None or kind in self._kinds:
            self._wait(Onset(at, node, kind, seq))
        return True

    def _wait(self, onset: Onset) -> None:
        self._waiting.append(onset)
        if self.due is None:
            self.due = onset.at + self._settle

    def settled(self, now: float) -> list[Onset]:
        """Give the onsets that are due, oldest first, less those that the fleet shares."""
        ready = []
        while self._waiting and self._waiting[0].at + self._settle <= now:
            onset = self._waiting.popleft()
            if not self.fleet.wide(onset.kind):
                ready.append(onset)
        self.due = self._waiting[0].at + self._settle if self._waiting else None
        return ready


class RareOnsets(Onsets):
    """The onsets of a node's own that surprise, after what the job has shown so far.

    The surprise is minus log of the chance that a given node begins to raise the kind within ten
    seconds. A kind that nodes begin to raise now and then surprises little, one that no node has
    raised in a long job surprises a lot, and while half of the fleet complains nothing surprises
    much.

    Args:
        job: The job being watched.
        settle: See :class:`Onsets`.
        most: How many onsets of a kind, on whatever nodes, make it common for good.
        head_start: Node-hours that the fleet is taken to have been watched in silence before the
            job began, so that the first alerts of a young job are not all sensations.

    Examples:
        >>> from replay.api import Alert, Job
        >>> onsets = RareOnsets(Job("Job1", ("a", "b")), settle=0)
        >>> for seq, kind in enumerate(["ecc"] * 20 + ["gpu_lost"]):
        ...     _ = onsets.add(Alert("Job1", seq, 600.0 * seq, "a", kind))
        >>> [(onset.kind, round(onset.surprise, 1)) for onset in onsets.settled(12000.0)[-2:]]
        [('ecc', 5.7), ('gpu_lost', 9.4)]

    """

    SPAN = 10.0

    def __init__(
        self, job: Job, *, settle: float = 10.0, most: float = 50.0, head_start: float = 10.0
    ) -> None:
        super().__init__(job, settle=settle)
        self._size = max(1, len(job.nodes))
        self._most = most
        self._head_start = head_start * 3600.0
        self._seen: Counter[str] = Counter()
        self._begun = 0
        self._busy = Lately(3 * self.SPAN)

    def _wait(self, onset: Onset) -> None:
        at, node, kind, seq, _ = onset
        self._begun += 1
        self._busy.add(node, at)
        seen = self._seen[kind] = self._seen[kind] + 1
        if seen > self._most:
            return
        watched = self._size * max(at, 0.0) + self._head_start
        usual = max(1.0, self._begun * 3 * self.SPAN * self._size / watched)
        storm = max(1.0, len(self._busy) / usual)
        surprise = math.log(watched / self.SPAN / (seen - 0.5) / storm)
        super()._wait(Onset(at, node, kind, seq, max(0.0, surprise)))

    def chances(self, at: float) -> float:
        """Log of the number of occasions on which a surprise may have come up by ``at``."""
        return math.log((self._size * max(at, 0.0) + self._head_start) / self.SPAN)


class Storm:
    """Whether much of the fleet has begun to complain, of whatever it may be.

    A storm says that the job is in trouble; who is to blame is found in what came just before it
    and in who is missing from it.

    Args:
        job: The job being watched.
        window: Seconds within which nodes must begin to complain.
        share: Share of the job's nodes that makes a storm.
        least: Fewest nodes that make one, however small the job.
        calm: Seconds without a storm after which the next one is another.

    Attributes:
        start: When the newest storm began; None before the first.
        newest: When it was last seen; minus infinity before the first.
    """

    def __init__(
        self,
        job: Job,
        *,
        window: float = 30.0,
        share: float = 0.15,
        least: int = 5,
        calm: float = 120.0,
    ) -> None:
        self.start: float | None = None
        self.newest = float("-inf")
        self._active = Lately(window)
        self._crowd = max(least, share * len(job.nodes))
        self._calm = calm

    def add(self, node: str, at: float) -> bool:
        """Take in an onset; say whether a storm begins with it."""
        self._active.add(node, at)
        if len(self._active) < self._crowd:
            return False
        begins = at - self.newest > self._calm
        self.newest = at
        if begins:
            self.start = at
        return begins

    def on(self, at: float) -> bool:
        """Whether a storm was on at ``at``, or had been shortly before."""
        return self.start is not None and self.start <= at <= self.newest + self._calm
