"""The sample that comes along is what its README says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from replay.cli.synth import synth
from replay.traces import open as open_trace
from replay.traces import write

DATA = Path(__file__).parents[2] / "data"


@pytest.fixture(scope="module")
def sample():
    return open_trace(DATA / "sample")


def test_its_command_makes_it_again(tmp_path):
    command = re.search(
        r"^ +alert-replay synth (.+)$", (DATA / "README.md").read_text(), re.MULTILINE
    )
    *words, _ = shlex.split(command[1])
    done = CliRunner().invoke(synth, [*words, str(tmp_path / "sample")], catch_exceptions=False)
    assert done.exit_code == 0
    again = {path.relative_to(tmp_path): path for path in tmp_path.rglob("*") if path.is_file()}
    here = {path.relative_to(DATA): path for path in (DATA / "sample").rglob("*") if path.is_file()}
    assert again.keys() == here.keys()
    for name, path in here.items():
        if name.name != "README.md":  # it names the version
            assert path.read_bytes() == again[name].read_bytes(), name


def test_the_forms_are_equal(sample, tmp_path):
    assert sample.form == "folders"
    for form in ("jsonl", "parquet"):
        assert open_trace(DATA / "sample-forms" / form) == sample
    written = write(sample, tmp_path / "out.jsonl")
    assert written.read_bytes() == (DATA / "sample-forms" / "jsonl" / "trace.jsonl").read_bytes()


def test_it_is_small_and_mixed(sample):
    files = [path for path in DATA.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 2_000_000
    assert len(sample) == 12
    speakers = {job.id: set(sample.job(job.id).events["ip"].to_pylist()) for job in sample}
    guilty = {job.id: {n for n, s in job.ip_status.items() if s != "normal"} for job in sample}
    assert {len(nodes) for nodes in guilty.values()} == {0, 1, 2}
    assert any(nodes and not nodes & speakers[job] for job, nodes in guilty.items())
    assert any(speakers[job.id] - job.ip_status.keys() for job in sample)
    assert any(job.start_ns < 0 < job.end_ns for job in sample)
    sizes = [len(job.ip_status) for job in sample]
    assert min(sizes) < 20
    assert max(sizes) > 60
