"""Rules rewritten for a faster replay: exact, faithful, in place."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest
import rule_shapes
from hypothesis import given
from hypothesis import strategies as st

from detectors.rules.detector import STARTER
from detectors.rules.errors import LanguageError, RuleFileError
from detectors.rules.files import parse_rules
from detectors.rules.rescale import rescale, rescale_expression
from replay.errors import UsageError

FILE = """\
# kept
groups:
  - name: "g"   # kept
    interval: 30s
    query_offset: 10s
    rules:
      - alert: Block
        expr: |
          # kept
          sum by (ip) (rate(x{e="5m[1h]"}[5m]))   # kept
            > on () group_left ()
          deriv(y[10m:1m] offset 30s) / 10
        for: "1m"   # kept
        labels: {a: "5m"}
        annotations: {summary: '{{ $value }} in [5m]'}
      - record: a:b
        expr: 'predict_linear(x{a="it''s"}[5m], 3600) > 1h'
      - alert: Quoted
        expr: "(irate(y[1m]) / 4) + rate(z[90])"
        keep_firing_for: 30s
      - {alert: Flow, expr: "rate(x[5m]) > 5", for: 30s}
      - alert: Folded
        expr: >-
          rate(x[5m])
          > 3
"""


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("x", "x"),
        ("x[5m]", "x[30s]"),
        ("rate(x[5m])", "(rate(x[30s]) / 10)"),
        ("irate(x[1m]) > 2", "(irate(x[6s]) / 10) > 2"),
        ("increase(x[5m]) > 3", "increase(x[30s]) > 3"),
        ("(rate(x[5m]) / 2)", "(rate(x[30s]) / 20)"),
        ("rate(x[5m]) / 2", "(rate(x[30s]) / 10) / 2"),
        ("-rate(x[5m]) ^ 2", "-(rate(x[30s]) / 10) ^ 2"),
        (
            "max_over_time(rate(x[5m])[1h:1m] offset -5m)",
            "max_over_time((rate(x[30s]) / 10)[6m:6s] offset -30s)",
        ),
        ("x offset 300", "x offset 30s"),
        ("rate(x[2 * 5m:1m+15] offset -(1m + 60))", "(rate(x[1m:7s500ms] offset -12s) / 10)"),
        ("predict_linear(x[1h], 4h)", "predict_linear(x[6m], 24m)"),
        ("predict_linear(x[1h], 4 * 60)", "predict_linear(x[6m], (4 * 60) / 10)"),
        ("x > 5m", "x > 5m"),
        ("x @ start()", "x @ start()"),
        ('x{a="rate(y[5m])"}', 'x{a="rate(y[5m])"}'),
        ("rate", "rate"),
        ("sum by (rate) (x)", "sum by (rate) (x)"),
    ],
)
def test_expressions(text, want):
    assert rescale_expression(text, Fraction(10))[0] == want


def test_numbers_written_as_durations_are_left_and_told():
    assert rescale_expression("x > 5m", Fraction(10))[1] == [
        "5m stands where a number stands, and was left as it is"
    ]


@pytest.mark.parametrize("text", ["time() - x", "timestamp(x)", "hour() > 3", "x @ 300"])
def test_the_wall_clock_is_refused(text):
    with pytest.raises(LanguageError, match="cannot be rescaled"):
        rescale_expression(text, Fraction(10))


def test_all_else_stays_as_it_was():
    done = rescale(FILE, Fraction(10)).text
    before, after = FILE.splitlines(), done.splitlines()
    assert len(before) == len(after)
    changed = [
        number for number, pair in enumerate(zip(before, after, strict=True)) if len(set(pair)) > 1
    ]
    assert [line for line in after if "kept" in line] != []
    assert len(changed) == 10
    assert done.count("# kept") == FILE.count("# kept")
    assert 'labels: {a: "5m"}' in done
    assert "{{ $value }} in [5m]" in done


def test_speed_one_is_the_identity():
    assert rescale(FILE, Fraction(1)).text == FILE


@pytest.mark.parametrize("speed", [10, 2, Fraction(1, 2), 20])
def test_there_and_back(speed):
    text = FILE.replace("[90]", "[1m30s]")
    there = rescale(text, Fraction(speed), scrape=60_000).text
    assert there != text
    assert rescale(there, 1 / Fraction(speed), scrape=60_000).text == text


@given(st.integers(0, 10**6), st.sampled_from([2, 5, 10, Fraction(1, 2), Fraction(5, 2)]))
def test_shapes_are_rewritten_faithfully(seed, speed):
    text = rule_shapes.rule_file(random.Random(seed), 6)
    if "timestamp(" in text:
        with pytest.raises(RuleFileError, match="wall clock"):
            rescale(text, Fraction(speed))
        return
    # what comes out was parsed and compared with the tree it must have
    done = rescale(text, Fraction(speed))
    old, new = parse_rules(text), parse_rules(done.text)
    for before, after in zip(old.rules, new.rules, strict=True):
        assert after.hold * speed == before.hold
        assert after.keep * speed == before.keep


def test_starter_rules_can_be_rescaled():
    assert "interval: 3s" in rescale(STARTER.read_text(), Fraction(10)).text


@pytest.mark.parametrize(
    ("speed", "problem"),
    [(0, "not a positive"), (-3, "not a positive"), (151, "closer than 100 ms")],
)
def test_senseless_speeds(speed, problem):
    with pytest.raises(UsageError, match=problem):
        rescale(FILE, Fraction(speed))


def test_fractions_of_milliseconds_are_refused_with_their_line():
    with pytest.raises(
        RuleFileError, match=r"r\.yml:4: interval: 30s at speed 7 is no whole number"
    ):
        rescale(FILE, Fraction(7), "r.yml")
