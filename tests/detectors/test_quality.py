"""How well the detectors do, on made traces that none of them was tuned or fitted on."""

from __future__ import annotations

import pytest

from replay.bench import bench
from replay.plugins import DETECTORS, installed
from replay.scoring import Policy, read_onsets
from replay.traces import synth

BASELINES = ("loudest", "first-alert", "most-kinds")
FINDERS = tuple(
    point.name
    for point in installed(DETECTORS)
    if point.value.startswith("detectors.")
    and not point.value.startswith(("detectors.baselines:", "detectors.rules."))
)
STORMY = ("silence", "learned")
"""Silence needs storms that most nodes take part in."""
QUIET = tuple(name for name in FINDERS if name != "silence")


def scores(tmp_path, preset, jobs, detectors):
    made = synth.make(preset, jobs=jobs, seed=101)
    synth.write(made, tmp_path / preset, "jsonl")
    onsets = read_onsets(tmp_path / preset / "truth.json")
    found = bench(made.trace, detectors, policy=Policy(resamples=0), onsets=onsets)
    assert not found.failures
    return {name: found.score[name].metrics for name in detectors}


def test_the_best_detector_on_the_hard_preset(tmp_path):
    scored = scores(tmp_path, "dataset", 98, ["learned", "episodes", *BASELINES])
    best = scored["learned"]
    assert best["f1"] >= 0.85
    assert best["hit_at_1"] >= 0.85
    assert best["recall_at_60_onset"] >= 0.6
    assert best["healthy_job_false_alarm_rate"] <= 0.05
    assert scored["episodes"]["f1"] > max(scored[name]["f1"] for name in BASELINES)
    assert all(scored[name]["hit_at_1"] <= 0.5 for name in BASELINES)


@pytest.mark.parametrize(
    ("preset", "jobs", "names"), [("quiet", 98, QUIET), ("stormy", 40, STORMY)]
)
def test_every_detector_beats_the_simple_ones_where_it_is_meant_to(tmp_path, preset, jobs, names):
    scored = scores(tmp_path, preset, jobs, [*names, *BASELINES])
    bar = max(scored[name]["f1"] for name in BASELINES)
    assert {name: scored[name]["f1"] for name in names if scored[name]["f1"] <= bar} == {}


def test_noise_costs_the_best_little(tmp_path):
    assert scores(tmp_path, "chatty", 40, ["learned"])["learned"]["f1"] >= 0.8
