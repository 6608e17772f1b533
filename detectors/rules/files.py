"""Rule files: from YAML to rules, every fault with its line."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from detectors.rules.documents import Node, compose, read_text
from detectors.rules.language import Expression, parse
from detectors.rules.templates import Template, parse_template, plain

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["MOST_RULES", "Group", "Rule", "RuleFile", "parse_rules", "read_rules"]

MOST_RULES = 5000
"""How many rules a file may hold; more is a mistake, or a file for another program."""

_GROUP_KEYS = ("name", "interval", "limit", "query_offset", "labels", "rules")
_RULE_KEYS = (
    "record",
    "alert",
    "expr",
    "for",
    "keep_firing_for",
    "labels",
    "annotations",
)
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")


@dataclass(frozen=True, slots=True)
class Rule:
    """A recording or an alerting rule.

    Attributes:
        name: The alert's name, or the metric recorded.
        alerting: Which of the two it is.
        expr: What is evaluated.
        text: The same as written.
        hold: ``for`` in milliseconds.
        keep: ``keep_firing_for`` in milliseconds.
        labels: Added to the result; templates only where ``alerting``.
        annotations: For people.
        line: Where the rule begins.
        expr_line: Where the expression stands.
    """

    name: str
    alerting: bool
    expr: Expression = field(repr=False)
    text: str
    hold: int = 0
    keep: int = 0
    labels: Mapping[str, Template] = field(default_factory=dict)
    annotations: Mapping[str, Template] = field(default_factory=dict, repr=False)
    line: int = 0
    expr_line: int = 0


@dataclass(frozen=True, slots=True)
class Group:
    """Rules that are evaluated together, one after the other.

    Attributes:
        name: Its name.
        rules: In the order of the file.
        interval: Milliseconds between evaluations; None for the global interval.
        limit: How many series or alerts one rule may give; 0 for any number.
        query_offset: Milliseconds by which samples are looked up earlier.
        line: Where the group begins.
    """

    name: str
    rules: tuple[Rule, ...]
    interval: int | None = None
    limit: int = 0
    query_offset: int = 0
    line: int = 0


@dataclass(frozen=True, slots=True)
class RuleFile:
    """A rule file.

    Attributes:
        path: As the user named it.
        groups: In the order of the file.
    """

    path: str
    groups: tuple[Group, ...]

    @property
    def rules(self) -> tuple[Rule, ...]:
        """All rules, in the order of the file."""
        return tuple(rule for group in self.groups for rule in group.rules)

    @property
    def alerts(self) -> tuple[str, ...]:
        """The names of its alerts, each once."""
        return tuple(dict.fromkeys(rule.name for rule in self.rules if rule.alerting))


def read_rules(path: str | Path) -> RuleFile:
    """Read a rule file.

    Raises:
        RuleFileError: It cannot be read, or something in it is wrong or not evaluated here.
    """
    return parse_rules(read_text(path), str(path))


def parse_rules(text: str, path: str = "") -> RuleFile:
    """Read rules from a text.

    Raises:
        RuleFileError: Something in it is wrong, or not evaluated here.

    Examples:
        >>> rules = parse_rules('''
        ... groups:
        ...   - name: nodes
        ...     rules:
        ...       - alert: Noisy
        ...         expr: increase(llm_alert_events_total[5m]) > 3
        ...         for: 1m
        ... ''')
        >>> rules.alerts, rules.rules[0].hold
        (('Noisy',), 60000)

    """
    return _Reader(path).read(text)


class _Reader:
    def __init__(self, path: str) -> None:
        self.path = path
        self.count = 0

    def read(self, text: str) -> RuleFile:
        root = compose(text, self.path)
        if root is None:
            return RuleFile(self.path, ())
        groups: dict[str, Group] = {}
        top = root.mapping("the file", ("groups",))
        for node in top["groups"].items("groups") if "groups" in top else ():
            group = self._group(node)
            if group.name in groups:
                first = groups[group.name].line
                what = f"group {group.name!r} stands twice (first in line {first})"
                raise node.error(what, "another name")
            groups[group.name] = group
        return RuleFile(self.path, tuple(groups.values()))

    def _group(self, node: Node) -> Group:
        pairs = node.mapping("a group", _GROUP_KEYS)
        name = pairs["name"].text("name") if "name" in pairs else ""
        if not name:
            raise node.error("a group has no name", "name: ...")
        limit = pairs["limit"].text("limit") if "limit" in pairs else ""
        if limit and not re.fullmatch(r"[-+]?[0-9]+", limit):
            raise pairs["limit"].error(f"limit {limit!r} is not a whole number")
        labels = _texts(pairs.get("labels"), "labels", templates=True)
        rules = pairs["rules"].items("rules") if "rules" in pairs else ()
        return Group(
            name,
            tuple(self._rule(rule, labels) for rule in rules),
            _duration(pairs, "interval") or None,
            max(0, int(limit or 0)),
            _duration(pairs, "query_offset"),
            node.line,
        )

    def _rule(self, node: Node, group_labels: Mapping[str, Template]) -> Rule:
        self.count += 1
        if self.count > MOST_RULES:
            raise node.error(f"there are more than {MOST_RULES} rules", "split the file")
        pairs = node.mapping("a rule", _RULE_KEYS)
        alert, record = (
            pairs[key].text(key) if key in pairs else "" for key in ("alert", "record")
        )
        if bool(alert) == bool(record):
            what = "both alert and record" if alert else "neither alert nor record"
            raise node.error(f"a rule has {what}", "one of them")
        if record:
            _check_recording(pairs, record, node)
        name = alert or record
        text = pairs["expr"].text("expr") if "expr" in pairs else ""
        if not text.strip():
            raise node.error(f"rule {name!r} has no expr", "expr: ...")
        expr = pairs["expr"]
        return Rule(
            name,
            bool(alert),
            expr.guarded(lambda: parse(text), f"rule {name!r}"),
            text,
            _duration(pairs, "for"),
            _duration(pairs, "keep_firing_for"),
            {**group_labels, **_texts(pairs.get("labels"), "labels", templates=bool(alert))},
            _texts(pairs.get("annotations"), "annotations", templates=True),
            node.line,
            expr.line + (expr.raw.style in {"|", ">"}),
        )


def _check_recording(pairs: dict[str, Node], name: str, node: Node) -> None:
    for key in ("for", "keep_firing_for", "annotations"):
        if key in pairs:
            raise pairs[key].error(f"rule {name!r} records and cannot have {key}")
    if not _METRIC.fullmatch(name):
        raise node.error(f"{name!r} is not a metric's name")


def _duration(pairs: dict[str, Node], key: str) -> int:
    return pairs[key].duration(key) if key in pairs else 0


def _texts(node: Node | None, what: str, *, templates: bool) -> dict[str, Template]:
    """Labels or annotations."""
    out: dict[str, Template] = {}
    for name, value in node.mapping(what).items() if node is not None else ():
        if not _LABEL.fullmatch(name) or (what == "labels" and name == "__name__"):
            raise value.error(f"{name!r} cannot be a name in {what}")
        text = value.text(name)
        read = parse_template if templates else plain
        out[name] = value.guarded(partial(read, text), f"{what}, {name}")
    return out
