"""``alert-replay run`` as a user meets it."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import socket
import subprocess
import sys

import pytest
import stuck

BURST = "burst:threshold=3,window=20"


def test_table(call, culprit):
    code, out, err = call("run", culprit, "-d", BURST)
    assert code == 0
    lines = out.splitlines()
    assert lines[0].startswith("T+0:00:28 culprit burst blames node-c")
    names = [line.split()[0] for line in lines if line]
    for name in ("burst", "silent", "accuse-all", "random", "loudest", "first-alert", "most-kinds"):
        assert name in names
    assert "1 jobs, 1 positive of 4 labelled nodes" in out
    assert f"{culprit.name}: jsonl, 1 jobs, 11 alerts" in err


def test_json_is_one_document(call, culprit):
    code, out, _ = call("run", culprit, "-d", BURST, "--no-baselines", "--json")
    document = json.loads(out)
    assert code == 0
    assert list(document["detectors"]) == ["burst"]
    assert document["complete"] is True
    assert document["run"]["alerts"] == 11
    assert document["detectors"]["burst"]["metrics"]["recall"] == 1.0


def test_jsonl_is_a_log_that_can_be_scored(call, culprit, tmp_path):
    code, out, _ = call("run", culprit, "-d", BURST, "--no-baselines", "--jsonl")
    assert code == 0
    (tmp_path / "v.jsonl").write_text(out)
    code, scored, _ = call(
        "score", "--trace", culprit, "--verdicts", tmp_path / "v.jsonl", "--json"
    )
    assert code == 0
    _, run, _ = call("run", culprit, "-d", BURST, "--no-baselines", "--json")
    metrics = json.loads(scored)["detectors"]["burst"]["metrics"]
    assert metrics == json.loads(run)["detectors"]["burst"]["metrics"]


def test_a_kept_run_can_be_repeated(call, culprit, tmp_path):
    first, again = tmp_path / "first", tmp_path / "again"
    assert call("run", culprit, "-d", BURST, "--seed", 3, "--out", first)[0] == 0
    assert call("run", "--config", first / "config.toml", "--out", again)[0] == 0
    kept = sorted(path.name for path in first.iterdir())
    assert kept == ["config.toml", "run.json", "score.json", "verdicts.jsonl", "verdicts.parquet"]
    for name in set(kept) - {"run.json"}:
        assert (first / name).read_bytes() == (again / name).read_bytes(), name


def test_an_earlier_run_is_not_lost(call, culprit, tmp_path):
    kept = tmp_path / "kept"
    assert call("run", culprit, "-d", BURST, "--out", kept)[0] == 0
    before = {path.name: path.read_bytes() for path in kept.iterdir()}
    for words in (
        ("run", culprit, "-d", "silence"),
        ("bench", culprit, "-d", "silence", "--workers", 1),
        ("score", "--trace", culprit, "--verdicts", kept / "verdicts.jsonl"),
    ):
        code, out, err = call(*words, "--out", kept)
        assert (code, out) == (2, ""), err
        assert f"{kept} holds an earlier run: config.toml, " in err
        assert "another folder, or --force to replace it" in err
        assert {path.name: path.read_bytes() for path in kept.iterdir()} == before


def test_an_earlier_run_is_replaced_as_a_whole_if_one_says_so(call, culprit, tmp_path):
    kept = tmp_path / "kept"
    assert call("run", culprit, "-d", "silence", "--out", kept)[0] == 0
    (kept / "notes.txt").write_text("mine")
    assert call("run", culprit, "-d", BURST, "--out", kept, "--force")[0] == 0
    assert 'detector = [\n    "burst:' in (kept / "config.toml").read_text()
    words = ("score", "--trace", culprit, "--verdicts", kept / "verdicts.jsonl")
    assert call(*words, "--out", kept, "--force")[0] == 0
    names = {path.name for path in kept.iterdir()}
    assert names == {"notes.txt", "score.json", "verdicts.jsonl", "verdicts.parquet"}


def test_a_full_disk_loses_neither_the_score_nor_the_earlier_run(culprit, tmp_path):
    kept = tmp_path / "kept"
    command = [sys.executable, "-m", "replay", "run", culprit, "-q", "--out", kept, "--force"]
    subprocess.run(command, check=True, capture_output=True)
    before = {path.name: path.read_bytes() for path in kept.iterdir()}
    full = ["sh", "-c", 'ulimit -f 1; trap "" XFSZ; exec "$@"', "sh", *command]
    done = subprocess.run(full, check=False, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert "The run cannot be kept in" in done.stderr
    assert "Traceback" not in done.stderr
    assert "most-kinds" in done.stdout
    assert {path.name: path.read_bytes() for path in kept.iterdir()} == before


def test_a_crashing_detector_is_named_and_the_others_go_on(call, culprit, tmp_path):
    (tmp_path / "mine.py").write_text(
        "from replay.api import Detector\n"
        "class Mine(Detector):\n"
        "    def observe(self, alert):\n"
        "        raise RuntimeError('no such luck')\n"
    )
    code, out, err = call("run", culprit, "-d", "mine.py:Mine", "-d", BURST)
    assert code == 6
    assert "burst blames node-c" in out
    assert "\nMine (crashed) " in out
    assert "\nMine crashed on 1 of 1 jobs (culprit: RuntimeError: no such luck (mine.py" in out
    assert "detector Mine on job culprit" in err
    assert "no such luck" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["run"], 2, "Which trace?"),
        (["run", "nowhere"], 3, "nowhere: there is no such file or folder."),
        (["run", "{trace}", "Job9"], 2, "There is no job 'Job9' in"),
        (
            ["run", "{trace}", "-d", "burts"],
            2,
            "There is no detector 'burts'; did you mean 'burst'?",
        ),
        (["run", "{trace}", "-d", "burst:windw=3"], 2, "windw"),
        (["run", "{trace}", "-d", "none.py:X"], 2, "none.py"),
        (["run", "{trace}", "--speed", "fast"], 2, "speed 'fast' is not a positive number."),
        (["run", "{trace}", "--speed", "0"], 2, "speed '0' is not a positive number."),
        (["run", "{trace}", "--schedule", "pool:0"], 2, "pool:0"),
        (["run", "{trace}", "--kind", "("], 2, "("),
        (["run", "{trace}", "--duration", "long"], 2, "duration: 'long' is not a duration"),
        (["run", "{trace}", "--label-map", "normal"], 2, "'normal' is not LABEL=MEANING."),
        (["run", "{trace}", "--label-map", "normal=negative", "--strict-labels"], 2, "faulty"),
        (["run", "{trace}", "--json", "--jsonl"], 2, "--json and --jsonl"),
        (["run", "{trace}", "--config", "none.toml"], 2, "none.toml cannot be read as TOML"),
        (["run", "{trace}", "--start-paused"], 2, "Nobody is there to press the space key."),
        (["run", "{trace}", "--kind", "xi"], 2, "The filters leave no alert to replay."),
        (["run", "{trace}", "--fail-if", "burst: recal < 0.2"], 2, "There is no metric 'recal'."),
        (["run", "{trace}", "--fail-if", "brust: f1 < 0.2"], 2, "names the detector 'brust'"),
        (["run", "{trace}", "--fail-if", "f1 is low"], 2, "'f1 is low'"),
        (["run", "{trace}", "--out", "{trace}/sub"], 2, "The run cannot be kept in"),
        (["run", "{trace}", "--wait-for-broker", "soon"], 2, "'soon' is not a duration."),
        (["rnu"], 2, "There is no verb 'rnu'. Did you mean 'run'?"),
        (["run", "{trace}", "--sped", "10"], 2, "--speed"),
    ],
)
def test_errors_are_one_sentence(call, culprit, words, code, message):
    words = [word.format(trace=culprit) for word in words]
    found, out, err = call(*words)
    assert found == code
    assert message in err
    assert "Traceback" not in err
    assert not out


def test_filters_mark_the_run(call, culprit):
    code, out, err = call("run", culprit, "-d", BURST, "--kind", "ecc|xid")
    assert code == 0
    assert "filtered: not comparable" in out
    assert "6 alerts are left out by the filters" in err


def test_dry_run_says_what_would_be_played(call, culprit):
    code, out, _ = call("run", culprit, "--speed", "10", "--dry-run", "--json")
    plan = json.loads(out)["plan"]
    assert code == 0
    assert (plan["jobs"], plan["alerts"], plan["span_s"], plan["wall_s"]) == (1, 11, 60.0, 6.0)
    code, out, _ = call("run", culprit, "--dry-run")
    assert code == 0
    assert "longest_gap_s" in out


def test_settings_come_from_the_environment_and_a_file(call, culprit, monkeypatch, tmp_path):
    (tmp_path / "alert-replay.toml").write_text(
        'baselines = false\ndetector = ["burst:window=1"]\n'
    )
    monkeypatch.setenv("ALERT_REPLAY_DETECTOR", "loudest burst")
    code, out, _ = call("run", culprit, "--json")
    assert code == 0
    assert list(json.loads(out)["detectors"]) == ["loudest", "burst"]


def test_gates_may_stand_in_the_file_or_on_the_line(call, culprit, tmp_path):
    (tmp_path / "alert-replay.toml").write_text('fail-if = ["burst: f1 < 1.5"]\n')
    quick = ("run", culprit, "-d", BURST, "--no-baselines", "-q")
    code, _, err = call(*quick)
    assert code == 4
    assert "gate FAILED" in err
    assert "1 of 1 gates failed" in err
    code, _, err = call(*quick, "--fail-if", "f1 < 0.5")
    assert code == 0
    assert "gate passed: " in err


def test_how_late_alerts_left_is_part_of_a_paced_score(call, culprit):
    def lag(speed):
        out = call("run", culprit, "-d", BURST, "--no-baselines", "--speed", speed, "--json", "-q")
        (scored,) = json.loads(out[1])["detectors"].values()
        return {key: value for key, value in scored["metrics"].items() if "publish_lag" in key}

    assert lag("max") == {}
    paced = lag("100000")
    assert 0 <= paced["publish_lag_ms_min"] <= paced["publish_lag_ms_p50"]
    assert paced["publish_lag_ms_p50"] <= paced["publish_lag_ms_max"]


def test_duration_gives_a_partial_result(call, culprit):
    code, out, _ = call("run", culprit, "-d", BURST, "--duration", "14s", "--json")
    document = json.loads(out)
    assert code == 0
    assert document["complete"] is False
    assert document["settings"]["comparable"] is False


def terminal(*words, keys, until):
    """Run in a pseudo-terminal; when ``until`` has been seen, press ``keys``; give code and screen."""
    here, there = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "replay", *map(str, words)], stdin=there, stdout=there, stderr=there
    ) as process:
        os.close(there)
        screen = b""
        waiting = list(zip(until, keys, strict=True))
        while True:
            ready, _, _ = select.select([here], [], [], 60)
            assert ready, screen.decode()
            try:
                piece = os.read(here, 4096)
            except OSError:  # the other side has hung up
                break
            if not piece:
                break
            screen += piece
            while waiting and waiting[0][0] in screen:
                _, key = waiting.pop(0)
                if isinstance(key, bytes):
                    os.write(here, key)
                else:
                    process.send_signal(key)
    os.close(here)
    return process.returncode, screen.decode()


def test_going_back_forgets_no_verdict(culprit, tmp_path):
    kept = tmp_path / "kept"
    code, screen = terminal(
        "run", culprit, "-d", BURST, "--speed", "10", "--start-paused", "--out", kept,
        until=[b"paused", b"blames"], keys=[b"\x1b[C" * 9, b"\x1b[D" + b" "],
    )  # fmt: skip
    assert code == 0, screen
    assert json.loads((kept / "run.json").read_text())["jumps"]
    score = json.loads((kept / "score.json").read_text())
    assert score["detectors"]["burst"]["metrics"]["recall"] == 1.0


def test_q_ends_with_a_report(culprit):
    code, screen = terminal(
        "run", culprit, "-d", BURST, "--speed", "0.1",
        until=[b"playing", b"paused", b"paused"], keys=[b" ", b".", b"q"],
    )  # fmt: skip
    assert code == 0
    assert "partial: the replay was stopped before its end" in screen
    assert "precision" in screen


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_gives_a_partial_result(culprit, number):
    code, screen = terminal(
        "run", culprit, "-d", BURST, "--speed", "0.1", until=[b"playing"], keys=[number]
    )
    assert code == 128 + number
    assert "partial: the replay was stopped before its end" in screen
    assert "Traceback" not in screen


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_at_once(culprit, number):
    words = ["run", culprit, "-d", f"{stuck.__file__}:Stuck", "--no-baselines"]
    with subprocess.Popen(
        [sys.executable, "-m", "replay", *words], stderr=subprocess.PIPE
    ) as process:
        assert b"stuck\n" in iter(process.stderr.readline, b"")
        process.send_signal(number)
        assert any(b"Stopping" in line for line in iter(process.stderr.readline, b""))
        process.send_signal(number)
        told = process.stderr.read().decode()
    assert process.returncode in {128 + number, -number}
    assert "Traceback" not in told


@pytest.mark.parametrize(
    "words",
    [
        ("run", "{trace}", "--via", "{url}"),
        ("detect", "--from", "{url}", "--to", "{url}-said", "--group", "g"),
        ("detect", "--from", "{url}", "--to", "{url}-said", "--group", "g", "--workers", "2"),
    ],
    ids=["run", "detect", "two workers"],
)
def test_ctrl_c_ends_the_wait_for_a_broker(culprit, words):
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        deaf.settimeout(60)
        url = f"kafka://127.0.0.1:{deaf.getsockname()[1]}/alerts"
        words = [word.format(trace=culprit, url=url) for word in words]
        with subprocess.Popen(
            [sys.executable, "-m", "replay", *words, "--kafka-client", "kafka-python"],
            stderr=subprocess.PIPE,
        ) as process:
            callers = [deaf.accept()[0] for _ in range(2 if "2" in words else 1)]
            process.send_signal(signal.SIGINT)
            told = process.stderr.read().decode()
        for caller in callers:
            caller.close()
    assert process.returncode == 130, told
    assert "Traceback" not in told


def test_who_stops_reading_is_not_a_service_that_failed(culprit):
    command = [sys.executable, "-m", "replay", "run", culprit, "-d", "loudest", "--no-baselines"]
    with subprocess.Popen(
        [*command, "--jsonl", "--speed", "1000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.close()
        told = process.stderr.read().decode()
    assert process.returncode == 1
    assert "Nobody reads" not in told
    assert "Traceback" not in told


def test_truth_and_speed_keys(culprit):
    code, screen = terminal(
        "run", culprit, "-d", BURST, "--speed", "10",
        until=[b"playing", b"playing"], keys=[b"t", b"\x1b[A"],
    )  # fmt: skip
    assert code == 0
    assert "[faulty]" in screen
