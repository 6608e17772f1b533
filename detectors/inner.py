"""Detectors that hold another one: what its option takes, and the wrapper they share.

An option that takes a detector is written as the command line writes a detector, in parentheses
if it has several options of its own::

    continuity:inner=burst,hold=30
    continuity:inner=(burst:window=20,threshold=3),hold=30
    vote:members=burst+silence+(tolerance:count=3),quorum=2

In Python it is anything that makes a detector from a job, a class for instance.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from replay.api import Detector, Job

if TYPE_CHECKING:
    from collections.abc import Iterable

    from replay.api import Alert, AlertBatch, Verdict

__all__ = ["Maker", "Wrapper"]

Maker = Callable[[Job], Detector]
"""Makes a detector that watches a job."""


class Wrapper(Detector):
    """A detector that lets another one listen, and decides what becomes of its verdicts.

    Subclasses override :meth:`_pass`; those that act when time passes also set ``self._due`` and
    override :meth:`_expire`, which is called after all alerts of that instant.

    Args:
        job: The job to watch.
        inner: Makes the detector inside.
    """

    def __init__(self, job: Job, *, inner: Maker) -> None:
        super().__init__(job)
        self._inner = inner(job)
        self._due: float | None = None
        self._now = 0.0
        self.wake_at = self._inner.wake_at

    def observe(self, alert: Alert) -> Iterable[Verdict]:
        """Let the inner detector observe."""
        return self._answer(alert.at, self._inner.observe(alert))

    def observe_batch(self, batch: AlertBatch) -> Iterable[Verdict]:
        """Let the inner detector observe."""
        return self._answer(batch.at, self._inner.observe_batch(batch))

    def advance(self, now: float) -> Iterable[Verdict]:
        """Wake the inner detector if it is its time, then act on what is due here."""
        wake_at = self._inner.wake_at
        said = self._inner.advance(now) if wake_at is not None and wake_at <= now else ()
        return self._answer(now, said, expire=self._due is not None and self._due <= now)

    def finish(self) -> Iterable[Verdict]:
        """Last words, the inner detector's first."""
        return list(self._last(self._inner.finish()))

    def _pass(self, said: Iterable[Verdict]) -> Iterable[Verdict]:
        """What to say, given what the inner detector just said at ``self._now``."""
        return said

    def _expire(self) -> Iterable[Verdict]:
        """``self._due`` has come, and is ``self._now``; must set it anew."""
        return ()

    def _last(self, said: Iterable[Verdict]) -> Iterable[Verdict]:
        """What to say at the end, given the inner detector's last words."""
        return self._pass(said)

    def _answer(
        self, now: float, said: Iterable[Verdict], *, expire: bool = False
    ) -> list[Verdict]:
        self._now = now
        verdicts = list(self._pass(said)) if said else []
        if expire:
            verdicts += self._expire()
        self.wake_at = self._inner.wake_at
        if self._due is not None and (self.wake_at is None or self._due < self.wake_at):
            self.wake_at = self._due
        return verdicts
