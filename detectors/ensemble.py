"""Several detectors, one voice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from detectors.docket import Docket
from detectors.inner import Maker  # noqa: TC001 - the plug-in door reads the annotation
from detectors.kinds import DistinctKinds
from detectors.peers import Peers
from detectors.sequence import Sequence
from replay.api import Detector

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from replay.api import Alert, AlertBatch, Job, Verdict

__all__ = ["Vote"]


class Vote(Detector):
    """Blames a node when enough detectors blame it at the same time.

    Detectors that err in different ways rarely err on the same node, so agreement is worth more
    than any member's confidence. A member's vote stands until the member takes it back.

    ::

        burst   raise a ───────────────────────────
        peers             raise b ──── raise a ─────
        vote                           raise a        quorum 2

    Cost: that of the members. Source: common practice; the cumulative voting of group eviction
    in production clusters is the same idea over time.

    Args:
        job: The job to watch.
        members: Make the detectors that vote.
        quorum: How many members must blame a node.

    Examples:
        >>> from detectors.baselines import FirstAlert, Loudest
        >>> from replay.api import Alert, Job
        >>> vote = Vote(Job("Job1", ("a", "b")), members=(FirstAlert, Loudest), quorum=2)
        >>> list(vote.observe(Alert("Job1", 0, 1.0, "a", "ecc")))
        []
        >>> [(verdict.node, verdict.reason) for verdict in vote.finish()]
        [('a', '2 of 2 agree')]

    """

    def __init__(
        self,
        job: Job,
        *,
        members: tuple[Maker, ...] = (DistinctKinds, Sequence, Peers),
        quorum: int = 2,
    ) -> None:
        super().__init__(job)
        if not 1 <= quorum <= len(members):
            raise ValueError(f"quorum must be from 1 to {len(members)} members, not {quorum}")
        self._members = [make(job) for make in members]
        self._quorum = quorum
        self._votes: dict[str, dict[int, Verdict]] = {}  # node → member → its standing blame
        self._changed: set[str] = set()
        self._docket = Docket(job)
        self._set_alarm()

    def observe(self, alert: Alert) -> Iterable[Verdict]:
        """Let every member observe; the votes are counted when the instant is over."""
        self._collect([member.observe(alert) for member in self._members], alert.at)
        return ()

    def observe_batch(self, batch: AlertBatch) -> Iterable[Verdict]:
        """Let every member observe; the votes are counted when the instant is over."""
        self._collect([member.observe_batch(batch) for member in self._members], batch.at)
        return ()

    def advance(self, now: float) -> Iterable[Verdict]:
        """Wake the members whose time has come, and count."""
        said = [
            member.advance(now) if member.wake_at is not None and member.wake_at <= now else ()
            for member in self._members
        ]
        self._collect(said, now)
        self._set_alarm()
        return list(self._count())

    def finish(self) -> Iterable[Verdict]:
        """Count with the members' last words."""
        self._collect([member.finish() for member in self._members], 0.0)
        return list(self._count())

    def _collect(self, said: list[Iterable[Verdict]], at: float) -> None:
        """Note what each member just said."""
        self._set_alarm()
        for member, verdicts in enumerate(said):
            for verdict in verdicts:
                if verdict.node is None:
                    continue
                votes = self._votes.setdefault(verdict.node, {})
                if verdict.action == "raise":
                    votes[member] = verdict
                else:
                    votes.pop(member, None)
                self._changed.add(verdict.node)
                self.wake_at = at

    def _count(self) -> Iterator[Verdict]:
        """Blame and clear the nodes whose votes have changed, the surest first."""
        size = len(self._members)
        for node in sorted(self._changed, key=lambda node: (-len(self._votes[node]), node)):
            votes = self._votes[node]
            reason = f"{len(votes)} of {size} agree"
            if len(votes) < self._quorum:
                yield from self._docket.clear(node, reason=reason)
                continue
            seqs = {seq for vote in votes.values() for seq in vote.evidence}
            yield from self._docket.blame(
                node, score=len(votes) / size, reason=reason, evidence=tuple(sorted(seqs))
            )
        self._changed.clear()

    def _set_alarm(self) -> None:
        """Wake up for whoever is first."""
        times = [member.wake_at for member in self._members if member.wake_at is not None]
        self.wake_at = min(times, default=None)
