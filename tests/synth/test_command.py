"""The verb ``synth``."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from replay.cli import main
from replay.cli.synth import synth
from replay.traces import open as open_trace
from replay.traces.synth import make


def call(*words):
    return CliRunner().invoke(synth, words, catch_exceptions=False)


def test_it_writes_what_make_makes(tmp_path):
    done = call(
        "--preset",
        "quiet",
        "--jobs",
        "2",
        "--seed",
        "3",
        "-k",
        "max_hours=0.5",
        str(tmp_path / "t"),
    )
    assert done.exit_code == 0
    trace = open_trace(tmp_path / "t")
    assert trace == make("quiet", 2, 3, max_hours=0.5).trace
    assert trace.form == "parquet"
    assert f"2 jobs, {trace.events.num_rows} events" in done.stdout
    assert "alert-replay run" in done.stderr


def test_json(tmp_path):
    out = str(tmp_path / "t")
    done = call("--preset", "quiet", "--jobs", "1", "--to", "jsonl", "--json", out)
    told = json.loads(done.stdout)
    assert (told["schema"], told["jobs"], told["path"]) == (1, 1, out)


def test_the_knobs_are_listed():
    assert "chatty_root" in call("--list-knobs").stdout
    knobs = json.loads(call("--list-knobs", "--json", "--preset", "chatty").stdout)["knobs"]
    assert {row["knob"]: row["value"] for row in knobs}["chatty"] == 0.1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "Where to?"),
        (["-k", "chatty", "x"], "lacks '=' and a number"),
        (["-k", "chatty=much", "x"], "lacks a number"),
        (["-k", "chattty=1", "x"], "no knob 'chattty'"),
        (["--preset", "loud", "x"], "no preset 'loud'"),
        (["--jobs", "0", "x"], "--jobs"),
        (["--seed", "-1", "x"], "--seed"),
        (["--jobs", "1", "x.jsonl"], "named as a file"),
    ],
)
def test_a_misuse_is_told_and_exits_2(words, said, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["synth", *words])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
