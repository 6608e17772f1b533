"""Times are parsed the same way one by one and by the column, and in every time zone."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay.traces.times import (
    SECOND,
    format_ns,
    format_times,
    parse_one,
    parse_times,
    shift_times,
    why_not,
)

MOMENTS = st.datetimes(datetime(1678, 1, 1), datetime(2261, 12, 31))  # noqa: DTZ001 - no zone
NEARLY = st.from_regex(
    r"[0-9]{3,5}-[0-9]{1,2}-[0-9]{1,2}[ Tt_]?[0-9]{0,2}:?[0-9]{0,2}:?[0-9]{0,2}(\.[0-9]{0,10})?[Z ]?",
    fullmatch=True,
)


@given(MOMENTS, st.integers(0, SECOND - 1))
def test_a_time_comes_back(moment, fraction):
    whole = int((moment.replace(microsecond=0) - datetime(1970, 1, 1)) / timedelta(seconds=1))  # noqa: DTZ001 - no zone
    ns = whole * SECOND + fraction
    assert parse_one(format_ns(ns)) == ns


@given(st.lists(st.one_of(MOMENTS.map(str), NEARLY, st.text(max_size=30)), min_size=1))
def test_columns_agree_with_single_times(texts):
    texts = [text.encode("utf-8", "replace").decode() for text in texts]
    ns, bad = parse_times(pa.array(texts))
    for text, value, refused in zip(texts, ns.tolist(), bad.tolist(), strict=True):
        assert (None if refused else value) == parse_one(text)
        if refused:
            what, remedy = why_not(text)
            assert what
            assert remedy


@given(st.lists(NEARLY, min_size=1, max_size=1))
def test_the_fast_road_takes_nothing_that_the_slow_one_refuses(texts):
    ns, bad = parse_times(pa.array(texts))
    assert bad[0] == (parse_one(texts[0]) is None)
    assert bad[0] or ns[0] == parse_one(texts[0])


@given(st.lists(st.integers(-(2**63) + SECOND, 2**63 - SECOND) | st.integers(-9, 9)))
def test_many_times_are_written_as_single_ones(moments):
    some = np.array(moments, np.int64) // 10**6 * 10**6
    for ns in (np.array(moments, np.int64), some, some // SECOND * SECOND):
        assert format_times(ns).to_pylist() == [format_ns(moment) for moment in ns.tolist()]


def test_an_empty_column():
    ns, bad = parse_times(pa.array([], pa.string()))
    assert (len(ns), len(bad)) == (0, 0)


@pytest.mark.parametrize(
    ("text", "seconds", "moved"),
    [
        ("1969-12-31 23:59:59", 1, "1970-01-01 00:00:00"),
        ("1969-12-31T23:59:59.250", 2, "1970-01-01T00:00:01.250"),
        ("1972-02-28 12:00:00.000000001", 86_400, "1972-02-29 12:00:00.000000001"),
    ],
)
def test_a_shift_keeps_how_a_time_is_written(text, seconds, moved):
    assert shift_times([text], seconds) == [moved]


def test_a_shift_out_of_bounds():
    with pytest.raises(OverflowError):
        shift_times(["2261-12-31 00:00:00"], 86_400 * 3650)


SCRIPT = """
import sys
from replay import traces
for name in sys.argv[1:]:
    trace = traces.open(name)
    print(name, [(job.id, job.start_ns, job.end_ns) for job in trace], trace.events.to_pydict())
"""


def test_no_time_zone_and_no_hash_seed_matters(good):
    """1969-10-26 has 25 hours in New York; a trace knows nothing of that."""
    names = ["times", "outside", "texts.jsonl", "odd_job_ids.jsonl", "parquet_odd_table"]
    command = [sys.executable, "-c", SCRIPT, *names]

    def output(zone, seed):
        environment = {**os.environ, "TZ": zone, "PYTHONHASHSEED": seed, "PYTHONUTF8": "1"}
        return subprocess.run(command, env=environment, check=True, capture_output=True).stdout

    assert output("America/New_York", "1") == output("Pacific/Kiritimati", "2")


def test_the_hour_that_new_york_had_twice():
    """Naive times are subtracted as they stand: no fold is repaired."""
    assert parse_one("1969-10-26 03:00:00") - parse_one("1969-10-26 00:00:00") == 3 * 3600 * SECOND
