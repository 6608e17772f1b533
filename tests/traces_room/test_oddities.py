"""What real data do and we keep: duplicates, ties, strangers, odd names; all of it is told."""

from __future__ import annotations

import pytest

from replay.errors import TraceError, UsageError
from replay.traces import natural_key
from replay.traces import open as open_trace

# name of the fixture → counts, then every warning (the fixture's name left out in front)
GOOD = {
    "blank_line": (
        "1 jobs, 2 events, 2 warnings, 0 errors",
        "/Job1/event_report.csv:3: warning: a blank line, skipped.",
        "/Job1/event_report.csv:5: warning: a blank line, skipped.",
    ),
    "blanks_around": (
        "1 jobs, 2 events, 3 warnings, 0 errors",
        "/Job1/event_report.csv:2: ip: warning: blanks around a text, kept as part of it: ' n1'.",
        "/Job1/event_report.csv:3: event: warning: blanks around a text, kept as part of it: 'gpu_lost '.",
        "/Job1/event_report.csv:2: ip: warning: 1 of the alerts of Job1 come from nodes that ip_status does not list (1); the first: ' n1'.",
    ),
    "bom": (
        "1 jobs, 2 events, 2 warnings, 0 errors",
        "/Job1/meta.json:1: warning: a byte order mark, skipped.",
        "/Job1/event_report.csv:1: warning: a byte order mark, skipped.",
    ),
    "century_away": (
        "1 jobs, 2 events, 1 warnings, 0 errors",
        "/Job1/event_report.csv:3: event_time: warning: 1 of the alerts of Job1 lie outside its span, and are kept; the first: '2069-10-15 13:49:25'.",
    ),
    "columns_reordered": (
        "1 jobs, 2 events, 1 warnings, 0 errors",
        "/Job1/event_report.csv:1: extra: warning: a column that is no part of an event, left out.",
    ),
    "crlf": ("1 jobs, 2 events, 0 warnings, 0 errors",),
    "duplicates_and_ties.jsonl": ("1 jobs, 6 events, 0 warnings, 0 errors",),
    "empty_ip_status.jsonl": (
        "1 jobs, 0 events, 2 warnings, 0 errors",
        ":1: ip_status: warning: Job1 lists no node: nothing to score.",
        ":1: warning: Job1 has no events.",
    ),
    "extra_key": (
        "1 jobs, 2 events, 1 warnings, 0 errors",
        "/Job1/meta.json: owner: warning: a key that is no part of a job, left out.",
    ),
    "label_almost_normal.jsonl": (
        "1 jobs, 2 events, 2 warnings, 0 errors",
        ":1: ip_status.n1: warning: a label that is not quite 'normal', so the node counts as faulty: 'Normal'.  Try: write it as normal",
        ":1: ip_status.n2: warning: a label that is not quite 'normal', so the node counts as faulty: ' normal'.  Try: write it as normal",
    ),
    "labels_as_written.jsonl": ("1 jobs, 2 events, 0 warnings, 0 errors",),
    "no_events": (
        "1 jobs, 0 events, 1 warnings, 0 errors",
        "/Job1/meta.json: warning: Job1 has no events.",
    ),
    "no_fault": (
        "1 jobs, 2 events, 1 warnings, 0 errors",
        "/Job1/meta.json: ip_status: warning: Job1 has no faulty node: nothing to find.",
    ),
    "odd_job_ids.jsonl": ("18 jobs, 36 events, 0 warnings, 0 errors",),
    "one_event": ("1 jobs, 1 events, 0 warnings, 0 errors",),
    "outside": (
        "1 jobs, 4 events, 1 warnings, 0 errors",
        "/Job1/event_report.csv:2: event_time: warning: 2 of the alerts of Job1 lie outside its span, and are kept; the first: '1969-10-15 13:49:12'.",
    ),
    "parquet_odd_table": (
        "1 jobs, 2 events, 1 warnings, 0 errors",
        "/other.parquet: warning: a table of neither jobs nor events, left out: 'a'.",
    ),
    "silent_node": ("1 jobs, 1 events, 0 warnings, 0 errors",),
    "texts.jsonl": (
        "1 jobs, 25 events, 2 warnings, 0 errors",
        ":1: events[22].ip: warning: blanks around a text, kept as part of it: '\\u2028'.",
        ":1: events[22].event: warning: blanks around a text, kept as part of it: '\\u2028'.",
    ),
    "times": (
        "1 jobs, 6 events, 2 warnings, 0 errors",
        "/Job1/event_report.csv:4: event_time: warning: 2 of the alerts of Job1 come after a later one, and are replayed in order of time; the first: '1969-10-15 13:49:24.123456789'.",
        "/Job1/event_report.csv:5: event_time: warning: 3 of the alerts of Job1 lie outside its span, and are kept; the first: '1970-01-01 00:00:00'.",
    ),
    "unlisted_node": (
        "1 jobs, 2 events, 1 warnings, 0 errors",
        "/Job1/event_report.csv:2: ip: warning: 1 of the alerts of Job1 come from nodes that ip_status does not list (1); the first: 'ee23:95e7:f4cb:bed:e641:52f6:5c1:4823'.",
    ),
    "unsorted": (
        "1 jobs, 4 events, 1 warnings, 0 errors",
        "/Job1/event_report.csv:3: event_time: warning: 2 of the alerts of Job1 come after a later one, and are replayed in order of time; the first: '1969-10-15 13:49:24'.",
    ),
    "zero_length": (
        "1 jobs, 1 events, 1 warnings, 0 errors",
        "/Job1/meta.json: end_time: warning: Job1 ends as it starts: '1969-10-15 13:49:13'.",
    ),
}


def test_every_file_is_expected(good):
    assert sorted(path.name for path in good.iterdir()) == sorted(GOOD)


@pytest.mark.parametrize("name", GOOD)
def test_odd_data_are_kept_and_told(good, name):
    trace = open_trace(name)
    summary = trace.findings.summary(len(trace), trace.events.num_rows)
    assert (summary, *(line.removeprefix(name) for line in trace.findings.lines())) == GOOD[name]


def column(trace, name):
    return trace.events.column(name).to_pylist()


def seconds(trace):
    return [at / 1e9 for at in column(trace, "at")]


def test_duplicates_and_ties_are_data(good):
    trace = open_trace("duplicates_and_ties.jsonl")
    assert column(trace, "ip") == ["n1", "n1", "n1", "n2", "n2", "n2"]
    assert seconds(trace) == [11, 11, 11, 11, 12, 12]


def test_rows_keep_the_order_of_the_file(good):
    assert seconds(open_trace("unsorted")) == [12, 11, 7, 13]


@pytest.mark.parametrize(
    ("outside", "kinds", "times", "done"),
    [
        ("keep", ["early", "at_start", "at_end", "late"], [-1, 0, 1362, 1363], "kept"),
        ("clip", ["early", "at_start", "at_end", "late"], [0, 0, 1362, 1362], "moved to its edge"),
        ("drop", ["at_start", "at_end"], [0, 1362], "left out"),
    ],
)
def test_alerts_outside_the_span(good, outside, kinds, times, done):
    trace = open_trace("outside", outside=outside)
    assert column(trace, "event") == kinds
    assert seconds(trace) == times
    (line,) = trace.findings.lines()
    assert line.endswith(f"lie outside its span, and are {done}; the first: '1969-10-15 13:49:12'.")


def test_text_stays_text(good):
    trace = open_trace("texts.jsonl")
    assert column(trace, "ip") == list(trace.jobs[0].ip_status)
    assert column(trace, "event") == column(trace, "ip")
    assert {"0a53", "a53", "NA", "0123", "cafe\u0301", "caf\u00e9", "bare\rreturn"} <= set(
        column(trace, "ip")
    )


def test_times_before_and_at_1970_are_ordinary(good):
    trace = open_trace("times")
    start = trace.jobs[0].start_ns
    assert start == -6_689_447 * 10**9
    assert [at + start for at in column(trace, "at")] == [
        -6_689_436_000_000_000,
        -6_689_435_500_000_000,
        -6_689_435_876_543_211,
        0,
        -1_000_000_000,
        68_169_600_000_000_000,
    ]
    assert column(trace, "event_time")[0] == "1969-10-15T13:49:24"


def test_jobs_come_in_natural_order(good):
    ids = open_trace("odd_job_ids.jsonl").job_ids
    assert [each for each in ids if each.startswith("Job")] == ["Job1", "Job\n1"]
    assert ids == tuple(sorted(ids, key=natural_key))


def test_an_unknown_job_and_an_unknown_form_are_the_callers_mistakes(good):
    with pytest.raises(UsageError, match=r"There is no job 'Job2' in one_event"):
        open_trace("one_event").job("Job2")
    with pytest.raises(UsageError, match=r"There is no form 'csv'"):
        open_trace("one_event", form="csv")


def test_a_form_that_is_not_there(good):
    with pytest.raises(TraceError) as caught:
        open_trace("one_event", form="parquet")
    assert str(caught.value) == (
        "one_event: no job found in the form parquet, but folders (one_event/Job1).  "
        "Try: name the folder or the file that holds the jobs"
    )
