"""What may be watched while a replay runs: the page, the metrics and the progress line.

An observer looks on; nothing it does changes a verdict. Calls come on the thread that did the
thing, so an observer must be quick and must not raise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from replay.messages import Message, TimedVerdict

__all__ = ["Observer"]


class Observer:
    """Does nothing; override what you want to see."""

    def published(self, message: Message) -> None:
        """The engine handed a message to its sink."""

    def jumped(self, before: float, after: float, epoch: int) -> None:
        """Replay time went from ``before`` to ``after`` (seconds) by a seek, a loop or a gap."""

    def judged(self, verdict: TimedVerdict) -> None:
        """A detector said something."""

    def failed(self, detector: str, job: str, error: BaseException) -> None:
        """A detector crashed on a job and was stopped there."""
