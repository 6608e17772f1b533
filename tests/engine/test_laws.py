"""Laws that hold for every trace: each alert once, in order, the same at every speed, never early."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tapes import Recorder, alerts, check_protocol, schedules, skeleton, trace_of, traces

from replay.clock import ManualClock
from replay.engine import Playback, Player, play_plainly
from replay.messages import AlertSlice
from replay.timeline import Timeline

SPEEDS = st.sampled_from((0.1, 1.0, 7.0, 10.0, 1000.0, 1e6))


def paced(speed, **options):
    """A pace whose watermarks come every two trace seconds."""
    return Playback(speed=speed, tick_wall_s=2 / speed, **options)


def played(timeline, playback=None, **options):
    """What the sink got, with its clock."""
    clock = ManualClock(tick_ns=20_000)
    sink = Recorder(clock)
    Player(timeline, sink, playback, wall=clock, **options).play()
    return sink


@given(traces, schedules, st.sampled_from(("keep", "clip", "drop")))
def test_the_player_publishes_what_one_plain_simpy_process_does(trace, schedule, outside):
    timeline = Timeline.build(trace, schedule=schedule, outside=outside)
    plain = Recorder()
    play_plainly(timeline, plain)
    sink = played(timeline)
    check_protocol(sink.messages)
    assert skeleton(sink.messages) == skeleton(plain.messages)


@given(traces)
def test_law_1_every_alert_once_in_the_order_of_offset_and_row(trace):
    rows = trace.events.to_pylist()
    expected = []
    for number, job in enumerate(trace.jobs):
        own = [row for row in rows if row["job"] == number]
        own.sort(key=lambda row: row["at"])  # stable: rows of one time keep the file's order
        expected += [
            (job.id, seq, row["at"] / 1e9, row["ip"], row["event"]) for seq, row in enumerate(own)
        ]
    got = alerts(played(Timeline.build(trace)).messages)
    assert sorted(got) == sorted(expected)
    order = {job.id: number for number, job in enumerate(trace.jobs)}
    assert got == sorted(got, key=lambda alert: (alert[2], order[alert[0]], alert[1]))


@given(traces, schedules, SPEEDS)
def test_law_2_the_same_at_every_speed(trace, schedule, speed):
    timeline = Timeline.build(trace, schedule=schedule)
    sink = played(timeline, paced(speed))
    check_protocol(sink.messages)
    assert skeleton(sink.messages) == skeleton(played(timeline).messages)


@given(traces, st.data())
def test_law_2_rows_in_another_order_with_equal_keys_kept(trace, data):
    rows = np.arange(trace.events.num_rows)
    keys = list(
        zip(
            trace.events.column("job").to_pylist(),
            trace.events.column("at").to_pylist(),
            strict=True,
        )
    )
    shuffled = list(data.draw(st.permutations(list(rows))))
    shuffled.sort(key=lambda row: keys[row][0])  # a trace has each job's rows together
    places = {}
    for place, row in enumerate(shuffled):
        places.setdefault(keys[row], []).append(place)
    for key, of_key in places.items():  # rows with equal keys back into their own order
        equal = sorted(row for row in rows if keys[row] == key)
        for place, row in zip(of_key, equal, strict=True):
            shuffled[place] = row
    other = type(trace)(trace.jobs, trace.events.take(pa.array(shuffled, pa.int64())), trace.source)
    first, second = Timeline.build(trace), Timeline.build(other)
    assert skeleton(played(first).messages) == skeleton(played(second).messages)


@given(traces, st.integers(-3, 12))
def test_law_3_a_prefix_of_the_tape_is_a_prefix_of_the_stream(trace, at):
    timeline = Timeline.build(trace)
    whole = [row for row in skeleton(played(timeline).messages) if row[0] != "ended"]
    if not timeline.begin_ns / 1e9 <= at <= timeline.end_ns / 1e9:
        return
    part = played(timeline, Playback(end_s=at))
    story = [row for row in skeleton(part.messages) if row[0] != "ended"]
    assert story == whole[: len(story)]
    assert all(
        alert[2] > at for alert in alerts(played(timeline).messages)[len(alerts(part.messages)) :]
    )


@given(traces, schedules, SPEEDS, st.lists(st.integers(-200_000, 3_000_000), max_size=20))
def test_law_5_never_early_and_late_is_counted(trace, schedule, speed, oversleeps):
    timeline = Timeline.build(trace, schedule=schedule)
    clock = ManualClock(
        tick_ns=20_000, oversleep_ns=lambda n: oversleeps[n] if n < len(oversleeps) else 0
    )
    published = []

    def sink(messages):
        published.extend(
            (clock.now_ns, message) for message in messages if isinstance(message, AlertSlice)
        )

    report = Player(timeline, sink, paced(speed), wall=clock).play()
    assert report.early == 0
    stamps = {(message.scheduled_wall, message.published_wall) for _, message in published}
    assert report.lateness.count == len(stamps)
    assert all(left >= due for due, left in stamps)
    assert all(now / 1e9 + 1e9 >= message.scheduled_wall - 1e-6 for now, message in published)
    surely_late = sum(left - due > 0.001 + 1e-6 for due, left in stamps)
    perhaps_late = sum(left - due > 0.001 - 1e-6 for due, left in stamps)
    assert surely_late <= report.late <= perhaps_late


@given(traces, schedules)
def test_names_are_revealed_only_when_they_are_seen(trace, schedule):
    seen: dict[str, tuple[set, set]] = {}
    jobs = {job.id: set(job.ip_status) for job in trace.jobs}
    for message in played(Timeline.build(trace, schedule=schedule)).messages:
        if isinstance(message, AlertSlice):
            batch = message.batch
            nodes, kinds = seen.setdefault(batch.job, (set(jobs[batch.job]), set()))
            nodes.update(alert.node for alert in batch)
            kinds.update(alert.kind for alert in batch)
            assert set(batch.nodes) == nodes
            assert set(batch.kinds) == kinds
            assert len(set(batch.nodes)) == len(batch.nodes)


@given(traces)
def test_codes_keep_their_names_and_columns_are_read_only(trace):
    names: dict[tuple[str, int], str] = {}
    for message in played(Timeline.build(trace)).messages:
        if isinstance(message, AlertSlice):
            batch = message.batch
            for code, name in enumerate(batch.nodes):
                assert names.setdefault((batch.job, code), name) == name
            for column in (batch.seq, batch.node, batch.kind):
                with pytest.raises(ValueError, match="read-only"):
                    column[0] = 0


def test_no_job_at_all():
    sink = played(Timeline.build(trace_of()))
    assert sink.messages == []
