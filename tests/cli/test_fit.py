"""The verb ``fit``: a model on disk that a run can use, or one clear sentence."""

from __future__ import annotations

import json

import pytest

from replay.traces import synth


@pytest.fixture
def trace(tmp_path):
    return synth.write(synth.make("quiet", jobs=24, seed=5), tmp_path / "made", "jsonl")


def test_a_model_that_a_run_can_use(call, trace, tmp_path):
    code, out, err = call("fit", trace, "--out", "model.json")
    assert (code, out) == (0, "")
    assert "Learned from 24 jobs" in err
    assert json.loads((tmp_path / "model.json").read_text())["jobs"] == 24
    code, _, _ = call("run", trace, "Job1", "--speed", "max", "-d", "learned:model=model.json")
    assert code == 0


def test_labels_may_be_mapped(call, trace):
    code, _, err = call("fit", trace, "--out", "m.json", "--label-map", "*=negative")
    assert code == 2
    assert "suspects of both kinds" in err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--detector", "burst"), "does not learn"),
        (("--detector", "nobody"), "no detector"),
        (("--jobs", "Job99"), "no job"),
        (("--jobs", "Job1"), "at least two jobs"),
        (("--out", "nowhere/model.json"), "no folder nowhere"),
    ],
)
def test_what_cannot_be(call, trace, words, sentence):
    code, _, err = call("fit", trace, "--out", "model.json", *words)
    assert code == 2
    assert sentence in err
    assert "Traceback" not in err
