"""Text to trees: what is read, what is refused, and with which words."""

from __future__ import annotations

import contextlib
import random
import re

import pytest
import rule_shapes
from hypothesis import given
from hypothesis import strategies as st

from detectors.rules.durations import format_duration, parse_duration
from detectors.rules.errors import LanguageError, Unsupported
from detectors.rules.labels import Matcher, show, translate_regex
from detectors.rules.language import Call, Selector, parse, selectors, walk
from detectors.rules.notation import parse_series
from detectors.rules.series import STALE, is_stale
from detectors.rules.tokens import quote, tokenize, unquote


@given(st.integers(0, 10**12))
def test_durations_round_trip(milliseconds):
    assert parse_duration(format_duration(milliseconds)) == milliseconds


@pytest.mark.parametrize("text", ["", "5", "0.5s", "5 m", "m", "1m1h", "-5m", "1us", "5M"])
def test_bad_durations(text):
    with pytest.raises(LanguageError, match="not a duration"):
        parse_duration(text)


@given(st.text(max_size=30))
def test_strings_round_trip(text):
    assert unquote(quote(text)) == text


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (r'"\101\x41\u0041\U00000041"', "AAAA"),
        (r"'it\'s'", "it's"),
        (r"`\n`", r"\n"),
        (r'"\a\v"', "\a\v"),
    ],
)
def test_escapes(text, want):
    assert unquote(text) == want


def test_tokens_keep_their_places():
    text = 'sum(rate(x{a="#[5m]"}[5m:1m] offset 1m)) # c\n > .5'
    for token in tokenize(text):
        assert text[token.start : token.end] == token.text


def test_negative_time_after_at():
    assert parse("x @ -6600.5").at == -6_600_500


def test_times_after_at_may_be_durations():
    assert parse("x @ 1m offset 5s").at == 60_000


def test_raw_strings_are_raw():
    assert selectors(parse(r"x{a=~`\d+`}"))[0].matchers[1].matches("42")


def test_numbers_as_ranges():
    assert parse("rate(x[90])") == parse("rate(x[1m30s])")


def test_functions_of_2_x():
    assert isinstance(parse("holt_winters(x[1m], 0.1, 0.2)"), Call)


@pytest.mark.parametrize(
    ("text", "construct"),
    [
        ("limit_ratio(0.5, x)", "limit_ratio()"),
        ("limitk(2, x)", "limitk()"),
        ("histogram_count(x)", "histogram_count()"),
        ("info(x)", "info()"),
        ("ts_of_first_over_time(x[1m])", "ts_of_first_over_time()"),
        ("rate(x[5m] anchored)", "anchored"),
        ("x @ 300 smoothed", "smoothed"),
        ("x offset 5m smoothed > 1", "smoothed"),
        ("gpu.temperature > 90", "the unquoted name 'gpu.temperature'"),
        ('x{"Größe"="1"} / y{Größe="1"}', "the unquoted name 'Größe'"),
        (r'x{a="\xff"}', r'the string "\xff"'),
        ("x </ 3", "</"),
        ("x[5m + step()]", "step() in a duration"),
        ("x offset -range()", "range() in a duration"),
        ("x + fill(1) y", "fill"),
        ('x{a="1" or b="2"}', "'or' between matchers"),
        ('label_replace(x, "a", "b", "c", x)', "label_replace"),
        ('x{a=~"\\\\pN"}', "the regular expression"),
        ('x{a=~"a++"}', "the regular expression"),
        ('x{a=~"(?U)a+"}', "the regular expression"),
    ],
)
def test_refused_by_name(text, construct):
    with pytest.raises(LanguageError) as caught:
        parse(text)
    if isinstance(caught.value, Unsupported):
        assert caught.value.construct.startswith(construct)
        assert caught.value.reason
    else:
        assert "not PromQL" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "sum(",
        "x[5m",
        "x[5m - 300]",
        "x[5m *]",
        "x[(5m]",
        "x[5m / 0]",
        "x[10 ^ 400]",
        "x[1e999]",
        "x[up]",
        "x offset (1m",
        "x offset up",
        "x{a=}",
        "rate(x)",
        "x > > y",
        "1 < 2",
        "foo(x)",
        "x{a=~'('}",
        "x @ y",
        "%",
    ],
)
def test_not_promql(text):
    with pytest.raises(LanguageError):
        parse(text)


@given(st.text(st.sampled_from("x(){}[]5m\"'+-<=>@,: sumrate\n#"), max_size=25))
def test_any_text_is_read_or_refused(text):
    with contextlib.suppress(LanguageError):
        parse(text)


def test_shapes_that_people_write_all_load():
    draw = random.Random(4)
    for _ in range(400):
        expr = parse(rule_shapes.expression(draw))
        assert any(isinstance(node, (Selector, Call)) for node in walk(expr))


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("a.c", ["abc", "a\nc"], ["abcd", "xabc"]),
        ("a|bc", ["a", "bc"], ["abc"]),
        ("(?i)ab", ["AB", "aB"], ["abc"]),
        ("x(?i)ab", ["xAB"], ["XAB"]),
        ("((?i)a)b", ["Ab", "ab"], ["aB"]),
        ("[[:alpha:]_]+", ["ab_"], ["a1"]),
        ("[^[:digit:]]", ["a"], ["1"]),
        (r"\Qa.b\E+", ["a.b", "a.bb"], ["aab"]),
        (r"a\z", ["a"], ["a\n"]),
        ("a$", ["a"], ["a\n"]),
        (r"\x{61}", ["a"], ["b"]),
        ("[a[b]", ["a", "[", "b"], ["c"]),
        ("[]a]", ["]", "a"], ["b"]),
        (r"\d+", ["12"], ["٣"]),
        ("a{2,3}?", ["aa", "aaa"], ["a"]),
        ("", [""], ["a"]),
    ],
)
def test_regex_as_re2(pattern, yes, no):
    matcher = Matcher("l", "=~", pattern)
    assert all(matcher.matches(text) for text in yes)
    assert not any(matcher.matches(text) for text in no)


@given(st.text(max_size=12))
def test_escaped_text_matches_itself(text):
    assert Matcher("l", "=~", re.escape(text).replace("\\ ", " ")).matches(text)


def test_flags_amid_alternatives_are_refused():
    with pytest.raises(Unsupported):
        translate_regex("a(?i)b|c")


def test_labels_are_shown_with_escapes():
    assert show((("a", 'x"y\n'),)) == '{a="x\\"y\\n"}'


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("x 1 2.5 -3e2", [1, 2.5, -300]),
        ("x 1+1x2 5-2x1", [1, 2, 3, 5, 3]),
        ("x _ _x2 7x1", [None, None, None, 7, 7]),
        ("x 0x2", [0, 0, 0]),
        ("x Inf -Inf +inf", [float("inf"), float("-inf"), float("inf")]),
    ],
)
def test_series_notation(line, values):
    assert parse_series(line)[1] == values


def test_stale_markers_stay_what_they_are():
    import numpy as np  # noqa: PLC0415 - only here

    values = parse_series("x stalex1 NaN")[1]
    assert is_stale(np.array(values)).tolist() == [True, True, False]
    assert is_stale(np.array([STALE, 1.0, float("nan")])).tolist() == [True, False, False]


@pytest.mark.parametrize("line", ["", "x{a=} 1", "x one", 'x{a="b" 1', "{} x"])
def test_bad_series(line):
    with pytest.raises(LanguageError):
        parse_series(line)
