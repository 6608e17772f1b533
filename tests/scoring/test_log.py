"""The verdict log: canonical order, round trips, and rows that are refused."""

from __future__ import annotations

import gzip
import json
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from replay.api import Verdict
from replay.errors import TraceError, UsageError
from replay.messages import TimedVerdict
from replay.scoring import ROWS, VerdictLog, read_log, score, verdict_row

GOOD = {"detector": "x", "job_id": "Job1", "ip": "b", "event_time": "1970-01-01 00:00:10"}


def written(tmp_path, *rows):
    path = tmp_path / "verdicts.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def timed(detector, job, number, at, node="b", **given):
    return TimedVerdict("run", 0, detector, job, number, at, Verdict(node), **given)


# --- from a run -------------------------------------------------------------------------------


def test_canonical_order_whatever_order_verdicts_come_in(bench):
    trace = bench.trace(bench.job("Job2"), bench.job("Job10"))
    verdicts = [
        timed("late", "Job10", 0, 1.0),
        timed("b", "Job2", 1, 5.0),
        timed("b", "Job2", 0, 5.0),
        timed("a", "Job2", 0, 5.0),
        timed("a", "Job2", 1, 7.0),
        timed("other", "Job2", 0, 5.0),
        timed("later", "Job2", 0, 5.0),
        timed("other", "Job2", 1, 5.0),
        timed("later", "Job2", 1, 5.0),
    ]
    for order in (verdicts, verdicts[::-1]):
        log = VerdictLog.of(trace, order, ["b", "a"])
        rows = [(row["seq"], row["job_id"], row["detector"]) for row in log.rows()]
        assert rows == [
            (0, "Job2", "b"),
            (1, "Job2", "b"),
            (2, "Job2", "a"),
            (3, "Job2", "later"),
            (4, "Job2", "later"),
            (5, "Job2", "other"),
            (6, "Job2", "other"),
            (7, "Job2", "a"),
            (8, "Job10", "late"),
        ]


@pytest.mark.parametrize(
    ("start", "at", "text"),
    [
        ("1969-12-31 23:59:58", 2.0, "1970-01-01 00:00:00"),
        ("1969-12-31 23:59:58", 1.5, "1969-12-31 23:59:59.5"),
        ("1969-12-31T23:59:58", 0.0, "1969-12-31T23:59:58"),
        ("1969-10-15 13:49:13", -0.25, "1969-10-15 13:49:12.75"),
        ("2024-02-28 23:59:59", 1e-9, "2024-02-28 23:59:59.000000001"),
        ("2024-02-28 00:00:00", 1e9, "2055-11-06 01:46:40"),
    ],
)
def test_event_time_has_the_format_of_the_trace(bench, start, at, text):
    trace = bench.trace(bench.job(start=start))
    log = VerdictLog.of(trace, [timed("x", "Job1", 0, at)])
    assert next(log.rows())["event_time"] == text


def test_verdict_on_an_unknown_job_is_refused(bench):
    with pytest.raises(UsageError, match="'Job9', which the trace lacks"):
        VerdictLog.of(bench.trace(bench.job()), [timed("x", "Job9", 0, 1.0)])


def test_live_fields_stand_in_a_row_only_where_known(bench):
    job, _ = bench.job()
    assert list(verdict_row(timed("x", "Job1", 0, 1.0), job, 7)) == ROWS.names[:9]
    row = verdict_row(timed("x", "Job1", 0, 1.0, trigger_seq=0, emitted_wall=5.0), job, 7)
    assert row["seq"] == 7
    assert row["trigger_seq"] == 0
    assert row["emitted_wall"] == 5.0
    assert "published_wall" not in row


def test_empty_log(bench):
    log = VerdictLog.of(bench.trace(bench.job()), [])
    assert len(log) == 0
    assert list(log.rows()) == []


def test_other_libraries_read_a_log_as_it_is(bench):
    log = VerdictLog.of(bench.trace(bench.job()), [timed("x", "Job1", 0, 1.0)])
    assert pa.table(log).num_rows == 1
    assert len(pickle.loads(pickle.dumps(log))) == 1


# --- round trips ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["v.jsonl", "v.parquet"])
def test_round_trip(bench, tmp_path, name):
    trace = bench.trace(bench.job(start="1969-12-31 23:59:50"))
    verdicts = [
        TimedVerdict("r", 0, "x:w=1", "Job1", 0, 10.0, Verdict("b", "raise", 0.5, 'q"é', (1, 2))),
        TimedVerdict("r", 0, "x:w=1", "Job1", 1, 12.5, Verdict(None, "retract"), 3, 1.0, 2.0, 3.0),
    ]
    log = VerdictLog.of(trace, verdicts)
    log.write(tmp_path / name)
    back = read_log(tmp_path / name)
    assert list(back.rows()) == list(log.rows())
    assert back.time_ns.tolist() == log.time_ns.tolist() == [0, 2_500_000_000]
    back.write(tmp_path / f"again-{name}")
    assert (tmp_path / f"again-{name}").read_bytes() == (tmp_path / name).read_bytes()


def test_empty_logs_round_trip(bench, tmp_path):
    for name in ("v.jsonl", "v.parquet"):
        VerdictLog.of(bench.trace(bench.job()), []).write(tmp_path / name)
        assert len(read_log(tmp_path / name)) == 0


def test_packed_lines(tmp_path):
    path = tmp_path / "v.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps(GOOD).encode()))
    assert len(read_log(path)) == 1


def test_defaults_and_foreign_keys(tmp_path):
    row = next(read_log(written(tmp_path, {**GOOD, "note": "mine"})).rows())
    assert (row["seq"], row["action"], row["score"], row["reason"]) == (0, "raise", 1.0, "")


def test_blank_lines_are_passed_over_and_counted_as_lines(tmp_path):
    path = tmp_path / "v.jsonl"
    path.write_text(f"\n{json.dumps(GOOD)}\n\n{json.dumps({**GOOD, 'score': 'high'})}\n")
    with pytest.raises(TraceError, match=r"v\.jsonl:4: score: not a number"):
        read_log(path)


def test_a_log_that_windows_wrote(tmp_path):
    file = tmp_path / "v.jsonl"
    file.write_bytes(b"\xef\xbb\xbf" + json.dumps(GOOD).encode() + b"\r\n\r\n")
    assert len(read_log(file)) == 1


def test_a_list_raises_every_node_and_null_the_job(tmp_path):
    rows = [{**GOOD, "ip": ["b", "a"]}, {**GOOD, "ip": None}]
    log = read_log(written(tmp_path, *rows))
    assert [(row["seq"], row["ip"]) for row in log.rows()] == [(0, "b"), (0, "a"), (1, None)]


# --- refusals ---------------------------------------------------------------------------------

BAD = {
    "ip: the key is missing": {key: GOOD[key] for key in GOOD if key != "ip"},
    "detector: the key is missing": {key: GOOD[key] for key in GOOD if key != "detector"},
    "job_id: not a text with something in it": {**GOOD, "job_id": 7},
    "detector: not a text with something in it: ''": {**GOOD, "detector": ""},
    "ip: not a node: '7'": {**GOOD, "ip": 7},
    "ip: not a node: '[]'": {**GOOD, "ip": []},
    "ip: not a node: \"['b', None]\"": {**GOOD, "ip": ["b", None]},
    "ip: the list names a node twice": {**GOOD, "ip": ["b", "b"]},
    "ip: half of a surrogate pair": {**GOOD, "ip": "\ud800"},
    "event_time: not a time": {**GOOD, "event_time": "soon"},
    "event_time: ": {**GOOD, "event_time": "1970-02-30 00:00:00"},
    "event_time: a": {**GOOD, "event_time": "1970-01-01 00:00:00Z"},
    "action: unknown action: 'accuse'": {**GOOD, "action": "accuse"},
    "score: not a number": {**GOOD, "score": True},
    "score: not a finite number": {**GOOD, "score": 10**400},
    "reason: not a text": {**GOOD, "reason": 5},
    "evidence: not a list of whole numbers": {**GOOD, "evidence": [1.5]},
    "seq: not a whole number": {**GOOD, "seq": 1.5},
    "trigger_seq: not a whole number": {**GOOD, "trigger_seq": "3"},
    "emitted_wall: not a number": {**GOOD, "emitted_wall": "now"},
}


@pytest.mark.parametrize(("message", "row"), BAD.items(), ids=BAD)
def test_a_bad_row_is_refused_with_its_place(tmp_path, message, row):
    path = written(tmp_path, {**GOOD, "seq": 0} if "seq" in row else GOOD, row)
    with pytest.raises(TraceError) as caught:
        read_log(path)
    assert str(caught.value).startswith(f"{path}:2: {message}")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_scores_that_are_not_finite_are_refused(tmp_path, number):
    path = tmp_path / "v.jsonl"
    path.write_text(f'{json.dumps(GOOD)}\n{json.dumps(GOOD)[:-1]}, "score": {number}}}\n')
    with pytest.raises(TraceError, match=r"v\.jsonl:2: "):
        read_log(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "not an object"),
        ("{", "the text ends before its JSON does"),
        ('{"ip": "a", "ip": "b"}', "ip: the key is there twice"),
        ("{}{}", "two values where one is expected"),
        ("[" * 100_000, "JSON nested too deeply"),
    ],
)
def test_lines_that_are_no_object(tmp_path, text, message):
    path = tmp_path / "v.jsonl"
    path.write_text(text)
    with pytest.raises(TraceError) as caught:
        read_log(path)
    assert str(caught.value).startswith(f"{path}:1: {message}")


def test_bytes_that_are_no_text(tmp_path):
    path = tmp_path / "v.jsonl"
    path.write_bytes(b'{"ip": "\xff"}')
    with pytest.raises(TraceError, match="not UTF-8"):
        read_log(path)


def test_rows_with_and_without_a_number_do_not_mix(tmp_path):
    with pytest.raises(TraceError, match="some rows have a number and some have none"):
        read_log(written(tmp_path, {**GOOD, "seq": 3}, GOOD))


def test_files_that_are_not_there_or_cut_off(tmp_path):
    with pytest.raises(TraceError, match="no such file"):
        read_log(tmp_path / "nothing.jsonl")
    for name, content in (
        ("cut.jsonl.gz", gzip.compress(json.dumps(GOOD).encode() * 1000)[:-20]),
        ("cut.parquet", b"PAR1 and then nothing"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(TraceError, match="cannot be"):
            read_log(tmp_path / name)


# --- Parquet that others wrote ----------------------------------------------------------------


def parquet(tmp_path, **columns):
    given = {key: [value] for key, value in GOOD.items()} | columns
    path = tmp_path / "v.parquet"
    pq.write_table(pa.table(given), path)
    return path


def test_parquet_with_other_types(tmp_path):
    path = parquet(
        tmp_path,
        event_time=pa.array([10_500_000_000], pa.timestamp("ns")),
        ip=pa.array([["a", "b"]]),
        score=pa.array([3], pa.int8()),
        job_id=pa.array(["Job1"], pa.large_string()),
    )
    rows = list(read_log(path).rows())
    assert [row["ip"] for row in rows] == ["a", "b"]
    assert rows[0]["event_time"] == "1970-01-01 00:00:10.5"
    assert rows[0]["score"] == 3.0


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_parquet_timestamps_keep_their_seconds(tmp_path, unit):
    path = parquet(tmp_path, event_time=pa.array([100], pa.timestamp("s")).cast(pa.timestamp(unit)))
    assert next(read_log(path).rows())["event_time"] == "1970-01-01 00:01:40"


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"score": [float("nan")]}, "v.parquet:1: score: not a finite number"),
        ({"detector": [None]}, "v.parquet:1: detector: not a text"),
        ({"action": ["blame"]}, "v.parquet:1: action: unknown action"),
        ({"event_time": ["noon"]}, "v.parquet:1: event_time: not a time"),
        ({"event_time": pa.array([0], pa.timestamp("s", "UTC"))}, "v.parquet:1: event_time: "),
        ({"ip": [""]}, "v.parquet:1: ip: not a node"),
    ],
)
def test_parquet_refusals(tmp_path, columns, message):
    with pytest.raises(TraceError) as caught:
        read_log(parquet(tmp_path, **columns))
    assert message in str(caught.value)


def test_parquet_without_a_needed_column(tmp_path):
    path = tmp_path / "v.parquet"
    pq.write_table(pa.table({"detector": ["x"]}), path)
    with pytest.raises(TraceError, match="job_id: the column is missing"):
        read_log(path)


# --- against a trace --------------------------------------------------------------------------


def test_a_log_about_an_unknown_job_is_refused(bench):
    trace = bench.trace(bench.job("Job1"))
    with pytest.raises(TraceError, match="job_id: the trace has no such job: 'Job9'"):
        score(trace, bench.log(trace, [bench.say("a", 1, job="Job9")]))


def test_choosing_jobs(bench):
    trace = bench.trace(bench.job("Job1"), bench.job("Job2"))
    log = bench.log(trace, [bench.say("a", 1), bench.say("b", 2, job="Job2")])
    chosen = log.of_jobs(["Job2"])
    assert [row["ip"] for row in chosen.rows()] == ["b"]
    assert chosen.time_ns.tolist() == [2_000_000_000]
    assert np.array_equal(chosen.codes("job_id", {"Job2": 5}), [5])
