"""Labels, costs and policies: what they mean and what they refuse."""

from __future__ import annotations

import pickle

import pytest

from replay.errors import UsageError
from replay.scoring import PROFILES, Cost, LabelMap, Policy


@pytest.mark.parametrize(
    ("label", "meaning"),
    [
        ("normal", "negative"),
        (" Normal\t", "negative"),
        ("NORMAL", "negative"),
        ("", "ignore"),
        ("  ", "ignore"),
        (None, "ignore"),
        ("gpu_lost", "positive"),
        ("abnormal", "positive"),
    ],
)
def test_default_meanings(label, meaning):
    assert LabelMap().meaning(label) == meaning


def test_a_map_replaces_the_default():
    labels = LabelMap.parse("OK=negative, degraded =ignore,*=positive")
    assert [labels.meaning(label) for label in ("ok", "Degraded", "normal")] == [
        "negative",
        "ignore",
        "positive",
    ]
    with pytest.raises(UsageError, match="does not name the label 'normal'"):
        LabelMap.parse("ok=negative").meaning("normal")


def test_strict_refuses_what_only_the_star_covers():
    assert LabelMap(strict=True).meaning("normal") == "negative"
    with pytest.raises(UsageError, match="does not name the label 'faulty'"):
        LabelMap(strict=True).meaning("faulty")


@pytest.mark.parametrize(
    "text", ["normal", "a=faulty", "a=negative,A=positive", "a=negative,a=negative"]
)
def test_maps_that_mean_nothing(text):
    with pytest.raises(UsageError):
        LabelMap.parse(text)


def test_labels_reach_the_score_and_its_report(bench):
    nodes = {"a": " Normal ", "b": "normal", "c": "faulty", "d": "Faulty", "e": ""}
    trace = bench.trace(bench.job("Job1", nodes))
    found = bench.score(trace, [bench.say("c", 5)]).metrics
    assert (found["tp"], found["fn"], found["tn"]) == (1, 1, 2)
    assert (found["recall_status_faulty"], found["recall_status_Faulty"]) == (1.0, 0.0)


@pytest.mark.parametrize(
    "text",
    [
        "c_fn=1,c_delay_per_hour=4,tau_s=1800",  # half an hour late: 2, a miss: 1
        "c_fn=-1",
        "c_fn=nan",
        "c_fp=cheap",
        "zero=end",
        "page",
        "c_fn=1,balanced",
        "",
    ],
)
def test_senseless_costs_are_refused(text):
    with pytest.raises(UsageError):
        Cost.parse(text)


def test_a_late_hit_may_cost_as_much_as_a_miss_and_no_more():
    assert Cost(c_fn=10, c_delay_per_hour=20, tau_s=1800).c_fn == 10
    with pytest.raises(UsageError, match=r"would cost 10\.5, more than the 10 of a miss"):
        Cost(c_fn=10, c_delay_per_hour=21, tau_s=1800)


def test_profiles():
    assert set(PROFILES) == {"balanced", "page-averse", "miss-averse"}
    assert Cost.parse("page-averse,zero=job_alert") == Cost(
        **{**PROFILES["page-averse"].document(), "zero": "job_alert"}
    )


@pytest.mark.parametrize(
    "given",
    [
        {"kind": "maybe"},
        {"hold_s": -1},
        {"grace_s": float("inf")},
        {"kind": "final", "hold_s": 5},
        {"within": (0,)},
        {"within": (float("nan"),)},
        {"by": ("colour",)},
        {"cluster": "node"},
        {"resamples": -1},
        {"seed": -1},
    ],
)
def test_senseless_policies_are_refused(given):
    with pytest.raises(UsageError):
        Policy(**given)


def test_policies_travel():
    policy = Policy(labels=LabelMap.parse("a=negative,*=positive"), within=(60, 5, 60))
    assert pickle.loads(pickle.dumps(policy)) == policy
    assert policy.within == (5.0, 60.0)
