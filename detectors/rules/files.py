"""Rule files: from YAML to rules, every fault with its line."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detectors.rules.durations import parse_duration
from detectors.rules.errors import LanguageError, RuleFileError, Unsupported
from detectors.rules.language import Expression, parse
from detectors.rules.templates import Template, parse_template

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "MOST_RULES",
    "Group",
    "Rule",
    "RuleFile",
    "compose",
    "entries",
    "parse_rules",
    "read_rules",
]

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
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise RuleFileError(f"cannot be read: {error.strerror}", str(path)) from None
    except UnicodeDecodeError as error:
        line = Path(path).read_bytes()[: error.start].count(b"\n") + 1
        raise RuleFileError("is not UTF-8", str(path), line, "save it as UTF-8") from None
    return parse_rules(text, str(path))


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


def compose(text: str, path: str) -> Any:
    """Turn YAML into a tree of nodes that know their lines; None for an empty text.

    Raises:
        RuleFileError: It is no YAML, or more than one document.
    """
    import yaml  # noqa: PLC0415 - wanted only where rules are

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return yaml.compose(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = f"is not YAML: {error.problem or error.context}"
        raise RuleFileError(what, path, mark.line + 1 if mark is not None else None) from None
    except yaml.YAMLError as error:  # a character that YAML does not allow
        position = getattr(error, "position", 0)
        line = text[:position].count("\n") + 1
        reason = getattr(error, "reason", "a character is not allowed")
        raise RuleFileError(f"is not YAML: {reason}", path, line) from None
    except RecursionError:
        raise RuleFileError("is nested too deeply", path) from None


def entries(
    node: Any, path: str, what: str, known: tuple[str, ...] = ()
) -> dict[str, tuple[Any, Any]]:
    """The pairs of a mapping node, by key: the key's node and the value's.

    Raises:
        RuleFileError: It is no mapping, or a key is unknown or there twice.
    """
    import yaml  # noqa: PLC0415 - wanted only where rules are

    if not isinstance(node, yaml.MappingNode):
        raise RuleFileError(f"{what} must be a mapping", path, _line(node))
    out: dict[str, tuple[Any, Any]] = {}
    for key, value in node.value:
        name = key.value if isinstance(key, yaml.ScalarNode) else "?"
        if known and name not in known:
            remedy = f"one of: {', '.join(known)}"
            raise RuleFileError(f"unknown key {name!r} in {what}", path, _line(key), remedy)
        if name in out:
            raise RuleFileError(f"{name!r} stands twice in {what}", path, _line(key))
        out[name] = (key, value)
    return out


def _line(node: Any) -> int:
    return int(node.start_mark.line) + 1


class _Reader:
    def __init__(self, path: str) -> None:
        self.path = path
        self.count = 0

    def read(self, text: str) -> RuleFile:
        root = compose(text, self.path)
        if root is None:
            return RuleFile(self.path, ())
        top = entries(root, self.path, "the file", ("groups",))
        groups: list[Group] = []
        names: dict[str, int] = {}
        for node in self._items(top.get("groups"), "groups"):
            group = self._group(node)
            if group.name in names:
                what = f"group {group.name!r} stands twice (first in line {names[group.name]})"
                raise self._error(what, node, "another name")
            names[group.name] = group.line
            groups.append(group)
        return RuleFile(self.path, tuple(groups))

    def _error(self, what: str, node: Any, remedy: str = "") -> RuleFileError:
        return RuleFileError(what, self.path, _line(node), remedy)

    def _items(self, pair: tuple[Any, Any] | None, what: str) -> list[Any]:
        import yaml  # noqa: PLC0415 - wanted only where rules are

        if pair is None or self._empty(pair[1]):
            return []
        if not isinstance(pair[1], yaml.SequenceNode):
            raise self._error(f"{what} must be a list", pair[1])
        return list(pair[1].value)

    @staticmethod
    def _empty(node: Any) -> bool:
        return bool(node.tag == "tag:yaml.org,2002:null")

    def _text(self, pairs: dict[str, tuple[Any, Any]], key: str) -> str:
        import yaml  # noqa: PLC0415 - wanted only where rules are

        if key not in pairs or self._empty(pairs[key][1]):
            return ""
        node = pairs[key][1]
        if not isinstance(node, yaml.ScalarNode):
            raise self._error(f"{key} must be a text", node)
        return str(node.value)

    def _duration(self, pairs: dict[str, tuple[Any, Any]], key: str) -> int:
        text = self._text(pairs, key)
        if not text:
            return 0
        try:
            return parse_duration(text)
        except LanguageError as error:
            raise self._error(f"{key}: {error.what}", pairs[key][1], error.remedy) from None

    def _group(self, node: Any) -> Group:
        pairs = entries(node, self.path, "a group", _GROUP_KEYS)
        name = self._text(pairs, "name")
        if not name:
            raise self._error("a group has no name", node, "name: ...")
        interval = self._duration(pairs, "interval") if "interval" in pairs else 0
        limit_text = self._text(pairs, "limit") or "0"
        if not re.fullmatch(r"[-+]?[0-9]+", limit_text):
            raise self._error(f"limit {limit_text!r} is not a whole number", pairs["limit"][1])
        labels = self._texts(pairs, "labels", templates=True)
        rules = tuple(self._rule(rule, labels) for rule in self._items(pairs.get("rules"), "rules"))
        offset = self._duration(pairs, "query_offset")
        return Group(name, rules, interval or None, max(0, int(limit_text)), offset, _line(node))

    def _rule(self, node: Any, group_labels: Mapping[str, Template]) -> Rule:
        self.count += 1
        if self.count > MOST_RULES:
            raise self._error(f"there are more than {MOST_RULES} rules", node, "split the file")
        pairs = entries(node, self.path, "a rule", _RULE_KEYS)
        alert, record = self._text(pairs, "alert"), self._text(pairs, "record")
        if alert and record:
            raise self._error("a rule has both alert and record", node, "one of them")
        if not alert and not record:
            raise self._error("a rule has neither alert nor record", node, "alert: ...")
        if record:
            self._check_recording(pairs, record, node)
        text = self._text(pairs, "expr")
        if not text.strip():
            raise self._error(f"rule {alert or record!r} has no expr", node, "expr: ...")
        expr_node = pairs["expr"][1]
        where = f"rule {alert or record!r}"
        expr = self._guarded(lambda: parse(text), expr_node, where)
        own = self._texts(pairs, "labels", templates=bool(alert))
        return Rule(
            alert or record,
            bool(alert),
            expr,
            text,
            self._duration(pairs, "for"),
            self._duration(pairs, "keep_firing_for"),
            {**group_labels, **own},
            self._texts(pairs, "annotations", templates=True),
            _line(node),
            _line(expr_node) + (1 if expr_node.style in {"|", ">"} else 0),
        )

    def _check_recording(self, pairs: dict[str, tuple[Any, Any]], name: str, node: Any) -> None:
        for key in ("for", "keep_firing_for", "annotations"):
            if key in pairs:
                raise self._error(f"rule {name!r} records and cannot have {key}", pairs[key][0])
        if not _METRIC.fullmatch(name):
            raise self._error(f"{name!r} is not a metric's name", node)

    def _texts(
        self, pairs: dict[str, tuple[Any, Any]], key: str, *, templates: bool
    ) -> dict[str, Template]:
        """Labels or annotations."""
        if key not in pairs or self._empty(pairs[key][1]):
            return {}
        inner = entries(pairs[key][1], self.path, key)
        out = {}
        for name, (name_node, value) in inner.items():
            if not _LABEL.fullmatch(name) or (key == "labels" and name == "__name__"):
                raise self._error(f"{name!r} cannot be a name in {key}", name_node)
            text = self._text(inner, name)
            out[name] = (
                self._guarded(lambda text=text: parse_template(text), value, f"{key}, {name}")  # type: ignore[misc]  # the default binds the loop's value
                if templates
                else Template(text, uses_value=False, _nodes=(text,))
            )
        return out

    def _guarded(self, make: Callable[[], Any], node: Any, where: str) -> Any:
        """Make something from a text, and give its fault a line."""
        try:
            return make()
        except Unsupported as error:
            raise self._error(
                f"{where}: {error.construct} is refused: {error.reason}", node
            ) from None
        except LanguageError as error:
            raise self._error(f"{where}: {error.what}", node, error.remedy) from None
