"""A trace laid out: columns, order, names, filters, policies."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tapes import SECOND, Row, Work, schedules, ticking, trace_of, traces

from replay.errors import UsageError
from replay.timeline import PIECE, Reel, Timeline
from replay.traces.model import Trace

TWO = trace_of(
    Work(10, (Row(5, "b", "x"), Row(1, "z", "y"), Row(5, "a", "x"), Row(1, "b", "x"))),
    Work(20, (Row(1, "a", "y"), Row(1, "c", "x")), nodes=("c",)),
)


def told(timeline):
    """(replay second, job, seq, at, node, kind) of every alert, in playing order."""
    reel = Reel(timeline)
    starts = timeline.instant_starts.tolist()
    return [
        (now / SECOND, *alert)
        for now, first, last in zip(timeline.instant_ns.tolist(), starts, starts[1:], strict=False)
        for message in reel.slices(first, last)
        for alert in message.batch
    ]


def test_order_is_time_then_job_then_row():
    timeline = Timeline.build(TWO)
    assert told(timeline) == [
        (1.0, "Job1", 0, 1.0, "z", "y"),
        (1.0, "Job1", 1, 1.0, "b", "x"),
        (1.0, "Job2", 0, 1.0, "a", "y"),
        (1.0, "Job2", 1, 1.0, "c", "x"),
        (5.0, "Job1", 2, 5.0, "b", "x"),
        (5.0, "Job1", 3, 5.0, "a", "x"),
    ]
    assert timeline.instant_ns.tolist() == [1 * SECOND, 5 * SECOND]
    assert timeline.numbers.tolist() == [0, 2, 4, 6]


def test_a_job_has_its_own_nodes_first_then_others_as_they_appear():
    slots = Timeline.build(TWO).slots
    assert slots[0].nodes == ("a", "b", "z")
    assert slots[0].kinds == ("y", "x")
    assert slots[1].nodes == ("c", "a")


def test_slots_begin_at_the_earliest_and_end_at_the_latest():
    trace = trace_of(Work(10, (Row(-4), Row(12))), Work(10, (Row(3),)), Work(0))
    spans = [(s.begin_ns / SECOND, s.end_ns / SECOND) for s in Timeline.build(trace).slots]
    assert spans == [(-4.0, 12.0), (0.0, 10.0), (0.0, 0.0)]


def test_sequence_keeps_offsets():
    timeline = Timeline.build(TWO, schedule="sequence:5")
    assert [(row[0], row[3]) for row in told(timeline) if row[1] == "Job2"] == [(16.0, 1.0)] * 2
    assert timeline.slot("Job2").at(16 * SECOND) == 1.0
    assert (timeline.begin_ns, timeline.end_ns) == (0, 35 * SECOND)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"node": "a"}, [("Job2", 0, "a", "y"), ("Job1", 0, "a", "x")]),
        ({"node": "a|c", "kind": "x"}, [("Job2", 0, "c", "x"), ("Job1", 0, "a", "x")]),
        ({"kind": "[xy]", "exclude_kind": "x"}, [("Job1", 0, "z", "y"), ("Job2", 0, "a", "y")]),
        ({"job": "Job2"}, [("Job2", 0, "a", "y"), ("Job2", 1, "c", "x")]),
        ({"node": "nobody"}, []),
        ({"job": "J"}, []),
    ],
)
def test_filters_are_for_the_whole_word_and_number_anew(filters, expected):
    timeline = Timeline.build(TWO, **filters)
    assert [(job, seq, node, kind) for _, job, seq, _, node, kind in told(timeline)] == expected
    assert timeline.facts.left_out == 6 - len(expected)


def test_names_that_are_filtered_out_are_not_known():
    slot = Timeline.build(TWO, kind="x").slots[0]
    assert (slot.nodes, slot.kinds) == (("a", "b"), ("x",))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"job": "["}, r"job '\[' is not a regular expression"),
        ({"node": "*"}, r"node '\*' is not a regular expression"),
        ({"kind": "(?P<x"}, "kind .* is not a regular expression"),
        ({"exclude_kind": "("}, "exclude-kind .* is not a regular expression"),
        ({"outside": "ignore"}, "outside 'ignore' is none of keep, clip, drop"),
        ({"spread": "wide"}, "spread 'wide' is none of none, even, random"),
        ({"schedule": "never"}, "There is no schedule 'never'"),
    ],
)
def test_words_that_mean_nothing(words, message):
    with pytest.raises(UsageError, match=message):
        Timeline.build(TWO, **words)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("keep", [-5, 0, 10, 11, 99]), ("clip", [0, 0, 10, 10, 10]), ("drop", [0, 10])],
)
def test_alerts_outside_their_job(policy, expected):
    timeline = Timeline.build(ticking(99, 0, 10, -5, 11), outside=policy)
    assert [row[3] for row in told(timeline)] == expected
    assert (timeline.facts.before_start, timeline.facts.after_end) == (1, 2)
    assert timeline.slots[0].zero_ns == 0


def test_facts():
    timeline = Timeline.build(ticking(3, 1, 1, 2, 9, 1))
    facts = timeline.facts
    assert (facts.unsorted, facts.tied, facts.largest_instant) == (2, 3, 3)
    assert (facts.longest_gap_s, facts.longest_gap_at_s) == (6.0, 3.0)


def test_plan():
    timeline = Timeline.build(ticking(0, 1, 1, 1, 2, 500, end=1000))
    plan = timeline.plan(10)
    assert (plan.wall_s, plan.peak_per_wall_s, plan.jumps) == (100.0, 5, 0)
    assert timeline.plan(1).peak_per_wall_s == 3
    assert timeline.plan(1e12).peak_per_wall_s == 6
    plan = timeline.plan(10, max_gap_s=100)
    assert (plan.jumps, plan.skipped_s, plan.wall_s) == (2, 798.0, 20.2)


def test_long_instants_are_cut_into_pieces():
    timeline = Timeline.build(trace_of(Work(5, (Row(1),) * (2 * PIECE + 3) + (Row(2),))))
    sizes = (timeline.slice_stop - timeline.slice_start).tolist()
    assert sizes == [PIECE, PIECE, 3, 1]
    assert len(timeline.instant_ns) == 2


@pytest.mark.parametrize("spread", ["none", "even", "random"])
def test_spread_keeps_order_and_the_second(spread):
    rows = (Row(1, "a"), Row(1, "b"), Row(1, "c"), Row(1, "d"), Row(2.5, "e"), Row(3, "f"))
    timeline = Timeline.build(trace_of(Work(9, rows), Work(9, rows)), spread=spread, seed=5)
    first = [row for row in told(timeline) if row[1] == "Job1"]
    assert "".join(row[4] for row in first) == "abcdef"
    assert [int(row[3]) for row in first] == [1, 1, 1, 1, 2, 3]
    assert first[4][3] == 2.5  # has a place of its own
    if spread == "even":
        assert [row[3] for row in first] == [1.0, 1.25, 1.5, 1.75, 2.5, 3.0]
    if spread == "random":
        assert len({row[0] for row in told(timeline)}) > 6
        again = Timeline.build(trace_of(Work(9, rows), Work(9, rows)), spread=spread, seed=5)
        other = Timeline.build(trace_of(Work(9, rows), Work(9, rows)), spread=spread, seed=6)
        assert told(again) == told(timeline) != told(other)


def test_spread_goes_by_the_seconds_that_were_written():
    start = 250_000_000  # the job starts a quarter past a second: alerts are written on the second
    trace = trace_of(Work(9, (Row(0.75), Row(0.75), Row(1.0)), start_ns=start))
    assert [row[3] for row in told(Timeline.build(trace, spread="even"))] == [0.75, 1.0, 1.25]


@given(traces, schedules, st.sampled_from(("none", "even", "random")))
def test_every_alert_has_one_place(trace, schedule, spread):
    timeline = Timeline.build(trace, schedule=schedule, spread=spread)
    rows = told(timeline)
    assert len(rows) == len(timeline) == trace.events.num_rows
    assert [row[0] for row in rows] == sorted(row[0] for row in rows)
    for slot in timeline.slots:
        own = [row for row in rows if row[1] == slot.job.id]
        assert [row[2] for row in own] == [*range(slot.count)]
        written = trace.job(slot.job.id).events.select(("ip", "event")).to_pylist()
        assert sorted((row[4], row[5]) for row in own) == sorted(
            (row["ip"], row["event"]) for row in written
        )
        for row in own:
            assert slot.begin_ns <= round(row[0] * SECOND) <= slot.end_ns
    assert (np.diff(timeline.instant_ns) > 0).all()
    assert not timeline.node.flags.writeable


@given(traces, st.integers(0, 40), st.sampled_from(("a", "b|c", "")), st.sampled_from(("x", "")))
def test_matching_finds_the_next_alert_that_fits(trace, after, node, kind):
    timeline = Timeline.build(trace)
    rows = told(timeline)
    expected = None
    for number, row in enumerate(rows, 1):
        if number > after and (not node or row[4] in node.split("|")) and kind in {"", row[5]}:
            expected = number
            break
    assert timeline.matching(node, kind, after) == expected


def test_columns_in_chunks_with_dictionaries_of_their_own():
    parts = [ticking(1, 2, node="p"), ticking(3, 4, node="q")]
    events = pa.concat_tables(part.events for part in parts)
    assert events.column("ip").num_chunks == 2
    timeline = Timeline.build(Trace(parts[0].jobs, events))
    assert [row[4] for row in told(timeline)] == ["p", "p", "q", "q"]


def test_times_that_no_replay_can_reach():
    far = 2**62
    with pytest.raises(UsageError, match="further than 146 years"):
        Timeline.build(ticking(1, far / 1e9 * 1.1))
    with pytest.raises(UsageError, match="further than 146 years"):
        Timeline.build(ticking(1, end=far / 1e9 * 1.1))
    for policy, alerts in (("clip", 2), ("drop", 1)):
        assert len(Timeline.build(ticking(1, far / 1e9 * 1.1), outside=policy)) == alerts
    long = trace_of(*[Work(2**61 / 1e9)] * 3)
    assert len(Timeline.build(long).slots) == 3
    with pytest.raises(UsageError, match="another --schedule"):
        Timeline.build(long, schedule="sequence")


def test_a_job_that_ends_before_it_starts_ends_at_its_start():
    timeline = Timeline.build(trace_of(Work(-5)))
    assert (timeline.begin_ns, timeline.end_ns) == (0, 0)


def test_there_is_no_such_job():
    with pytest.raises(UsageError, match="no job 'Job7'"):
        Timeline.build(TWO).slot("Job7")
