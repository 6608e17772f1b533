"""Functions of an instant: numbers to numbers, labels to labels."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from detectors.rules.errors import EvaluationError
from detectors.rules.labels import Labels, compile_regex, make
from detectors.rules.ranges import RANGE_FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = [
    "CALENDAR",
    "ELEMENTWISE",
    "FUNCTIONS",
    "OLD_ELEMENTWISE",
    "PARAMETRIC",
    "format_value",
    "go_max",
    "go_min",
    "label_join",
    "label_replace",
]


def go_min(first: Floats, second: Floats) -> Floats:
    """The smaller, NaN if either is, but -Inf before NaN, as Go has it."""
    result = np.minimum(first, second)
    return np.where((first == -np.inf) | (second == -np.inf), -np.inf, result)


def go_max(first: Floats, second: Floats) -> Floats:
    """The larger, NaN if either is, but Inf before NaN, as Go has it."""
    result = np.maximum(first, second)
    return np.where((first == np.inf) | (second == np.inf), np.inf, result)


def _round(values: Floats, to: Floats | float = 1.0) -> Floats:
    inverse = 1.0 / to
    return np.floor(values * inverse + 0.5) / inverse


ELEMENTWISE: dict[str, Callable[[Floats], Floats]] = {
    "abs": np.abs,
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atanh": np.arctanh,
    "ceil": np.ceil,
    "cos": np.cos,
    "cosh": np.cosh,
    "deg": lambda values: values * (180 / np.pi),
    "exp": np.exp,
    "floor": np.floor,
    "ln": np.log,
    "log10": np.log10,
    "log2": np.log2,
    "rad": lambda values: values * (np.pi / 180),
    "sgn": np.sign,
    "sin": np.sin,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
}
"""One number to one number."""

OLD_ELEMENTWISE: dict[str, Callable[[Floats], Floats]] = {
    "deg": lambda values: values * 180 / np.pi,
    "rad": lambda values: values * np.pi / 180,
}
"""What was rounded otherwise, and overflowed, in 2.x."""

PARAMETRIC: dict[str, Callable[..., Floats]] = {
    "clamp": lambda values, low, high: go_max(low, go_min(high, values)),
    "clamp_max": lambda values, high: go_min(high, values),
    "clamp_min": lambda values, low: go_max(low, values),
    "round": _round,
}
"""A number and scalars, one per step, to a number."""


def _date(values: Floats) -> NDArray[np.datetime64]:
    return np.trunc(values).astype(np.int64).astype("datetime64[s]")


def _since(values: Floats, unit: str, part: str) -> Floats:
    """How many of ``part`` since the start of the ``unit`` the moment lies in."""
    date = _date(values)
    start = date.astype(f"datetime64[{unit}]")
    elapsed = date.astype(f"datetime64[{part}]") - start.astype(f"datetime64[{part}]")
    return np.asarray(elapsed.astype(np.int64), np.float64)


def _days_in_month(values: Floats) -> Floats:
    month = _date(values).astype("datetime64[M]")
    length = (month + np.timedelta64(1, "M")).astype("datetime64[D]") - month.astype(
        "datetime64[D]"
    )
    return np.asarray(length.astype(np.int64), np.float64)


def _year(values: Floats) -> Floats:
    years = _date(values).astype("datetime64[Y]").astype(np.int64)
    return np.asarray(years + 1970, np.float64)


def _day_of_week(values: Floats) -> Floats:
    return ((_date(values).astype("datetime64[D]").astype(np.int64) + 4) % 7).astype(float)


def _calendar(part: Callable[[Floats], Floats], endless: float) -> Callable[[Floats], Floats]:
    """What is no number of seconds falls, in Go, on the last moment there is, 292277026596-12-04."""

    def function(values: Floats) -> Floats:
        usable = np.abs(values) < 2.0**53
        return np.asarray(
            np.where(usable, part(np.where(usable, values, 0.0)), endless), np.float64
        )

    return function


CALENDAR: dict[str, Callable[[Floats], Floats]] = {
    "day_of_month": _calendar(lambda values: _since(values, "M", "D") + 1, 4),
    "day_of_week": _calendar(_day_of_week, 0),
    "day_of_year": _calendar(lambda values: _since(values, "Y", "D") + 1, 339),
    "days_in_month": _calendar(_days_in_month, 31),
    "hour": _calendar(lambda values: _since(values, "D", "h"), 15),
    "minute": _calendar(lambda values: _since(values, "h", "m"), 30),
    "month": _calendar(lambda values: _since(values, "Y", "M") + 1, 12),
    "year": _calendar(
        _year,
        292_277_026_596,
    ),
}
"""Unix seconds to a part of their date in UTC."""

_SPECIAL = frozenset(
    [
        "absent",
        "absent_over_time",
        "double_exponential_smoothing",
        "end",
        "histogram_fraction",
        "histogram_quantile",
        "holt_winters",
        "label_join",
        "label_replace",
        "max_of",
        "min_of",
        "pi",
        "predict_linear",
        "quantile_over_time",
        "range",
        "scalar",
        "sort",
        "sort_by_label",
        "sort_by_label_desc",
        "sort_desc",
        "start",
        "step",
        "time",
        "timestamp",
        "vector",
    ]
)
FUNCTIONS = _SPECIAL.union(ELEMENTWISE, PARAMETRIC, CALENDAR, RANGE_FUNCTIONS)
"""Every function that is evaluated here."""

_LEGACY_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_TEMPLATE = re.compile(r"\$(?:\$|(?P<name>[A-Za-z0-9_]+)|\{(?P<braced>[A-Za-z0-9_]+)\})")


def _check_name(name: str, function: str, *, old: bool) -> None:
    if not name or (old and not _LEGACY_NAME.fullmatch(name)):
        raise EvaluationError(f"invalid destination label name in {function}(): {name}")


def label_replace(series: Sequence[Labels], words: Sequence[str], *, old: bool) -> list[Labels]:
    """Set a label from a full match of another.

    Args:
        series: Label sets.
        words: Destination, replacement, source and regular expression.
        old: Whether only classic label names are valid, as before 3.0.

    Raises:
        EvaluationError: The regular expression or the destination is invalid.

    Examples:
        >>> label_replace([(("ip", "a-7"),)], ["rack", "r$1", "ip", ".*-(.*)"], old=False)
        [(('ip', 'a-7'), ('rack', 'r7'))]

    """
    target, replacement, source, pattern_text = words
    pattern = compile_regex(pattern_text)
    _check_name(target, "label_replace", old=old)
    out = []
    for labels in series:
        pairs = dict(labels)
        found = pattern.fullmatch(pairs.get(source, ""))
        if found is not None:
            pairs[target] = _expand(replacement, found)
        out.append(make(pairs))
    return out


def _expand(template: str, found: re.Match[str]) -> str:
    """Fill in ``$1`` and ``${name}``; what the expression has not is empty."""

    def one(reference: re.Match[str]) -> str:
        name = reference["name"] or reference["braced"]
        if name is None:
            return "$"
        try:
            return found[int(name) if name.isdecimal() else name] or ""
        except IndexError:
            return ""

    return _TEMPLATE.sub(one, template)


def label_join(series: Sequence[Labels], words: Sequence[str], *, old: bool) -> list[Labels]:
    """Set a label to others joined.

    Args:
        series: Label sets.
        words: Destination, separator, and the sources.
        old: Whether only classic label names are valid, as before 3.0.

    Raises:
        EvaluationError: A name is invalid.
    """
    target, separator, *sources = words
    for name in [target, *sources]:
        _check_name(name, "label_join", old=old)
    out = []
    for labels in series:
        pairs = dict(labels)
        pairs[target] = separator.join(pairs.get(name, "") for name in sources)
        out.append(make(pairs))
    return out


def format_value(value: float) -> str:
    """Write a number in full, shortest that reads back, as ``count_values`` does.

    Examples:
        >>> format_value(1e21), format_value(0.5), format_value(float("inf"))
        ('1000000000000000000000', '0.5', '+Inf')

    """
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return np.format_float_positional(value, unique=True, trim="-")
