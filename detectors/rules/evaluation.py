"""Evaluates an expression on stored samples, at many steps at once.

A vector is a matrix, series by steps; a scalar is one number per step. Every step gives what an
instant query at its time gives, so a rule's whole history is one evaluation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from detectors.rules import aggregation, histograms, notes, operators, ordering, tables
from detectors.rules.errors import EvaluationError, Unsupported
from detectors.rules.functions import (
    CALENDAR,
    ELEMENTWISE,
    OLD_ELEMENTWISE,
    PARAMETRIC,
    go_max,
    go_min,
    label_join,
    label_replace,
)
from detectors.rules.labels import METADATA, NAME, Labels, compile_regex, make, nameless
from detectors.rules.language import (
    Aggregate,
    Binary,
    Call,
    Expression,
    Number,
    Paren,
    Selector,
    String,
    Subquery,
    Unary,
    ranged,
    unwrap,
)
from detectors.rules.operators import collapse, drop_names
from detectors.rules.ranges import (
    RANGE_FUNCTIONS,
    absent,
    predict_linear,
    quantile_over_time,
    smoothed,
)
from detectors.rules.series import Block, Storage, Windows, is_stale
from detectors.rules.vectors import Runs, Vector

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Times = NDArray[np.int64]
    Mask = NDArray[np.bool_]

__all__ = ["DIALECTS", "Dialect", "Evaluator", "Sample", "Series"]

Dialect = Literal["prometheus3", "prometheus2"]
DIALECTS: tuple[Dialect, ...] = ("prometheus3", "prometheus2")
"""Windows without their left end (3.0 and later), or with it.

Where releases differ in more than that, ``prometheus3`` is the newest 3.x and ``prometheus2`` is
2.42: releases from 2.51 on have some of what 3.0 rounds and names otherwise.
"""

_KEEP_NAME = frozenset({"last_over_time", "first_over_time"})
_COUNTER_SUFFIXES = ("_total", "_sum", "_count", "_bucket")


@dataclass(frozen=True, slots=True)
class Sample:
    """One element of an instant vector."""

    labels: Labels
    value: float


@dataclass(frozen=True, slots=True)
class Series:
    """One series over time: milliseconds and values."""

    labels: Labels
    times: tuple[int, ...]
    values: tuple[float, ...]


@dataclass(slots=True)
class Evaluator:
    """Evaluates expressions on one storage.

    Attributes:
        storage: The samples.
        dialect: Which release's windows and rounding.
        lookback: Milliseconds for which a sample stands for its series.
        subquery_step: Milliseconds between the steps of a subquery that names none.
        delayed_names: Whether metric names are dropped only when the query is done, an option
            since 2.55 that is off by default.
        notes: What a user should know about the last evaluations: ``PromQL info: ...`` and
            ``PromQL warning: ...``, each once.

    Examples:
        >>> from detectors.rules.language import parse
        >>> from detectors.rules.notation import load
        >>> evaluator = Evaluator(load(60_000, 'x{node="a"} 0+3x5', 'x{node="b"} 0+6x5'))
        >>> for sample in evaluator.instant(parse("rate(x[5m]) > 0.06"), 300_000):
        ...     print(sample)
        Sample(labels=(('node', 'b'),), value=0.1)

    """

    storage: Storage
    dialect: Dialect = "prometheus3"
    lookback: int = 300_000
    subquery_step: int = 60_000
    delayed_names: bool = False
    notes: dict[str, None] = field(default_factory=dict)
    _span: tuple[int, int] | None = None
    _step: int = 0
    _grouped: dict[
        tuple[int, tuple[str, ...], bool], tuple[Sequence[Labels], aggregation.Groups]
    ] = field(default_factory=dict, repr=False)
    _grouped_version: int = -1
    _known: dict[tuple[Expression, bytes, tuple[int, int] | None], Vector] = field(
        default_factory=dict, repr=False
    )
    _known_version: int = -1

    @property
    def _old(self) -> bool:
        return self.dialect == "prometheus2"

    # the door -------------------------------------------------------------------------------

    def instant(self, expr: Expression, at: int) -> float | str | list[Sample] | list[Series]:
        """Answer an instant query.

        Args:
            expr: The expression.
            at: Milliseconds.

        Returns:
            A number, a string, the elements of a vector, or, for a range, its series.

        Raises:
            EvaluationError: It cannot be evaluated on these samples.
            Unsupported: It meets native histograms.
        """
        times = np.array([at], np.int64)
        self._step = 0
        if ranged(expr):
            self._span = (at, at)
            return self._raw(expr, times)
        answer = self.steps(expr, times, span=(at, at))
        if isinstance(answer, str):
            return answer
        if isinstance(answer, Vector):
            return [
                Sample(labels, float(value))
                for labels, value, here in zip(
                    answer.labels, answer.values[:, 0], answer.present[:, 0], strict=True
                )
                if here
            ]
        return float(answer[0])

    def range(self, expr: Expression, start: int, end: int, step: int) -> list[Series]:
        """Answer a range query; all times in milliseconds.

        Raises:
            EvaluationError: It cannot be evaluated on these samples.
            Unsupported: It meets native histograms.
        """
        times = np.arange(start, end + 1, step, dtype=np.int64)
        self._step = step
        answer = self.steps(expr, times, span=(start, end))
        if isinstance(answer, str):
            raise EvaluationError("a range query cannot have a string for an answer")
        if not isinstance(answer, Vector):
            return [Series((), tuple(times.tolist()), tuple(answer.tolist()))]
        return _series(answer, times)

    def steps(
        self, expr: Expression, times: Times, *, span: tuple[int, int] | None = None
    ) -> Vector | Floats | str:
        """Evaluate at each of some times, ascending, in milliseconds.

        Args:
            expr: The expression.
            times: int64[k].
            span: What ``@ start()`` and ``@ end()`` mean; None for each step itself.

        Returns:
            A vector with names dropped, float64[k], or a string.
        """
        self._span = span
        answer = self.evaluate(expr, times)
        if isinstance(answer, Vector) and answer.drop is not None:
            labels = [
                nameless(series) if drop else series
                for series, drop in zip(answer.labels, answer.drop.tolist(), strict=True)
            ]
            answer = collapse(Vector(labels, answer.values, answer.present))
        return answer

    def note(self, text: str) -> None:
        """Keep a remark for the user."""
        self.notes[text] = None

    # one node -------------------------------------------------------------------------------

    def evaluate(self, expr: Expression, times: Times) -> Vector | Floats | str:
        """Evaluate one node at the times given."""
        if isinstance(expr, Number):
            return np.full(len(times), expr.value)
        if isinstance(expr, String):
            return expr.value
        if isinstance(expr, Paren):
            return self.evaluate(expr.expr, times)
        if isinstance(expr, Selector) and expr.range is None:
            return self._selected(expr, times)[0]
        node: Vector | Floats = getattr(self, "_of_" + type(expr).__name__.lower())(expr, times)
        return node

    def _of_selector(self, expr: Selector | Subquery, times: Times) -> Vector:
        del expr, times
        raise EvaluationError("a range has no value of its own")

    _of_subquery = _of_selector

    def vector(self, expr: Expression, times: Times) -> Vector:
        """Evaluate a node that gives a vector."""
        answer = self.evaluate(expr, times)
        if not isinstance(answer, Vector):
            raise EvaluationError("an instant vector is wanted here")
        return answer

    def scalar(self, expr: Expression, times: Times) -> Floats:
        """Evaluate a node that gives a number per step."""
        answer = self.evaluate(expr, times)
        if isinstance(answer, (Vector, str)):
            raise EvaluationError("a scalar is wanted here")
        return answer

    def _of_unary(self, expr: Unary, times: Times) -> Vector | Floats:
        answer = self.evaluate(expr.expr, times)
        if isinstance(answer, Vector):
            negative = answer.mapped(np.negative)
            return drop_names(negative, delayed=self.delayed_names)
        if isinstance(answer, str):
            raise EvaluationError("a string has no negative")
        return -answer

    def _fixed(self, node: Selector | Subquery, times: Times) -> tuple[Times, bool]:
        """The times a node looks at before its offset, and whether it is one for all steps."""
        at = node.at
        if at in {"start", "end"}:
            if self._span is None:
                return times, False
            at = self._span[0] if at == "start" else self._span[1]
        if isinstance(at, int):
            return np.array([at], np.int64), True
        return times, False

    def _selected(self, node: Selector, times: Times) -> tuple[Vector, Times]:
        """An instant vector, and the times of its samples, int64[n, k]."""
        looked, fixed = self._fixed(node, times)
        at = looked - node.offset
        labels: list[Labels] = []
        values, present, stamps = [], [], []
        for block in self.storage.select(node.matchers):
            if not block.labels or not len(block.grid):
                continue
            value, stamp, has = block.newest(at)
            oldest = at - self.lookback
            fresh = stamp >= oldest if self._old else stamp > oldest
            here = has & fresh & ~is_stale(value)
            rows = np.flatnonzero(here.any(axis=1))
            labels.extend(tables.chosen(block.labels, rows))
            values.append(value[rows])
            present.append(here[rows])
            stamps.append(stamp[rows])
        if not labels:
            return Vector.empty(len(times)), np.zeros((0, len(times)), np.int64)
        vector = Vector(labels, np.concatenate(values), np.concatenate(present))
        stamp = np.concatenate(stamps)
        if not fixed:
            return vector, stamp
        every = np.zeros(len(times), np.int64)  # one look serves all steps
        return Vector(labels, vector.values[:, every], vector.present[:, every]), stamp[:, every]

    # ranges ---------------------------------------------------------------------------------

    def _ranges(self, expr: Expression, times: Times) -> list[Windows]:
        """The windows of a range selector or subquery, one set per block of series."""
        node = unwrap(expr)
        if not isinstance(node, (Selector, Subquery)) or node.range is None:
            raise EvaluationError("a range is wanted here")
        looked, _ = self._fixed(node, times)
        end = np.broadcast_to(looked - node.offset, times.shape)
        if isinstance(node, Subquery):
            blocks = [self._inner(node, looked - node.offset)]
        else:
            blocks = [block.live for block in self.storage.select(node.matchers)]
        left_open = not self._old
        return [Windows(block, times, end, node.range, left_open=left_open) for block in blocks]

    def _inner(self, node: Subquery, ends: Times) -> Block:
        """Evaluate what stands in a subquery at its own steps."""
        step = node.step or self.subquery_step
        start = int(ends.min()) - node.range
        first = start // step * step
        if first < start or (first == start and not self._old):
            first += step
        inner = np.arange(first, int(ends.max()) + 1, step, dtype=np.int64)
        if not len(inner):
            return Block.dense([], inner, np.zeros((0, 0)), np.zeros((0, 0), bool))
        answer = self.evaluate(node.expr, inner)
        if isinstance(answer, str):
            raise EvaluationError("a subquery wants a vector")
        if not isinstance(answer, Vector):
            answer = Vector([()], answer[None, :], np.ones((1, len(inner)), bool))
        block = Block.dense(answer.labels, inner, answer.values, answer.present)
        block.drop = answer.drop
        return block

    def _raw(self, expr: Expression, times: Times) -> list[Series]:
        out = []
        for windows in self._ranges(expr, times):
            block = windows.block
            for row, labels in enumerate(block.labels):
                lo, hi = windows.lo[row, 0], windows.hi[row, 0]
                if hi > lo:
                    if block.drop is not None and block.drop[row]:
                        labels = nameless(labels)  # noqa: PLW2901 - the name is done with
                    out.append(
                        Series(
                            labels,
                            tuple(block.times[lo:hi].tolist()),
                            tuple(block.values[lo:hi].tolist()),
                        )
                    )
        return out

    def _over_range(
        self,
        name: str,
        expr: Expression,
        times: Times,
        apply: Callable[[Windows], tuple[Floats, Mask] | Runs],
    ) -> Vector:
        """Apply a function to each window of a range."""
        keeps_name = name in _KEEP_NAME or self.delayed_names
        pieces, unique = [], True
        for windows in self._ranges(expr, times):
            block = windows.block
            if not block.labels:
                continue
            labels, bare_unique = (block.labels, True) if keeps_name else block.bare
            drop = np.zeros(len(labels), bool) if block.drop is None else block.drop
            body = apply(windows)
            piece = Vector.of(labels, body, drop if self.delayed_names else None)
            pieces.append(piece if piece.runs is not None else piece.seen())
            unique &= bare_unique
            if name in {"rate", "increase"}:
                self._note_counters(block.labels, expr)
        if not pieces:
            return Vector.empty(len(times))
        result = pieces[0]
        for piece in pieces[1:]:
            result, unique = operators.stack(result, piece), False
        if self.delayed_names and name not in _KEEP_NAME:
            return drop_names(result, delayed=True)
        return result if unique or keeps_name else collapse(result)

    def _note_counters(self, series: Sequence[Labels], expr: Expression) -> None:
        node = unwrap(expr)
        if not isinstance(node, Selector):
            return
        names = [node.name] if node.name else {dict(labels).get(NAME, "") for labels in series}
        for name in names:
            if name and not name.endswith(_COUNTER_SUFFIXES):
                self.note(notes.no_counter(name))

    # calls ----------------------------------------------------------------------------------

    def _of_call(self, call: Call, times: Times) -> Vector | Floats:
        name, args = call.func, call.args
        if name in RANGE_FUNCTIONS:
            function = RANGE_FUNCTIONS[name]
            return self._remembered(
                call,
                times,
                lambda: self._over_range(
                    name, args[0], times, lambda windows: function(windows, old=self._old)
                ),
            )
        if name in ELEMENTWISE:
            older = OLD_ELEMENTWISE if self._old else {}
            return self._mapped(args[0], times, older.get(name, ELEMENTWISE[name]))
        if name in PARAMETRIC:
            scalars = [self.scalar(arg, times) for arg in args[1:]]
            return self._parametric(name, args[0], scalars, times)
        if name in CALENDAR:
            return self._calendar(name, args, times)
        if name == "step":
            return np.full(len(times), self._step / 1000.0)
        special = getattr(self, f"_{name}")
        return special(args, times)  # type: ignore[no-any-return]  # looked up by name

    def _remembered(self, expr: Expression, times: Times, evaluate: Callable[[], Vector]) -> Vector:
        """What takes long and rules often ask for again: functions of a range, and aggregates."""
        if self._known_version != self.storage.version:
            self._known.clear()
            self._known_version = self.storage.version
        key = (expr, times.tobytes(), self._span)
        if key not in self._known:
            self._known[key] = evaluate()
        return self._known[key]

    def _mapped(
        self, expr: Expression, times: Times, function: Callable[[Floats], Floats]
    ) -> Vector:
        vector = self.vector(expr, times)
        with np.errstate(all="ignore"):
            mapped = vector.mapped(function)
        return drop_names(mapped, delayed=self.delayed_names)

    def _parametric(
        self, name: str, expr: Expression, scalars: list[Floats], times: Times
    ) -> Vector:
        vector = self.vector(expr, times)
        if name == "clamp":
            vector = vector.only(~(scalars[0] > scalars[1]))
        function = PARAMETRIC[name]
        with np.errstate(all="ignore"):
            values = function(vector.values, *scalars)
        mapped = Vector(vector.labels, values, vector.present, vector.drop)
        return drop_names(mapped, delayed=self.delayed_names)

    def _calendar(self, name: str, args: tuple[Expression, ...], times: Times) -> Vector:
        if args:
            return self._mapped(args[0], times, CALENDAR[name])
        return _constant(CALENDAR[name](times / 1000.0))

    def _time(self, args: tuple[Expression, ...], times: Times) -> Floats:
        del args
        return times / 1000.0

    def _pi(self, args: tuple[Expression, ...], times: Times) -> Floats:
        del args
        return np.full(len(times), np.pi)

    def _start(self, args: tuple[Expression, ...], times: Times) -> Floats:
        del args
        return times / 1000.0 if self._span is None else np.full(len(times), self._span[0] / 1000)

    def _end(self, args: tuple[Expression, ...], times: Times) -> Floats:
        del args
        return times / 1000.0 if self._span is None else np.full(len(times), self._span[1] / 1000)

    def _range(self, args: tuple[Expression, ...], times: Times) -> Floats:
        return self._end(args, times) - self._start(args, times)

    def _min_of(self, args: tuple[Expression, ...], times: Times) -> Floats:
        return go_min(self.scalar(args[0], times), self.scalar(args[1], times))

    def _max_of(self, args: tuple[Expression, ...], times: Times) -> Floats:
        return go_max(self.scalar(args[0], times), self.scalar(args[1], times))

    def _vector(self, args: tuple[Expression, ...], times: Times) -> Vector:
        return _constant(self.scalar(args[0], times))

    def _scalar(self, args: tuple[Expression, ...], times: Times) -> Floats:
        vector = self.vector(args[0], times)
        single = vector.present.sum(axis=0) == 1
        row = vector.present.argmax(axis=0) if len(vector.labels) else None
        if row is None:
            return np.full(len(times), np.nan)
        return np.where(single, vector.values[row, np.arange(len(times))], np.nan)

    def _timestamp(self, args: tuple[Expression, ...], times: Times) -> Vector:
        node = unwrap(args[0])
        if isinstance(node, Selector):
            vector, stamps = self._selected(node, times)
            seconds = stamps / 1000.0
        else:
            vector = self.vector(node, times)
            seconds = np.broadcast_to(times / 1000.0, vector.values.shape)
        return drop_names(
            Vector(vector.labels, seconds, vector.present, vector.drop),
            delayed=self.delayed_names,
        )

    def _absent(self, args: tuple[Expression, ...], times: Times) -> Vector:
        vector = self.vector(args[0], times)
        nothing = np.asarray(~vector.present.any(axis=0, keepdims=True))
        return Vector([_absent_labels(args[0])], np.ones(nothing.shape), nothing)

    def _absent_over_time(self, args: tuple[Expression, ...], times: Times) -> Vector:
        nothing = np.ones((1, len(times)), bool)
        for windows in self._ranges(args[0], times):
            nothing &= absent(windows)[1]
        return Vector([_absent_labels(args[0])], np.ones(nothing.shape), nothing)

    def _predict_linear(self, args: tuple[Expression, ...], times: Times) -> Vector:
        seconds = self.scalar(args[1], times)
        return self._over_range(
            "predict_linear", args[0], times, lambda windows: predict_linear(windows, seconds)
        )

    def _quantile_over_time(self, args: tuple[Expression, ...], times: Times) -> Vector:
        q = self.scalar(args[0], times)
        self._note_quantile(q)
        return self._over_range(
            "quantile_over_time",
            args[1],
            times,
            lambda windows: quantile_over_time(windows, q, old=self._old),
        )

    def _holt_winters(self, args: tuple[Expression, ...], times: Times) -> Vector:
        smoothing, trend = (self.scalar(arg, times) for arg in args[1:])
        for what, factor in (("smoothing", smoothing), ("trend", trend)):
            bad = (factor <= 0) | (factor >= 1)
            if bad.any():
                short = "sf" if what == "smoothing" else "tf"
                raise EvaluationError(
                    f"invalid {what} factor. Expected: 0 < {short} < 1, got: {factor[bad][0]:f}"
                )
        return self._over_range(
            "holt_winters", args[0], times, lambda windows: smoothed(windows, smoothing, trend)
        )

    _double_exponential_smoothing = _holt_winters

    def _label_replace(self, args: tuple[Expression, ...], times: Times) -> Vector:
        return self._relabelled(label_replace, args, times)

    def _label_join(self, args: tuple[Expression, ...], times: Times) -> Vector:
        return self._relabelled(label_join, args, times)

    def _relabelled(
        self,
        function: Callable[..., list[Labels]],
        args: tuple[Expression, ...],
        times: Times,
    ) -> Vector:
        vector = self.vector(args[0], times)
        words = [word.value for word in map(unwrap, args[1:]) if isinstance(word, String)]
        labels = function(vector.labels, words, old=self._old)
        drop = vector.drop
        if drop is not None and words[0] == NAME:  # a name just given is not dropped
            if function is label_join:
                drop = np.zeros_like(drop)
            else:
                source, pattern = words[2], compile_regex(words[3])
                given = [
                    pattern.fullmatch(dict(series).get(source, "")) is not None
                    for series in vector.labels
                ]
                drop = drop & ~np.array(given, bool)
        return collapse(Vector(labels, vector.values, vector.present, drop))

    def _sort(self, args: tuple[Expression, ...], times: Times) -> Vector:
        return self._sorted(args, times, descending=False)

    def _sort_desc(self, args: tuple[Expression, ...], times: Times) -> Vector:
        return self._sorted(args, times, descending=True)

    def _sorted(self, args: tuple[Expression, ...], times: Times, *, descending: bool) -> Vector:
        vector = self.vector(args[0], times)
        if not self._ordered(times):
            self._note_order()
            return vector
        return vector.rows(ordering.by_value(vector.values[:, 0], descending=descending))

    def _sort_by_label(self, args: tuple[Expression, ...], times: Times) -> Vector:
        return self._sorted_by_label(args, times, descending=False)

    def _sort_by_label_desc(self, args: tuple[Expression, ...], times: Times) -> Vector:
        return self._sorted_by_label(args, times, descending=True)

    def _sorted_by_label(
        self, args: tuple[Expression, ...], times: Times, *, descending: bool
    ) -> Vector:
        vector = self.vector(args[0], times)
        if not self._ordered(times):
            self._note_order()
            return vector
        names = [word.value for word in map(unwrap, args[1:]) if isinstance(word, String)]
        return vector.rows(ordering.by_labels(vector.labels, names, descending=descending))

    def _ordered(self, times: Times) -> bool:
        """Whether the order of an answer means something; a rule's and a range's do not."""
        return self._span is not None and len(times) == 1

    def _note_order(self) -> None:
        if self._span is not None:
            self.note(notes.ORDER)

    def _histogram_quantile(self, args: tuple[Expression, ...], times: Times) -> Vector:
        q = self.scalar(args[0], times)
        self._note_quantile(q)

        def measure(labels: Labels, bounds: Floats, counts: Floats, steps: Times) -> Floats:
            rising, fixed = histograms.monotonic(counts, old=self._old)
            if fixed:
                self.note(notes.falling_buckets(self._told_name(labels)))
            return histograms.quantile(q[steps], bounds, rising)

        return self._of_buckets(args[1], times, measure)

    def _histogram_fraction(self, args: tuple[Expression, ...], times: Times) -> Vector:
        if self._old:
            raise Unsupported("histogram_fraction()", "before 3.0 it was for native histograms")
        lower, upper = self.scalar(args[0], times), self.scalar(args[1], times)
        return self._of_buckets(
            args[2],
            times,
            lambda _, bounds, counts, steps: histograms.fraction(
                lower[steps], upper[steps], bounds, counts
            ),
        )

    def _of_buckets(
        self,
        expr: Expression,
        times: Times,
        measure: Callable[[Labels, Floats, Floats, Times], Floats],
    ) -> Vector:
        result = histograms.by_bucket(
            self.vector(expr, times),
            measure,
            lambda labels, text: self.note(notes.bad_bound(text, self._told_name(labels))),
        )
        return drop_names(result, delayed=self.delayed_names)

    def _told_name(self, labels: Labels) -> str:
        return dict(labels).get(NAME, "") if self.delayed_names else ""

    def _note_quantile(self, q: Floats) -> None:
        for value in q[np.isnan(q) | (q < 0) | (q > 1)][:1]:
            self.note(notes.bad_quantile(float(value)))

    # aggregation and operators --------------------------------------------------------------

    def _of_aggregate(self, node: Aggregate, times: Times) -> Vector:
        return self._remembered(node, times, lambda: self._aggregated(node, times))

    def _aggregated(self, node: Aggregate, times: Times) -> Vector:
        vector = self.vector(node.expr, times)
        if not vector.labels and node.op not in {
            "topk",
            "bottomk",
            "limitk",
            "quantile",
            "count_values",
        }:
            return vector
        groups = self._groups(vector.labels, node)
        if node.op == "count_values":
            label = node.param
            bare = unwrap(label) if label is not None else None
            if not isinstance(bare, String) or not bare.value:
                raise EvaluationError("invalid label name in count_values()")
            return aggregation.count_values(vector, groups, bare.value)
        if node.op in {"topk", "bottomk", "limitk"} and node.param is not None:
            k = self.scalar(node.param, times)
            ordered = self._ordered(times)
            return aggregation.pick(node.op, vector, groups, k, old=self._old, ordered=ordered)
        q = None
        if node.op == "quantile" and node.param is not None:
            q = self.scalar(node.param, times)
            self._note_quantile(q)
        return aggregation.reduce(node.op, vector, groups, old=self._old, q=q)

    def _groups(self, series: Sequence[Labels], node: Aggregate) -> aggregation.Groups:
        """Group series; rules often group the same ones again."""
        if self._grouped_version != self.storage.version:
            self._grouped.clear()
            self._grouped_version = self.storage.version
        key = (id(series), node.grouping, node.without)
        if key not in self._grouped:  # the list is kept, so that its id stays its own
            groups = aggregation.Groups(series, node.grouping, leave_out=node.without)
            self._grouped[key] = (series, groups)
        return self._grouped[key][1]

    def _of_binary(self, node: Binary, times: Times) -> Vector | Floats:
        lhs, rhs = self.evaluate(node.lhs, times), self.evaluate(node.rhs, times)
        if isinstance(lhs, str) or isinstance(rhs, str):
            raise EvaluationError("operators do not take strings")
        if isinstance(lhs, Vector) and isinstance(rhs, Vector):
            return self._between(node, lhs, rhs)
        if isinstance(lhs, Vector):
            return self._with_scalar(node, lhs, rhs, swapped=False)
        if isinstance(rhs, Vector):
            return self._with_scalar(node, rhs, lhs, swapped=True)
        return operators.arithmetic(node.op, lhs, rhs)

    def _between(self, node: Binary, lhs: Vector, rhs: Vector) -> Vector:
        """A vector on both sides."""
        if not lhs.labels and node.op != "or":
            return lhs
        if node.op in operators.SETS:
            return operators.set_operation(node.op, lhs, rhs, node.matching)
        return operators.vector_vector(
            node.op,
            lhs,
            rhs,
            node.matching,
            as_bool=node.bool,
            delayed=self.delayed_names,
            old=self._old,
        )

    def _with_scalar(
        self, node: Binary, vector: Vector, scalar: Vector | Floats, *, swapped: bool
    ) -> Vector:
        """A vector on one side, a scalar on the other."""
        if not vector.labels or isinstance(scalar, Vector):
            return vector
        if (scalar == scalar[0]).all():
            scalar = scalar[:1]
        elif vector.runs is not None:  # values alone do not say what they are held against
            vector = Vector(vector.labels, vector.values, vector.present, vector.drop)

        def sides(values: Floats) -> tuple[Floats, Floats]:
            return (scalar, values) if swapped else (values, scalar)

        if node.op in operators.COMPARISONS and not node.bool:
            compare = operators.COMPARISONS[node.op]
            with np.errstate(all="ignore"):
                return vector.where(lambda values: compare(*sides(values)))
        result = vector.mapped(lambda values: operators.arithmetic(node.op, *sides(values)))
        if operators.keeps_names(node.op, as_bool=node.bool, old=self._old):
            return result
        return drop_names(result, delayed=self.delayed_names)


def _constant(values: Floats) -> Vector:
    return Vector([()], values[None, :], np.ones((1, len(values)), bool))


def _absent_labels(expr: Expression) -> Labels:
    """What is known of a series that is not there: labels that had to equal one value."""
    node = unwrap(expr)
    if not isinstance(node, Selector):
        return ()
    equal: dict[str, str] = {}
    repeated = set()
    for matcher in node.matchers:
        if matcher.name in METADATA:
            continue
        if matcher.op == "=" and matcher.name not in equal:
            equal[matcher.name] = matcher.value
        else:
            repeated.add(matcher.name)
    return make({name: value for name, value in equal.items() if name not in repeated})


def _series(vector: Vector, times: Times) -> list[Series]:
    out = []
    for labels, values, present in zip(vector.labels, vector.values, vector.present, strict=True):
        if present.any():
            out.append(
                Series(labels, tuple(times[present].tolist()), tuple(values[present].tolist()))
            )
    return out
