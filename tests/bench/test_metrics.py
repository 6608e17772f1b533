"""A scrape of 5,000 series, against the library's own counters."""

from __future__ import annotations

import time
import urllib.request

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, Counter, generate_latest

from replay.api import AlertBatch, Job
from replay.cli.serving import served
from replay.messages import AlertSlice, JobStarted
from replay.metrics import Metrics

NODES = tuple(f"10.0.{number // 250}.{number % 250}" for number in range(250))
KINDS = tuple(f"event_kind_{number}" for number in range(20))


def every_pair():
    """One alert of each of 5,000 pairs."""
    node, kind = (
        codes.ravel().astype(np.int32)
        for codes in np.meshgrid(np.arange(len(NODES)), np.arange(len(KINDS)), indexing="ij")
    )
    batch = AlertBatch("Job1", 1.0, np.arange(len(node)), node, kind, NODES, KINDS)
    return AlertSlice("r", 0, batch)


@pytest.fixture(scope="module")
def metrics():
    metrics = Metrics()
    metrics.published(JobStarted("r", 0, Job("Job1", NODES, "A100"), "1970-01-01 00:00:00"))
    metrics.published(every_pair())
    assert metrics.series.size == 5000
    return metrics


@pytest.fixture(scope="module")
def reference():
    """Seconds that the library takes for the same family."""
    registry = CollectorRegistry()
    counter = Counter("llm_alert_events", "Alerts.", ["job_id", "ip", "event"], registry=registry)
    for node in NODES:
        for kind in KINDS:
            counter.labels("Job1", node, kind).inc()
    times = []
    for _ in range(3):
        begun = time.perf_counter()
        generate_latest(registry)
        times.append(time.perf_counter() - begun)
    return min(times)


@pytest.mark.parametrize("changed", ["nothing", "everything"])
def test_render(metrics, reference, benchmark, table, changed):
    def setup():
        if changed == "everything":
            metrics.published(every_pair())

    benchmark.pedantic(metrics.render, setup=setup, rounds=30, warmup_rounds=2)
    seconds = benchmark.stats.stats.median
    table(
        f"metrics.render.{changed}",
        f"5,000 series, {changed} changed",
        f"prometheus_client {1e3 * reference:.0f} ms",
        "≤ 5 ms",
        f"{1e3 * seconds:.2f} ms, {seconds / reference:.4f} of it",
        seconds <= 0.005,
    )


def test_scrape(metrics, reference, benchmark, table):
    with served(":0", metrics) as server:

        def scrape():
            with urllib.request.urlopen(f"{server.url}/metrics", timeout=10) as answer:
                return answer.read()

        assert scrape().count(b"llm_alert_events_total{") == 5000
        benchmark.pedantic(scrape, rounds=30, warmup_rounds=2)
    seconds = benchmark.stats.stats.median
    table(
        "metrics.scrape",
        "the same over HTTP",
        f"prometheus_client {1e3 * reference:.0f} ms, without HTTP",
        "≤ 5 ms",
        f"{1e3 * seconds:.2f} ms",
        seconds <= 0.005,
    )
