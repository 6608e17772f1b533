"""PromQL from text to a small tree of our own.

``promql-parser`` does the reading and the type checks. What it gets wrong is put right before
(raw strings, escapes, ``@`` with negative times, functions of older releases), and what we do not
evaluate is refused here, by name, with the reason: nothing later meets an unknown construct.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal

from detectors.rules.durations import format_duration
from detectors.rules.errors import LanguageError, Unsupported
from detectors.rules.labels import NAME, Matcher
from detectors.rules.spans import spans
from detectors.rules.tokens import Token, quote, tokenize, unquote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import timedelta

__all__ = [
    "AGGREGATIONS",
    "Aggregate",
    "Binary",
    "Call",
    "Expression",
    "Matching",
    "Number",
    "Paren",
    "Selector",
    "String",
    "Subquery",
    "Unary",
    "parse",
    "ranged",
    "rebuild",
    "selectors",
    "unwrap",
    "walk",
]

At = int | Literal["start", "end"] | None
"""Milliseconds, or an end of the query, or no ``@``."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number; a duration where a number stands is seconds."""

    value: float


@dataclass(frozen=True, slots=True)
class String:
    """A string."""

    value: str


@dataclass(frozen=True, slots=True)
class Selector:
    """``name{...}``, with a range when ``range`` is not None; times in milliseconds."""

    matchers: tuple[Matcher, ...]
    range: int | None = None
    offset: int = 0
    at: At = None

    @property
    def name(self) -> str:
        """The metric's name where one is written; else empty."""
        for matcher in self.matchers:
            if matcher.name == NAME and matcher.op == "=":
                return matcher.value
        return ""


@dataclass(frozen=True, slots=True)
class Subquery:
    """``expr[range:step]``; times in milliseconds, ``step`` None for the default."""

    expr: Expression
    range: int
    step: int | None = None
    offset: int = 0
    at: At = None


@dataclass(frozen=True, slots=True)
class Call:
    """``func(args)``."""

    func: str
    args: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Aggregate:
    """``op by (grouping) (param, expr)``."""

    op: str
    expr: Expression
    param: Expression | None = None
    grouping: tuple[str, ...] = ()
    without: bool = False


@dataclass(frozen=True, slots=True)
class Matching:
    """How the two sides of an operator are brought together.

    Attributes:
        labels: The labels of ``on`` or ``ignoring``.
        on: Whether these are compared, rather than left out.
        group: ``left`` or ``right``: the side that may have many; empty for one to one.
        include: Labels taken over from the other side.
    """

    labels: tuple[str, ...] = ()
    on: bool = False
    group: Literal["", "left", "right"] = ""
    include: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Binary:
    """``lhs op rhs``."""

    op: str
    lhs: Expression
    rhs: Expression
    matching: Matching = Matching()
    bool: bool = False


@dataclass(frozen=True, slots=True)
class Unary:
    """``-expr``."""

    expr: Expression


@dataclass(frozen=True, slots=True)
class Paren:
    """``(expr)``."""

    expr: Expression


Expression = Number | String | Selector | Subquery | Call | Aggregate | Binary | Unary | Paren

AGGREGATIONS = frozenset(
    [
        "avg",
        "bottomk",
        "count",
        "count_values",
        "group",
        "limitk",
        "max",
        "min",
        "quantile",
        "stddev",
        "stdvar",
        "sum",
        "topk",
    ]
)
_NATIVE = "native histograms are not evaluated"
_REFUSED_FUNCTIONS = {
    "histogram_avg": _NATIVE,
    "histogram_count": _NATIVE,
    "histogram_quantiles": "it is experimental",
    "histogram_stddev": _NATIVE,
    "histogram_stdvar": _NATIVE,
    "histogram_sum": _NATIVE,
    "info": "it is experimental and joins by metadata that a trace has not",
    "timeseries_gen": "it is experimental",
}
_EXPERIMENTAL = frozenset(
    [
        "double_exponential_smoothing",
        "end",
        "limitk",
        "mad_over_time",
        "max_of",
        "min_of",
        "range",
        "sort_by_label",
        "sort_by_label_desc",
        "start",
        "step",
        "ts_of_first_over_time",
        "ts_of_last_over_time",
        "ts_of_max_over_time",
        "ts_of_min_over_time",
    ]
)


def parse(text: str, *, experimental: bool = False) -> Expression:
    """Read an expression.

    Args:
        text: PromQL.
        experimental: Whether functions that Prometheus hides behind a flag are let in.

    Raises:
        LanguageError: It is not PromQL.
        Unsupported: It holds something that is not evaluated here.

    Examples:
        >>> parse("rate(x[5m]) > 1")
        Binary(op='>', lhs=Call(func='rate', args=(Selector(matchers=(Matcher(name='__name__',
        op='=', value='x'),), range=300000, offset=0, at=None),)), rhs=Number(value=1.0),
        matching=Matching(labels=(), on=False, group='', include=()), bool=False)

    """
    tokens = tokenize(text)
    _refuse_tokens(tokens)
    prepared, times = _prepare(text, tokens)
    parser = _parser()
    try:
        tree = parser.parse(prepared)
    except ValueError as error:
        unknown = re.fullmatch(r"unknown function with name '(.*)'", str(error))
        if unknown:
            raise Unsupported(f"{unknown[1]}()", "no such function is known") from None
        raise LanguageError(f"{_shorten(text)} is not PromQL: {error}") from None
    except BaseException as error:
        # a panic in Rust is no Exception; anything else goes its way
        if type(error).__name__ != "PanicException":
            raise
        raise LanguageError(f"{_shorten(text)} is not PromQL") from None
    return _Reader(times, experimental=experimental).read(tree)


def walk(expr: Expression) -> Iterator[Expression]:
    """An expression and all below it, parents first."""
    yield expr
    for field in fields(expr):
        value = getattr(expr, field.name)
        for child in value if field.name == "args" else (value,):
            if isinstance(child, Expression):
                yield from walk(child)


def rebuild(expr: Expression, change: Callable[[Expression], Expression]) -> Expression:
    """A copy of one node whose children have been changed."""
    changed: dict[str, Any] = {}
    for field in fields(expr):
        value = getattr(expr, field.name)
        if isinstance(value, Expression):
            changed[field.name] = change(value)
        elif field.name == "args":
            changed[field.name] = tuple(map(change, value))
    return replace(expr, **changed)


def selectors(expr: Expression) -> list[Selector]:
    """Every selector in an expression, in the order written."""
    return [node for node in walk(expr) if isinstance(node, Selector)]


def unwrap(expr: Expression) -> Expression:
    """Without the parentheses around it."""
    while isinstance(expr, Paren):
        expr = expr.expr
    return expr


def ranged(expr: Expression) -> bool:
    """Whether it gives samples over a time rather than values of an instant."""
    bare = unwrap(expr)
    return isinstance(bare, (Selector, Subquery)) and bare.range is not None


def _parser() -> Any:
    import promql_parser  # noqa: PLC0415 - 5 MB of parser, wanted only where rules are

    kinds = promql_parser.ValueType
    scalar, string, vector = kinds.Scalar, kinds.String, kinds.Vector
    promql_parser.register_extra_functions(
        [  # of 2.x, and newer than the parser
            promql_parser.Function("holt_winters", [kinds.Matrix, scalar, scalar], vector),
            promql_parser.Function("timeseries_gen", [string, string], vector, 1),
        ]
    )
    return promql_parser


_KEYWORDS = frozenset(
    ["and", "or", "unless", "atan2", "bool", "by", "without", "on", "ignoring", "offset"]
)
_AFTER_SELECTOR = frozenset({"]", ")", "}"})


def _refuse_tokens(tokens: list[Token]) -> None:
    """Refuse what the parser would only call invalid."""
    for before, token, after in zip([None, *tokens], tokens, [*tokens[1:], None], strict=False):
        follows = before is not None and (
            before.text in _AFTER_SELECTOR
            or before.kind in {"number", "duration"}
            or (before.kind == "name" and before.text not in _KEYWORDS)
        )
        if token.text == "/" and before is not None and before.text in {"<", ">"}:
            raise Unsupported(before.text + "/", _NATIVE)
        called = after is not None and after.text == "("
        if token.text in {"anchored", "smoothed"} and follows:
            raise Unsupported(token.text, "extended range selectors are not evaluated here")
        if token.kind == "name" and called:
            if token.text in _REFUSED_FUNCTIONS:
                raise Unsupported(f"{token.text}()", _REFUSED_FUNCTIONS[token.text])
            if token.text in {"fill", "fill_left", "fill_right"}:
                raise Unsupported(token.text, "fill modifiers are experimental")


def _prepare(text: str, tokens: list[Token]) -> tuple[str, list[int]]:
    """Make a text that the parser reads right.

    Strings are written anew with plain escapes, and durations that are computed with their
    result. A number after ``@`` becomes its place in the list returned, because the parser dies
    on times before 1970.
    """
    out: list[str] = []
    times: list[int] = []
    computed = {span.start: span for span in spans(tokens) if span.computed}
    position = 0
    for index, token in enumerate(tokens):
        if token.start < position:  # part of a time already written
            continue
        out.append(text[position : token.start])
        position = token.end
        if token.start in computed:
            length = computed[token.start].milliseconds
            out.append(format_duration(length) if length else "0")
            position = computed[token.start].end
            continue
        if token.kind == "string":
            out.append(quote(unquote(token.text)))
            continue
        out.append(token.text)
        following = tokens[index + 1 : index + 3]
        sign = following.pop(0).text if following and following[0].text in {"-", "+"} else "+"
        if token.text == "@" and following and following[0].kind in {"number", "duration"}:
            out.append(f" {len(times)}")
            times.append((-1 if sign == "-" else 1) * following[0].milliseconds)
            position = following[0].end
    out.append(text[position:])
    return "".join(out), times


def _shorten(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= 120 else flat[:117] + "..."


class _Reader:
    """Turns the parser's tree into ours."""

    def __init__(self, times: list[int], *, experimental: bool) -> None:
        self.times = times
        self.experimental = experimental

    def read(self, node: Any) -> Expression:
        """Translate one node."""
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", type(node).__name__).lower()
        expr: Expression = getattr(self, f"_{name}")(node)
        return expr

    def _number_literal(self, node: Any) -> Expression:
        return Number(float(node.val))

    def _string_literal(self, node: Any) -> Expression:
        return String(node.val)

    def _paren_expr(self, node: Any) -> Expression:
        return Paren(self.read(node.expr))

    def _unary_expr(self, node: Any) -> Expression:
        return Unary(self.read(node.expr))

    def _vector_selector(self, node: Any) -> Selector:
        if node.matchers.or_matchers:
            raise Unsupported("'or' between matchers", "Prometheus has it not")
        matchers = [Matcher(NAME, "=", node.name)] if node.name else []
        symbols = {"Equal": "=", "NotEqual": "!=", "Re": "=~", "NotRe": "!~"}
        for matcher in node.matchers.matchers:
            op = symbols[str(matcher.op).removeprefix("MatchOp.")]
            matchers.append(Matcher(matcher.name, op, matcher.value))
        return Selector(tuple(matchers), None, _milliseconds(node.offset), self._at(node.at))

    def _matrix_selector(self, node: Any) -> Expression:
        inner = self._vector_selector(node.vector_selector)
        return Selector(inner.matchers, _milliseconds(node.range), inner.offset, inner.at)

    def _subquery_expr(self, node: Any) -> Expression:
        step = None if node.step is None else _milliseconds(node.step)
        return Subquery(
            self.read(node.expr),
            _milliseconds(node.range),
            step or None,
            _milliseconds(node.offset),
            self._at(node.at),
        )

    def _call(self, node: Any) -> Expression:
        name = node.func.name
        if name in _EXPERIMENTAL and not self.experimental:
            raise Unsupported(f"{name}()", "it is experimental")
        from detectors.rules.functions import FUNCTIONS  # noqa: PLC0415 - they know the tree

        if name not in FUNCTIONS:
            raise Unsupported(f"{name}()", "it is not evaluated here")
        args = tuple(self.read(arg) for arg in node.args)
        _check_arguments(name, args)
        return Call(name, args)

    def _aggregate_expr(self, node: Any) -> Expression:
        op = str(node.op)
        if op not in AGGREGATIONS:
            raise Unsupported(f"{op}()", "it is experimental and depends on how series are hashed")
        if op in _EXPERIMENTAL and not self.experimental:
            raise Unsupported(f"{op}()", "it is experimental")
        param = None if node.param is None else self.read(node.param)
        modifier = node.modifier
        grouping = () if modifier is None else tuple(modifier.labels)
        without = modifier is not None and str(modifier.type).endswith("Without")
        return Aggregate(op, self.read(node.expr), param, grouping, without)

    def _binary_expr(self, node: Any) -> Expression:
        op, modifier = str(node.op), node.modifier
        lhs, rhs = self.read(node.lhs), self.read(node.rhs)
        if modifier is None:
            return Binary(op, lhs, rhs)
        card = str(modifier.card).removeprefix("VectorMatchCardinality.")
        groups: dict[str, Literal["left", "right"]] = {"ManyToOne": "left", "OneToMany": "right"}
        matching = modifier.matching
        labels = () if matching is None else tuple(matching.labels)
        on = matching is not None and str(matching.type).endswith("Include")
        include = tuple(modifier.group_labels or ())
        return Binary(
            op,
            lhs,
            rhs,
            Matching(labels, on, groups.get(card, ""), include),
            bool(modifier.return_bool),
        )

    def _at(self, node: Any) -> At:
        if node is None:
            return None
        kind = str(node.type).removeprefix("AtModifierType.")
        if kind == "Start":
            return "start"
        if kind == "End":
            return "end"
        at: int = self.times[round(node.at.timestamp())]
        return at


def _check_arguments(name: str, args: tuple[Expression, ...]) -> None:
    """Check what can be known before there are samples."""
    if name in {"label_replace", "label_join"}:
        words = [unwrap(arg) for arg in args[1:]]
        if not all(isinstance(word, String) for word in words):
            raise Unsupported(f"{name}() with a computed string", "strings must be literal")


def _milliseconds(delta: timedelta | None) -> int:
    if delta is None:
        return 0
    return delta.days * 86_400_000 + delta.seconds * 1000 + delta.microseconds // 1000
