"""What moving a whole data set costs when nothing is waited for.

Run alone: ``python -m pytest tests/bench/test_engine_virtual.py -m bench``.
"""

from __future__ import annotations

import hashlib
import statistics
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import simpy
from dataset import whole_set
from desflow import SimulationContext
from tapes import alerts

from replay.api import Alert
from replay.clock import ManualClock
from replay.engine import MAX, Playback, Player, TapeEnvironment, play_plainly
from replay.messages import AlertSlice
from replay.timeline import Timeline
from replay.traces import open as open_trace
from replay.traces import write

ROUNDS = 3
TICK = 30 * 10**9


@pytest.fixture(scope="module")
def tied():
    return Timeline.build(whole_set())


@pytest.fixture(scope="module")
def untied():
    return Timeline.build(whole_set(ties=False))


cpu_clock = time.process_time  # what others do on the machine shows less in it


def cost(act, clock=cpu_clock):
    """Seconds that it takes."""
    begun = clock()
    act()
    return clock() - begun


def interleaved(*acts, rounds=ROUNDS, clock=cpu_clock):
    """The median seconds of each, taken in turns."""
    taken = [[cost(act, clock) for act in acts] for _ in range(rounds)]
    return [statistics.median(column) for column in zip(*taken, strict=True)]


def times_of(timeline):
    """The time of every alert, in playing order."""
    counts = np.diff(timeline.numbers[timeline.instant_starts])
    return timeline.instant_ns.repeat(counts).tolist()


def per_alert(timeline, call):
    """The reference: one SimPy process, one timeout per alert."""
    times = times_of(timeline)

    def player(env):
        for number, at in enumerate(times):
            yield env.timeout(at - env.now)
            call(number)

    def run():
        env = simpy.Environment(timeline.begin_ns)
        env.process(player(env))
        env.run()

    return run


def on_tape(timeline, emit, *, ticker=False):
    """The environment alone, which gives its sink an instant at a time."""

    def ticking(env):
        for _ in range(int((timeline.end_ns - env.now) // TICK)):
            yield env.timeout(TICK)

    def run():
        env = TapeEnvironment(timeline.instant_ns.data, emit, initial_time=timeline.begin_ns)
        if ticker:
            env.process(ticking(env))
        env.run()

    return run


def with_messages(timeline, publish):
    return lambda: Player(timeline, publish).play()


def test_t1_throughput(benchmark, table, tied, untied):
    def null(_):
        pass

    def emit(instant, _):
        return instant + 1

    def measure():
        return [
            interleaved(
                per_alert(timeline, null),
                on_tape(timeline, emit),
                on_tape(timeline, emit, ticker=True),
                with_messages(timeline, null),
                lambda timeline=timeline: play_plainly(timeline, null),
            )
            for timeline in (tied, untied)
        ]

    cases = zip(("ties", "no ties"), (20, 6), benchmark.pedantic(measure, rounds=1), strict=True)
    for name, target, (reference, bare, ticked, whole, plain) in cases:
        label = f"one timeout per alert ({reference * 1e3:.0f} ms)"
        ratio = reference / bare
        table("T1", f"tape, {name}", label, f">= {target}x", f"{ratio:.0f}x", ratio >= target)
        table("T1.1", f"tape, {name}, 30-s ticker", label, "", f"{reference / ticked:.1f}x")
        table("T1.2", f"player with messages, {name}", label, "", f"{reference / whole:.1f}x")
        table("T1.3", f"same, plain process, {name}", label, "", f"{reference / plain:.1f}x")


def test_t2_a_call_per_alert(benchmark, table, tied, untied):
    """The call does what a small detector does: counts by node."""

    def measure():
        figures = []
        for timeline in (tied, untied):
            edges = timeline.numbers[timeline.instant_starts].tolist()
            counts = [0] * 64

            def call(number, counts=counts):
                counts[number & 63] += 1

            def emit(instant, _, edges=edges, call=call):
                for number in range(edges[instant], edges[instant + 1]):
                    call(number)
                return instant + 1

            def bare(edges=edges, emit=emit):
                for instant in range(len(edges) - 1):
                    emit(instant, 0)

            figures.append(
                interleaved(bare, on_tape(timeline, emit), on_tape(timeline, emit, ticker=True))
            )
        return figures

    cases = zip(("ties", "no ties"), benchmark.pedantic(measure, rounds=1), strict=True)
    for name, (bare, tape, ticked) in cases:
        ratio = bare / tape
        table("T2", f"call per alert, {name}", "bare loop", ">= 0.7", f"{ratio:.2f}", ratio >= 0.7)
        table("T2.1", f"same, 30-s ticker, {name}", "bare loop", "", f"{bare / ticked:.2f}")


def test_t2_a_call_per_alert_object(benchmark, table, tied):
    """Against a loop that makes the same objects from lists."""
    seen = [0]

    def call(alert):
        seen[0] += len(alert.kind)

    def publish(messages):
        for message in messages:
            if isinstance(message, AlertSlice):
                for alert in message.batch:
                    call(alert)

    columns = list(zip(*every_alert(tied), strict=True))

    def bare():
        for job, seq, at, node, kind in zip(*columns, strict=True):
            call(Alert(job, seq, at, node, kind))

    bare_s, player_s = benchmark.pedantic(
        lambda: interleaved(bare, with_messages(tied, publish)), rounds=1
    )
    table("T2.2", "player, an object per alert", "bare loop", "", f"{bare_s / player_s:.2f}")


def every_alert(timeline):
    messages = []
    Player(timeline, messages.extend).play()
    return alerts(messages)


def test_t3_against_a_simpy_replayer(benchmark, table, tmp_path, tied):
    """From a Parquet file to a call per row; desflow replays the same rows, sorted, its way."""
    trace = whole_set()
    write(trace, tmp_path / "ours", form="parquet")
    rows = every_alert(tied)
    columns = {
        name: [row[place] for row in rows]
        for name, place in (("job", 0), ("t", 2), ("ip", 3), ("event", 4))
    }
    pq.write_table(pa.table(columns), tmp_path / "theirs.parquet")
    counts = [0, 0]

    def theirs():
        context = SimulationContext("bench", factor=0.0, random_seed=1, lag_interval=0)
        context.add_arrival_replay("alerts", str(tmp_path / "theirs.parquet"), time="t")

        def take(context):
            while True:
                yield context.wait_for_arrival("alerts")
                counts[0] += 1

        context.add_process(take)
        context.run(until=rows[-1][2] + 1)

    def publish(messages):
        for message in messages:
            if isinstance(message, AlertSlice):
                for _ in message.batch:
                    counts[1] += 1

    def ours():
        timeline = Timeline.build(open_trace(tmp_path / "ours"))
        Player(timeline, publish).play()

    def measure():
        return cost(theirs), statistics.median(cost(ours) for _ in range(3))

    desflow_s, ours_s = benchmark.pedantic(measure, rounds=1)
    assert counts == [len(rows), 3 * len(rows)]
    ratio = desflow_s / ours_s
    reference = f"desflow, factor 0 ({desflow_s:.1f} s)"
    table("T3", "file -> call per alert", reference, ">= 50x", f"{ratio:.0f}x", ratio >= 50)


def digest(timeline, playback=None, **script):
    """A hash of every alert in the order of publication, in the last epoch."""
    clock = ManualClock(tick_ns=0)
    messages = []
    player = Player(timeline, messages.extend, playback, wall=clock)
    for name, act in script.items():
        clock.at(float(name.removeprefix("at").replace("_", ".")), lambda act=act: act(player))
    player.play()
    last = messages[-1].epoch
    told = hashlib.sha256()
    for alert in alerts(message for message in messages if message.epoch == last):
        told.update(repr(tuple(alert)).encode())
    return told.hexdigest()


def test_t11_order(benchmark, table, tmp_path):
    trace = whole_set(alerts=40_000)
    timeline = Timeline.build(trace)

    def fast(speed, **options):
        return Playback(speed=speed, pacing="sleep", tick_wall_s=1000.0 / speed, **options)

    def measure():
        hashes = {speed: digest(timeline, fast(speed)) for speed in (1, 10, 1000)}
        hashes[MAX] = digest(timeline)
        for form in ("folders", "jsonl", "parquet"):
            write(trace, tmp_path / form, form=form)
            hashes[form] = digest(Timeline.build(open_trace(tmp_path / form)))
        hashes["shuffled"] = digest(Timeline.build(shuffled(trace)))
        hashes["seek back"] = digest(
            timeline,
            fast(1000),
            at12_5=lambda player: player.seek(3000, detectors="catch-up"),
        )
        hashes["seek forward"] = digest(
            timeline, fast(1000), at2_5=lambda player: player.seek(30_000)
        )
        return hashes

    hashes = benchmark.pedantic(measure, rounds=1)
    same = len(set(hashes.values())) == 1
    names = ", ".join(map(str, hashes))
    table("T11", f"order hash: {names}", "itself", "equal", "equal" if same else "DIFFER", same)
    assert same


def shuffled(trace):
    """Rows of each job in another order, rows of one time in theirs."""
    draw = np.random.default_rng(5)
    order = []
    for start, stop in zip(trace.bounds, trace.bounds[1:], strict=False):
        at = trace.events.column("at").to_numpy()[start:stop]
        keys = draw.permutation(len(np.unique(at)))[np.unique(at, return_inverse=True)[1]]
        order.append(start + np.argsort(keys, kind="stable"))
    return type(trace)(trace.jobs, trace.events.take(pa.array(np.concatenate(order))), "shuffled")
