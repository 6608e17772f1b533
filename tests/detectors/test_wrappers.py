"""Wrappers and the vote: what they let through, hold back and take back."""

from __future__ import annotations

import pytest

from detectors.baselines import AccuseAll, FirstAlert, Loudest
from detectors.docket import Docket
from detectors.ensemble import Vote
from detectors.filters import Dedup, Suppress
from detectors.gates import Breaker, Continuity, Recovery, TopK
from replay.api import Job
from replay.plugins import DetectorSpec
from replay.testing import play


@pytest.fixture
def says(job, words):
    """What a wrapper makes of a script: ``says(Continuity, inner, hold=30)``."""

    def says(wrapper, inner, alerts=(), end=1000.0, **options):
        spec = DetectorSpec.of(wrapper, "wrapped", inner=inner, **options)
        return words(play(job, alerts, spec, end=end))

    return says


def test_a_blame_that_stands_long_enough_passes_at_that_time(says, scripted):
    inner = scripted((10.0, "+a"), (20.0, "+b"), (25.0, "-b"), (100.0, "-a"))
    assert says(Continuity, inner, hold=30) == [(40.0, "+a"), (100.0, "-a")]


def test_a_blame_held_anew_starts_again(says, scripted):
    inner = scripted((10.0, "+a"), (20.0, "-a"), (30.0, "+a"))
    assert says(Continuity, inner, hold=30) == [(60.0, "+a")]


def test_revisions_do_not_restart_the_clock_and_pass_once_spoken(says, scripted):
    inner = scripted((10.0, "+a"), (20.0, "+a 2"), (50.0, "+a 3"))
    assert says(Continuity, inner, hold=30) == [(40.0, "+a"), (50.0, "+a")]


def test_what_stands_at_the_end_passes(says, scripted):
    assert says(Continuity, scripted((990.0, "+a"), last=["+b"]), hold=30) == [
        (1000.0, "+a"),
        (1000.0, "+b"),
    ]
    assert says(Continuity, scripted((990.0, "+a"), last=["-a"]), hold=30) == []


def test_the_hold_grows_with_the_job(says, scripted):
    assert says(Continuity, scripted((100.0, "+a")), hold=5, share=0.5) == [(150.0, "+a")]


def test_the_breaker_stops_mass_verdicts_and_says_so_once(says):
    assert says(Breaker, AccuseAll, nodes=2) == [(0.0, "+a"), (0.0, "+b"), (0.0, "+None")]


def test_the_breaker_counts_nodes_not_verdicts(says, scripted):
    script = scripted((1.0, "+a"), (2.0, "-a"), (3.0, "+a"), (4.0, "+b"), (5.0, "-c"))
    assert says(Breaker, script, nodes=1) == [(1.0, "+a"), (2.0, "-a"), (3.0, "+a"), (4.0, "+None")]


@pytest.mark.parametrize(("nodes", "limit"), [(4, 3), (30, 3), (50, 5), (18_000, 1800)])
def test_the_limit_is_three_nodes_or_a_tenth(nodes, limit):
    docket = Docket(Job("big", tuple(f"n{number:05}" for number in range(nodes))))
    said = [verdict for node in docket._members for verdict in docket.blame(node)]
    assert len(said) == min(limit + 1, nodes)
    assert said[-1].node is None
    assert f"{limit} of {nodes}" in said[-1].reason


def test_recovery_by_kind_and_by_quiet(says):
    alerts = [(10.0, "a", "down"), (20.0, "a", "up"), (30.0, "a", "down")]
    assert says(Recovery, FirstAlert, alerts, kinds=("up",), quiet=0) == [
        (10.0, "+a"),
        (20.0, "-a"),
    ]
    alerts = [(10.0, "a", "down"), (60.0, "a", "down")]
    assert says(Recovery, FirstAlert, alerts, quiet=100) == [(10.0, "+a"), (160.0, "-a")]


def test_top_k_keeps_the_surest(says, scripted):
    inner = scripted((1.0, "+a 0.4"), (2.0, "+b 0.3"), (3.0, "+c 0.9"), (4.0, "-a"), (5.0, "-c"))
    assert says(TopK, inner) == [(1.0, "+a"), (3.0, "-a"), (3.0, "+c"), (5.0, "-c")]


def test_dedup_and_suppression_change_what_is_heard(says):
    shouting = [(float(second), "a", "ecc") for second in range(50)]
    wave = [(60.0, node, "reset") for node in "abcdefgh" * 3]
    two = [(70.0, "b", "xid"), (71.0, "b", "remap")]
    assert says(Dedup, Loudest, shouting + two) == [(1000.0, "+b")]
    assert says(Suppress, Loudest, wave + two) == [(1000.0, "+b")]


def test_filters_pass_a_batch_as_they_pass_its_alerts(job):
    alerts = [(5.0, node, kind) for node in "abca" for kind in "xyx"]
    for wrapper in ("dedup:inner=loudest", "suppress:inner=most-kinds"):
        whole = play(job, alerts, wrapper, end=9.0)
        assert [t.verdict.node for t in whole] == ["a"]


def test_a_vote_needs_its_quorum_at_one_time(job, words, scripted):
    def vote(*members, quorum):
        spec = DetectorSpec.of(Vote, "vote", members=members, quorum=quorum)
        return words(play(job, [], spec, end=100.0))

    one = scripted((10.0, "+a"), (20.0, "-a"), last=["+c"])
    other = scripted((15.0, "+a"), (30.0, "+b"), last=["+c"])
    assert vote(one, other, quorum=2) == [(15.0, "+a"), (20.0, "-a"), (100.0, "+c")]
    assert vote(one, other, quorum=1) == [(10.0, "+a"), (30.0, "+b"), (100.0, "+c")]


def test_wrappers_nest_and_are_written_as_text(job):
    text = "top-k:inner=(continuity:inner=(breaker:inner=accuse-all,nodes=2),hold=5)"
    assert [(t.at, t.verdict.node) for t in play(job, [], text, end=60.0)] == [
        (5.0, "a"),
        (5.0, None),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "continuity:hold=0",
        "continuity:share=-1",
        "breaker:nodes=0",
        "breaker:share=2",
        "recovery:quiet=-1",
        "top-k:k=0",
        "vote:quorum=9",
        "dedup:ttl=0",
        "suppress:share=0",
    ],
)
def test_senseless_options_are_refused(text):
    with pytest.raises(Exception, match="must"):
        DetectorSpec.parse(text)
