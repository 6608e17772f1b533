"""A small trace of several jobs that share nodes, and detectors in files."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from replay.traces import EVENTS, Trace, TraceJob
from replay.traces.times import SECOND, format_ns

# job → (label of each node, alerts)
JOBS: dict[str, tuple[dict[str, str], list[tuple[int, str]]]] = {
    "Job1": ({"a": "normal", "b": "broken", "c": "normal"}, [(5, "b"), (9, "b"), (9, "a")]),
    "Job2": ({"a": "normal", "b": "normal", "d": "normal"}, [(3, "a"), (4, "z")]),
    "Job3": ({"c": "normal", "d": "broken", "e": "normal"}, [(7, "d"), (8, "e"), (20, "d")]),
    "Job10": ({"b": "broken", "d": "normal"}, []),
}
START_S = -30


def small_trace() -> Trace:
    """Four jobs of 60 s, begun half a minute before the epoch."""
    start, end = START_S * SECOND, (START_S + 60) * SECOND
    jobs = tuple(
        TraceJob(name, format_ns(start), format_ns(end), "Hopper", status, start, end)
        for name, (status, _) in JOBS.items()
    )
    rows = [
        (number, node, format_ns(start + at * SECOND), "kind", at * SECOND)
        for number, (_, alerts) in enumerate(JOBS.values())
        for at, node in alerts
    ]
    number, node, text, kind, at = (list(column) for column in zip(*rows, strict=True))
    arrays: list[Any] = [
        pa.array(number, pa.int32()),
        pa.array(node, pa.string()).dictionary_encode(),
        pa.array(text, pa.string()),
        pa.array(kind, pa.string()).dictionary_encode(),
        pa.array(at, pa.int64()),
    ]
    return Trace(jobs, pa.Table.from_arrays(arrays, schema=EVENTS), "small")


@pytest.fixture
def trace() -> Trace:
    """Four jobs that share nodes."""
    return small_trace()


@pytest.fixture
def plugin(tmp_path):
    """Writes a detector into a file; gives the text that asks for it."""

    def write(body: str, name: str = "Own") -> str:
        lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
        path = tmp_path / f"{name.lower()}.py"
        path.write_text(
            "import os, signal, pathlib\n"
            "from replay.api import Detector, Verdict\n\n\n"
            f"class {name}(Detector):\n{lines}\n"
        )
        return f"{path}:{name}"

    return write


@pytest.fixture
def call(capsys):
    """Calls the command line in this process; gives exit code, standard output and error."""
    from replay.cli.verbs import run_verb  # noqa: PLC0415 - only some tests need it

    def run(*arguments: object) -> tuple[int, str, str]:
        code = run_verb([str(argument) for argument in arguments])
        return code, *capsys.readouterr()

    return run
