"""Who stands accused, and the circuit breaker: shared by every detector here that is not a baseline.

A detector that blames half the fleet has found a storm, not a culprit. A docket therefore takes a
few nodes and no more: past its limit it says so once, about the job as a whole, and stays shut.
It also keeps the small rules in one place: a node is blamed once until it is cleared, and a node
outside the job is never blamed (unless the job lists no nodes at all).

Source: the circuit breaker of fleet health controllers, which stop when half of the nodes would
be taken out within minutes; for one job the limit is three nodes, or a tenth of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replay.api import Verdict

if TYPE_CHECKING:
    from replay.api import Job

__all__ = ["Docket"]


class Docket:
    """Turns accusations into verdicts.

    Args:
        job: The job being watched.
        nodes: How many different nodes may be blamed in a job, however small it is.
        share: The same as a share of the job's nodes; the larger of the two holds.

    Examples:
        >>> from replay.api import Job
        >>> docket = Docket(Job("Job1", ("a", "b", "c")), nodes=1)
        >>> for node in ("stranger", "b", "b", "c", "a"):
        ...     for verdict in docket.blame(node, reason="seen"):
        ...         print(verdict.node, verdict.reason)
        b seen
        None circuit breaker: more than 1 of 3 nodes would be blamed

    """

    def __init__(self, job: Job, *, nodes: int = 3, share: float = 0.1) -> None:
        if nodes < 1:
            raise ValueError(f"nodes must be at least 1, not {nodes}")
        if not 0 <= share <= 1:
            raise ValueError(f"share must be from 0 to 1, not {share}")
        self._members = frozenset(job.nodes)
        self._limit = max(nodes, int(share * len(job.nodes)))
        self._ever: set[str] = set()
        self._now: set[str] = set()
        self._open = False

    def knows(self, node: str) -> bool:
        """Whether a node may be blamed at all: it belongs to the job."""
        return not self._members or node in self._members

    def __contains__(self, node: object) -> bool:
        return node in self._now

    def accused(self) -> list[str]:
        """The nodes that are blamed now, by name."""
        return sorted(self._now)

    def blame(
        self,
        node: str,
        *,
        score: float = 1.0,
        reason: str = "",
        evidence: tuple[int, ...] = (),
    ) -> tuple[Verdict, ...]:
        """Blame a node.

        Returns:
            The verdict; nothing if the node is blamed already, does not belong to the job, or
            the breaker has opened before; the breaker's own word, once, if it opens now.
        """
        if node in self._now or not self.knows(node):
            return ()
        if node not in self._ever:
            if len(self._ever) >= self._limit:
                return self._trip()
            self._ever.add(node)
        self._now.add(node)
        return (Verdict(node, score=score, reason=reason, evidence=evidence),)

    def clear(self, node: str, *, reason: str = "") -> tuple[Verdict, ...]:
        """Take a blame back; nothing if the node is not blamed now."""
        if node not in self._now:
            return ()
        self._now.remove(node)
        return (Verdict(node, "retract", reason=reason),)

    def _trip(self) -> tuple[Verdict, ...]:
        if self._open:
            return ()
        self._open = True
        total = len(self._members) or "all"
        return (
            Verdict(
                None,
                reason=f"circuit breaker: more than {self._limit} of {total} nodes would be blamed",
            ),
        )
