"""How well the detectors do, on made traces that none of them was tuned or fitted on.

``python tests/support/leaderboard.py`` measures the same over twenty traces, cross-validated; what
it prints stands in the README.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from pathlib import Path

import leaderboard
import pytest

from replay.bench import Serial, bench
from replay.plugins import DETECTORS, installed
from replay.scoring import Policy
from replay.traces import synth

pytestmark = pytest.mark.once

SIMPLE = ("loudest", "first-alert", "most-kinds")
FINDERS = tuple(
    point.name
    for point in installed(DETECTORS)
    if point.value.startswith("detectors.")
    and not point.value.startswith(("detectors.baselines:", "detectors.rules."))
)
README = Path(__file__).parents[2] / "README.md"


@functools.cache
def benched(preset, jobs, detectors):
    """The bench of a made trace, and its trace."""
    made = synth.make(preset, jobs=jobs, seed=101)
    onsets = {job: told["onset"] for job, told in made.truth.items()}
    found = bench(made.trace, detectors, policy=Policy(resamples=0), onsets=onsets)
    assert not found.failures
    return made.trace, found


def metrics(preset, jobs, detectors):
    _, found = benched(preset, jobs, detectors)
    return {name: found.score[name].metrics for name in detectors}


HARD = ("dataset", 98, ("learned", "episodes", *SIMPLE))
QUIET = ("quiet", 40, (*FINDERS, *SIMPLE))
STORMY = ("stormy", 40, ("silence", "learned", *SIMPLE))
CHATTY = ("chatty", 30, ("learned",))


def test_the_best_detector_on_the_hard_preset():
    scored = metrics(*HARD)
    best = scored["learned"]
    assert best["f1"] >= 0.85
    assert best["hit_at_1"] >= 0.85
    assert best["recall_at_60_onset"] >= 0.6
    assert best["healthy_job_false_alarm_rate"] <= 0.05
    assert scored["episodes"]["f1"] > max(scored[name]["f1"] for name in SIMPLE)
    assert all(scored[name]["hit_at_1"] <= 0.5 for name in SIMPLE)


@pytest.mark.parametrize("name", sorted({*FINDERS} - {"silence"}))
def test_every_detector_beats_the_simple_ones_where_there_is_little_noise(name):
    scored = metrics(*QUIET)
    assert scored[name]["f1"] > max(scored[simple]["f1"] for simple in SIMPLE)


def test_silence_beats_the_simple_ones_where_storms_are_big():
    scored = metrics(*STORMY)
    assert scored["silence"]["f1"] > max(scored[simple]["f1"] for simple in SIMPLE)


@pytest.mark.parametrize("noisy", [CHATTY, STORMY], ids=["chatty", "stormy"])
def test_noise_costs_the_best_little(noisy):
    plain = metrics("dataset", 30, ("learned",))["learned"]["f1"]
    assert metrics(*noisy)["learned"]["f1"] >= plain - 0.1


@pytest.mark.parametrize(
    "run",
    [QUIET, ("chatty", 4, FINDERS), ("stormy", 6, FINDERS)],
    ids=["quiet", "chatty", "stormy"],
)
def test_nobody_blames_many_without_saying_so(run):
    """Three nodes or a tenth of a job, whichever is more; then the circuit breaker says so."""
    trace, found = benched(*run)
    blamed, told = defaultdict(set), set()
    for row in found.log.rows():
        who = row["detector"], row["job_id"]
        if row["action"] == "raise" and row["ip"] is not None:
            blamed[who].add(row["ip"])
        if "circuit breaker" in row["reason"]:
            told.add(who)
    limits = {job.id: max(3, len(job.ip_status) // 10) for job in trace}
    for (detector, job), nodes in blamed.items():
        if detector in FINDERS:
            assert len(nodes) <= limits[job], (detector, job)
    assert told or run == QUIET, "no breaker had to open"


def test_the_table_in_the_readme_is_the_one_that_the_command_makes():
    made = leaderboard.table([])
    lines = README.read_text(encoding="utf-8").splitlines()
    begin = lines.index(made[0])
    shown = lines[begin : begin + len(made)]
    assert [line.split("|")[1] for line in shown] == [line.split("|")[1] for line in made]
    assert {line.count("|") for line in shown} == {made[0].count("|")}
    assert not lines[begin + len(made)]


def test_the_command_makes_a_table(monkeypatch, capsys):
    """With the model of one trace judged on the other, which are too few to be good."""
    crossed = leaderboard.DETECTORS[leaderboard.CROSSED]
    monkeypatch.setattr(
        leaderboard, "DETECTORS", {"log-odds": "log-odds", leaderboard.CROSSED: crossed}
    )
    monkeypatch.setattr(leaderboard, "REFERENCES", ("random",))
    leaderboard.main(["quiet", "101-102", "12"], Serial)
    *_, learned, other, reference = capsys.readouterr().out.splitlines()
    assert learned.startswith("| `log-odds` | 0.")
    assert other.startswith("| `learned`, over all traces | 0.")
    assert reference.count(" to ") == len(leaderboard.COLUMNS)


def test_one_trace_alone_has_no_other_to_learn_from(monkeypatch, capsys):
    few = {"log-odds": "log-odds", leaderboard.CROSSED: "learned:model={model}"}
    monkeypatch.setattr(leaderboard, "DETECTORS", few)
    monkeypatch.setattr(leaderboard, "REFERENCES", ("random",))
    leaderboard.main(["quiet", "101", "12"], Serial)
    *_, other, _ = capsys.readouterr().out.splitlines()
    assert set(other.split("|")[2:-1]) == {" - "}
