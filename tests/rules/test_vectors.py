"""What is kept by its changes alone says what a whole matrix says."""

from __future__ import annotations

import random

import numpy as np
import pytest
import rule_shapes
from hypothesis import given
from hypothesis import strategies as st

from detectors.rules.aggregation import Groups, reduce
from detectors.rules.counters import Census
from detectors.rules.errors import EvaluationError
from detectors.rules.evaluation import Evaluator
from detectors.rules.language import parse
from detectors.rules.series import Block, Storage
from detectors.rules.tables import Table, bare, chosen, grouped, matching
from detectors.rules.vectors import Runs, Vector
from detectors.rules.watch import ticks

ROWS, STEPS = 6, 9
LABELS = [(("ip", "ab"[row % 2]), ("kind", str(row))) for row in range(ROWS)]


@st.composite
def runs(draw):
    """Some runs of few values, in series that are there throughout, or in them only."""
    found = []
    for row in range(ROWS):
        edges = sorted(draw(st.sets(st.integers(0, STEPS), max_size=6)))
        for begin, end in zip(edges[::2], edges[1::2], strict=False):
            found.append((row, begin, end, draw(st.sampled_from([0.0, 0.1, 2.0, 1e100, -1e100]))))
    row, begin, end, value = (
        np.array([one[part] for one in found], kind)
        for part, kind in enumerate((np.int64, np.int64, np.int64, float))
    )
    since = None
    if draw(st.booleans()):  # each begins by its first run at the latest
        first = [min([b for r, b, *_ in found if r == one], default=STEPS) for one in range(ROWS)]
        since = np.array([draw(st.integers(0, step)) for step in first], np.int64)
    return Runs((ROWS, STEPS), row, begin, end, value, since)


def whole(vector):
    return Vector(vector.labels, vector.values, vector.present)


def shown(vector):
    """Everything in a vector, in the order of its series, but for those never there."""
    return [
        (labels, [value if there else None for value, there in zip(*row, strict=True)])
        for labels, *row in zip(
            vector.labels, vector.values.tolist(), vector.present.tolist(), strict=True
        )
        if any(row[1])
    ]


@given(runs(), st.sampled_from([-1.0, 0.0, 0.05, 1.0]))
def test_conditions_and_functions_of_single_values(few, limit):
    vector = Vector.sparse(LABELS, few)
    for holds in (lambda v: v > limit, lambda v: v == limit, lambda v: v <= limit):
        assert shown(vector.where(holds)) == shown(whole(vector).where(holds))
    for function in (np.sqrt, np.negative, lambda v: v + limit, lambda v: v * limit):
        with np.errstate(all="ignore"):
            one, other = vector.mapped(function), whole(vector).mapped(function)
        np.testing.assert_array_equal(
            np.where(one.present, one.values, 7), np.where(other.present, other.values, 7)
        )
        assert (np.signbit(one.values) == np.signbit(other.values))[one.present].all()


@given(runs(), st.data())
def test_looking_things_up(few, data):
    vector, matrix = Vector.sparse(LABELS, few), whole(Vector.sparse(LABELS, few))
    assert [part.tolist() for part in vector.unbroken()] == [
        part.tolist() for part in matrix.unbroken()
    ]
    row, step = np.nonzero(matrix.present)
    assert vector.at(row, step).tolist() == matrix.at(row, step).tolist()
    rows = np.array(data.draw(st.lists(st.integers(0, ROWS - 1), max_size=8)), np.int64)
    assert shown(vector.rows(rows)) == shown(matrix.rows(rows))
    assert shown(vector.seen()) == shown(matrix.seen())
    assert list(vector.seen().labels) == list(matrix.seen().labels)


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("by", [(), ("ip",), ("ip", "kind")])
@given(few=runs())
def test_aggregates(few, by, old):
    vector, groups = Vector.sparse(LABELS, few), Groups(LABELS, by, leave_out=False)
    for op in ("sum", "count", "group"):
        with np.errstate(all="ignore"):
            found = reduce(op, vector, groups, old=old)
            expected = reduce(op, whole(vector), groups, old=old)
        assert shown(found) == shown(expected), op


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz")), min_size=1, max_size=9),
    st.sampled_from([(), ("ip",), ("event", "ip"), ("__name__", "zone")]),
    st.booleans(),
)
def test_a_table_is_a_list_of_label_sets(pairs, names, leave_out):
    node, kind = zip(*pairs, strict=True)
    table = Table(
        {
            "__name__": (["x"], np.zeros(len(pairs), np.int64)),
            "event": ("abc", np.array(["abc".index(one) for one in node])),
            "ip": ("xyz", np.array(["xyz".index(one) for one in kind])),
        }
    )
    plain = list(table)
    assert [table[row] for row in range(len(table))] == plain
    assert [dict(labels)["event"] + dict(labels)["ip"] for labels in plain] == [
        one + other for one, other in pairs
    ]
    for series in (table, Table(table._columns)):  # built, and not yet
        found, expected = bare(series), bare(plain)
        assert (list(found[0]), found[1]) == (list(expected[0]), expected[1])
        keys, of = grouped(series, names, leave_out=leave_out)
        other_keys, other_of = grouped(plain, names, leave_out=leave_out)
        assert (keys, of.tolist()) == (other_keys, other_of.tolist())
        rows = np.arange(len(pairs))[::-2]
        assert list(chosen(series, rows)) == chosen(plain, rows)
        for matcher in parse('x{ip=~"x|y",event!="a",zone=""}').matchers:
            assert matching(series, matcher).tolist() == matching(plain, matcher).tolist()


@pytest.mark.parametrize("dialect", ["prometheus3", "prometheus2"])
@pytest.mark.parametrize("zero", ["none", "two-step", "seen"])
@pytest.mark.parametrize(("scrape", "every", "shift"), [(15, 15, 0), (15, 20, 7), (10, 30, 0)])
def test_any_expression_over_counters(small_job, dialect, zero, scrape, every, shift):
    """By rises or by samples, the same to the last bit."""
    draw = random.Random(f"{dialect}{zero}{every}")
    history = small_job(draw.randrange(1000))
    rising = Census(history, 1000 * scrape, zero).block(ticks(0, history.end, 1000 * scrape, 0))
    present = np.arange(len(rising.grid)) >= rising.first[:, None]
    sampled = Block.dense(list(rising.labels), rising.grid, rising.filled, present)
    times = np.arange(1000 * shift, int(history.end * 1000) + 60_000, 1000 * every)
    for _ in range(60):
        text = draw.choice([rule_shapes.expression, rule_shapes.counted, rule_shapes.grouped])(draw)
        answers = []
        for block in (rising, sampled):
            storage = Storage()
            storage.add(block)
            try:
                answer = Evaluator(storage, dialect).steps(parse(text), times)
                answers.append(shown(answer) if isinstance(answer, Vector) else answer.tolist())
            except EvaluationError as error:
                answers.append(error.what)
        assert repr(answers[0]) == repr(answers[1]), text
