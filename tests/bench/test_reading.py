"""What reading a trace costs, beside rows as objects and times parsed one by one.

Run alone: ``python -m pytest tests/bench/test_reading.py --benchmark-only``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from datetime import datetime
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from replay.timeline import Timeline
from replay.traces import FORMS, write
from replay.traces import open as open_trace

JOBS, NODES, KINDS = 98, 76, 40
ROUNDS = 7
START = -6_689_447  # 1969-10-15 13:49:13
TEXT = pa.string()


def make_tables(folder, rows):
    """A pair of tables of the shape of the published set: nine of ten alerts share their second."""
    draw = np.random.default_rng(7)
    folder.mkdir()
    kinds = pa.array([f"event_kind_{i}" for i in range(KINDS)])
    ids = sorted(f"Job{i}" for i in range(1, JOBS + 1))
    records = []
    schema = pa.schema([(name, TEXT) for name in ("job_id", "ip", "event_time", "event")])
    with pq.ParquetWriter(folder / "events.parquet", schema) as out:
        pieces = []
        for i, job_id in enumerate(ids):
            size = rows // JOBS
            moments = draw.integers(0, 86_400, size // 10)
            words = draw.integers(0, 1 << 16, (NODES, 8))
            nodes = [":".join(f"{word:x}" for word in node) for node in words]
            seconds = np.sort(draw.choice(moments, size)) + START
            columns = [
                pa.array([job_id] * size),
                pa.array(nodes).take(pa.array(draw.integers(0, NODES, size))),
                pa.array(seconds.astype("datetime64[s]")).cast(TEXT),
                kinds.take(pa.array(draw.integers(0, KINDS, size))),
            ]
            pieces.append(pa.table(columns, schema=schema))
            if i % 10 == 9 or i == JOBS - 1:
                out.write_table(pa.concat_tables(pieces))
                pieces = []
            records.append(
                {
                    "job_id": job_id,
                    "start_time": "1969-10-15 13:49:13",
                    "end_time": "1969-10-16 13:49:13",
                    "gpu_generation": "Hopper",
                    "ip_status": json.dumps(dict.fromkeys(nodes, "normal")),
                }
            )
    pq.write_table(pa.Table.from_pylist(records), folder / "jobs.parquet")
    return folder


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    return make_tables(tmp_path_factory.mktemp("bench") / "tables", 344_000)


class Row(NamedTuple):
    """An alert as a detector wants it."""

    at: float
    job: str
    seq: int
    node: str
    kind: str


def parse_rows(folder):
    """Rows as objects and their times parsed, neither related to their job nor sorted."""
    rows = pq.read_table(folder / "events.parquet").to_pylist()
    return [datetime.fromisoformat(row["event_time"]) for row in rows]


def rows_to_tape(folder):
    """The plain way to what a tape is: alerts numbered in their job, in the order of play."""
    jobs = pq.read_table(folder / "jobs.parquet").to_pylist()
    starts = {job["job_id"]: datetime.fromisoformat(job["start_time"]) for job in jobs}
    own = {job["job_id"]: [] for job in jobs}
    for row in pq.read_table(folder / "events.parquet").to_pylist():
        job = row["job_id"]
        since = datetime.fromisoformat(row["event_time"]) - starts[job]
        own[job].append((since.total_seconds(), row["ip"], row["event"]))
    tape = []
    for job, rows in own.items():
        rows.sort(key=itemgetter(0))
        tape += [Row(at, job, seq, node, kind) for seq, (at, node, kind) in enumerate(rows)]
    tape.sort(key=itemgetter(0))
    return tape


def columns_to_tape(folder):
    """Ours, with every check."""
    return Timeline.build(open_trace(folder))


def seconds(call, *words):
    begun = time.perf_counter()
    call(*words)
    return time.perf_counter() - begun


def test_file_to_tape(tables, benchmark, table):
    """In turns, and the best of each: what else the machine does slows them all alike."""
    spent = {call: [] for call in (rows_to_tape, parse_rows, columns_to_tape)}
    for _ in range(ROUNDS):
        for call, times in spent.items():
            times.append(seconds(call, tables))
    tape = benchmark.pedantic(columns_to_tape, (tables,), rounds=ROUNDS)
    rows, parsed, ours = (min(times) for times in spent.values())
    assert len(tape) == len(rows_to_tape(tables))
    for number, what, reference, target in (
        ("T8", "rows of objects, times parsed one by one, in order of play", rows, 15),
        ("T8.1", "the same without numbers and order: only parsed", parsed, None),
    ):
        table(
            number,
            f"file -> tape, {len(tape)} rows ({ours * 1e3:.0f} ms)",
            f"{what} ({reference * 1e3:.0f} ms)",
            f">= {target}x" if target else "",
            f"{reference / ours:.1f}x",
            reference / ours >= target if target else None,
        )


SCRIPT = """
import sys
from pathlib import Path
from replay import traces
from replay.timeline import Timeline
rows = len(Timeline.build(traces.open(sys.argv[1])))
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
print(rows, status["VmHWM"].split()[0])
"""


@pytest.mark.parametrize("scattered", [False, True], ids=["by-job", "jobs-mixed"])
def test_ten_million_rows_fit_in_a_gibibyte(tmp_path, benchmark, table, scattered):
    folder = make_tables(tmp_path / "large", 10_000_000)
    if scattered:
        events = pq.read_table(folder / "events.parquet", read_dictionary=["job_id", "ip", "event"])
        events = events.take(np.random.default_rng(7).permutation(events.num_rows))
        pq.write_table(events, folder / "events.parquet", store_schema=False)
        del events
    command = [sys.executable, "-c", SCRIPT, str(folder)]

    def read():
        return subprocess.run(command, capture_output=True, check=True, text=True).stdout

    rows, peak = (int(word) for word in benchmark.pedantic(read, rounds=1).split())
    assert rows == 10_000_000 // JOBS * JOBS
    how = "jobs mixed" if scattered else "job by job"
    mib = peak / 2**10
    table(
        "T8.2",
        f"file -> tape, 10M rows {how}, peak",
        "",
        "<= 1024 MiB",
        f"{mib:.0f} MiB",
        mib <= 1024,
    )


@pytest.mark.parametrize("form", FORMS)
def test_each_form(tables, benchmark, tmp_path, form):
    path = tables if form == "parquet" else write(open_trace(tables), tmp_path / form, form)
    trace = benchmark.pedantic(open_trace, (path,), rounds=2)
    assert trace.events.num_rows == 344_000 // JOBS * JOBS
