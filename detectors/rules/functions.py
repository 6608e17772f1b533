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

__all__ = ["CALENDAR", "ELEMENTWISE", "FUNCTIONS", "PARAMETRIC", "format_value", "label_join",
           "label_replace"]  # fmt: skip


def _go_min(first: Floats, second: Floats) -> Floats:
    """The smaller, NaN if either is, but -Inf before NaN, as Go has it."""
    result = np.minimum(first, second)
    return np.where((first == -np.inf) | (second == -np.inf), -np.inf, result)


def _go_max(first: Floats, second: Floats) -> Floats:
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
    "deg": lambda values: values * 180 / np.pi,
    "exp": np.exp,
    "floor": np.floor,
    "ln": np.log,
    "log10": np.log10,
    "log2": np.log2,
    "rad": lambda values: values * np.pi / 180,
    "sgn": np.sign,
    "sin": np.sin,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
}
"""One number to one number."""

PARAMETRIC: dict[str, Callable[..., Floats]] = {
    "clamp": lambda values, low, high: _go_max(low, _go_min(high, values)),
    "clamp_max": lambda values, high: _go_min(high, values),
    "clamp_min": lambda values, low: _go_max(low, values),
    "round": _round,
}
"""A number and scalars, one per step, to a number."""


def _date(values: Floats) -> NDArray[np.datetime64]:
    seconds = np.where(np.isfinite(values), values, 0.0)
    return np.trunc(seconds).astype(np.int64).astype("datetime64[s]")


def _since(values: Floats, unit: str, part: str) -> Floats:
    """How many of ``part`` since the start of the ``unit`` the moment lies in."""
    date = _date(values)
    start = date.astype(f"datetime64[{unit}]")
    return (date.astype(f"datetime64[{part}]") - start.astype(f"datetime64[{part}]")).astype(float)


def _days_in_month(values: Floats) -> Floats:
    month = _date(values).astype("datetime64[M]")
    return ((month + 1).astype("datetime64[D]") - month.astype("datetime64[D]")).astype(float)


CALENDAR: dict[str, Callable[[Floats], Floats]] = {
    "day_of_month": lambda values: _since(values, "M", "D") + 1,
    "day_of_week": lambda values: (
        (_date(values).astype("datetime64[D]").astype(np.int64) + 4) % 7
    ).astype(float),
    "day_of_year": lambda values: _since(values, "Y", "D") + 1,
    "days_in_month": _days_in_month,
    "hour": lambda values: _since(values, "D", "h"),
    "minute": lambda values: _since(values, "h", "m"),
    "month": lambda values: _since(values, "Y", "M") + 1,
    "year": lambda values: _date(values).astype("datetime64[Y]").astype(np.int64) + 1970.0,
}
"""Unix seconds to a part of their date in UTC."""

_SPECIAL = frozenset(
    "absent absent_over_time double_exponential_smoothing histogram_fraction histogram_quantile "
    "holt_winters label_join label_replace pi predict_linear quantile_over_time scalar sort "
    "sort_by_label sort_by_label_desc sort_desc time timestamp vector".split()
)
FUNCTIONS = frozenset(ELEMENTWISE) | frozenset(PARAMETRIC) | frozenset(CALENDAR) | _SPECIAL | frozenset(RANGE_FUNCTIONS)  # fmt: skip
"""Every function that is evaluated here."""

_LEGACY_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_TEMPLATE = re.compile(r"\$(?:\$|(?P<name>[A-Za-z0-9_]+)|\{(?P<braced>[A-Za-z0-9_]+)\})")


def _check_name(name: str, function: str, *, old: bool) -> None:
    if not name or (old and not _LEGACY_NAME.fullmatch(name)):
        raise EvaluationError(f"invalid destination label name in {function}(): {name}")


def label_replace(
    series: Sequence[Labels], words: Sequence[str], *, old: bool
) -> list[Labels]:
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
    text = np.format_float_positional(value, unique=True, trim="-")
    return text
