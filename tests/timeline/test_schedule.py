"""Where many jobs stand on one axis."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay.errors import UsageError
from replay.timeline import Schedule, seconds
from replay.timeline.schedule import Span

S = 10**9
spans = st.lists(st.builds(Span, st.integers(-20, 0), st.integers(0, 50)), max_size=12)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("together", [0, 0, 0]),
        ("sequence", [0, 12, 20]),
        ("sequence:3ns", None),
        ("pool:1", [0, 12, 20]),
        ("pool:2", [0, 0, 8]),
        ("pool:3", [0, 0, 0]),
        ("pool:99", [0, 0, 0]),
    ],
)
def test_forms(text, expected):
    jobs = [Span(-1, 10), Span(-2, 8), Span(0, 5)]
    if expected is None:
        with pytest.raises(UsageError, match="is not a duration"):
            Schedule.parse(text)
    else:
        assert Schedule.parse(text).zeros(jobs) == expected


def test_gaps_and_steps_are_durations():
    jobs = [Span(0, 10 * S)] * 3
    assert Schedule.parse("sequence:1m").zeros(jobs) == [0, 70 * S, 140 * S]
    assert Schedule.parse("stagger:500ms").zeros(jobs) == [0, S // 2, S]
    assert Schedule.parse("stagger").zeros(jobs) == [0, 60 * S, 120 * S]


def test_random_starts_are_seeded_and_lie_within():
    schedule = Schedule.parse("stagger:random:1h")
    jobs = [Span(0, 10)] * 50
    zeros = schedule.zeros(jobs, seed=3)
    assert zeros == schedule.zeros(jobs, seed=3)
    assert zeros != schedule.zeros(jobs, seed=4)
    assert all(0 <= zero < 3600 * S for zero in zeros)
    assert zeros[:3] == [856672657530, 1959225211065, 1331838599573]  # the same everywhere


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "There is no schedule ''"),
        ("parallel", "There is no schedule 'parallel'.*pool:K"),
        ("pool", "There is no schedule 'pool'"),
        ("pool:0", "a pool needs at least one worker"),
        ("pool:-1", "There is no schedule"),
        ("pool:two", "There is no schedule"),
        ("sequence:-5", "a gap of -5.0 s is negative"),
        ("sequence:nan", "'nan' is not a duration"),
        ("stagger:soon", "'soon' is not a duration"),
        ("stagger:1:2", "There is no schedule"),
    ],
)
def test_what_is_no_schedule(text, message):
    with pytest.raises(UsageError, match=message):
        Schedule.parse(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [("5", 5.0), (5, 5.0), ("1.5h", 5400.0), ("2d", 172800.0), (" 3 m ", 180.0), ("-2s", -2.0)],
)
def test_seconds(text, value):
    assert seconds(text) == value


@pytest.mark.parametrize("text", ["", "s", "1 week", "inf", "nan", "1:30", "0x10"])
def test_what_are_no_seconds(text):
    with pytest.raises(UsageError, match="is not a duration"):
        seconds(text)


@given(spans, st.integers(0, 9))
def test_in_a_sequence_slots_do_not_overlap_and_leave_the_gap(jobs, gap):
    zeros = Schedule("sequence", gap_ns=gap).zeros(jobs)
    slots = [(z + s.lead, z + s.tail) for z, s in zip(zeros, jobs, strict=True)]
    for (_, end), (begin, _) in pairwise(slots):
        assert begin == end + gap


@given(spans, st.integers(1, 5))
def test_a_pool_never_runs_more_than_it_has_workers(jobs, workers):
    zeros = Schedule("pool", workers=workers).zeros(jobs)
    slots = [(z + s.lead, z + s.tail) for z, s in zip(zeros, jobs, strict=True)]
    for begin, end in slots:
        if begin < end:
            moment = begin + 0.5
            assert sum(b < moment < e for b, e in slots) <= workers
    busy = sum(end - begin for begin, end in slots)
    if slots:
        reach = max(end for _, end in slots) - min(begin for begin, _ in slots)
        assert busy <= workers * reach
