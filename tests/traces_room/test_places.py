"""What may stand where a trace is looked for: pipes, links, loops, strangers. Nothing hangs."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from replay.errors import TraceError, UsageError
from replay.traces import Findings, write
from replay.traces import open as open_trace
from replay.traces.reading import read

NOT_FOUND = (
    "no job found (looked for NAME/meta.json with NAME/event_report.csv, *.jsonl, *.parquet, "
    "here and below).  Try: name the folder or the file that holds the jobs"
)


def refusal(path, **options):
    with pytest.raises(TraceError) as caught:
        open_trace(path, **options)
    return str(caught.value).replace(f"{Path.cwd()}/", "")


@pytest.fixture
def odd_job_ids(good):
    return Path.cwd() / "odd_job_ids.jsonl"


@pytest.fixture
def here(tmp_path, monkeypatch, good):
    """An empty folder to work in, with one good job beside it."""
    job = Path.cwd() / "one_event" / "Job1"
    monkeypatch.chdir(tmp_path)
    Path("jobs").mkdir()
    Path("jobs/Job1").symlink_to(job)
    return tmp_path


def test_a_linked_job_is_a_job(here):
    assert open_trace("jobs").job_ids == ("Job1",)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nowhere", "nowhere: there is no such file or folder."),
        ("nowhere/*.jsonl", "nowhere/*.jsonl: nothing matches."),
        ("", "there is no such file or folder."),
        ("a\0b", r"no name of a file: 'a\x00b'."),
        ("x" * 5000, "there is no such file or folder"),
        ("empty", f"empty: {NOT_FOUND}"),
        ("strangers", f"strangers: {NOT_FOUND}"),
    ],
    ids=lambda value: value[:12].replace("\0", "0"),
)
def test_nothing_is_there(here, path, message):
    Path("empty").mkdir()
    Path("strangers/.git").mkdir(parents=True)
    Path("strangers/README.md").write_text("no data")
    Path("strangers/.git/x.jsonl").write_text("hidden")
    assert message in refusal(path)


def test_a_pipe_is_never_opened(here):
    os.mkfifo("a.jsonl")
    assert refusal("a.jsonl") == (
        "a.jsonl: a named pipe in place of a file.  Try: name a regular file"
    )
    Path("jobs/Job2").mkdir()
    os.mkfifo("jobs/Job2/meta.json")
    os.mkfifo("jobs/Job2/event_report.csv")
    os.mkfifo("jobs/more.parquet")
    assert refusal("jobs/Job2") == (
        "jobs/Job2/meta.json: a named pipe in place of a file.  Try: name a regular file"
    )
    assert refusal("jobs") == (
        "jobs/more.parquet: a named pipe in place of a file.  Try: name a regular file"
    )
    lenient = open_trace("jobs", lenient=True)
    assert lenient.job_ids == ("Job1",)
    assert lenient.findings.errors == 2


def test_pipes_of_no_interest_are_passed_by(here):
    os.mkfifo("jobs/control")
    assert open_trace("jobs").job_ids == ("Job1",)


def test_a_socket_and_a_device(here):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("a.jsonl")
        assert refusal("a.jsonl").startswith("a.jsonl: a socket in place of a file.")
    assert refusal("/dev/null").startswith("/dev/null: a device in place of a file.")


def test_a_link_to_nothing(here):
    Path("a.jsonl").symlink_to("gone.jsonl")
    assert refusal("a.jsonl") == "a.jsonl: a link to what is not there: 'gone.jsonl'."
    Path("jobs/Job2").symlink_to("gone")
    assert refusal("jobs") == "jobs/Job2: a link to what is not there: 'gone'."
    lenient = open_trace("jobs", lenient=True)
    assert (lenient.job_ids, lenient.findings.errors) == (("Job1",), 1)


def test_a_folder_that_contains_itself(here):
    Path("jobs/again").symlink_to(".", target_is_directory=True)
    assert refusal("jobs") == ("jobs/again: a folder that contains itself.  Try: remove the link")
    assert open_trace("jobs", lenient=True).job_ids == ("Job1",)
    Path("self").symlink_to("self")
    assert "self: cannot be read: too many levels of symbolic links" in refusal("self").lower()


def test_folders_without_end(here):
    deep = Path("deep", *["d"] * 40)
    deep.mkdir(parents=True)
    assert "more than 32 folders deep.  Try: name the trace's own folder" in refusal("deep")


def test_too_many_files(here, monkeypatch):
    monkeypatch.setattr("replay.traces.locate._MOST_ENTRIES", 5)
    for i in range(6):
        Path(f"jobs/{i}.txt").write_text("")
    assert refusal("jobs") == "jobs: more than 5 files.  Try: name the trace's own folder"


def test_a_folder_in_place_of_a_file(here):
    Path("bad/Job2/meta.json").mkdir(parents=True)
    Path("bad/Job2/event_report.csv").write_text("ip,event_time,event\n")
    assert refusal("bad") == (
        "bad/Job2/meta.json: a folder in place of a file.  Try: name a regular file"
    )


def test_every_fault_of_a_walk_is_found_at_once(here):
    os.mkfifo("jobs/a.jsonl")
    Path("jobs/b.jsonl").symlink_to("gone")
    findings = Findings(strict=False)
    trace = read("jobs", findings)
    assert trace.job_ids == ("Job1",)
    assert findings.lines() == [
        "jobs/a.jsonl: a named pipe in place of a file.  Try: name a regular file",
        "jobs/b.jsonl: a link to what is not there: 'gone'.",
    ]


def test_odd_ids_write_only_inside_the_target(odd_job_ids, here):
    trace = open_trace(odd_job_ids)
    target = write(trace, here / "deep" / "target", "folders")
    names = sorted(path.name for path in target.iterdir())
    assert len({name.casefold() for name in names}) == len(trace)
    assert all(name.isascii() and len(name) < 120 and name[0] != "." for name in names)
    assert sorted(path.name for path in here.iterdir()) == ["deep", "jobs"]
    assert [path.name for path in (here / "deep").iterdir()] == ["target"]
    assert open_trace(target) == trace


@pytest.mark.parametrize(
    "url",
    ["hf://", "hf://datasets/a/b", "hf://datasets/a@main/x", "hf://models/a/b@main/x"],
)
def test_an_address_must_name_a_revision(url):
    with pytest.raises(UsageError) as caught:
        open_trace(url)
    assert str(caught.value) == (
        f"{url!r} names no data set.  Try: hf://datasets/OWNER/NAME@REVISION/PATH"
    )
