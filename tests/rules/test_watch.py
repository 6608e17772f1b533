"""A job watched as it goes by and judged whole: the same verdicts, and no look-ahead."""

from __future__ import annotations

import random

import numpy as np
import pytest
import rule_shapes
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors.rules.counters import Census, Counters, History
from detectors.rules.detector import Rules
from detectors.rules.files import parse_rules
from detectors.rules.program import Program, Settings
from detectors.rules.watch import judge, ticks
from replay.api import Alert, Job
from replay.errors import UsageError

CHAIN = """
groups:
- name: first
  interval: 30s
  rules:
  - record: ip:alerts:rate1m
    expr: sum by (job_id, ip) (rate(llm_alert_events_total[1m]))
  - alert: Fast
    expr: ip:alerts:rate1m > 0.05
    for: 30s
- name: second
  interval: 15s
  query_offset: 15s
  rules:
  - alert: Chained
    expr: ip:alerts:rate1m > on (job_id) group_left () avg by (job_id) (ip:alerts:rate1m) * 1.7
    keep_firing_for: 45s
"""
SELF = """
groups:
- name: loops
  rules:
  - alert: Twice
    expr: count by (ip) (ALERTS{alertname="Once", alertstate="firing"}) > 0
  - alert: Once
    expr: increase(llm_alert_events_total[1m]) > 1.5
  - record: slow:sum
    expr: sum(slow:sum) * 0.5 or vector(1)
  - alert: Sum
    expr: slow:sum < 0.3
"""

TIES = """
groups:
- name: ties
  rules:
  - alert: Most
    expr: topk(1, count by (ip) (increase(llm_alert_events_total[1m]) > 0))
  - alert: Least
    expr: bottomk(2, sort_desc(sum by (ip) (changes(llm_alert_events_total[45s]) > 0)))
  - alert: Counted
    expr: topk(1, count_values by (ip) ("n", llm_alert_events_total) > 0)
"""


def streamed(text, history, tmp_path, **options):
    """What the detector says when it is driven as a host drives it."""
    path = tmp_path / "rules.yml"
    path.write_text(text)
    detector = Rules(Job(history.job, history.members), file=str(path), **options)
    said = []

    def wake(until, *, inclusive):
        while detector.wake_at < until or (inclusive and detector.wake_at == until):
            at = detector.wake_at
            said.extend((at, verdict) for verdict in detector.advance(at))
            assert detector.wake_at > at

    for seq, (at, node, kind) in enumerate(
        zip(history.at.tolist(), history.node.tolist(), history.kind.tolist(), strict=True)
    ):
        wake(at, inclusive=False)
        alert = Alert(history.job, seq, at, history.nodes[node], history.kinds[kind])
        assert not list(detector.observe(alert))
    wake(history.end, inclusive=True)
    assert not list(detector.finish())
    return said


def judged(text, history, **options):
    program = Program(parse_rules(text), Settings(**options))
    return [(at / 1000.0, verdict) for at, verdict in judge(program, history)]


@pytest.mark.parametrize(
    ("seed", "zero", "dialect"),
    [
        (0, "none", "prometheus3"),
        (1, "none", "prometheus2"),
        (2, "two-step", "prometheus3"),
        (3, "cross", "prometheus3"),
    ],
)
def test_stream_and_whole_agree_on_shapes(small_job, tmp_path, seed, zero, dialect):
    text = rule_shapes.rule_file(random.Random(seed), 20)
    history = small_job(seed)
    kinds = "|".join(history.kinds) if zero == "cross" else ""
    vocabulary = tuple(history.kinds) if zero == "cross" else ()
    whole = judged(text, history, dialect=dialect, zero=zero, vocabulary=vocabulary)
    assert whole
    assert streamed(text, history, tmp_path, dialect=dialect, zero=zero, kinds=kinds) == whole


@pytest.mark.parametrize("text", [CHAIN, SELF, TIES], ids=["chain", "self", "ties"])
@pytest.mark.parametrize("offset", [0, 5000])
def test_stream_and_whole_agree_on_chains(small_job, tmp_path, text, offset):
    for seed in range(2):
        history = small_job(seed, end=400.0, first=-100.0)
        whole = judged(text, history, eval_offset=offset)
        assert whole
        assert streamed(text, history, tmp_path, eval_offset=f"{offset}ms") == whole


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.floats(0, 650))
def test_no_look_ahead(seed, until):
    draw = random.Random(seed % 7)
    text = rule_shapes.rule_file(draw, 8)
    history = _job(seed)
    keep = history.at <= until
    prefix = History(
        history.job,
        history.members,
        history.at[keep],
        history.node[keep],
        history.kind[keep],
        history.nodes,
        history.kinds,
        min(until, history.end),
    )
    whole = [pair for pair in judged(text, history) if pair[0] <= until]
    assert judged(text, prefix) == whole


def _job(seed, end=600.0):
    draw = np.random.default_rng(seed)
    count = int(draw.integers(0, 80))
    at = np.sort(draw.uniform(0, end, count).round(int(draw.integers(0, 3))))
    names, kinds = ("node-0", "node-1", "node-2"), ("hang", "ecc")
    node, kind = draw.integers(0, 3, count), draw.integers(0, 2, count)
    return History("Job1", names, at, node, kind, names, kinds, end)


def test_codes_carry_no_meaning():
    history = _job(5)
    order = [2, 0, 1]
    renamed = History(
        history.job,
        history.members,
        history.at,
        np.array([order.index(code) for code in history.node.tolist()]),
        history.kind,
        tuple(history.nodes[code] for code in order),
        history.kinds,
        history.end,
    )
    text = rule_shapes.rule_file(random.Random(1), 20)
    assert judged(text, renamed) == judged(text, history)


def test_failing_steps_leave_alerts_as_they_are():
    text = """
    groups: [{name: g, rules: [{alert: A, expr: "llm_alert_events_total * on (ip) llm_alert_events_total > 0"}]}]
    """
    names, kinds = ("a",), ("x", "y")
    history = History(
        "J", names, np.array([1.0, 40.0]), np.zeros(2, int), np.array([0, 1]), names, kinds, 90.0
    )
    # from the second kind on the match is ambiguous and the rule fails: the alert stays
    assert [(at, v.action) for at, v in judged(text, history)] == [(15.0, "raise")]


def test_limit_forgets_alerts():
    text = """
    groups: [{name: g, limit: 1, rules: [{alert: A, expr: "llm_alert_events_total > 0"}]}]
    """
    names = ("a", "b")
    history = History(
        "J", names, np.array([1.0, 20.0]), np.array([0, 1]), np.zeros(2, int), names, ("x",), 60.0
    )
    assert [(at, v.node, v.action) for at, v in judged(text, history)] == [
        (15.0, "a", "raise"),
        (30.0, "a", "retract"),
    ]


def test_a_node_is_raised_once_and_retracted_with_its_last_alert():
    text = """
    groups: [{name: g, rules: [{alert: A, expr: "changes(llm_alert_events_total[45s]) > 0"}]}]
    """
    at = np.array([1.0, 16.0, 31.0, 2.0 + 30.0])
    history = History(
        "J",
        ("a",),
        np.sort(at),
        np.zeros(4, int),
        np.array([0, 0, 1, 1]),
        ("a",),
        ("x", "y"),
        300.0,
    )
    said = judged(text, history)
    assert [v.action for _, v in said] == ["raise", "retract"]


def test_alerts_without_the_label_speak_of_the_job():
    text = "groups: [{name: g, rules: [{alert: A, expr: sum(llm_alert_events_total) > 1}]}]"
    history = _job(3)
    assert {verdict.node for _, verdict in judged(text, history)} == {None}
    assert {v.node for _, v in judged(text, history, label="alertname")} == {"A"}


def test_one_alert_may_be_listened_to(small_job, tmp_path):
    text = rule_shapes.rule_file(random.Random(2), 3)
    history = small_job(2)
    program = Program(parse_rules(text), Settings())
    for alert in program.file.alerts:
        assert streamed(text, history, tmp_path, alert=alert) == judged(text, history, alert=alert)


@pytest.mark.parametrize("zero", ["none", "two-step", "cross"])
def test_counters_agree(small_job, zero):
    history = small_job(8)
    vocabulary = ("ecc", "hang", "never")
    grid = ticks(0, history.end, 15_000, 0)
    whole = Census(history, 15_000, zero, vocabulary).block(grid)
    counters = Counters("Job1", history.members, zero, vocabulary, 10**9)
    number = 0
    for at in grid.tolist():
        while number < len(history.at) and history.at[number] <= at / 1000.0:
            node, kind = int(history.node[number]), int(history.kind[number])
            counters.count(history.nodes[node], history.kinds[kind])
            number += 1
        counters.scrape(at)
    block = counters.block()
    shown = {labels: row for row, labels in enumerate(block.labels)}
    for row, labels in enumerate(whole.labels):
        other = shown[labels]
        got = block.values[block.index[other, 0] : block.index[other, -1]]
        assert whole.values[whole.index[row, 0] : whole.index[row, -1]].tolist() == got.tolist()


def test_zero_policies():
    history = History(
        "J",
        ("a",),
        np.array([20.0, 20.0]),
        np.zeros(2, int),
        np.zeros(2, int),
        ("a",),
        ("x",),
        75.0,
    )
    grid = ticks(0, 75.0, 15_000, 0)

    def shown(zero, vocabulary=()):
        return {
            dict(labels)["event"]: block.values[block.index[row, 0] : block.index[row, -1]].tolist()
            for block in [Census(history, 15_000, zero, vocabulary).block(grid)]
            for row, labels in enumerate(block.labels)
        }

    assert shown("none") == {"x": [2, 2, 2, 2]}
    assert shown("two-step") == {"x": [0, 2, 2, 2]}
    assert shown("seen") == {"x": [0, 0, 2, 2, 2, 2]}
    assert shown("cross", ("x", "y")) == {"x": [0, 0, 2, 2, 2, 2], "y": [0] * 6}


@pytest.mark.parametrize(
    "options",
    [
        {"zero": "seen"},
        {"zero": "cross"},
        {"zero": "half"},
        {"dialect": "prometheus1"},
        {"scrape": "0s"},
        {"scrape": "often"},
        {"interval": "-1s"},
        {"alert": "None"},
        {"file": "/nowhere/rules.yml"},
    ],
)
def test_bad_options(options):
    with pytest.raises(UsageError):
        Rules(Job("J"), **options)


def test_starter_rules_say_something(small_job, tmp_path):
    history = small_job(1)
    said = streamed(Rules.__init__.__globals__["STARTER"].read_text(), history, tmp_path)
    assert {verdict.action for _, verdict in said} == {"raise", "retract"}
