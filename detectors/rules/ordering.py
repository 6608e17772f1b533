"""In which order the series of an answer come."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from detectors.rules.labels import Labels

__all__ = ["by_labels", "by_value"]


def by_value(values: NDArray[np.float64], *, descending: bool) -> NDArray[np.int64]:
    """Places in the order of their values, NaN last.

    Examples:
        >>> by_value(np.array([2.0, np.nan, 1.0, 3.0]), descending=True).tolist()
        [3, 0, 2, 1]

    """
    return np.lexsort((-values if descending else values, np.isnan(values)))


def by_labels(
    series: Sequence[Labels], names: Sequence[str], *, descending: bool
) -> NDArray[np.int64]:
    """Places in the order of some labels, then of all.

    Examples:
        >>> series = [(("node", "a10"),), (("node", "a9"),)]
        >>> by_labels(series, ["node"], descending=False).tolist()
        [1, 0]

    """

    def key(row: int) -> tuple[list[list[tuple[int, int, str]]], Labels]:
        pairs = dict(series[row])
        return [_natural(pairs.get(name, "")) for name in names], series[row]

    return np.array(sorted(range(len(series)), key=key, reverse=descending), np.int64)


def _natural(text: str) -> list[tuple[int, int, str]]:
    """A sort key that puts ``a9`` before ``a10``."""
    parts, digits = [], ""
    for char in text + "\0":
        if char.isdecimal():
            digits += char
            continue
        if digits:
            parts.append((0, int(digits), digits))
            digits = ""
        if char != "\0":
            parts.append((1, 0, char))
    return parts
