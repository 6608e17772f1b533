"""publish, detect and score --from, as they are typed."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
import threading
import urllib.request

import pytest
from kafka import KafkaAdminClient
from kafka_brokers import ROOT, Tansu, free_port
from kafka_jobs import raw, said, wait_for

import replay.traces
from replay.cli.verbs import run_verb
from replay.engine import Playback, Player
from replay.host import Host
from replay.plugins import parse_detectors
from replay.runner import run
from replay.scoring import read_log
from replay.timeline import Timeline
from replay.traces.synth import make
from replay.transports.kafka.clients import client
from replay.transports.kafka.relay import Relay
from replay.transports.kafka.settings import Settings

pytestmark = pytest.mark.kafka
SAMPLE = str(ROOT / "data/sample")
DETECTORS = ("burst", "loudest", "first-alert")
SLOWLY = ["--speed", "300", "--duration", "1500"]
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


@pytest.mark.parametrize("speed", ["max", "20000"])
def test_run_via_a_broker_is_run_in_memory(broker, client_name, topic, tmp_path, capsys, speed):
    words = ["run", SAMPLE, "Job1", "Job2", *FLAGS, "--json", "--speed", speed]
    via = ["--via", f"kafka://{broker.address}/{topic}", "--kafka-client", client_name]
    assert run_verb([*words, "--out", str(tmp_path / "memory")]) == 0
    capsys.readouterr()
    assert run_verb([*words, *via, "--wait-for-broker", "20", "--out", str(tmp_path / "via")]) == 0
    document = json.loads(capsys.readouterr().out)
    carried = document["run"]["transport"]
    assert carried["acked"] == carried["sent"] > document["run"]["alerts"]
    assert (carried["gaps"], carried["duplicates"], carried["corrupt"]) == (0, 0, 0)
    assert sum(carried["partitions"].values()) == carried["sent"]
    if speed == "max":
        for name in ("verdicts.jsonl", "verdicts.parquet", "score.json"):
            kept = [(tmp_path / place / name).read_bytes() for place in ("memory", "via")]
            assert kept[0] == kept[1], name
    logs = [read_log(tmp_path / place / "verdicts.jsonl") for place in ("memory", "via")]
    assert rows(logs[0]) == rows(logs[1])
    # and it can be repeated, through the same topic, which still holds the first run
    config = str(tmp_path / "via" / "config.toml")
    assert run_verb(["run", "--config", config, "--out", str(tmp_path / "again")]) == 0
    assert rows(read_log(tmp_path / "again" / "verdicts.jsonl")) == rows(logs[0])


def test_a_whole_set_through_a_broker_says_the_same(apache, topic):
    """98 jobs with about 300,000 alerts, as fast as they go."""
    trace = make("dataset").trace
    alone = run(trace, DETECTORS)
    through = run(trace, DETECTORS, via=f"kafka://{apache.address}/{topic}?wait=60")
    assert through.played.alerts == alone.played.alerts > 290_000
    assert len(alone.log) > 200
    assert through.log.table.equals(alone.log.table)
    assert through.score.json() == alone.score.json()
    assert through.carried["acked"] == through.carried["sent"] > through.played.alerts
    assert through.carried["gaps"] == through.carried["duplicates"] == 0


@contextlib.contextmanager
def forgetting(broker, topic):
    """The broker restarts empty as soon as it has some records of a topic."""
    settings = Settings(broker.address, topic)

    def restart():
        wait_for(lambda: topic in client(settings).topics(settings) and len(raw(settings)) > 50)
        broker.kill()
        broker.start()

    trouble = threading.Thread(target=restart)
    trouble.start()
    try:
        yield
    finally:
        trouble.join()


def test_a_run_through_a_broker_that_forgets_fails(tmp_path, topic, capsys):
    """What it forgot will never come out: the run says so, and does not wait for it."""
    with Tansu(tmp_path) as broker:
        via = f"kafka://{broker.address}/{topic}?partitions=1"
        with forgetting(broker, topic):
            code = run_verb(["run", SAMPLE, "Job1", "--via", via, *SLOWLY])
    assert code == 5
    assert "The broker forgot" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("count", [1, 2])
def test_workers_show_how_far_they_are_and_end_cleanly(apache, topic, count):
    alerts, verdicts = (f"kafka://{apache.address}/{topic}-{part}" for part in "av")
    assert run_verb(["publish", SAMPLE, "Job1", "--to", alerts, "--quiet"]) == 0
    words = ["detect", "--from", alerts, "--to", verdicts, "--group", topic, "--json"]
    words += ["--workers", str(count), "--metrics", ":0"]
    settled = {
        "kafka_judged_jobs_total": 1,
        "kafka_partitions": 4,
        'kafka_lag_records{position="processed"}': 0,
        'kafka_lag_records{position="committed"}': 0,
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "replay", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        address = address_of(process)
        wait_for(lambda: scraped(address).items() >= settled.items())
        figures = scraped(address)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0
    works = json.loads(out)["workers"]
    assert len(works) == count
    assert sum(work["jobs"] for work in works) == 1
    assert sum(work["open_jobs"] for work in works) == 0
    assert not any(work["failures"] for work in works)
    assert 0 < figures["kafka_read_records_total"] <= sum(work["records"] for work in works)
    for name in ("gaps", "duplicates", "reorders", "corrupt_jobs"):
        assert figures[f"kafka_{name}_total"] == 0
    assert run_verb(["score", "--trace", SAMPLE, "--jobs", "Job1", "--from", verdicts]) == 0


def address_of(process):
    """Where a process shows metrics, as it says itself."""
    found = (re.search(r"http://\S+/metrics", line) for line in process.stderr)
    return next(match[0] for match in found if match)


def scraped(address):
    """What is shown there: name with its labels → value."""
    with urllib.request.urlopen(address, timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if line.startswith("alert_replay_kafka_"))
    return {name.removeprefix("alert_replay_"): float(value) for name, value in pairs}


def test_a_publisher_shows_how_the_broker_does(tansu, topic):
    to = f"kafka://{tansu.address}/{topic}"
    words = ["publish", SAMPLE, "Job1", "--to", to, "--metrics", ":0", "--speed", "300"]
    process = subprocess.Popen(
        [sys.executable, "-m", "replay", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        address = address_of(process)
        wait_for(lambda: scraped(address).get("kafka_acked_records_total", 0) > 10)
        figures = scraped(address)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert figures["kafka_sent_records_total"] >= figures["kafka_acked_records_total"]
    assert figures["kafka_forgotten_records_total"] == 0
    assert "kafka_unacked_records" in figures


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
    with Tansu(tmp_path) as broker:
        to = f"kafka://{broker.address}/{topic}?partitions=1"
        with forgetting(broker, topic):
            code = run_verb(["publish", SAMPLE, "Job1", "--to", to, *SLOWLY])
    captured = capsys.readouterr()
    assert code == 5
    assert "the broker forgot" in captured.out
    assert "Job1 up to t=" in captured.out
    assert "The producer is lost" in captured.err


def test_a_publisher_whose_records_are_all_refused_fails(apache, client_name, topic, capsys):
    """The library's own flush would have said nothing."""
    admin = KafkaAdminClient(bootstrap_servers=apache.address)
    small = {"max.message.bytes": "100"}
    admin.create_topics({topic: {"num_partitions": 1, "replication_factor": 1, "configs": small}})
    admin.close()
    words = ["publish", SAMPLE, "Job1", "--to", f"kafka://{apache.address}/{topic}"]
    assert run_verb([*words, "--kafka-client", client_name]) == 5
    lines = capsys.readouterr().err.splitlines()
    assert "does not take a record for topic" in lines[-1]
    assert any(line.startswith("0 of ") and "records acknowledged" in line for line in lines)


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["publish", SAMPLE, "--to", "kafka://{nobody}/t"], 5, "did not answer in 0.5 s"),
        (["detect", "--from", "kafka://{nobody}/t", "--to", "kafka://{nobody}/v"], 5, "answer"),
        (["score", "--trace", SAMPLE, "--from", "kafka://{nobody}/v"], 5, "did not answer"),
        (["publish", SAMPLE, "--to", "memory:"], 2, "does not name a topic"),
        (["publish", SAMPLE, "Job99", "--to", "kafka://{nobody}/t"], 2, "no job 'Job99'"),
        (["score", "--trace", SAMPLE], 2, "Which verdicts?"),
        (["run", SAMPLE, "Job1", "--via", "kafka://{nobody}/t"], 5, "did not answer in 0.5 s"),
        (["run", SAMPLE, "--via", "kafka://{nobody}/"], 2, "does not name a topic"),
        (["run", SAMPLE], 2, "--via memory has no broker."),
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
