"""Cause before consequence."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from detectors.docket import Docket
from detectors.windows import Fleet
from replay.api import Detector

if TYPE_CHECKING:
    from collections.abc import Iterable

    from replay.api import Alert, Job, Verdict

__all__ = ["Sequence"]


@dataclass(slots=True)
class _Chain:
    """What followed an onset that nothing explains.

    Attributes:
        at: When it came.
        kind: What it was.
        seq: Its number.
        followers: Kinds that the same node began to raise within the window.
        evidence: Numbers of all these alerts.
    """

    at: float
    kind: str
    seq: int
    followers: set[str] = field(default_factory=set)
    evidence: list[int] = field(default_factory=list)


class Sequence(Detector):
    """Blames a node on which one kind of alert brings about others.

    When a node begins to raise a kind within a few seconds of another, the first explains the
    second. An onset that nothing explains is a cause, and a cause whose kind is seldom seen without
    consequences, in this job so far, is a fault. A kind that comes alone a hundred times and once
    in company has learned nothing new: it is noise.

    ::

        a: ecc          ecc               ecc                 3 times alone
        b:                  xid_48 ─ 2 s ─ xid_45, remap      once, with consequences: blamed

    Cost: constant per alert. Source: fault propagation on one host within five seconds, and the
    Xid chains (48 before 45 and 63, 13 before 43) that operators of large clusters report.

    Args:
        job: The job to watch.
        window: Seconds within which a consequence follows.
        followers: How many other kinds must follow.
        doubt: How often its kind may have come without consequences, as a share from 0 to 1.

    Examples:
        >>> from replay.api import Alert, Job
        >>> detector = Sequence(Job("Job1", tuple("abcdefgh")))
        >>> for seq, (at, kind) in enumerate([(900.0, "xid_48"), (902.0, "remap")]):
        ...     _ = detector.observe(Alert("Job1", seq, at, "b", kind))
        >>> [verdict.reason for verdict in detector.advance(detector.wake_at)]
        ['xid_48, then remap']

    """

    SETTLE = 10.0
    """Seconds in which the rest of the fleet may say that it has the same."""

    def __init__(
        self, job: Job, *, window: float = 5.0, followers: int = 1, doubt: float = 0.5
    ) -> None:
        super().__init__(job)
        if not window > 0:
            raise ValueError(f"window must be positive, not {window}")
        if followers < 1:
            raise ValueError(f"followers must be at least 1, not {followers}")
        if not 0 <= doubt <= 1:
            raise ValueError(f"doubt must be from 0 to 1, not {doubt}")
        self._window = window
        self._followers = followers
        self._doubt = doubt
        self._fleet = Fleet(job, window=180.0, share=0.1)
        self._alone: Counter[str] = Counter()
        self._causes: Counter[str] = Counter()
        self._chains: dict[str, _Chain] = {}  # node → its chain, oldest first
        self._docket = Docket(job)

    def observe(self, alert: Alert) -> Iterable[Verdict]:
        """Add the alert to its node's chain, or begin one."""
        _, seq, at, node, kind = alert
        if not self._fleet.add(node, kind, at):
            return ()
        chain = self._chains.get(node)
        if chain is None:
            self._chains[node] = _Chain(at, kind, seq, evidence=[seq])
            if self.wake_at is None:
                self.wake_at = at + self._window + self.SETTLE
        elif at - chain.at <= self._window:
            chain.followers.add(kind)
            chain.evidence.append(seq)
        return ()

    def advance(self, now: float) -> Iterable[Verdict]:
        """Close the chains that are complete."""
        verdicts: list[Verdict] = []
        while self._chains:
            node, chain = next(iter(self._chains.items()))
            due = chain.at + self._window + self.SETTLE
            self.wake_at = due
            if due > now:
                return verdicts
            del self._chains[node]
            verdicts += self._close(node, chain)
        self.wake_at = None
        return verdicts

    def finish(self) -> Iterable[Verdict]:
        """Close all chains."""
        return self.advance(float("inf"))

    def _close(self, node: str, chain: _Chain) -> Iterable[Verdict]:
        followers = sorted(
            kind for kind in chain.followers - {chain.kind} if not self._fleet.wide(kind)
        )
        if self._fleet.wide(chain.kind) or len(followers) < self._followers:
            self._alone[chain.kind] += 1
            return ()
        self._causes[chain.kind] += 1
        alone, causes = self._alone[chain.kind], self._causes[chain.kind]
        common = max(self._alone[kind] for kind in followers)
        if alone > self._doubt * (alone + causes) or common > causes:
            return ()
        return self._docket.blame(
            node,
            score=len(followers) + causes / (alone + causes),
            reason=f"{chain.kind}, then {', '.join(followers)}",
            evidence=tuple(chain.evidence),
        )
