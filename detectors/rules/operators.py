"""Operators between vectors and scalars, step by step but all steps at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from detectors.rules import tables
from detectors.rules.errors import EvaluationError
from detectors.rules.labels import METADATA, Labels, keep, make, nameless, show_all, without
from detectors.rules.vectors import Vector

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from detectors.rules.language import Matching

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]

__all__ = ["COMPARISONS", "SETS", "arithmetic", "collapse", "drop_names", "keeps_names", "set_operation",
           "vector_vector"]  # fmt: skip


def _power(base: Floats, exponent: Floats) -> Floats:
    """As in Go; numpy takes a square root where it should not."""
    endless = (base == -np.inf) & (exponent == 0.5)
    return np.where(endless, np.inf, np.power(base, exponent))


ARITHMETIC: dict[str, Callable[[Floats, Floats], Floats]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "%": np.fmod,
    "^": _power,
    "atan2": np.arctan2,
}
COMPARISONS: dict[str, Callable[[Floats, Floats], Mask]] = {
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
SETS = frozenset({"and", "or", "unless"})

SAME = "vector cannot contain metrics with the same labelset"


def arithmetic(op: str, lhs: Floats, rhs: Floats) -> Floats:
    """Apply an operator to numbers; comparisons give 0 or 1."""
    with np.errstate(all="ignore"):
        if op in COMPARISONS:
            return COMPARISONS[op](lhs, rhs).astype(np.float64)
        return ARITHMETIC[op](lhs, rhs)


def keeps_names(op: str, *, as_bool: bool, old: bool) -> bool:
    """Whether what an operator gives is still the metric that it was given."""
    if op == "atan2":  # before 3.0 it was forgotten among those that drop the name
        return old
    return op in COMPARISONS and not as_bool


def drop_names(vector: Vector, *, delayed: bool) -> Vector:
    """Drop the metric names now, or mark them to be dropped at the end."""
    if delayed:
        return vector.named(vector.labels, np.ones(len(vector.labels), bool))
    labels, unique = tables.bare(vector.labels)
    bare = vector.named(labels)
    return bare if unique else collapse(bare)


def collapse(vector: Vector) -> Vector:
    """Merge series with equal labels.

    Raises:
        EvaluationError: Two of them hold a value at the same step.
    """
    first: dict[Labels, int] = {}
    for row, labels in enumerate(vector.labels):
        first.setdefault(labels, row)
    if len(first) == len(vector.labels):
        return vector
    rows = list(first.values())
    place = dict(zip(first, range(len(rows)), strict=True))
    where = np.array([place[labels] for labels in vector.labels])
    count = _met(where, len(rows), vector.present)
    if (count > 1).any():
        raise EvaluationError(SAME)
    values = np.zeros(count.shape)
    at_row, at_step = np.nonzero(vector.present)
    values[where[at_row], at_step] = vector.values[at_row, at_step]
    drop = None if vector.drop is None else vector.drop[rows]
    return Vector(list(first), values, count > 0, drop)


def _met(where: NDArray[np.int64], size: int, present: Mask) -> NDArray[np.int64]:
    """How many series of each of ``size`` groups are there at each step."""
    count = np.zeros((size, present.shape[1]), np.int64)
    np.add.at(count, where, present)
    return count


def _signatures(vectors: list[Vector], matching: Matching) -> list[NDArray[np.int64]]:
    """Number the groups of series that belong together, alike over all vectors."""
    names = set(matching.labels)
    known: dict[Labels, int] = {}
    out = []
    for vector in vectors:
        if matching.on:
            signatures = [keep(labels, names) for labels in vector.labels]
        else:
            signatures = [without(labels, names | METADATA) for labels in vector.labels]
        out.append(np.array([known.setdefault(one, len(known)) for one in signatures], np.int64))
    return out


def _presence(vector: Vector, groups: NDArray[np.int64], size: int) -> Mask:
    """For every group and step, whether one of its series is there."""
    found = np.zeros((size, vector.present.shape[1]), bool)
    np.logical_or.at(found, groups, vector.present)
    return found


def set_operation(op: str, lhs: Vector, rhs: Vector, matching: Matching) -> Vector:
    """``and``, ``or`` and ``unless``."""
    left, right = _signatures([lhs, rhs], matching)
    size = int(max(left.max(initial=-1), right.max(initial=-1))) + 1
    if op == "or":
        taken = _presence(lhs, left, size)
        added = rhs.only(~taken[right])
        return collapse(stack(lhs, added))
    found = _presence(rhs, right, size)[left]
    return lhs.only(found if op == "and" else ~found)


def stack(first: Vector, second: Vector) -> Vector:
    """The series of both."""
    drop = None
    if first.drop is not None or second.drop is not None:
        drop = np.concatenate(
            [
                np.zeros(len(one.labels), bool) if one.drop is None else one.drop
                for one in (first, second)
            ]
        )
    return Vector(
        [*first.labels, *second.labels],
        np.concatenate([first.values, second.values]),
        np.concatenate([first.present, second.present]),
        drop,
    )


def vector_vector(
    op: str,
    lhs: Vector,
    rhs: Vector,
    matching: Matching,
    *,
    as_bool: bool,
    delayed: bool,
    old: bool,
) -> Vector:
    """Arithmetic and comparison between two vectors.

    Raises:
        EvaluationError: The series of the two sides do not match one to one, or many to one.
    """
    swapped = matching.group == "right"
    many, one = (rhs, lhs) if swapped else (lhs, rhs)
    steps_with_both = np.asarray(many.present.any(axis=0) & one.present.any(axis=0))
    many_groups, one_groups = _signatures([many, one], matching)
    _check_unique(one, one_groups, steps_with_both, matching, swapped=swapped)
    rows, partner = _pairs(many_groups, one_groups)
    many, groups = many.rows(rows), many_groups[rows]
    near, far = many.values, one.values[partner]
    left, right = (far, near) if swapped else (near, far)
    present = many.present & one.present[partner]
    comparison = op in COMPARISONS
    with np.errstate(all="ignore"):
        if comparison:
            kept = COMPARISONS[op](left, right)
            values = kept.astype(np.float64) if as_bool else left
        else:
            values = ARITHMETIC[op](left, right)
    left_over = present & kept if comparison and not as_bool else present
    drops = not keeps_names(op, as_bool=as_bool, old=old)
    labels = [
        _result_labels(ours, one.labels[other], matching, drop=drops and not delayed)
        for ours, other in zip(many.labels, partner.tolist(), strict=True)
    ]
    drop = np.full(len(labels), drops) if delayed else None
    # before 3.10 what a comparison left out could not clash
    _check_many(left_over if old else present, labels, groups, matching)
    return collapse(Vector(labels, values, left_over, drop)).only(np.True_)  # type: ignore[arg-type]  # a scalar broadcasts


def _pairs(
    many: NDArray[np.int64], one: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Every series of the many with every series of its group on the other side."""
    members: dict[int, list[int]] = {}
    for row, group in enumerate(one.tolist()):
        members.setdefault(group, []).append(row)
    pairs = [
        (row, other) for row, group in enumerate(many.tolist()) for other in members.get(group, ())
    ]
    table = np.array(pairs, np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def _check_unique(
    vector: Vector,
    groups: NDArray[np.int64],
    steps: Mask,
    matching: Matching,
    *,
    swapped: bool,
) -> None:
    """Check that no group has two series at a step where the other side has any."""
    size = int(groups.max(initial=-1)) + 1
    clash = np.argwhere((_met(groups, size, vector.present) > 1) & steps)
    if not len(clash):
        return
    group, step = clash[0]
    rivals = np.flatnonzero((groups == group) & vector.present[:, step])
    pair = tables.chosen(vector.labels, rivals[:2])
    names = set(matching.labels)
    labels = pair[0]
    shown = keep(labels, names) if matching.on else without(labels, names | METADATA)
    side = "left" if swapped else "right"
    both = ", ".join(sorted(map(show_all, pair)))
    raise EvaluationError(
        f"found duplicate series for the match group {show_all(shown)} on the {side} hand-side of "
        f"the operation: [{both}];many-to-many matching not allowed: matching labels must be "
        f"unique on one side"
    )


def _result_labels(ours: Labels, other: Labels, matching: Matching, *, drop: bool) -> Labels:
    """The labels of a result."""
    if drop:
        ours = nameless(ours)
    if not matching.group:
        names = set(matching.labels)
        return keep(ours, names) if matching.on else without(ours, names)
    if not matching.include:
        return ours
    pairs, theirs = dict(ours), dict(other)
    for name in matching.include:
        pairs[name] = theirs.get(name, "")
    return make(pairs)


def _check_many(
    present: Mask, labels: list[Labels], groups: NDArray[np.int64], matching: Matching
) -> None:
    """Check that results of one group do not meet at a step."""
    if matching.group:
        error = "multiple matches for labels: grouping labels must ensure unique matches"
        keys: list[object] = list(zip(groups.tolist(), labels, strict=True))
    else:
        error = (
            "multiple matches for labels: many-to-one matching must be explicit "
            "(group_left/group_right)"
        )
        keys = groups.tolist()
    number = dict(zip(dict.fromkeys(keys), range(len(keys)), strict=False))
    if len(number) == len(keys):
        return
    where = np.array([number[key] for key in keys])
    if (_met(where, len(number), present) > 1).any():
        raise EvaluationError(error)
