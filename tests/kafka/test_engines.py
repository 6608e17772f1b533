"""The state of one key, for stream engines: by itself, and as Quix Streams runs what we document."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
import textwrap

import pytest
from kafka_brokers import ROOT
from kafka_jobs import SPECS, alone, interleaved, jobs_of, said
from uv import find_uv_bin

from replay.host import JobHost
from replay.messages import TimedVerdict
from replay.plugins import DetectorSpec
from replay.transports.kafka.case import KeyedCases
from replay.transports.kafka.clients import client
from replay.transports.kafka.collect import collect
from replay.transports.kafka.outbox import ensure_topic
from replay.transports.kafka.settings import Settings
from replay.transports.kafka.sink import KafkaSink
from replay.transports.wire import Encoder, Judged, PoisonError, decode_verdict

BURST = "burst:window=30,threshold=3"


def hosts():
    return JobHost(SPECS)


def records_of(messages):
    encoder = Encoder()
    return [value for message in messages for value in encoder.encode(message)]


def test_a_key_kept_as_bytes_says_what_one_process_says():
    """Pickled after every record, and every record twice."""
    jobs = jobs_of(2, 40)
    came = []
    for messages in jobs.values():
        kept = pickle.dumps(KeyedCases(hosts))
        for value in records_of(messages):
            for _ in range(2):
                key = pickle.loads(kept)
                came += key.feed(value)
                kept = pickle.dumps(key)
        assert key.counters.gaps == 0
        assert key.counters.duplicates > 40
    told = [decode_verdict(value) for value in came]
    assert said([word for word in told if isinstance(word, TimedVerdict)]) == alone(jobs)
    ends = [word for word in told if isinstance(word, Judged)]
    assert [(end.job, end.count, end.missing) for end in ends] == [("Job1", 40, 0), ("Job2", 40, 0)]


def test_a_key_may_be_replayed_again_and_hold_poison():
    key = KeyedCases(hosts)
    for run in ("old", "new"):
        jobs = jobs_of(1, 20, run=run)
        with pytest.raises(PoisonError):
            key.feed(b"no JSON")
        came = [decode_verdict(v) for value in records_of(jobs["Job1"]) for v in key.feed(value)]
        assert said(came[:-1]) == alone(jobs)
        assert {word.run for word in came} == {run}


def documented(title, **changes):
    """The code that follows a title in the documentation, with some words put otherwise."""
    text = KeyedCases.__doc__.partition(f"{title}::\n")[2]
    lines = textwrap.dedent(text).splitlines()
    after = next(n for n, line in enumerate(lines) if line and not line.startswith("    "))
    code = textwrap.dedent("\n".join(lines[:after]))
    for old, new in changes.items():
        code, count = re.subn(re.escape(old), new, code)
        assert count == 1, old
    return code


def test_what_is_documented_is_python():
    for title in ("Quix Streams", "wants Java)"):
        compile(documented(title), title, "exec")


@pytest.fixture
def engine_python(tmp_path):
    """An interpreter that has the engine; not ours, for the engine wants a client of its own."""
    env = tmp_path / "env"
    uv = [find_uv_bin(), "-q"]
    subprocess.run([*uv, "venv", "--python", sys.executable, env], check=True)
    install = [*uv, "pip", "install", "--python", env, "-e", ROOT, "--group", "engines"]
    subprocess.run(install, check=True, cwd=ROOT)
    return env / "bin" / "python"


@pytest.mark.kafka
def test_quix_streams_says_what_one_process_says(apache, topic, tmp_path, engine_python):
    source = Settings(apache.address, topic, partitions=2, wait=60.0)
    target = source.on(f"{topic}-verdicts")
    jobs = jobs_of(4, 60)
    ensure_topic(target, client(target))
    with KafkaSink(source) as sink:
        sink.publish(interleaved(jobs))
    changes = {
        '"127.0.0.1:9092"': repr(apache.address),
        'consumer_group="g"': f"consumer_group={topic!r}",
        'topic("alerts"': f"topic({source.topic!r}",
        'topic("verdicts"': f"topic({target.topic!r}",
        '["burst"]': repr([BURST]),
    }
    (tmp_path / "wrapper.py").write_text(documented("Quix Streams", **changes))
    with (tmp_path / "wrapper.log").open("wb") as log:
        wrapper = subprocess.Popen(
            [engine_python, "wrapper.py"], cwd=tmp_path, stdout=log, stderr=log
        )
    try:
        collected = collect(target, jobs, idle=120.0)
    finally:
        wrapper.terminate()
        wrapper.wait(60)
    assert said(collected.verdicts) == alone(jobs, (DetectorSpec.parse(BURST),))
    assert collected.complete
    assert (collected.conflicts, collected.poisoned) == (0, 0)
