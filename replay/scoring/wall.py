"""Wall clock: how long a live run took to answer. Never multiplied by the speed of the replay."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from replay.scoring.delay import inverted_cdf
from replay.scoring.sheet import divide

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from replay.scoring.intervals import Blame, Rows
    from replay.scoring.log import VerdictLog
    from replay.scoring.sheet import Sheet
    from replay.scoring.truth import Truth

__all__ = ["publish_lag", "wall"]

_NONE = "no verdict of this kind was answered live"


def wall(sheet: Sheet, truth: Truth, blame: Blame, rows: Rows, log: VerdictLog) -> None:
    """Processing time and lag behind the schedule; nothing at all where no row knows the wall.

    A verdict that a wake-up brought was triggered by no alert and has no processing time.
    """
    walls = {name: _known(log, f"{name}_wall") for name in ("published", "scheduled", "emitted")}
    if not any(np.isfinite(values).any() for values in walls.values()):
        return
    emitted = walls["emitted"]
    processing_ms = 1000 * (emitted - walls["published"])
    behind_ms = 1000 * (emitted - walls["scheduled"])
    job = rows.unit_job[rows.unit]
    _spread(sheet, "processing_ms", processing_ms[rows.row], job)
    _spread(sheet, "verdict_vs_schedule_ms", behind_ms[rows.row], job)
    hit = truth.positive & blame.raised
    live_s = blame.at_ns[hit] / 1e9 + processing_ms[blame.row[hit]] / 1000
    median = _quantile(sheet, live_s, truth.job[hit], 50)
    sheet.put("live_1x_latency_start_s", median, "no hit was answered live")


def publish_lag(sheet: Sheet, lag_ms: NDArray[np.float64]) -> None:
    """How late alerts left, over all alerts of a run: published minus scheduled.

    Args:
        sheet: A sheet of one group, all jobs.
        lag_ms: float64[n], milliseconds.
    """
    total = np.array([len(lag_ms)])
    group = np.zeros(len(lag_ms), np.int64)
    for name, percent in _WHICH.items():
        value = inverted_cdf(lag_ms, group, total, percent)
        sheet.put(f"publish_lag_ms_{name}", value, "no alert was published")
    mean = divide(np.array([lag_ms.sum()]), total)
    sheet.put("publish_lag_ms_mean", mean, "no alert was published")


_WHICH = {"min": 0, "p50": 50, "p90": 90, "p95": 95, "p99": 99, "max": 100}


def _known(log: VerdictLog, name: str) -> NDArray[np.float64]:
    """A column of the log; NaN where it is null."""
    return log.table.column(name).to_numpy().astype(np.float64)


def _spread(sheet: Sheet, key: str, values: NDArray[np.float64], job: NDArray[Any]) -> None:
    for name, percent in _WHICH.items():
        sheet.put(f"{key}_{name}", _quantile(sheet, values, job, percent), _NONE)
    known = np.isfinite(values)
    jobs = len(sheet.groups.of_job)
    total = np.bincount(job[known], weights=values[known], minlength=jobs)
    sheet.ratio(f"{key}_mean", total, np.bincount(job[known], minlength=jobs), _NONE)


def _quantile(
    sheet: Sheet, values: NDArray[np.float64], job: NDArray[Any], percent: int
) -> NDArray[np.float64]:
    known = np.isfinite(values)
    group = sheet.groups.of_job[job[known]]
    return inverted_cdf(
        values[known], group, np.bincount(group, minlength=len(sheet.groups)), percent
    )
