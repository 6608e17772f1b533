"""Draws: exact, even, and distributed as they say."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay.traces.synth.draws import Draws, Table, exp, log, stratum


@given(st.floats(1e-300, 1e300))
def test_log_is_the_logarithm(x):
    assert math.isclose(log(x), math.log(x), rel_tol=4e-16, abs_tol=4e-16)


@given(st.floats(-500, 500))
def test_exp_is_the_exponential(x):
    assert math.isclose(exp(x), math.exp(x), rel_tol=2e-13)


def test_the_stream_is_the_same_everywhere():
    draws = Draws(7, 1, 2)
    assert [draws.whole(0, 999) for _ in range(6)] == [780, 848, 711, 746, 203, 959]
    assert draws.exponential(10.0).hex() == "0x1.1d51f4b685259p-2"
    assert draws.lognormal(1300.0, 0.9).hex() == "0x1.a9532270e841bp+9"
    assert draws.words(3) == [37892, 61344, 20003]


def test_names_of_streams_matter():
    assert Draws(7, 1).words(8) != Draws(7, 2).words(8) != Draws(8, 2).words(8)


N = 20_000


@pytest.mark.parametrize(
    ("draw", "mean"),
    [
        (lambda d: d.unit(), 0.5),
        (lambda d: d.whole(3, 7), 5.0),
        (lambda d: d.exponential(12.0), 12.0),
        (lambda d: d.poisson(6.0), 6.0),
        (lambda d: d.geometric(20.0), 20.0),
        (lambda d: d.geometric(1.0), 1.0),
        (lambda d: d.pareto(3.0), 1.5),
        (lambda d: log(d.lognormal(exp(1.0), 0.9)), 1.0),
        (lambda d: d.ranked(6, 7), 6 / 8),
        (lambda d: d.chance(0.3), 0.3),
        (lambda d: Table({10.0: 1, 20.0: 3, 30.0: 0}).at(d.unit()), 17.5),
    ],
)
def test_means(draw, mean):
    draws = Draws(1, 99)
    assert sum(draw(draws) for _ in range(N)) / N == pytest.approx(mean, rel=0.05)


def test_normal_spread():
    draws = Draws(3)
    logs = [log(draws.lognormal(1.0, 0.9)) for _ in range(N)]
    assert math.sqrt(sum(x * x for x in logs) / N) == pytest.approx(0.9, rel=0.03)
    assert sum(abs(x) > 1.8 for x in logs) / N == pytest.approx(0.0455, abs=0.008)


@given(st.integers(0, 2**32), st.integers(0, 30), st.integers(0, 40))
def test_sample_takes_different_ones(seed, size, n):
    taken = Draws(seed).sample(range(size), n)
    assert len(taken) == len(set(taken)) == min(size, n)
    assert set(taken) <= set(range(size))


@given(st.dictionaries(st.text(), st.floats(0.001, 1e6), min_size=1), st.floats(0, 1))
def test_a_table_always_has_an_answer(weights, unit):
    table = Table(weights)
    assert table.at(unit) in weights
    assert sum(share for _, share in table.shares) == pytest.approx(1.0)


def test_a_weight_of_zero_is_never_chosen():
    table = Table({"never": 0, "always": 1, "neither": 0})
    assert {table.at(unit / 100) for unit in range(100)} == {"always"}


@given(st.integers(0, 1000), st.integers(0, 20))
def test_strata_are_even_in_every_block(seed, block):
    slots = [int(stratum(seed, i, 5) * 50) for i in range(block * 50, block * 50 + 50)]
    assert sorted(slots) == list(range(50))
