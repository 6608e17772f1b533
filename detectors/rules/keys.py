"""Whole numbers sorted and told apart, in linear time where they are small."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]

__all__ = ["distinct", "order_of", "places", "spread", "starts"]


def order_of(keys: Numbers) -> Numbers:
    """The places of keys in ascending order, equals as they come; none is negative.

    Examples:
        >>> order_of(np.array([3, 1, 3, 0])).tolist()
        [3, 1, 0, 2]

    """
    top = int(keys.max(initial=0))  # numpy has a linear way for 8 and 16 bits
    kind = np.uint8 if top < 2**8 else np.uint16 if top < 2**16 else np.int64
    return np.argsort(keys.astype(kind), kind="stable")


def starts(keys: Numbers) -> Numbers:
    """The place of the first of each stretch of equal keys; none is negative.

    Examples:
        >>> starts(np.array([4, 4, 7, 4])).tolist()
        [0, 2, 3]

    """
    return np.flatnonzero(np.diff(keys, prepend=-1))


def places(some: Numbers, size: int) -> Numbers:
    """Where each of the first ``size`` numbers is among some: int64[size], -1 where it is not.

    Examples:
        >>> places(np.array([1, 3]), 5).tolist()
        [-1, 0, -1, 1, -1]

    """
    out = np.full(size, -1)
    out[some] = np.arange(len(some))
    return out


def distinct(keys: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """The different keys, ascending, where each first is, and which of them each key is.

    Examples:
        >>> [part.tolist() for part in distinct(np.array([7, 2, 7]))]
        [[2, 7], [1, 0], [1, 0, 1]]

    """
    order = order_of(keys)
    ranked = keys[order]
    begins = starts(ranked)
    which = np.empty(len(keys), np.int64)
    which[order] = np.repeat(np.arange(len(begins)), np.diff(begins, append=len(keys)))
    return ranked[begins], order[begins], which


def spread(begin: Numbers, size: Numbers) -> Numbers:
    """Numbers in a row from each of some on, one stretch after the other.

    Examples:
        >>> spread(np.array([5, 1]), np.array([2, 3])).tolist()
        [5, 6, 1, 2, 3]

    """
    out: Numbers = np.repeat(begin - (np.cumsum(size) - size), size)
    out += np.arange(len(out))
    return out
