"""The order of rows, jobs, alerts and keys decides nothing, to the last byte."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.scoring import Policy, data_hash, score


def jumble(bench, seed, shuffle):
    """The same trace and verdicts; only the order of things depends on ``shuffle``."""
    rng = random.Random(seed)
    jobs, said = [], []
    for number in range(1, 13):
        name = f"Job{number}"
        nodes = {f"n{k}": rng.choice(["normal", "normal", "faulty", ""]) for k in range(6)}
        alerts = [(rng.randrange(60), f"n{rng.randrange(8)}", "k") for _ in range(10)]
        jobs.append((name, nodes, alerts, rng.choice(["Hopper", "Ampere"])))
        said += [
            bench.say(
                rng.choice([*(f"n{k}" for k in range(9)), None]),
                rng.randrange(-5, 70),
                rng.choice([0.1, 0.2, 0.3, 1 / 3]),
                rng.choice(["raise", "raise", "retract"]),
                job=name,
                detector=rng.choice(["x", "y"]),
            )
            for _ in range(12)
        ]
    # seq is part of what a row says; the place of the row is not
    said = [{**row, "seq": place // 3} for place, row in enumerate(said)]
    shuffle(jobs)
    shuffle(said)
    made = []
    for name, nodes, alerts, generation in jobs:
        keys = list(nodes)
        shuffle(keys)
        made.append(
            bench.job(
                name,
                {key: nodes[key] for key in keys},
                sorted(alerts),
                duration=60,
                generation=generation,
            )
        )
    trace = bench.trace(*made)
    return trace, bench.log(trace, said)


POLICY = Policy(resamples=50, by=("gpu_generation",), cluster="component", grace_s=2)


@settings(max_examples=10)
@given(seed=st.integers(0, 20), other=st.randoms(use_true_random=False))
def test_same_bytes_in_any_order(bench, seed, other):
    plain = score(*jumble(bench, seed, lambda _: None), policy=POLICY, curves=True)
    mixed = score(*jumble(bench, seed, other.shuffle), policy=POLICY, curves=True)
    assert mixed.json() == plain.json()


def test_data_hash_knows_what_the_trace_says_and_not_its_order(bench):
    def made(**given):
        base = {"nodes": {"a": "normal", "b": "faulty"}, "alerts": [(1, "a", "k"), (2, "b", "l")]}
        return bench.job(**{**base, **given})

    def hashed(*jobs):
        return data_hash(bench.trace(*jobs))

    plain = hashed(made(), made(name="Job2"))
    assert plain == hashed(made(name="Job2"), made())
    assert plain == hashed(made(nodes={"b": "faulty", "a": "normal"}), made(name="Job2"))
    assert plain == hashed(made(alerts=[(2, "b", "l"), (1, "a", "k")]), made(name="Job2"))
    others = [
        made(nodes={"a": "faulty", "b": "normal"}),
        made(alerts=[(1, "b", "k"), (2, "b", "l")]),
        made(alerts=[(1, "a", "l"), (2, "b", "k")]),
        made(alerts=[(1, "a", "k"), (3, "b", "l")]),
        made(duration=601),
        made(generation="Ampere"),
        made(name="Job3"),
    ]
    assert len({plain, *(hashed(other, made(name="Job2")) for other in others)}) == 8


@pytest.mark.parametrize("shift", [0, -1, 40])
def test_a_shift_of_the_clock_changes_nothing(bench, shift):
    """Jobs were shifted in time independently; only what the trace says of itself may differ."""

    def shifted(start):
        trace = bench.trace(
            bench.job("Job1", {"a": "normal", "b": "faulty"}, [(3, "b", "k")], start=start)
        )
        log = bench.log(trace, [bench.say("b", 7)])
        return replace(score(trace, log), settings={}).document()

    starts = {0: "1970-01-01 00:00:00", -1: "1969-12-31 23:59:53", 40: "2009-02-13 23:31:30"}
    assert shifted(starts[shift]) == shifted("1969-10-15 13:49:13")
