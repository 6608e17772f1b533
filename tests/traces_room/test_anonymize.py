"""Pseudonyms, shifts and renamed jobs: the shape stays, the names and the dates go."""

from __future__ import annotations

import json
import re

import pytest

from replay.cli.verbs import run_verb
from replay.errors import TraceError, UsageError
from replay.traces import open as open_trace
from replay.traces.anonymize import (
    LONGEST_SHIFT,
    Pseudonyms,
    anonymize,
    linkable,
    read_key,
    read_names,
)
from replay.traces.times import SECOND

KEY = bytes(range(32))
TOKEN = re.compile(r"([0-9a-f]|[1-9a-f][0-9a-f]{1,3})(:([0-9a-f]|[1-9a-f][0-9a-f]{1,3})){7}")
EVENTS = [
    {"ip": "gpu-7.example", "event_time": "2024-05-01T10:00:05.250", "event": "nic_down"},
    {"ip": "gpu-8.example", "event_time": "2024-05-01 10:00:04", "event": "gpu_lost"},
    {"ip": "other.example", "event_time": "2024-05-01 09:59:59", "event": "nic_down"},
]
JOB = {
    "start_time": "2024-05-01 10:00:00",
    "end_time": "2024-05-01 11:00:00",
    "gpu_generation": "Hopper",
    "ip_status": {"gpu-8.example": "normal", "gpu-7.example": "faulty"},
    "events": EVENTS,
}


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "own.jsonl"
    jobs = [{"job_id": f"alice-{i}", "owner": "alice", **JOB} for i in range(1, 13)]
    path.write_text("".join(json.dumps(job) + "\n" for job in jobs))
    return path


@pytest.fixture
def trace(source):
    return open_trace(source)


def columns(trace, *names):
    return [trace.events.column(name).to_pylist() for name in names]


def test_nothing_of_the_old_names_and_dates_is_left(trace):
    result = anonymize(trace, Pseudonyms(KEY))
    told = (
        repr(result.jobs) + repr([job.ip_status for job in result]) + str(result.events.to_pydict())
    )
    assert "example" not in told
    assert "alice" not in told
    assert "2024-05-01" not in told
    assert result.job_ids == tuple(f"Job{i}" for i in range(1, 13))
    for job in result:
        assert all(TOKEN.fullmatch(node) for node in job.ip_status)
        assert list(job.ip_status) == sorted(job.ip_status)
        assert sorted(job.ip_status.values()) == ["faulty", "normal"]


def test_all_intervals_are_kept(trace):
    result = anonymize(trace, Pseudonyms(KEY))
    assert columns(result, "at", "event") == columns(trace, "at", "event")
    shifts = set()
    for job in result:
        assert job.duration_ns == 3600 * SECOND
        shift = job.start_ns - trace.jobs[0].start_ns
        assert 0 < shift <= LONGEST_SHIFT * SECOND
        assert shift % SECOND == 0
        shifts.add(shift)
    assert len(shifts) == len(result)
    times = columns(result, "event_time")[0]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.250", time) for time in times[::3])


def test_the_result_reads_back(trace, tmp_path):
    from replay.traces import write  # noqa: PLC0415 - beside its only use

    result = anonymize(trace, Pseudonyms(KEY))
    for form in ("folders", "jsonl", "parquet"):
        assert open_trace(write(result, tmp_path / form, form)) == result


def test_one_token_one_pseudonym_unless_per_job(trace):
    nodes = {tuple(job.ip_status) for job in anonymize(trace, Pseudonyms(KEY))}
    assert len(nodes) == 1
    ips = columns(anonymize(trace, Pseudonyms(KEY)), "ip")[0]
    assert ips == ips[:3] * 12
    apart = anonymize(trace, Pseudonyms(KEY, per_job=True))
    assert len({node for job in apart for node in job.ip_status}) == 24
    for job, i in zip(apart, range(0, 36, 3), strict=True):
        faulty = next(node for node, label in job.ip_status.items() if label == "faulty")
        assert columns(apart, "ip")[0][i] == faulty


def test_the_key_and_the_seed_decide_everything(trace):
    first = anonymize(trace, Pseudonyms(KEY))
    assert anonymize(trace, Pseudonyms(KEY)) == first
    other_seed = anonymize(trace, Pseudonyms(KEY, seed=1))
    assert columns(other_seed, "ip") == columns(first, "ip")
    assert [job.start_ns for job in other_seed] != [job.start_ns for job in first]
    other_key = anonymize(trace, Pseudonyms(KEY[::-1]))
    assert not {*columns(other_key, "ip")[0]} & {*columns(first, "ip")[0]}


def test_numbers_of_jobs_do_not_tell_their_old_order(trace):
    old = {job.start_ns + Pseudonyms(KEY).shift(job.id) * SECOND: job.id for job in trace}
    order = [old[job.start_ns] for job in anonymize(trace, Pseudonyms(KEY))]
    assert sorted(order) == sorted(trace.job_ids)
    assert order != list(trace.job_ids)


def test_what_may_be_kept_or_mapped(trace):
    names = {"nic_down": "a", "gpu_lost": "b"}
    result = anonymize(trace, Pseudonyms(KEY), event_names=names, keep_job_ids=True)
    assert result.job_ids == trace.job_ids
    assert columns(result, "event")[0][:3] == ["a", "b", "a"]
    with pytest.raises(UsageError) as caught:
        anonymize(trace, Pseudonyms(KEY), event_names={"gpu_lost": "b"})
    assert str(caught.value) == (
        "No name is given for the events nic_down.  "
        "Try: add them to the map, or leave the map out to keep all names"
    )


def test_what_remains_linkable_is_said(trace):
    left = linkable(anonymize(trace, Pseudonyms(KEY)), mapped=False, renamed=True)
    assert left.lines() == [
        "2 nodes keep one pseudonym in several jobs (--per-job: none)",
        "all intervals within a job are kept, so a job can be known by its rhythm",
        "job ids are renamed",
        "event names are kept: gpu_lost, nic_down",
        "labels are kept: faulty, normal",
        "GPU generations are kept: Hopper",
        "whoever has the key can find out which pseudonym a node got",
    ]
    apart = anonymize(trace, Pseudonyms(KEY, per_job=True))
    assert linkable(apart, mapped=True, renamed=False).recurring_nodes == 0


def test_a_time_too_late_to_be_moved(source):
    late = source.read_text().replace("2024-", "2261-")
    source.write_text(late)
    with pytest.raises(TraceError) as caught:
        anonymize(open_trace(source), Pseudonyms(KEY))
    assert "that leaves the years 1678 to 2261 when shifted: '2261-05-01" in str(caught.value)


def test_keys(tmp_path):
    path = tmp_path / "key"
    path.write_bytes(b"short\n")
    with pytest.raises(UsageError) as caught:
        read_key(path)
    assert str(caught.value) == (
        f"The key in {path} has 6 bytes; fewer than 16 can be guessed.  "
        f"Try: openssl rand -out {path} 32"
    )
    with pytest.raises(TraceError, match="there is no such file"):
        read_key(tmp_path / "none")
    path.write_bytes(KEY)
    assert read_key(path) == KEY


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "{} holds no object of names, each once."),
        ('{"a": "b", "a": "c"}', "{} holds no object of names, each once."),
        ('{"a": 1}', "{}: what 'a' becomes is no text.  Try: write a name in quotes"),
        ('{"a": ""}', "{}: what 'a' becomes is no text.  Try: write a name in quotes"),
        ("", "{}: the text ends before its JSON does.  Try: fetch the file again"),
    ],
)
def test_maps_of_names(tmp_path, text, message):
    path = tmp_path / "names.json"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_names(path)
    assert str(caught.value) == message.format(path)


def test_the_verb(source, tmp_path, capsys):
    key = tmp_path / "key"
    key.write_bytes(KEY)
    names = tmp_path / "names.json"
    names.write_text('{"nic_down": "network", "gpu_lost": "gpu"}')
    out = tmp_path / "shared"
    words = ["anonymize", source, out, "--key-file", key, "--to", "folders", "--event-names", names]
    assert run_verb([str(word) for word in words]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[:2] == [f"{out}: 12 jobs, 36 events", "What remains linkable:"]
    assert "- event names are mapped: gpu, network" in printed
    assert open_trace(out).form == "folders"
    words = ["anonymize", source, tmp_path / "b.jsonl", "--key-file", key, "--per-job", "--json"]
    assert run_verb([str(word) for word in words]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["linkable"]["recurring_nodes"] == 0
    assert document["linkable"]["event_names"] == ["gpu_lost", "nic_down"]
    assert open_trace(tmp_path / "b.jsonl").form == "jsonl"
    assert run_verb(["anonymize", str(source), str(out), "--key-file", str(key)]) == 2
