"""Rules over a whole set, against VictoriaMetrics and vmalert in replay mode."""

from __future__ import annotations

import http.client
import json
import resource
import shutil
import socket
import subprocess
import time

import numpy as np
import pytest

from detectors.rules.commands import _about, _histories, _scored
from detectors.rules.counters import Census
from detectors.rules.files import parse_rules
from detectors.rules.program import Program, Settings
from detectors.rules.watch import changes_of, ticks
from replay import traces
from replay.scoring import Policy
from replay.traces.synth import make

pytestmark = pytest.mark.bench

BASE = 1_700_000_100  # Unix seconds at which every job begins for the peer
RULES = """
groups:
- name: nodes
  interval: 15s
  rules:
  - alert: OneKind
    expr: increase(llm_alert_events_total{event="event_kind_3"}[5m]) > 3
  - alert: Noisy
    expr: sum by (job_id, ip) (increase(llm_alert_events_total[5m])) > 20
  - alert: Share
    expr: |
      sum by (job_id, ip) (increase(llm_alert_events_total[5m]))
        / on (job_id) group_left ()
      sum by (job_id) (increase(llm_alert_events_total[5m])) > 0.2
  - alert: Kinds
    expr: count by (job_id, ip) (increase(llm_alert_events_total[10m]) > 0) >= 6
  - alert: Rate
    expr: |
      sum by (job_id, ip) (rate(llm_alert_events_total{event=~"event_kind_5|event_kind_6"}[1m])) > 0.05
    for: 1m
"""


@pytest.fixture(scope="module")
def parquet(tmp_path_factory):
    """98 jobs, about 344,000 alerts."""
    path = tmp_path_factory.mktemp("rules") / "set"
    traces.write(make("dataset", 98, 7).trace, path, form="parquet")
    return path


@pytest.fixture(scope="module")
def program():
    return Program(parse_rules(RULES, "rules.yml"), Settings())


def ours(parquet, program):
    """Load, evaluate and score; seconds."""
    begun = time.perf_counter()
    trace = traces.open(str(parquet))
    score = _scored(trace, program, Policy(resamples=0), _about(program, comparable=True), None)
    assert len(score.detectors) == 6
    return time.perf_counter() - begun


class Peer:
    """A VictoriaMetrics of our own, on a free port."""

    def __init__(self, folder):
        self.folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        for name in ("victoria-metrics", "vmalert"):
            assert shutil.which(name), f"{name} is not installed: apt-get install victoria-metrics"
        self.process = subprocess.Popen(
            [
                "victoria-metrics",
                f"-storageDataPath={folder / 'data'}",
                f"-httpListenAddr=127.0.0.1:{self.port}",
                "-retentionPeriod=100y",
                "-search.latencyOffset=0s",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def __enter__(self):
        give_up = time.monotonic() + 60
        while True:
            try:
                self.ask("GET", "/health")
            except OSError:
                assert time.monotonic() < give_up, "VictoriaMetrics does not answer"
                time.sleep(0.05)
            else:
                return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(30)

    def ask(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        connection.request(method, path, body)
        answer = connection.getresponse()
        answer.read()
        assert answer.status < 300, (path, answer.status)
        connection.close()

    def replay(self, rules, until):
        begun = time.perf_counter()
        url = f"http://127.0.0.1:{self.port}"
        done = subprocess.run(
            [
                "vmalert",
                f"-rule={rules}",
                f"-datasource.url={url}",
                f"-remoteWrite.url={url}",
                "-httpListenAddr=127.0.0.1:0",
                "-replay.rulesDelay=0s",
                f"-replay.timeFrom={stamp(0)}",
                f"-replay.timeTo={stamp(until)}",
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return time.perf_counter() - begun


def stamp(seconds):
    return str(np.datetime64(int(BASE + seconds), "s")) + "Z"


def lines(trace):
    """The counters of every job where they change, as the peer imports them: its best case."""
    for history in _histories(trace):
        block = Census(history, 15_000, "none").block(ticks(0, history.end, 15_000, 0))
        for row, labels in enumerate(block.labels):
            part = slice(int(block.index[row, 0]), int(block.index[row, -1]))
            values, times = block.values[part], block.times[part]
            changed = np.flatnonzero(np.diff(values, prepend=np.nan) != 0)
            document = {
                "metric": dict(labels),
                "values": values[changed].tolist(),
                "timestamps": (times[changed] + BASE * 1000).tolist(),
            }
            yield json.dumps(document)


def test_whole_set(parquet, program, benchmark, table, tmp_path):
    trace = traces.open(str(parquet))
    body = "\n".join(lines(trace)).encode()
    longest = max(job.duration_ns for job in trace.jobs) / 1e9
    rules = tmp_path / "rules.yml"
    rules.write_text(RULES)
    with Peer(tmp_path) as peer:
        begun = time.perf_counter()
        peer.ask("POST", "/api/v1/import", body)
        peer.ask("GET", "/internal/force_flush")
        loaded = time.perf_counter() - begun
        evaluated = peer.replay(rules, longest)
    theirs = loaded + evaluated
    benchmark.pedantic(lambda: ours(parquet, program), rounds=2)
    seconds = benchmark.stats.stats.min
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    ratio = seconds / theirs
    table(
        "rules.set",
        "98 jobs, 5 rules: load, evaluate, score",
        f"VictoriaMetrics import {loaded:.1f} s + vmalert -replay {evaluated:.1f} s",
        "≤ 1/3",
        f"{seconds:.2f} s, {ratio:.3f} of it; {memory:.0f} MB at most in this process",
        ratio <= 1 / 3,
    )


def test_one_job(parquet, program, benchmark, table):
    histories = list(_histories(traces.open(str(parquet))))
    largest = max(histories, key=lambda history: len(history.at))
    benchmark.pedantic(lambda: changes_of(program, largest), rounds=3)
    seconds = benchmark.stats.stats.min
    table(
        "rules.job",
        f"one job, {len(largest.at)} alerts, 5 rules",
        "-",
        "< 0.5 s",
        f"{seconds:.3f} s",
        seconds < 0.5,
    )
