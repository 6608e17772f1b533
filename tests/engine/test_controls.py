"""The controls, one by one; on a clock that never sleeps."""

from __future__ import annotations

import math

import pytest
from tapes import Recorder, Row, Work, alerts, check_protocol, skeleton, ticking, trace_of

from replay.clock import LADDER, ManualClock
from replay.engine import MAX, Playback, Player
from replay.engine.epoch import GROUP
from replay.errors import UsageError
from replay.messages import AlertSlice, JobEnded, JobStarted, Watermark
from replay.observer import Observer
from replay.timeline import PIECE, Timeline


class Stage:
    """A player on a manual clock, with a script of what is pressed when."""

    def __init__(self, trace, speed=10.0, **options):
        playback = {name: options.pop(name) for name in list(options) if hasattr(Playback, name)}
        self.clock = ManualClock(tick_ns=0)
        self.sink = Recorder(self.clock)
        self.timeline = Timeline.build(trace, schedule=options.pop("schedule", "together"))
        playback.setdefault("pacing", "sleep")
        self.player = Player(
            self.timeline, self.sink, Playback(speed=speed, **playback), wall=self.clock, **options
        )

    def at(self, second, *actions):
        for action in actions:
            self.clock.at(second, action)
        return self

    def play(self):
        self.report = self.player.play()
        check_protocol(self.sink.messages)
        return self

    def walls(self):
        """(wall second, trace second) of every alert."""
        return [(wall / 1e9, at) for wall, at in self.sink.alerts_by_wall()]


def test_pause_and_resume_shift_everything_after_them():
    stage = Stage(ticking(1, 2, 3, 4))
    player = stage.player
    stage.at(0.25, player.pause).at(5.25, player.resume).play()
    assert stage.walls() == [(0.1, 1.0), (0.2, 2.0), (5.3, 3.0), (5.4, 4.0)]
    assert stage.report.paused_wall_s == 5.0
    assert stage.report.speed_achieved == 10.0


def test_start_paused_publishes_nothing_until_resumed():
    stage = Stage(ticking(0, 1), start_paused=True)
    stage.at(7, stage.player.resume).play()
    assert stage.sink.walls[0] == 7 * 10**9
    assert stage.walls() == [(7.0, 0.0), (7.1, 1.0)]


def test_speed_changes_take_effect_at_once_in_a_long_gap():
    stage = Stage(ticking(0, 1000, end=1000), speed=1.0)
    stage.at(10, lambda: stage.player.set_speed(100)).play()
    assert stage.walls() == [(0.0, 0.0), (19.9, 1000.0)]


def test_faster_and_slower_climb_the_ladder_and_its_ends():
    stage = Stage(ticking(0, end=10**6), speed=500.0)
    seen = []

    def look():
        seen.append(stage.player.state().speed)

    player = stage.player
    moves = [player.faster, player.faster, player.faster, player.slower, player.slower]
    stage.at(0.5, player.pause)
    for number, move in enumerate(moves):
        stage.at(1 + number, move)
        stage.at(1.5 + number, look)
    for number in range(20):
        stage.at(10 + number, player.slower)
    stage.at(40, look, player.stop).play()
    assert seen == [1000.0, MAX, MAX, 1000.0, 500.0, LADDER[0]]


def test_a_speed_off_the_ladder_finds_its_neighbours():
    stage = Stage(ticking(0, end=10**6), speed=3.0)
    seen = []
    stage.at(1, stage.player.faster).at(2, lambda: seen.append(stage.player.state().speed))
    stage.at(3, lambda: stage.player.set_speed(3)).at(4, stage.player.slower)
    stage.at(5, lambda: seen.append(stage.player.state().speed), stage.player.stop).play()
    assert seen == [5.0, 2.0]


def test_max_in_the_middle_and_back():
    rows = (Row(1), Row(2), *[Row(3)] * 100, Row(50), Row(60))
    stage = Stage(trace_of(Work(60, rows)), speed=1.0)
    player = stage.player

    def back(messages):
        Recorder.__call__(stage.sink, messages)
        for message in messages:
            if isinstance(message, AlertSlice) and message.batch.at == 3:
                player.set_speed(10)

    player._drive._sink = back
    stage.at(1.5, lambda: player.set_speed(MAX)).play()
    assert sorted(set(stage.walls())) == [
        (1.0, 1.0),
        (1.5, 2.0),
        (1.5, 3.0),
        (6.2, 50.0),
        (7.2, 60.0),
    ]
    slices = [m for m in stage.sink.messages if isinstance(m, AlertSlice)]
    assert [m.published_wall is None for m in slices] == [False, True, True, False, False]


def test_virtual_time_publishes_several_instants_together_but_no_crowd():
    rows = tuple(Row(at) for at in range(500)) + (Row(500),) * (2 * PIECE)
    sizes = []
    timeline = Timeline.build(trace_of(Work(600, rows)))
    Player(timeline, lambda messages: sizes.append(len(alerts(messages)))).play()
    assert sizes == [0, 1, *[GROUP] * 7, 499 - 7 * GROUP, PIECE, PIECE, 0]


BURSTY = trace_of(
    Work(
        10,
        (Row(1, "a", "x"), Row(1, "b", "y"), Row(1, "a", "z"), Row(4, "b", "x"), Row(6, "c", "y")),
    ),
    Work(10, (Row(1, "d", "x"), Row(6, "e", "z"))),
)


@pytest.mark.parametrize(
    ("steps", "published"),
    [
        ([("step",)], [4]),
        ([("step", "alert")], [1]),
        ([("step", "alert"), ("step",)], [1, 4]),
        ([("step", 2), ("step", 3)], [2, 5]),
        ([("step",), ("step",), ("step",)], [4, 5, 7]),
        ([("step",)] * 5, [4, 5, 7, 7, 7]),
        ([("step", 100)], [7]),
        ([("burst", 3)], [4]),
        ([("burst", 4)], [5]),
        ([("burst", 0.5), ("burst", 6)], [0, 7]),
    ],
)
def test_steps_publish_at_once_and_rest(steps, published):
    stage = Stage(BURSTY, start_paused=True)
    counts, walls = [], []
    for number, (name, *words) in enumerate(steps, 1):
        stage.at(number, lambda name=name, words=words: getattr(stage.player, name)(*words))
        stage.at(
            number + 0.5,
            lambda: counts.append(stage.player.state().published),
            lambda: walls.append(stage.player.state().status),
        )
    stage.at(100, stage.player.resume).play()
    assert counts == published
    assert set(walls) == {"paused"}
    assert len(alerts(stage.sink.messages)) == 7
    assert [alert[1] for alert in alerts(stage.sink.messages) if alert[0] == "Job1"] == [*range(5)]


@pytest.mark.parametrize(
    ("words", "published"),
    [
        ({"node": "b"}, [2, 5, 5]),
        ({"kind": "z"}, [3, 7, 7]),
        ({"node": "e|c"}, [6, 7, 7]),
        ({"node": "a", "kind": "z"}, [3, 3, 3]),
        ({"kind": "nothing"}, [0, 0, 0]),
    ],
)
def test_step_until_an_alert_that_fits(words, published):
    stage = Stage(BURSTY, start_paused=True)
    counts = []
    for number in range(len(published)):
        stage.at(number + 1, lambda: stage.player.step_until(**words))
        stage.at(number + 1.5, lambda: counts.append(stage.player.state().published))
    stage.at(100, stage.player.stop).play()
    assert counts == published


def test_step_until_refuses_what_is_no_expression():
    with pytest.raises(UsageError, match=r"node '\(' is not a regular expression"):
        Stage(BURSTY).player.step_until(node="(")


@pytest.mark.parametrize("speed", [10.0, MAX])
def test_step_until_a_verdict_stops_right_after_it(speed):
    stage = Stage(ticking(1, 2, 3, 4, 5), speed=speed, start_paused=True)
    player = stage.player

    class Judge(Observer):
        def published(self, message):
            if isinstance(message, AlertSlice) and message.batch.at in {2.0, 4.0}:
                player.heard()

    player._drive._observer = Judge()
    counts = []
    for number in range(2):
        stage.at(number + 1, player.step_until_verdict)
        stage.at(number + 1.5, lambda: counts.append(player.state().published))
    stage.at(3, player.step_until_verdict)
    stage.play()
    assert counts == [2, 4]
    assert len(alerts(stage.sink.messages)) == 5
    assert stage.player.state().status == "ended"


def test_settle_lets_a_host_elsewhere_answer_before_the_next_publication():
    stage = Stage(ticking(1, 2, 3), start_paused=True)
    player = stage.player
    pending = []

    def settle():
        if pending.pop() == 2.0:
            player.heard()

    player._drive._settle = settle
    player._drive._sink = lambda messages: (
        Recorder.__call__(stage.sink, messages),
        pending.append(messages[-1].batch.at if isinstance(messages[-1], AlertSlice) else None),
    )
    counts = []
    stage.at(1, player.step_until_verdict).at(2, lambda: counts.append(player.state().published))
    stage.at(3, player.resume).play()
    assert counts == [2]


def test_a_step_that_rests_says_how_far_time_has_come():
    stage = Stage(ticking(1, 1, 4), start_paused=True)
    stage.at(1, lambda: stage.player.step("alert")).at(2, lambda: stage.player.step("alert"))
    stage.at(3, lambda: stage.player.burst(3)).at(4, stage.player.stop).play()
    kinds = [
        (type(m).__name__, getattr(m, "at", None))
        for m in stage.sink.messages
        if not isinstance(m, JobStarted)
    ]
    assert kinds == [
        ("AlertSlice", None),  # one of two: time has not come so far that all of it is out
        ("AlertSlice", None),
        ("Watermark", 1.0),
        ("Watermark", 3.0),
        ("JobEnded", 3.0),
    ]


def epochs(stage):
    """(wall second, trace second, epoch, caught up) of every alert."""
    return [
        (wall / 1e9, alert.at, message.epoch, message.catch_up)
        for wall, message in zip(stage.sink.walls, stage.sink.messages, strict=True)
        if isinstance(message, AlertSlice)
        for alert in message.batch
    ]


def test_seek_forward_catches_up_in_the_same_epoch():
    stage = Stage(ticking(1, 2, 3, 7, 8))
    stage.at(0.15, lambda: stage.player.seek(7)).play()
    assert epochs(stage) == [
        (0.1, 1.0, 0, False),
        (0.15, 2.0, 0, True),
        (0.15, 3.0, 0, True),
        (0.15, 7.0, 0, False),
        (0.25, 8.0, 0, False),
    ]
    assert stage.report.caught_up == 2
    assert stage.report.epochs == 1
    assert skeleton(stage.sink.messages) == skeleton(
        Stage(ticking(1, 2, 3, 7, 8)).play().sink.messages
    )


def test_seek_back_begins_a_new_epoch_in_the_middle_of_the_job():
    stage = Stage(ticking(1, 2, 3))
    stage.at(0.25, lambda: stage.player.seek(1.5)).play()
    assert epochs(stage) == [
        (0.1, 1.0, 0, False),
        (0.2, 2.0, 0, False),
        (0.3, 2.0, 1, False),
        (0.4, 3.0, 1, False),
    ]
    starts = [m for m in stage.sink.messages if isinstance(m, JobStarted)]
    assert [(m.epoch, m.at) for m in starts] == [(0, 0.0), (1, 1.5)]
    ends = [m for m in stage.sink.messages if isinstance(m, JobEnded)]
    assert [(m.epoch, m.count, m.complete) for m in ends] == [(1, 2, True)]


def test_seek_back_and_catch_up_tells_the_whole_story_again():
    stage = Stage(ticking(1, 2, 3))
    stage.at(0.25, lambda: stage.player.seek(1.5, detectors="catch-up")).play()
    assert epochs(stage)[2:] == [(0.25, 1.0, 1, True), (0.3, 2.0, 1, False), (0.4, 3.0, 1, False)]
    whole = skeleton(Stage(ticking(1, 2, 3)).play().sink.messages)
    assert skeleton(m for m in stage.sink.messages if m.epoch == 1) == whole


def test_seek_forward_and_reset_forgets_what_lies_between():
    stage = Stage(ticking(1, 2, 3, 7))
    stage.at(0.15, lambda: stage.player.seek(3, detectors="reset")).play()
    assert epochs(stage) == [(0.1, 1.0, 0, False), (0.15, 3.0, 1, False), (0.55, 7.0, 1, False)]


def test_seek_forward_and_keep_skips_in_the_same_epoch():
    trace = trace_of(
        Work(10, (Row(1), Row(2), Row(8))), Work(3, (Row(2.5),)), Work(10, (Row(2), Row(9)))
    )
    stage = Stage(trace)
    stage.at(0.15, lambda: stage.player.seek(5, detectors="keep")).play()
    assert epochs(stage) == [
        (0.1, 1.0, 0, False),
        (0.45, 8.0, 0, False),
        (0.55, 9.0, 0, False),
    ]
    ended = {m.job: (m.count, m.at) for m in stage.sink.messages if isinstance(m, JobEnded)}
    assert ended == {"Job1": (2, 10.0), "Job2": (0, 3.0), "Job3": (1, 10.0)}
    seqs = [alert[:2] for alert in alerts(stage.sink.messages)]
    assert seqs == [("Job1", 0), ("Job1", 2), ("Job3", 1)]


def test_detectors_cannot_be_kept_when_going_back():
    stage = Stage(ticking(1, 2, 3))
    caught = []

    def back():
        with pytest.raises(ValueError, match="cannot be kept when going back"):
            stage.player.seek(0.5, detectors="keep")
        caught.append(True)

    stage.at(0.25, back).play()
    assert caught == [True]
    assert len(alerts(stage.sink.messages)) == 3


@pytest.mark.parametrize(
    ("move", "position"),
    [
        (lambda player: player.seek_percent(50), 6.0),
        (lambda player: player.seek_percent(0), 0.0),
        (lambda player: player.seek_percent(250), 12.0),
        (lambda player: player.seek_job("Job2"), 5.0),
        (lambda player: player.seek_by(2), 4.0),
        (lambda player: player.seek_by(-100), 0.0),
        (lambda player: player.seek_mark(1), 4.5),
        (lambda player: player.seek_mark(-1), 1.25),
        (lambda player: (player.seek_mark(1), player.seek_mark(1), player.seek_mark(1)), 11.0),
        (lambda player: (player.seek_mark(-1), player.seek_mark(-1)), 1.25),
        (lambda player: (player.seek_by(2), player.seek_by(2)), 6.0),
        (lambda player: player.seek(math.pi), 3.141592654),
        (lambda player: player.seek(1e6), 12.0),
    ],
)
def test_where_a_seek_goes(move, position):
    trace = trace_of(Work(5, (Row(1), Row(3))), Work(7, (Row(2),)))
    stage = Stage(trace, speed=1.0, schedule="sequence", marks=(4.5, 1.25, 11.0))
    seen = []
    stage.at(2, stage.player.pause, lambda: move(stage.player))
    stage.at(3, lambda: seen.append(stage.player.state().position_s), stage.player.stop)
    stage.play()
    assert seen == [position]


def test_seek_to_a_job_that_is_not_there():
    with pytest.raises(UsageError, match="no job 'Job9'"):
        Stage(ticking(1)).player.seek_job("Job9")


def test_a_start_offset_enters_the_job_where_it_is():
    stage = Stage(ticking(1, 2, 3, 4), start_s=2.0).play()
    assert stage.walls() == [(0.0, 2.0), (0.1, 3.0), (0.2, 4.0)]
    started = stage.sink.messages[0]
    assert isinstance(started, JobStarted)
    assert started.at == 2.0
    assert started.job.nodes == ("a", "b")
    assert stage.sink.messages[-1].count == 3


def test_a_warm_up_tells_detectors_what_lies_before():
    stage = Stage(ticking(1, 2, 3, 4), start_s=2.5, warm_up=True).play()
    assert epochs(stage) == [
        (0.0, 1.0, 0, True),
        (0.0, 2.0, 0, True),
        (0.05, 3.0, 0, False),
        (0.15, 4.0, 0, False),
    ]


def test_an_end_is_inclusive_and_breaks_jobs_off():
    trace = trace_of(Work(10, (Row(1), Row(2), Row(3))), Work(2, (Row(2),)))
    stage = Stage(trace, end_s=2.0).play()
    assert [alert[2] for alert in alerts(stage.sink.messages)] == [1.0, 2.0, 2.0]
    ended = [m for m in stage.sink.messages if isinstance(m, JobEnded)]
    assert [(m.job, m.at, m.count, m.complete) for m in ended] == [
        ("Job2", 2.0, 1, True),
        ("Job1", 2.0, 2, False),
    ]
    assert stage.report.complete


def test_a_duration_counts_from_the_start():
    stage = Stage(ticking(1, 2, 3, 4), start_s=1.5, duration_s=1.5).play()
    assert [at for _, at in stage.walls()] == [2.0, 3.0]


def test_nothing_between_start_and_end():
    with pytest.raises(UsageError, match="Nothing lies between replay second 11 and 10"):
        Stage(ticking(1), start_s=11)
    with pytest.raises(UsageError, match="Nothing lies between replay second 5 and 3"):
        Stage(ticking(1), start_s=5, end_s=3)


def test_stop_ends_what_is_under_way_where_it_is():
    stage = Stage(ticking(1, 2, 3))
    stage.at(0.25, stage.player.stop).play()
    assert not stage.report.complete
    last = stage.sink.messages[-1]
    assert isinstance(last, JobEnded)
    assert (last.at, last.count, last.complete) == (2.5, 2, False)


def test_stop_before_anything():
    stage = Stage(ticking(1), start_paused=True)
    stage.player.stop()
    stage.play()
    assert stage.sink.messages == []
    assert not stage.report.complete


def test_loops_tell_the_same_story_in_new_epochs():
    stage = Stage(ticking(1, 2), loops=3, delay_wall_s=0.5).play()
    assert epochs(stage) == [
        (0.6, 1.0, 0, False),
        (0.7, 2.0, 0, False),
        (2.1, 1.0, 1, False),
        (2.2, 2.0, 1, False),
        (3.6, 1.0, 2, False),
        (3.7, 2.0, 2, False),
    ]
    assert stage.report.planned_wall_s == pytest.approx(4.5)
    assert stage.report.wall_s == pytest.approx(4.5)
    assert [jump.why for jump in stage.report.jumps] == ["loop", "loop"]


def test_a_pause_within_the_delay_before_a_loop():
    stage = Stage(ticking(1), delay_wall_s=2.0)
    stage.at(0.5, stage.player.pause).at(10, stage.player.resume).play()
    assert stage.walls() == [(11.6, 1.0)]


def test_endless_loops_end_by_stopping():
    stage = Stage(ticking(1), loops=None)
    stage.at(100.5, stage.player.stop).play()
    assert stage.report.epochs == 101
    assert stage.report.planned_wall_s is None


def test_long_silences_are_cut_down_and_said():
    seen = []

    class Watcher(Observer):
        def jumped(self, before, after, epoch):
            seen.append((before, after, epoch))

    stage = Stage(ticking(0, 5, 1000, 1004, end=5000), max_gap_s=10.0, observer=Watcher()).play()
    assert stage.walls() == [(0.0, 0.0), (0.5, 5.0), (1.5, 1000.0), (1.9, 1004.0)]
    assert seen == [(5.0, 990.0, 0), (1004.0, 4990.0, 0)]
    assert [(j.before_s, j.after_s, j.why) for j in stage.report.jumps] == [
        (5.0, 990.0, "gap"),
        (1004.0, 4990.0, "gap"),
    ]
    assert stage.report.wall_s == pytest.approx(stage.report.planned_wall_s)
    assert stage.report.speed_achieved == pytest.approx(10.0)


def test_watermarks_do_not_stop_in_a_silence_that_is_cut():
    stage = Stage(ticking(0, 10**6, end=10**6), max_gap_s=100.0).play()
    marks = [m.at for m in stage.sink.messages if isinstance(m, Watermark)]
    assert len(marks) < 150
    assert sum(at > 10**6 - 100 for at in marks) > 90


def test_controls_after_the_end_do_nothing_and_do_not_wait():
    stage = Stage(ticking(1)).play()
    player = stage.player
    for control in (player.pause, player.resume, player.stop, player.faster, player.step):
        control()
    player.seek(0)
    assert player.state().status == "ended"
    with pytest.raises(RuntimeError, match="plays once"):
        player.play()


@pytest.mark.parametrize("speed", [10.0, MAX])
def test_a_pause_within_an_instant_of_thousands(speed):
    count = 5 * PIECE
    stage = Stage(trace_of(Work(3, (Row(1),) * count)), speed=speed)
    player = stage.player
    seen = []

    def sink(messages):
        Recorder.__call__(stage.sink, messages)
        if len(alerts(messages)) and not seen:
            seen.append(player.state().published)
            player.pause()

    player._drive._sink = sink
    stage.at(50, lambda: seen.append(player.state().published), player.resume)
    stage.play()
    assert seen == [0, PIECE]
    assert [alert[1] for alert in alerts(stage.sink.messages)] == [*range(count)]


def test_companions_are_ordinary_simpy_processes_in_replay_time():
    seen = []

    def every_two_seconds(env):
        while env.now < 6 * 10**9:
            yield env.timeout(2 * 10**9)
            seen.append((clock.now_ns / 1e9, env.now / 1e9))

    stage = Stage(ticking(1, 6), companions=[every_two_seconds])
    clock = stage.clock
    stage.play()
    assert seen == [(0.2, 2.0), (0.4, 4.0), (0.6, 6.0)]


def test_a_step_right_after_a_seek_waits_until_that_has_caught_up():
    stage = Stage(ticking(*range(10)))
    player = stage.player
    stage.at(0.05, lambda: (player.seek(6.0), player.step("alert")))
    stage.at(5, player.resume).play()
    assert epochs(stage)[:8] == [
        (0.0, 0.0, 0, False),
        *((0.05, float(at), 0, True) for at in range(1, 6)),
        (0.05, 6.0, 0, False),
        (5.1, 7.0, 0, False),
    ]


@pytest.mark.parametrize("speed", [10.0, MAX])
def test_a_stop_does_not_wait_until_a_seek_has_caught_up(speed):
    stage = Stage(ticking(*range(500), end=500), speed=speed, start_paused=True)
    player = stage.player

    def sink(messages):
        Recorder.__call__(stage.sink, messages)
        if len(alerts(stage.sink.messages)) == 20:
            player.stop()

    player._drive._sink = sink
    stage.at(1, lambda: player.seek(400)).play()
    assert len(alerts(stage.sink.messages)) == 20
    assert stage.sink.messages[-1].complete is False


def test_seeks_add_up_in_virtual_time_too():
    stage = Stage(ticking(0, 50, end=60), speed=MAX, start_paused=True)
    seen = []
    for second in (1, 2, 3):
        stage.at(second, lambda: stage.player.seek_by(10))
        stage.at(second + 0.5, lambda: seen.append(stage.player.state().position_s))
    stage.at(9, stage.player.resume).play()
    assert seen == [10.0, 20.0, 30.0]
