"""What each built-in detector costs per alert, on a made trace, batch by batch.

Run alone: ``python -m pytest tests/bench/test_detectors.py --benchmark-only``.
"""

from __future__ import annotations

import statistics
import time

import pytest

from replay.engine import Playback, Player
from replay.host import Host
from replay.plugins import DETECTORS, DetectorSpec, installed
from replay.timeline import Timeline
from replay.traces import synth

NAMES = tuple(
    point.name
    for point in installed(DETECTORS)
    if point.value.startswith("detectors.") and not point.value.startswith("detectors.rules.")
)
TARGET = 3.0  # microseconds per alert, the median built-in less the loop that feeds it


@pytest.fixture(scope="module")
def messages():
    """A whole made trace as the engine publishes it, alerts built once as for the first detector."""
    kept = []
    made = synth.make("dataset", jobs=20, seed=101)
    Player(Timeline.build(made.trace), kept.extend, Playback(), run="bench").play()
    for message in kept:
        if hasattr(message, "batch"):
            _ = message.batch.alerts
    return kept


def cost(name, messages):
    """Microseconds of CPU per alert."""
    host = Host([DetectorSpec.parse(name)], perf=time.process_time_ns)
    host.feed(messages)
    assert not host.tally.failures
    spent = host.tally.costs[name]
    return spent.ns / 1e3 / spent.alerts


def test_cost_per_alert(benchmark, messages, table):
    costs = {name: min(cost(name, messages) for _ in range(3)) for name in NAMES}
    benchmark.pedantic(cost, ("learned", messages), rounds=1)
    loop = costs["silent"]
    for name, spent in sorted(costs.items(), key=lambda item: item[1]):
        table(
            f"D.{name}",
            f"{spent:.2f} us/alert",
            f"{loop:.2f} us silent",
            "-",
            f"{spent / loop:.1f}x",
        )
    middle = statistics.median(costs.values())
    table(
        "D",
        f"{middle - loop:.2f} us/alert, median beyond silent",
        f"{middle:.2f} us with the host's loop and clock",
        f"<= {TARGET:g} us",
        f"{middle - loop:.2f}",
        middle - loop <= TARGET,
    )
