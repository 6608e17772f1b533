"""Small scenes: whom each detector blames, and whom it leaves alone."""

from __future__ import annotations

import pytest

from replay.api import Job
from replay.testing import play

NODES = tuple(f"node-{number:02}" for number in range(24))
JOB = Job("scene", NODES, "Hopper")
CULPRIT = "node-07"

HUM = [(400.0 * number + 7.0, NODES[5 * number % 24], "ecc") for number in range(50)]
"""One harmless kind, now here, now there."""

FAULT = [
    (20_000.0, CULPRIT, "xid_48"),
    (20_001.0, CULPRIT, "row_remap_failure"),
    (20_002.0, CULPRIT, "dcgm_unhealthy"),
    *((20_000.0 + 12.0 * poll, CULPRIT, "xid_48") for poll in range(1, 8)),
]
"""A node says in three words what is wrong with it, and goes on saying so."""

CASCADE = [
    (20_006.0 + number % 5, node, kind)
    for number, node in enumerate(NODES)
    if node != CULPRIT
    for kind in ("process_exit", "connection_reset_by_peer")
]
"""The others fall over."""

WAVE = [(10_000.0 + number % 3, node, "nic_down") for number, node in enumerate(NODES)]
"""Everybody says the same, and nothing is wrong."""

CHATTER = [(5000.0 + 3.0 * number, "node-11", "xid_45") for number in range(900)]
"""One healthy node shouts for three quarters of an hour."""

END = 20_200.0
FINDERS = (
    "burst",
    "tolerance",
    "distinct-kinds",
    "sequence",
    "silence",
    "first-in-storm",
    "rate-change",
    "peers",
    "episodes",
    "vote",
    "dedup",
    "suppress",
    "continuity",
    "breaker",
    "recovery",
    "top-k",
    "log-odds",
    "learned",
)


def blamed(name, *parts, job=JOB, end=END):
    rows = sorted((row for part in parts for row in part), key=lambda row: row[0])
    return [t for t in play(job, rows, name, end=end) if t.verdict.action == "raise"]


@pytest.mark.parametrize("name", FINDERS)
def test_finds_the_culprit_within_two_minutes(name):
    found = blamed(name, HUM, FAULT, CASCADE)
    assert {timed.verdict.node for timed in found} == {CULPRIT}
    assert found[0].at - 20_000.0 <= 120.0
    assert found[0].verdict.reason
    assert found[0].verdict.evidence


@pytest.mark.parametrize("name", FINDERS)
def test_leaves_a_healthy_job_alone(name):
    assert blamed(name, HUM) == []


@pytest.mark.parametrize("name", FINDERS)
def test_a_wave_that_everybody_is_in_is_nobodys_fault(name):
    assert blamed(name, HUM, WAVE) == []


@pytest.mark.parametrize("name", sorted(set(FINDERS) - {"burst", "tolerance"}))
def test_shouting_is_no_fault(name):
    """Burst and tolerance count repeats, and may take a shouting node for a failing one."""
    assert blamed(name, HUM, CHATTER) == []


def test_a_lone_word_is_believed_only_with_a_storm():
    word = FAULT[:1]
    assert blamed("episodes", HUM, word) == []
    assert [t.verdict.node for t in blamed("episodes", HUM, word, CASCADE)] == [CULPRIT]


def test_roles_by_configuration():
    kinds = "certain=xid_48,tolerated=nic_down,noise=ecc"
    assert [t.at for t in blamed(f"episodes:{kinds}", HUM, FAULT[:1])] == [20_000.0]
    again = [
        (100.0, CULPRIT, "nic_down"),
        (103.0, CULPRIT, "nic_down"),
        (130.0, CULPRIT, "nic_down"),
    ]
    assert [t.at for t in blamed(f"episodes:{kinds}", again)] == [130.0]
    assert [t.at for t in blamed("tolerance:certain=xid_48", HUM, FAULT[:1])] == [20_000.0]
    assert blamed("tolerance:kinds=nic_down", HUM, FAULT) == []


def test_no_verdict_escalates_on_demand():
    storm = [row for row in CASCADE if row[1] != "node-00"]
    assert blamed("episodes", HUM, storm) == []
    (found,) = blamed("episodes:escalate=true", HUM, storm)
    assert found.verdict.node is None
    assert "escalate" in found.verdict.reason


def test_an_episode_begins_with_a_trigger():
    hang = [(20_030.0, "node-03", "job_hang"), *FAULT[:1]]
    assert blamed("episodes", HUM, hang) == []
    assert CULPRIT in {t.verdict.node for t in blamed("episodes:trigger=job_hang", HUM, hang)}


@pytest.mark.parametrize(("ties", "wanted"), [("all", 2), ("first", 1), ("none", 0)])
def test_ties_before_a_storm(ties, wanted):
    both = [(20_000.0, CULPRIT, "xid_48"), (20_000.0, "node-09", "gpu_lost")]
    storm = [row for row in CASCADE if row[1] != "node-09"]
    found = blamed(f"first-in-storm:ties={ties},margin=0", HUM, both, storm)
    assert len(found) == wanted


def test_a_change_of_rate_and_an_outlier_are_taken_back():
    later = [(21_000.0, CULPRIT, "ecc")]
    for name in ("rate-change", "peers"):
        rows = sorted([*HUM, *FAULT[:3], *later])
        said = play(JOB, rows, name, end=22_000.0)
        assert [t.verdict.action for t in said] == ["raise", "retract"], name
