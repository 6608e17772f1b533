"""What becomes of a rule's results: pending, firing, resolved, and recorded series.

After Prometheus's ``rules/alerting.go``. Times are milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from detectors.rules.errors import EvaluationError
from detectors.rules.labels import NAME, Labels, make, without

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from detectors.rules.files import Rule
    from detectors.rules.vectors import Vector

__all__ = ["Active", "Alerts", "Change", "Element", "identity", "recorded"]


class Element(NamedTuple):
    """What one element of a rule's result becomes.

    Attributes:
        labels: The alert's label set, or the recorded series'.
        value: The element's value.
        source: The element's own labels.
    """

    labels: Labels
    value: float
    source: Labels


@dataclass(slots=True)
class Active:
    """An alert that is pending or firing.

    Attributes:
        labels: Its label set.
        active_at: When it became pending.
        fired_at: When it began to fire; None while pending.
        missing_at: When it was first missing while held by ``keep_firing_for``; else None.
        element: What it was last seen as.
    """

    labels: Labels
    active_at: int
    fired_at: int | None = None
    missing_at: int | None = None
    element: Element | None = None


class Change(NamedTuple):
    """An alert began to fire, or ended.

    Attributes:
        kind: Which.
        labels: The alert's label set.
        at: When.
        element: What made it fire; None at the end.
    """

    kind: Literal["firing", "resolved"]
    labels: Labels
    at: int
    element: Element | None = None


def identity(rule: Rule, labels: Labels, value: float) -> Labels:
    """The label set of the alert that an element raises."""
    pairs = dict(without(labels, {NAME}))
    if rule.labels:
        shown = dict(labels)
        pairs.update(
            {name: template.render(shown, value) for name, template in rule.labels.items()}
        )
    pairs["alertname"] = rule.name
    return make(pairs)


def recorded(rule: Rule, labels: Labels) -> Labels:
    """The label set of the series that an element is recorded as."""
    pairs = dict(labels)
    pairs[NAME] = rule.name
    pairs.update({name: template.text for name, template in rule.labels.items()})
    return make(pairs)


@dataclass(slots=True)
class Alerts:
    """The alerts of one rule, step by step.

    Attributes:
        rule: The rule.
        limit: How many alerts it may have; 0 for any number.
        active: The pending and firing ones, by label set.

    Examples:
        >>> from detectors.rules.files import parse_rules
        >>> rule = parse_rules('''
        ... groups: [{name: g, rules: [{alert: A, expr: up == 0, for: 1m}]}]
        ... ''').rules[0]
        >>> alerts, down = Alerts(rule), Element((("alertname", "A"),), 0.0, ())
        >>> [len(alerts.step(at, [down])) for at in (0, 30_000, 60_000, 90_000)]
        [0, 0, 1, 0]
        >>> alerts.step(120_000, [])
        [Change(kind='resolved', labels=(('alertname', 'A'),), at=120000, element=None)]

    """

    rule: Rule
    limit: int = 0
    active: dict[Labels, Active] = field(default_factory=dict)

    def step(self, at: int, elements: Iterable[Element]) -> list[Change]:
        """Take in what the rule gives at one time.

        Raises:
            EvaluationError: Two elements are the same alert (nothing changes), or there are more
                alerts than the limit (all are forgotten).
        """
        found: dict[Labels, Element] = {}
        for element in elements:
            if element.labels in found:
                raise EvaluationError(
                    "vector contains metrics with the same labelset after applying alert labels"
                )
            found[element.labels] = element
        for labels in found:
            self.active.setdefault(labels, Active(labels, at))
        changes: list[Change] = []
        for alert in list(self.active.values()):
            changes += self._advance(alert, at, found.get(alert.labels))
        if self.limit and len(self.active) > self.limit:
            self.active.clear()
            raise EvaluationError(f"exceeded limit of {self.limit} with alerts")
        return changes

    def sweep(
        self, times: NDArray[np.int64], names: Sequence[Labels], answer: Vector
    ) -> list[Change]:
        """What :meth:`step` gives at all of some times, one after the other.

        Only for a rule without ``keep_firing_for`` and without a limit.

        Args:
            times: int64[k] milliseconds, ascending.
            names: The label sets of the alerts that the series of ``answer`` are, no two the same.
            answer: What the rule gives at those times.
        """
        row, begin, end = answer.unbroken()
        since, steps = times[begin], len(times)
        before, self.active = self.active, {}
        going_on: dict[int, Active] = {}
        for run in np.flatnonzero(begin == 0).tolist() if before else ():
            alert = before.get(names[row[run]])
            if alert is not None:
                going_on[run] = alert
                since[run] = alert.active_at
        fires = np.maximum(np.searchsorted(times, since + self.rule.hold), begin)
        runs = np.flatnonzero((fires < end) | (end == steps))
        row, fires, end = row[runs], fires[runs], end[runs]
        first = answer.at(row, np.minimum(fires, steps - 1))
        last = answer.at(row, np.full(len(row), steps - 1))
        columns = [part.tolist() for part in (runs, row, since[runs], fires, end, first, last)]
        moments, sources = times.tolist(), answer.labels
        changes = []
        for run, series, begun, fire, stop, value, newest in zip(*columns, strict=True):
            labels = names[series]
            alert = going_on.get(run) or Active(labels, begun)
            if alert.fired_at is None and fire < stop:
                alert.fired_at = moments[fire]
                found = Element(labels, value, sources[series])
                changes.append(Change("firing", labels, moments[fire], found))
            if stop == steps:
                self.active[labels] = alert
                alert.element = Element(labels, newest, sources[series])
            elif alert.fired_at is not None:
                changes.append(Change("resolved", labels, moments[stop]))
        kept = {alert.labels for alert in going_on.values()}
        changes += [
            Change("resolved", labels, moments[0])
            for labels, alert in before.items()
            if labels not in kept and alert.fired_at is not None
        ]
        changes.sort(key=lambda change: (change.at, change.labels))
        return changes

    def _advance(self, alert: Active, at: int, element: Element | None) -> list[Change]:
        """Bring one alert to a time at which it is there, or missing."""
        if element is None and not self._held(alert, at):
            del self.active[alert.labels]
            return [] if alert.fired_at is None else [Change("resolved", alert.labels, at)]
        if element is not None:
            alert.missing_at, alert.element = None, element
        if alert.fired_at is not None or at - alert.active_at < self.rule.hold:
            return []
        alert.fired_at = at
        return [Change("firing", alert.labels, at, element)]

    def _held(self, alert: Active, at: int) -> bool:
        """Whether an alert that is missing goes on firing for now."""
        if alert.fired_at is None or not self.rule.keep:
            return False
        if alert.missing_at is None:
            alert.missing_at = at
        return at - alert.missing_at < self.rule.keep

    @property
    def firing(self) -> list[Labels]:
        """The label sets of those that fire."""
        return [alert.labels for alert in self.active.values() if alert.fired_at is not None]
