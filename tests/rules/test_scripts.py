"""Our own scripts in the language of Prometheus's engine tests, and their reader."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).with_name("scripts")
CASES = [
    pytest.param(path, dialect, id=f"{dialect}:{path.stem}")
    for dialect in ("prometheus3", "prometheus2")
    for folder in ("both", dialect)
    for path in sorted((SCRIPTS / folder).glob("*.test"))
]


@pytest.mark.parametrize(("path", "dialect"), CASES)
def test_script(promqltest, path, dialect):
    outcome = promqltest.Script(path, dialect).run()
    assert not outcome.failed, "\n".join(outcome.failed)
    assert outcome.passed
    assert bool(outcome.refused) == (path.stem == "refused")


def test_refusals_name_what_and_why(promqltest):
    refused = promqltest.Script(SCRIPTS / "both" / "refused.test", "prometheus3").run().refused
    assert len(refused) == 11
    assert all(" is refused: " in text for text in refused)


def test_command_counts(tmp_path):
    path = tmp_path / "a.test"
    path.write_text(
        "load 1m\n  m 1 2\n\n"
        "eval instant at 0 m\n  m 1\n\n"
        "eval instant at 0 m\n  m 2\n\n"
        "eval instant at 0 rate(m[1m] anchored)\n"
    )
    done = subprocess.run(
        [sys.executable, str(SCRIPTS.parents[1] / "promqltest.py"), str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines[-1] == "1 passed, 1 failed, 1 refused"
    assert any(line.startswith("FAILED") and f"{path}:7" in line for line in lines)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("eval instant at 0 1\n  2\n", "not 2.0"),
        ("eval instant at 0 vector(1)\n", "not nothing"),
        ("eval_fail instant at 0 1\n", "should fail"),
        ("eval instant at 0 sum(\n", "fails"),
        ("eval instant at 0 sum(\n  expect fail msg: because\n", "not with"),
        ("eval instant at 0 vector(1)\n  expect warn\n", "lacks a remark"),
        ("eval_warn instant at 0 vector(1)\n  {} 1\n", "lacks a remark"),
        ("eval instant at 0 quantile(2, vector(1))\n  expect no_warn\n  {} Inf\n", "has a warning"),
        ("eval range from 0 to 2m step 1m vector(1)\n  {} 1 _ 1\n", "gives"),
        ('eval instant at 0 "a"\n  expect string b\n', "gives 'a'"),
    ],
)
def test_wrong_expectations_are_found(promqltest, tmp_path, body, problem):
    path = tmp_path / "wrong.test"
    path.write_text(body)
    (failure,) = promqltest.Script(path, "prometheus3").run().failed
    assert problem in failure
