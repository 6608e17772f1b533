"""Standard streams that are full, closed, or of an old encoding; text that would steer a terminal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from detectors.rules.detector import STARTER
from replay.cli.output import printable

FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="a device of Linux")
COMMAND = [sys.executable, "-m", "replay"]
VERBS = [
    ["--version"],
    ["--help"],
    ["jobs", "{trace}"],
    ["validate", "{trace}", "--json"],
    ["run", "{trace}"],
    ["run", "{trace}", "--json"],
    ["run", "{trace}", "--jsonl", "--speed", "100000"],
    ["bench", "{trace}", "-d", "burst", "--workers", "1"],
    ["detectors", "list"],
    ["rules", "rescale", "{rules}", "--speed", "10"],
]


@pytest.fixture
def line(culprit, tmp_path):
    """Fills in a command line."""
    rules = tmp_path / "rules.yml"
    rules.write_text("groups:\n- name: g\n  rules:\n  - {alert: A, expr: up > 1}\n")
    return lambda words: COMMAND + [word.format(trace=culprit, rules=rules) for word in words]


@needs_full
@pytest.mark.parametrize("buffered", ["", "1"])
@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_a_full_disk_is_told_in_a_sentence(line, words, buffered):
    environment = os.environ | {"PYTHONUNBUFFERED": buffered}
    with FULL.open("wb") as full:
        done = subprocess.run(
            line(words), stdout=full, stderr=subprocess.PIPE, check=False, env=environment
        )
    told = done.stderr.decode()
    assert done.returncode == 1, told
    assert "No space left on device." in told
    assert "Traceback" not in told
    assert "ignored" not in told


@needs_full
def test_a_full_standard_error_stops_nothing(line):
    with FULL.open("wb") as full:
        done = subprocess.run(
            line(["run", "{trace}"]), stdout=subprocess.PIPE, stderr=full, check=False
        )
    assert done.returncode == 0
    assert b"precision" in done.stdout


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_stop_nothing_and_their_numbers_are_not_reused(line, closed, tmp_path):
    words = line(["run", "{trace}", "--out", str(tmp_path / "kept"), "--speed", "100000"])
    done = subprocess.run(
        ["sh", "-c", f'"$@" {closed}', "sh", *words], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr
    assert json.loads((tmp_path / "kept" / "score.json").read_text())["schema"] == 1


def test_an_old_encoding_gets_all_of_it(line, culprit):
    culprit.write_text(culprit.read_text().replace("node-c", "knöten"))
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    for words in (["run", "{trace}"], ["info", "{trace}", "culprit"]):
        done = subprocess.run(line(words), capture_output=True, check=False, env=environment)
        assert done.returncode == 0, done.stderr
    done = subprocess.run(
        line(["run", "{trace}", "-d", "first-alert", "--json"]),
        capture_output=True,
        check=True,
        env=environment,
    )
    assert json.loads(done.stdout)["schema"] == 1
    done = subprocess.run(
        line(["run", "{trace}", "-d", "loudest", "--no-baselines", "--jsonl"]),
        capture_output=True,
        check=True,
        env=environment,
    )
    assert json.loads(done.stdout)["ip"] == "knöten"


def test_names_from_a_trace_do_not_steer_the_terminal(call, culprit):
    text = culprit.read_text().replace("node-c", r"\u001b[31mnode\u0007\nc")
    culprit.write_text(text.replace('"job_id": "culprit"', r'"job_id": "cul\rprit"'))
    for words in (
        ["run", culprit, "-d", "loudest", "--no-baselines"],
        ["jobs", culprit],
        ["info", culprit, "--truth"],
        ["validate", culprit],
        ["bench", culprit, "-d", "loudest", "--workers", 1],
    ):
        code, out, err = call(*words)
        assert code == 0, err
        assert printable(out) == out
        assert printable(err) == err
    _, out, _ = call("run", culprit, "-d", "loudest", "--no-baselines")
    assert out.splitlines()[0].split()[3:5] == ["blames", r"\x1b[31mnode\x07\nc"]


def test_hints_can_be_pasted(call, culprit):
    folder = culprit.parent / "my traces"
    folder.mkdir()
    culprit.rename(folder / "a b.jsonl")
    _, _, err = call("jobs", folder / "a b.jsonl")
    assert f"Next: alert-replay info '{folder}/a b.jsonl' culprit\n" in err
    _, _, err = call("run", folder / "a b.jsonl", "--out", folder / "kept")
    assert f"alert-replay run --config '{folder}/kept/config.toml'\n" in err


def test_names_that_are_not_utf8(culprit):
    odd = culprit.with_name(os.fsdecode(b"\xff.jsonl"))
    odd.write_bytes(culprit.read_bytes())
    done = subprocess.run([*COMMAND, "validate", odd, "--json"], capture_output=True, check=True)
    assert json.loads(done.stdout)["source"] == str(odd)
    kept = culprit.with_name("kept")
    for path, folder, told in (
        (odd, kept, b"is not UTF-8, and cannot be kept"),
        (culprit, culprit.with_name(os.fsdecode(b"\xfe")), b"the name is not UTF-8"),
    ):
        command = [*COMMAND, "run", path, "--out", folder]
        done = subprocess.run(command, capture_output=True, check=False)
        assert (done.returncode, done.stdout) == (2, b"")
        assert told in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("run", "{trace}", "-d", "{mine}", "--json"),
        ("run", "{trace}", "-d", "{mine}", "--json", "--speed", "100000"),
        ("run", "{trace}", "-d", "{mine}", "--dry-run", "--json"),
        ("bench", "{trace}", "-d", "{mine}", "--workers", "1", "--json"),
        ("bench", "{trace}", "-d", "{mine}", "--workers", "2", "--json"),
        ("detectors", "show", "{mine}", "--json"),
    ],
    ids=" ".join,
)
def test_what_a_detector_prints_is_no_part_of_the_result(culprit, words):
    culprit.with_name("mine.py").write_text(
        "from replay.api import Detector\n"
        "print('loaded')\n"
        "class Mine(Detector):\n"
        "    def observe(self, alert):\n"
        "        print('seen')\n"
        "        return ()\n"
    )
    mine = f"{culprit.with_name('mine.py')}:Mine"
    words = [word.format(trace=culprit, mine=mine) for word in words]
    done = subprocess.run([*COMMAND, *words], capture_output=True, check=True)
    assert json.loads(done.stdout)["schema"] == 1
    assert b"loaded\n" in done.stderr
    assert (b"seen\n" in done.stderr) is ("--dry-run" not in words)


def test_what_nobody_thought_of_is_a_sentence_too(call, culprit, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("no such luck")

    monkeypatch.setattr("replay.traces.open", broken)
    code, out, err = call("jobs", culprit)
    assert (code, out) == (1, "")
    assert "A mistake of ours: RuntimeError: no such luck  Try: " in err
    code, _, err = call("--debug", "jobs", culprit)
    assert code == 1
    assert "Traceback" in err
    assert "A mistake of ours" in err.splitlines()[-1]


@pytest.mark.parametrize("before", [True, False])
def test_debug_shows_how_an_error_came_about_and_changes_nothing_else(
    call, culprit, tmp_path, before
):
    mine = tmp_path / "mine.py"
    mine.write_text(
        "from replay.api import Detector\n\n\n"
        "class Mine(Detector):\n"
        "    def observe(self, alert):\n"
        "        raise ValueError('stumbled')\n"
    )
    for words, expected in (
        (("run", culprit, "-d", f"{mine}:Mine", "--no-baselines"), 6),
        (("run", culprit, "Job99"), 2),
    ):
        plain = call(*words)
        told = call("--debug", *words) if before else call(*words, "--debug")
        assert plain[0] == told[0] == expected
        assert "Traceback" not in plain[2]
        assert "Traceback" in told[2]
        assert plain[2].splitlines()[-1] == told[2].splitlines()[-1]


@pytest.mark.parametrize(
    "words",
    [
        ("run", "{trace}", "--speed", "max", "-d", "burst"),
        ("bench", "{trace}", "--workers", "1", "-d", "burst"),
        ("rules", "run", str(STARTER), "{trace}"),
    ],
)
def test_what_a_lenient_reader_leaves_out_is_listed_and_counted(call, tmp_path, words):
    job = tmp_path / "Job1"
    job.mkdir()
    times = {"start_time": "1969-10-15 13:49:13", "end_time": "1969-10-15 14:49:13"}
    labels = {"ip_status": {"n1": "hang", "n2": "normal"}}
    about = {"job_id": "Job1", **times, "gpu_generation": "Hopper", **labels}
    (job / "meta.json").write_text(json.dumps(about))
    rows = ["ip,event_time,event", "n1,1969-10-15 13:50:00,x", "n1,noon,x", "n2"]
    (job / "event_report.csv").write_text("\n".join(rows) + "\n")
    words = [word.format(trace=tmp_path) for word in words]
    assert call(*words)[0] == 3
    code, _, err = call(*words, "--lenient")
    assert code == 0, err
    assert "event_report.csv:3" in err
    assert "event_report.csv:4" in err
    assert "Because of 2 faults, rows or jobs were left out (--lenient)" in err
