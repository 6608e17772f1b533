"""Gates: what fails a build, and what is a mistake of the one who wrote the gate."""

from __future__ import annotations

import pytest

from replay.errors import UsageError
from replay.scoring import DetectorScore, Drop, Gate, Score, check, lower_is_better


def score_of(_data="data", **detectors):
    scored = {
        name: DetectorScore(
            metrics,
            {key: "why" for key, value in metrics.items() if value is None},
            {},
            baseline=dim,
        )
        for name, (metrics, dim) in detectors.items()
    }
    return Score(scored, {"data_hash": _data})


REAL = score_of(
    burst=({"f1": 0.5, "latency_start_p50": 10.0, "recall": None}, False),
    silent=({"f1": 0.0, "latency_start_p50": None, "recall": 0.0}, True),
)


@pytest.mark.parametrize(
    ("text", "passed"),
    [
        ("f1 < 0.5", [True]),
        ("f1 <= 0.5", [False]),
        ("f1>0.4", [False]),
        ("f1 >= 0.6", [True]),
        ("recall < 0", [False]),  # undefined fails
        ("silent: f1 < 0.5", [False]),
        ("burst:f1<.5", [True]),
    ],
)
def test_gates(text, passed):
    assert [result.passed for result in check(REAL, [Gate.parse(text)])] == passed


def test_the_number_shown_is_the_number_gated():
    score = score_of(x=({"f1": 0.7999999999999999}, False))
    (result,) = check(score, [Gate.parse("f1 < 0.8")])
    assert not result.passed
    assert result.message == "f1 is 0.7999999999999999"


def test_where_all_are_references_they_are_gated():
    score = score_of(silent=({"f1": 0.0}, True))
    assert [result.passed for result in check(score, [Gate.parse("f1 < 0.5")])] == [False]


@pytest.mark.parametrize("text", ["f1", "f1 = 0.5", "f1 < much", "f1 < nan", "< 0.5", ""])
def test_texts_that_are_no_gate(text):
    with pytest.raises(UsageError, match="is not a gate"):
        Gate.parse(text)


@pytest.mark.parametrize("text", ["f2 < 0.5", "nobody: f1 < 0.5"])
def test_gates_on_what_is_not_there(text):
    with pytest.raises(UsageError):
        check(REAL, [Gate.parse(text)])


@pytest.mark.parametrize(
    ("drop", "now", "passed"),
    [
        ("f1=0.02", {"f1": 0.485}, True),
        ("f1=0.02", {"f1": 0.47}, False),
        ("f1=0", {"f1": 0.9}, True),
        ("latency_start_p50=5", {"latency_start_p50": 14.0}, True),
        ("latency_start_p50=5", {"latency_start_p50": 16.0}, False),
        ("latency_start_p50=5", {"latency_start_p50": 1.0}, True),
        ("f1=0.5", {"f1": None}, False),
        ("recall=0.5", {"recall": 1.0}, False),  # undefined before
    ],
)
def test_drops(drop, now, passed):
    score = score_of(burst=(now, False))
    assert [result.passed for result in check(score, [], [Drop.parse(drop)], REAL)] == [passed]


def test_a_detector_that_is_gone_fails():
    score = score_of(other=({"f1": 1.0}, False))
    (result,) = check(score, [], [Drop.parse("f1=1")], REAL)
    assert (result.detector, result.passed) == ("burst", False)


def test_drops_need_the_same_data_and_a_baseline():
    with pytest.raises(UsageError, match="scored on other data"):
        check(score_of(_data="other"), [], [Drop.parse("f1=0.1")], REAL)
    with pytest.raises(UsageError, match="something to drop from"):
        check(REAL, [], [Drop.parse("f1=0.1")])


@pytest.mark.parametrize("text", ["f1", "=1", "f1=-1", "f1=inf", "f1=a bit"])
def test_texts_that_are_no_drop(text):
    with pytest.raises(UsageError):
        Drop.parse(text)


def test_directions():
    less = (
        "fp",
        "fn",
        "fpr",
        "cost",
        "false_alarms_per_1000_node_hours",
        "phantom_raised",
        "healthy_job_false_alarm_rate",
        "latency_job_alert_p50_all",
        "rmdd_60_start",
    )
    more = (
        "tp",
        "f1",
        "cost_score",
        "aurt_60_start",
        "lead_p50",
        "mtbfa_node_hours",
        "hit_at_1",
        "recall_at_60_start",
        "km_recall_60_start",
    )
    assert all(map(lower_is_better, less))
    assert not any(map(lower_is_better, more))
