"""Aggregation over the series of a vector, all steps at once.

Formulas follow Prometheus's ``promql/engine.go``, of 2.42 for the dialect ``prometheus2``.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from detectors.rules import sums, tables
from detectors.rules.errors import EvaluationError
from detectors.rules.functions import format_value
from detectors.rules.keys import order_of, spread, starts
from detectors.rules.labels import METADATA, Labels, make
from detectors.rules.vectors import Runs, Vector

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]

__all__ = ["Groups", "count_values", "pick", "reduce"]


class Groups:
    """Which series are aggregated together.

    Args:
        series: Their label sets.
        grouping: The labels of ``by`` or ``without``.
        leave_out: Whether these are left out, rather than kept.

    Attributes:
        labels: The label set of each group, in an order that no single series changes.
        of: int64[n]: the number of each series' group.
    """

    def __init__(
        self,
        series: Sequence[Labels],
        grouping: Sequence[str],
        *,
        leave_out: bool,
    ) -> None:
        names = METADATA.union(grouping) if leave_out else frozenset(grouping)
        self.labels, self.of = tables.grouped(series, names, leave_out=leave_out)

    @cached_property
    def members(self) -> list[NDArray[np.int64]]:
        """The numbers of each group's series, ascending."""
        order = np.argsort(self.of, kind="stable")
        begins = np.searchsorted(self.of[order], np.arange(len(self.labels)))
        return np.split(order, begins)[1:]


def _stacked(vector: Vector, groups: Groups, combine: Callable[[Floats, Mask], Floats]) -> Floats:
    """Give ``combine`` float64[g, k, members] of some groups at a time."""
    steps = vector.values.shape[1]
    out = np.zeros((len(groups.labels), steps))
    sizes = np.array([len(members) for members in groups.members], np.int64)
    for size in np.unique(sizes):  # groups of one size make a block without gaps
        which = np.flatnonzero(sizes == size)
        piece = max(1, 4_000_000 // max(1, int(size) * steps))
        for begin in range(0, len(which), piece):
            chosen = which[begin : begin + piece]
            rows = np.array([groups.members[number] for number in chosen])
            values = np.moveaxis(vector.values[rows], 1, -1)
            mask = np.moveaxis(vector.present[rows], 1, -1)
            out[chosen] = combine(values, mask)
    return out


def _sum(vector: Vector, groups: Groups, *, old: bool) -> Floats:
    """Sums, series by series; zeros change nothing and are skipped."""
    row, step = np.nonzero((vector.values != 0) & vector.present)
    shape = len(groups.of), vector.steps
    runs = Runs.of_cells(shape, row, step, vector.values[row, step])
    return _sum_of_runs(runs, groups, old=old).values


_LAYER = 200
"""Cells whose work takes as long as to begin with a further layer of them."""


def _sum_of_runs(runs: Runs, groups: Groups, *, old: bool) -> Runs:
    """Sum what there is, series by series."""
    shape = size, steps = len(groups.labels), runs.shape[1]
    largest = int(np.bincount(groups.of).max(initial=0))
    if not old and largest * _LAYER < runs.many:
        return _sum_in_layers(runs, groups)
    row, step, value = runs.cells()
    group = groups.of[row]
    if old:  # bincount adds in order, plainly
        place = group * steps + step
        return _gathered_cells(shape, place, np.bincount(place, value, size * steps))
    order = order_of(step) if size == 1 else _by_cell(group, step)
    group, step, value = group[order], step[order], value[order]
    begins = starts(group * steps + step)
    return Runs.of_cells(shape, group[begins], step[begins], _totals(value, begins))


def _sum_in_layers(runs: Runs, groups: Groups) -> Runs:
    """The first series of all groups, then the second ones, and so on."""
    shape = len(groups.labels), runs.shape[1]
    rank = np.empty(len(groups.of), np.int64)
    for members in groups.members:
        rank[members] = np.arange(len(members))
    layer = rank[runs.row]
    order = order_of(layer)
    size = (runs.end - runs.begin)[order]
    place = spread((groups.of[runs.row] * shape[1] + runs.begin)[order], size)
    value = np.repeat(runs.value[order], size)
    layers = np.bincount(layer[order], size).astype(np.int64)
    return _gathered_cells(shape, place, _layered(place, value, layers, shape[0] * shape[1]))


def _layered(
    place: NDArray[np.int64], values: Floats, layers: NDArray[np.int64], size: int
) -> Floats:
    """Compensated sums, of which each takes one value of a layer at most.

    Args:
        place: int64[c]: which sum each value is part of.
        values: float64[c], layer after layer.
        layers: int64[l]: how many values each layer has.
        size: How many sums.
    """
    high, low = np.zeros(size), np.zeros(size)
    for begin, end in pairwise([0, *np.cumsum(layers).tolist()]):
        where, added = place[begin:end], values[begin:end]
        before = high[where]
        after = before + added
        low[where] += sums.lost_in(before, added, after)
        high[where] = after
    return np.where(np.isinf(high), high, high + low)


def _gathered_cells(shape: tuple[int, int], place: NDArray[np.int64], values: NDArray[Any]) -> Runs:
    """The cells at some places of a matrix given in one row."""
    there = np.zeros(len(values), bool)
    there[place] = True
    row, step = np.nonzero(there.reshape(shape))
    return Runs.of_cells(shape, row, step, values[there].astype(np.float64))


def _totals(values: Floats, begins: NDArray[np.int64]) -> Floats:
    """Compensated sums of the stretches of values that begin somewhere."""
    sizes = np.diff(begins, append=len(values))
    longest = int(sizes.max(initial=0))
    if 0 < longest * len(sizes) <= 4 * len(values):  # dense enough for a matrix
        table = np.zeros((len(sizes), longest))
        table.reshape(-1)[spread(np.arange(len(sizes)) * longest, sizes)] = values
        high, low = sums.total(table)
        return high + low
    number = np.repeat(np.arange(len(begins)), sizes)
    rank = spread(np.zeros_like(sizes), sizes)
    order = order_of(rank)  # the first value of every sum, the second, ...
    return _layered(number[order], values[order], np.bincount(rank), len(sizes))


def _counts_of_runs(runs: Runs, groups: Groups) -> Runs:
    """How many series of each group are there at each step, where any is."""
    size, steps = len(groups.labels), runs.shape[1]
    if runs.since is None:
        group, begin, end = groups.of[runs.row], runs.begin, runs.end
    else:
        group, begin, end = groups.of, np.minimum(runs.since, steps), np.full(1, steps)
    base = group * (steps + 1)
    cells = size * (steps + 1)
    turns = np.bincount(base + begin, minlength=cells) - np.bincount(base + end, minlength=cells)
    count = np.cumsum(turns.reshape(size, -1)[:, :steps], axis=1)
    row, step = np.nonzero(count)
    return Runs.of_cells((size, steps), row, step, count[row, step].astype(np.float64))


def _by_cell(group: NDArray[np.int64], step: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sort by group, then step, in two passes of which the first is the minor one."""
    minor = order_of(step)
    return minor[order_of(group[minor])]


def _gathered(vector: Vector, groups: Groups, combine: np.ufunc, kind: type) -> NDArray[Any]:
    """Combine the presence of each group's series at each step."""
    if not groups.labels:
        return np.zeros((0, vector.steps), kind)
    present, of = vector.present, groups.of
    if (of[1:] < of[:-1]).any():
        order = np.argsort(of, kind="stable")
        present, of = present[order], of[order]
    begins = np.searchsorted(of, np.arange(len(groups.labels)))
    return np.asarray(combine.reduceat(present, begins, axis=0, dtype=kind))


def _counted(vector: Vector, groups: Groups) -> Floats:
    """How many series of each group are there at each step."""
    return _gathered(vector, groups, np.add, np.int32).astype(np.float64)


def _avg(values: Floats, mask: Mask, *, old: bool) -> Floats:
    if old:
        return sums.moving_mean(values, mask, compensated=False)
    return sums.mean(values, mask)


def _extreme(values: Floats, mask: Mask, *, largest: bool) -> Floats:
    sign = 1.0 if largest else -1.0
    usable = mask & ~np.isnan(values)
    best = np.where(usable, sign * values, -np.inf).max(axis=-1)
    return np.where(usable.any(axis=-1), sign * best, np.nan)


def _variance(values: Floats, mask: Mask, *, old: bool) -> Floats:
    return sums.variance(values, mask, compensated=False, lenient=old)


def _stddev(values: Floats, mask: Mask, *, old: bool) -> Floats:
    return np.sqrt(_variance(values, mask, old=old))


_REDUCERS: dict[str, Callable[..., Floats]] = {
    "avg": _avg,
    "max": lambda values, mask, old: _extreme(values, mask, largest=True),  # noqa: ARG005 - one signature
    "min": lambda values, mask, old: _extreme(values, mask, largest=False),  # noqa: ARG005 - one signature
    "stddev": _stddev,
    "stdvar": _variance,
}


def reduce(
    op: str, vector: Vector, groups: Groups, *, old: bool, q: Floats | None = None
) -> Vector:
    """One value per group and step.

    Args:
        op: The aggregation.
        vector: What is aggregated.
        groups: Of its series.
        old: Whether sums, means and quantiles are taken as before 3.0.
        q: Of ``quantile``: float64[k].
    """
    drop = None
    if vector.drop is not None:
        drop = np.array([vector.drop[members].any() for members in groups.members], bool)
    with np.errstate(all="ignore"):
        if vector.runs is not None and op in {"sum", "count", "group"}:
            return Vector.sparse(groups.labels, _of_runs(op, vector.runs, groups, old=old), drop)
        if q is not None:
            values = _stacked(
                vector, groups, lambda value, mask: _quantile(value, mask, q, old=old)
            )
        elif op == "sum":
            values = _sum(vector, groups, old=old)
        elif op in {"count", "group"}:
            values = _counted(vector, groups)
            values = np.minimum(values, 1.0) if op == "group" else values
        else:
            reducer = _REDUCERS[op]
            values = _stacked(vector, groups, lambda value, mask: reducer(value, mask, old=old))
    present = _gathered(vector, groups, np.logical_or, bool)
    return Vector(groups.labels, values, present, drop)


def _of_runs(op: str, runs: Runs, groups: Groups, *, old: bool) -> Runs:
    """Sum, count or group what there is in a vector."""
    if op == "sum":
        found = _sum_of_runs(runs, groups, old=old)
        if runs.since is None:
            return found
        since = np.full(len(groups.labels), runs.shape[1])
        np.minimum.at(since, groups.of, runs.since)
        return replace(found, since=since)
    found = _counts_of_runs(runs, groups)
    return found if op == "count" else replace(found, value=np.minimum(found.value, 1.0))


def _quantile(values: Floats, mask: Mask, q: Floats, *, old: bool) -> Floats:
    from detectors.rules.ranges import Padded, quantiles  # noqa: PLC0415 - beside its own kind

    groups, steps, size = values.shape
    # absent members go last, as in a padded window
    order = np.argsort(~mask, axis=-1, kind="stable").reshape(-1, size)
    flat = np.take_along_axis(values.reshape(-1, size), order, axis=1)
    count = mask.reshape(-1, size).sum(axis=1)
    nothing = np.zeros(len(flat), np.int64)
    piece = Padded(
        flat,
        np.arange(size) < count[:, None],
        np.zeros(flat.shape, np.int64),
        np.maximum(count, 1),
        nothing,
        nothing,
    )
    return quantiles(piece, np.tile(q, groups), old=old).reshape(groups, steps)


def pick(op: str, vector: Vector, groups: Groups, k: Floats, *, old: bool, ordered: bool) -> Vector:
    """``topk``, ``bottomk`` and ``limitk``: some series of each group, at each step.

    Of equals, those first by their labels are tried first: their order in the vector depends on
    what else is evaluated with them.

    Args:
        op: The aggregation.
        vector: What is picked from.
        groups: Of its series.
        k: How many, float64[steps].
        old: Whether ties are broken as before 3.0.
        ordered: Whether the answer, of one step, comes in the order of its values.

    Raises:
        EvaluationError: It is no whole number that fits.
    """
    if np.isnan(k).any() or (np.abs(k) >= 2.0**63).any():
        bad = float(k[np.isnan(k) | (np.abs(k) >= 2.0**63)][0])
        if np.isnan(bad):
            raise EvaluationError("Parameter value is NaN")
        raise EvaluationError(f"Scalar value {format_value(bad)} overflows int64")
    wanted = np.trunc(k).astype(np.int64)
    kept = np.zeros(vector.present.shape, bool)
    ranks = np.zeros(vector.present.shape, np.int64)
    for number, members in enumerate(groups.members):
        rows = np.array(sorted(members.tolist(), key=vector.labels.__getitem__), np.int64)
        values, here = vector.values[rows], vector.present[rows]
        if op == "limitk":
            order_key = np.zeros(values.shape)
        else:
            order_key = -values if op == "topk" else values.copy()
            order_key[np.isnan(values)] = np.inf  # NaN goes last, after infinity
        nan = np.isnan(values) & here
        # stable: earlier series first among equals
        order = np.lexsort((order_key, nan, ~here), axis=0)
        position = np.empty_like(order)
        np.put_along_axis(position, order, np.arange(len(rows))[:, None] + 0 * order, axis=0)
        chosen = here & (position < np.maximum(wanted, 0))
        if op != "limitk":
            for step in _tied_steps(order_key, order, wanted, here):
                size = int(wanted[step])
                chosen[:, step] = _heap_choice(op, values[:, step], here[:, step], size, old=old)
        kept[rows] = chosen
        ranks[rows] = position + number * len(vector.labels)
    result = vector.only(kept)
    if ordered and op != "limitk":
        rows = np.flatnonzero(kept.any(axis=1))
        result = result.rows(np.argsort(ranks[rows, 0], kind="stable"))
    return result


def _tied_steps(
    key: Floats, order: NDArray[np.int64], wanted: NDArray[np.int64], here: Mask
) -> list[int]:
    """Steps at which the last one picked equals the first one not picked."""
    steps = np.flatnonzero((wanted > 0) & (wanted < here.sum(axis=0)))
    last = key[order[wanted[steps] - 1, steps], steps]
    following = key[order[wanted[steps], steps], steps]
    return [int(step) for step in steps[last == following]]


def _heap_choice(op: str, values: Floats, here: Mask, size: int, *, old: bool) -> Mask:
    """Pick as Prometheus's heap does, where ties make a difference."""
    sign = 1.0 if op == "topk" else -1.0
    heap: list[tuple[float, int]] = []
    for row in np.flatnonzero(here):
        value = sign * float(values[row])
        if len(heap) < size:
            heap.append((value, int(row)))
            _sift_up(heap)
        elif heap[0][0] < value or (np.isnan(heap[0][0]) and (old or not np.isnan(value))):
            if old and size > 1:  # popped, then pushed
                heap[0] = heap[-1]
                heap.pop()
                _sift_down(heap)
                heap.append((value, int(row)))
                _sift_up(heap)
            else:
                heap[0] = (value, int(row))
                _sift_down(heap)
    chosen = np.zeros(len(values), bool)
    chosen[[row for _, row in heap]] = True
    return chosen


def _less(heap: list[tuple[float, int]], first: int, second: int) -> bool:
    return bool(np.isnan(heap[first][0])) or heap[first][0] < heap[second][0]


def _sift_up(heap: list[tuple[float, int]]) -> None:
    child = len(heap) - 1
    while child > 0 and _less(heap, child, parent := (child - 1) // 2):
        heap[parent], heap[child] = heap[child], heap[parent]
        child = parent


def _sift_down(heap: list[tuple[float, int]]) -> None:
    parent = 0
    while (child := 2 * parent + 1) < len(heap):
        if child + 1 < len(heap) and _less(heap, child + 1, child):
            child += 1
        if not _less(heap, child, parent):
            return
        heap[parent], heap[child] = heap[child], heap[parent]
        parent = child


def count_values(vector: Vector, groups: Groups, label: str) -> Vector:
    """How many series of a group hold each value, the value as a label."""
    cells: list[tuple[Labels, int]] = []
    for base, members in zip(groups.labels, groups.members, strict=True):
        pairs = dict(base)
        for row in members:
            for step in np.flatnonzero(vector.present[row]):
                key = make({**pairs, label: format_value(float(vector.values[row, step]))})
                cells.append((key, int(step)))
    found = sorted({key for key, _ in cells})
    place = {key: row for row, key in enumerate(found)}
    values = np.zeros((len(found), vector.values.shape[1]))
    for key, at in cells:
        values[place[key], at] += 1
    return Vector(found, values, values > 0)
