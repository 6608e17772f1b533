"""Live at 60x with real servers: what fires is what the embedded rules say."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from live_servers import old_windows, replayed

from replay.cli.verbs import run_verb

pytestmark = pytest.mark.servers

SAMPLE = Path(__file__).parents[2] / "data" / "sample"
JOBS = ("Job4", "Job7")
GRID = ("--scrape", "30s", "--interval", "30s", "--zero", "two-step")
# how far counters are extrapolated depends on where evaluations fall between scrapes, so that a
# threshold that few alerts can reach is reached or not by chance; what is over within an
# Alertmanager's group_wait is never told by it
RULES = """
groups:
- name: nodes
  rules:
  - alert: Noisy
    expr: sum by (job_id, ip) (increase(llm_alert_events_total[5m])) > 4.2
  - alert: Kinds
    expr: count by (job_id, ip) (llm_alert_events_total) >= 3
    for: 30s
    annotations:
      summary: "{{ $labels.ip }} has {{ $value }} kinds"
  - alert: Share
    expr: |
      sum by (job_id, ip) (llm_alert_events_total)
        / on (job_id) group_left () sum by (job_id) (llm_alert_events_total) > 0.08
    keep_firing_for: 2m
  - alert: Moves
    expr: sum by (job_id, ip) (rate(llm_alert_events_total[2m])) > 0
    keep_firing_for: 1m
  - alert: Rises
    expr: |
      sum by (job_id, ip) (llm_alert_events_total - llm_alert_events_total offset 5m) >= 3
    keep_firing_for: 2m
  - alert: Job
    expr: sum by (job_id) (llm_alert_events_total) > 100
"""


def pairs(verdicts, prefix):
    return {
        (row["detector"].removeprefix(prefix), row["job_id"], row["ip"])
        for row in verdicts
        if row["action"] == "raise" and row["detector"].startswith(prefix)
    }


@pytest.fixture(scope="module")
def rules(tmp_path_factory):
    path = tmp_path_factory.mktemp("live") / "rules.yml"
    path.write_text(RULES)
    return path


@pytest.fixture(scope="module")
def embedded(rules):
    log = rules.with_name("embedded.jsonl")
    words = ["--dialect", "prometheus2" if old_windows() else "prometheus3", *GRID]
    run = ["rules", "run", str(rules), str(SAMPLE), *JOBS, *words, "--verdicts", str(log), "--json"]
    assert run_verb(run) == 0
    found = pairs(map(json.loads, log.read_text().splitlines()), "rules:")
    assert len(found) >= 60
    assert {alert for alert, _, _ in found} == {"Noisy", "Kinds", "Share", "Moves", "Rises", "Job"}
    return found


@pytest.fixture(scope="module")
def live(rules):
    """Both ways at once: alone each of them mostly waits."""
    words = [SAMPLE, *JOBS, "--speed", "60", "-d", "silent", "--no-baselines", *GRID]
    with ThreadPoolExecutor() as pool:
        straight = pool.submit(replayed, rules.with_name("straight"), rules, words)
        through = pool.submit(
            replayed, rules.with_name("through"), rules, words, through_alertmanager=True
        )
        return {"straight": straight.result(), "through": through.result()}


@pytest.mark.parametrize("way", ["straight", "through"])
def test_same_pairs_as_embedded(way, live, embedded):
    _, verdicts = live[way]
    found = pairs(verdicts, "prometheus:")
    assert len(found & embedded) >= 0.95 * len(found | embedded), (
        len(found & embedded),
        sorted(found - embedded),
        sorted(embedded - found),
    )


@pytest.mark.parametrize("way", ["straight", "through"])
def test_verdicts_know_their_times(way, live):
    _, verdicts = live[way]
    told = [row for row in verdicts if row["detector"].startswith("prometheus:")]
    assert all(row["scheduled_wall"] <= row["emitted_wall"] for row in told)
    for row in told:
        if row["detector"] == "prometheus:Kinds" and row["action"] == "raise":
            assert row["ip"] in row["reason"]


def test_delays_are_told_apart(live):
    for way in ("straight", "through"):
        document, _ = live[way]
        told = document["run"]["live_rules"]
        assert told["scrapes"] > 2
        assert told["notices"]["taken"] > 0
        assert set(told["delays"]) == {"rule_s", "grid_s", "delivery_wall_s"}
        assert told["delays"]["grid_s"]["p50"] > 0
    # an Alertmanager waits for others of a group
    straight, through = (
        live[way][0]["run"]["live_rules"]["delays"]["delivery_wall_s"]["p50"]
        for way in ("straight", "through")
    )
    assert straight < through
