"""Rules over a whole set, against VictoriaMetrics and vmalert in replay mode."""

from __future__ import annotations

import http.client
import json
import re
import resource
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from detectors.rules.commands import _about, _histories, _scored
from detectors.rules.counters import Census
from detectors.rules.files import parse_rules
from detectors.rules.program import Program, Settings
from detectors.rules.watch import changes_of, ticks
from replay import traces
from replay.scoring import Policy
from replay.traces.model import EVENTS, Trace, TraceJob
from replay.traces.synth import make

SECOND = 10**9
BASE = 1_700_000_100  # Unix seconds at which every job begins for the peer
RULES = """
groups:
- name: nodes
  interval: 15s
  rules:
  - alert: OneKind
    expr: increase(llm_alert_events_total{event=~"gpu_lost|event_kind_3"}[5m]) > 3
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
      sum by (job_id, ip) (rate(llm_alert_events_total{event=~"ecc_sbe|disk_fault|event_kind_[56]"}[1m])) > 0.05
    for: 1m
"""


def hours(jobs=98, alerts=344_000, seed=7):
    """98 jobs of 20 to 60 minutes, about 344,000 alerts and 90,000 series, some nodes louder."""
    draw = np.random.default_rng(seed)
    sizes = draw.multinomial(alerts, draw.dirichlet(np.full(jobs, 2.0)))
    records, columns = [], []
    for number, size in enumerate(sizes.tolist()):
        end, width = int(draw.integers(20, 61)) * 60, int(draw.integers(24, 65))
        nodes = draw.choice(width, size, p=draw.dirichlet(np.full(width, 0.3)))
        kinds = draw.choice(40, size, p=draw.dirichlet(np.full(40, 0.4)))
        loose = draw.random(size) < 0.4
        nodes = np.where(loose, draw.integers(0, width, size), nodes)
        kinds = np.where(loose, draw.integers(0, 40, size), kinds)
        at = np.sort(draw.integers(0, end, size))
        columns.append((np.full(size, number), at * SECOND, nodes, kinds))
        start, stop = (str(np.datetime64(second, "s")).replace("T", " ") for second in (0, end))
        status = {f"node-{node}": "normal" for node in range(width)} | {"node-0": "gpu_fault"}
        records.append(TraceJob(f"Job{number + 1}", start, stop, "", status, 0, end * SECOND))
    job, at, node, kind = (np.concatenate(parts) for parts in zip(*columns, strict=True))
    stamps = pa.array(at.astype("datetime64[ns]")).cast(pa.timestamp("s")).cast(pa.string())
    names = [f"node-{number}" for number in range(64)], [f"event_kind_{n}" for n in range(40)]
    words = [
        pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), list(vocabulary))
        for codes, vocabulary in zip((node, kind), names, strict=True)
    ]
    events = [pa.array(job.astype(np.int32)), words[0], stamps, words[1], pa.array(at)]
    return Trace(tuple(records), pa.table(events, schema=EVENTS), "drawn")


@pytest.fixture(scope="module", params=["hours", "days"])
def parquet(request, tmp_path_factory):
    """98 jobs: of 20 to 60 minutes as the target says, or of up to a day and a half."""
    path = tmp_path_factory.mktemp("rules") / request.param
    trace = hours() if request.param == "hours" else make("dataset", 98, 7).trace
    return traces.write(trace, path, form="parquet")


@pytest.fixture(scope="module")
def program():
    return Program(parse_rules(RULES, "rules.yml"), Settings())


def ours(parquet, program):
    """Load, evaluate and score; CPU seconds."""
    begun = _cpu(resource.RUSAGE_SELF)
    trace = traces.open(str(parquet))
    score = _scored(trace, program, Policy(resamples=0), _about(program, comparable=True), None)
    assert len(score.detectors) == 6
    return _cpu(resource.RUSAGE_SELF) - begun


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
        self.memory = peak(Path(f"/proc/{self.process.pid}/status").read_text())
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


def _cpu(who):
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def peak(status):
    """Most memory, in MB, from a process's ``/proc/.../status``.

    Not from its resource usage, which begins with the memory of the process that started it.
    """
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024


def memory_of(words):
    """Most memory, in MB, of the command in a process of its own."""
    code = (
        "import atexit, sys; from pathlib import Path; from replay.cli import main;"
        "atexit.register(lambda: sys.stderr.write(Path('/proc/self/status').read_text()));"
        "main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=True
    )
    return peak(done.stderr)


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
    before = _cpu(resource.RUSAGE_CHILDREN)
    with Peer(tmp_path) as peer:
        begun = time.perf_counter()
        peer.ask("POST", "/api/v1/import", body)
        peer.ask("GET", "/internal/force_flush")
        loaded = time.perf_counter() - begun
        evaluated = peer.replay(rules, longest)
    theirs, their_cpu = loaded + evaluated, _cpu(resource.RUSAGE_CHILDREN) - before
    cpu = []
    benchmark.pedantic(lambda: cpu.append(ours(parquet, program)), rounds=3)
    our_cpu = min(cpu)
    seconds = benchmark.stats.stats.min
    own = memory_of(["rules", "run", str(rules), str(parquet), "--resamples", "0", "--json"])
    ratio = seconds / theirs
    table(
        f"rules.set.{parquet.name}",
        "98 jobs, 5 rules: load, evaluate, score",
        f"VictoriaMetrics import {loaded:.1f} s + vmalert -replay {evaluated:.1f} s",
        "≤ 1/3",
        f"{seconds:.2f} s, {ratio:.3f} of it",
        ratio <= 1 / 3 if parquet.name == "hours" else None,
    )
    # on a busy machine wall time says who was let run; this says who worked
    table(
        f"rules.cpu.{parquet.name}",
        "the same, CPU seconds",
        f"{their_cpu:.1f} s",
        "≤ 1/3",
        f"{our_cpu:.2f} s, {our_cpu / their_cpu:.3f} of it",
        our_cpu / their_cpu <= 1 / 3 if parquet.name == "hours" else None,
    )
    table(
        f"rules.memory.{parquet.name}",
        "most memory, MB, without vmalert's",
        f"{peer.memory:.0f}",
        "no more",
        f"{own:.0f}",
        own <= peer.memory if parquet.name == "hours" else None,
    )


def test_one_job(parquet, program, benchmark, table):
    histories = list(_histories(traces.open(str(parquet))))
    largest = max(histories, key=lambda history: len(history.at))
    benchmark.pedantic(lambda: changes_of(program, largest), rounds=3)
    seconds = benchmark.stats.stats.min
    table(
        f"rules.job.{parquet.name}",
        f"one job, {len(largest.at)} alerts, 5 rules",
        "-",
        "< 0.5 s",
        f"{seconds:.3f} s",
        seconds < 0.5,
    )
