"""Random scripts of controls against an exact model of the clock."""

from __future__ import annotations

import contextlib
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from tapes import SECOND, Recorder, check_protocol, ticking

from replay.clock import Clock, ManualClock, ratio
from replay.engine import Playback, Player
from replay.messages import AlertSlice
from replay.timeline import Timeline

SPEEDS = (0.1, 0.5, 1.0, 3.0, 10.0, 1000.0)

steps = st.one_of(
    st.tuples(st.just("step"), st.sampled_from(("instant", "alert", 1, 3))),
    st.tuples(st.just("burst"), st.integers(-1, 25)),
)
commands = st.one_of(
    st.tuples(st.just("pause")),
    st.tuples(st.just("resume")),
    st.tuples(st.just("set_speed"), st.sampled_from(SPEEDS)),
    st.tuples(
        st.just("seek"), st.integers(-1, 25), st.sampled_from(("reset", "catch-up", "keep", None))
    ),
    st.tuples(st.just("seek_by"), st.integers(-5, 5)),
)
scripts = st.lists(
    st.tuples(
        st.integers(1, 4_000_000_000),
        # Several at once. A step is the last, for whatever follows would end it; whether
        # detectors can be kept is decided when that is asked for, so it comes first.
        st.builds(
            lambda orders, last: [*orders, last],
            st.lists(commands, max_size=2),
            st.one_of(commands, steps),
        ).filter(lambda orders: not any("keep" in order for order in orders[1:])),
    ),
    max_size=20,
)
tapes = st.lists(st.integers(0, 20), min_size=1, max_size=25).map(sorted)


@dataclass
class Model:
    """The replay of one job's alerts, in the plainest words: where time stands, what is out."""

    times: list[int]
    end: int
    speed: float
    now: int = 0
    wall: int = 0
    here: int = 0
    paused: bool = False
    cursor: int = 0
    epoch: int = 0
    over: bool = False
    out: list[tuple[int, int, int, bool]] = field(default_factory=list)

    def due(self, time: int) -> int:
        exact = ratio(self.speed)
        return self.wall - (self.here - time) * exact.denominator // exact.numerator

    def publish(self, upto: int, wall: int | None = None, *, catch_up: bool = False) -> None:
        while self.cursor < upto:
            time = self.times[self.cursor]
            when = self.due(time) if wall is None else wall
            self.out.append((when, time, self.epoch, catch_up))
            self.cursor += 1

    def run_until(self, wall: int) -> None:
        """Let wall time pass; what falls due at the very end waits for the command there."""
        if not (self.over or self.paused):
            while self.cursor < len(self.times) and self.due(self.times[self.cursor]) < wall:
                self.publish(self.cursor + 1)
            self.over = self.cursor == len(self.times) and self.due(self.end) < wall
        self.now = wall

    def position(self) -> int:
        """Where time stands, to the nanosecond below."""
        exact = ratio(self.speed) * (not self.paused)
        return self.here + (self.now - self.wall) * exact.numerator // exact.denominator

    def change(self) -> None:
        """Count from here on."""
        self.here, self.wall = self.position(), self.now

    def obey(self, name: str, *words: object) -> None:
        if not self.over:
            getattr(self, name)(*words)

    def pause(self) -> None:
        self.change()
        self.paused = True

    def resume(self) -> None:
        if self.paused:
            self.change()
        self.paused = False

    def set_speed(self, speed: float) -> None:
        self.change()
        self.speed = speed

    def step(self, what: str | int) -> None:
        self.pause()
        if what == "instant":
            rest = self.times[self.cursor :]
            goal = self.cursor + rest.count(rest[0]) if rest else self.cursor
        else:
            goal = min(self.cursor + (1 if what == "alert" else what), len(self.times))
        self.publish(goal, self.wall)
        if goal:
            self.here = max(self.here, self.times[goal - 1])

    def burst(self, until_s: int) -> None:
        self.pause()
        until = until_s * SECOND
        self.publish(bisect_right(self.times, until), self.wall)
        self.here = max(self.here, until)
        self.over = until >= self.end

    def seek(self, to_s: int, how: str | None = None) -> None:
        self.go(to_s * SECOND, how)

    def seek_by(self, by_s: int) -> None:
        self.change()
        self.go(self.here + by_s * SECOND)

    def go(self, to: int, how: str | None = None) -> None:
        if how == "keep" and to < self.position():
            return  # refused
        self.change()
        to = min(max(to, 0), self.end)
        how = how or ("catch-up" if to >= self.here else "reset")
        if how == "reset" or to < self.here:
            self.epoch += 1
            self.cursor = bisect_left(self.times, to) if how == "reset" else 0
        elif how == "keep" and to > self.here:
            self.cursor = bisect_left(self.times, to)
        if how == "catch-up":
            self.publish(bisect_left(self.times, to), self.wall, catch_up=True)
        self.here = to


@settings(max_examples=300)
@given(tapes, scripts, st.sampled_from(SPEEDS))
def test_every_control_does_exactly_what_the_model_says(seconds, script, speed):
    times = [second * SECOND for second in seconds]
    model = Model(times, 20 * SECOND, speed)
    clock = ManualClock(tick_ns=0)
    sink = Recorder(clock)
    player = Player(
        Timeline.build(ticking(*seconds, end=20)),
        sink,
        Playback(speed=speed, pacing="sleep", tick_wall_s=1000.0),
        wall=clock,
    )
    now = 0
    for wait, orders in script:
        now += wait
        clock.at(now / SECOND, lambda orders=orders: [obey(player, *order) for order in orders])
        model.run_until(now)
        for name, *words in orders:
            model.obey(name, *words)
    now += 1
    clock.at(now / SECOND, player.resume)
    model.run_until(now)
    model.obey("resume")
    model.run_until(10**21)

    report = player.play()

    check_protocol(sink.messages)
    got = [
        (wall, round(message.batch.at * SECOND), message.epoch, message.catch_up)
        for wall, message in zip(sink.walls, sink.messages, strict=True)
        if isinstance(message, AlertSlice)
        for _ in message.batch
    ]
    assert got == model.out
    assert report.early == report.late == 0
    assert report.epochs == model.epoch + 1
    assert report.alerts == len(model.out)


def obey(player, name, *words):
    if name == "seek":
        to, how = words
        with contextlib.suppress(ValueError) if how == "keep" else contextlib.nullcontext():
            player.seek(to, detectors=how)
    else:
        getattr(player, name)(*words)


@given(st.lists(st.tuples(st.integers(1, 10**10), st.sampled_from(SPEEDS)), max_size=30))
def test_replay_time_never_jumps_by_itself(changes):
    wall = ManualClock(tick_ns=0)
    clock = Clock(wall, 0, 1.0)
    for number, (wait, speed) in enumerate(changes):
        wall.advance(wait / SECOND)
        before = clock.now_ns()
        (clock.pause, clock.resume, lambda speed=speed: clock.set_speed(speed))[number % 3]()
        assert clock.now_ns() == before
    assert clock.generation == len(changes)
