"""Ways in which replays go wrong. Each of them has happened to somebody; none may happen here."""

from __future__ import annotations

import ctypes
import gc
import math
import sys
import threading
import time
from fractions import Fraction

import pytest
from tapes import SECOND, Recorder, Row, Work, alerts, check_protocol, skeleton, ticking, trace_of

from replay.clock import Clock, ManualClock, Pacer, ratio
from replay.engine import MAX, Playback, Player
from replay.engine.realtime import realtime
from replay.errors import TransportError
from replay.messages import AlertSlice, JobEnded, JobStarted
from replay.timeline import PIECE, Timeline


def play(trace, playback=None, clock=None, sink=None, **options):
    """The report, and the sink."""
    clock = clock or ManualClock(tick_ns=0)
    sink = sink or Recorder(clock)
    playback = playback or Playback(speed=10.0, pacing="sleep")
    timeline = trace if isinstance(trace, Timeline) else Timeline.build(trace)
    return Player(timeline, sink, playback, wall=clock, **options).play(), sink


def sleepless(speed=10.0, **options):
    return Playback(speed=speed, pacing="sleep", **options)


class SlowSink(Recorder):
    """Takes wall seconds for some publications."""

    slow = ()

    def __call__(self, messages):
        super().__call__(messages)
        for message in messages:
            if isinstance(message, AlertSlice):
                self.clock.advance(dict(self.slow).get(message.batch.at, 0))


def slow_sink(clock, **slow):
    sink = SlowSink(clock)
    sink.slow = tuple((float(at.removeprefix("at")), seconds) for at, seconds in slow.items())
    return sink


def test_trap_01_being_late_does_not_end_the_run():
    clock = ManualClock(tick_ns=0)
    report, sink = play(ticking(1, 2, 3, 4), sleepless(1000.0), clock, slow_sink(clock, at1=30.0))
    assert [alert[2] for alert in alerts(sink.messages)] == [1.0, 2.0, 3.0, 4.0]
    assert report.late == 3
    assert report.lateness.max_s == pytest.approx(29.999)


def test_trap_02_a_change_of_speed_leaves_the_past_alone():
    clock = ManualClock(tick_ns=0)
    sink = Recorder(clock)
    player = Player(
        Timeline.build(ticking(*range(0, 1000, 10), end=1000)), sink, sleepless(100.0), wall=clock
    )
    clock.at(1, lambda: player.set_speed(1000.0))
    clock.at(1.1, lambda: player.set_speed(200.0))
    player.play()
    for wall, at in sink.alerts_by_wall():
        expected = (
            at / 100 if at < 100 else 1 + (at - 100) / 1000 if at < 200 else 1.1 + (at - 200) / 200
        )
        assert wall == pytest.approx(expected * 1e9, abs=1)


def test_trap_03_time_between_making_and_starting_a_player_is_no_lag():
    clock = ManualClock(tick_ns=0)
    sink = Recorder(clock)
    player = Player(Timeline.build(ticking(0, 1)), sink, sleepless(), wall=clock)
    clock.advance(3600)
    report = player.play()
    assert report.lateness.max_ns == 0
    assert [wall / 1e9 for wall, _ in sink.alerts_by_wall()] == [3600.0, 3600.1]


def test_trap_04_a_sleep_in_a_long_gap_is_woken():
    clock = ManualClock(tick_ns=0)
    sink = Recorder(clock)
    trace = ticking(0, 80_000, end=80_000)
    player = Player(Timeline.build(trace), sink, sleepless(1.0), wall=clock)
    clock.at(10, player.pause)
    clock.at(20, lambda: player.set_speed(10))
    clock.at(30, player.resume)
    clock.at(40, lambda: player.seek(79_999))
    player.play()
    assert [wall / 1e9 for wall, _ in sink.alerts_by_wall()] == [0.0, 40.1]


@pytest.mark.parametrize("speed", [10.0, MAX])
def test_trap_05_what_happens_at_the_end_is_played(speed):
    _, sink = play(ticking(1, 2, 3, end=3), sleepless(speed))
    assert [alert[2] for alert in alerts(sink.messages)] == [1.0, 2.0, 3.0]
    _, sink = play(ticking(1, 2, 3, end=9), sleepless(speed, end_s=3.0))
    assert [alert[2] for alert in alerts(sink.messages)] == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("speed", [10.0, MAX])
def test_trap_06_rows_out_of_order_and_before_the_start_are_played(speed):
    _, sink = play(ticking(5, -2, 3, -7, 3), sleepless(speed))
    assert [alert[2] for alert in alerts(sink.messages)] == [-7.0, -2.0, 3.0, 3.0, 5.0]
    assert isinstance(sink.messages[0], JobStarted)
    assert sink.messages[0].at == -7.0


class AwkwardError(Exception):
    """Cannot be made again from its ``args``, as SimPy would do."""

    def __init__(self, *, code):
        super().__init__("awkward")
        self.code = code


@pytest.mark.parametrize("kind", [JobStarted, AlertSlice, JobEnded])
def test_trap_07_an_error_of_the_sink_comes_out_as_it_is(kind):
    error = AwkwardError(code=7)

    def sink(messages):
        if isinstance(messages[0], kind):
            raise error

    player = Player(Timeline.build(ticking(1)), sink)
    with pytest.raises(AwkwardError) as caught:
        player.play()
    assert caught.value is error
    assert player.state().status == "ended"
    player.pause()  # nobody is there to obey, and nobody waits


def test_trap_07_an_error_of_ours_keeps_its_type():
    def sink(messages):
        raise TransportError("gone", "come back")

    with pytest.raises(TransportError, match="gone"):
        play(ticking(1), sink=sink)


def test_trap_08_other_threads_never_touch_the_environment():
    trace = trace_of(*[Work(200, tuple(Row(at) for at in range(0, 200, 2)))] * 3)
    sink = Recorder()
    player = Player(Timeline.build(trace), sink, Playback(speed=400.0, start_paused=True))
    engine = threading.Thread(target=player.play)
    engine.start()

    def hammer(seed):
        for number in range(25):
            (player.pause, player.resume, player.faster, player.slower)[(number + seed) % 4]()
            player.state()

    threads = [threading.Thread(target=hammer, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    player.set_speed(MAX)
    player.resume()
    engine.join()
    check_protocol(sink.messages)
    assert skeleton(sink.messages) == skeleton(play(trace, Playback())[1].messages)


def test_trap_08_something_new_and_earlier_shortens_the_wait():
    clock = ManualClock(tick_ns=0)
    seen = []

    def companion(env):
        yield env.timeout(1)

        def later():
            yield env.timeout(2 * SECOND)
            seen.append(clock.now_ns)

        env.process(later())
        yield env.timeout(10**12)

    play(ticking(1000, end=1000), sleepless(), clock, companions=[companion])
    assert seen == [200_000_001]


def test_trap_09_instants_are_whole_nanoseconds():
    step = 100_000_000
    assert 3 * 0.1 != 0.3  # what floats would do
    times = [number * step for number in range(10**4)]
    trace = trace_of(Work(1000, tuple(Row(t / SECOND) for t in times)), Work(1000, (Row(999.9),)))
    timeline = Timeline.build(trace)
    assert timeline.instant_ns.tolist() == times
    clock = Clock(ManualClock(tick_ns=0), 0, 0.1)
    assert ratio(0.1) == Fraction(1, 10)
    for time_ns in (1, 10**6, 10**15 + 1):
        due = clock.due_ns(time_ns)
        assert due == 10 * time_ns
        assert clock.segment.at(due) == time_ns
        assert clock.segment.at(due - 1) < time_ns


def test_trap_10_no_time_zone_decides_anything(monkeypatch):
    trace = trace_of(Work(9000, (Row(-7200), Row(0), Row(3600)), start_ns=-5_759_999 * SECOND))
    stories = []
    for zone in ("UTC", "America/New_York"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        stories.append(skeleton(play(trace, sleepless(tick_wall_s=100.0))[1].messages))
    monkeypatch.undo()
    time.tzset()
    assert stories[0] == stories[1]
    assert [alert[2] for alert in stories[0][1:-1]] == [-7200.0, 0.0, 3600.0]


def test_trap_11_zero_and_negative_times_are_ordinary():
    trace = ticking(-2, -1, 0, 1)
    _, sink = play(trace, sleepless(start_s=0.0))
    assert [alert[2] for alert in alerts(sink.messages)] == [0.0, 1.0]
    _, sink = play(trace, sleepless(end_s=0.0))
    assert [alert[2] for alert in alerts(sink.messages)] == [-2.0, -1.0, 0.0]
    assert [wall / 1e9 for wall, _ in sink.alerts_by_wall()] == [0.0, 0.1, 0.2]
    _, sink = play(trace, sleepless(end_s=-1.0, duration_s=None))
    assert sink.messages[-1].at == -1.0
    clock = ManualClock(tick_ns=0)
    sink = Recorder(clock)
    player = Player(Timeline.build(trace), sink, sleepless(), wall=clock)
    clock.at(0.25, lambda: player.seek(0.0, detectors="reset"))
    player.play()
    assert [alert[2] for alert in alerts(sink.messages)] == [-2.0, -1.0, 0.0, 0.0, 1.0]
    segment = Clock(ManualClock(tick_ns=0), -10, 0.3).segment
    assert [segment.at(wall) for wall in (0, 1, 3, 4, 34)] == [-10, -10, -10, -9, 0]


def test_trap_12_the_calendar_does_not_pace():
    clock = ManualClock(tick_ns=0)
    sink = Recorder(clock)
    player = Player(Timeline.build(ticking(1, 5, 9)), sink, sleepless(1.0), wall=clock)

    def suspended():  # the calendar has gone on for an hour; the monotonic clock has not
        clock.unix_ns = lambda: 10**18 + 3600 * SECOND + clock.now_ns

    clock.at(3, suspended)
    report = player.play()
    assert [wall / 1e9 for wall, _ in sink.alerts_by_wall()] == [1.0, 5.0, 9.0]
    assert report.stalls == 1
    slices = [m for m in sink.messages if isinstance(m, AlertSlice)]
    assert [m.published_wall - 10**9 for m in slices] == [1.0, 3605.0, 3609.0]


def test_trap_12_a_process_that_was_stopped_goes_on_from_where_it_was():
    clock = ManualClock(tick_ns=0, oversleep_ns=lambda n: 60 * SECOND if n == 2 else 0)
    report, sink = play(ticking(1, 5, 9), sleepless(1.0, tick_wall_s=100.0), clock)
    assert report.stalls == 1
    assert report.slipped_wall_s == 60.0
    assert report.late == 0
    assert [wall / 1e9 for wall, _ in sink.alerts_by_wall()] == [1.0, 5.0, 69.0]


def test_trap_13_long_sleeps_are_taken_in_slices():
    clock = ManualClock(tick_ns=0)
    month = 30 * 86400
    play(ticking(0, month, end=month), sleepless(1.0, max_gap_s=None, tick_wall_s=1e9), clock)
    assert clock.now_ns == month * SECOND
    assert max(seconds for seconds in clock.sleeps if seconds) <= 3600


def test_trap_14_nothing_is_rounded_to_milliseconds():
    report, sink = play(ticking(0.001234567, 0.001234568, 0.5000001), sleepless(1.0))
    assert [wall for wall, _ in sink.alerts_by_wall()] == [1_234_567, 1_234_568, 500_000_100]
    assert report.lateness.max_ns == 0


def test_trap_15_timer_slack_is_set_in_the_engines_thread_and_put_back():
    def slack():
        if not sys.platform.startswith("linux"):
            return None
        return ctypes.CDLL(None).prctl(30, 0, 0, 0, 0)

    seen = []
    before, interval = slack(), sys.getswitchinterval()
    player = Player(
        Timeline.build(ticking(0, end=0)),
        lambda _: seen.append((slack(), sys.getswitchinterval())),
        Playback(speed=1000.0, switch_interval_s=0.0005),
    )
    thread = threading.Thread(target=player.play)
    thread.start()
    thread.join()
    assert {now for now, _ in seen} == {None if before is None else 1}
    assert {round(switch, 6) for _, switch in seen} == {0.0005}
    assert (slack(), sys.getswitchinterval()) == (before, interval)
    with realtime(None):
        assert sys.getswitchinterval() == interval


@pytest.mark.parametrize("gap", [0.0001, 0.001, 0.01, 1.0, 60.0])
def test_trap_16_spinning_is_capped(gap):
    clock = ManualClock(tick_ns=500)
    pacer = Pacer(clock)
    for oversleep in (10, 900_000, 4_000_000):  # the more the sleeps overshoot, the more it spins
        clock._oversleep_ns = lambda _, ns=oversleep: ns
        for _ in range(20):
            clock.sleeps.clear()
            begin = clock.now_ns
            pacer.wait(begin + round(gap * SECOND))
            slept = sum(clock.sleeps)
            assert slept >= gap * 0.9 - 2e-6
            assert slept >= gap - 0.001 - 2e-6


def test_trap_17_alerts_outside_their_job_keep_their_distance():
    trace = trace_of(Work(10, (Row(-5), Row(2), Row(14))), Work(10, (Row(-1), Row(3))))
    timeline = Timeline.build(trace, schedule="sequence")
    assert (timeline.facts.before_start, timeline.facts.after_end) == (2, 1)
    assert [slot.zero_ns / SECOND for slot in timeline.slots] == [0.0, 15.0]
    _, sink = play(timeline)
    walls = [wall / 1e9 for wall, _ in sink.alerts_by_wall()]
    assert walls == [0.0, 0.7, 1.9, 1.9, 2.3]
    assert [message.at for message in sink.messages if isinstance(message, JobEnded)] == [14, 10]
    for policy, expected in (("clip", [0.0, 2.0, 10.0]), ("drop", [2.0])):
        _, sink = play(Timeline.build(trace, outside=policy))
        assert [alert[2] for alert in alerts(sink.messages) if alert[0] == "Job1"] == expected


def test_trap_17_an_alert_a_century_away_is_not_waited_for():
    century = 100 * 365.25 * 86400.0
    timeline = Timeline.build(ticking(-century, 1, 2, century))
    assert timeline.facts.longest_gap_s == pytest.approx(century, rel=1e-6)
    clock = ManualClock(tick_ns=0)
    report, sink = play(timeline, sleepless(tick_wall_s=100.0), clock)
    assert len(alerts(sink.messages)) == 4
    assert clock.now_ns / 1e9 < 3 * 86400 / 10
    assert len(report.jumps) == 2


def test_trap_18_ties_do_not_depend_on_what_came_before():
    trace = trace_of(
        Work(20, (Row(1, kind="A"), Row(10, kind="A"), Row(10, kind="A"))),
        Work(20, (Row(3, kind="B"), Row(10, kind="B"))),
        Work(20, (Row(2, kind="C"), Row(10, kind="C"))),
    )
    _, whole = play(trace)
    _, later = play(trace, sleepless(start_s=9.0))
    at_ten = [alert for alert in alerts(whole.messages) if alert[2] == 10]
    assert "".join(alert[4] for alert in at_ten) == "AABC"
    assert [alert for alert in alerts(later.messages) if alert[2] == 10] == at_ten
    clock = ManualClock(tick_ns=0)
    sink = Recorder(clock)
    player = Player(Timeline.build(trace), sink, sleepless(), wall=clock)
    clock.at(1.5, lambda: player.seek(5))
    player.play()
    assert alerts(m for m in sink.messages if m.epoch == 1) == at_ten


def test_trap_19_a_burst_is_published_in_pieces_between_which_orders_are_obeyed():
    count = 3 * PIECE + 5
    clock = ManualClock(tick_ns=0)
    sink = Recorder(clock)
    timeline = Timeline.build(trace_of(Work(5, (Row(1),) * count), Work(5, (Row(1),))))
    player = Player(timeline, sink, sleepless(), wall=clock)
    clock.at(0.1, player.pause)
    clock.at(7, player.resume)
    sizes = []

    def publish(messages):
        sink(messages)
        sizes.append(len(alerts(messages)))
        if sizes[-1] and sum(sizes) == PIECE:
            player.pause()
            clock.at(9, player.resume)

    player._drive._sink = publish
    player.play()
    assert [size for size in sizes if size] == [PIECE, PIECE, PIECE, 6]
    walls = [wall for wall, _ in sink.alerts_by_wall()]
    assert (walls[PIECE - 1], walls[PIECE]) == (7 * SECOND, 9 * SECOND)


def test_trap_20_jobs_meet_on_offsets_only():
    rows = (Row(1), Row(2))
    shifted = trace_of(Work(5, rows, start_ns=-(10**18)), Work(5, rows, start_ns=5 * 10**17))
    alike = trace_of(Work(5, rows), Work(5, rows))
    assert skeleton(play(shifted)[1].messages) == skeleton(play(alike)[1].messages)


@pytest.mark.parametrize("speed", [10.0, MAX])
@pytest.mark.parametrize(
    "works",
    [
        (),
        (Work(0),),
        (Work(10),),
        (Work(0, (Row(0),)),),
        (Work(10, (Row(3),)),),
        (Work(0, (Row(0), Row(0))), Work(0)),
    ],
)
def test_trap_21_next_to_nothing_is_finite(works, speed):
    clock = ManualClock(tick_ns=0)
    sink = Recorder(clock)
    timeline = Timeline.build(trace_of(*works))
    player = Player(timeline, sink, sleepless(speed), wall=clock)
    assert 0 <= player.state().progress <= 1
    report = player.play()
    check_protocol(sink.messages)
    assert len([m for m in sink.messages if isinstance(m, JobEnded)]) == len(works)
    assert player.state().progress == 1
    assert report.speed_achieved is None or math.isfinite(report.speed_achieved)
    assert math.isfinite(timeline.plan(10).wall_s)


def test_trap_22_a_loop_is_a_new_epoch_with_a_new_anchor():
    clock = ManualClock(tick_ns=0)
    sink = slow_sink(clock, at9=4.0)
    report, _ = play(
        ticking(1, 9), sleepless(0.5, loops=2, delay_wall_s=3.0, tick_wall_s=100), clock, sink
    )
    assert [wall / 1e9 for wall, _ in sink.alerts_by_wall()] == [5.0, 21.0, 30.0, 46.0]
    assert report.epochs == 2
    assert report.late == 0
    check_protocol(sink.messages)


@pytest.mark.parametrize("speed", [0, -1, math.nan, math.inf, -math.inf])
def test_trap_23_speeds_that_are_none(speed):
    for attempt in (
        lambda: Playback(speed=speed),
        lambda: Player(Timeline.build(ticking(1)), print).set_speed(speed),
        lambda: Timeline.build(ticking(1)).plan(speed),
        lambda: Clock(ManualClock(), 0, speed),
    ):
        with pytest.raises(ValueError, match="is not a positive finite number"):
            attempt()


def test_trap_23_speed_is_trace_seconds_per_wall_second():
    _, sink = play(ticking(8), sleepless(4.0))
    assert sink.alerts_by_wall() == [(2 * SECOND, 8.0)]


def test_trap_24_both_clocks_are_published():
    clock = ManualClock(tick_ns=0, unix_ns=0)
    report, sink = play(ticking(1, 2, 3), sleepless(), clock, slow_sink(clock, at1=0.15))
    stamps = [
        (message.scheduled_wall, message.published_wall)
        for message in sink.messages
        if isinstance(message, AlertSlice)
    ]
    assert stamps == [(0.1, 0.1), (0.2, 0.25), (0.3, 0.3)]
    assert report.late == 1
    assert report.cleared.max_s == pytest.approx(0.15)


def test_trap_25_waiting_in_trace_time_is_the_same_at_every_speed():
    def verdicts(speed):
        """A rule that fires when an alert has stood for five minutes."""
        fired = []

        def rule(env):
            yield env.timeout(60 * SECOND)
            yield env.timeout(300 * SECOND)
            fired.append(env.now)

        play(ticking(60, 500, end=600), sleepless(speed), companions=[rule])
        return fired

    assert verdicts(1.0) == verdicts(1000.0) == verdicts(MAX) == [360 * SECOND]


def test_trap_26_the_garbage_collector_does_not_walk_the_tape():
    gc.unfreeze()  # some interpreters start with a few objects of their own frozen
    counts = []
    player = Player(
        Timeline.build(ticking(0)), lambda _: counts.append((gc.get_freeze_count(), gc.isenabled()))
    )
    player.play()
    assert {frozen for frozen, _ in counts} == {0}  # nothing to be in time for
    counts.clear()
    Player(
        Timeline.build(ticking(0, end=0)),
        lambda _: counts.append((gc.get_freeze_count(), gc.isenabled())),
        Playback(speed=1000.0),
    ).play()
    assert all(frozen > 1000 and enabled for frozen, enabled in counts)
    assert gc.get_freeze_count() == 0
    gc.freeze()  # somebody else's
    try:
        with realtime(None):
            pass
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()


def test_trap_27_looking_on_neither_prints_nor_disturbs(capsys):
    trace = ticking(*range(40), end=40)
    sink = Recorder()
    player = Player(Timeline.build(trace), sink, Playback(speed=400.0))
    engine = threading.Thread(target=player.play)
    positions = []
    engine.start()
    while engine.is_alive():
        state = player.state()
        positions.append(state.position_s)
        assert 0 <= state.progress <= 1
        engine.join(0.001)
    assert positions == sorted(positions)
    assert player.state().early == 0
    assert capsys.readouterr() == ("", "")
    assert skeleton(sink.messages) == skeleton(play(trace, Playback())[1].messages)
