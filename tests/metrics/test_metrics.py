"""What is shown, and what is not."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from replay import traces
from replay.config import RunConfig
from replay.metrics import Figure, Metrics, Series
from replay.plugins import parse_detectors
from replay.runner import Replay
from replay.traces import Trace

SAMPLE = Path(__file__).parents[2] / "data" / "sample"
DETECTORS = ("burst", "first-alert", "most-kinds")
EXPECTED = {
    "llm_alert_events",
    "alert_replay_build_info",
    "alert_replay_job_info",
    "alert_replay_alerts_published",
    "alert_replay_verdicts",
    "alert_replay_detector_errors",
    "alert_replay_trace_position_seconds",
    "alert_replay_progress_ratio",
    "alert_replay_paused",
    "alert_replay_epoch",
    "alert_replay_pacing_lag_seconds",
    "alert_replay_transport_lag_seconds",
    "alert_replay_detector_observe_seconds",
}
WALL = ("lag_seconds", "observe_seconds", "speed_")
"""Families that measure the wall."""


def watched(trace, **settings):
    """Metrics that have watched a whole replay."""
    metrics = Metrics(Series())
    config = RunConfig(path=str(SAMPLE), **settings)
    run = Replay(trace, parse_detectors(DETECTORS), config, observers=[metrics], run_id="r")
    metrics.watch(player=run.player, tally=run.tally, transit=run.transit, standing=run.standing)
    return metrics, run, run.play()


def families(text):
    return {family.name: family for family in text_string_to_metric_families(text.decode())}


@pytest.fixture(scope="module")
def sample():
    return traces.open(str(SAMPLE)).select(("Job7", "Job8"))


@pytest.fixture(scope="module")
def played(sample):
    return watched(sample)


def test_names(played):
    metrics, _, _ = played
    assert set(families(metrics.render())) == EXPECTED


def test_paced_runs_show_their_speed(tiny_trace):
    metrics, _, done = watched(tiny_trace, speed="100000")
    found = families(metrics.render())
    assert set(found) == EXPECTED | {
        "alert_replay_speed_ratio",
        "alert_replay_speed_achieved_ratio",
    }
    lag = {
        s.name: s.value for s in found["alert_replay_pacing_lag_seconds"].samples if not s.labels
    }
    assert lag["alert_replay_pacing_lag_seconds_count"] == done.played.lateness.count
    assert found["alert_replay_speed_ratio"].samples[0].value == 100_000


def test_scores_are_apart(played):
    metrics, _, done = played
    found = families(metrics.render_score())
    assert set(found) == {
        "alert_replay_score_ratio",
        "alert_replay_detection_latency_trace_seconds",
    }
    told = {
        (s.labels["detector"], s.labels["metric"]): s.value
        for s in found["alert_replay_score_ratio"].samples
    }
    for detector in DETECTORS:
        assert told[detector, "recall"] == done.score[detector].metrics["recall"]
    hits = {
        s.labels["detector"]: s.value
        for s in found["alert_replay_detection_latency_trace_seconds"].samples
        if s.name.endswith("_count")
    }
    assert hits == {name: done.score[name].metrics["tp"] for name in DETECTORS}


def test_counts_agree_with_the_run(played):
    metrics, run, done = played
    found = families(metrics.render())
    kinds = {s.labels["kind"]: s.value for s in found["alert_replay_alerts_published"].samples}
    assert sum(kinds.values()) == done.played.alerts == run.trace.events.num_rows
    verdicts = found["alert_replay_verdicts"].samples
    assert sum(s.value for s in verdicts) == len(done.log)


def test_no_time_of_creation_is_shown(played):
    metrics, _, _ = played
    assert b"_created" not in metrics.render() + metrics.render_score()


@pytest.mark.parametrize("what", ["render", "render_score"])
def test_promtool_has_no_complaint(played, what):
    metrics, _, _ = played
    metrics.watch(
        figures=lambda: [Figure("lag_records", "How far behind.", "gauge", ("p",), {("0",): 1})]
    )
    assert shutil.which("promtool"), "promtool is not installed: apt-get install prometheus"
    done = subprocess.run(
        ["promtool", "check", "metrics"],
        input=getattr(metrics, what)(),
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def _turned(trace):
    """The same trace with every label the other way round."""
    jobs = tuple(
        replace(
            job,
            ip_status={
                node: "gpu_fault" if label == "normal" else "normal"
                for node, label in job.ip_status.items()
            },
        )
        for job in trace.jobs
    )
    return Trace(jobs, trace.events, trace.source)


def test_nothing_on_metrics_tells_the_truth(sample):
    """Only /metrics/score differs when every label is turned round."""
    (metrics, *_), (other, *_) = watched(sample), watched(_turned(sample))

    def lines(found):
        return [
            line
            for line in found.render().decode().splitlines()
            if not any(word in line for word in WALL)
        ]

    ours = lines(metrics)
    assert len(ours) > 200
    assert ours == lines(other)
    assert metrics.render_score() != other.render_score()
