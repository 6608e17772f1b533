"""How early: latencies from named zeros, with the misses kept in.

There is no plain "latency", for the truth says who was faulty and not since when. Every latency
names its zero, and a positive for which that zero does not exist leaves both sides of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from replay.scoring.resampling import Quantiles

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from replay.scoring.intervals import Blame
    from replay.scoring.policy import Policy
    from replay.scoring.sheet import Sheet
    from replay.scoring.truth import Truth, Zero

__all__ = ["Delays", "delay", "inverted_cdf", "kaplan_meier", "seconds"]

NO_HIT = "no positive with this zero was detected"
NO_POSITIVE = "there is no positive with this zero"


def seconds(limit: float) -> str:
    """A number of seconds as it stands in the name of a metric.

    Examples:
        >>> seconds(300.0), seconds(0.5)
        ('300', '0.5')

    """
    return str(int(limit)) if limit == int(limit) else repr(limit)


@dataclass(frozen=True, slots=True)
class Delays:
    """Latencies of the eligible positives, from one zero.

    Attributes:
        job: int32[m], ascending.
        hit: bool[m].
        ns: int64[m], detection minus zero, where hit; may be negative.
        followed_ns: int64[m], from the zero to the job's end, at least 0.
        without: int64[J], positives for which the zero does not exist.
    """

    job: NDArray[np.int32]
    hit: NDArray[np.bool_]
    ns: NDArray[np.int64]
    followed_ns: NDArray[np.int64]
    without: NDArray[np.int64]

    @classmethod
    def of(cls, truth: Truth, blame: Blame, zero: Zero) -> Self:
        """Take the positives that have this zero."""
        eligible = truth.positive & zero.known
        job = truth.job[eligible]
        hit = blame.raised[eligible]
        ns = np.where(hit, blame.at_ns[eligible] - zero.at_ns[eligible], 0)
        followed = np.maximum(truth.end_ns[job] - zero.at_ns[eligible], 0)
        return cls(job, hit, ns, followed, truth.job_sum(truth.positive & ~zero.known))

    @property
    def observed_ns(self) -> NDArray[np.int64]:
        """int64[m]: the latency where hit, from 0 up; where missed, how long it was followed."""
        return np.where(self.hit, np.maximum(self.ns, 0), self.followed_ns)

    def quantiles(self, keys: Mapping[str, int]) -> Quantiles:
        """Quantiles over all eligible positives, the misses at infinity.

        Args:
            keys: Name of the metric → which quantile it is, in percent.
        """
        value = np.where(self.hit, self.ns / 1e9, np.inf)
        order = np.argsort(value, kind="stable")
        return Quantiles(self.job[order].astype(np.int64), value[order], keys)


def inverted_cdf(
    values: NDArray[Any], group: NDArray[Any], totals: NDArray[Any], percent: int
) -> NDArray[np.float64]:
    """Smallest x of each group with F(x) ≥ q; NaN where the group has no such x.

    Args:
        values: number[n], what was observed.
        group: int64[n], the group of each.
        totals: int64[G], how many each group has, those counted that stand beyond all observed.
        percent: 100 q.
    """
    order = np.lexsort((values, group))
    seen = np.bincount(group, minlength=len(totals))
    rank = -(-percent * totals // 100)  # whole numbers: 0.95 * 20 must be 19 exactly
    place = np.cumsum(seen) - seen + np.maximum(rank, 1) - 1
    inside = (totals > 0) & (rank <= seen)
    found = np.full(len(totals), np.nan)
    found[inside] = values[order][place[inside]]
    return found


def delay(sheet: Sheet, truth: Truth, blame: Blame, policy: Policy) -> None:
    """Everything that depends on when."""
    for name, zero in truth.zeros.items():
        delays = Delays.of(truth, blame, zero)
        _latencies(sheet, name, delays)
        _restricted(sheet, name, delays, policy.within)
        _survival(sheet, name, delays, policy.within)
    _lead(sheet, truth, blame)
    _first_alarm(sheet, truth, blame)
    _alerts_seen(sheet, truth, blame)


def _job_sum(values: NDArray[Any], job: NDArray[Any], jobs: int) -> NDArray[Any]:
    sums = np.zeros(jobs, np.int64 if values.dtype.kind in "bi" else np.float64)
    np.add.at(sums, job, values)
    return sums


def _latencies(sheet: Sheet, zero: str, delays: Delays) -> None:
    jobs = len(sheet.groups.of_job)
    hit = delays.hit
    sheet.count(f"positives_zero_undefined_{zero}", delays.without)
    sheet.count(f"latency_{zero}_n", _job_sum(hit, delays.job, jobs))
    _spread(sheet, f"latency_{zero}", delays.ns[hit], delays.job[hit], _SPREAD, NO_HIT)
    group = sheet.groups.of_job[delays.job[hit]]
    eligible = sheet.groups.sum(_job_sum(np.ones_like(hit), delays.job, jobs))
    for percent in (50, 90):
        sheet.put(
            f"latency_{zero}_p{percent}_all",
            inverted_cdf(delays.ns[hit], group, eligible, percent) / 1e9,
            f"infinite: fewer than {percent} % of the positives were detected",
            (eligible == 0, NO_POSITIVE),
        )
    if zero == "node_alert":
        early = hit & (delays.ns < 0)
        sheet.count("pre_alert_detections", _job_sum(early, delays.job, jobs))


_SPREAD = ("min", "p50", "p90", "p95", "mean", "max")


def _spread(
    sheet: Sheet,
    key: str,
    ns: NDArray[np.int64],
    job: NDArray[Any],
    which: Sequence[str],
    why: str,
) -> None:
    """Order statistics and the mean of nanoseconds, in seconds."""
    group = sheet.groups.of_job[job]
    many = np.bincount(group, minlength=len(sheet.groups))
    jobs = len(sheet.groups.of_job)
    for name in which:
        if name == "mean":
            ones = np.ones(len(ns), np.bool_)
            total = _job_sum(ns, job, jobs) / 1e9
            sheet.ratio(f"{key}_mean", total, _job_sum(ones, job, jobs), why)
        else:
            percent = {"min": 0, "max": 100}.get(name) if name[0] == "m" else int(name[1:])
            values = inverted_cdf(ns, group, many, percent or 0) / 1e9
            sheet.put(f"{key}_{name}", values, why)


def _restricted(sheet: Sheet, zero: str, delays: Delays, within: Sequence[float]) -> None:
    """Recall within T, the restricted mean delay, and the area under recall against time."""
    jobs = len(sheet.groups.of_job)
    eligible = _job_sum(np.ones_like(delays.hit), delays.job, jobs)
    for limit in within:
        limit_ns = round(limit * 1e9)
        name = f"{seconds(limit)}_{zero}"
        soon = delays.hit & (delays.ns <= limit_ns)
        sheet.ratio(f"recall_at_{name}", _job_sum(soon, delays.job, jobs), eligible, NO_POSITIVE)
        spent = np.where(delays.hit, np.clip(delays.ns, 0, limit_ns), limit_ns)
        spent_s = _job_sum(spent, delays.job, jobs) / 1e9
        sheet.ratio(f"rmdd_{name}", spent_s, eligible, NO_POSITIVE)
        sheet.ratio(f"aurt_{name}", limit * eligible - spent_s, limit * eligible, NO_POSITIVE)


def kaplan_meier(
    ns: NDArray[np.int64], event: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Product-limit estimate of the share still undetected (Kaplan and Meier, 1958).

    Args:
        ns: int64[n], time of the event or of the censoring; an event comes first at a tie.
        event: bool[n], False where censored.

    Returns:
        Distinct event times, ascending, and the share right after each.

    Examples:
        >>> times, share = kaplan_meier(np.array([1, 2, 2, 3]), np.array([True, True, False, True]))
        >>> times.tolist(), share.round(2).tolist()
        ([1, 2, 3], [0.75, 0.5, 0.0])

    """
    times, share = _product_limits(ns, event, np.zeros(len(ns), np.int64), 1)
    return (times[0], share[0]) if event.any() else (times[0, :0], share[0, :0])


def _product_limits(
    ns: NDArray[np.int64], event: NDArray[np.bool_], group: NDArray[np.int64], size: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """:func:`kaplan_meier` of each of some groups, int64[g, e] and float64[g, e].

    Where a group has fewer event times than others, its last one is repeated.
    """
    order = np.lexsort((ns, group))
    group, ns = group[order], ns[order]
    later = (group[1:] != group[:-1]) | (ns[1:] != ns[:-1])
    first = np.flatnonzero(np.append(True, later)[: len(ns)])
    died = np.add.reduceat(event[order], first, dtype=np.int64) if len(first) else first
    at_risk = np.searchsorted(group, group[first], side="right") - first
    kept = np.flatnonzero(died)
    first, left = first[kept], 1 - died[kept] / at_risk[kept]
    begin, end = (
        np.searchsorted(group[first], np.arange(size), side) for side in ("left", "right")
    )
    column = np.arange(max(1, int((end - begin).max(initial=0))))
    if not len(first):
        return np.zeros((size, 1), np.int64), np.ones((size, 1))
    place = np.clip(begin[:, None] + column, 0, np.maximum(end - 1, 0)[:, None])
    real = column < (end - begin)[:, None]
    times = np.where(end[:, None] > begin[:, None], ns[first][place], 0)
    return times, np.cumprod(np.where(real, left[place], 1.0), axis=1, dtype=np.float64)


def _survival(sheet: Sheet, zero: str, delays: Delays, within: Sequence[float]) -> None:
    """Kaplan-Meier: misses censored at the job's end, which the fault itself may have caused."""
    limits = np.array([round(limit * 1e9) for limit in within], np.int64)
    group, size = sheet.groups.of_job[delays.job], len(sheet.groups)
    times, share = _product_limits(delays.observed_ns, delays.hit, group, size)
    reached = share <= 0.5
    row = np.arange(size)
    halved = times[row, reached.argmax(axis=1)] / 1e9
    since = np.concatenate([np.zeros((size, 1), np.int64), times], axis=1)
    share = np.concatenate([np.ones((size, 1)), share], axis=1)
    area = np.cumsum(np.diff(since, axis=1) * share[:, :-1], axis=1)
    area = np.concatenate([np.zeros((size, 1)), area], axis=1)
    empty = np.bincount(group, minlength=size) == 0
    median = np.where(reached.any(axis=1) & ~empty, halved, np.nan)
    why = (empty, NO_POSITIVE)
    sheet.put(f"km_median_{zero}", median, "the estimate never falls to one half", why)
    for limit, limit_ns in zip(within, limits.tolist(), strict=True):
        step = (times <= limit_ns).sum(axis=1)
        left = np.where(empty, np.nan, share[row, step])
        spent_ns = area[row, step] + (limit_ns - since[row, step]) * share[row, step]
        name = f"{seconds(limit)}_{zero}"
        sheet.put(f"km_recall_{name}", 1 - left, NO_POSITIVE)
        sheet.put(f"km_rmst_{name}", np.where(empty, np.nan, spent_ns) / 1e9, NO_POSITIVE)


def _lead(sheet: Sheet, truth: Truth, blame: Blame) -> None:
    hit = truth.positive & blame.raised
    job, at_ns = truth.job[hit], blame.at_ns[hit]
    end_ns = truth.end_ns[job]
    _spread(sheet, "lead", end_ns - at_ns, job, ("min", "p50", "mean", "max"), "there is no hit")
    lasting = end_ns > 0
    jobs = len(truth.jobs)
    share = at_ns[lasting] / end_ns[lasting]
    sheet.ratio(
        "earliness_mean",
        _job_sum(share, job[lasting], jobs),
        _job_sum(np.ones(len(share), np.bool_), job[lasting], jobs),
        "there is no hit in a job that lasts",
    )


def _first_alarm(sheet: Sheet, truth: Truth, blame: Blame) -> None:
    alarmed = np.flatnonzero((truth.job_sum(truth.positive) > 0) & blame.alarmed)
    why = "no positive job was alarmed"
    _spread(sheet, "job_latency_start", blame.alarm_ns[alarmed], alarmed, ("p50",), why)


def _alerts_seen(sheet: Sheet, truth: Truth, blame: Blame) -> None:
    """How many alerts of the job had come by the time of each hit."""
    hit = truth.positive & blame.raised
    job, at_ns = truth.job[hit], blame.at_ns[hit]
    edges = np.searchsorted(truth.alert_job, np.arange(len(truth.jobs) + 1))
    seen = np.zeros(len(job), np.int64)
    for one in np.unique(job).tolist():
        mine = job == one
        alerts = truth.alert_at_ns[edges[one] : edges[one + 1]]
        seen[mine] = np.searchsorted(alerts, at_ns[mine], side="right")
    jobs = len(truth.jobs)
    sheet.ratio(
        "job_alerts_seen_mean",
        _job_sum(seen, job, jobs),
        _job_sum(np.ones(len(seen), np.bool_), job, jobs),
        "there is no hit",
    )
