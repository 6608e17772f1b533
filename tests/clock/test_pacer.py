"""Waiting: never early, woken at once, no more spinning than needed."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay.clock import ManualClock, Pacer, SystemWall

MS = 10**6


@given(
    st.sampled_from(("sleep", "hybrid", "spin")),
    st.lists(
        st.tuples(st.integers(-MS, 20 * MS), st.integers(-MS, 10 * MS)), min_size=1, max_size=12
    ),
)
def test_it_is_never_early_however_long_sleeps_take(pacing, waits):
    oversleeps = [oversleep for _, oversleep in waits]
    clock = ManualClock(tick_ns=5000, oversleep_ns=lambda n: oversleeps[n % len(oversleeps)])
    pacer = Pacer(clock, pacing)
    for gap, _ in waits:
        due = clock.now_ns + gap
        assert pacer.wait(due)
        assert due <= pacer.now_ns == clock.now_ns or gap <= 0


def test_when_late_nothing_is_read_and_nothing_waited_for():
    clock = ManualClock()
    pacer = Pacer(clock)
    assert pacer.wait(10 * MS)
    readings, sleeps = clock.readings, len(clock.sleeps)
    for due in (10 * MS, 5 * MS, 0, -MS):
        assert pacer.wait(due)
    assert (clock.readings, len(clock.sleeps)) == (readings, sleeps)


def test_it_learns_how_late_sleeps_end():
    clock = ManualClock(tick_ns=100, oversleep_ns=lambda _: 300_000)
    pacer = Pacer(clock)
    late = []
    for _ in range(60):
        due = clock.now_ns + 100 * MS
        pacer.wait(due)
        late.append(pacer.now_ns - due)
    assert late[0] > 0
    assert max(late[20:]) <= 100  # one reading


def test_a_stall_teaches_it_nothing():
    clock = ManualClock(tick_ns=100, oversleep_ns=lambda n: 50 * MS if n == 30 else 60_000)
    pacer = Pacer(clock)
    for _ in range(30):
        pacer.wait(clock.now_ns + 100 * MS)
    before = pacer._mean, pacer._deviation
    pacer.wait(clock.now_ns + 100 * MS)
    assert (pacer._mean, pacer._deviation) == before
    assert pacer.overslept_ns >= 50 * MS


@pytest.mark.parametrize("pacing", ["sleep", "hybrid", "spin"])
def test_it_is_woken(pacing):
    clock = ManualClock(tick_ns=20_000)
    pacer = Pacer(clock, pacing)
    if pacing == "spin":
        readings = []
        read = clock.monotonic_ns

        def counting():
            readings.append(1)
            if len(readings) == 50:
                clock.wake()
            return read()

        clock.monotonic_ns = counting
    clock.at(0.5, clock.wake)
    assert not pacer.wait(10**9)
    assert clock.now_ns < 10**9
    assert not pacer.wait(10**9)  # until somebody has listened
    clock.hush()
    assert pacer.wait(10**9)


def test_pacing_that_is_none():
    with pytest.raises(ValueError, match="pacing 'doze' is none of"):
        Pacer(ManualClock(), "doze")


def test_the_machines_wall_is_woken_from_a_sleep_without_end():
    wall = SystemWall()
    woken = []
    sleeper = threading.Thread(target=lambda: woken.append(wall.sleep(None)))
    sleeper.start()
    wall.wake()
    sleeper.join()
    assert woken == [True]
    assert wall.rung
    assert wall.sleep(1e6)  # at once, until somebody has listened
    wall.hush()
    assert not wall.rung
    assert not wall.sleep(0.0)
    wall.close()
    wall.close()


def test_the_machines_wall_may_be_woken_often_and_early():
    wall = SystemWall()
    wall.wake()
    assert wall.sleep(None)
    wall.hush()
    assert not wall.sleep(0.0)
    for _ in range(100_000):  # more than a pipe holds
        wall.wake()
    wall.hush()
    assert not wall.sleep(0.0)
    wall.close()
    wall.wake()
    assert wall.sleep(None)


def test_on_the_machines_clock_it_is_never_early():
    wall = SystemWall()
    pacer = Pacer(wall)
    for gap in (0, 1, 10_000, 200_000, MS, 3 * MS):
        due = wall.monotonic_ns() + gap
        assert pacer.wait(due)
        assert wall.monotonic_ns() >= pacer.now_ns >= due
    wall.close()


def test_a_manual_clock_that_nobody_can_wake_says_so():
    with pytest.raises(RuntimeError, match="asleep for ever"):
        ManualClock().sleep(None)


def test_actions_of_a_manual_clock_happen_in_the_order_of_their_times():
    clock = ManualClock(tick_ns=0)
    seen = []
    for second in (3, 1, 2):
        clock.at(second, lambda second=second: seen.append((second, clock.now_ns / 1e9)))
    assert not clock.sleep(2.5)
    assert seen == [(1, 1.0), (2, 2.0)]
    clock.advance(10)
    assert seen[-1] == (3, 3.0)
    assert clock.now_ns == 12_500_000_000
