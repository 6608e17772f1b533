"""What the host and the memory transport cost, beside the plainest code that does the same.

Run alone: ``python -m pytest tests/bench/test_host.py --benchmark-only``.
"""

from __future__ import annotations

import queue
import statistics
import threading
import time

import numpy as np
import pytest

from replay.api import Job
from replay.host import Host
from replay.messages import AlertSlice, JobStarted
from replay.plugins import DETECTORS, installed, parse_detectors
from replay.testing import stream
from replay.transports.memory import Channel

JOBS, ALERTS, ROUNDS = 98, 344_000, 5
BASELINES = ("silent", "accuse-all", "random", "loudest", "first-alert", "most-kinds")


def rows(draw, nodes):
    """One job: bursts of equal times, some nodes louder than others."""
    instants = ALERTS // JOBS // 8
    at = np.cumsum(draw.integers(1, 60, instants)).repeat(draw.integers(1, 16, instants)).tolist()
    which = draw.zipf(1.5, len(at)) % len(nodes)
    kinds = draw.integers(0, 40, len(at))
    return [(t, nodes[n], f"kind-{k}") for t, n, k in zip(at, which, kinds, strict=True)]


@pytest.fixture(scope="module")
def messages():
    """A stream the size of the whole data set."""
    draw = np.random.default_rng(7)
    nodes = tuple(f"node-{number:03}" for number in range(64))
    return [
        message
        for number in range(JOBS)
        for message in stream(Job(f"Job{number}", nodes), rows(draw, nodes), end=1e5)
    ]


def forget_objects(messages):
    """Alert objects are made once and kept; each round has to make its own."""
    for message in messages:
        if isinstance(message, AlertSlice):
            message.batch._alerts = None


def bare(specs, messages):
    """Call the same detectors, and nothing else: no time, no stamps, no care."""
    said = []
    detectors = []
    for message in messages:
        if isinstance(message, AlertSlice):
            for detector in detectors:
                said.extend(detector.observe_batch(message.batch))
        elif isinstance(message, JobStarted):
            detectors = [spec.build(message.job) for spec in specs]
        else:
            for detector in detectors:
                said.extend(detector.finish())
    return said


def hosted(specs, messages):
    return Host(specs).feed(messages)


@pytest.mark.parametrize("names", [("silent",), (*BASELINES, "burst")], ids=["one", "seven"])
@pytest.mark.benchmark(timer=time.process_time)
def test_host_against_a_bare_loop(benchmark, messages, names):
    specs = parse_detectors(names)
    reference = []

    def setup():
        forget_objects(messages)
        begun = time.process_time()
        bare(specs, messages)
        reference.append(time.process_time() - begun)
        forget_objects(messages)
        return (specs, messages), {}

    said = benchmark.pedantic(hosted, setup=setup, rounds=ROUNDS)
    ratio = benchmark.stats.stats.median / statistics.median(reference)
    slices = sum(isinstance(message, AlertSlice) for message in messages)
    alerts = sum(len(m.batch) for m in messages if isinstance(m, AlertSlice))
    benchmark.extra_info |= {
        "alerts": alerts,
        "slices": slices,
        "verdicts": len(said),
        "bare_loop_s": round(statistics.median(reference), 3),
        "host_over_bare_loop": round(ratio, 2),
        "host_us_per_slice_and_detector": round(
            (benchmark.stats.stats.median - statistics.median(reference))
            * 1e6
            / slices
            / len(names),
            2,
        ),
    }
    if len(names) > 1:
        assert ratio <= 3


@pytest.mark.parametrize("name", sorted({point.name for point in installed(DETECTORS)}))
@pytest.mark.benchmark(timer=time.process_time)
def test_cost_per_alert(benchmark, messages, name):
    """Each built-in on one job."""
    one = messages[: len(messages) // JOBS]
    alerts = sum(len(message.batch) for message in one if isinstance(message, AlertSlice))
    specs = parse_detectors([name])
    benchmark.pedantic(lambda: forget_objects(one) or hosted(specs, one), rounds=5)
    benchmark.extra_info["us_per_alert"] = round(benchmark.stats.stats.median * 1e6 / alerts, 2)


def through_channel(messages):
    channel = Channel()
    with channel.sink as sink:
        thread = threading.Thread(
            target=lambda: [sink.publish([m]) for m in messages] and sink.close()
        )
        thread.start()
        count = 0
        while (came := channel.source.poll(10)) is not None:
            count += len(came)
        thread.join()
    return count


def through_queue(messages):
    pipe = queue.Queue(10_000)
    thread = threading.Thread(target=lambda: [pipe.put(m) for m in messages] and pipe.put(None))
    thread.start()
    count = 0
    while pipe.get() is not None:
        count += 1
    thread.join()
    return count


def test_memory_transport_against_a_queue(benchmark, messages):
    some = messages[:20_000]
    reference = []

    def setup():
        begun = time.perf_counter()
        assert through_queue(some) == len(some)
        reference.append(time.perf_counter() - begun)
        return (some,), {}

    assert benchmark.pedantic(through_channel, setup=setup, rounds=ROUNDS) == len(some)
    ratio = benchmark.stats.stats.median / statistics.median(reference)
    benchmark.extra_info |= {
        "messages": len(some),
        "queue_s": round(statistics.median(reference), 4),
        "channel_over_queue": round(ratio, 2),
    }
