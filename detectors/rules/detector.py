"""A rule file as a detector."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from detectors.rules.program import Settings, load_program, milliseconds
from detectors.rules.watch import Book, Watch
from replay.api import Alert, Detector, Job, Verdict
from replay.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from detectors.rules.counters import Zero
    from detectors.rules.evaluation import Dialect

__all__ = ["STARTER", "Rules"]

STARTER = Path(__file__).with_name("starter.yml")
"""Rules to begin with."""


class Rules(Detector):
    """Evaluates the alerting rules of a Prometheus rule file in trace time.

    An alert that begins to fire and carries the node's label is a raise, its end a retract; one
    without that label speaks of the job as a whole.

    Args:
        job: The job to watch.
        file: Path of the rule file; empty for the rules in ``starter.yml`` beside this module.
        alert: Listen to this alert only; empty for all of the file.
        dialect: ``prometheus3`` or ``prometheus2``.
        label: The label that names the node.
        scrape: Between two scrapes, like ``15s``.
        interval: Between two evaluations, where a group does not say.
        eval_offset: By how much evaluations come after whole multiples of their interval.
        zero: What a counter shows before its first alert: ``none``, ``two-step`` or ``cross``.
        kinds: The kinds that ``cross`` begins with, separated by ``|``.
        lookback: How long a sample stands for its series.

    Raises:
        RuleFileError: The file is bad.
        UsageError: An option is.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> rules = "groups: [{name: g, rules: [{alert: Seen, expr: llm_alert_events_total > 1}]}]"
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "rules.yml")
        ...     _ = path.write_text(rules)
        ...     detector = Rules(Job("Job1", ("a",)), file=str(path))
        >>> detector.advance(0.0), detector.wake_at
        ([], 15.0)
        >>> for seq in range(2):
        ...     _ = detector.observe(Alert("Job1", seq, 3.0, "a", "hang"))
        >>> [verdict.node for verdict in detector.advance(15.0)]
        ['a']

    """

    def __init__(
        self,
        job: Job,
        *,
        file: str = "",
        alert: str = "",
        dialect: Dialect = "prometheus3",
        label: str = "ip",
        scrape: str = "15s",
        interval: str = "15s",
        eval_offset: str = "0s",
        zero: Zero = "none",
        kinds: str = "",
        lookback: str = "5m",
    ) -> None:
        super().__init__(job)
        if zero == "seen":
            raise UsageError(
                "The zero policy seen looks ahead, and a detector cannot.", "zero=two-step"
            )
        settings = Settings(
            dialect,
            milliseconds(scrape),
            milliseconds(interval),
            milliseconds(eval_offset),
            zero,
            tuple(kind for kind in kinds.split("|") if kind),
            label,
            milliseconds(lookback),
            alert,
        )
        self._watch = Watch(load_program(file or STARTER, settings), job)
        self._book = Book(label, alert)
        self.wake_at = self._watch.next / 1000.0

    def observe(self, alert: Alert) -> Iterable[Verdict]:
        """Count one alert; what it leads to is said at the next evaluation."""
        self._watch.count(alert.at, alert.node, alert.kind)
        self.wake_at = self._watch.next / 1000.0
        return ()

    def advance(self, now: float) -> Iterable[Verdict]:
        """Scrape and evaluate."""
        verdicts: list[Verdict] = []
        while self._watch.next / 1000.0 <= now:
            verdicts.extend(self._book.take(self._watch.tick()))
        self.wake_at = self._watch.next / 1000.0
        return verdicts
