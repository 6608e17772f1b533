"""Memory of a stream: each window agrees with the plainest code that says the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detectors.windows import Fleet, Lately, Onsets, RareOnsets, Storm
from replay.api import Alert, Job

STEPS = st.lists(st.tuples(st.integers(0, 9), st.sampled_from("abcd"), st.sampled_from("xy")))


def timed(steps):
    now = 0.0
    for gap, node, kind in steps:
        now += gap
        yield now, node, kind


@given(STEPS)
def test_lately_is_what_happened_within_the_window(steps):
    lately, seen = Lately(10), {}
    for at, node, _ in timed(steps):
        new = node not in seen or at - seen[node] > 10
        assert lately.add(node, at) is new
        seen[node] = at
        assert set(lately) == {other for other, when in seen.items() if at - when <= 10}
        assert len(lately) == len(set(lately))
        assert [when for _, when in lately.items()] == sorted(when for _, when in lately.items())


def test_forgetting_without_a_new_entry():
    lately = Lately(10)
    lately.add("a", 0.0)
    lately.forget(10.0)
    assert "a" in lately
    lately.forget(10.5)
    assert "a" not in lately
    assert lately.get("a") == float("-inf")
    lately.forget(99.0)


@given(STEPS)
def test_fleet_counts_nodes_per_kind(steps):
    job = Job("j", tuple("abcd"))
    fleet, seen = Fleet(job, window=10, share=0.5), {}
    for at, node, kind in timed(steps):
        seen[node, kind] = at
        fleet.add(node, kind, at)
        nodes = {n for (n, k), when in seen.items() if k == kind and at - when <= 10}
        assert fleet.wide(kind) is (len(nodes) >= 2)
        assert fleet.others(node, kind, at, 5.0) == sum(
            n != node and at - seen[n, kind] <= 5 for n in nodes
        )
        assert fleet.joins(node, at, len(nodes))


def test_strangers_do_not_count_unless_the_job_lists_no_nodes():
    assert not Fleet(Job("j", ("a",)), window=10, share=1).add("z", "x", 0.0)
    assert Fleet(Job("j"), window=10, share=1).add("z", "x", 0.0)


def test_an_onset_is_judged_when_the_fleet_has_had_time_to_speak(job):
    onsets = Onsets(job, share=0.3, settle=10)
    for seq, (at, node, kind) in enumerate(
        [(0.0, "a", "x"), (1.0, "a", "y"), (2.0, "b", "x"), (3.0, "c", "x")]
    ):
        assert onsets.add(Alert("Job1", seq, at, node, kind))
    assert onsets.due == 10.0
    assert onsets.settled(9.9) == []
    assert [(onset.node, onset.kind) for onset in onsets.settled(20.0)] == [("a", "y")]
    assert onsets.due is None


def test_a_repeat_is_no_onset(job):
    onsets = Onsets(job, window=100)
    first, *rest = (onsets.add(Alert("Job1", seq, 50.0 * seq, "a", "x")) for seq in range(5))
    assert first
    assert not any(rest)
    assert onsets.add(Alert("Job1", 9, 500.0, "a", "x"))


def test_the_new_surprises_more_than_the_known_and_calm_more_than_storm(job):
    def surprise(busy):
        onsets = RareOnsets(job, settle=0)
        for seq in range(30):
            onsets.add(Alert("Job1", seq, 1000.0 * seq, "a", "known"))
        for seq, node in enumerate(busy):
            onsets.add(Alert("Job1", 50 + seq, 29_999.0, node, f"storm-{seq}"))
        onsets.add(Alert("Job1", 98, 30_000.0, "b", "known"))
        onsets.add(Alert("Job1", 99, 30_000.0, "b", "new"))
        return {onset.kind: onset.surprise for onset in onsets.settled(30_000.0)}

    calm, storm = surprise(""), surprise("cdefgh")
    assert calm["new"] > calm["known"] + 3
    assert calm["new"] > storm["new"] + 1


def test_a_storm_begins_once(job):
    storm = Storm(job, share=0.5, least=3, calm=60)
    begins = [storm.add(node, at) for at, node in [(0.0, "a"), (1.0, "b"), (2.0, "c"), (3.0, "d")]]
    assert begins == [False, False, False, True]
    assert not storm.add("e", 4.0)
    assert storm.start == 3.0
    assert storm.on(50.0)
    assert not storm.on(64.5)
    assert [storm.add(node, 200.0) for node in "abcd"] == [False, False, False, True]


@pytest.mark.parametrize(
    "make",
    [
        lambda job: Fleet(job, window=0, share=0.5),
        lambda job: Fleet(job, window=float("nan"), share=0.5),
        lambda job: Fleet(job, window=1, share=0),
        lambda job: Onsets(job, settle=-1),
    ],
)
def test_senseless_values_are_refused(make, job):
    with pytest.raises(ValueError, match="must"):
        make(job)
