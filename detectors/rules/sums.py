"""Sums and means as Prometheus rounds them.

Summation is compensated (A. Neumaier, "Rundungsfehleranalyse einiger Verfahren zur Summation
endlicher Summen", 1974), but done for a whole axis at once: running sums are sequential in
numpy's ``accumulate``, and every correction follows from two neighbours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["add", "lost_in", "mean", "moving_mean", "total", "variance"]

Floats = "NDArray[np.float64]"


def total(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sum along the last axis.

    Returns:
        The running sum's end, and what to add to it.

    Examples:
        >>> high, low = total(np.array([1.0, 1e100, 1.0, -1e100]))
        >>> float(high + low)
        2.0

    """
    with np.errstate(all="ignore"):
        running = np.add.accumulate(values, axis=-1)
        lost = np.zeros_like(values)
        lost[..., 1:] = lost_in(running[..., :-1], values[..., 1:], running[..., 1:])
        end = running[..., -1]
        if not np.isfinite(end).all():
            lost[np.isinf(running)] = 0.0
        low = np.add.accumulate(lost, axis=-1)[..., -1]
        return end, np.where(np.isinf(end), 0.0, low)


def lost_in(
    first: NDArray[np.float64], second: NDArray[np.float64], total_: NDArray[np.float64]
) -> NDArray[np.float64]:
    """What rounding took from sums, exactly; NaN where they are infinite.

    Without a branch (D. E. Knuth, The Art of Computer Programming, volume 2, 4.2.2, theorem B).
    """
    virtual = total_ - first
    lost: NDArray[np.float64] = (first - (total_ - virtual)) + (second - virtual)
    return lost


def add(
    value: NDArray[np.float64], high: NDArray[np.float64], low: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Add one value to each of many compensated sums."""
    after = high + value
    larger = np.abs(high) >= np.abs(value)
    lost = np.where(larger, (high - after) + value, (value - after) + high)
    return after, np.where(np.isinf(after), 0.0, low + lost)


def _stuck(mean_: NDArray[np.float64], value: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Where an infinite mean stays as it is: the value is finite or infinite alike."""
    same = np.isinf(value) & ((mean_ > 0) == (value > 0))
    stuck: NDArray[np.bool_] = np.isinf(mean_) & (same | np.isfinite(value))
    return stuck


def mean(values: NDArray[np.float64], mask: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Mean along the last axis: sum over count, and a moving mean from where the sum overflows."""
    with np.errstate(all="ignore"):
        high, low = total(np.where(mask, values, 0.0))
        count = mask.sum(axis=-1)
        result: NDArray[np.float64] = high / count + low / count
        overflowed = np.isinf(high) & ~(np.isinf(values) & mask).any(axis=-1)
        for where in zip(*np.nonzero(overflowed), strict=True):
            result[where] = _mean_of_large(values[where][mask[where]])
        return result


def _mean_of_large(values: NDArray[np.float64]) -> float:
    high = low = np.zeros(())
    count, moving = 0, False
    for value in values:
        count += 1
        if not moving:
            new_high, new_low = add(value, high, low)
            if count == 1 or not np.isinf(new_high):
                high, low = new_high, new_low
                continue
            moving = True
            high, low = high / (count - 1), low / (count - 1)
        share = (count - 1) / count
        high, low = add(value / count, share * high, share * low)
    return float(high + low if moving else high / count + low / count)


def moving_mean(
    values: NDArray[np.float64], mask: NDArray[np.bool_], *, compensated: bool
) -> NDArray[np.float64]:
    """Mean along the last axis, moved by one value after the other, as 2.x does it."""
    shape = values.shape[:-1]
    high, low, count = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    with np.errstate(all="ignore"):
        for column in range(values.shape[-1]):
            value, here = values[..., column], mask[..., column]
            count = count + here
            moved = here & ~_stuck(high, value)
            first = here & (count == 1)
            step = value / count - high / count
            if compensated:
                new_high, new_low = add(step, high, low)
            else:
                new_high, new_low = np.where(first, value, high + step), low
            high, low = np.where(moved, new_high, high), np.where(moved, new_low, low)
        return np.where(np.isinf(high), high, high + low)


def variance(
    values: NDArray[np.float64],
    mask: NDArray[np.bool_],
    *,
    compensated: bool,
    lenient: bool = False,
) -> NDArray[np.float64]:
    """Variance along the last axis (B. P. Welford, 1962).

    Args:
        values: float64[..., n].
        mask: bool[..., n]: which of them count.
        compensated: Whether the sums are.
        lenient: Whether one value alone has variance 0 even where it is not finite.
    """
    shape = values.shape[:-1]
    zeros = np.zeros(shape)
    high, low, aux, aux_low, count = zeros, zeros, zeros, zeros, zeros
    with np.errstate(all="ignore"):
        for column in range(values.shape[-1]):
            value, here = values[..., column], mask[..., column]
            count = count + here
            delta = value - (high + low)
            if compensated:
                new_high, new_low = add(delta / count, high, low)
                new_aux, new_aux_low = add(delta * (value - (new_high + new_low)), aux, aux_low)
            else:
                new_high, new_low = high + delta / count, low
                new_aux, new_aux_low = aux + delta * (value - new_high), aux_low
            if lenient:
                new_aux = np.where(count == 1, 0.0, new_aux)
            high, low = np.where(here, new_high, high), np.where(here, new_low, low)
            aux, aux_low = np.where(here, new_aux, aux), np.where(here, new_aux_low, aux_low)
        return (aux + aux_low) / count
