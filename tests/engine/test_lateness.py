"""Being late: three policies, and books that are kept on it."""

from __future__ import annotations

import pytest
from tapes import Recorder, ticking

from replay.clock import ManualClock
from replay.engine import Playback, Player
from replay.engine.report import Lateness
from replay.errors import ReplayError
from replay.messages import AlertSlice
from replay.timeline import Timeline


def play(slow, **options):
    """Alerts every tenth of a wall second, and a sink that takes its time over some of them."""
    clock = ManualClock(tick_ns=0, unix_ns=0)
    recorder = Recorder(clock)

    def sink(messages):
        recorder(messages)
        for message in messages:
            if isinstance(message, AlertSlice):
                clock.advance(slow.get(message.batch.at, 0.0))

    playback = Playback(speed=10.0, pacing="sleep", tick_wall_s=100.0, **options)
    report = Player(Timeline.build(ticking(1, 2, 3, 4, 5)), sink, playback, wall=clock).play()
    return report, [wall / 1e9 for wall, _ in recorder.alerts_by_wall()], recorder


def test_catch_up_keeps_to_the_schedule():
    report, walls, _ = play({2.0: 0.25})
    assert walls == [0.1, 0.2, 0.45, 0.45, 0.5]
    assert report.late == 2
    assert report.lateness.count == 5
    assert report.lateness.max_s == pytest.approx(0.15)
    assert report.cleared.max_s == pytest.approx(0.25)
    assert report.slipped_wall_s == 0
    assert report.wall_s == pytest.approx(report.planned_wall_s)
    assert report.sink_wall_s == pytest.approx(0.25)


def test_slip_keeps_the_distances():
    report, walls, recorder = play({2.0: 0.25}, when_late="slip")
    assert walls == [0.1, 0.2, 0.45, 0.55, 0.65]
    assert report.slipped_wall_s == pytest.approx(0.15)
    assert report.late == 1
    assert report.wall_s == pytest.approx(report.planned_wall_s + 0.15)
    stamps = [m.published_wall - m.scheduled_wall for m in recorder.messages[1:-1]]
    assert max(stamps) == pytest.approx(0)


def test_slip_does_not_drift_by_delays_too_short_to_count():
    report, walls, _ = play({float(at): 0.0009 for at in range(6)}, when_late="slip")
    assert walls == [0.1, 0.2, 0.3, 0.4, 0.5]
    assert report.slipped_wall_s == 0


def test_slips_are_not_kept_one_by_one():
    clock = ManualClock(tick_ns=0)
    player = Player(
        Timeline.build(ticking(*range(100), end=100)),
        lambda _: clock.advance(0.2),
        Playback(speed=10.0, pacing="sleep", when_late="slip", tick_wall_s=100.0),
        wall=clock,
    )
    report = player.play()
    assert report.slipped_wall_s > 9
    assert len(player._drive.time.clock.segments) < 10
    assert report.speed_achieved == pytest.approx(5.0, rel=0.05)


def test_fail_tells_where_and_by_how_much():
    with pytest.raises(ReplayError, match=r"fell 0\.150 s behind at replay second 3\.000; 0\.1 s"):
        play({2.0: 0.25}, when_late="fail", tolerance_wall_s=0.1)
    report, walls, _ = play({2.0: 0.25}, when_late="fail", tolerance_wall_s=0.2)
    assert walls == [0.1, 0.2, 0.45, 0.45, 0.5]
    assert report.late == 2


def test_unpaced_movement_is_neither_late_nor_counted():
    clock = ManualClock(tick_ns=0)
    sink = Recorder(clock)
    timeline = Timeline.build(ticking(*range(10), end=10))
    playback = Playback(speed=10.0, pacing="sleep", start_s=5.0, warm_up=True, start_paused=True)
    player = Player(timeline, sink, playback, wall=clock)
    clock.at(1, player.step)
    clock.at(2, player.resume)
    report = player.play()
    assert report.alerts == 10
    assert report.caught_up == 5
    assert report.lateness.count == 4
    assert report.late == 0
    assert report.speed_achieved == pytest.approx(10.0)


@pytest.mark.parametrize("late", [0, 1, 15, 16, 1000, 123_456, 10**9, 10**12])
def test_quantiles_are_right_to_six_percent(late):
    book = Lateness()
    for _ in range(3):
        book.add(late)
    assert book.quantile(0.5) * 1e9 == pytest.approx(late, rel=0.063, abs=1)
    assert book.max_s == late / 1e9


def test_nothing_counted_has_no_quantile():
    assert Lateness().quantile(0.5) is None


def test_being_early_would_be_seen():
    book = Lateness()
    book.add(-5)
    assert book.quantile(0.5) <= 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"when_late": "panic"}, "when_late 'panic' is none of"),
        ({"pacing": "doze"}, "pacing 'doze' is none of"),
        ({"loops": 0}, "loops 0 is less than 1"),
        ({"end_s": 3.0, "duration_s": 1.0}, "both say where to end"),
        ({"duration_s": -1.0}, "duration_s -1.0 is not a finite number of at least 0"),
        ({"max_gap_s": float("inf")}, "max_gap_s inf is not a finite number"),
        ({"start_s": float("nan")}, "start_s nan is not a finite number"),
        ({"tick_wall_s": 0.0}, "tick_wall_s is 0"),
        ({"switch_interval_s": -0.1}, "switch_interval_s -0.1 is not"),
    ],
)
def test_playback_refuses_what_cannot_be_meant(options, message):
    with pytest.raises(ValueError, match=message):
        Playback(**options)
