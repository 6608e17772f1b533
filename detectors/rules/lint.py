"""What is legal in a rule file, and most likely not meant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from detectors.rules.counters import METRIC
from detectors.rules.durations import format_duration
from detectors.rules.language import (
    Aggregate,
    Binary,
    Call,
    Expression,
    Paren,
    Selector,
    String,
    Subquery,
    Unary,
    unwrap,
    walk,
)
from detectors.rules.operators import COMPARISONS, SETS
from detectors.rules.program import ALERTS, Program, readable_by

if TYPE_CHECKING:
    from collections.abc import Iterator

    from detectors.rules.files import Rule

__all__ = ["Remark", "lint"]

_OF_COUNTERS = frozenset({"rate", "irate", "increase", "resets"})
_OF_TWO_SAMPLES = _OF_COUNTERS | {"delta", "idelta", "deriv", "predict_linear", "changes"}
_WITHOUT_LABELS = frozenset({"vector", "time", "scalar", "pi"})
_COUNTER_SUFFIXES = ("_total", "_sum", "_count", "_bucket")


@dataclass(frozen=True, slots=True)
class Remark:
    """Something to think about.

    Attributes:
        line: Of the rule file.
        rule: The rule's name.
        text: What.
    """

    line: int
    rule: str
    text: str


def lint(program: Program) -> list[Remark]:
    """Look at every rule.

    Examples:
        >>> from detectors.rules.files import parse_rules
        >>> from detectors.rules.program import Settings
        >>> file = parse_rules('''
        ... groups: [{name: g, rules: [{alert: A, expr: 'sum(llm_alert_events_total) > 9'}]}]
        ... ''')
        >>> for remark in lint(Program(file, Settings())):
        ...     print(remark.text)
        no label ip is left on its result: it accuses no node, only the job

    """
    remarks: list[Remark] = []
    seen: dict[tuple[object, ...], int] = {}
    for rule in program.file.rules:
        remarks += [Remark(rule.expr_line, rule.name, text) for text in _remarks(rule, program)]
        key = (rule.name, rule.expr, rule.hold, tuple(t.text for t in rule.labels.values()))
        if key in seen:
            text = f"it is the same as the rule in line {seen[key]}"
            remarks.append(Remark(rule.line, rule.name, text))
        seen.setdefault(key, rule.line)
    return remarks


def _remarks(rule: Rule, program: Program) -> Iterator[str]:
    recorded = {other.name: other for other in program.file.rules if not other.alerting}
    if rule.alerting:
        label = program.settings.label
        if label not in rule.labels and not _keeps(rule.expr, label, recorded):
            yield f"no label {label} is left on its result: it accuses no node, only the job"
        if not _compares(rule.expr):
            yield "nothing is compared: it fires for every series there is"
        for name, template in rule.labels.items():
            if template.uses_value:
                yield f"label {name} holds $value: each new value is a new alert, and 'for' restarts"
    yield from _about_selectors(rule, program, recorded)


def _about_selectors(rule: Rule, program: Program, recorded: dict[str, Rule]) -> Iterator[str]:
    scrape = program.settings.scrape
    for node in walk(rule.expr):
        if isinstance(node, Selector):
            known = (METRIC, *recorded, *ALERTS)
            if not any(readable_by(node, name) for name in known):
                yield f"it reads {node.name or 'a metric'}, which a replay does not show: it is always empty"
        if not isinstance(node, Call) or not node.args:
            continue
        ranged = next((unwrap(arg) for arg in node.args if _range_of(arg) is not None), None)
        if not isinstance(ranged, Selector) or ranged.range is None:
            continue
        if node.func in _OF_TWO_SAMPLES and ranged.range < 2 * scrape:
            yield (
                f"{node.func}() over {format_duration(ranged.range)} sees less than two scrapes of "
                f"{format_duration(scrape)}"
            )
        name = ranged.name
        gauge = name in recorded or (name and not name.endswith(_COUNTER_SUFFIXES))
        if node.func in _OF_COUNTERS and gauge:
            yield f"{node.func}() is for counters, and {name} looks like a gauge"


def _range_of(expr: Expression) -> int | None:
    node = unwrap(expr)
    return node.range if isinstance(node, (Selector, Subquery)) else None


def _compares(expr: Expression) -> bool:
    """Whether anything can be missing from the result."""
    for node in walk(expr):
        if isinstance(node, Binary) and node.op in COMPARISONS and not node.bool:
            return True
        if isinstance(node, Binary) and node.op in {"unless", "and"}:
            return True
        if isinstance(node, Call) and node.func in {"absent", "absent_over_time"}:
            return True
        if isinstance(node, Selector) and node.name in ALERTS:
            return True
    return False


def _keeps(expr: Expression, label: str, recorded: dict[str, Rule]) -> bool:
    """Whether results can carry a label."""
    if isinstance(expr, Selector):
        return _selector_keeps(expr, label, recorded)
    if isinstance(expr, Aggregate):
        named = label in expr.grouping
        if expr.op in {"topk", "bottomk", "limitk"}:
            named = not expr.without
        return named != expr.without and _keeps(expr.expr, label, recorded)
    if isinstance(expr, Binary):
        return _binary_keeps(expr, label, recorded)
    if isinstance(expr, Call):
        return _call_keeps(expr, label, recorded)
    return isinstance(expr, (Paren, Unary, Subquery)) and _keeps(expr.expr, label, recorded)


def _selector_keeps(node: Selector, label: str, recorded: dict[str, Rule]) -> bool:
    if any(m.name == label and m.op == "=" and not m.value for m in node.matchers):
        return False
    rule = recorded.get(node.name)
    return rule is None or label in rule.labels or _keeps(rule.expr, label, {})


def _binary_keeps(expr: Binary, label: str, recorded: dict[str, Rule]) -> bool:
    left = _keeps(expr.lhs, label, recorded)
    right = _keeps(expr.rhs, label, recorded)
    if expr.op in SETS:
        return left or (expr.op == "or" and right)
    matching = expr.matching
    if matching.group:
        many = left if matching.group == "left" else right
        return many or label in matching.include
    scalar = any(not _is_vector(side) for side in (expr.lhs, expr.rhs))
    if scalar:
        return left or right
    if matching.on:
        return label in matching.labels and left
    return label not in matching.labels and left


def _is_vector(expr: Expression) -> bool:
    node = unwrap(expr)
    if isinstance(node, Call):
        return node.func not in {"time", "scalar", "pi"}
    if isinstance(node, Binary):
        return _is_vector(node.lhs) or _is_vector(node.rhs)
    if isinstance(node, Unary):
        return _is_vector(node.expr)
    return isinstance(node, (Selector, Aggregate, Subquery))


def _call_keeps(expr: Call, label: str, recorded: dict[str, Rule]) -> bool:
    if expr.func in _WITHOUT_LABELS:
        return False
    if expr.func in {"absent", "absent_over_time"}:
        node = unwrap(expr.args[0])
        return isinstance(node, Selector) and any(
            matcher.name == label and matcher.op == "=" for matcher in node.matchers
        )
    if expr.func in {"label_replace", "label_join"}:
        target = unwrap(expr.args[1])
        if isinstance(target, String) and target.value == label:
            return True
    return any(_keeps(arg, label, recorded) for arg in expr.args)
