"""A rule file for a replay that runs k times faster than the trace.

In the world of a live Prometheus that scrapes such a replay, everything takes 1/k of its time:
every duration is divided by k, and what is counted per second is k times as much, so ``rate``,
``irate`` and ``deriv`` are divided by k. The file is changed in place, token by token: comments,
order, quotes and templates stay.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

from detectors.rules.documents import Node, compose
from detectors.rules.durations import format_duration, parse_duration
from detectors.rules.errors import LanguageError, RuleFileError
from detectors.rules.files import parse_rules
from detectors.rules.functions import CALENDAR
from detectors.rules.language import (
    Binary,
    Call,
    Expression,
    Number,
    Paren,
    Selector,
    String,
    Subquery,
    rebuild,
    unwrap,
)
from detectors.rules.spans import spans
from detectors.rules.tokens import Token, tokenize
from replay.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["SHORTEST_SCRAPE", "Rescaled", "rescale", "rescale_expression"]

SHORTEST_SCRAPE = 100
"""Milliseconds: a Prometheus keeps up with scrapes no closer than this."""

_PER_SECOND = frozenset({"rate", "irate", "deriv"})
_REFUSED = frozenset({"time", "timestamp", *CALENDAR})
_GROUP_TIMES = ("interval", "query_offset")
_RULE_TIMES = ("expr", "for", "keep_firing_for")


@dataclass(frozen=True, slots=True)
class Rescaled:
    """A rule file rewritten.

    Attributes:
        text: The file.
        warnings: What was left as it is and may be meant otherwise.
    """

    text: str
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Edit:
    start: int
    end: int
    text: str


def rescale(text: str, speed: Fraction, path: str = "", scrape: int = 15_000) -> Rescaled:
    """Rewrite a rule file for a replay at ``speed``.

    Args:
        text: The file.
        speed: Trace seconds per wall second.
        path: Its name, for errors.
        scrape: Milliseconds of trace time between two scrapes.

    Raises:
        RuleFileError: It is bad, or holds what cannot be rescaled.
        UsageError: The speed makes no sense.

    Examples:
        >>> done = rescale('''groups:
        ... - name: nodes
        ...   rules:
        ...   - alert: Often   # per second
        ...     expr: rate(llm_alert_events_total[5m]) > 0.5
        ...     for: 1m
        ... ''', Fraction(10))
        >>> print(done.text, end="")
        groups:
        - name: nodes
          rules:
          - alert: Often   # per second
            expr: (rate(llm_alert_events_total[30s]) / 10) > 0.5
            for: 6s

    """
    if speed <= 0:
        raise UsageError(f"speed {speed} is not a positive number.", "--speed 10")
    if scrape / speed < SHORTEST_SCRAPE:
        most = scrape // SHORTEST_SCRAPE
        raise UsageError(
            f"At speed {_number(speed)} scrapes of {format_duration(scrape)} come closer than "
            f"{SHORTEST_SCRAPE} ms.",
            f"--speed {most}, or less",
        )
    before = parse_rules(text, path)
    edits: list[_Edit] = []
    warnings: list[str] = []
    for node, key in _scalars(compose(text, path)):
        make = partial(_expression_edits if key == "expr" else _duration_edits, node, text, speed)
        found, kept = node.guarded(make, key)
        edits += found
        warnings += [f"{path}:{node.line}: {warning}" for warning in kept]
    out = _apply(text, edits)
    after = parse_rules(out, path)
    for old, new in zip(before.rules, after.rules, strict=True):
        if _canonical(old.expr, speed) != _canonical(new.expr, Fraction(1)):
            raise RuleFileError(  # a fault of ours, better told than written
                f"rule {old.name!r} could not be rewritten faithfully", path, old.expr_line
            )
    return Rescaled(out, tuple(warnings))


def rescale_expression(text: str, speed: Fraction) -> tuple[str, list[str]]:
    """Rewrite one expression; also give what was left as it is.

    Raises:
        LanguageError: It holds what cannot be rescaled.
    """
    warnings: list[str] = []
    edits = list(_token_edits(text, speed, warnings))
    return _apply(text, edits), warnings


def _apply(text: str, edits: list[_Edit]) -> str:
    out, position = [], 0
    for edit in sorted(edits, key=lambda one: (one.start, one.end)):
        out += [text[position : edit.start], edit.text]
        position = edit.end
    out.append(text[position:])
    return "".join(out)


def _number(value: Fraction) -> str:
    """Write a factor, whole if it is."""
    if value.denominator == 1:
        return str(value.numerator)
    return f"{float(value):.12g}"


def _divided(milliseconds: int, speed: Fraction) -> int:
    result = Fraction(milliseconds) / speed
    if result.denominator != 1:
        raise LanguageError(
            f"{format_duration(milliseconds)} at speed {_number(speed)} is no whole number of "
            "milliseconds",
            "another speed",
        )
    return int(result)


# the tokens of an expression ---------------------------------------------------------------


def _token_edits(text: str, speed: Fraction, warnings: list[str]) -> Iterator[_Edit]:
    tokens = tokenize(text)
    end = 0
    durations = {span.start: span for span in spans(tokens)}
    for index, token in enumerate(tokens):
        if token.start in durations:
            span = durations[token.start]
            end = span.end
            scaled = _divided(span.milliseconds, speed)
            if scaled != span.milliseconds:
                yield _Edit(span.start, span.end, format_duration(scaled))
        elif token.start < end:
            continue
        elif token.kind == "duration":
            warnings.append(f"{token.text} stands where a number stands, and was left as it is")
        elif (
            token.kind == "name" and tokens[index + 1 : index + 2] and tokens[index + 1].text == "("
        ):
            yield from _call_edits(tokens, index, speed)
        elif token.text == "@" and tokens[index + 1].kind != "name":
            raise LanguageError("@ with a time cannot be rescaled")


def _call_edits(tokens: list[Token], index: int, speed: Fraction) -> Iterator[_Edit]:
    name = tokens[index].text
    if name in _REFUSED:
        raise LanguageError(f"{name}() cannot be rescaled: it reads the wall clock")
    if speed == 1:
        return
    close = _closing(tokens, index + 1)
    if name in _PER_SECOND:
        yield from _wrap(tokens, index, close, speed)
    if name == "predict_linear":
        yield from _shorten(tokens[_last_comma(tokens, index + 1, close) + 1 : close], speed)


def _shorten(argument: list[Token], speed: Fraction) -> Iterator[_Edit]:
    """Divide a number of seconds, as written or as computed."""
    first, last = argument[0], argument[-1]
    if first is last and first.kind == "duration":
        yield _Edit(first.start, first.end, format_duration(_divided(first.milliseconds, speed)))
    elif first is last and first.kind == "number":
        yield _Edit(first.start, first.end, _number(Fraction(first.text) / speed))
    elif [token.text for token in argument[-3:-1]] == [")", "/"] and last.kind == "number":
        yield _Edit(last.start, last.end, _number(Fraction(last.text) * speed))
    else:
        yield _Edit(first.start, first.start, "(")
        yield _Edit(last.end, last.end, f") / {_number(speed)}")


def _closing(tokens: list[Token], opening: int) -> int:
    depth = 0
    for index in range(opening, len(tokens)):
        depth += (tokens[index].text == "(") - (tokens[index].text == ")")
        if depth == 0:
            return index
    raise LanguageError("unclosed parenthesis")


def _last_comma(tokens: list[Token], opening: int, close: int) -> int:
    depth, found = 0, opening
    for index in range(opening, close):
        depth += (tokens[index].text in {"(", "{"}) - (tokens[index].text in {")", "}"})
        if tokens[index].text == "," and depth == 1:
            found = index
    return found


def _wrap(tokens: list[Token], index: int, close: int, speed: Fraction) -> Iterator[_Edit]:
    """Divide a call by the speed; one divided that way before is divided anew."""
    around = tokens[index - 1 : index] + tokens[close + 1 : close + 4]
    if [token.text for token in around[:2]] == ["(", "/"] and len(around) == 4:
        opening, _slash, number, end = around
        if number.kind == "number" and end.text == ")":
            factor = Fraction(number.text) * speed
            if abs(factor - 1) < Fraction(1, 10**9):
                yield _Edit(opening.start, opening.end, "")
                yield _Edit(tokens[close].end, end.end, "")
            else:
                yield _Edit(number.start, number.end, _number(factor))
            return
    yield _Edit(tokens[index].start, tokens[index].start, "(")
    yield _Edit(tokens[close].end, tokens[close].end, f" / {_number(speed)})")


# the scalars of a file ---------------------------------------------------------------------


def _scalars(root: Node | None) -> Iterator[tuple[Node, str]]:
    """Every duration and expression of a rule file that is known to be good."""
    groups = root.mapping("the file").get("groups") if root is not None else None
    for group in groups.items("groups") if groups is not None else ():
        pairs = group.mapping("a group")
        yield from ((pairs[key], key) for key in _GROUP_TIMES if _given(pairs, key))
        for rule in pairs["rules"].items("rules") if "rules" in pairs else ():
            inner = rule.mapping("a rule")
            yield from ((inner[key], key) for key in _RULE_TIMES if _given(inner, key))


def _given(pairs: dict[str, Node], key: str) -> bool:
    return key in pairs and bool(pairs[key].raw.value)


def _duration_edits(node: Node, text: str, speed: Fraction) -> tuple[list[_Edit], list[str]]:
    raw = node.raw
    start, end = raw.start_mark.index, raw.end_mark.index
    length = parse_duration(raw.value)
    scaled = _divided(length, speed)
    if scaled == length:
        return [], []
    written = text[start:end].replace(raw.value, format_duration(scaled), 1)
    return [_Edit(start, end, written)], []


def _expression_edits(node: Node, text: str, speed: Fraction) -> tuple[list[_Edit], list[str]]:
    """Carry the edits of an expression over to where it stands in the file."""
    raw, warnings = node.raw, list[str]()
    edits = list(_token_edits(raw.value, speed, warnings))
    if not edits:
        return [], warnings
    start, end = raw.start_mark.index, raw.end_mark.index
    if raw.style in {"'", '"'}:
        changed = _apply(raw.value, edits)
        escaped = "'" + changed.replace("'", "''") + "'"
        if raw.style == '"':
            escaped = json.dumps(changed, ensure_ascii=False)
        return [_Edit(start, end, escaped)], warnings
    places = _places(raw.value, text, start, end)
    return [_moved(edit, places) for edit in edits], warnings


def _moved(edit: _Edit, places: list[int]) -> _Edit:
    """The same edit in the file; what closes goes right behind the character before it."""
    if edit.end > edit.start:
        return _Edit(places[edit.start], places[edit.end - 1] + 1, edit.text)
    at = places[edit.start] if edit.text == "(" else places[edit.start - 1] + 1
    return _Edit(at, at, edit.text)


def _places(value: str, text: str, start: int, end: int) -> list[int]:
    """Where each character of a plain, literal or folded scalar stands in the file."""
    position = start
    if text[start : start + 1] in {"|", ">"} and (
        header := re.match(r"[|>][^\n]*\n", text[start:])
    ):
        position = start + header.end()
    places = []
    for char in value:
        if char.isspace():
            places.append(position)
            continue
        while position < end and text[position] != char:
            position += 1
        places.append(position)
        position += 1
    return places


# the check ---------------------------------------------------------------------------------


def _canonical(expr: Expression, speed: Fraction) -> Expression:
    """The tree that an expression has after rescaling, spelled in one way.

    Parentheses are gone, and what a per-second call is divided by is its last argument.
    """
    bare, divisor = _undivided(expr)
    node = rebuild(bare, lambda child: _canonical(child, speed))
    if isinstance(node, Call):
        return _canonical_call(node, divisor, speed)
    if isinstance(node, Number):
        return _rounded(node.value)
    if isinstance(node, (Selector, Subquery)):
        length = 0 if node.range is None else _divided(node.range, speed)
        offset = _divided(node.offset, speed)
        if isinstance(node, Selector):
            return replace(node, range=length or None, offset=offset)
        step = None if node.step is None else _divided(node.step, speed)
        return replace(node, range=length, step=step, offset=offset)
    return node


def _undivided(expr: Expression) -> tuple[Expression, float]:
    """A node without its parentheses, and what it was divided by if it is ``(rate(..) / n)``."""
    node = unwrap(expr)
    if isinstance(expr, Paren) and isinstance(node, Binary) and isinstance(node.rhs, Number):
        inner = unwrap(node.lhs)
        if node.op == "/" and isinstance(inner, Call) and inner.func in _PER_SECOND:
            return inner, node.rhs.value
    return node, 1.0


def _canonical_call(call: Call, divisor: float, speed: Fraction) -> Call:
    args = call.args
    if call.func in _PER_SECOND:
        args = (*args, _rounded(divisor * float(speed)))
    elif call.func == "predict_linear":
        base, by = args[1], float(speed)
        if isinstance(base, Binary) and base.op == "/" and isinstance(base.rhs, Number):
            by *= base.rhs.value
            base = base.lhs
        if isinstance(base, Number):
            args = (args[0], _rounded(base.value / by))
        else:
            args = (args[0], Binary("/", base, _rounded(by)))
    return Call(call.func, args)


def _rounded(value: float) -> Expression:
    """A number that compares: NaN equals nothing, and factors are written with twelve digits."""
    return String("NaN") if math.isnan(value) else Number(float(f"{value:.9g}"))
