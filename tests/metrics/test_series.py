"""The counters of alerts, as bytes."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from replay.api import AlertBatch, Job
from replay.messages import AlertSlice, JobEnded, JobStarted
from replay.metrics import Metrics, Series, pairs_ahead
from replay.timeline import Timeline

NODES, KINDS = ("a", "b"), ("hang", "ecc")


def started(job="Job1", epoch=0):
    return JobStarted("r", epoch, Job(job, NODES, "A100"), "1970-01-01 00:00:00")


def alerts(at, *pairs, job="Job1", nodes=NODES, kinds=KINDS):
    node, kind = (np.array([pair[which] for pair in pairs], np.int32) for which in (0, 1))
    seq = np.arange(len(pairs), dtype=np.int64)
    return AlertSlice("r", 0, AlertBatch(job, at, seq, node, kind, nodes, kinds))


def ended(job="Job1"):
    return JobEnded("r", 0, job, 60.0, 0)


def shown(text):
    return {
        (sample.labels["job_id"], sample.labels["ip"], sample.labels["event"]): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def fed(series, *messages):
    for message in messages:
        series.take(message)
    return series


def test_counts():
    series = fed(Series(), started())
    assert shown(series.render()) == {}
    fed(series, alerts(1.0, (0, 0), (0, 0), (1, 1)), alerts(2.0, (0, 0)))
    assert shown(series.render()) == {("Job1", "a", "hang"): 3, ("Job1", "b", "ecc"): 1}


def test_two_steps():
    series = fed(Series("two-step"), started(), alerts(1.0, (0, 0), (0, 0)))
    assert shown(series.render(1)) == {("Job1", "a", "hang"): 0}
    fed(series, alerts(2.0, (0, 0), (1, 0)))
    assert shown(series.render(1)) == {("Job1", "a", "hang"): 3, ("Job1", "b", "hang"): 0}
    fed(series, alerts(3.0, (1, 0)))
    assert shown(series.render(1)) == {("Job1", "a", "hang"): 3, ("Job1", "b", "hang"): 2}


def test_a_zero_that_nobody_got_is_shown_again():
    series = fed(Series("two-step"), started(), alerts(1.0, (0, 0)))
    series.render(1)
    fed(series, alerts(2.0, (1, 0)))
    assert set(shown(series.render(2)).values()) == {0}  # a new connection: the old one broke
    assert set(shown(series.render(2)).values()) == {1}


def test_a_reader_that_always_comes_anew_is_believed():
    series = fed(Series("two-step"), started(), alerts(1.0, (0, 0)))
    assert [next(iter(shown(series.render(n)).values())) for n in range(1, 6)] == [0, 0, 1, 1, 1]


def test_cross_begins_with_zeros():
    series = fed(Series("cross", ["hang"]), started())
    assert shown(series.render()) == {("Job1", "a", "hang"): 0, ("Job1", "b", "hang"): 0}
    fed(series, alerts(1.0, (0, 0), (0, 1)))
    assert shown(series.render()) == {
        ("Job1", "a", "hang"): 1,
        ("Job1", "b", "hang"): 0,
        ("Job1", "a", "ecc"): 1,
    }


def test_seen_looks_ahead(tiny_trace):
    series = Series("seen")
    assert series.looks_ahead
    series.ahead = pairs_ahead(Timeline.build(tiny_trace))
    job = tiny_trace.jobs[0]
    fed(series, JobStarted("r", 0, job.public, job.start_time))
    events = tiny_trace.events
    pairs = set(zip(events["ip"].to_pylist(), events["event"].to_pylist(), strict=True))
    assert shown(series.render()) == {(job.id, node, kind): 0 for node, kind in pairs}


@pytest.mark.parametrize("zero", ["none", "two-step", "cross"])
def test_a_job_that_is_over_is_shown_once_more(zero):
    series = fed(Series(zero, KINDS), started(), alerts(1.0, (0, 0)), started("Job2"), ended())
    assert {job for job, _, _ in shown(series.render())} >= {"Job1"}
    assert "Job1" not in {job for job, _, _ in shown(series.render())}


def test_a_new_epoch_begins_anew():
    series = fed(Series(), started(), alerts(1.0, (0, 0)), started(epoch=1))
    assert shown(series.render()) == {}
    fed(series, alerts(1.0, (0, 0)))
    assert shown(series.render()) == {("Job1", "a", "hang"): 1}


def test_alerts_before_a_start_are_not_counted():
    assert shown(fed(Series(), alerts(1.0, (0, 0)), ended()).render()) == {}


def test_budget_is_told_once():
    said = []
    series = Series(budget=1, note=said.append)
    fed(series, started(), alerts(1.0, (0, 0)))
    assert not said
    fed(series, alerts(2.0, (1, 0)), alerts(3.0, (1, 1)))
    assert len(said) == 1
    assert "more than 1 series" in said[0]


text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)


@given(node=text, kind=text, job=text)
def test_any_names(node, kind, job):
    series = fed(Series(), started(job), alerts(1.0, (0, 0), job=job, nodes=[node], kinds=[kind]))
    body = series.render().decode()
    assert body.count("\n") == 3
    quoted = [
        name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        for name in (job, node, kind)
    ]
    assert body.endswith('{{job_id="{}",ip="{}",event="{}"}} 1\n'.format(*quoted))


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1), st.booleans()), max_size=30))
def test_every_alert_is_counted(steps):
    """However scrapes fall between alerts, in the end the counts are right."""
    for zero in ("none", "two-step", "cross"):
        series, counted = fed(Series(zero, KINDS), started()), Counter()
        for number, (node, kind, scrape) in enumerate(steps):
            fed(series, alerts(float(number), (node, kind)))
            counted["Job1", NODES[node], KINDS[kind]] += 1
            if scrape:
                series.render(1)
        for _ in range(3):
            found = shown(series.render(1))
        assert {pair: count for pair, count in found.items() if count} == counted


def test_metrics_takes_an_empty_series():
    series = Series("two-step")
    assert Metrics(series).series is series
