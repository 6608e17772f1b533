"""What is legal and most likely not meant."""

from __future__ import annotations

import pytest

from detectors.rules.detector import STARTER
from detectors.rules.files import parse_rules, read_rules
from detectors.rules.lint import lint
from detectors.rules.program import Program, Settings

M = "llm_alert_events_total"


def remarks(expr, extra="", before=""):
    text = f"groups:\n- name: g\n  rules:\n{before}  - alert: A\n    expr: '{expr}'\n{extra}"
    return [remark.text for remark in lint(Program(parse_rules(text), Settings()))]


@pytest.mark.parametrize(
    "expr",
    [
        f"{M} > 3",
        f"sum by (ip) (increase({M}[5m])) > 3",
        f"sum without (event) ({M}) > 3",
        f"{M} and on (ip) (sum by (ip) ({M}) > 3)",
        f"sum by (ip) ({M}) / on (job_id) group_left () sum by (job_id) ({M}) > 1",
        f"topk by (job_id) (1, {M}) > 1",
        f'label_replace(sum(x_of_{M}) > 1, "ip", "all", "", "")'.replace("x_of_", ""),
        f'absent({M}{{ip="a"}})',
        f"scalar(sum({M})) * {M} > 2",
        f"max_over_time(sum by (ip) ({M})[5m:1m]) > 2",
        f"-{M} < 2",
        f"{M} unless {M} offset 5m",
    ],
)
def test_fine(expr):
    assert remarks(expr) == []


@pytest.mark.parametrize(
    ("expr", "words"),
    [
        (f"sum({M}) > 1", "no label ip is left"),
        (f"sum by (job_id) ({M}) > 1", "no label ip is left"),
        (f"sum without (ip) ({M}) > 1", "no label ip is left"),
        (f"{M} * on (job_id) group_left () {M} > 1", ""),
        (f"sum by (event) ({M}) > on (event) {M}", "no label ip is left"),
        (f'count_values("n", {M}) > 1', "no label ip is left"),
        ("vector(1) > 0", "no label ip is left"),
        (f'{M}{{ip=""}} > 1', "no label ip is left"),
        (f"absent({M})", "no label ip is left"),
        (f"increase({M}[5m])", "nothing is compared"),
        (f"{M} > bool 1", "nothing is compared"),
        (f"rate({M}[20s]) > 1", "less than two scrapes"),
        (f"deriv({M}[15s]) > 1", "less than two scrapes"),
        ("rate(gpu_temperature[5m]) > 1", "looks like a gauge"),
        ("up == 0", "a replay does not show"),
    ],
)
def test_remarks(expr, words):
    found = remarks(expr)
    assert any(words in text for text in found) if words else not found


def test_value_in_a_label():
    assert "holds $value" in remarks(f"{M} > 1", '    labels: {v: "{{ $value }}"}\n')[0]


def test_label_given_by_the_rule():
    assert remarks(f"sum({M}) > 1", "    labels: {ip: all}\n") == []


def test_through_recorded_series():
    record = f"  - {{record: a, expr: sum by (ip) ({M})}}\n"
    assert remarks("a > 1", before=record) == []
    record = f"  - {{record: a, expr: sum by (event) ({M})}}\n"
    assert "no label ip" in remarks("a > 1", before=record)[0]


def test_the_same_twice():
    rule = f"  - alert: A\n    expr: '{M} > 1'\n"
    assert "the same as the rule in line 4" in remarks(f"{M} > 1", before=rule)[0]


def test_starter_rules_are_fine():
    assert lint(Program(read_rules(STARTER), Settings())) == []
