"""Sums and runs taken all at once give what one after the other gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detectors.rules import aggregation, sums
from detectors.rules.aggregation import Groups
from detectors.rules.files import parse_rules
from detectors.rules.groups import Alerts, Element
from detectors.rules.vectors import Vector


def one_by_one(vector, groups):
    """Compensated sums, series by series and step by step."""
    out = np.zeros((len(groups.labels), vector.values.shape[1]))
    for number, members in enumerate(groups.members):
        for step in range(out.shape[1]):
            high = low = np.zeros(())
            for row in members:
                if vector.present[row, step]:
                    high, low = sums.add(vector.values[row, step], high, low)
            out[number, step] = high + low
    return out


@pytest.mark.parametrize("layer", [0, 10**12])
@given(seed=st.integers(0, 2**32 - 1))
def test_sums(layer, seed):
    draw = np.random.default_rng(seed)
    rows, steps = int(draw.integers(1, 30)), int(draw.integers(1, 6))
    labels = [(("kind", str(row)), ("node", str(draw.integers(5)))) for row in range(rows)]
    values = draw.choice(
        [0.1, 1e100, -1e100, 3.0, np.inf, np.nan], (rows, steps), p=[0.4, 0.1, 0.1, 0.3, 0.05, 0.05]
    )
    vector = Vector(labels, values, draw.random((rows, steps)) < 0.7)
    groups = Groups(labels, ("node",), leave_out=False)
    with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
        patch.setattr(aggregation, "_LAYER", layer)
        found = aggregation.reduce("sum", vector, groups, old=False)
        np.testing.assert_array_equal(found.values, one_by_one(vector, groups))


@given(seed=st.integers(0, 2**32 - 1))
def test_sums_of_uneven_groups(seed):
    """One large group among small ones, too few values for layers."""
    draw = np.random.default_rng(seed)
    labels = [(("kind", str(row)), ("node", str(max(0, row - 40)))) for row in range(70)]
    values = draw.choice(
        [0.1, 1e100, -1e100, 3.0, np.inf, np.nan], (70, 1), p=[0.4, 0.1, 0.1, 0.3, 0.05, 0.05]
    )
    vector = Vector(labels, values, np.ones((70, 1), bool))
    groups = Groups(labels, ("node",), leave_out=False)
    with np.errstate(all="ignore"):
        found = aggregation.reduce("sum", vector, groups, old=False)
        np.testing.assert_array_equal(found.values, one_by_one(vector, groups))


@given(
    st.lists(
        st.lists(
            st.tuples(st.sampled_from("abc"), st.sampled_from("xyz")),
            unique_by=lambda p: p[0],
            max_size=3,
        ),
        max_size=8,
    ),
    st.booleans(),
)
def test_groups_of_uneven_labels(series, leave_out):
    """Column by column or label set by label set: the same groups."""
    labels = [tuple(sorted(pairs)) for pairs in series]
    groups = Groups(labels, ("b",), leave_out=leave_out)
    keys = [tuple(pair for pair in one if (pair[0] == "b") != leave_out) for one in labels]
    assert groups.labels == sorted(set(keys))
    assert [groups.labels[number] for number in groups.of] == keys
    assert [row for members in groups.members for row in members] == sorted(
        range(len(keys)), key=lambda row: (groups.of[row], row)
    )


def alerts_of(hold):
    text = f"groups: [{{name: g, rules: [{{alert: A, expr: x, for: {hold}ms}}]}}]"
    return Alerts(parse_rules(text).rules[0])


@given(
    seed=st.integers(0, 2**32 - 1),
    hold=st.sampled_from([0, 10, 15, 40]),
    cut=st.integers(0, 9),
)
def test_a_sweep_is_many_steps(seed, hold, cut):
    """In two pieces, wherever they meet; then step by step from there."""
    draw = np.random.default_rng(seed)
    names = [(("alertname", "A"), ("ip", node)) for node in "abc"]
    times = np.cumsum(draw.integers(1, 15, 12))
    present = draw.random((3, 12)) < draw.choice([0.3, 0.7, 0.95])

    def element(row, step):
        return Element(names[row], float(step), names[row])

    def stepped(alerts, steps):
        out = []
        for step in steps:
            here = [element(row, step) for row in range(3) if present[row, step]]
            out += sorted(alerts.step(int(times[step]), here), key=lambda change: change.labels)
        return out

    expected, alerts = alerts_of(hold), alerts_of(hold)
    found = []
    for piece in (slice(0, cut), slice(cut, 9)):
        if piece.start < piece.stop:
            values = np.tile(np.arange(9.0)[piece], (3, 1))
            found += alerts.sweep(times[piece], names, Vector(names, values, present[:, piece]))
    assert found == stepped(expected, range(9))
    assert set(alerts.active) == set(expected.active)
    assert stepped(alerts, range(9, 12)) == stepped(expected, range(9, 12))
