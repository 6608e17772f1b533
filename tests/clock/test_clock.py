"""Replay time worked out from wall time."""

from __future__ import annotations

import itertools
import math
import sys
import threading
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay.clock import LADDER, Clock, ManualClock, ratio

speeds = st.one_of(
    st.sampled_from(LADDER), st.floats(0.001, 1e6, allow_nan=False, allow_infinity=False)
)


@pytest.mark.parametrize(
    ("speed", "exact"), [(0.1, Fraction(1, 10)), (10, Fraction(10)), (1e-300, Fraction(1, 10**300))]
)
def test_a_speed_is_what_its_digits_say(speed, exact):
    assert ratio(speed) == exact


@pytest.mark.parametrize("speed", [0, 0.0, -3, math.nan, math.inf])
def test_what_is_no_speed(speed):
    with pytest.raises(ValueError, match=f"speed {speed!r} is not"):
        ratio(speed)


@given(speeds, st.integers(-(10**18), 10**18), st.integers(-(10**15), 10**18))
def test_due_is_the_first_moment_that_is_not_early(speed, begin, ahead):
    segment = Clock(ManualClock(tick_ns=0), begin, speed).segment
    due = segment.due(begin + ahead)
    if ahead > 0:
        assert segment.at(due) >= begin + ahead > segment.at(due - 1)


@given(
    speeds,
    st.lists(
        st.tuples(
            st.integers(0, 10**12),
            st.one_of(st.just("pause"), st.just("resume"), speeds),
        ),
        max_size=30,
    ),
)
def test_time_is_continuous_never_goes_back_and_is_what_the_segments_say(speed, changes):
    wall = ManualClock(tick_ns=0)
    clock = Clock(wall, 0, speed)
    exact, newest = Fraction(0), 0
    for wait, change in changes:
        wall.now_ns += wait
        if not clock.paused:
            exact += (
                wait * ratio(clock.speed) if clock.generation == 0 else wait * clock.segment.speed
            )
        before = clock.now_ns()
        if isinstance(change, str):
            getattr(clock, change)()
        else:
            clock.set_speed(change)
        assert before == clock.now_ns() >= newest
        newest = before
    assert clock.generation == len(changes) == len(clock.segments) - 1
    assert 0 <= exact - clock.now_ns() <= len(changes) + 1  # one nanosecond a change at most


def test_every_change_reads_the_wall_once():
    wall = ManualClock()
    clock = Clock(wall)
    for change in (clock.pause, clock.resume, lambda: clock.set_speed(3), lambda: clock.jump(7)):
        before = wall.readings
        change()
        assert wall.readings == before + 1


def test_a_jump_goes_anywhere_and_a_slip_is_not_kept():
    wall = ManualClock(tick_ns=0)
    clock = Clock(wall, 100, 2.0)
    wall.now_ns += 50
    assert clock.now_ns() == 200
    clock.jump(-5)
    assert clock.now_ns() == -5
    clock.slip(-7)
    assert (clock.now_ns(), clock.generation, len(clock.segments)) == (-7, 2, 2)


@pytest.fixture
def restless():
    """Threads take turns so often that each is interrupted everywhere."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("restless")
def test_readers_on_other_threads_see_time_that_never_goes_back():
    wall = ManualClock()
    wall.monotonic_ns = itertools.count(1).__next__  # many threads may read it
    clock = Clock(wall, 0, 1000.0)
    stop = threading.Event()
    failures = []

    def read():
        newest = 0
        while not stop.is_set():
            now = clock.now_ns()
            if now < newest:
                failures.append((newest, now))
            newest = max(newest, now)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for number in range(3000):
        clock.set_speed(LADDER[number % len(LADDER)])
    stop.set()
    for reader in readers:
        reader.join()
    assert not failures
