"""Epochs, repeats, losses, and many jobs at once."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.api import Detector, Job
from replay.host import Cost, Host, JobHost
from replay.messages import AlertSlice, JobEnded, JobStarted, Watermark
from replay.plugins import DetectorSpec
from replay.testing import TINY_TRACES, stream

ROWS = [(0.0, "a", "x"), (1.0, "b", "x"), (1.0, "c", "y"), (2.0, "a", "x")]


def play(host, messages):
    return [timed for message in messages for timed in host.feed(message)]


def test_names_must_differ(echo):
    spec = DetectorSpec.of(echo)
    for make in (Host, JobHost):
        with pytest.raises(ValueError, match="unique names, not Echo, Echo"):
            make([spec, spec])


def test_no_detectors_no_verdicts(job):
    assert Host([]).feed(stream(job, ROWS)) == []


# --- epochs --------------------------------------------------------------------------------------


def test_later_epoch_begins_with_fresh_detectors(job, echo):
    host = Host([DetectorSpec.of(echo)])
    first = host.feed(stream(job, ROWS, end=9.0)[:-1])
    again = host.feed(stream(job, ROWS, end=9.0, epoch=1))
    assert [(t.at, t.verdict, t.number) for t in again[: len(first)]] == [
        (t.at, t.verdict, t.number) for t in first
    ]
    assert {timed.epoch for timed in first} == {0}
    assert {timed.epoch for timed in again} == {1}
    assert not host.tally.refused


def test_older_epochs_are_refused(job, echo):
    host = Host([DetectorSpec.of(echo)])
    old = stream(job, ROWS, end=9.0)
    host.feed(old[:2])
    host.feed(stream(job, [], epoch=2)[:1])
    assert host.feed(old[2:]) == []
    assert host.tally.refused == Counter({"old epoch": len(old) - 2})
    assert host.tally.missing == 0


def test_a_new_epoch_lets_go_of_all_jobs_of_the_run(echo):
    host = Host([DetectorSpec.of(echo)])
    one, two, other = (Job(name, ("a",)) for name in ("one", "two", "other"))
    host.feed(stream(one, ROWS)[:-1])
    host.feed(stream(other, ROWS, run="another run")[:-1])
    host.feed(stream(two, ROWS, epoch=1)[:-1])
    assert host.feed(stream(one, ROWS)[-1:]) == []
    assert host.tally.refused == Counter({"old epoch": 1})
    assert host.feed(stream(other, ROWS, run="another run")[-1:])  # other runs are not touched


def test_job_host_alone_does_the_same(job, echo):
    host = JobHost([DetectorSpec.of(echo)])
    messages = stream(job, ROWS, end=9.0)
    play(host, messages)
    assert host.ended
    assert play(host, messages) == []
    assert host.tally.refused == {"started twice": 1, "after end": len(messages) - 1}
    assert play(host, stream(job, ROWS, epoch=1)[:1]) == []
    assert not host.ended
    assert play(host, messages) == []
    assert host.tally.refused["old epoch"] == len(messages)


def test_nothing_before_the_start(job, echo):
    host = Host([DetectorSpec.of(echo)])
    started, *rest = stream(job, ROWS)
    assert host.feed([*rest, Watermark("hand-made", 0, "Job1", 5.0)]) == []
    assert host.feed([started])[1:] == []
    assert host.feed([replace(rest[0], epoch=1)]) == []
    assert host.tally.refused == {"before start": len(rest) + 2}


# --- repeats and losses --------------------------------------------------------------------------


def test_alerts_that_came_before_are_left_out(job, echo):
    messages = stream(job, ROWS, end=9.0)
    host = Host([DetectorSpec.of(echo)])
    wanted = Host([DetectorSpec.of(echo)]).feed(messages)
    said = host.feed(messages[:3])
    said += host.feed(messages[1:3])  # the same again
    both = messages[2].batch
    later = replace(messages[2], batch=both)
    said += host.feed([later, *messages[3:]])
    assert said == wanted
    assert host.tally.duplicates == 3 + 2
    assert host.tally.missing == 0


def test_half_a_slice_again(job, echo):
    start, slice_, end = stream(job, [(1.0, node, "x") for node in "abc"])
    whole = slice_.batch
    first = replace(slice_, batch=stream(job, [(1.0, node, "x") for node in "ab"])[1].batch)
    host = JobHost([DetectorSpec.of(echo)])
    said = play(host, [start, first, slice_, end])
    assert [timed.verdict.evidence for timed in said[:3]] == [(0,), (1,), (2,)]
    assert host.tally.duplicates == 2
    assert len(whole) == 3


def test_end_tells_what_is_missing(job, echo):
    messages = stream(job, ROWS, end=9.0)
    host = Host([DetectorSpec.of(echo)])
    host.feed([*messages[:2], messages[-1]])
    assert host.tally.missing == 3


def test_empty_slices_are_nothing(job, echo):
    messages = stream(job, ROWS)
    batch = messages[1].batch
    empty = replace(messages[1], batch=type(batch)("Job1", 0.5, *(c[:0] for c in (
        batch.seq, batch.node, batch.kind)), batch.nodes, batch.kinds))  # fmt: skip
    wanted = Host([DetectorSpec.of(echo)]).feed(messages)
    assert Host([DetectorSpec.of(echo)]).feed([*messages[:2], empty, *messages[2:]]) == wanted


def test_numbers_may_begin_anywhere(job, echo):
    messages = stream(job, ROWS)
    for message in messages:
        if isinstance(message, AlertSlice):
            message.batch.seq = message.batch.seq + 1000
    host = Host([DetectorSpec.of(echo)])
    assert len(host.feed(messages)) == len(ROWS) + 1
    assert host.tally.duplicates == host.tally.missing == 0


@given(data=st.data())
def test_reading_again_from_anywhere_changes_nothing(echo, data):
    """What a consumer does that lost its place: it goes back, and comes on again."""
    tiny = TINY_TRACES[data.draw(st.integers(0, len(TINY_TRACES) - 1))]
    messages = tiny.messages()
    spec = DetectorSpec.of(echo)
    wanted = Host([spec]).feed(messages)
    host, said, place = Host([spec]), [], 0
    for _ in range(data.draw(st.integers(0, 3))):
        reached = data.draw(st.integers(place, len(messages)))
        said += host.feed(messages[place:reached])
        place = data.draw(st.integers(0, reached))
    said += host.feed(messages[place:])
    assert said == wanted


# --- many jobs -----------------------------------------------------------------------------------


@settings(max_examples=12)
@given(data=st.data())
def test_jobs_side_by_side_get_what_each_gets_alone(echo, data):
    spec = DetectorSpec.of(echo)
    streams = {tiny.job.id: tiny.messages() for tiny in TINY_TRACES}
    alone = {name: Host([spec]).feed(messages) for name, messages in streams.items()}
    left = {name: list(messages) for name, messages in streams.items()}
    host, said = Host([spec]), []
    draw = data.draw(st.randoms(use_true_random=False))
    while left:
        name = draw.choice(sorted(left))
        count = draw.randint(1, 5)
        said += host.feed(left[name][:count])
        left[name] = left[name][count:]
        if not left[name]:
            del left[name]
    for name, wanted in alone.items():
        assert [timed for timed in said if timed.job == name] == wanted


def test_runs_are_kept_apart(job, echo):
    host = Host([DetectorSpec.of(echo)])
    one, two = (stream(job, ROWS, run=run, end=9.0) for run in ("one", "two"))
    said = host.feed(message for pair in zip(one, two, strict=True) for message in pair)
    told = {
        run: [(t.at, t.number, t.verdict) for t in said if t.run == run] for run in ("one", "two")
    }
    assert told["one"] == told["two"]
    assert len(told["one"]) == len(said) // 2 > 0


# --- cost ----------------------------------------------------------------------------------------


def test_cost_is_counted_per_detector(job, echo):
    ticks = iter(range(0, 10**6, 10))
    host = Host(
        [
            DetectorSpec.of(echo, "one", ahead=99.0),
            DetectorSpec.of(echo, "two", ahead=0.1, again=0),
        ],
        perf=ticks.__next__,
    )
    host.feed(stream(job, ROWS, end=9.0))
    # built, three instants, the end; and three wake-ups
    assert host.tally.costs == {"one": Cost(5, 4, 50), "two": Cost(8, 4, 80)}
    assert host.tally.costs["two"].seconds == 80e-9
    assert list(host.tally.costs) == ["one", "two"]


def test_cost_of_a_failed_call_is_counted(job):
    class Bad(Detector):
        """Fails."""

        def observe(self, alert):
            raise ValueError

    host = Host([DetectorSpec.of(Bad)], perf=iter(range(100)).__next__)
    host.feed(stream(job, ROWS))
    assert host.tally.costs["Bad"] == Cost(calls=2, alerts=1, ns=2)


def test_stopping_early_still_asks_for_last_words(job, echo):
    start, end = JobStarted("r", 0, job, ""), JobEnded("r", 0, "Job1", 4.0, 0, complete=False)
    (last,) = Host([DetectorSpec.of(echo)]).feed([start, end])
    assert (last.at, last.verdict.reason) == (4.0, "over")
