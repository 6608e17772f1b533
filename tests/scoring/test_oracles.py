"""The same numbers from other people's libraries, and from brute force."""

from __future__ import annotations

import itertools
import math

import duckdb
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics as sk

from replay.scoring import mcnemar
from replay.scoring.delay import inverted_cdf, kaplan_meier
from replay.scoring.resampling import bounds

# one node: faulty?, raised?, score, detection time
NODE = st.tuples(
    st.booleans(), st.booleans(), st.sampled_from([0.25, 0.5, 0.75, 1.0]), st.integers(0, 6)
)

SHARES = (
    *("precision", "recall", "f1", "f0_5", "f2", "fpr", "balanced_accuracy", "precision_strict"),
    *("exact_match_rate", "hit_at_1", "hit_at_3", "hit_at_5", "recall_at_k1", "recall_at_k5"),
    *("ac_at_1", "ac_at_5", "avg_at_5", "mrr", "map", "ap_micro", "ap_sklearn", "oracle_f1"),
    *("recall_at_60_start", "aurt_60_start", "km_recall_60_start", "earliness_mean"),
)


def scored(bench, nodes):
    names = {f"n{number:02}": node for number, node in enumerate(nodes)}
    said = [bench.say(name, at, score) for name, (_, raised, score, at) in names.items() if raised]
    status = {name: "faulty" if faulty else "normal" for name, (faulty, *_) in names.items()}
    return bench.one(status, said)


@given(nodes=st.lists(NODE, min_size=1, max_size=12))
def test_scikit_learn(bench, nodes):
    found = scored(bench, nodes)
    truth = [faulty for faulty, *_ in nodes]
    blamed = [raised for _, raised, *_ in nodes]
    given_scores = [score if raised else -1.0 for _, raised, score, _ in nodes]

    def same(key, value):
        if found[key] is not None:
            assert found[key] == pytest.approx(value), key

    same("precision", sk.precision_score(truth, blamed, zero_division=0))
    same("recall", sk.recall_score(truth, blamed, zero_division=0))
    for key, beta in (("f1", 1), ("f0_5", 0.5), ("f2", 2)):
        same(key, sk.fbeta_score(truth, blamed, beta=beta, zero_division=0))
    same("jaccard_mean", sk.jaccard_score(truth, blamed, zero_division=0))
    if found["mcc"] is not None:
        same("mcc", sk.matthews_corrcoef(truth, blamed))
    if any(truth) and not all(truth):
        same("balanced_accuracy", sk.balanced_accuracy_score(truth, blamed))
    if any(truth):
        assert found["ap_sklearn"] == pytest.approx(sk.average_precision_score(truth, given_scores))
        # the best F1 over thresholds on raised nodes
        best = max(
            (
                sk.f1_score(truth, [score >= limit for score in given_scores], zero_division=0)
                for limit in {score for score in given_scores if score > 0}
            ),
            default=0.0,
        )
        assert found["oracle_f1"] == pytest.approx(best)


@given(nodes=st.lists(NODE, min_size=1, max_size=12))
def test_bounds(bench, nodes):
    found = scored(bench, nodes)
    for key in SHARES:
        assert found[key] is None or 0 <= found[key] <= 1 + 1e-12, key
    assert found["mcc"] is None or -1 <= found["mcc"] <= 1
    if found["tp"] + found["fn"]:
        assert found["hit_at_1"] <= found["hit_at_3"] <= found["hit_at_5"]
        assert found["recall_at_60_start"] <= found["recall_at_300_start"] <= found["recall"]
        assert found["cost_score"] <= 100
        assert found["f1"] <= found["oracle_f1"] + 1e-12 or found["oracle_f1"] == 0


@given(nodes=st.lists(NODE, min_size=1, max_size=6))
def test_ranks_by_trying_every_order(bench, nodes):
    assume(any(faulty for faulty, *_ in nodes))
    found = scored(bench, nodes)
    raised = [node for node in nodes if node[1]]
    positives = sum(faulty for faulty, *_ in nodes)
    sums = dict.fromkeys(
        ("hit_at_1", "hit_at_3", "recall_at_k3", "ac_at_3", "mrr", "avg_at_5"), 0.0
    )
    orders = list(itertools.permutations(raised))
    for order in orders:
        ranked = sorted(order, key=lambda node: (-node[2], node[3]))  # stable: ties as permuted
        hits = [faulty for faulty, *_ in ranked]
        sums["hit_at_1"] += any(hits[:1])
        sums["hit_at_3"] += any(hits[:3])
        sums["recall_at_k3"] += sum(hits[:3]) / positives
        sums["ac_at_3"] += sum(hits[:3]) / min(3, positives)
        sums["mrr"] += 1 / (hits.index(True) + 1) if any(hits) else 0
        sums["avg_at_5"] += sum(sum(hits[:k]) / min(k, positives) for k in range(1, 6)) / 5
    for key, total in sums.items():
        assert found[key] == pytest.approx(total / len(orders)), key
    n = len(nodes)
    for k in (1, 3, 5):
        drawn = list(itertools.combinations([faulty for faulty, *_ in nodes], min(k, n)))
        chance = sum(any(choice) for choice in drawn) / len(drawn)
        assert found[f"chance_hit_at_{k}"] == pytest.approx(chance)


VALUES = st.lists(st.integers(-50, 50), min_size=1, max_size=30)


@given(values=VALUES, percent=st.sampled_from([0, 10, 50, 90, 95, 100]))
def test_quantiles_of_duckdb_and_numpy(values, percent):
    total = np.array([len(values)])
    (found,) = inverted_cdf(np.array(values), np.zeros(len(values), np.int64), total, percent)
    assert found == np.quantile(values, percent / 100, method="inverted_cdf")
    if percent:
        relation = duckdb.execute(
            f"select quantile_disc(v, {percent / 100}) from (select unnest(?::integer[]) v)",
            [values],
        )
        assert found == relation.fetchone()[0]


@given(values=VALUES, misses=st.integers(0, 30))
def test_quantiles_with_misses_at_infinity(values, misses):
    ns = np.array(values)
    total = np.array([len(values) + misses])
    (found,) = inverted_cdf(ns, np.zeros(len(ns), np.int64), total, 50)
    expected = np.quantile([*values, *[np.inf] * misses], 0.5, method="inverted_cdf")
    assert found == expected or (math.isnan(found) and math.isinf(expected))


@given(
    observed=st.lists(st.tuples(st.integers(0, 20), st.booleans()), min_size=1, max_size=30),
)
def test_kaplan_meier_of_scipy(observed):
    ns = np.array([time for time, _ in observed])
    event = np.array([hit for _, hit in observed])
    assume(event.any())
    times, share = kaplan_meier(ns, event)
    data = stats.CensoredData.right_censored(ns, ~event)
    survival = stats.ecdf(data).sf
    assert share == pytest.approx(survival.evaluate(times))


@given(only_a=st.integers(0, 40), only_b=st.integers(0, 40))
def test_mcnemar_of_scipy(only_a, only_b):
    assume(only_a + only_b)
    expected = stats.binomtest(only_a, only_a + only_b, 0.5).pvalue
    assert mcnemar(only_a, only_b) == pytest.approx(expected)


def test_mcnemar_without_a_difference():
    assert mcnemar(0, 0) == 1.0


@given(values=st.lists(st.integers(-9, 9), min_size=40, max_size=80))
def test_bounds_of_numpy(values):
    found = bounds(np.array(values, np.float64), clusters=20)
    low, high = np.quantile(values, [0.025, 0.975], method="inverted_cdf")
    assert (found.low, found.high) == (low, high)
