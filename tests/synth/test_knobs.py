"""Knobs: documented, checked, and safe at both ends."""

from __future__ import annotations

from dataclasses import fields

import pytest

from replay.errors import UsageError
from replay.traces.synth import PRESETS, Knobs, make
from replay.traces.synth.knobs import describe, turn

NAMES = [knob.name for knob in fields(Knobs)]
BIG = {"background", "decoys", "max_hours", "max_nodes"}  # at their most they mean a big trace


@pytest.mark.parametrize("preset", PRESETS)
def test_every_knob_is_documented(preset):
    table = describe(preset)
    assert [row["knob"] for row in table] == NAMES
    for row in table:
        assert row["unit"]
        assert row["what"]
        assert row["source"]
        assert row["value"] == getattr(PRESETS[preset], row["knob"])


@pytest.mark.parametrize("knob", fields(Knobs), ids=NAMES)
def test_both_ends_work(knob):
    small = {"max_nodes": 20, "max_hours": 0.2}
    shares = {"healthy": 0, "software": 0, "double": 0, "silent": 0, "late": 0}
    ends = [knob.metadata["least"]] + [knob.metadata["most"]] * (knob.name not in BIG)
    for value in ends:
        made = make("dataset", 3, 2, **{**small, **shares, knob.name: value})
        assert len(made.trace) == 3


@pytest.mark.parametrize(
    ("knobs", "said"),
    [
        ({"chattty": 1}, "no knob 'chattty'"),
        ({"chatty": -0.1}, "chatty is -0.1"),
        ({"chatty": 1.1}, "from 0 to 1"),
        ({"chatty": float("nan")}, "chatty is nan"),
        ({"max_nodes": 0}, "from 1 to"),
        ({"healthy": 0.6, "software": 0.6}, "add up to at most 1"),
        ({"double": 0.5, "silent": 0.5}, "double + silent + late is 1.1"),
    ],
)
def test_a_bad_knob_is_told(knobs, said):
    with pytest.raises(UsageError) as caught:
        turn("dataset", knobs)
    assert said in str(caught.value)


def test_a_bad_preset_is_told():
    with pytest.raises(UsageError, match="no preset 'loud'"):
        describe("loud")


def test_shares_of_stories_are_kept():
    made = make("quiet", 50, 3, healthy=0.5, software=0.5, max_nodes=16, max_hours=0.1)
    stories = [truth["story"] for truth in made.truth.values()]
    assert stories.count("healthy") == stories.count("software") == 25


def test_the_largest_job_is_asked_for():
    made = make("quiet", 30, 3, max_nodes=17, max_hours=0.1)
    assert {len(job.ip_status) for job in made.trace} == {16, 17}
