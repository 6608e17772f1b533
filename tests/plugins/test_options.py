"""What is written on a command line becomes what a constructor takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay.api import Detector, Job
from replay.errors import PluginError
from replay.plugins import DetectorSpec, Option, options_of, split

if TYPE_CHECKING:
    from decimal import Decimal


def option(kind):
    return Option("it", kind, None)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (str, "30", "30"),
        (str, "", ""),
        (int, "30", 30),
        (int, "-1", -1),
        (float, "30", 30.0),
        (float, "1e-3", 0.001),
        (float, "inf", math.inf),
        (bool, "true", True),
        (bool, "No", False),
        (bool, "0", False),
        (Path, "a/b.json", Path("a/b.json")),
        (Any, "x", "x"),
        (float | None, "none", None),
        (float | None, "3", 3.0),
        (None | int, "None", None),
        (int | str, "3", 3),
        (int | str, "three", "three"),
        (str | int, "3", 3),
        (str | None, "three", "three"),
        (Literal["node", "kind", 3], "kind", "kind"),
        (Literal["node", "kind", 3], "3", 3),
        (tuple[str, ...], "a+b+c", ("a", "b", "c")),
        (tuple[float, ...], "1+2.5", (1.0, 2.5)),
        (tuple[str, ...], "", ()),
        (list[int], "1+2", [1, 2]),
        (set[str], "a+a", {"a"}),
        (frozenset[str], "a", frozenset("a")),
        (Sequence[int], "1+2", (1, 2)),
        (tuple[str, ...] | None, "none", None),
    ],
)
def test_values(kind, text, value):
    found = option(kind).read(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        (int, "3.5", "is not a whole number"),
        (int, "", "is not a whole number"),
        (float, "fast", "is not a number"),
        (float, "nan", "is not a number"),
        (bool, "maybe", "is neither true nor false"),
        (Literal["node", "kind"], "job", "is none of node, kind"),
        (float | None, "soon", "is not a number, or none"),
        (int | bool, "x", "is not a whole number, or is neither true nor false"),
        (tuple[int, ...], "1+x", "is not a whole number"),
        (complex, "1", "cannot be written here"),
        (dict[str, int], "a", "cannot be written here"),
    ],
)
def test_values_that_do_not_fit(kind, text, words):
    with pytest.raises(ValueError, match=words):
        option(kind).read(text)


@given(st.floats(allow_nan=False) | st.integers())
def test_numbers_come_back(number):
    assert option(type(number)).read(repr(number)) == number


class Many(Detector):
    """One option of each sort.

    Args:
        job: The job to watch.
        window: Seconds. A long story
            on two lines.
        kinds (tuple): Which kinds.
        amount: Of a type that only a type checker sees.

    Examples:
        none
    """

    def __init__(
        self,
        job: Job,
        *,
        window: float = 60.0,
        kinds: tuple[str, ...] = (),
        count: int | None = None,
        amount: Decimal = 3,  # type: ignore[assignment]  # a default of another type
        mode="fast",  # no annotation at all
        nothing=None,
    ):
        super().__init__(job)
        self.given = (window, kinds, count, amount, mode, nothing)

    def observe(self, alert):
        return ()


class More(Many):
    """Adds an option and keeps the rest."""

    def __init__(self, job: Job, *, window: float = 5.0, inner: Callable[[Job], Detector], **rest):
        super().__init__(job, window=window, **rest)
        self.inner = inner(job)


class Same(More):
    """Says nothing about options."""


class Closed(Many):
    """Takes no options that it does not name."""

    def __init__(self, job: Job, *, own: bool = False):
        super().__init__(job)


def test_options_are_read_from_the_constructor():
    options = options_of(Many)
    assert list(options) == ["window", "kinds", "count", "amount", "mode", "nothing"]
    assert [o.type_name for o in options.values()] == [
        "float", "tuple[str, ...]", "int | None", "int", "str", "str",
    ]  # fmt: skip
    assert options["window"].doc == "Seconds. A long story on two lines."
    assert options["kinds"].doc == "Which kinds."
    assert options["mode"].doc == ""
    assert options["window"].default == 60.0
    assert not options["window"].required


def test_inherited_options():
    assert list(options_of(More)) == [
        "window", "inner", "kinds", "count", "amount", "mode", "nothing",
    ]  # fmt: skip
    assert options_of(More)["window"].default == 5.0
    assert options_of(More)["inner"].required
    assert options_of(Same) == options_of(More)
    assert list(options_of(Closed)) == ["own"]
    assert options_of(Detector) == {}


def test_a_detector_inside_a_detector():
    inner = options_of(More)["inner"].read("(burst:window=20,threshold=3)")
    built = DetectorSpec.of(More, inner=inner).build(Job("Job1", ("a",)))
    assert type(built.inner).__name__ == "Burst"
    with pytest.raises(PluginError, match="did you mean 'burst'"):
        options_of(More)["inner"].read("brust")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", []),
        ("a", ["a"]),
        ("a,b, c", ["a", "b", "c"]),
        ("a=(b,c),d", ["a=(b,c)", "d"]),
        ("a=(b:c=(d,e),f),g", ["a=(b:c=(d,e),f)", "g"]),
    ],
)
def test_split(text, parts):
    assert split(text, ",") == parts
