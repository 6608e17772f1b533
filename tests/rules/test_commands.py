"""The verb ``rules`` as a user calls it."""

from __future__ import annotations

import json
import re

import pytest
from click.testing import CliRunner

import replay
from detectors.rules.commands import rules
from detectors.rules.detector import STARTER
from replay.testing import TINY_TRACES
from replay.traces import write

UNIT_TEST = """
rule_files: [rules.yml]
evaluation_interval: 1m
tests:
- interval: 1m
  name: nodes
  input_series:
  - {series: 'llm_alert_events_total{ip="a"}', values: '0+9x10'}
  alert_rule_test:
  - eval_time: 5m
    alertname: Noisy
    exp_alerts: [{exp_labels: {ip: a}, exp_annotations: {summary: "a: 36"}}]
  promql_expr_test:
  - {expr: llm_alert_events_total > 50, eval_time: 6m, exp_samples: [{labels: 'llm_alert_events_total{ip="a"}', value: 54}]}
"""
RULES = """
groups:
- name: g
  rules:
  - alert: Noisy
    expr: increase(llm_alert_events_total[5m]) > 30
    annotations: {summary: '{{ $labels.ip }}: {{ $value }}'}
"""


def call(*arguments, code=0):
    done = CliRunner().invoke(rules, [str(argument) for argument in arguments])
    if code == 0:
        assert done.exception is None, done.output
    else:
        assert done.exception.exit_code == code
    return done


@pytest.fixture
def trace(tmp_path):
    """A small trace on disk."""
    tiny = next(tiny for tiny in TINY_TRACES if tiny.name == "culprit")
    path = tmp_path / "trace.jsonl"
    write(tiny.trace(), path)
    return path


def test_check_counts_and_remarks(tmp_path):
    path = tmp_path / "rules.yml"
    path.write_text(RULES + "  - {alert: B, expr: sum(up)}\n")
    lines = call("check", path).stdout.splitlines()
    assert lines[0].startswith(f"{path}:8: B: no label ip is left")
    assert lines[-1] == "1 groups, 2 alerting rules, 0 recording rules, 3 warnings"
    document = json.loads(call("check", path, "--json").stdout)
    assert document["alerting_rules"] == 2
    assert len(document["warnings"]) == 3


def test_check_refuses_with_line(tmp_path):
    path = tmp_path / "rules.yml"
    path.write_text("groups:\n- name: g\n  rules:\n  - {alert: A, expr: hour() > 3}\n")
    error = call("check", path, code=2).exception
    assert str(error).startswith(f"{path}:4: rule 'A': hour() is refused")


def test_run_scores_each_alert_and_the_file(trace, tmp_path):
    log = tmp_path / "verdicts.jsonl"
    arguments = ("run", STARTER, trace, "--resamples", "0")
    done = call(*arguments, "--json", "--verdicts", log)
    document = json.loads(done.stdout)
    names = ["rules", "rules:NodeNoisy", "rules:NodeManyKinds", "rules:NodeStandsOut"]
    assert list(document["detectors"]) == names
    assert document["settings"]["dialect"] == "prometheus3"
    assert "dialect prometheus3, zero none" in done.stderr
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    assert {row["detector"] for row in rows} <= set(names)
    assert "rules:NodeNoisy" in call(*arguments).stdout


def test_run_equals_a_replay_with_the_detector(trace):
    given = json.loads(call("run", STARTER, trace, "--resamples", "0", "--json").stdout)
    played = replay.run(str(trace), [f"rules:file={STARTER}"], baselines=False)
    ours = given["detectors"]["rules"]["metrics"]
    theirs = played.score.detectors["rules"].metrics
    assert {key: ours[key] for key in ours if not key.startswith("wall")} == {
        key: theirs[key] for key in ours if not key.startswith("wall")
    }


def test_run_over_phases(trace):
    done = call("run", STARTER, trace, "--phases", "3", "--resamples", "0", "--json")
    document = json.loads(done.stdout)
    assert document["phases"] == 3
    assert set(document["detectors"]["rules"]["recall"]) == {"min", "median", "max"}
    shown = call("run", STARTER, trace, "--phases", "2", "--resamples", "0").stdout
    assert re.search(r"2 phases", shown)
    for flags in (("--fail-if", "f1 < 1"), ("--verdicts", "v.jsonl"), ("--junit", "j.xml")):
        refused = call("run", STARTER, trace, "--phases", "2", *flags, code=2).exception
        assert f"{flags[0]}: --phases shows how much scores vary" in str(refused)


def test_phases_of_rules_that_miss(trace, tmp_path):
    never = tmp_path / "never.yml"
    never.write_text(
        "groups:\n- name: g\n  rules:\n  - alert: Never\n    expr: llm_alert_events_total > 1e9\n"
    )
    words = ("run", never, trace, "--phases", "2", "--resamples", "0")
    row = next(line for line in call(*words).stdout.splitlines() if "latency" in line)
    assert row.split()[2:] == ["∞"] * 3
    found = json.loads(call(*words, "--json").stdout)["detectors"]["rules"]
    assert set(found["latency_job_alert_p50_all"].values()) == {None}


def test_run_on_one_job_is_not_comparable(trace):
    job = replay.open(str(trace)).job_ids[0]
    done = call("run", STARTER, trace, job, "--resamples", "0", "--json")
    assert json.loads(done.stdout)["settings"]["comparable"] is False
    call("run", STARTER, trace, "Nobody", code=2)


def test_rescale(tmp_path):
    done = call("rescale", STARTER, "--speed", "10x")
    assert "interval: 3s" in done.stdout
    out = tmp_path / "fast.yml"
    call("rescale", STARTER, "--speed", "10", "--out", out)
    assert out.read_text() == done.stdout
    call("rescale", STARTER, "--speed", "fast", code=2)
    call("rescale", STARTER, "--speed", "10", "--out", tmp_path / "no" / "where", code=2)


def test_unit_tests(tmp_path):
    (tmp_path / "rules.yml").write_text(RULES)
    path = tmp_path / "test.yml"
    path.write_text(UNIT_TEST.replace("a: 36", "a: 45"))
    assert call("test", path, "--dialect", "prometheus2").stdout.splitlines() == [
        "2 passed, 0 failed"
    ]
    path.write_text(UNIT_TEST.replace("value: 54", "value: 55"))
    done = call("test", path, code=1)
    assert "got" in done.stdout
    assert done.stdout.splitlines()[-1] == "0 passed, 2 failed"


@pytest.mark.parametrize(
    ("begin", "seconds"),
    [("2024-01-01T00:00:00Z", 1704067200), ("1609459200.5", 1609459200.5), ("-60", -60)],
)
def test_unit_tests_begin_when_they_say(tmp_path, begin, seconds):
    path = tmp_path / "test.yml"
    path.write_text(f"""
tests:
- interval: 1m
  start_timestamp: {begin}
  input_series: [{{series: x, values: 1 2 3}}]
  promql_expr_test:
  - {{expr: time(), exp_samples: [{{value: {seconds}}}]}}
  - {{expr: timestamp(x), eval_time: 90s, exp_samples: [{{value: {seconds + 60}}}]}}
  - {{expr: 'sum_over_time(x[2m1s])', eval_time: 2m, exp_samples: [{{value: 6}}]}}
""")
    assert call("test", path).stdout == "3 passed, 0 failed\n"


@pytest.mark.parametrize(("fuzzy", "passed"), [("true", 2), ("false", 1)])
def test_unit_tests_may_be_off_by_the_next_number(tmp_path, fuzzy, passed):
    path = tmp_path / "test.yml"
    path.write_text(f"""
fuzzy_compare: {fuzzy}
tests:
- promql_expr_test:
  - {{expr: 0.1 + 0.2, exp_samples: [{{value: 0.3}}]}}
  - {{expr: 0.1 + 0.7, exp_samples: [{{value: 0.7999999999999999}}]}}
  - {{expr: 0.1 + 0.2, exp_samples: [{{value: 0.3000000000000002}}]}}
""")
    done = call("test", path, code=1)
    assert done.stdout.splitlines()[-1] == f"{passed} passed, {3 - passed} failed"


def test_unit_tests_want_values_of_an_instant(tmp_path):
    path = tmp_path / "test.yml"
    path.write_text("tests:\n- promql_expr_test: [{expr: 'x[5m]'}, {expr: '\"x\"'}, {expr: x}]\n")
    done = call("test", path, code=1)
    assert done.stdout.count("neither a vector nor a number") == 2
    assert "1 passed, 2 failed" in done.stdout


def test_unit_tests_refuse_by_rule_file(tmp_path):
    (tmp_path / "rules.yml").write_text(
        RULES.replace("increase(llm_alert_events_total[5m])", "x[5m]")
    )
    path = tmp_path / "test.yml"
    path.write_text("rule_files: [rules.yml]\n")
    text = str(call("test", path, code=2).exception)
    assert "rules.yml:6: " in text
    assert "is not PromQL" in text
    (tmp_path / "rules.yml").write_text(RULES.replace("[5m]) > 30", "[2 * 5m])"))
    text = str(call("test", path, "--dialect", "prometheus2", code=2).exception)
    assert "rules.yml:6: rule 'Noisy': arithmetic on durations is refused" in text


def test_a_rule_that_fails_fails_its_test(tmp_path):
    clash = "a + on () llm_alert_events_total"
    text = RULES.replace("increase(llm_alert_events_total[5m]) > 30", clash)
    (tmp_path / "rules.yml").write_text(text)
    path = tmp_path / "test.yml"
    path.write_text("""
rule_files: [rules.yml]
tests:
- input_series:
  - {series: a, values: 1}
  - {series: 'llm_alert_events_total{ip="a"}', values: 1}
  - {series: 'llm_alert_events_total{ip="b"}', values: 1}
""")
    assert "rule 'Noisy' at 0s: found duplicate series" in call("test", path, code=1).stdout


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds no tests"),
        ("rules: []\n", "unknown key 'rules'"),
        ("rule_files: [none.yml]\ntests: []\n", "there is no rule file 'none.yml'"),
        ("tests:\n- promql_expr_test: [{eval_time: 1m}]\n", "has no expr"),
        (
            "tests:\n- input_series: [{series: 'x', values: 'a'}]\n  promql_expr_test: [{expr: x, eval_time: 1m}]\n",
            "is not a value",
        ),
        ("tests:\n- external_labels: {a: b}\n", "external_labels is not known"),
        ("tests:\n- promql_expr_test: [{expr: 'x >', eval_time: 1m}]\n", "not PromQL"),
        ("evaluation_interval: often\n", "is not a duration"),
        ("tests:\n- start_timestamp: 2024-01-01\n", "is neither seconds nor a time"),
    ],
)
def test_bad_test_files(tmp_path, text, words):
    path = tmp_path / "test.yml"
    path.write_text(text)
    assert words in str(call("test", path, code=2).exception)
