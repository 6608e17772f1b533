"""How sure a score is: jobs resampled, for the nodes of one job are not independent.

Every resample draws as many clusters as there are, with replacement; a cluster is a job, or a group
of jobs that share node tokens. A metric is then computed from its per-job parts times how often
each job was drawn. Bounds are inverted-CDF percentiles of the defined resamples (the percentile
bootstrap of Efron, 1979).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from replay.scoring.sheet import Parts

__all__ = ["Interval", "Quantiles", "Resampling", "bounds"]

FEWEST_CLUSTERS = 10
MOST_DROPPED = 0.05
_CELLS = 250_000
"""Weights held at once; few enough to stay in a processor's cache."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A 95 % interval, or why there is none.

    Attributes:
        low: Lower bound; None where there is no interval.
        high: Upper bound; None where there is no interval, or where it is infinite.
        dropped: Share of the resamples in which the metric was undefined.
        clusters: How many clusters contribute.
        reason: Why there is no interval, or no upper bound; else empty.
    """

    low: float | None
    high: float | None
    dropped: float
    clusters: int
    reason: str = ""

    def document(self) -> dict[str, Any]:
        """The interval by name."""
        found = {
            "low": self.low,
            "high": self.high,
            "dropped": self.dropped,
            "clusters": self.clusters,
        }
        return found | ({"reason": self.reason} if self.reason else {})


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Quantiles over positives with the misses at infinity, ready to be resampled.

    Attributes:
        job: int64[m], by value, ascending.
        value: float64[m], ascending; infinite for a miss.
        keys: Name of the metric → which quantile it is, in percent.
    """

    job: NDArray[np.int64]
    value: NDArray[np.float64]
    keys: Mapping[str, int]

    def of(self, weights: NDArray[np.int32]) -> dict[str, NDArray[np.float64]]:
        """Each quantile under each row of weights, int32[b, J]; NaN where nothing has weight."""
        if not len(self.job):
            return {key: np.full(len(weights), np.nan) for key in self.keys}
        running = np.cumsum(weights[:, self.job], axis=1, dtype=np.int32)
        total = running[:, -1:]
        found = {}
        for key, percent in self.keys.items():
            rank = np.maximum(-(-percent * total // 100), 1)
            place = np.argmax(running >= rank, axis=1)
            found[key] = np.where(total[:, 0] > 0, self.value[place], np.nan)
        return found


class _Summed:
    """Per-job parts of metrics as rows of one matrix, equal ones kept once.

    Attributes:
        matrix: float64[m, J].
        rows: Metric → which rows its formula takes.
    """

    def __init__(self, parts: Mapping[str, Parts]) -> None:
        number: dict[bytes, int] = {}
        self.rows: dict[str, list[int]] = {}
        for key, part in parts.items():
            found = (values.astype(np.float64).tobytes() for values in part.per_job)
            self.rows[key] = [number.setdefault(each, len(number)) for each in found]
        self.matrix = np.frombuffer(b"".join(number)).reshape(len(number), -1 if number else 0)

    def __len__(self) -> int:
        return len(self.matrix)


@dataclass(frozen=True, slots=True)
class Resampling:
    """A fixed sequence of resamples.

    Attributes:
        cluster: int64[J], the cluster of each job, numbered from 0.
        times: How many resamples.
        seed: Of the draw.
    """

    cluster: NDArray[np.int64]
    times: int
    seed: int

    def weights(self) -> Iterator[NDArray[np.int32]]:
        """How often each job was drawn, int32[b, J], piece by piece; the same at every call."""
        clusters = int(self.cluster.max(initial=-1)) + 1
        if not clusters:
            return
        rng = np.random.default_rng(self.seed)
        piece = max(_CELLS // clusters, 1)
        for begin in range(0, self.times, piece):
            rows = min(piece, self.times - begin)
            drawn = rng.integers(0, clusters, size=(rows, clusters))
            drawn += np.arange(rows)[:, None] * clusters
            counts = np.bincount(drawn.ravel(), minlength=rows * clusters).astype(np.int32)
            yield counts.reshape(rows, clusters)[:, self.cluster]

    def sample(
        self, parts: Mapping[str, Parts], quantiles: Sequence[Quantiles] = ()
    ) -> dict[str, NDArray[np.float64]]:
        """Every metric under every resample, float64[times] each; NaN where undefined."""
        summed = _Summed(parts)
        sums = [np.empty((len(summed), 0))]
        ranks: dict[str, list[NDArray[np.float64]]] = {
            key: [np.empty(0)] for each in quantiles for key in each.keys
        }
        for weights in self.weights():
            sums.append(summed.matrix @ weights.T.astype(np.float64))
            for each in quantiles:
                for key, values in each.of(weights).items():
                    ranks[key].append(values)
        table = np.concatenate(sums, axis=1)
        found = {key: part.formula(*table[summed.rows[key]]) for key, part in parts.items()}
        return found | {key: np.concatenate(pieces) for key, pieces in ranks.items()}

    def intervals(
        self, parts: Mapping[str, Parts], quantiles: Sequence[Quantiles] = ()
    ) -> dict[str, Interval]:
        """The interval of every metric."""
        clusters = {key: self.count(part.touched) for key, part in parts.items()}
        for each in quantiles:
            clusters.update(dict.fromkeys(each.keys, self.count(each.job)))
        if self.cluster.max(initial=-1) + 1 < FEWEST_CLUSTERS:  # no interval could come of it
            sampled = {key: np.empty(0) for key in clusters}
        else:
            sampled = self.sample(parts, quantiles)
        return {key: bounds(sampled[key], clusters[key]) for key in sampled}

    def count(self, jobs: NDArray[Any]) -> int:
        """How many clusters these jobs are from."""
        return len(np.unique(self.cluster[jobs]))


def bounds(sampled: NDArray[np.float64], clusters: int) -> Interval:
    """The 95 % interval of resampled values, or why there is none."""
    undefined = np.isnan(sampled)
    defined = np.sort(sampled[~undefined])
    dropped = np.count_nonzero(undefined) / max(len(sampled), 1)
    if clusters < FEWEST_CLUSTERS:
        why = f"no interval: only {clusters} of at least {FEWEST_CLUSTERS} needed contribute"
        return Interval(None, None, dropped, clusters, why)
    if not len(sampled):
        return Interval(None, None, dropped, clusters, "no interval: nothing was resampled")
    if dropped > MOST_DROPPED:
        why = f"no interval: undefined in {dropped:.0%} of the resamples"
        return Interval(None, None, dropped, clusters, why)
    n = len(defined)
    low, high = (float(defined[-(-permille * n // 1000) - 1]) for permille in (25, 975))
    if not np.isfinite(low):
        return Interval(None, None, dropped, clusters, "no interval: infinite on both sides")
    if not np.isfinite(high):
        return Interval(low, None, dropped, clusters, "infinite above")
    return Interval(low, high, dropped, clusters)
