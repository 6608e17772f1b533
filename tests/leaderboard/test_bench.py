"""The bench: same bytes over any executor, no label and no real name in a task, dead workers."""

from __future__ import annotations

import functools
import json
import os
import pickle
import signal
import subprocess
import sys
from concurrent.futures import BrokenExecutor, Executor, Future
from dataclasses import replace

import pytest
import stuck

from replay import traces
from replay.api import Verdict
from replay.bench import TOKEN_MEMORY, Serial, bench, dask, processes
from replay.bench.pool import scatter
from replay.bench.task import Asked, Masks, tasks, watch
from replay.config import load
from replay.errors import PluginError, ReplayError, TransportError, UsageError
from replay.messages import TimedVerdict
from replay.plugins import parse_detectors
from replay.scoring import Policy, read_log
from replay.traces.anonymize import Pseudonyms

DETECTORS = ["burst:threshold=1", "first-alert", "accuse-all", "random"]
POLICY = Policy(resamples=20)
TWO = functools.partial(processes, 2)


class Backwards(Executor):
    """Does nothing until everything has been handed over, and then the last task first."""

    def __init__(self, count):
        self.count = count
        self.waiting = []

    def submit(self, fn, /, *args, **kwargs):
        self.waiting.append((Future(), functools.partial(fn, *args, **kwargs)))
        if len(self.waiting) == self.count:
            for future, call in reversed(self.waiting):
                future.set_result(call())
        return self.waiting[-1][0]


class Breaking(Serial):
    """Breaks after some tasks, as a pool does whose worker is killed."""

    def __init__(self, good, *, at_submit=False):
        self.good = good
        self.at_submit = at_submit

    def submit(self, fn, /, *args, **kwargs):
        self.good -= 1
        if self.good >= 0:
            return super().submit(fn, *args, **kwargs)
        if self.at_submit:
            raise BrokenExecutor("gone")
        future = Future()
        future.set_exception(BrokenExecutor("gone"))
        return future


def files(found, folder):
    """What a kept bench consists of, the one file about its cost left out."""
    found.write(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "run.json"}


@pytest.fixture
def plain(trace, tmp_path):
    return files(bench(trace, DETECTORS, policy=POLICY), tmp_path / "plain")


# --- the same bytes ---------------------------------------------------------------------------


def test_files_of_a_bench(plain):
    assert set(plain) == {"config.toml", "score.json", "verdicts.jsonl", "verdicts.parquet"}
    score = json.loads(plain["score.json"])
    assert list(score["detectors"]) == ["burst", *DETECTORS[1:], TOKEN_MEMORY]


@pytest.mark.parametrize(
    "pool",
    [
        TWO,
        functools.partial(Backwards, 4),
    ],
    ids=["two processes", "last job first"],
)
def test_same_bytes_over_any_executor(trace, tmp_path, plain, pool):
    found = bench(trace, DETECTORS, policy=POLICY, pool=pool)
    assert files(found, tmp_path / "other") == plain


@pytest.mark.parametrize("at_submit", [False, True])
def test_a_pool_that_breaks_is_made_anew(trace, tmp_path, plain, at_submit):
    pools = [Breaking(1, at_submit=at_submit), Breaking(0, at_submit=at_submit), Serial()]
    found = bench(trace, DETECTORS, policy=POLICY, pool=lambda: pools.pop(0))
    assert not pools
    assert files(found, tmp_path / "other") == plain


def test_a_pool_that_breaks_again_and_again_is_an_error(trace):
    made = []

    def pool():
        made.append(Breaking(0))
        return made[-1]

    with pytest.raises(ReplayError, match=r"Workers died 3 times over Job1\."):
        bench(trace, ["silent"], policy=POLICY, pool=pool)
    assert len(made) == 4  # all at once, then the first job alone


def test_a_killed_worker_costs_time_and_not_results(trace, tmp_path, plugin):
    """The first worker to see Job3 is killed in the middle of it."""
    text = plugin(f"""
def observe(self, alert):
    marker = pathlib.Path({str(tmp_path / "killed")!r})
    if alert.job == "Job3" and not marker.exists() and os.getpid() != {os.getpid()}:
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return [Verdict(alert.node)]
""")
    whole = bench(trace, [text, "first-alert"], policy=POLICY)
    killed = bench(trace, [text, "first-alert"], policy=POLICY, pool=TWO)
    assert (tmp_path / "killed").exists()
    assert list(killed.log.rows()) == list(whole.log.rows())
    assert killed.score.json() == whole.score.json()


@pytest.mark.once
def test_a_detector_that_always_kills_its_worker_is_an_error(trace, plugin):
    text = plugin("""
def observe(self, alert):
    if alert.job == "Job3":
        os._exit(1)
    return ()
""")
    with pytest.raises(ReplayError, match=r"Workers died 3 times over Job3\."):
        bench(trace, [text], policy=POLICY, pool=TWO)


def test_an_error_of_a_task_comes_through(trace):
    todo = list(tasks(trace, (), Masks(None)))
    todo[1] = replace(todo[1], detectors=(Asked("ghost", "no-such-detector"),))
    with pytest.raises(PluginError, match="no-such-detector"):
        scatter(watch, todo, TWO)


def test_progress_is_told_once_a_job(trace):
    seen = []
    bench(trace, ["silent"], policy=POLICY, done=lambda task: seen.append(task.trace.jobs[0].id))
    assert sorted(seen) == sorted(trace.job_ids)


# --- what a detector can know -----------------------------------------------------------------


def test_tasks_carry_neither_labels_nor_other_jobs(trace):
    specs = parse_detectors(["first-alert"])
    for masked in (Masks(None), Masks(Pseudonyms(b"0123456789abcdef", per_job=True))):
        for task in tasks(trace, specs, masked):
            sent = pickle.dumps(task)
            assert b"broken" not in sent
            (job,) = task.trace.jobs
            assert set(job.ip_status.values()) <= {"normal"}
            assert list(job.ip_status) == sorted(job.ip_status)
            others = {other.encode() for other in trace.job_ids if other not in {job.id, "Job1"}}
            assert not any(other in sent for other in others)
            assert len(sent) < 5000


def test_detectors_see_other_names_in_every_job(trace, plugin, tmp_path):
    text = plugin(f"""
def finish(self):
    with open({str(tmp_path / "seen")!r}, "a") as file:
        file.write(self.job.id + " " + " ".join(self.job.nodes) + chr(10))
    return ()
def observe(self, alert):
    return [Verdict(alert.node, reason=f"saw {{alert.node}}.")]
""")
    found = bench(trace, [text], policy=POLICY)
    seen = [line.split() for line in (tmp_path / "seen").read_text().splitlines()]
    names = [name for _, *nodes in seen for name in nodes]
    assert len(names) == len(set(names)) == 11  # a, b, c, d and e recur; no name does
    assert not set(names) & {"a", "b", "c", "d", "e"}
    own = [row for row in found.log.rows() if row["detector"] == "Own"]
    assert [row["ip"] for row in own] == ["b", "b", "a", "a", "z", "d", "e", "d"]
    assert {row["reason"] for row in own} == {f"saw {node}." for node in "abdez"}


def test_keep_ip_shows_the_real_names(trace, plugin, tmp_path):
    text = plugin(f"""
def observe(self, alert):
    with open({str(tmp_path / "seen")!r}, "a") as file:
        file.write(alert.node)
    return ()
""")
    bench(trace, [text], policy=POLICY, keep_ip=True)
    assert (tmp_path / "seen").read_text() == "bbadedaz"  # the jobs with most alerts first


def test_a_name_that_a_detector_makes_up_stays(trace):
    masks = Masks(Pseudonyms(b"0123456789abcdef", per_job=True))
    names = masks.mask("Job1", ["a"])

    def said(node, reason=""):
        verdict = Verdict(node, reason=reason)
        return masks.unmask(TimedVerdict("r", 0, "x", "Job1", 0, 1.0, verdict)).verdict

    assert said("made-up").node == "made-up"
    assert said(None).node is None
    assert said(names["a"]).node == "a"
    assert said(None, f"({names['a']}) and 1:2:3:4:5:6:7:8").reason == "(a) and 1:2:3:4:5:6:7:8"


# --- references and crashes -------------------------------------------------------------------


def test_token_memory_raises_what_was_faulty_elsewhere(trace):
    found = bench(trace, ["silent"], policy=POLICY)
    rows = [row for row in found.log.rows() if row["detector"] == TOKEN_MEMORY]
    # b was broken in Job1 and Job10, d in Job3
    assert [(row["job_id"], row["ip"], row["reason"]) for row in rows] == [
        ("Job1", "b", "faulty in Job10"),
        ("Job2", "b", "faulty in Job1"),
        ("Job2", "d", "faulty in Job3"),
        ("Job10", "b", "faulty in Job1"),
        ("Job10", "d", "faulty in Job3"),
    ]
    assert {row["event_time"] for row in rows} == {"1969-12-31 23:59:30"}
    metrics = found.score[TOKEN_MEMORY].metrics
    assert (metrics["tp"], metrics["fp"], metrics["fn"]) == (2, 3, 1)
    assert found.score[TOKEN_MEMORY].baseline


def test_a_crash_stops_one_detector_on_one_job(trace, plugin):
    text = plugin("""
def observe(self, alert):
    if alert.job == "Job3":
        raise ValueError("no idea")
    return [Verdict(alert.node)]
""")
    found = bench(trace, [text, "first-alert"], policy=POLICY, pool=TWO)
    (failure,) = found.failures
    assert (failure.detector, failure.job) == ("Own", "Job3")
    assert found.score["Own"].metrics["tp"] == 1
    assert found.score["first-alert"].metrics["tp"] == 2


def test_costs_are_summed_over_jobs(trace):
    found = bench(trace, ["first-alert"], policy=POLICY)
    assert found.costs["first-alert"].alerts == 8


def test_watching_one_task_needs_nothing_else(trace):
    task = next(tasks(trace, parse_detectors(["first-alert"]), Masks(None)))
    found = watch(task)
    assert [said.verdict.node for said in found.verdicts] == ["b"]
    assert found.alerts == 3


# --- a Dask cluster ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster():
    """A scheduler and two workers, processes of their own, on loopback."""
    import distributed  # noqa: PLC0415 - slow, and only here

    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",  # its HTTP server wants a port either way
    ) as running:
        yield running


def test_same_bytes_over_a_dask_cluster(trace, tmp_path, plain, cluster):
    pool = functools.partial(dask, cluster.scheduler_address, 60.0)
    found = bench(trace, DETECTORS, policy=POLICY, pool=pool)
    assert files(found, tmp_path / "dask") == plain


def test_a_killed_dask_worker_costs_time_and_not_results(trace, tmp_path, plugin, cluster):
    text = plugin(f"""
def observe(self, alert):
    marker = pathlib.Path({str(tmp_path / "killed")!r})
    if alert.job == "Job3" and not marker.exists() and os.getpid() != {os.getpid()}:
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return [Verdict(alert.node)]
""")
    whole = bench(trace, [text], policy=POLICY)
    pool = functools.partial(dask, cluster.scheduler_address, 60.0)
    killed = bench(trace, [text], policy=POLICY, pool=pool)
    assert (tmp_path / "killed").exists()
    assert killed.score.json() == whole.score.json()


def test_a_scheduler_that_is_not_there():
    with pytest.raises(TransportError, match="did not answer"), dask("tcp://127.0.0.1:1", 0.5):
        pass


def test_an_address_that_is_none():
    with pytest.raises(UsageError, match="no address"), dask("nonsense://here", 0.5):
        pass


# --- the verb ---------------------------------------------------------------------------------


@pytest.fixture
def stored(trace, tmp_path):
    return traces.write(trace, tmp_path / "trace.jsonl")


def test_verb_prints_a_leaderboard_and_keeps_it(stored, tmp_path, call):
    code, out, err = call(
        "bench", stored, "--workers", 1, "-d", "burst:threshold=1", "--out", tmp_path / "kept"
    )
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0].startswith("4 jobs, 3 positive of 11 labelled nodes")
    for name in ("burst", "silent", "accuse-all", "loudest", TOKEN_MEMORY):
        assert any(line.startswith(name) for line in lines), name
    assert (tmp_path / "kept" / "score.json").exists()
    assert len(read_log(tmp_path / "kept" / "verdicts.parquet")) > 10
    config = load({"path": str(stored)}, {}, tmp_path, tmp_path / "kept" / "config.toml")[0]
    assert config.detector[0] == "burst:threshold=1"


def test_verb_runs_all_that_are_installed_unless_told_otherwise(stored, call):
    code, out, err = call("bench", stored, "--workers", 1, "--detectors", "all", "--json")
    assert code == 0, err
    names = list(json.loads(out)["detectors"])
    assert {"burst", "silent", "loudest", TOKEN_MEMORY} <= set(names)
    assert names[-1] == TOKEN_MEMORY


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("--fail-if", "f1 <"), 2, "'f1 <' is not a gate."),
        (("--fail-if", "f11 < 1"), 2, "There is no metric 'f11'."),
        (("--fail-if", "brust: f1 < 1"), 2, "names the detector 'brust'"),
        (("--max-drop", "f1=0"), 2, "needs something to drop from"),
        (("--baseline", "nowhere", "--max-drop", "f1=0"), 3, "nowhere: there is no such file."),
        (("--metrics", "f11"), 2, "There is no metric 'f11'."),
        (("--junit", "nowhere/junit.xml"), 2, "there is no folder nowhere."),
        (("--markdown", "."), 2, ". cannot be written: it is a folder."),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(
    stored, call, monkeypatch, words, code, told
):
    def never(*_, **__):
        raise AssertionError("it ran")

    monkeypatch.setattr("replay.bench.bench", never)
    found, out, err = call("bench", stored, "-d", "burst", *words)
    assert (found, out) == (code, "")
    assert told in err


def test_verb_with_gates_and_json(stored, call):
    gate = ("--fail-if", "first-alert: f1 < 0.99")
    code, out, err = call(
        "bench", stored, "--workers", 1, "-d", "first-alert", "--no-baselines", "--json", *gate
    )
    assert code == 4
    document = json.loads(out)
    assert list(document["detectors"]) == ["first-alert", TOKEN_MEMORY]
    assert document["gates"][0]["passed"] is False
    assert "1 of 1 gates failed" in err


def test_verb_on_some_jobs_is_not_comparable(stored, call):
    code, out, _ = call("bench", stored, "--workers", 1, "-d", "silent", "--jobs", "Job1,Job3")
    assert code == 0
    assert out.splitlines()[0].rstrip().endswith("(filtered: not comparable)")


def test_verb_says_which_detector_crashed(stored, plugin, call):
    text = plugin("""
def observe(self, alert):
    raise ValueError("no idea")
""")
    code, _, err = call("bench", stored, "--workers", 1, "-d", text, "--no-baselines")
    assert code == 6
    assert "detector Own on job Job1" in err


def test_verb_without_a_scheduler(stored, call, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    code, _, err = call("bench", stored, "-d", "silent", "--scheduler", "tcp://127.0.0.1:1")
    assert code == 2
    assert "pip install 'alert-replay[dask]'" in err


def test_verb_over_processes(stored, tmp_path):
    """The command itself, in a process of its own, with workers of its own."""
    command = [
        sys.executable,
        "-m",
        "replay",
        "bench",
        stored,
        "--workers",
        "2",
        "-d",
        "first-alert",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "first-alert" in done.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_signal_ends_the_workers_too(trace, stored, workers, number):
    words = ["bench", stored, "-d", f"{stuck.__file__}:Stuck", "--no-baselines"]
    words += ["--jobs", trace.job_ids[0]]  # then no worker is still being started
    with subprocess.Popen(
        [sys.executable, "-m", "replay", *words, "--workers", workers], stderr=subprocess.PIPE
    ) as process:
        assert b"stuck\n" in iter(process.stderr.readline, b"")
        process.send_signal(number)
        told = process.stderr.read()  # ends when the last worker has closed it
    assert process.returncode == 128 + number
    assert b"Traceback" not in told
