"""A rule file made ready to watch jobs: what it reads, how far back, in which order."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from detectors.rules.counters import ZEROS, Zero
from detectors.rules.documents import read_text
from detectors.rules.durations import parse_duration
from detectors.rules.errors import LanguageError, RuleFileError
from detectors.rules.evaluation import DIALECTS, Dialect
from detectors.rules.files import Group, Rule, RuleFile, parse_rules
from detectors.rules.functions import CALENDAR
from detectors.rules.labels import NAME
from detectors.rules.language import (
    Call,
    Expression,
    Selector,
    String,
    Subquery,
    ranged,
    selectors,
    unwrap,
    walk,
)
from detectors.rules.spans import spans
from detectors.rules.tokens import tokenize
from replay.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["ALERTS", "Program", "Settings", "load_program", "milliseconds", "readable_by"]

ALERTS = ("ALERTS", "ALERTS_FOR_STATE")


@dataclass(frozen=True, slots=True)
class Settings:
    """How rules are evaluated; times in milliseconds.

    Attributes:
        dialect: Which release's windows.
        scrape: Between two scrapes.
        interval: Between two evaluations of a group that says nothing of its own.
        eval_offset: By how much evaluations come after whole multiples of their interval.
        zero: What a counter shows before its first alert.
        vocabulary: The kinds that the zero policy ``cross`` begins with.
        label: The label that names the node of an alert.
        lookback: How long a sample stands for its series.
        alert: The one alert that is listened to; empty for all.
    """

    dialect: Dialect = "prometheus3"
    scrape: int = 15_000
    interval: int = 15_000
    eval_offset: int = 0
    zero: Zero = "none"
    vocabulary: tuple[str, ...] = ()
    label: str = "ip"
    lookback: int = 300_000
    alert: str = ""

    def __post_init__(self) -> None:
        for name, known in (("dialect", DIALECTS), ("zero", ZEROS)):
            if getattr(self, name) not in known:
                raise UsageError(
                    f"There is no {name} {getattr(self, name)!r}.", f"one of: {', '.join(known)}"
                )
        for name in ("scrape", "interval", "lookback"):
            if getattr(self, name) <= 0:
                raise UsageError(f"{name} must be longer than nothing.", f"{name}=15s")
        if self.eval_offset < 0:
            raise UsageError("eval_offset must not be negative.", "eval_offset=5s")
        if self.zero == "cross" and not self.vocabulary:
            raise UsageError(
                "The zero policy cross needs the kinds to begin with.", "kinds=nic_down|gpu_lost"
            )


def milliseconds(text: str) -> int:
    """A duration as an option gives it.

    Raises:
        UsageError: It is none.
    """
    try:
        return parse_duration(text)
    except LanguageError as error:
        raise UsageError(f"{error.what}.", error.remedy) from None


@dataclass(frozen=True, slots=True)
class Program:
    """A rule file and how to evaluate it.

    Attributes:
        file: The rules.
        settings: How.
        replayed: Whether a replayed job is watched, which has neither calendar nor future.
        sequential: Whether rules read what later ones (or they themselves) wrote before, or the
            alerts: then every step waits for the one before it.
        reach: Milliseconds into the past that an evaluation may depend on.
    """

    file: RuleFile
    settings: Settings
    replayed: bool = True
    sequential: bool = field(init=False)
    reach: int = field(init=False)

    def __post_init__(self) -> None:
        for rule in self.file.rules:
            _check_result(rule, self.file.path)
            _check_dialect(rule, self.file.path, self.settings.dialect)
            if self.replayed:
                _check_replayed(rule, self.file.path)
        known = self.file.alerts
        if self.settings.alert and self.settings.alert not in known:
            raise UsageError(
                f"There is no alert {self.settings.alert!r} in {self.file.path}.",
                f"one of: {', '.join(known)}" if known else "",
            )
        object.__setattr__(self, "sequential", _sequential(self.file.rules))
        spans = [
            _reach(rule.expr, self.settings.interval) + group.query_offset
            for group in self.file.groups
            for rule in group.rules
        ]
        object.__setattr__(self, "reach", max(spans, default=0) + self.settings.lookback)

    def period(self, group: Group) -> int:
        """Milliseconds between two evaluations of a group."""
        return group.interval or self.settings.interval

    def shifted(self, eval_offset: int) -> Program:
        """The same, evaluated that many milliseconds after each whole multiple."""
        return Program(self.file, replace(self.settings, eval_offset=eval_offset))


def load_program(path: str | Path, settings: Settings) -> Program:
    """Read a rule file and make it ready.

    Raises:
        RuleFileError: The file is bad, or reads what a replayed job has not.
        UsageError: The settings do not fit it.
    """
    return _program(read_text(path), str(path), settings)


@lru_cache(maxsize=16)
def _program(text: str, path: str, settings: Settings) -> Program:
    """One parse for all jobs."""
    return Program(parse_rules(text, path), settings)


_NOT_IN: dict[Dialect, dict[str, str]] = {
    "prometheus2": {
        "first_over_time": "it came with Prometheus 3",
        "histogram_fraction": "before Prometheus 3 it was for native histograms",
    },
    "prometheus3": {
        "holt_winters": "since Prometheus 3 it is an experimental double_exponential_smoothing()",
    },
}


def _refusal(rule: Rule, path: str, construct: str, reason: str) -> RuleFileError:
    what = f"rule {rule.name!r}: {construct} is refused: {reason}"
    return RuleFileError(what, path, rule.expr_line)


def _check_result(rule: Rule, path: str) -> None:
    """Refuse what gives no value for an instant."""
    if isinstance(unwrap(rule.expr), String):
        raise _refusal(rule, path, "a string", "a rule gives a vector or a number")
    if ranged(rule.expr):
        raise _refusal(rule, path, "a range", "a rule gives a vector or a number")


def _check_dialect(rule: Rule, path: str, dialect: Dialect) -> None:
    """Refuse what the release has not."""
    for node in walk(rule.expr):
        if isinstance(node, Call) and node.func in _NOT_IN[dialect]:
            raise _refusal(rule, path, f"{node.func}()", _NOT_IN[dialect][node.func])
    if dialect == "prometheus2" and any(span.computed for span in spans(tokenize(rule.text))):
        raise _refusal(rule, path, "arithmetic on durations", "it came with Prometheus 3")


def _check_replayed(rule: Rule, path: str) -> None:
    """Refuse what has no meaning in a replayed job."""
    for node in walk(rule.expr):
        if isinstance(node, Call) and node.func in CALENDAR:
            reason = "a job's clock begins at 0 and has no calendar"
            raise _refusal(rule, path, f"{node.func}()", reason)
        if isinstance(node, (Selector, Subquery)):
            if isinstance(node.at, int):
                raise _refusal(rule, path, "@ with a time", "a job's clock begins at 0")
            if node.offset < 0:
                raise _refusal(rule, path, "a negative offset", "it looks into the future")


def readable_by(selector: Selector, name: str) -> bool:
    """Whether a selector may select a metric of this name."""
    return all(matcher.matches(name) for matcher in selector.matchers if matcher.name == NAME)


def _sequential(rules: Iterable[Rule]) -> bool:
    rules = tuple(rules)
    for place, rule in enumerate(rules):
        later = {other.name for other in rules[place:] if not other.alerting}
        for selector in selectors(rule.expr):
            if any(readable_by(selector, name) for name in (*later, *ALERTS)):
                return True
    return False


def _reach(expr: Expression, step: int) -> int:
    """How far an expression looks back, beside the lookback."""
    if isinstance(expr, Selector):
        return expr.offset + (expr.range or 0)
    if isinstance(expr, Subquery):
        return expr.offset + expr.range + (expr.step or step) + _reach(expr.expr, step)
    below = list(walk(expr))[1:]
    # grandchildren are counted within their own subqueries, never beyond them
    return max((_reach(node, step) for node in below), default=0)
