"""The folder for a Prometheus: what is in it is valid, rescaled, and ours."""

from __future__ import annotations

import shutil
import subprocess

import pytest
import yaml

from detectors.rules.errors import RuleFileError
from detectors.rules.stack import write_stack
from replay.errors import UsageError

RULES = """
groups:
- name: nodes
  rules:
  - alert: Noisy
    expr: rate(llm_alert_events_total[5m]) > 0.1
    for: 1m
"""


@pytest.fixture
def rules(tmp_path):
    path = tmp_path / "my.yml"
    path.write_text(RULES)
    return path


def written(rules, **options):
    folder = rules.with_name("stack")
    arguments = {"speed": 10.0, "target": "127.0.0.1:9400", "run": "r1"} | options
    return folder, write_stack(str(rules), str(folder), **arguments)


def test_promtool_takes_it(rules):
    folder, stack = written(rules)
    assert shutil.which("promtool"), "promtool is not installed: apt-get install prometheus"
    done = subprocess.run(
        ["promtool", "check", "config", str(folder / "prometheus.yml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 rules found" in done.stdout
    assert stack.alerts == ("Noisy",)


def test_everything_goes_as_fast(rules):
    folder, stack = written(rules, alertmanager="127.0.0.1:9093")
    prometheus = yaml.safe_load((folder / "prometheus.yml").read_text())
    assert prometheus["global"] == {
        "scrape_interval": "1s500ms",
        "scrape_timeout": "1s500ms",
        "evaluation_interval": "1s500ms",
        "external_labels": {"replay": "r1"},
    }
    alertmanager = yaml.safe_load((folder / "alertmanager.yml").read_text())
    assert alertmanager["route"]["group_wait"] == "3s"
    assert alertmanager["global"]["resolve_timeout"] == "30s"
    assert "(rate(llm_alert_events_total[30s]) / 10)" in (folder / "rules.yml").read_text()
    assert (stack.step_s, stack.delay_s) == (1.5, 3.0)
    alertmanager_line, prometheus_line = stack.commands
    assert "--query.lookback-delta=30s --rules.alert.resend-delay=6s" in prometheus_line
    assert "--web.listen-address=127.0.0.1:9093" in alertmanager_line


def test_who_is_told(rules):
    def receivers(**options):
        folder, _ = written(rules, **options)
        config = yaml.safe_load((folder / "prometheus.yml").read_text())
        return config["alerting"]["alertmanagers"][0]["static_configs"][0]["targets"]

    assert receivers() == ["127.0.0.1:9400"]
    assert receivers(alertmanager="127.0.0.1:9093") == ["127.0.0.1:9093"]


def test_written_again(rules):
    written(rules)
    folder, _ = written(rules, run="r2")
    assert "r2" in (folder / "prometheus.yml").read_text()


def test_what_is_not_ours_stays(rules):
    folder = rules.with_name("stack")
    folder.mkdir()
    (folder / "prometheus.yml").write_text("global: {}\n")
    with pytest.raises(UsageError, match="was not written by alert-replay"):
        written(rules)
    assert (folder / "prometheus.yml").read_text() == "global: {}\n"


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"speed": 1000.0}, UsageError, "closer than 100 ms"),
        ({"scrape": "soon"}, UsageError, "not a duration"),
    ],
)
def test_what_does_not_fit(rules, change, error, words):
    with pytest.raises(error, match=words):
        written(rules, **change)


def test_what_cannot_be_rescaled(rules):
    rules.write_text(RULES.replace("> 0.1", "> time()"))
    with pytest.raises(RuleFileError, match=r"time\(\)"):
        written(rules)


def test_a_folder_that_cannot_be(rules):
    rules.with_name("stack").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        written(rules)
