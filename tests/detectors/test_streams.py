"""What real streams have in them: no built-in breaks, forgets itself, or blames half the fleet."""

from __future__ import annotations

import gc
import random
import tracemalloc

import numpy as np
import pytest

from replay.api import AlertBatch, Job
from replay.plugins import DETECTORS, DetectorSpec, installed
from replay.testing import play

BUILT_IN = tuple(
    point.name
    for point in installed(DETECTORS)
    if point.value.startswith("detectors.")
    and not point.value.startswith(("detectors.baselines:", "detectors.rules."))
)
"""Every detector of ours that claims to find something; rules are the user's own."""

KINDS = tuple(f"kind-{number}" for number in range(30))


def limited(job, said):
    """Whether few nodes are blamed, or the breaker says that more would have been."""
    raised = {t.verdict.node for t in said if t.verdict.action == "raise"} - {None}
    told = any("circuit breaker" in t.verdict.reason for t in said)
    return len(raised) <= max(3, len(job.nodes) // 10) or told


def storms(rng, nodes, length, many):
    """Repeats, ties, bursts, lulls and nonsense; in order."""
    now, rows = 0.0, []
    while len(rows) < many:
        if rng.random() > 0.9:  # nine gaps in ten are zero
            now += rng.choice((1.0, 1.0, 5.0, 60.0, length))
        row = (now, rng.choice(nodes), rng.choice(KINDS))
        rows += [row] * (1 + (rng.random() < 0.43))
    return rows


@pytest.mark.parametrize("name", BUILT_IN)
def test_repeats_ties_lulls_and_days_between(name):
    rng = random.Random(7)
    job = Job("rough", tuple(f"node-{number:02}" for number in range(40)))
    rows = storms(rng, job.nodes, 3 * 86_400.0, 3000)
    assert limited(job, play(job, rows, name, end=rows[-1][0] + 60.0))


@pytest.mark.parametrize("name", BUILT_IN)
def test_hundreds_of_alerts_in_one_second(name):
    rng = random.Random(8)
    job = Job("burst", tuple(f"node-{number:02}" for number in range(40)))
    rows = [(500.0, rng.choice(job.nodes), rng.choice(KINDS)) for _ in range(237)]
    assert limited(job, play(job, rows, name, end=900.0))


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_fleet_of_18000_nodes(name):
    job = Job("huge", tuple(f"node-{number:05}" for number in range(18_000)))
    culprit = job.nodes[9000]
    storm = [(1000.0 + number % 3, node, "reset") for number, node in enumerate(job.nodes[:6000])]
    fault = [(995.0, culprit, "xid_48"), (996.0, culprit, "row_remap_failure")]
    said = play(job, sorted(fault + storm, key=lambda row: row[0]), name, end=1200.0)
    assert limited(job, said)


@pytest.mark.parametrize("name", BUILT_IN)
@pytest.mark.parametrize("rows", [[], [(5.0, "node-a", "xid_48")]], ids=["none", "one"])
def test_jobs_with_no_alert_or_one(name, rows):
    assert play(Job("small", ("node-a", "node-b")), rows, name, end=60.0) == []


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_culprit_that_never_speaks_is_not_replaced_by_another(name):
    job = Job("mute", tuple(f"node-{number:02}" for number in range(24)))
    storm = [(1000.0 + number % 4, node, "reset") for number, node in enumerate(job.nodes[1:])]
    assert play(job, sorted(storm), name, end=1200.0) == []


@pytest.mark.parametrize("name", BUILT_IN)
def test_kinds_that_nobody_has_seen_before(name):
    """Every alert says something new: a handful of nodes at most is blamed for that."""
    rng = random.Random(9)
    job = Job("new", tuple(f"node-{number:02}" for number in range(40)))
    rows = [(60.0 * number, rng.choice(job.nodes), f"kind-{number}") for number in range(300)]
    assert limited(job, play(job, rows, name, end=20_000.0))


@pytest.mark.parametrize("name", sorted({*BUILT_IN} - {"learned", "log-odds"}))
def test_what_a_kind_is_called_means_nothing(name):
    """Learned detectors apart: they know names from other jobs, and nothing but those."""
    rng = random.Random(10)
    job = Job("named", tuple(f"node-{number:02}" for number in range(20)))
    rows = storms(rng, job.nodes, 3600.0, 400)
    other = [(at, node, f"{kind[::-1]}!") for at, node, kind in rows]
    plain, renamed = (
        [(t.at, t.verdict.node, t.verdict.action) for t in play(job, these, name, end=9e4)]
        for these in (rows, other)
    )
    assert plain == renamed


@pytest.mark.once
@pytest.mark.parametrize("name", BUILT_IN)
def test_memory_is_bounded_over_ten_days(name):
    """From the fifth day to the tenth a detector hardly grows: ten bytes for each alert it saw."""
    nodes, kinds = 16, 12
    job = Job("long", tuple(f"node-{number:02}" for number in range(nodes)))
    detector = DetectorSpec.parse(name).build(job)
    rng = np.random.default_rng(1)
    many = 4_000
    at = np.sort(rng.uniform(0, 864_000, many)).tolist()
    node = rng.integers(0, nodes, many).astype(np.int32)
    kind = rng.integers(0, kinds, many).astype(np.int32)
    names = tuple(f"kind-{number}" for number in range(kinds))
    sizes = []
    tracemalloc.start()
    try:
        for number, when in enumerate(at):
            while detector.wake_at is not None and detector.wake_at < when:
                detector.advance(detector.wake_at)
            part = slice(number, number + 1)
            seq = np.array([number])
            detector.observe_batch(
                AlertBatch("long", when, seq, node[part], kind[part], job.nodes, names)
            )
            if number in {many // 2, many - 1}:
                gc.collect()
                sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert sizes[1] - sizes[0] < 10 * many // 2


@pytest.mark.parametrize("name", BUILT_IN)
def test_documented(name):
    """Each says in words what it does, what it costs, where it comes from; and shows a picture."""
    doc = DetectorSpec.parse(name).cls.__doc__
    assert all(word in doc for word in ("Args:", "Examples:", "::", "Cost:", "Source:")), name
