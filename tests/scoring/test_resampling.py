"""Resampling: weights times parts must equal scoring the jobs as often as they were drawn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from replay.scoring import Policy, score
from replay.scoring.resampling import Resampling, bounds


def some_jobs(bench, count=4):
    rng = np.random.default_rng(3)
    jobs, said = [], []
    for number in range(count):
        labels = rng.choice(["normal", "normal", "faulty"], 4).tolist()
        nodes = {f"n{k}": label for k, label in enumerate(labels)}
        alerts = [(int(rng.integers(0, 20)), f"n{k}", "k") for k in range(3)]
        jobs.append(
            bench.job(f"Job{number + 1}", nodes, alerts, duration=int(rng.integers(50, 99)))
        )
        said += [
            bench.say(
                f"n{int(k)}",
                int(rng.integers(0, 50)),
                float(rng.integers(1, 4)),
                job=f"Job{number + 1}",
            )
            for k in rng.choice(4, 2, replace=False)
        ]
    return jobs, said


def test_every_metric_under_weights_is_the_metric_of_the_drawn_jobs(bench, monkeypatch):
    jobs, said = some_jobs(bench)
    drawn = np.array(
        [[1, 1, 1, 1], [2, 0, 1, 1], [0, 4, 0, 0], [3, 0, 0, 1], [1, 2, 1, 0]], np.int32
    )
    caught = {}
    plain = Resampling.sample

    def sample(self, parts, quantiles=()):
        caught.update(plain(self, parts, quantiles))
        return caught

    trace = bench.trace(*jobs)
    with monkeypatch.context() as patch:
        patch.setattr(Resampling, "weights", lambda _: iter([drawn[:2], drawn[2:]]))
        patch.setattr(Resampling, "sample", sample)
        patch.setattr("replay.scoring.resampling.FEWEST_CLUSTERS", 1)
        score(trace, bench.log(trace, said), policy=Policy(resamples=5))
    assert {"f1", "mcc", "latency_start_p50_all", "hit_at_1", "cost_score", "map"} <= set(caught)
    for number, weights in enumerate(drawn.tolist()):
        copies, rows = [], []
        for (job, alerts), weight in zip(jobs, weights, strict=True):
            for copy in range(weight):
                name = f"{job.id}.{copy}"
                copies.append((replace(job, id=name), alerts))
                rows += [{**row, "job": name} for row in said if row["job"] == job.id]
        expected = bench.score(bench.trace(*copies), rows)
        for key, values in caught.items():
            value = expected.metrics[key]
            if value is None:
                infinite = expected.undefined[key].startswith("infinite")
                assert np.isinf(values[number]) if infinite else np.isnan(values[number]), key
            else:
                assert values[number] == pytest.approx(value), key


def test_weights_are_counts_of_draws():
    for clusters in ([0, 1, 2, 3, 4], [0, 1, 1, 2, 0]):
        resampling = Resampling(np.array(clusters), 200, seed=5)
        weights = np.concatenate(list(resampling.weights()))
        assert weights.shape == (200, 5)
        size = max(clusters) + 1
        first = [clusters.index(cluster) for cluster in range(size)]
        assert (weights[:, first].sum(axis=1) == size).all()
        for job, cluster in enumerate(clusters):  # jobs of one cluster are drawn together
            assert (weights[:, job] == weights[:, first[cluster]]).all()
        assert weights.mean() == pytest.approx(1, abs=0.15)


def test_weights_do_not_depend_on_how_they_are_cut(monkeypatch):
    resampling = Resampling(np.arange(7), 100, seed=1)
    whole = np.concatenate(list(resampling.weights()))
    monkeypatch.setattr("replay.scoring.resampling._CELLS", 50)
    pieces = list(resampling.weights())
    assert len(pieces) > 5
    assert np.array_equal(np.concatenate(pieces), whole)
    assert not np.array_equal(
        whole, np.concatenate(list(Resampling(np.arange(7), 100, 2).weights()))
    )


def test_no_interval_when_it_would_mean_nothing():
    fine = np.arange(1000.0)
    assert bounds(fine, 10).reason == ""
    assert "only 9 of at least 10" in bounds(fine, 9).reason
    holes = fine.copy()
    holes[:50] = np.nan
    assert bounds(holes, 10).dropped == 0.05
    assert bounds(holes, 10).low == 50 + 23
    holes[50] = np.nan
    assert "undefined in 5% of the resamples" in bounds(holes, 10).reason
    assert "nothing was resampled" in bounds(np.empty(0), 10).reason


def test_a_quantile_may_be_infinite_above():
    values = np.concatenate((np.arange(900.0), np.full(100, np.inf)))
    found = bounds(values, 10)
    assert (found.low, found.high, found.reason) == (24.0, None, "infinite above")
    assert bounds(np.full(100, np.inf), 10).low is None


def test_intervals_hold_the_value(bench):
    jobs, said = some_jobs(bench, 30)
    trace = bench.trace(*jobs)
    scored = score(trace, bench.log(trace, said), policy=Policy(resamples=500))["x"]
    assert len(scored.intervals) > 50
    for key in ("precision", "recall", "f1", "hit_at_1", "aurt_300_start", "cost_score"):
        found = scored.intervals[key]
        assert found.low <= scored.metrics[key] <= found.high, key
        assert found.clusters >= 10


def test_components_join_jobs_that_share_a_token(bench):
    trace = bench.trace(
        bench.job("Job1", {"a": "normal"}),
        bench.job("Job2", {"b": "normal"}, [(1, "c", "k")]),
        bench.job("Job3", {"c": "normal", "a": "faulty"}),
        bench.job("Job4", {"d": "normal"}),
    )
    found = score(trace, bench.log(trace, []), policy=Policy(cluster="component", resamples=9))
    assert found.settings["components"] == {"Job1": 0, "Job2": 0, "Job3": 0, "Job4": 1}
