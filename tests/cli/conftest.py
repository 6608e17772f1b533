"""Calls the command line as a user does, in this process."""

from __future__ import annotations

import pytest

from replay import traces
from replay.cli.verbs import run_verb
from replay.testing import TINY_TRACES


@pytest.fixture
def call(capsys, monkeypatch, tmp_path):
    """``call(*words)`` → (exit code, standard output, standard error), in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))

    def call(*words):
        code = run_verb([str(word) for word in words])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


@pytest.fixture
def culprit(tmp_path):
    """A trace of one small job with one faulty node, as a file."""
    tiny = next(tiny for tiny in TINY_TRACES if tiny.name == "culprit")
    return traces.write(tiny.trace(), tmp_path / "culprit.jsonl", "jsonl")
