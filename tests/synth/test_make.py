"""Made traces: the same everywhere, calibrated, hard, and not too hard."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from ceiling import measure

from replay.errors import UsageError
from replay.traces.synth import PRESETS, Knobs, make, write
from replay.traces.synth.plan import plan

SECOND = 10**9


def digest(made) -> str:
    """A hash of all that is written to files."""
    lines = [repr(job) + repr(list(job.ip_status.items())) for job in made.trace]
    columns = (made.trace.events[name].to_pylist() for name in ("ip", "event_time", "event"))
    lines += map(repr, zip(*columns, strict=True))
    return hashlib.sha256("\n".join([*lines, repr(made.truth)]).encode()).hexdigest()


SMALL = {"jobs": 6, "seed": 11, "max_nodes": 40, "max_hours": 2}
EXPECTED = "b58247fe21ce37531523c2db070a875e5eb18409071c50d2713c2d8775aab630"


def test_the_bytes_are_the_same_on_every_machine():
    assert digest(make("dataset", **SMALL)) == EXPECTED


def test_the_bytes_do_not_depend_on_hashes_or_time_zone(tmp_path):
    code = (
        "from replay.traces.synth import make, write;"
        "write(make('dataset', 6, 11, max_nodes=40, max_hours=2), 'there', 'jsonl')"
    )
    env = {**os.environ, "PYTHONHASHSEED": "5", "TZ": "America/New_York"}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, check=True)
    write(make("dataset", **SMALL), tmp_path / "here", "jsonl")
    for name in ("trace.jsonl", "truth.json"):
        assert (tmp_path / "there" / name).read_bytes() == (tmp_path / "here" / name).read_bytes()


def test_a_job_does_not_depend_on_how_many_there_are(dataset):
    few = make("dataset", 5, 7)
    assert few.trace == dataset.trace.select(few.trace.job_ids)
    assert few.truth == {job: dataset.truth[job] for job in few.trace.job_ids}


def test_seeds_differ():
    assert digest(make("quiet", 2, 1)) != digest(make("quiet", 2, 2))


def test_presets_have_the_same_jobs_and_faults():
    made = [make(preset, 10, 5, max_hours=1) for preset in PRESETS]
    first = made[0]
    for other in made[1:]:
        for job, same in zip(first.trace, other.trace, strict=True):
            assert (job.id, job.start_time, job.ip_status) == (
                same.id,
                same.start_time,
                same.ip_status,
            )
            for key in ("story", "onset", "fault", "cascade"):
                assert first.truth[job.id][key] == other.truth[job.id][key]


def test_presets_differ_as_they_say():
    made = {preset: make(preset, 12, 5, max_hours=6) for preset in PRESETS}
    rows = {preset: each.trace.events.num_rows for preset, each in made.items()}
    assert rows["quiet"] < rows["dataset"] / 2
    assert rows["chatty"] > rows["dataset"] * 1.5
    assert rows["stormy"] > rows["dataset"] * 1.3
    assert peak(made["stormy"].trace) > 2 * peak(made["dataset"].trace)
    assert not any(truth["false_wave"] is not None for truth in made["quiet"].truth.values())
    waves = {p: sum(t["false_wave"] is not None for t in m.truth.values()) for p, m in made.items()}
    assert waves["stormy"] > waves["dataset"]


def peak(trace) -> int:
    """Most alerts of one job in one second."""
    pairs = zip(trace.events["job"].to_pylist(), trace.events["at"].to_pylist(), strict=True)
    return max(Counter(pairs).values())


def test_turning_one_knob_leaves_the_rest():
    plain, chatty = make("quiet", 4, 3), make("quiet", 4, 3, chatty=0.3)
    rows = Counter(map(repr, plain.trace.events.to_pylist()))
    more = Counter(map(repr, chatty.trace.events.to_pylist()))
    assert rows <= more
    assert rows != more


@pytest.mark.parametrize(
    "arguments", [{"jobs": 0}, {"seed": -1}, {"preset": "loud"}, {"chatter": 1}]
)
def test_senseless_arguments_are_refused(arguments):
    with pytest.raises(UsageError):
        make(**arguments)


# calibration


def test_sizes_and_stories_are_calibrated():
    plans = [plan(seed, number, Knobs()) for seed in range(1, 9) for number in range(98)]
    nodes = [each.nodes for each in plans]
    assert np.median(nodes) == pytest.approx(24, abs=1)
    assert np.mean(nodes) == pytest.approx(76, abs=8)
    assert min(nodes) >= 16
    stories = Counter(each.story for each in plans)
    faulty = len(plans) - stories["healthy"] - stories["software"]
    assert 0.05 <= stories["double"] / faulty <= 0.10
    assert stories["silent"] / faulty == pytest.approx(0.05, abs=0.01)
    assert stories["late"] / faulty == pytest.approx(0.10, abs=0.01)
    assert stories["healthy"] / len(plans) == pytest.approx(0.12, abs=0.01)
    generations = Counter(each.gpu_generation for each in plans)
    assert generations["Hopper"] / len(plans) == pytest.approx(0.6, abs=0.04)


def test_the_rows_are_calibrated(dataset):
    rows = np.diff(dataset.trace.bounds)
    assert 277_000 <= rows.sum() <= 431_000
    assert 1_000 <= np.median(rows) <= 2_600
    assert rows.max() <= 60_000


def test_each_job_is_dated_by_its_own_clock(dataset):
    years = {job.start_time[:4] for job in dataset.trace}
    assert years == {"1969", "1970"}
    assert any(job.start_ns < 0 < job.end_ns for job in dataset.trace)
    for job in dataset.trace:
        for node, at in dataset.truth[job.id]["onset"].items():
            assert 0 <= at * SECOND < job.duration_ns
            written = np.datetime64(dataset.truth[job.id]["onset_time"][node], "ns").astype(int)
            assert written == job.start_ns + at * SECOND


# hard cases


def test_every_hard_case_occurs(dataset):
    trace, truth = dataset.trace, dataset.truth
    seen = Counter(truth[job.id]["story"] for job in trace)
    nodes = Counter(node for job in trace for node in job.ip_status)
    guilty = Counter(node for job in trace for node in truth[job.id]["onset"])
    seen["shared"] = sum(count > 1 for count in nodes.values())
    seen["offender"] = sum(count > 1 for count in guilty.values())
    columns = [trace.events[name].to_pylist() for name in ("at", "ip", "event")]
    for job, (low, high) in zip(trace, pairwise(trace.bounds), strict=True):
        at, ips, kinds = (column[low:high] for column in columns)
        speakers = set(ips)
        seen["wave at start"] += (truth[job.id]["false_wave"] or 61) <= 60
        seen["unordered"] += any(a > b for a, b in pairwise(at))
        seen["tie of nodes"] += len(set(zip(at, ips, strict=True))) > len(set(at))
        seen["duplicate"] += len(set(zip(at, ips, kinds, strict=True))) < len(at)
        seen["outside"] += min(at) < 0 and max(at) > job.duration_ns
        seen["unlabelled"] += not speakers <= job.ip_status.keys()
        seen["mute"] += any(
            node not in speakers and label == "normal" for node, label in job.ip_status.items()
        )
        if truth[job.id]["story"] == "silent":
            assert not speakers & truth[job.id]["onset"].keys()
    cases = {"healthy", "software", "plain", "double", "silent", "late"}
    cases |= {"shared", "offender", "wave at start", "unordered", "tie of nodes"}
    cases |= {"duplicate", "outside", "unlabelled", "mute"}
    assert {case for case in cases if not seen[case]} == set()


def test_labels_are_the_truth(dataset):
    labels = Counter()
    for job in dataset.trace:
        guilty = {node for node, label in job.ip_status.items() if label != "normal"}
        assert guilty == dataset.truth[job.id]["onset"].keys()
        labels.update(job.ip_status.values())
    assert {"gpu_fault", "network_fault", "host_fault", "hang"} < labels.keys()


def test_tokens_look_like_the_published_ones(dataset):
    for job in dataset.trace.jobs[:20]:
        for node in job.ip_status:
            groups = node.split(":")
            assert len(groups) == 8
            assert all(group == f"{int(group, 16):x}" for group in groups)
            assert all(len(group) <= 4 for group in groups)


def test_late_culprits_are_late(dataset):
    for job in dataset.trace:
        truth = dataset.truth[job.id]
        if truth["story"] != "late":
            continue
        (culprit,) = truth["onset"]
        assert truth["cascade"] > truth["onset"][culprit]


def test_components_of_shared_tokens_stay_small(dataset):
    """Folds leave whole components out, so that there must be many."""
    family = {}
    for number, job in enumerate(dataset.trace):
        for node in job.ip_status:
            family.setdefault(node, set()).add(number // 8)
    assert all(len(blocks) == 1 for blocks in family.values())


# difficulty


def test_it_is_hard_for_the_simple_and_possible_for_the_informed(dataset):
    tally = measure(dataset)
    hit = {name: hits / tally.faulty for name, hits in tally.hits.items()}
    assert 0.1 <= hit["loudest"] <= 0.5
    assert 0.1 <= hit["first-alert"] <= 0.5
    assert hit["most-kinds"] <= 0.6
    assert max(tally.right[kind] / tally.told[kind] for kind in tally.told) <= 0.7
    assert hit["informed"] >= 0.8
    positives = tally.tp + tally.fn
    assert 2 * tally.tp / (2 * tally.tp + tally.fp + tally.fn) >= 0.85
    assert tally.fast / positives >= 0.6
    assert tally.alarmed / tally.sound <= 0.1
    assert tally.bound / positives >= 0.9
