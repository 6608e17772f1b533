"""The laws of the house, held over whole runs: same verdicts everywhere, no look-ahead, no truth."""

from __future__ import annotations

import dataclasses
import gc
import itertools
import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import replay
from replay import traces
from replay.api import Job
from replay.clock import ManualClock
from replay.config import RunConfig
from replay.observer import Observer
from replay.plugins import DetectorSpec, parse_detectors
from replay.runner import BASELINES, Replay
from replay.testing import TINY_TRACES
from replay.traces import EVENTS, Trace, TraceJob

DETECTORS = parse_detectors(("burst:threshold=3,window=20", *BASELINES))


def bytes_of(run) -> bytes:
    """Everything that must be the same everywhere; wall times apart."""
    live = {"scheduled_wall", "published_wall", "emitted_wall"}
    rows = [{k: v for k, v in row.items() if k not in live} for row in run.log.rows()]
    return repr(rows).encode()


def play(trace, clock=None, script=(), **config):
    """Play on a clock of our own; ``script`` is (wall seconds, what to do with the player)."""
    made = Replay(trace, DETECTORS, RunConfig(**config), wall=clock)
    for wall_s, act in script:
        clock.at(wall_s, lambda act=act: act(made.player))
    return made.play()


def made_trace(seed: int, jobs: int = 3) -> Trace:
    """Small jobs with ties, repeats, silences, alerts before the start and after the end."""
    draw = random.Random(seed)
    kinds = ["ecc", "nic_down", "xid", "link_flap"]
    built, rows = [], []
    for number in range(jobs):
        nodes = [f"node-{number}-{n}" for n in range(draw.randint(1, 6))]
        start = draw.randint(-(10**9), 10**6) * 10**9
        length = draw.choice([0, 5, 30, 60])
        status = {node: draw.choice(["normal", "normal", "gpu_lost"]) for node in nodes}
        text = traces.times.format_ns
        built.append(
            TraceJob(
                f"Job{number}",
                text(start),
                text(start + length * 10**9),
                "Hopper",
                status,
                start,
                start + length * 10**9,
            )
        )
        for _ in range(draw.randint(0, 40)):
            at = draw.choice([0, 1, 1, 2, draw.randint(-5, length + 5)]) * 10**9
            rows.append(
                (
                    number,
                    draw.choice([*nodes, "stranger"]),
                    text(start + at),
                    draw.choice(kinds),
                    at,
                )
            )
    columns = [[row[i] for row in rows] for i in range(5)]
    arrays = [pa.array(column, item.type) for column, item in zip(columns, EVENTS, strict=True)]
    return Trace(tuple(built), pa.Table.from_arrays(arrays, schema=EVENTS), "made")


seeds = st.integers(0, 2**32)


@given(
    seeds, st.sampled_from(["1", "10", "1000"]), st.sampled_from(["together", "sequence", "pool:2"])
)
@settings(max_examples=12)
def test_same_verdicts_at_every_speed(seed, speed, schedule):
    trace = made_trace(seed)
    assert bytes_of(play(trace, ManualClock(), speed=speed, schedule=schedule)) == bytes_of(
        play(trace, schedule=schedule)
    )


@given(seeds)
@settings(max_examples=6)
def test_schedules_do_not_change_what_is_said_of_a_job(seed):
    trace = made_trace(seed)
    alone = [row for job in trace.job_ids for row in play(trace.job(job)).log.rows()]
    for schedule in ("together", "sequence:5", "stagger:7", "pool:2"):
        found = list(play(trace, schedule=schedule).log.rows())
        assert [{**r, "seq": 0} for r in found] == [{**r, "seq": 0} for r in alone]


@given(seeds)
@settings(max_examples=6)
def test_same_verdicts_from_every_form(tmp_path_factory, seed):
    trace = made_trace(seed)
    folder = tmp_path_factory.mktemp("forms")
    wanted = bytes_of(play(trace))
    for form, name in (
        ("folders", "f"),
        ("jsonl", "t.jsonl"),
        ("jsonl", "t.jsonl.gz"),
        ("parquet", "p"),
    ):
        again = traces.open(traces.write(trace, folder / name, form))
        assert bytes_of(play(again)) == wanted, form


@given(seeds, st.randoms(use_true_random=False))
@settings(max_examples=6)
def test_rows_may_come_in_any_order_that_keeps_ties(seed, draw):
    trace = made_trace(seed)
    bounds = trace.bounds
    at = trace.events["at"].to_numpy()
    order = []
    for start, stop in itertools.pairwise(bounds):
        groups = {}
        for row in range(start, stop):
            groups.setdefault(at[row], []).append(row)
        waiting = list(groups.values())  # merge at random; equal times keep their order
        while waiting:
            group = draw.choice(waiting)
            order.append(group.pop(0))
            waiting = [g for g in waiting if g]
    shuffled = dataclasses.replace(trace, events=trace.events.take(pa.array(order, pa.int64())))
    assert bytes_of(play(shuffled)) == bytes_of(play(trace))


@given(seeds, st.floats(0.0, 3.0), st.floats(0.5, 300.0))
@settings(max_examples=12)
def test_a_pause_changes_nothing(seed, when, how_long):
    trace = made_trace(seed, jobs=1)
    clock = ManualClock()
    script = [(when, lambda p: p.pause()), (when + how_long, lambda p: p.resume())]
    assert bytes_of(play(trace, clock, script, speed="10")) == bytes_of(play(trace))


@given(seeds, st.floats(0.1, 3.0))
@settings(max_examples=12)
def test_back_to_the_beginning_is_the_same_replay(seed, when):
    trace = made_trace(seed, jobs=1)
    begin = min(0, min(trace.events["at"].to_pylist(), default=0)) / 1e9
    clock = ManualClock()
    again = play(trace, clock, [(when, lambda p: p.seek(begin))], speed="10")
    assert bytes_of(again) == bytes_of(play(trace))


@given(seeds, st.floats(0.1, 2.0), st.floats(0, 100))
@settings(max_examples=12)
def test_catching_up_is_the_same_replay(seed, when, target):
    trace = made_trace(seed, jobs=1)
    clock = ManualClock()
    script = [(when, lambda p: p.seek(target, detectors="catch-up"))]
    assert bytes_of(play(trace, clock, script, speed="10")) == bytes_of(play(trace))


def test_a_real_clock_gives_the_same_verdicts():
    trace = next(tiny for tiny in TINY_TRACES if tiny.name == "culprit").trace()
    wanted = bytes_of(play(trace))
    for speed in ("100", "1000"):
        done = play(trace, speed=speed)
        assert bytes_of(done) == wanted
        assert done.played.early == 0


def test_looking_on_changes_nothing():
    class Nosy(Observer):
        def __init__(self):
            self.seen = []

        def published(self, message):
            self.seen.append(message)

        def judged(self, verdict):
            self.seen.append(verdict)

    trace, nosy = made_trace(5), Nosy()
    watched = Replay(trace, DETECTORS, RunConfig(), observers=[nosy]).play()
    assert bytes_of(watched) == bytes_of(play(trace))
    assert nosy.seen


def test_a_detector_reaches_no_truth():
    """Walk everything that can be reached from a detector at work: no label, no end time."""
    found = []

    class Spy(replay.api.Detector):
        """Remembers what it was given."""

        def observe(self, alert):
            found.append((self.job, alert))
            return ()

        def observe_batch(self, batch):
            found.append(batch)
            return super().observe_batch(batch)

    secret, end = "SECRET-LABEL", "1971-03-04 05:06:07"
    nodes = {"node-a": secret, "node-b": "normal"}
    job = TraceJob(
        "Job1", "1971-03-04 05:00:00", end, "Hopper", nodes, 36910800 * 10**9, 36911167 * 10**9
    )
    table = pa.Table.from_pydict(
        {"job": [0], "ip": ["node-a"], "event_time": ["1971-03-04 05:00:01"], "event": ["ecc"], "at": [10**9]},
        schema=pa.schema([("job", pa.int32()), ("ip", pa.string()), ("event_time", pa.string()), ("event", pa.string()), ("at", pa.int64())]),
    )  # fmt: skip
    Replay(Trace((job,), table.cast(EVENTS)), [DetectorSpec.of(Spy)], RunConfig()).play()
    assert len(found) == 2
    seen, waiting = set(), list(found)
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen or isinstance(thing, type) or callable(thing):
            continue
        seen.add(id(thing))
        assert not (isinstance(thing, str) and (secret in thing or end in thing))
        assert not isinstance(thing, Trace | TraceJob | pa.Table)
        if isinstance(thing, np.ndarray):
            assert not thing.flags.writeable
        waiting.extend(gc.get_referents(thing))


@pytest.mark.parametrize("tiny", TINY_TRACES, ids=lambda tiny: tiny.name)
def test_every_alert_once_and_in_order(tiny):
    seen = []

    class Notes(replay.api.Detector):
        """Writes down what it sees."""

        def observe(self, alert):
            seen.append((alert.seq, alert.at, alert.node, alert.kind))
            return ()

    Replay(tiny.trace(), [DetectorSpec.of(Notes)], RunConfig(baselines=False)).play()
    rows = sorted(enumerate(tiny.alerts), key=lambda item: (item[1][0], item[0]))
    assert seen == [(n, at, node, kind) for n, (_, (at, node, kind)) in enumerate(rows)]


def test_prefix_of_a_stream_gives_a_prefix_of_the_verdicts():
    trace = made_trace(11, jobs=1)
    whole = [v for v in play(trace).log.rows() if v["detector"].startswith("burst")]
    cut = sorted(trace.events["at"].to_pylist())[len(trace.events["at"]) // 2]
    keep = pa.compute.less_equal(trace.events["at"], cut)
    part = play(dataclasses.replace(trace, events=trace.events.filter(keep)))
    some = [v for v in part.log.rows() if v["detector"].startswith("burst")]
    early = [
        v for v in whole if v["trigger_seq"] is not None and v["trigger_seq"] < len(part.log.table)
    ]
    assert some[: len(early)] == early[: len(some)]
    assert Job("x") == Job("x")
