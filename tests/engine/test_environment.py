"""The environment: two sources, one order."""

from __future__ import annotations

import math

import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st
from simpy.core import EmptySchedule

from replay.engine import LAST, TapeEnvironment
from replay.engine.environment import NORMAL, URGENT


def play(times, *, begin=0, stop=None, initial_time=0):
    """An environment over these times, and what it has done."""
    log = []

    def emit(number, upto):
        assert upto > number
        log.append((env.now, number))
        return number + 1

    env = TapeEnvironment(times, emit, begin, stop, initial_time)
    return env, log


def note(env, log, what, event):
    yield event
    log.append((env.now, what))


def test_at_one_time_urgent_then_tape_then_ordinary_then_last():
    env, log = play([5, 7])
    env.process(note(env, log, "last", env.alarm(5, LAST)))
    env.process(note(env, log, "ordinary", env.timeout(5)))
    env.process(note(env, log, "alarm", env.alarm(5, NORMAL)))
    env.process(note(env, log, "urgent", env.alarm(5, URGENT)))
    env.run()
    assert log == [(5, "urgent"), (5, 0), (5, "ordinary"), (5, "alarm"), (5, "last"), (7, 1)]


def test_peek_and_the_empty_schedule_count_the_tape():
    env, log = play([3, 9])
    assert env.peek() == 3
    env.process(note(env, log, "tick", env.timeout(4)))
    assert env.peek() == 0  # the process has still to be started
    env.run()
    assert env.peek() == math.inf
    assert env.now == 9
    with pytest.raises(EmptySchedule):
        env.step()


def test_run_until_a_number_stops_before_what_happens_then():
    env, log = play([1, 2, 3])
    env.run(until=2)
    assert log == [(1, 0)]
    env.run(until=4)
    assert log == [(1, 0), (2, 1), (3, 2)]


def test_a_part_of_the_tape():
    env, log = play([1, 2, 3, 4], begin=1, stop=3, initial_time=2)
    env.run()
    assert log == [(2, 1), (3, 2)]


def test_an_emission_may_schedule_something_earlier_than_the_next_instant():
    log = []

    def emit(number, upto):
        log.append((env.now, number))
        if number == 0:
            assert upto == 3
            env.process(note(env, log, "reaction", env.timeout(1)))
        return number + 1

    env = TapeEnvironment([1, 5, 6], emit)
    env.run()
    assert log == [(1, 0), (2, "reaction"), (5, 1), (6, 2)]


def test_an_emission_that_is_not_done_is_asked_again():
    answers = [False, False, True]
    log = []

    def emit(number, upto):
        log.append((env.now, number))
        return number + (answers.pop(0) if answers else True)

    env = TapeEnvironment([4, 8], emit)
    env.run()
    assert log == [(4, 0), (4, 0), (4, 0), (8, 1)]


def test_an_emission_may_play_several_instants_that_nothing_comes_between():
    log = []

    def emit(number, upto):
        log.append((env.now, number, upto))
        return min(number + 2, upto)

    env = TapeEnvironment([1, 2, 3, 5, 5, 6], emit)
    env.process(note(env, log, "ordinary", env.timeout(5)))
    env.process(note(env, log, "urgent", env.alarm(3, URGENT)))
    env.run()
    assert log == [
        (1, 0, 2),
        (3, "urgent"),
        (3, 2, 3),  # the process that has ended here is an event, too
        (5, 3, 5),
        (5, "ordinary"),
        (6, 5, 6),
    ]
    assert env.now == 6


def test_a_gate_is_asked_before_everything_and_may_refuse():
    env, log = play([2, 6])
    asked = []
    env.gate = lambda at: asked.append(at) or len(asked) % 2 == 0
    env.process(note(env, log, "tick", env.timeout(4)))
    env.run()
    assert asked == [0, 0, 2, 2, 4, 4, 4, 4, 6, 6]
    assert log == [(2, 0), (4, "tick"), (6, 1)]


@given(
    st.lists(st.integers(0, 20), max_size=12).map(lambda times: sorted(set(times))),
    st.lists(st.lists(st.integers(0, 7), min_size=1, max_size=6), max_size=4),
)
def test_processes_see_the_same_history_as_with_a_plain_process_for_the_tape(times, delays):
    def wanderer(env, log, name, steps):
        for step in steps:
            yield env.timeout(step)
            log.append((env.now, name))

    def player(env, log):
        for number, time in enumerate(times):
            if time > env.now:
                yield env.timeout(time - env.now)
            log.append((env.now, number))

    tape, log = play(times)
    plain, plain_log = simpy.Environment(), []
    plain.process(player(plain, plain_log))
    for environment, notes in ((tape, log), (plain, plain_log)):
        for number, steps in enumerate(delays):
            environment.process(wanderer(environment, notes, f"w{number}", steps))
        environment.run()
    assert sorted(log, key=str) == sorted(plain_log, key=str)
    assert [entry for entry in log if isinstance(entry[1], int)] == [
        (time, number) for number, time in enumerate(times)
    ]
    assert [time for time, _ in log] == sorted(time for time, _ in log)
    for time in times:  # at one time, the tape comes before whoever waits for that time
        names = [name for at, name in log if at == time]
        own = names.index(times.index(time))
        assert all(isinstance(name, str) for name in names[own + 1 :])
