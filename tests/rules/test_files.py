"""Rule files: what is read, and one clear error with its line for every kind of bad file."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import rule_shapes

from detectors.rules.errors import RuleFileError
from detectors.rules.files import MOST_RULES, parse_rules, read_rules
from detectors.rules.program import Program, Settings
from detectors.rules.templates import parse_template

BAD = Path(__file__).with_name("bad")
CASES = sorted(BAD.glob("*.yml"))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_bad_files_have_one_error_with_line(path):
    first = path.read_text().splitlines()[0]
    line, _, words = first.removeprefix("# ").partition(": ")
    with pytest.raises(RuleFileError) as caught:
        Program(read_rules(path), Settings())
    text = str(caught.value)
    assert text.startswith(f"{path}:{line}: ")
    assert words in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("dialect", "func", "args"),
    [
        ("prometheus2", "first_over_time", "x[5m]"),
        ("prometheus2", "histogram_fraction", "0, 1, x"),
        ("prometheus3", "holt_winters", "x[5m], 0.1, 0.1"),
    ],
)
def test_functions_of_the_other_dialect_are_refused(dialect, func, args):
    file = parse_rules(
        f"groups:\n- name: g\n  rules:\n  - alert: A\n    expr: {func}({args})\n", "r"
    )
    with pytest.raises(RuleFileError) as caught:
        Program(file, Settings(dialect), replayed=False)
    assert str(caught.value).startswith(f"r:5: rule 'A': {func}() is refused: ")
    (other,) = {"prometheus2", "prometheus3"} - {dialect}
    Program(file, Settings(other))


def test_arithmetic_on_durations_is_refused_in_prometheus_2():
    file = parse_rules("groups: [{name: g, rules: [{alert: A, expr: 'x offset (2 * 1m)'}]}]", "r")
    Program(file, Settings("prometheus3"))
    with pytest.raises(RuleFileError, match="r:1: rule 'A': arithmetic on durations is refused"):
        Program(file, Settings("prometheus2"))


def test_there_is_a_bad_file_for_each_fault():
    assert len(CASES) >= 25


def test_unreadable_files(tmp_path):
    with pytest.raises(RuleFileError, match="cannot be read"):
        read_rules(tmp_path / "none.yml")
    path = tmp_path / "latin.yml"
    path.write_bytes(b"groups:\n# \xe9\n")
    with pytest.raises(RuleFileError, match=r"latin\.yml:2: is not UTF-8"):
        read_rules(path)


def test_too_many_rules():
    rule = "  - {record: a, expr: x}\n"
    head = "groups:\n- name: g\n  rules:\n"
    with pytest.raises(RuleFileError, match=f":{MOST_RULES + 4}: there are more than {MOST_RULES}"):
        parse_rules(head + rule * 10_000, "many.yml")


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", "groups:\n", "groups: []\n", "groups: [{name: g}]\n"]
)
def test_empty_files_are_fine(text):
    assert parse_rules(text).rules == ()


def test_everything_a_rule_may_say():
    file = parse_rules(
        """
        groups:
        - name: one
          interval: 1m30s
          limit: 7
          query_offset: 5s
          labels: {team: red, tier: "1"}
          rules:
          - record: a:b
            expr: |
              sum(x)
            labels: {k: v}
          - alert: A
            expr: a:b > 1
            for: 2m
            keep_firing_for: 30s
            labels: {tier: "2", who: "{{ $labels.ip }}"}
            annotations: {summary: "{{ $value }}"}
        """
    )
    (group,) = file.groups
    record, alert = group.rules
    assert (group.interval, group.limit, group.query_offset) == (90_000, 7, 5000)
    assert (alert.hold, alert.keep, record.alerting) == (120_000, 30_000, False)
    assert {name: text.text for name, text in alert.labels.items()} == {
        "team": "red",
        "tier": "2",
        "who": "{{ $labels.ip }}",
    }
    assert record.expr_line == 11
    assert file.alerts == ("A",)


def test_shapes_that_people_write_all_load():
    draw = random.Random(9)
    Program(parse_rules(rule_shapes.rule_file(draw, 320)), Settings())


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("plain", "plain"),
        ("{{ $labels.ip }}/{{ .Labels.none }}", "a-1/"),
        ("{{ $value }}", "1234.5"),
        ('{{ printf "%.1f|%s|%v|%q" $value $labels.ip 3 "x" }}', '1234.5|a-1|3|"x"'),
        ("{{ $value | humanize }} {{ 0.00012 | humanize }}", "1.234k 120u"),
        ("{{ humanize1024 2048.0 }} {{ humanize 0.0 }}", "2ki 0"),
        ("{{ humanizeDuration 93784.0 }} {{ humanizeDuration 0.5 }}", "1d 2h 3m 4s 500ms"),
        ("{{ 0.25 | humanizePercentage }}", "25%"),
        ("{{ humanizeTimestamp 0.0 }}", "1970-01-01 00:00:00 +0000 UTC"),
        (
            "{{ if gt $value 1e3 }}many{{ else if gt $value 10.0 }}some{{ else }}few{{ end }}",
            "many",
        ),
        ('{{ if and (eq $labels.ip "a-1") (ne 1 2) }}y{{ end }}', "y"),
        ("a {{- /* note */ -}} b", "ab"),
        ('{{ $labels.ip | toUpper | reReplaceAll "(A)-(.)" "$2$1" }}', "1A"),
        ('{{ match "^a" $labels.ip }} {{ not true }}', "true false"),
        ('{{ index $labels "ip" }} {{ len "abc" }}', "a-1 3"),
        ('{{ parseDuration "1m30s" }}', "90"),
        ('{{ title "gpu lost" }}', "Gpu Lost"),
        ('{{ "}}" }}', "}}"),
    ],
)
def test_templates(text, want):
    assert parse_template(text).render({"ip": "a-1"}, 1234.5) == want


@pytest.mark.parametrize(("text", "uses"), [("{{ $labels.ip }}", False), ("{{ $value }}", True)])
def test_templates_know_whether_they_hold_the_value(text, uses):
    assert parse_template(text).uses_value is uses
