"""Where durations stand in an expression, and how long they are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from detectors.rules.errors import LanguageError, Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterator

    from detectors.rules.tokens import Token

__all__ = ["Span", "spans"]


@dataclass(frozen=True, slots=True)
class Span:
    """One range, step or offset.

    Attributes:
        start: The position of its first character.
        end: The position after its last one.
        milliseconds: How long it is; never negative without a sign of its own.
        computed: Whether it is more than one number or duration.
    """

    start: int
    end: int
    milliseconds: int
    computed: bool


def spans(tokens: list[Token]) -> Iterator[Span]:
    """All durations of an expression, in the order written.

    A plain offset is given without its sign.

    Raises:
        LanguageError: One of them is no duration.
        Unsupported: One depends on the query.

    Examples:
        >>> from detectors.rules.tokens import tokenize
        >>> text = "rate(x[2 * 5m] offset 30s)"
        >>> [(text[one.start : one.end], one.milliseconds) for one in spans(tokenize(text))]
        [('2 * 5m', 600000), ('30s', 30000)]

    """
    index = 0
    while index < len(tokens):
        token = tokens[index]
        index += 1
        if token.text == "[":
            end = _end(tokens, index, "[", "]")
            middle = next((i for i in range(index, end) if tokens[i].text == ":"), end)
            for part in (tokens[index:middle], tokens[middle + 1 : end]):
                if part:
                    yield _span(part, positive=True)
            index = end
        elif token.kind == "name" and token.text.lower() == "offset":
            begin = index
            signed = begin < len(tokens) and tokens[begin].text in {"+", "-"}
            index += signed
            if index >= len(tokens):
                return
            if tokens[index].kind in {"number", "duration"}:
                yield _span(tokens[index : index + 1])
            elif tokens[index].text == "(":
                index = _end(tokens, index + 1, "(", ")")
                yield _span(tokens[begin : index + 1])
            elif tokens[index].kind == "name":  # a function, if anything
                _span(tokens[index : index + 1])


def _end(tokens: list[Token], begin: int, opening: str, closing: str) -> int:
    depth = 1
    for index in range(begin, len(tokens)):
        depth += (tokens[index].text == opening) - (tokens[index].text == closing)
        if not depth:
            return index
    raise LanguageError(f"{opening!r} at character {tokens[begin - 1].start + 1} is not closed")


def _span(tokens: list[Token], *, positive: bool = False) -> Span:
    """Compute what a few tokens say, in seconds as Prometheus does."""
    first, last = tokens[0], tokens[-1]
    plain = len(tokens) == 1 and first.kind in {"number", "duration"}
    rest = list(reversed(tokens))
    try:
        milliseconds = rest.pop().milliseconds if plain else int(_value(rest, 0) * 1000)
    except (ArithmeticError, IndexError, ValueError):
        rest = tokens
    if rest:
        raise LanguageError(f"the duration at character {first.start + 1} is none")
    if positive and milliseconds <= 0:
        raise LanguageError(f"the duration at character {first.start + 1} must be greater than 0")
    return Span(first.start, last.end, milliseconds, computed=not plain)


_OF_THE_QUERY = frozenset({"max", "max_of", "min", "min_of", "range", "step"})
_BINDS = {"+": 1, "-": 1, "*": 2, "/": 2, "%": 2, "^": 3}


def _value(rest: list[Token], least: int) -> float:
    """Read an operand and all operators that bind more than ``least``; the next token is last."""
    token = rest.pop()
    if token.text in {"+", "-"}:
        value = _value(rest, _BINDS["*"])
        value = -value if token.text == "-" else value
    elif token.text == "(":
        value = _value(rest, 0)
        if rest.pop().text != ")":
            raise ValueError
    elif token.text.lower() in _OF_THE_QUERY:
        raise Unsupported(f"{token.text}() in a duration", "it is not evaluated here")
    else:
        value = token.number
    while rest and _BINDS.get(rest[-1].text, 0) > least:
        op = rest.pop().text
        value = _applied(op, value, _value(rest, _BINDS[op] - (op == "^")))
    return value


def _applied(op: str, left: float, right: float) -> float:
    if op in {"+", "-"}:
        return left + right if op == "+" else left - right
    if op == "*":
        return left * right
    if op == "/":
        return left / right
    return math.fmod(left, right) if op == "%" else math.pow(left, right)
