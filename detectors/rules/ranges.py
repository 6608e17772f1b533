"""Functions over a range of samples: one value per series and step.

Each takes the windows and gives ``(values, present)``, float64 and bool of shape [n, k]. Those
that need only a window's edges work on the whole matrix; the others see padded windows, a bounded
number at a time. Formulas follow Prometheus's ``promql/functions.go``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from detectors.rules import sums
from detectors.rules.keys import spread
from detectors.rules.vectors import Runs

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from detectors.rules.series import Block, Rises, Windows

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]
    Result = tuple[Floats, Mask]

__all__ = ["RANGE_FUNCTIONS", "Padded", "absent", "extrapolated", "padded", "quantiles"]

_CELLS = 2_000_000
"""How many samples padded windows may hold at a time."""


@dataclass(frozen=True, slots=True)
class Padded:
    """Windows of equal width.

    Attributes:
        values: float64[w, l], anything where ``mask`` is false.
        mask: bool[w, l], true first.
        times: int64[w, l] milliseconds.
        count: int64[w].
        at: int64[w] milliseconds: each window's step.
        step: int64[w]: the number of that step.
    """

    values: Floats
    mask: Mask
    times: NDArray[np.int64]
    count: NDArray[np.int64]
    at: NDArray[np.int64]
    step: NDArray[np.int64]

    @property
    def zeroed(self) -> Floats:
        """The values with 0 where there is none."""
        return np.where(self.mask, self.values, 0.0)


def padded(windows: Windows, reduce: Callable[[Padded], Floats], least: int = 1) -> Result:
    """Reduce every window of at least ``least`` samples to one value."""
    count = windows.count
    present = count >= least
    values = np.zeros(count.shape)
    rows, steps = np.nonzero(present)
    lo, count = windows.lo[rows, steps], count[rows, steps]
    results = np.zeros(len(lo))
    last = len(windows.block.values) - 1
    begin = 0
    while begin < len(lo):
        # grow the piece while it stays small
        width = int(count[begin : begin + 4096].max())
        end = min(len(lo), begin + min(4096, max(1, _CELLS // width)))
        width = int(count[begin:end].max())
        number = lo[begin:end, None] + np.arange(width)
        mask = np.arange(width) < count[begin:end, None]
        number = np.minimum(number, last)
        piece = Padded(
            windows.block.values[number],
            mask,
            windows.block.times[number],
            count[begin:end],
            windows.at[steps[begin:end]],
            steps[begin:end],
        )
        with np.errstate(all="ignore"):
            results[begin:end] = reduce(piece)
        begin = end
    values[rows, steps] = results
    return values, present


def _edges(windows: Windows, least: int = 1) -> tuple[Mask, NDArray[np.int64], NDArray[np.int64]]:
    """Where there are enough samples, and the numbers of the first and last one."""
    present = windows.count >= least
    if not len(windows.block.values):
        return present, np.zeros_like(windows.lo), np.zeros_like(windows.lo)
    return present, np.where(present, windows.lo, 0), np.where(present, windows.hi - 1, 0)


def _value_at(windows: Windows, number: NDArray[np.int64]) -> Floats:
    if not len(windows.block.values):
        return np.zeros(number.shape)
    return windows.block.values[number]


def _time_at(windows: Windows, number: NDArray[np.int64]) -> NDArray[np.int64]:
    if not len(windows.block.times):
        return np.zeros(number.shape, np.int64)
    return windows.block.times[number]


def extrapolated(windows: Windows, *, counter: bool, rate: bool, old: bool) -> Result | Runs:
    """``rate``, ``increase`` and ``delta``.

    Args:
        windows: The ranges.
        counter: Whether falls are resets, and zero is the least value.
        rate: Whether the result is per second.
        old: Whether to round as before 2.51, where a counter's way to zero came first.
    """
    moves = _moves(windows, counter=counter)
    result, extent, which = moves.result, moves.extent, moves.which
    with np.errstate(all="ignore"):
        sampled = (extent.last - extent.first) / 1000.0
        spacing = sampled / (extent.count - 1)
        to_start = (extent.first - extent.start) / 1000.0
        to_end = (extent.end - extent.last) / 1000.0
        threshold = spacing * 1.1
        to_end = np.where(to_end < threshold, to_end, spacing / 2)
        if counter and not old:
            to_start = np.where(to_start < threshold, to_start, spacing / 2)
        sampled, to_start, to_end = sampled[which], to_start[which], to_end[which]
        if counter:
            to_zero = sampled * (moves.value / result)
            to_zero[(result <= 0) | (moves.value < 0)] = np.inf
            to_start = np.minimum(to_start, to_zero)
        if old or not counter:
            to_start = np.where(to_start < threshold[which], to_start, spacing[which] / 2)
        factor = ((sampled + to_start) + to_end) / sampled
        if rate:
            factor = factor / ((windows.end[:1] - windows.start[:1]) / 1000.0)
        value = result * factor
    shape = len(windows.block.labels), len(windows.at)
    runs = Runs(shape, moves.row, moves.step, moves.until, value, moves.since)
    return runs if moves.present is None else (runs.values, moves.present)


@dataclass(frozen=True, slots=True)
class _Extent:
    """How samples lie in some windows; times in milliseconds.

    Attributes:
        first: Of the first sample.
        last: Of the last sample.
        count: How many samples.
        start: Where the window begins.
        end: Where it ends.
    """

    first: NDArray[np.int64]
    last: NDArray[np.int64]
    count: NDArray[np.int64]
    start: NDArray[np.int64]
    end: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Moves:
    """The windows whose last sample is not their first one; all others extrapolate to 0.

    Attributes:
        row: Their series, ascending.
        step: Their steps, ascending in each series.
        until: The steps before which nothing else happens to them.
        result: Last value less first, with what was lost at resets.
        value: The first value.
        extent: How samples lie in them.
        which: The places in ``extent`` that are theirs.
        present: bool[n, k]: which windows hold two samples.
        since: Or int64[n]: the step from which on those of a series do.
    """

    row: NDArray[np.int64]
    step: NDArray[np.int64]
    until: NDArray[np.int64]
    result: Floats
    value: Floats
    extent: _Extent
    which: NDArray[np.int64] | slice
    present: Mask | None = None
    since: NDArray[np.int64] | None = None


def _moves(windows: Windows, *, counter: bool) -> _Moves:
    """Find the windows in which something moved."""
    block = windows.block
    if block.first is not None and not (counter and block.falling):
        enough = windows.high - windows.low >= 2
        if block.rises is not None and (enough[1:] >= enough[:-1]).all():
            return _rising_moves(windows, block.rises, block.first, enough)
        if block.filled is not None:
            return _growing_moves(windows, block.filled, block.first, enough)
    present = windows.count >= 2
    row, step = np.nonzero(present)
    first, last = windows.lo[row, step], windows.hi[row, step] - 1
    values, times = block.values, block.times
    with np.errstate(invalid="ignore"):
        result = values[last] - values[first]
    if counter:
        _add_resets(block, first, last, result)
    moved = np.flatnonzero(result != 0)
    row, step, first, last = row[moved], step[moved], first[moved], last[moved]
    extent = _Extent(
        times[first], times[last], last - first + 1, windows.start[step], windows.end[step]
    )
    return _Moves(row, step, step + 1, result[moved], values[first], extent, slice(None), present)


def _rising_moves(
    windows: Windows, rises: Rises, starts: NDArray[np.int64], enough: Mask
) -> _Moves:
    """The same for series known by their rises, many steps at a time.

    A rise is in a window when the column before its own is. Between steps at which rises come
    and go, all windows hold the same ones; and where windows are full and lie alike on the grid,
    all else is the same, too.
    """
    grid, low, high, steps = windows.block.grid, windows.low, windows.high, len(windows.at)
    columns = np.arange(len(grid) + 1)
    seen = np.searchsorted(high, columns + 1)  # the first step that sees a column
    passed = np.searchsorted(low, columns)  # the first step that sees none before it
    opening = rises.first
    came, gone = seen[rises.column], passed[rises.column]
    came[opening] = gone[opening] = 0  # a series' first sample is no rise
    base = rises.row * (steps + 1)
    turns = np.concatenate([base + came, base + gone])
    order = np.argsort(turns, kind="stable")  # two sorted halves are merged
    row, begin = np.divmod(turns[order], steps + 1)
    end = np.append(begin[1:], 0)
    end[np.append(row[1:], -1) != row] = steps
    held = np.cumsum(order < len(came)) - 1  # the newest rise so far
    left = np.arange(len(order)) - held - 1  # and the newest of those that are gone
    kept = np.flatnonzero((held > left) & (begin < end))
    row, begin, end, held, left = (part[kept] for part in (row, begin, end, held, left))
    value = rises.value[left]
    alike = np.maximum(_alike_from(windows), passed[starts])[row]
    apart = np.clip(alike, begin, end) - begin  # steps that are looked at one by one
    together = begin + apart < end
    size = apart + together
    step = spread(begin, size)
    until = step + 1
    until[np.cumsum(size)[together] - 1] = end[together]
    first = np.maximum(low[step], np.repeat(starts[row], size))
    return _Moves(
        np.repeat(row, size),
        step,
        until,
        np.repeat(rises.value[held] - value, size),
        np.repeat(value, size),
        *_extent(windows, step, first, enough),
        since=np.maximum(seen[np.minimum(starts + 1, len(grid))], steps - int(enough.sum())),
    )


def _extent(
    windows: Windows, step: NDArray[np.int64], first: NDArray[np.int64], enough: Mask
) -> tuple[_Extent, NDArray[np.int64] | slice]:
    """How samples lie in windows that begin with some columns, and which places are whose.

    On an even grid that all windows end alike on, the number of samples says it all.
    """
    grid, high = windows.block.grid, windows.high
    apart, ends = np.diff(grid), (windows.end - grid[np.maximum(high - 1, 0)])[enough]
    if len(ends) and (apart == apart[0]).all() and (ends == ends[0]).all():
        count = np.arange(int(high.max()) + 1)
        last, end = np.zeros_like(count), np.full_like(count, ends[0])
        start = end - (windows.end[0] - windows.start[0])
        return _Extent((1 - count) * apart[0], last, count, start, end), high[step] - first
    last = high[step] - 1
    each = _Extent(
        grid[first], grid[last], last - first + 1, windows.start[step], windows.end[step]
    )
    return each, slice(None)


def _alike_from(windows: Windows) -> int:
    """The step from which on all windows lie alike on the grid."""
    grid, low, high = windows.block.grid, windows.low, windows.high
    if not len(grid):
        return len(windows.at)
    first, last = grid[np.minimum(low, len(grid) - 1)], grid[np.maximum(high - 1, 0)]
    other = np.zeros(len(low), bool)
    for distance in (first - windows.start, windows.end - last, high - low):
        other |= distance != distance[-1]
    return int(np.flatnonzero(other)[-1]) + 1 if other.any() else 0


def _columns(matrix: Floats, columns: NDArray[np.int64]) -> Floats:
    """Some columns of a matrix; without a copy where they follow each other evenly."""
    if len(columns) > 1:
        stride = int(columns[1] - columns[0])
        if stride > 0 and (np.diff(columns) == stride).all():
            return matrix[:, columns[0] : columns[-1] + 1 : stride]
    return np.take(matrix, columns, axis=1)


def _growing_moves(
    windows: Windows, filled: Floats, starts: NDArray[np.int64], enough: Mask
) -> _Moves:
    """The same for series without gaps, looked up by column."""
    grid, low, high = windows.block.grid, windows.low, windows.high
    present = (starts[:, None] <= high - 2) & enough
    if not len(grid):
        nothing, empty = np.zeros(0, np.int64), np.zeros(0)
        extent = _Extent(nothing, nothing, nothing, nothing, nothing)
        return _Moves(nothing, nothing, nothing, empty, empty, extent, slice(None), present)
    begin, end = np.minimum(low, len(grid) - 1), np.maximum(high - 1, 0)
    # before its first sample a series is filled with it, so that nothing changes there
    change = np.subtract(_columns(filled, end), _columns(filled, begin))
    if not enough.all():
        change[:, ~enough] = 0.0
    row, step = np.nonzero(change)
    first = np.maximum(low[step], starts[row])
    extent, which = _extent(windows, step, first, enough)
    return _Moves(
        row, step, step + 1, change[row, step], filled[row, first], extent, which, present
    )


def _add_resets(
    block: Block, first: NDArray[np.int64], last: NDArray[np.int64], result: Floats
) -> None:
    """Add what a counter had reached before each fall, one after the other."""
    falls = block.falls
    if not len(falls):
        return
    begin = np.searchsorted(falls, first, side="right")  # a fall at the first sample lies outside
    end = np.searchsorted(falls, last, side="right")
    with np.errstate(invalid="ignore", over="ignore"):
        for cell in np.flatnonzero(end > begin):
            for number in falls[begin[cell] : end[cell]]:
                result[cell] += block.values[number - 1]


def _instant(windows: Windows, *, rate: bool) -> Result:
    """``irate`` and ``idelta``: the last two samples."""
    present, _, last = _edges(windows, 2)
    previous = np.where(present, last - 1, 0)
    now, then = _value_at(windows, last), _value_at(windows, previous)
    elapsed = _time_at(windows, last) - _time_at(windows, previous)
    with np.errstate(all="ignore"):
        result = np.where((now < then) & rate, now, now - then)
        if rate:
            result = result / (elapsed / 1000.0)
    return result, present & (elapsed != 0)


def _counted(windows: Windows, differs: Mask) -> Result:
    """How often neighbours inside the window differ in some way."""
    before = np.concatenate([[0], np.cumsum(differs)])
    present = windows.count >= 1
    first = np.minimum(windows.lo + 1, len(differs))
    return np.where(present, before[windows.hi] - before[first], 0).astype(np.float64), present


def _changes(windows: Windows) -> Result:
    values = windows.block.values
    nan = np.isnan(values)
    differs = (values[1:] != values[:-1]) & ~(nan[1:] & nan[:-1])
    return _counted(windows, np.concatenate([[False], differs])[: len(values)])


def _resets(windows: Windows) -> Result:
    values = windows.block.values
    return _counted(windows, np.concatenate([[False], values[1:] < values[:-1]])[: len(values)])


def _count(windows: Windows) -> Result:
    return windows.count.astype(np.float64), windows.count > 0


def _present(windows: Windows) -> Result:
    return np.ones(windows.lo.shape), windows.count > 0


def _last(windows: Windows) -> Result:
    present, _, last = _edges(windows)
    return _value_at(windows, last), present


def _first(windows: Windows) -> Result:
    present, first, _ = _edges(windows)
    return _value_at(windows, first), present


def _ts_of_last(windows: Windows) -> Result:
    present, _, last = _edges(windows)
    return _time_at(windows, last) / 1000.0, present


def _ts_of_first(windows: Windows) -> Result:
    present, first, _ = _edges(windows)
    return _time_at(windows, first) / 1000.0, present


def _extreme(piece: Padded, *, largest: bool) -> NDArray[np.int64]:
    """The place of the last of the largest (or smallest) values; NaN counts only alone."""
    values = piece.values if largest else -piece.values
    usable = piece.mask & ~np.isnan(values)
    ranked = np.where(usable, values, -np.inf)
    best = ranked.max(axis=1, keepdims=True)
    candidates = usable & (ranked == best)
    width = candidates.shape[1]
    found = width - 1 - np.argmax(candidates[:, ::-1], axis=1)
    return np.where(candidates.any(axis=1), found, 0)


def _extreme_value(piece: Padded, *, largest: bool) -> Floats:
    place = _extreme(piece, largest=largest)
    return piece.values[np.arange(len(place)), place]


def _extreme_time(piece: Padded, *, largest: bool) -> Floats:
    place = _extreme(piece, largest=largest)
    return piece.times[np.arange(len(place)), place] / 1000.0


def _sum(piece: Padded) -> Floats:
    high, low = sums.total(piece.zeroed)
    return high + low


def quantiles(piece: Padded, q: NDArray[np.float64], *, old: bool) -> Floats:
    """Linear between neighbours; ``q`` outside 0 to 1 is infinite.

    Args:
        piece: The values.
        q: float64[w].
        old: Whether a value met exactly is mixed with nothing of the next, as before 3.0, which
            beside an infinity gives NaN.
    """
    ordered = np.sort(np.where(piece.mask, piece.values, np.inf), axis=1)
    nan = (np.isnan(piece.values) & piece.mask).sum(axis=1)
    if nan.any():  # NaN counts as smaller than everything
        ordered = np.sort(
            np.where(piece.mask, np.where(np.isnan(piece.values), -np.inf, piece.values), np.inf),
            axis=1,
        )
        ordered = np.where(np.arange(ordered.shape[1]) < nan[:, None], np.nan, ordered)
    rows = np.arange(len(ordered))
    rank = q * (piece.count - 1)
    safe = np.where(np.isfinite(rank) & (q >= 0) & (q <= 1), rank, 0.0)
    lower = np.floor(safe).astype(np.int64)
    upper = np.minimum(lower + 1, piece.count - 1)
    weight = safe - np.floor(safe)
    low, high = ordered[rows, lower], ordered[rows, upper]
    result = low * (1 - weight) + high * weight
    if not old:
        result = np.where(weight == 0, low, result)
    result = np.where(q < 0, -np.inf, np.where(q > 1, np.inf, result))
    return np.where(np.isnan(q), np.nan, result)


def _mad(piece: Padded) -> Floats:
    half = np.full(len(piece.count), 0.5)
    middle = quantiles(piece, half, old=False)
    distance = np.abs(piece.values - middle[:, None])
    result = quantiles(replace(piece, values=distance), half, old=False)
    return np.where(np.isnan(piece.zeroed).any(axis=1), np.nan, result)


def _regression(piece: Padded, origin: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Least squares: slope per second, and the value at ``origin`` milliseconds."""
    x = np.where(piece.mask, (piece.times - origin[:, None]) / 1000.0, 0.0)
    y = piece.zeroed
    count = piece.count.astype(np.float64)
    sum_x, sum_y, sum_xy, sum_xx = (
        high + low for high, low in map(sums.total, (x, y, x * y, x * x))
    )
    slope = (sum_xy - sum_x * sum_y / count) / (sum_xx - sum_x * sum_x / count)
    intercept = sum_y / count - slope * sum_x / count
    first = piece.values[:, 0]
    constant = ((piece.values == first[:, None]) | ~piece.mask).all(axis=1)
    slope = np.where(constant, np.where(np.isinf(first), np.nan, 0.0), slope)
    intercept = np.where(constant, np.where(np.isinf(first), np.nan, first), intercept)
    return slope, intercept


def _deriv(piece: Padded) -> Floats:
    return _regression(piece, piece.times[:, 0])[0]


def predict_linear(windows: Windows, seconds: Floats) -> Result:
    """The value that the line through the samples will have, ``seconds`` after the step."""

    def reduce(piece: Padded) -> Floats:
        slope, intercept = _regression(piece, piece.at)
        return slope * seconds[piece.step] + intercept

    return padded(windows, reduce, 2)


def quantile_over_time(windows: Windows, q: Floats, *, old: bool) -> Result:
    """A quantile of each window."""
    return padded(windows, lambda piece: quantiles(piece, q[piece.step], old=old))


def smoothed(windows: Windows, smoothing: Floats, trend: Floats) -> Result:
    """Double exponential smoothing, called ``holt_winters`` before 3.0."""

    def reduce(piece: Padded) -> Floats:
        sf, tf = smoothing[piece.step], trend[piece.step]
        values = piece.values
        before, now = np.zeros(len(values)), values[:, 0].copy()
        slope = values[:, 1] - values[:, 0] if values.shape[1] > 1 else np.zeros(len(values))
        for column in range(1, values.shape[1]):
            here = piece.mask[:, column]
            if column > 1:
                slope = np.where(here, tf * (now - before) + (1 - tf) * slope, slope)
            after = sf * values[:, column] + (1 - sf) * (now + slope)
            before, now = np.where(here, now, before), np.where(here, after, now)
        return now

    return padded(windows, reduce, 2)


def absent(windows: Windows) -> Result:
    """1 where no series has a sample: one row."""
    nothing = np.asarray(~(windows.count > 0).any(axis=0, keepdims=True))
    return np.ones(nothing.shape), nothing


def _reducing(reduce: Callable[[Padded], Floats], least: int = 1) -> Callable[..., Result]:
    return lambda windows, **_: padded(windows, reduce, least)


def _simple(function: Callable[[Windows], Result]) -> Callable[..., Result]:
    return lambda windows, **_: function(windows)


def _avg(windows: Windows, *, old: bool) -> Result:
    if old:
        return padded(
            windows, lambda piece: sums.moving_mean(piece.values, piece.mask, compensated=True)
        )
    return padded(windows, lambda piece: sums.mean(piece.values, piece.mask))


def _variance(windows: Windows, *, old: bool) -> Result:
    variance, present = padded(
        windows, lambda piece: sums.variance(piece.values, piece.mask, compensated=True)
    )
    if old:  # what overflowed was taken for infinity less infinity
        variance[np.isinf(variance)] = np.nan
    return variance, present


def _deviation(windows: Windows, *, old: bool) -> Result:
    variance, present = _variance(windows, old=old)
    return np.sqrt(variance), present


RANGE_FUNCTIONS: dict[str, Callable[..., Result | Runs]] = {
    "avg_over_time": _avg,
    "changes": _simple(_changes),
    "count_over_time": _simple(_count),
    "delta": lambda windows, old: extrapolated(windows, counter=False, rate=False, old=old),
    "deriv": _reducing(_deriv, 2),
    "first_over_time": _simple(_first),
    "idelta": lambda windows, **_: _instant(windows, rate=False),
    "increase": lambda windows, old: extrapolated(windows, counter=True, rate=False, old=old),
    "irate": lambda windows, **_: _instant(windows, rate=True),
    "last_over_time": _simple(_last),
    "mad_over_time": _reducing(_mad),
    "max_over_time": _reducing(lambda piece: _extreme_value(piece, largest=True)),
    "min_over_time": _reducing(lambda piece: _extreme_value(piece, largest=False)),
    "present_over_time": _simple(_present),
    "rate": lambda windows, old: extrapolated(windows, counter=True, rate=True, old=old),
    "resets": _simple(_resets),
    "stddev_over_time": _deviation,
    "stdvar_over_time": _variance,
    "sum_over_time": _reducing(_sum),
    "ts_of_first_over_time": _simple(_ts_of_first),
    "ts_of_last_over_time": _simple(_ts_of_last),
    "ts_of_max_over_time": _reducing(lambda piece: _extreme_time(piece, largest=True)),
    "ts_of_min_over_time": _reducing(lambda piece: _extreme_time(piece, largest=False)),
}
"""Functions of one range and nothing else; each takes ``old``, true for releases before 3.0."""
