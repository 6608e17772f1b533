"""Templates in labels and annotations: the part of Go's language that rules use.

Text with ``{{ }}``: labels, the value, literals, pipelines, calls of the common functions, and
``if``, ``else``, ``end``. Everything else is refused by name when the file is read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from detectors.rules.durations import parse_duration
from detectors.rules.errors import LanguageError, Unsupported
from detectors.rules.labels import compile_regex
from detectors.rules.tokens import quote, unquote

__all__ = ["Template", "format_float", "parse_template", "plain"]

Value = str | float | int | bool | Mapping[str, str]


class TemplateError(LanguageError):
    """A template is malformed, or cannot be filled in."""


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed text.

    Attributes:
        text: As written.
        uses_value: Whether what it gives may change with the alert's value.

    Examples:
        >>> template = parse_template("{{ $labels.ip }} at {{ $value | humanizePercentage }}")
        >>> template.render({"ip": "a"}, 0.25)
        'a at 25%'

    """

    text: str
    uses_value: bool
    _nodes: tuple[_Node, ...] = field(repr=False)

    @property
    def constant(self) -> bool:
        """Whether it is plain text."""
        return all(isinstance(node, str) for node in self._nodes)

    def render(self, labels: Mapping[str, str], value: float) -> str:
        """Fill it in.

        Args:
            labels: Of the element that raised the alert.
            value: Its value.

        Raises:
            TemplateError: A function does not take what it was given.
        """
        return _render(self._nodes, _Scope(labels, value))


@dataclass(frozen=True, slots=True)
class _Scope:
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class _If:
    test: _Expression
    then: tuple[_Node, ...]
    otherwise: tuple[_Node, ...]


@dataclass(frozen=True, slots=True)
class _Call:
    name: str
    args: tuple[_Expression, ...]


@dataclass(frozen=True, slots=True)
class _Literal:
    value: str | float | int | bool


@dataclass(frozen=True, slots=True)
class _Field:
    root: str
    name: str


_Expression = _Call | _Literal | _Field
_Node = str | _If | _Call | _Literal | _Field

_TOKEN = re.compile(
    r"""\s*(?:(?P<string>"(?:\\.|[^"\\\n])*"|`[^`]*`)
    | (?P<number>[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)
    | (?P<field>(?:\$[A-Za-z_]\w*|)(?:\.[A-Za-z_]\w*)+|\$[A-Za-z_]\w*|\.)
    | (?P<assign>:=|=)
    | (?P<word>[A-Za-z_]\w*)
    | (?P<punct>[|()]))""",
    re.VERBOSE,
)
_BLOCKS = frozenset({"range", "with", "define", "template", "block", "break", "continue"})
_ROOTS = {
    "$labels": "labels",
    ".Labels": "labels",
    "$externalLabels": "external",
    ".ExternalLabels": "external",
    "$value": "value",
    ".Value": "value",
    "$externalURL": "url",
    ".ExternalURL": "url",
}


def parse_template(text: str) -> Template:
    """Read a text with actions.

    Raises:
        TemplateError: It is malformed.
        Unsupported: It uses something that is not evaluated here.
    """
    pieces: list[tuple[str, str]] = []  # ("text" or "action", content)
    position = 0
    while (start := text.find("{{", position)) >= 0:
        end = _end_of_action(text, start)
        body = text[start + 2 : end]
        before = text[position:start]
        if re.match(r"-\s", body):
            body, before = body[1:], before.rstrip()
        position = end + 2
        if re.search(r"\s-$", body):
            body = body[:-1]
            position += len(text[position:]) - len(text[position:].lstrip())
        pieces += [("text", before), ("action", body.strip())]
    pieces.append(("text", text[position:]))
    reader = _Reader(pieces, text)
    nodes, closing = reader.nodes()
    if closing:
        raise TemplateError(f"unexpected {{{{{closing}}}}} in the template {text!r}")
    _render(nodes, _Scope({}, 0.0))  # what fails whatever the labels fails now
    return Template(text, reader.uses_value, nodes)


def plain(text: str) -> Template:
    """A text in which nothing is filled in."""
    return Template(text, uses_value=False, _nodes=(text,))


def _end_of_action(text: str, start: int) -> int:
    """Where the ``}}`` of an action stands, strings and comments skipped."""
    if text[start + 2 :].lstrip("- \t\n").startswith("/*"):
        end = text.find("*/", start)
        end = text.find("}}", end) if end >= 0 else -1
        if end < 0:
            raise TemplateError(f"unclosed comment in the template {text!r}")
        return end
    for found in re.finditer(r'"(?:\\.|[^"\\\n])*"|`[^`]*`|\}\}', text[start:]):
        if found.group() == "}}":
            return start + found.start()
    raise TemplateError(f"unclosed action in the template {text!r}")


class _Reader:
    def __init__(self, pieces: list[tuple[str, str]], text: str) -> None:
        self.pieces = pieces
        self.text = text
        self.uses_value = False
        self.position = 0

    def nodes(self) -> tuple[tuple[_Node, ...], str]:
        """Nodes up to a closing word, and that word."""
        out: list[_Node] = []
        while self.position < len(self.pieces):
            kind, body = self.pieces[self.position]
            self.position += 1
            if kind == "text":
                if body:
                    out.append(body)
                continue
            if body.startswith("/*"):
                continue
            word = body.split(maxsplit=1)[0] if body else ""
            if word in {"end", "else"}:
                return tuple(out), body
            if word in _BLOCKS:
                raise Unsupported(
                    f"{{{{{word}}}}} in a template", "only if, else and end are known"
                )
            out.append(self._if(body[2:]) if word == "if" else self._pipeline(body))
        return tuple(out), ""

    def _if(self, test: str) -> _If:
        condition = self._pipeline(test)
        then, closing = self.nodes()
        otherwise: tuple[_Node, ...] = ()
        if closing.startswith("else"):
            rest = closing[4:].strip()
            if rest.startswith("if"):
                otherwise = (self._if(rest[2:]),)
                return _If(condition, then, otherwise)
            otherwise, closing = self.nodes()
        if closing != "end":
            raise TemplateError(f"{{{{if}}}} without {{{{end}}}} in the template {self.text!r}")
        return _If(condition, then, otherwise)

    def _pipeline(self, body: str) -> _Expression:
        tokens = self._tokens(body)
        expression, rest = self._pipe(tokens)
        if rest:
            raise TemplateError(f"unexpected {rest[0][1]!r} in the template {self.text!r}")
        return expression

    def _tokens(self, body: str) -> list[tuple[str, str]]:
        out, position = [], 0
        body = body.strip()
        while position < len(body):
            found = _TOKEN.match(body, position)
            if found is None or found.end() == position:
                raise TemplateError(f"unexpected {body[position]!r} in the template {self.text!r}")
            kind = str(found.lastgroup)
            if kind == "assign":
                raise Unsupported("a variable in a template", "only labels and the value are known")
            out.append((kind, found.group(kind)))
            position = found.end()
        return out

    def _pipe(self, tokens: list[tuple[str, str]]) -> tuple[_Expression, list[tuple[str, str]]]:
        expression, tokens = self._command(tokens, ())
        while tokens and tokens[0][1] == "|":
            expression, tokens = self._command(tokens[1:], (expression,))
        return expression, tokens

    def _command(
        self, tokens: list[tuple[str, str]], last: tuple[_Expression, ...]
    ) -> tuple[_Expression, list[tuple[str, str]]]:
        if not tokens:
            raise TemplateError(f"missing value in the template {self.text!r}")
        kind, word = tokens[0]
        if kind == "word" and word not in {"true", "false"}:
            if word not in FUNCTIONS:
                raise Unsupported(f"{word} in a template", "this function is not known here")
            args: list[_Expression] = []
            tokens = tokens[1:]
            while tokens and tokens[0][1] not in {"|", ")"}:
                arg, tokens = self._operand(tokens)
                args.append(arg)
            return _Call(word, (*args, *last)), tokens
        if last:
            raise TemplateError(f"{word!r} is no function in the template {self.text!r}")
        return self._operand(tokens)

    def _operand(self, tokens: list[tuple[str, str]]) -> tuple[_Expression, list[tuple[str, str]]]:
        kind, word = tokens[0]
        if word == "(":
            expression, rest = self._pipe(tokens[1:])
            if not rest or rest[0][1] != ")":
                raise TemplateError(f"unclosed parenthesis in the template {self.text!r}")
            return expression, rest[1:]
        if kind == "string":
            return _Literal(unquote(word)), tokens[1:]
        if kind == "number":
            whole = re.fullmatch(r"[-+]?[0-9]+", word)
            return _Literal(int(word) if whole else float(word)), tokens[1:]
        if word in {"true", "false"}:
            return _Literal(word == "true"), tokens[1:]
        if kind == "field":
            return self._field(word), tokens[1:]
        if kind == "word" and word in FUNCTIONS:
            return _Call(word, ()), tokens[1:]
        raise TemplateError(f"unexpected {word!r} in the template {self.text!r}")

    def _field(self, word: str) -> _Expression:
        for root, meaning in _ROOTS.items():
            if word == root or word.startswith(root + "."):
                name = word[len(root) + 1 :]
                if "." in name or (name and meaning in {"value", "url"}):
                    break
                self.uses_value |= meaning == "value"
                return _Field(meaning, name)
        raise Unsupported(f"{word} in a template", "only labels and the value are known")


def _render(nodes: tuple[_Node, ...], scope: _Scope) -> str:
    out = []
    for node in nodes:
        if isinstance(node, str):
            out.append(node)
        elif isinstance(node, _If):
            chosen = node.then if _true(_evaluate(node.test, scope)) else node.otherwise
            out.append(_render(chosen, scope))
        else:
            out.append(_text(_evaluate(node, scope)))
    return "".join(out)


def _evaluate(expression: _Expression, scope: _Scope) -> Any:
    if isinstance(expression, _Literal):
        return expression.value
    if isinstance(expression, _Field):
        if expression.root == "value":
            return float(scope.value)
        if expression.root == "url":
            return ""
        known: Mapping[str, str] = scope.labels if expression.root == "labels" else {}
        return known.get(expression.name, "") if expression.name else known
    args = [_evaluate(arg, scope) for arg in expression.args]
    try:
        return FUNCTIONS[expression.name](*args)
    except (TypeError, ValueError, IndexError, OverflowError) as error:
        raise TemplateError(f"{expression.name} in a template: {error}") from None


def _true(value: Any) -> bool:
    """Go's idea of truth: neither zero nor empty."""
    return bool(value)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return format_float(value)
    if isinstance(value, Mapping):
        return "map[" + " ".join(f"{name}:{value[name]}" for name in sorted(value)) + "]"
    return str(value)


def format_float(value: float, digits: int | None = None) -> str:
    """Write a number as Go's ``%v`` does, or as ``%.Ng`` with ``digits``.

    Examples:
        >>> format_float(1e21), format_float(0.1), format_float(100000.0)
        ('1e+21', '0.1', '100000')
        >>> format_float(1234.5678, 4)
        '1235'

    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if digits is not None:
        return f"{value:.{digits}g}"
    if value == 0:
        return "-0" if math.copysign(1, value) < 0 else "0"
    text = _exponential(value)
    mantissa, _, exponent = text.partition("e")
    if -4 <= int(exponent) < 21:
        return f"{Decimal(text):f}"
    return f"{mantissa}e{exponent[0]}{exponent[1:].rjust(2, '0')}"


def _exponential(value: float) -> str:
    for digits in range(18):
        text = f"{value:.{digits}e}"
        if float(text) == value:
            return text
    return f"{value:.17e}"


def _number(value: Any) -> float:
    """A number, from a number or text."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise TypeError(f"{_text(value)} is not a number")
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            raise ValueError(f"{value!r} is not a number") from None
    return float(value)


_LARGE = ("k", "M", "G", "T", "P", "E", "Z", "Y")
_BINARY = ("ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi")
_SMALL = ("m", "u", "n", "p", "f", "a", "z", "y")


def _scaled(number: float, units: tuple[str, ...], base: float) -> str:
    """Four digits and a unit."""
    prefix = ""
    for unit in units if math.isfinite(number) and number != 0 else ():
        if abs(number) >= 1 if units is _SMALL else abs(number) < base:
            break
        prefix = unit
        number = number * base if units is _SMALL else number / base
    return format_float(number, 4) + prefix


def _humanize(value: Any) -> str:
    number = _number(value)
    return _scaled(number, _LARGE if abs(number) >= 1 else _SMALL, 1000.0)


def _humanize_binary(value: Any) -> str:
    number = _number(value)
    return _scaled(number, _BINARY if abs(number) > 1 else (), 1024.0)


def _humanize_duration(value: Any) -> str:
    number = _number(value)
    if not math.isfinite(number):
        return format_float(number, 4)
    if abs(number) < 60:
        return _scaled(number, _SMALL if abs(number) < 1 else (), 1000.0) + "s"
    whole = int(abs(number))
    parts = [
        f"{whole // 86400}d",
        f"{whole // 3600 % 24}h",
        f"{whole // 60 % 60}m",
        f"{whole % 60}s",
    ]
    first = 0 if whole >= 86400 else 1 if whole >= 3600 else 2
    return ("-" if number < 0 else "") + " ".join(parts[first:])


def _humanize_timestamp(value: Any) -> str:
    import numpy as np  # noqa: PLC0415 - seldom wanted

    number = _number(value)
    if math.isnan(number) or math.isinf(number):
        return format_float(number, 4)
    moment = np.datetime64(round(number * 1000), "ms")
    text = str(moment).replace("T", " ").rstrip("0").rstrip(".")
    return f"{text} +0000 UTC"


_VERB = re.compile(r"%(?P<flags>[-+ #0]*)(?P<width>\d*)(?P<precision>\.\d*)?(?P<verb>.)")


def _printf(layout: Any, *args: Any) -> str:
    if not isinstance(layout, str):
        raise TypeError("its layout is not a string")
    rest = list(args)

    def one(found: re.Match[str]) -> str:
        verb = found["verb"]
        if verb == "%":
            return "%"
        if not rest:
            return f"%!{verb}(MISSING)"
        return _formatted(found, rest.pop(0))

    text = _VERB.sub(one, layout)
    if rest:
        raise ValueError(f"{len(rest)} values too many for {layout!r}")
    return text


def _formatted(found: re.Match[str], value: Any) -> str:
    """One value by one verb."""
    verb, spec = found["verb"], found["flags"] + found["width"] + (found["precision"] or "")
    text = ""
    if isinstance(value, float) and verb in "fFeEgGv":
        plain = not math.isfinite(value) or (verb in "gGv" and not found["precision"])
        text = format_float(value) if plain else str(f"%{spec}{verb.replace('v', 'g')}" % value)
        text = text.rjust(int(found["width"] or 0))
    elif verb in "sv":
        text = str(f"%{spec}s" % _text(value))
    elif verb == "q" and isinstance(value, str):
        text = quote(value)
    elif verb in "dxXo" and isinstance(value, int) and not isinstance(value, bool):
        text = str(f"%{spec}{verb}" % value)
    elif verb == "t" and isinstance(value, bool):
        text = _text(value)
    else:
        raise ValueError(f"%{verb} does not take {_text(value)!r}")
    return text


def _humanize_percentage(value: Any) -> str:
    return format_float(_number(value) * 100, 4) + "%"


def _compared(first: Any, second: Any) -> int:
    """-1, 0 or 1; both must be of one kind."""
    if isinstance(first, str) != isinstance(second, str) or isinstance(first, bool) != isinstance(
        second, bool
    ):
        raise TypeError("incompatible types for comparison")
    if isinstance(first, float) != isinstance(second, float):
        raise TypeError("incompatible types for comparison")
    return int(first > second) - int(first < second)


def _same(first: Any, *others: Any) -> bool:
    if not others:
        raise TypeError("missing argument for comparison")
    return any(_compared(first, other) == 0 for other in others)


def _and(*values: Any) -> Any:
    return next((value for value in values if not _true(value)), values[-1])


def _or(*values: Any) -> Any:
    return next((value for value in values if _true(value)), values[-1])


def _replace(pattern: Any, replacement: Any, text: Any) -> str:
    return compile_regex(pattern).sub(re.sub(r"\$\{?(\w+)\}?", r"\\g<\1>", replacement), text)


def _index(known: Any, name: Any) -> str:
    if not isinstance(known, Mapping):
        raise TypeError("only labels can be indexed")
    return str(known.get(name, ""))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "and": _and,
    "eq": _same,
    "ge": lambda first, second: _compared(first, second) >= 0,
    "gt": lambda first, second: _compared(first, second) > 0,
    "humanize": _humanize,
    "humanize1024": _humanize_binary,
    "humanizeDuration": _humanize_duration,
    "humanizePercentage": _humanize_percentage,
    "humanizeTimestamp": _humanize_timestamp,
    "index": _index,
    "le": lambda first, second: _compared(first, second) <= 0,
    "len": len,
    "lt": lambda first, second: _compared(first, second) < 0,
    "match": lambda pattern, text: compile_regex(pattern).search(text) is not None,
    "ne": lambda first, second: not _same(first, second),
    "not": lambda value: not _true(value),
    "or": _or,
    "parseDuration": lambda text: parse_duration(text) / 1000.0,
    "print": lambda *values: "".join(map(_text, values)),
    "printf": _printf,
    "reReplaceAll": _replace,
    "stripPort": lambda text: re.sub(r":\d+$", "", text),
    "title": lambda text: re.sub(r"(?<![\w'])[a-z]", lambda found: found.group().upper(), text),
    "toLower": lambda text: text.lower(),
    "toUpper": lambda text: text.upper(),
}
"""The functions that templates may call."""
