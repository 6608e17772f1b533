"""``run --live-rules`` and ``--metrics``: what does not fit is told, and nothing is left waiting."""

from __future__ import annotations

import re
import signal
import sys
import threading
import urllib.request
from pathlib import Path

import pytest
from live_servers import said, started

from replay.cli.verbs import run_verb

SAMPLE = Path(__file__).parents[2] / "data" / "sample"
RULES = """
groups:
- name: nodes
  rules:
  - alert: Noisy
    expr: sum by (job_id, ip) (increase(llm_alert_events_total[5m])) > 4
"""
QUIET = ["-d", "silent", "--no-baselines", "-q"]


@pytest.fixture
def rules(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "rules.yml"
    path.write_text(RULES)
    return path


def run(*words):
    return run_verb(["run", str(SAMPLE), "Job8", *QUIET, *map(str, words)])


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ([], 2, "need a speed that Prometheus can follow"),
        (["--speed", "1000"], 2, "closer than 100 ms"),
        (["--speed", "60", "--scrape", "soon"], 2, "'soon' is not a duration"),
        (["--speed", "60", "--alertmanager", "there"], 2, "no address to listen on"),
        (["--speed", "60", "--metrics", "x"], 2, "no address to listen on"),
        (["--speed", "60", "--zero", "cross"], 2, "needs the kinds"),
        (["--speed", "60", "--wait-for-prometheus", "0"], 5, "No Prometheus has read the metrics"),
    ],
)
def test_what_does_not_fit(rules, capsys, words, code, told):
    assert run("--live-rules", rules, *words) == code
    assert told in capsys.readouterr().err


def test_a_bad_rule_file(rules, capsys):
    rules.write_text(RULES.replace("increase", "incraese"))
    assert run("--live-rules", rules, "--speed", "60") == 2
    assert re.search(r"rules\.yml:6: .*incraese", capsys.readouterr().err)


def test_a_dry_run_writes_nothing(rules):
    assert run("--live-rules", rules, "--speed", "60", "--dry-run") == 0
    assert not Path("stack").exists()


def test_looking_ahead_is_told(rules, capsys):
    assert run("--metrics", ":0", "--zero", "seen") == 0
    assert "looks ahead" in capsys.readouterr().err


def test_an_interrupt_ends_the_wait_for_prometheus(rules, tmp_path):
    command = [sys.executable, "-m", "replay", "run", str(SAMPLE), "Job8", *QUIET]
    command += ["--speed", "60", "--live-rules", str(rules)]
    log = tmp_path / "log"
    with started(command, log) as process:
        said(log, r"Waiting for Prometheus", process)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=30)
        assert process.returncode == 130, log.read_text()
    assert b"zero none: Prometheus scraped 0 times" in out
    assert "Traceback" not in log.read_text()


def test_two_scrapes_start_the_clock(rules, tmp_path):
    """Anything that reads the metrics twice will do; a whole run without a Prometheus."""
    command = [sys.executable, "-m", "replay", "run", str(SAMPLE), "Job8", *QUIET]
    command += ["--speed", "100", "--live-rules", str(rules)]
    log = tmp_path / "log"
    with started(command, log) as process:
        (url,) = said(log, r"^metrics at (\S+),", process)
        over = threading.Event()

        def scrape():
            while not over.is_set():
                try:
                    urllib.request.urlopen(url, timeout=10).close()
                except OSError:
                    return

        reader = threading.Thread(target=scrape)
        reader.start()
        out, _ = process.communicate(timeout=60)
        over.set()
        reader.join()
        assert process.returncode == 0, log.read_text()
    assert b"told 0 changes" in out
    assert b"prometheus:Noisy" in out
