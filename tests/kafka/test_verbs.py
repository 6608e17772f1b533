"""publish, detect and score --from, as they are typed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time

import pytest
from kafka_brokers import ROOT, Tansu, free_port
from kafka_jobs import said

import replay.traces
from replay.cli.verbs import run_verb
from replay.engine import Playback, Player
from replay.host import Host
from replay.plugins import parse_detectors
from replay.runner import run
from replay.scoring import read_log
from replay.timeline import Timeline
from replay.transports.kafka.relay import Relay
from replay.transports.kafka.settings import Settings

pytestmark = pytest.mark.kafka
SAMPLE = str(ROOT / "data/sample")
DETECTORS = ("burst", "loudest", "first-alert")
FLAGS = [word for name in DETECTORS for word in ("--detector", name)]


def test_publish_detect_score_is_run_in_three_steps(apache, topic, tmp_path, capsys):
    alerts, verdicts = (f"kafka://{apache.address}/{topic}-{part}" for part in "av")
    assert run_verb(["publish", SAMPLE, "--to", alerts, "--json"]) == 0
    published = json.loads(capsys.readouterr().out)
    words = ["detect", "--from", alerts, "--to", verdicts, "--group", topic, "--workers", "2"]
    assert run_verb([*words, *FLAGS, "--idle-exit", "5s", "--json"]) == 0
    works = json.loads(capsys.readouterr().out)["workers"]
    words = ["score", "--trace", SAMPLE, "--from", verdicts, "--json", "--out", str(tmp_path)]
    assert run_verb(words) == 0
    captured = capsys.readouterr()
    alone = run(SAMPLE, DETECTORS, baselines=False)
    assert rows(read_log(tmp_path / "verdicts.jsonl")) == rows(alone.log)
    scored, expected = metrics(json.loads(captured.out)), metrics(alone.score.document())
    common = scored["burst"].keys() & expected["burst"].keys()
    assert {"tp", "fp", "f1", "job_f1", "map"} <= common
    for name in DETECTORS:
        assert {key: scored[name][key] for key in common} == {
            key: expected[name][key] for key in common
        }
    assert published["kafka"]["acked"] == published["kafka"]["sent"] > published["alerts"]
    assert sum(work["alerts"] for work in works) == published["alerts"]
    assert sum(work["jobs"] for work in works) == len(replay.traces.open(SAMPLE))
    assert f"run {published['run']}: " in captured.err


def rows(log):
    return [{key: value for key, value in row.items() if "wall" not in key} for row in log.rows()]


def metrics(document):
    return {name: told["metrics"] for name, told in document["detectors"].items()}


def test_a_worker_ends_cleanly_when_told_to(apache, topic):
    alerts, verdicts = (f"kafka://{apache.address}/{topic}-{part}" for part in "av")
    assert run_verb(["publish", SAMPLE, "Job1", "--to", alerts, "--quiet"]) == 0
    words = ["detect", "--from", alerts, "--to", verdicts, "--group", topic, "--json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "replay", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    score = ["score", "--trace", SAMPLE, "--jobs", "Job1", "--idle-exit", "30s"]
    deadline = time.monotonic() + 60
    while run_verb([*score, "--from", verdicts]) == 5 and time.monotonic() < deadline:
        time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    (work,) = json.loads(out)["workers"]
    assert (work["jobs"], work["open_jobs"], work["failures"]) == (1, 0, [])


def test_a_crashed_detector_is_exit_code_6(apache, topic, tmp_path, capsys):
    (tmp_path / "crash.py").write_text(
        "from replay.api import Detector\n\n\n"
        "class Crash(Detector):\n"
        "    def observe(self, alert):\n"
        "        raise RuntimeError('boom')\n"
    )
    alerts, verdicts = (f"kafka://{apache.address}/{topic}-{part}" for part in "av")
    assert run_verb(["publish", SAMPLE, "Job1", "--to", alerts]) == 0
    words = ["detect", "--from", alerts, "--to", verdicts, "--group", topic, "--idle-exit", "3s"]
    assert run_verb([*words, "--detector", f"{tmp_path}/crash.py:Crash"]) == 6
    assert "boom" in capsys.readouterr().err


def test_a_forgetful_broker_is_exit_code_5(tmp_path, capsys, topic):
    broker = Tansu(tmp_path)
    broker.start()

    def restart():
        time.sleep(2.0)
        broker.kill()
        time.sleep(1.0)
        broker.start()

    trouble = threading.Thread(target=restart)
    trouble.start()
    to = f"kafka://{broker.address}/{topic}?partitions=1"
    code = run_verb(["publish", SAMPLE, "Job1", "--to", to, "--speed", "300", "--duration", "1500"])
    trouble.join()
    broker.kill()
    captured = capsys.readouterr()
    assert code == 5
    assert "the broker forgot" in captured.out
    assert "Job1 up to t=" in captured.out
    assert "The producer is lost" in captured.err


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["publish", SAMPLE, "--to", "kafka://{nobody}/t"], 5, "did not answer in 0.5 s"),
        (["detect", "--from", "kafka://{nobody}/t", "--to", "kafka://{nobody}/v"], 5, "answer"),
        (["score", "--trace", SAMPLE, "--from", "kafka://{nobody}/v"], 5, "did not answer"),
        (["publish", SAMPLE, "--to", "memory:"], 2, "does not name a topic"),
        (["publish", SAMPLE, "Job99", "--to", "kafka://{nobody}/t"], 2, "no job 'Job99'"),
        (["score", "--trace", SAMPLE], 2, "Which verdicts?"),
    ],
)
def test_what_goes_wrong_has_one_sentence_and_a_code(words, code, text, capsys):
    nobody = f"127.0.0.1:{free_port()}"
    typed = [word.format(nobody=nobody) for word in words]
    assert run_verb([*typed, "--wait-for-broker", "0.5"]) == code
    captured = capsys.readouterr()
    assert text in captured.err.splitlines()[-1]
    assert "Traceback" not in captured.err


@pytest.mark.parametrize("speed", ["max", 20_000.0])
def test_a_relay_carries_a_replay_within_one_process(settings, speed):
    trace = replay.traces.open(SAMPLE).select(["Job1", "Job2"])
    timeline = Timeline.build(trace)
    specs = parse_detectors(DETECTORS)
    alone = []
    host = Host(specs)
    Player(timeline, lambda messages: alone.extend(host.feed(messages)), run="r1").play()
    relay = Relay(settings, "r1")
    through = []
    host = Host(specs)

    def consume():
        with relay.source as source:
            while (messages := source.poll(60.0)) is not None:
                through.extend(host.feed(messages))

    consumer = threading.Thread(target=consume)
    consumer.start()
    with relay.sink as sink:
        Player(timeline, sink.publish, Playback(speed=speed), run="r1").play()
    consumer.join(60)
    assert said(through) == said(alone)
    assert relay.source.counters == type(relay.source.counters)()


def test_a_relay_whose_engine_fails_ends(tansu, topic):
    relay = Relay(Settings(tansu.address, topic), "r1")
    with pytest.raises(RuntimeError, match="boom"), relay.sink:
        raise RuntimeError("boom")
    with relay.source as source:
        assert source.poll(1.0) is None
