"""Natural order, and folder names for any id."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay.traces.names import folder_names, natural_key

IDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@pytest.mark.parametrize(
    "ordered",
    [
        ["Job1", "Job2", "Job10", "Job98", "Job100"],
        ["1", "2", "10"],
        ["a1b2", "a1b10", "a2b1"],
        ["Job", "Job01", "Job1", "Job1a"],
        ["9" * 5000, "1" + "0" * 5000],
    ],
)
def test_natural_order(ordered):
    shuffled = [*ordered[1:], ordered[0]]
    assert sorted(shuffled, key=natural_key) == ordered


@given(st.lists(IDS).flatmap(lambda ids: st.tuples(st.just(ids), st.permutations(ids))))
def test_natural_order_is_total(orders):
    first, second = orders
    assert sorted(first, key=natural_key) == sorted(second, key=natural_key)


@given(
    st.lists(st.one_of(IDS, st.sampled_from(["a", "A", "con", "CON.x", "a~", "%41"])), unique=True)
)
def test_folder_names_are_safe_and_distinct(ids):
    names = folder_names(ids)
    assert len({name.casefold() for name in names}) == len(ids)
    for name in names:
        assert name
        assert set(name) <= set(
            "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-%~"
        )
        assert not name.startswith(".")
        assert not name.endswith(".")
        assert len(name) < 120
        assert name.partition(".")[0].upper() not in {"CON", "PRN", "AUX", "NUL", "COM1", "LPT9"}


def test_ordinary_ids_keep_their_name():
    assert folder_names(["Job1", "job-2_x.3"]) == ["Job1", "job-2_x.3"]
