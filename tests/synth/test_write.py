"""Made traces on disk: read back equal, with the truth beside them and never inside."""

from __future__ import annotations

import json

import pytest

from replay.errors import UsageError
from replay.traces import open as open_trace
from replay.traces.synth import make, write
from replay.traces.synth.write import command

FORMS = ("folders", "jsonl", "parquet")


@pytest.fixture(scope="module")
def made():
    return make("dataset", 8, 4, max_nodes=40, max_hours=2)


@pytest.fixture(scope="module", params=FORMS)
def written(request, made, tmp_path_factory):
    return write(made, tmp_path_factory.mktemp("made") / request.param, request.param)


def test_it_reads_back_equal_and_without_fault(made, written):
    trace = open_trace(written)
    assert trace == made.trace
    assert not any(severity == "error" for severity, _ in trace.findings.counts)


def test_the_truth_stands_beside(made, written):
    truth = json.loads((written / "truth.json").read_text("utf-8"))
    assert truth == {"schema": 1, "recipe": made.recipe, "jobs": made.truth}
    again = make(
        **{k: v for k, v in truth["recipe"].items() if k != "knobs"}, **truth["recipe"]["knobs"]
    )
    assert again.trace == made.trace


def test_the_truth_is_not_inside(made, written):
    told = {word for truth in made.truth.values() for word in truth["fault"].values()}
    told |= {"onset", "story", "cascade", "false_wave"}
    labels = {label for job in made.trace for label in job.ip_status.values()}
    for path in written.rglob("*"):
        if path.suffix in {".json", ".jsonl", ".csv"} and path.name != "truth.json":
            text = path.read_text("utf-8")
            assert not [
                word for word in told - labels if f'"{word}"' in text or f",{word}\n" in text
            ]


def test_the_readme_says_that_it_is_made(made, written):
    text = (written / "README.md").read_text("utf-8")
    assert "not production data" in text
    assert command(made, written.name, written.name) in text


def test_the_command_repeats_the_recipe(made):
    assert command(made, "OUT", "jsonl") == (
        "alert-replay synth --preset dataset --jobs 8 --seed 4 "
        "-k max_nodes=40 -k max_hours=2 --to jsonl OUT"
    )


def test_a_target_that_is_there_is_left_alone(made, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match="there already"):
        write(made, tmp_path, "jsonl")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_target_named_as_a_file_is_refused(made, tmp_path):
    with pytest.raises(UsageError, match="named as a file"):
        write(made, tmp_path / "a.jsonl.gz", "jsonl")
    assert not list(tmp_path.iterdir())
