"""A run of the whole set, against a bare loop that calls the same detectors."""

from __future__ import annotations

import time

import pytest

from replay.config import RunConfig
from replay.messages import AlertSlice
from replay.plugins import parse_detectors
from replay.runner import BASELINES, Replay
from replay.testing import stream
from replay.traces.synth import make


@pytest.fixture(scope="module")
def trace():
    return make("dataset", 98, 7).trace


def bare(trace, specs):
    """Call every detector with every batch, and nothing else; seconds spent in the calls' loop."""
    jobs = []
    bounds = trace.bounds
    rows = trace.events.select(["at", "ip", "event"]).to_pydict()
    for number, job in enumerate(trace):
        part = slice(bounds[number], bounds[number + 1])
        alerts = zip(rows["at"][part], rows["ip"][part], rows["event"][part], strict=True)
        messages = stream(job.public, [(at / 1e9, node, kind) for at, node, kind in alerts])
        jobs.append((job.public, [m.batch for m in messages if isinstance(m, AlertSlice)]))
    begun = time.perf_counter()
    for job, batches in jobs:
        detectors = [spec.build(job) for spec in specs]
        for batch in batches:
            for detector in detectors:
                list(detector.observe_batch(batch))
        for detector in detectors:
            list(detector.finish())
    return time.perf_counter() - begun


def test_whole_set(trace, benchmark, table):
    specs = parse_detectors(["burst", *BASELINES])
    loop = min(bare(trace, specs) for _ in range(2))
    run = benchmark.pedantic(lambda: Replay(trace, specs, RunConfig()).play(), rounds=2)
    assert run.played.alerts == trace.events.num_rows
    seconds = benchmark.stats.stats.min
    ratio = seconds / loop
    benchmark.extra_info.update(alerts=run.played.alerts, bare_loop_s=loop, ratio=ratio)
    table(
        "whole set",
        f"98 jobs, {run.played.alerts} alerts, {len(specs)} detectors, scored: {seconds:.2f} s",
        f"bare loop of the same calls: {loop:.2f} s",
        "<= 3x",
        f"{ratio:.2f}x",
        ratio <= 3,
    )
