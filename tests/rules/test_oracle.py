"""promtool as the oracle, for the dialect of the release it belongs to."""

from __future__ import annotations

import json
import random

import promtool
import pytest
import rule_shapes

from detectors.rules.counters import Census
from detectors.rules.durations import format_duration
from detectors.rules.errors import EvaluationError
from detectors.rules.evaluation import Evaluator
from detectors.rules.files import parse_rules
from detectors.rules.language import parse
from detectors.rules.program import Program, Settings
from detectors.rules.series import Storage
from detectors.rules.unit_tests import run_tests
from detectors.rules.watch import changes_of, ticks

RULES_PER_FILE = 64


@pytest.mark.parametrize("seed", range(5))
def test_the_same_alerts_fire_at_the_same_steps(small_job, tmp_path, seed):
    rules = rule_shapes.rule_file(random.Random(seed), RULES_PER_FILE)
    history = small_job(seed, end=480.0)
    program = Program(parse_rules(rules), Settings("prometheus2"))
    grid = ticks(0, history.end, 15_000, 0)
    series = promtool.series_lines(Census(history, 15_000, "none").block(grid))
    times = grid.tolist()
    theirs = promtool.firing(tmp_path, series, rules, [format_duration(at) for at in times])
    changes = changes_of(program, history)
    firing = set()
    for at, expected in zip(times, theirs, strict=True):
        for _, change in changes.get(at, ()):
            (firing.add if change.kind == "firing" else firing.discard)(change.labels)
        assert firing == expected, format_duration(at)
    assert any(theirs)


@pytest.mark.parametrize("seed", range(2))
def test_expressions_have_the_same_values(small_job, tmp_path, seed):
    draw = random.Random(100 + seed)
    history = small_job(seed + 50)
    block = Census(history, 15_000, "none").block(ticks(0, history.end, 15_000, 0))
    storage = Storage()
    storage.add(block)
    evaluator = Evaluator(storage, "prometheus2", subquery_step=15_000)
    queries = []
    for _ in range(150):
        make = draw.choice([rule_shapes.expression, rule_shapes.counted, rule_shapes.grouped])
        queries.append((make(draw), draw.choice(("1m", "4m30s", "7m7s", "9m59s"))))
    moments = {"1m": 60_000, "4m30s": 270_000, "7m7s": 427_000, "9m59s": 599_000}
    theirs = promtool.answers(tmp_path, promtool.series_lines(block), queries)
    for query in queries:
        expected = theirs[query]
        if isinstance(expected, str):
            with pytest.raises(EvaluationError):
                evaluator.instant(parse(query[0]), moments[query[1]])
            continue
        answer = evaluator.instant(parse(query[0]), moments[query[1]])
        got = {one.labels: one.value for one in answer}
        assert got == pytest.approx(expected, rel=1e-12, nan_ok=True), query


@pytest.mark.parametrize("seed", range(12))
def test_unit_tests_pass_and_fail_alike(small_job, tmp_path, seed):
    draw = random.Random(seed)
    path = _unit_test(draw, small_job(seed, end=240.0), tmp_path)
    ours = not run_tests(path, "prometheus2").failures
    assert ours == promtool.verdict_of_tests(path)


def _unit_test(draw, history, folder):
    """A test file whose expectations are right, but for a slip in half of the files."""
    rules = rule_shapes.rule_file(draw, 6)
    (folder / "rules.yml").write_text(rules)
    grid = ticks(0, history.end, 15_000, 0)
    series = promtool.series_lines(Census(history, 15_000, "none").block(grid))
    moment = format_duration(draw.choice(grid.tolist()[4:]))
    (fired,) = promtool.firing(folder, series, rules, [moment])
    fired = sorted(fired)
    query = (rule_shapes.counted(draw), moment)
    samples = promtool.answers(folder, series, [query])[query]
    if draw.random() < 0.5 and fired:
        fired.pop(draw.randrange(len(fired)))
    elif draw.random() < 0.3 and samples:
        samples = {labels: value + 1 for labels, value in samples.items()}
    names = parse_rules(rules).alerts
    document = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": "15s",
        "tests": [
            {
                "interval": "15s",
                "input_series": [{"series": key, "values": text} for key, text in series.items()],
                "alert_rule_test": [
                    {
                        "eval_time": moment,
                        "alertname": name,
                        "exp_alerts": [
                            {"exp_labels": {k: v for k, v in labels if k != "alertname"}}
                            for labels in fired
                            if dict(labels)["alertname"] == name
                        ],
                    }
                    for name in names
                ],
                "promql_expr_test": [
                    {
                        "expr": query[0],
                        "eval_time": moment,
                        "exp_samples": [
                            {"labels": _selector(labels), "value": value}
                            for labels, value in samples.items()
                        ],
                    }
                ],
            }
        ],
    }
    path = folder / "test.yml"
    path.write_text(json.dumps(document))
    return path


def _selector(labels):
    return "{" + ", ".join(f"{name}={json.dumps(value)}" for name, value in labels) + "}"
