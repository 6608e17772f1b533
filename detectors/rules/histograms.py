"""Quantiles of classic histograms: counters with an upper bound in ``le``.

Formulas follow Prometheus's ``promql/quantile.go``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from detectors.rules.labels import Labels, without
from detectors.rules.vectors import Vector

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["by_bucket", "fraction", "quantile"]

_TINY = 1e-12
"""Falls between buckets smaller than this share are rounding, since 2.48."""


def by_bucket(
    vector: Vector,
    measure: Callable[[Labels, Floats, Floats, NDArray[np.int64]], Floats],
    bad: Callable[[Labels, str], None],
) -> Vector:
    """Bring buckets of one histogram together and measure each at every step.

    Args:
        vector: The buckets.
        measure: ``(labels, bounds[b], counts[b, s], steps[s]) -> float64[s]``; bounds ascend.
        bad: Told of every series without a bound, and what it has for one.
    """
    groups: dict[Labels, list[int]] = {}
    bounds = np.full(len(vector.labels), np.nan)
    for row, labels in enumerate(vector.labels):
        text = dict(labels).get("le", "")
        try:
            bounds[row] = _parse_bound(text)
        except ValueError:
            bad(labels, text)
            continue
        groups.setdefault(without(labels, {"le"}), []).append(row)
    steps = vector.values.shape[1]
    values, present = np.zeros((len(groups), steps)), np.zeros((len(groups), steps), bool)
    for number, (labels, rows) in enumerate(groups.items()):
        order = np.array(rows)[np.argsort(bounds[rows], kind="stable")]
        here = vector.present[order]
        present[number] = here.any(axis=0)
        patterns, which = np.unique(here, axis=1, return_inverse=True)
        for index in range(patterns.shape[1]):
            pattern = patterns[:, index]
            if not pattern.any():
                continue
            columns = np.flatnonzero(which.reshape(-1) == index)
            members = order[pattern]
            with np.errstate(all="ignore"):
                buckets = _coalesce(bounds[members], vector.values[members][:, columns])
                values[number, columns] = measure(labels, *buckets, columns)
    return Vector(list(groups), values, present)


def _parse_bound(text: str) -> float:
    if text.strip() != text or "_" in text or not text:
        raise ValueError(text)
    bound = float(text)
    if np.isnan(bound):
        raise ValueError(text)
    return bound


def _coalesce(bounds: Floats, counts: Floats) -> tuple[Floats, Floats]:
    """Add up buckets with the same bound."""
    unique, where = np.unique(bounds, return_inverse=True)
    if len(unique) == len(bounds):
        return bounds, counts
    merged = np.zeros((len(unique), counts.shape[1]))
    np.add.at(merged, where.reshape(-1), counts)
    return unique, merged


def monotonic(counts: Floats, *, old: bool) -> tuple[Floats, bool]:
    """Raise every bucket to the one before it.

    Returns:
        The counts, and whether more than rounding was put right.
    """
    forced, fixed = False, counts.copy()
    for row in range(1, len(fixed)):
        before, now = fixed[row - 1], fixed[row]
        if old:
            fixed[row] = np.where(now > before, now, before)
            continue
        close = np.abs(now - before) < _TINY * (np.abs(now) + np.abs(before))
        close &= now != before
        forced |= bool(((now < before) & ~close).any())
        fixed[row] = np.where(close | (now < before), before, now)
    return fixed, forced


def quantile(q: Floats, bounds: Floats, counts: Floats) -> Floats:
    """Linear inside a bucket.

    Args:
        q: float64[s].
        bounds: float64[b], ascending.
        counts: float64[b, s], rising down the column.

    Returns:
        float64[s].
    """
    edge = np.where(np.isnan(q), np.nan, np.where(q < 0, -np.inf, np.where(q > 1, np.inf, 0.0)))
    if bounds[-1] != np.inf or len(bounds) < 2:
        return np.where(edge != 0, edge, np.nan)
    observations = counts[-1]
    rank = q * observations
    bucket = (~(counts[:-1] >= rank)).sum(axis=0)
    columns = np.arange(counts.shape[1])
    within = np.minimum(bucket, len(bounds) - 2)
    below = np.maximum(within - 1, 0)
    start = np.where(within > 0, bounds[below], 0.0)
    under = np.where(within > 0, counts[below, columns], 0.0)
    end = bounds[within]
    share = (rank - under) / (counts[within, columns] - under)
    result = start + (end - start) * share
    result = np.where((within == 0) & (bounds[0] <= 0), bounds[0], result)
    result = np.where(bucket >= len(bounds) - 1, bounds[-2], result)
    result = np.where((observations == 0) | np.isnan(observations), np.nan, result)
    return np.where(edge != 0, edge, result)


def fraction(lower: Floats, upper: Floats, bounds: Floats, counts: Floats) -> Floats:
    """The share of observations between two bounds, linear inside a bucket.

    Args:
        lower: float64[s].
        upper: float64[s].
        bounds: float64[b], ascending.
        counts: float64[b, s].
    """
    total = counts[-1]
    if bounds[-1] != np.inf:
        return np.full(total.shape, np.nan)
    share = (_rank(upper, bounds, counts) - _rank(lower, bounds, counts)) / total
    share = np.where(lower >= upper, 0.0, share)
    return np.where((total == 0) | np.isnan(lower) | np.isnan(upper), np.nan, share)


def _rank(value: Floats, bounds: Floats, counts: Floats) -> Floats:
    """How many observations lie below a value; none is inside a bucket without an end."""
    lowest = 0.0 if bounds[0] > 0 else -np.inf
    bucket = np.searchsorted(bounds[:-1], value, side="right")
    columns = np.arange(len(value))
    start = np.concatenate([[lowest], bounds[:-1]])[bucket]
    before = np.where(bucket > 0, counts[bucket - 1, columns], 0.0)
    count = counts[bucket, columns]
    inside = before + (count - before) * (value - start) / (bounds[bucket] - start)
    inside = np.where(start == -np.inf, count, inside)
    result = np.where(value <= start, before, inside)
    result = np.where(value == np.inf, counts[-1], result)
    return np.asarray(np.minimum(result, counts[-1]))
