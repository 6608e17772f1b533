"""Comparisons: the same weights for both, jobs won and lost, and what cannot be compared."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from replay.errors import UsageError
from replay.report import comparison_table
from replay.scoring import Policy, Score, compare, score
from replay.scoring.resampling import Resampling

NODES = {"a": "normal", "b": "faulty", "c": "normal"}
POLICY = Policy(resamples=200)


def twelve_jobs(bench):
    """``x`` is right in jobs 1 to 8 and silent else; ``y`` is right in jobs 5 to 12, and noisy."""
    trace = bench.trace(*(bench.job(f"Job{n}", NODES, [(5, "b", "k")]) for n in range(1, 13)))
    said = [bench.say("b", n, job=f"Job{n}", detector="x") for n in range(1, 9)]
    said += [bench.say("b", 50 + n, job=f"Job{n}", detector="y") for n in range(5, 13)]
    said += [bench.say("a", 60, job=f"Job{n}", detector="y") for n in (5, 6)]
    log = bench.log(trace, said)
    return score(trace, log, policy=POLICY, detectors=["x", "y"])


def test_jobs_won_lost_and_exactly_right(bench):
    both = twelve_jobs(bench)
    found = compare(both, both, "x", "y")
    # x wins 1-4 (y misses) and 5, 6 (y blames a); y wins 9-12; 7 and 8 are even
    assert found.wins == ("Job1", "Job2", "Job3", "Job4", "Job5", "Job6")
    assert found.losses == ("Job9", "Job10", "Job11", "Job12")
    assert found.ties == 2
    assert (found.only_a, found.only_b) == (6, 4)
    assert found.mcnemar_p == pytest.approx(772 / 1024)  # 2 (1 + 10 + 45 + 120 + 210) / 2^10


def test_differences(bench):
    both = twelve_jobs(bench)
    found = compare(both, both, "x", "y").deltas
    assert (found["recall"].a, found["recall"].b, found["recall"].delta) == (8 / 12, 8 / 12, 0.0)
    assert found["precision"].delta == pytest.approx(1 - 8 / 10)
    assert found["precision"].interval.low <= 0.2 <= found["precision"].interval.high
    assert found["precision"].share_above > 0.8
    assert found["latency_start_p50_all"].delta == pytest.approx(6.0 - 60.0)
    assert found["latency_start_p50_all"].interval.low is None


def test_every_part_taken_back_out_of_rows_gives_the_metric_again(bench):
    """Under the weights 1, 1, .. the difference must be that of the metrics themselves."""
    both = twelve_jobs(bench)
    ones = np.ones((1, 12), np.int32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Resampling, "weights", lambda _: iter([ones]))
        patch.setattr("replay.scoring.paired.bounds", lambda delta, clusters: (delta[0], clusters))
        found = compare(both, both, "x", "y").deltas
    assert len(found) > 60
    for key, delta in found.items():
        if not key.startswith("latency_") and delta.delta is not None:
            assert delta.interval[0] == pytest.approx(delta.delta), key


def test_against_itself_nothing_differs(bench):
    both = twelve_jobs(bench)
    found = compare(both, both, "x", "x")
    assert (found.wins, found.losses, found.ties, found.mcnemar_p) == ((), (), 12, 1.0)
    assert (found.deltas["f1"].interval.low, found.deltas["f1"].interval.high) == (0.0, 0.0)
    assert found.deltas["f1"].share_above == 0.0


def test_infinite_is_not_undefined(bench):
    trace = bench.trace(bench.job("Job1", NODES, [(5, "b", "k")]))
    both = score(trace, bench.log(trace, [bench.say("b", 7)]), policy=POLICY, detectors=["x", "y"])
    found = compare(both, both, "x", "y")
    delta = found.deltas["latency_start_p50_all"]
    assert (delta.a, delta.b, delta.delta) == (7.0, math.inf, -math.inf)
    (row,) = comparison_table(found, ("latency_start_p50_all",)).rows
    assert row[1:4] == ("7.0", "∞", "-∞")
    (row,) = comparison_table(compare(both, both, "y", "y"), ("latency_start_p50_all",)).rows
    assert row[1:4] == ("∞", "∞", "-")
    said = json.loads(json.dumps(found.document(), allow_nan=False))
    assert said["metrics"]["latency_start_p50_all"]["b"] is None


def test_the_document_can_be_printed(bench):
    both = twelve_jobs(bench)
    document = json.loads(json.dumps(compare(both, both, "x", "y").document(), allow_nan=False))
    assert document["mcnemar"]["only_a"] == 6
    assert set(document["metrics"]["f1"]) == {"a", "b", "delta", "interval", "share_above"}


def test_what_was_read_back_compares_as_what_was_written(bench, tmp_path):
    both = twelve_jobs(bench)
    (tmp_path / "score.json").write_text(both.json())
    back = Score.read(tmp_path)
    assert back.document() == both.document()
    assert compare(back, both, "x", "y").document() == compare(both, back, "x", "y").document()


def test_other_data_or_labels_are_refused(bench):
    one = twelve_jobs(bench)
    trace = bench.trace(bench.job("Job1", NODES))
    other = score(trace, bench.log(trace, []), policy=POLICY, detectors=["x"])
    with pytest.raises(UsageError, match="differ in data_hash"):
        compare(one, other, "x", "x")
    with pytest.raises(UsageError, match="no detector 'z'"):
        compare(one, one, "x", "z")
