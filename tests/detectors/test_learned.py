"""Learned detectors: what fitting gives, what it refuses, and that it generalizes."""

from __future__ import annotations

import json

import pytest

from detectors.fitting import fit
from detectors.learned import SHIPPED, Learned, LogOdds, Model
from detectors.suspects import FEATURES
from replay.api import Job, Lesson
from replay.plugins import DetectorSpec
from replay.testing import play, stream

NODES = tuple(f"node-{number:02}" for number in range(16))


def rows(seed, *, faulty):
    """A job: a hum everywhere, now and then a lone bad word, and perhaps a node that fails."""
    hum = [
        (60.0 * step + seed % 7, NODES[(step * 5 + seed) % 16], f"hum-{step % 6}")
        for step in range(60)
    ]
    decoy = [(300.0 + 97.0 * (seed % 9), NODES[(seed + 3) % 16], "bad")]
    if not faulty:
        return sorted(hum + decoy)
    culprit = NODES[seed % 16]
    fault = [(3500.0, culprit, "bad"), (3502.0, culprit, "worse"), (3525.0, culprit, "bad")]
    storm = [
        (3507.0 + number % 4, node, "reset") for number, node in enumerate(NODES) if node != culprit
    ]
    return sorted(hum + decoy + fault + storm)


def lesson(seed):
    """Every fourth job is healthy; a group is two jobs."""
    faulty = seed % 4 != 0
    job = Job(f"Job{seed}", NODES)
    batches = [m.batch for m in stream(job, rows(seed, faulty=faulty)) if hasattr(m, "batch")]
    labels = {node: faulty and node == NODES[seed % 16] for node in NODES}
    return Lesson(job, batches, 3700.0, labels, str(seed // 2))


@pytest.fixture(scope="module")
def lessons():
    return [lesson(seed) for seed in range(24)]


@pytest.fixture(scope="module")
def model(lessons):
    return fit(lessons)


def blamed(detector, model, seed, *, faulty=True):
    spec = DetectorSpec.of(detector, model=model)
    return [
        t.verdict.node for t in play(Job("new", NODES), rows(seed, faulty=faulty), spec, end=3700.0)
    ]


def test_a_model_is_a_json_document_that_reads_back(model, tmp_path):
    path = tmp_path / "model.json"
    path.write_text(json.dumps(model), encoding="utf-8")
    assert Model.read(path) == Model.read(model)
    assert list(model["coefficients"]) == list(FEATURES)
    assert model["jobs"] == 24
    assert model["faulty_nodes"] == 18


def test_equal_lessons_give_equal_models(lessons, model):
    assert fit(lessons) == model


def test_weights_tell_bad_words_from_others(model):
    calm = model["weights"]["calm"]
    assert calm["worse"] > 1 > calm["hum-0"]


@pytest.mark.parametrize("detector", [Learned, LogOdds])
@pytest.mark.parametrize("seed", [101, 102, 103])
def test_it_finds_the_culprit_of_a_job_it_has_not_seen(detector, model, seed):
    assert blamed(detector, model, seed) == [NODES[seed % 16]]
    assert blamed(detector, model, seed, faulty=False) == []


def test_a_threshold_of_ones_own(model):
    spec = DetectorSpec.of(Learned, model=model, threshold=1.1)
    assert play(Job("new", NODES), rows(101, faulty=True), spec, end=3700.0) == []


def test_kinds_never_seen_before_are_no_evidence(model):
    strange = [(at, node, f"{kind}-elsewhere") for at, node, kind in rows(101, faulty=True)]
    spec = DetectorSpec.of(Learned, model=model)
    assert play(Job("new", NODES), strange, spec, end=3700.0) == []


def test_names_mean_nothing(model):
    """A job whose nodes go by other names gets the same verdicts about them."""
    renamed = {node: f"fd00:{number:x}" for number, node in enumerate(NODES)}
    spec = DetectorSpec.of(Learned, model=model)
    there = [(at, renamed[node], kind) for at, node, kind in rows(101, faulty=True)]
    said = play(Job("new", tuple(sorted(renamed.values()))), there, spec, end=3700.0)
    assert [t.verdict.node for t in said] == [renamed[NODES[101 % 16]]]


def test_the_shipped_model_reads_and_says_what_it_was_fitted_on():
    document = json.loads(SHIPPED.read_text(encoding="utf-8"))
    assert Model.read(document) == Model.read(SHIPPED)
    assert document["jobs"] > 500


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema": "other/1"}, "schema is 'other/1'"),
        ({"weights": {}}, "not a fitted model"),
        ({"coefficients": {}}, "not a fitted model"),
        ({"threshold": None}, "not a fitted model"),
    ],
)
def test_what_is_no_model_is_refused(model, change, words):
    with pytest.raises(ValueError, match=words):
        Model.read(model | change)


def test_a_file_that_is_no_json_is_refused(tmp_path):
    path = tmp_path / "model.json"
    path.write_text("{", encoding="utf-8")
    with pytest.raises(ValueError, match="is not JSON"):
        Model.read(path)
    with pytest.raises(Exception, match="cannot be built"):
        DetectorSpec.parse(f"learned:model={tmp_path / 'nowhere.json'}")


def test_too_little_to_learn_from(lessons):
    with pytest.raises(ValueError, match="at least two jobs"):
        fit(lessons[:2])
    healthy = [one for one in lessons if not any(one.labels.values())]
    with pytest.raises(ValueError, match="faulty and normal"):
        fit(healthy)
    with pytest.raises(ValueError, match="at least two jobs"):
        fit([])


def test_unlabelled_nodes_teach_nothing(lessons, model):
    """Nodes left out of the labels change no count of the others."""
    without = [
        Lesson(
            one.job,
            one.batches,
            one.end,
            {n: v for n, v in one.labels.items() if v or n > "node-03"},
            one.group,
        )
        for one in lessons
    ]
    assert fit(without)["faulty_nodes"] == model["faulty_nodes"]
