"""Every fault has a file named after it; strict, lenient and validating readers agree on it."""

from __future__ import annotations

import pytest

from replay.errors import TraceError
from replay.traces import Findings
from replay.traces import open as open_trace
from replay.traces.reading import read

# name of the fixture → closing line, then every finding (the fixture's name left out in front)
BAD = {
    "bad_start": (
        "0 jobs, 0 events, 0 warnings, 1 errors",
        "/Job1/meta.json: start_time: an ambiguous date: '15/10/1969 13:49'.  Try: write it as YYYY-MM-DD HH:MM:SS",
    ),
    "bad_utf8": (
        "1 jobs, 2 events, 0 warnings, 1 errors",
        "/Job1/event_report.csv:3: not UTF-8, at byte 2 of the line: '\\\\xff'.  Try: save it as UTF-8",
    ),
    "bad_utf8.jsonl": (
        "1 jobs, 2 events, 0 warnings, 1 errors",
        ":2: not UTF-8, at byte 14 of the line: '\\\\xe9'.  Try: save it as UTF-8",
    ),
    "bare_return": (
        "1 jobs, 2 events, 0 warnings, 1 errors",
        "/Job1/event_report.csv:3: a carriage return inside a field without quotes.  Try: end lines with LF",
    ),
    "broken_meta": (
        "0 jobs, 0 events, 0 warnings, 1 errors",
        "/Job1/meta.json:2: not JSON: expecting value at character 35 ('}\\n').",
    ),
    "duplicate_column": (
        "0 jobs, 0 events, 0 warnings, 1 errors",
        "/Job1/event_report.csv:1: ip: the column is there twice, as columns 1 and 4.  Try: keep one",
    ),
    "duplicate_file": (
        "0 jobs, 0 events, 0 warnings, 1 errors",
        "/Job1/meta.json: meta.json is there twice: 'duplicate_file/Job1/meta.json.gz'.  Try: keep one",
    ),
    "duplicate_job.jsonl": (
        "2 jobs, 0 events, 2 warnings, 1 errors",
        ":3: job_id: the job is there already, at duplicate_job.jsonl:1: 'Job1'.  Try: give each job its own id",
        ":1: warning: Job1 has no events.",
        ":2: warning: Job2 has no events.",
    ),
    "duplicate_key": (
        "0 jobs, 0 events, 0 warnings, 1 errors",
        "/Job1/meta.json: start_time: the key is there twice, as entries 2 and 3.  Try: keep one of them",
    ),
    "duplicate_node.jsonl": (
        "0 jobs, 0 events, 0 warnings, 1 errors",
        ":1: ip_status.n1: the key is there twice, as entries 1 and 3.  Try: keep one of them",
    ),
    "empty.json": (
        "0 jobs, 0 events, 0 warnings, 1 errors",
        ": the file is empty.",
    ),
    "empty.jsonl": (
        "0 jobs, 0 events, 0 warnings, 1 errors",
        ": no job found.  Try: name the file that holds the jobs",
    ),
    "empty_csv": (
        "0 jobs, 0 events, 0 warnings, 1 errors",
        "/Job1/event_report.csv:1: no header.  Try: begin with ip,event_time,event",
    ),
    "empty_event": (
        "1 jobs, 2 events, 0 warnings, 1 errors",
        "/Job1/event_report.csv:3: event: an empty text.  Try: fill it in",
    ),
    "empty_ip": (
        "1 jobs, 2 events, 0 warnings, 1 errors",
        "/Job1/event_report.csv:3: ip: an empty text.  Try: fill it in",
    ),
    "empty_job_id": (
        "0 jobs, 0 events, 0 warnings, 1 errors",
        "/Job1/meta.json: job_id: an empty text.  Try: name the job",
    ),
    "empty_node": (
        "0 jobs, 0 events, 0 warnings, 1 errors",
        "/Job1/meta.json: ip_status: an empty node.  Try: correct it",
    ),
    "empty_time": (
        "1 jobs, 2 events, 0 warnings, 1 errors",
        "/Job1/event_report.csv:3: event_time: an empty time.  Try: fill it in",
    ),
    "ends_before_start": (
        "0 jobs, 0 events, 0 warnings, 1 errors",
        "/Job1/meta.json: end_time: the job ends before it starts, at 1969-10-15 13:49:13: '1969-10-15 13:49:12'.  Try: correct it",
    ),
    "event_list.jsonl": (
        "1 jobs, 1 events, 0 warnings, 1 errors",
        ":1: events[0]: a list in place of an event.",
    ),
    "events.csv": (
        "0 jobs, 0 events, 0 warnings, 1 errors",
        ": events without their job.  Try: name the folder that also has meta.json",
    ),
    "events_object.jsonl": (
        "0 jobs, 0 events, 0 warnings, 1 errors",
        ':1: events: an object in place of a list.  Try: write "events": [] if there are none',
    ),
    "folder_in_place": (
        "0 jobs, 0 events, 0 warnings, 1 errors",
        "/Job1/event_report.csv: a folder in place of a file.  Try: name a regular file",
    ),
    "header_again": (
        "1 jobs, 2 events, 0 warnings, 1 errors",
        "/Job1/event_report.csv:3: the header again, among the rows.  Try: remove the line",
    ),
    "header_missing": (
        "0 jobs, 0 events, 0 warnings, 1 errors",
        "/Job1/event_report.csv:1: a row of data in place of the header: 'n1,1969-10-15 13:49:24,nic_down'.  Try: begin with ip,event_time,event",
    ),
    "label_boolean.jsonl": (
        "0 jobs, 0 events, 0 warnings, 1 errors",
        ":1: ip_status.n2: true or false in place of text: 'true'.  Try: write \"normal\", or what it is",
    ),
    "label_empty.jsonl": (
        "0 jobs, 0 events, 0 warnings, 1 errors",
        ":1: ip_status.n2: an empty label.  Try: fill it in",
    ),
    "label_null.jsonl": (
        "0 jobs, 0 events, 0 warnings, 1 errors",
        ":1: ip_status.n2: null in place of text: 'null'.  Try: write \"normal\", or what it is",
    ),
    "label_number.jsonl": (
        "0 jobs, 0 events, 0 warnings, 1 errors",
        ":1: ip_status.n2: a number in place of text: '1'.  Try: write \"normal\", or what it is",
    ),
    "label_object.jsonl": (
        "0 jobs, 0 events, 0 warnings, 1 errors",
        ':1: ip_status.n2: an object in place of text: \'{"a": 1}\'.  Try: write "normal", or what it is',
    ),
    "lfs_parquet": (
        "0 jobs, 0 events, 0 warnings, 2 errors",
        "/events.parquet:1: a Git LFS pointer in place of the data.  Try: git lfs pull",
        "/jobs.parquet:1: a Git LFS pointer in place of the data.  Try: git lfs pull",
    ),
    "lfs_pointer.jsonl": (
        "0 jobs, 0 events, 0 warnings, 1 errors",
        ":1: a Git LFS pointer in place of the data.  Try: git lfs pull",
    ),
    "list.json": (
        "0 jobs, 0 events, 0 warnings, 1 errors",
        ": a JSON list, where a trace has a job a line.  Try: jq -c '.[]'",
    ),
    "lone_surrogate.jsonl": (
        "1 jobs, 0 events, 2 warnings, 1 errors",
        ":1: events[0].ip: half of a surrogate pair: 'n\\\\ud8001'.  Try: write it as text",
        ":1: ip_status: warning: Job1 lists no node: nothing to score.",
        ":1: warning: Job1 has no events.",
    ),
    "lone_surrogate_node.jsonl": (
        "0 jobs, 0 events, 0 warnings, 1 errors",
        ":1: ip_status.n\\udfff: half of a surrogate pair.  Try: correct it",
    ),
    "long_number.jsonl": (
        "0 jobs, 0 events, 0 warnings, 1 errors",
        ":1: a number too long to be one.  Try: write it in quotes",
    ),
    "long_row": (
        "1 jobs, 2 events, 0 warnings, 1 errors",
        "/Job1/event_report.csv:3: 4 fields where the header has 3: 'n1,1969-10-15 13:49:24,a,b'.  Try: quote a field that holds a comma",
    ),
    "many": (
        "1 jobs, 2 events, 0 warnings, 30 errors",
        "/Job1/event_report.csv:3: event_time: not a time: 'noon'.  Try: write it as YYYY-MM-DD HH:MM:SS",
        "/Job1/event_report.csv:4: event_time: not a time: 'noon'.  Try: write it as YYYY-MM-DD HH:MM:SS",
        "/Job1/event_report.csv:5: event_time: not a time: 'noon'.  Try: write it as YYYY-MM-DD HH:MM:SS",
        "/Job1/event_report.csv:6: event_time: not a time: 'noon'.  Try: write it as YYYY-MM-DD HH:MM:SS",
        "/Job1/event_report.csv:7: event_time: not a time: 'noon'.  Try: write it as YYYY-MM-DD HH:MM:SS",
        "/Job1/event_report.csv:8: event_time: not a time: 'noon'.  Try: write it as YYYY-MM-DD HH:MM:SS",
        "/Job1/event_report.csv:9: event_time: not a time: 'noon'.  Try: write it as YYYY-MM-DD HH:MM:SS",
        "/Job1/event_report.csv:10: event_time: not a time: 'noon'.  Try: write it as YYYY-MM-DD HH:MM:SS",
        "/Job1/event_report.csv:11: event_time: not a time: 'noon'.  Try: write it as YYYY-MM-DD HH:MM:SS",
        "/Job1/event_report.csv:12: event_time: not a time: 'noon'.  Try: write it as YYYY-MM-DD HH:MM:SS",
        "/Job1/event_report.csv:13: event_time: not a time: 'noon'.  Try: write it as YYYY-MM-DD HH:MM:SS",
        "/Job1/event_report.csv:14: event_time: not a time: 'noon'.  Try: write it as YYYY-MM-DD HH:MM:SS",
        "/Job1/event_report.csv:15: event_time: not a time: 'noon'.  Try: write it as YYYY-MM-DD HH:MM:SS",
        "/Job1/event_report.csv:16: event_time: not a time: 'noon'.  Try: write it as YYYY-MM-DD HH:MM:SS",
        "/Job1/event_report.csv:17: event_time: not a time: 'noon'.  Try: write it as YYYY-MM-DD HH:MM:SS",
        "/Job1/event_report.csv:18: event_time: not a time: 'noon'.  Try: write it as YYYY-MM-DD HH:MM:SS",
        "/Job1/event_report.csv:19: event_time: not a time: 'noon'.  Try: write it as YYYY-MM-DD HH:MM:SS",
        "/Job1/event_report.csv:20: event_time: not a time: 'noon'.  Try: write it as YYYY-MM-DD HH:MM:SS",
        "/Job1/event_report.csv:21: event_time: not a time: 'noon'.  Try: write it as YYYY-MM-DD HH:MM:SS",
        "/Job1/event_report.csv:22: event_time: not a time: 'noon'.  Try: write it as YYYY-MM-DD HH:MM:SS",
        "... and 10 more of this kind (bad-time)",
    ),
    "meta_list": (
        "0 jobs, 0 events, 0 warnings, 1 errors",
        "/Job1/meta.json: a list in place of a job's object.  Try: write {...}",
    ),
    "missing_column": (
        "0 jobs, 0 events, 1 warnings, 1 errors",
        "/Job1/event_report.csv:1: event_time: the column is missing: 'ip,time,event'.  Try: add it",
        "/Job1/event_report.csv:1: time: warning: a column that is no part of an event, left out.",
    ),
    "missing_event_key.jsonl": (
        "1 jobs, 1 events, 0 warnings, 1 errors",
        ":1: events[1].event: the key is missing.  Try: add it",
    ),
    "missing_events.jsonl": (
        "0 jobs, 0 events, 0 warnings, 1 errors",
        ':1: events: the key is missing.  Try: write "events": [] if there are none',
    ),
    "missing_key": (
        "0 jobs, 0 events, 0 warnings, 1 errors",
        "/Job1/meta.json: end_time: the key is missing.  Try: add it",
    ),
    "missing_shard": (
        "1 jobs, 2 events, 0 warnings, 1 errors",
        "/train-00000-of-00003.jsonl: missing, as are 2 of 3 shards.  Try: fetch all of them",
    ),
    "nan.jsonl": (
        "0 jobs, 0 events, 0 warnings, 1 errors",
        ":1: NaN is not JSON.  Try: write the value in quotes",
    ),
    "nesting.jsonl.gz": (
        "0 jobs, 0 events, 0 warnings, 1 errors",
        ":1: JSON nested too deeply.  Try: write flat values",
    ),
    "no_csv": (
        "0 jobs, 0 events, 0 warnings, 1 errors",
        "/Job1: the job's folder has no event_report.csv.  Try: add event_report.csv",
    ),
    "no_meta": (
        "0 jobs, 0 events, 0 warnings, 1 errors",
        "/Job1: the job's folder has no meta.json.  Try: add meta.json",
    ),
    "not_a_job.jsonl": (
        "0 jobs, 0 events, 0 warnings, 1 errors",
        ":1: text in place of a job's object.  Try: write one job a line",
    ),
    "notes.txt": (
        "0 jobs, 0 events, 0 warnings, 1 errors",
        ": not a trace; it begins with: 'nothing to see here, really, just a note'.",
    ),
    "nul": (
        "1 jobs, 2 events, 0 warnings, 1 errors",
        "/Job1/event_report.csv:3: a NUL character.  Try: remove it",
    ),
    "nul_escaped.jsonl": (
        "1 jobs, 0 events, 2 warnings, 1 errors",
        ":1: events[0].ip: a NUL character: 'n\\x001'.  Try: remove it",
        ":1: ip_status: warning: Job1 lists no node: nothing to score.",
        ":1: warning: Job1 has no events.",
    ),
    "number_in_event.jsonl": (
        "1 jobs, 1 events, 0 warnings, 2 errors",
        ":1: events[0].event: a number in place of text: '5'.  Try: write it as text",
        ":1: events[1].ip: null in place of text: 'null'.  Try: write it as text",
    ),
    "number_in_text.jsonl": (
        "0 jobs, 0 events, 0 warnings, 1 errors",
        ":1: job_id: a number in place of text: '7'.  Try: write it as text",
    ),
    "parquet_bad_utf8": (
        "1 jobs, 1 events, 0 warnings, 1 errors",
        "/events.parquet:2: ip: not UTF-8.  Try: save the text as UTF-8",
    ),
    "parquet_broken_labels": (
        "0 jobs, 0 events, 1 warnings, 1 errors",
        "/jobs.parquet:1: ip_status: not JSON: expecting value at character 8 ('normal}').",
        "/events.parquet:1: job_id: warning: events of jobs that were refused, left out with them (2); the first: 'Job1'.",
    ),
    "parquet_duplicate_job": (
        "1 jobs, 2 events, 0 warnings, 1 errors",
        "/jobs.parquet:2: job_id: the job is there already, at parquet_duplicate_job/jobs.parquet:1: 'Job1'.  Try: give each job its own id",
    ),
    "parquet_empty": (
        "1 jobs, 1 events, 0 warnings, 1 errors",
        "/events.parquet:1: ip: an empty text.  Try: fill it in",
    ),
    "parquet_epoch_times": (
        "0 jobs, 0 events, 0 warnings, 1 errors",
        "/events.parquet: event_time: int64 in place of text.  Try: store it as text",
    ),
    "parquet_int96": (
        "0 jobs, 0 events, 0 warnings, 1 errors",
        "/events.parquet: event_time: timestamps outside the years 1678 to 2261.  Try: store it as text",
    ),
    "parquet_integer_ids": (
        "0 jobs, 0 events, 0 warnings, 1 errors",
        "/events.parquet: job_id: int64 in place of text.  Try: store it as text",
    ),
    "parquet_missing_column": (
        "0 jobs, 0 events, 0 warnings, 1 errors",
        "/events.parquet: event: the column is missing: 'job_id,ip,event_time'.  Try: add it",
    ),
    "parquet_no_events": (
        "0 jobs, 0 events, 0 warnings, 1 errors",
        "/jobs.parquet: no table of events among the files.  Try: add events.parquet",
    ),
    "parquet_no_jobs": (
        "0 jobs, 0 events, 0 warnings, 1 errors",
        "/events.parquet: no table of jobs among the files.  Try: add jobs.parquet",
    ),
    "parquet_null": (
        "1 jobs, 2 events, 0 warnings, 4 errors",
        "/events.parquet:2: job_id: null in place of a job.  Try: fill it in",
        "/events.parquet:3: ip: null in place of text.  Try: fill it in",
        "/events.parquet:5: event: null in place of text.  Try: fill it in",
        "/events.parquet:4: event_time: null in place of a time.  Try: fill it in",
    ),
    "parquet_null_job": (
        "1 jobs, 2 events, 0 warnings, 2 errors",
        "/jobs.parquet:2: job_id: null in place of text: 'null'.  Try: write it as text",
        "/jobs.parquet:3: ip_status: null in place of an object of node and label: 'null'.  Try: write {...}",
    ),
    "parquet_truncated": (
        "0 jobs, 0 events, 0 warnings, 1 errors",
        "/events.parquet: not readable as Parquet: Parquet magic bytes not found in footer. Either the file is corrupted or this is not a parquet file.  Try: fetch the file again",
    ),
    "parquet_unknown_job": (
        "1 jobs, 2 events, 0 warnings, 2 errors",
        "/events.parquet:3: job_id: an event of a job that is not there: 'Job9'.  Try: add the job, or drop its events",
        "/events.parquet:4: job_id: an event of a job that is not there: 'Job8'.  Try: add the job, or drop its events",
    ),
    "parquet_zoned_times": (
        "0 jobs, 0 events, 0 warnings, 1 errors",
        "/events.parquet: event_time: timestamps of zone UTC, where the trace's clock has none.  Try: store it as text",
    ),
    "pretty_printed.jsonl": (
        "0 jobs, 0 events, 0 warnings, 1 errors",
        ":1: JSON over many lines, where a trace has a job a line.  Try: jq -c .",
    ),
    "short_row": (
        "1 jobs, 2 events, 0 warnings, 1 errors",
        "/Job1/event_report.csv:3: 2 fields where the header has 3: 'n1,1969-10-15 13:49:24'.  Try: add what is missing",
    ),
    "side_by_side": (
        "0 jobs, 0 events, 0 warnings, 1 errors",
        ": several forms side by side: folders (side_by_side/Job1) and jsonl (side_by_side/trace.jsonl).  Try: --format jsonl",
    ),
    "text_after_quote": (
        "1 jobs, 2 events, 0 warnings, 1 errors",
        "/Job1/event_report.csv:3: text after a closing quote.  Try: double a quote inside a quoted field",
    ),
    "times": (
        "1 jobs, 2 events, 0 warnings, 25 errors",
        "/Job1/event_report.csv:3: event_time: a time with a zone: '1969-10-15 13:49:24Z'.  Try: leave the zone out",
        "/Job1/event_report.csv:4: event_time: a time with a zone: '1969-10-15T13:49:24+08:00'.  Try: leave the zone out",
        "/Job1/event_report.csv:5: event_time: a time with a zone: '1969-10-15 13:49:24 UTC'.  Try: leave the zone out",
        "/Job1/event_report.csv:6: event_time: a number, not a time: '1697377753'.  Try: write it as YYYY-MM-DD HH:MM:SS",
        "/Job1/event_report.csv:7: event_time: a number, not a time: '1697377753000'.  Try: write it as YYYY-MM-DD HH:MM:SS",
        "/Job1/event_report.csv:8: event_time: a number, not a time: '1.697e9'.  Try: write it as YYYY-MM-DD HH:MM:SS",
        "/Job1/event_report.csv:9: event_time: an ambiguous date: '03/04/1969 13:49:24'.  Try: write it as YYYY-MM-DD HH:MM:SS",
        "/Job1/event_report.csv:10: event_time: an ambiguous date: '15.10.1969 13:49:24'.  Try: write it as YYYY-MM-DD HH:MM:SS",
        "/Job1/event_report.csv:11: event_time: no such date or time: '1969-02-30 13:49:24'.  Try: correct it",
        "/Job1/event_report.csv:12: event_time: no such date or time: '1969-10-15 24:00:00'.  Try: correct it",
        "/Job1/event_report.csv:13: event_time: no such date or time: '1969-10-15 13:60:00'.  Try: correct it",
        "/Job1/event_report.csv:14: event_time: no such date or time: '1969-10-15 13:49:60'.  Try: correct it",
        "/Job1/event_report.csv:15: event_time: not a time: '1969-10-15'.  Try: write it as YYYY-MM-DD HH:MM:SS",
        "/Job1/event_report.csv:16: event_time: not a time: '1969-10-15 13:49'.  Try: write it as YYYY-MM-DD HH:MM:SS",
        "/Job1/event_report.csv:17: event_time: not a time: '13:49:24'.  Try: write it as YYYY-MM-DD HH:MM:SS",
        "/Job1/event_report.csv:18: event_time: blanks around a time: ' 1969-10-15 13:49:24'.  Try: remove them",
        "/Job1/event_report.csv:19: event_time: blanks around a time: '1969-10-15 13:49:24 '.  Try: remove them",
        "/Job1/event_report.csv:20: event_time: not a time: '1969-10-15  13:49:24'.  Try: write it as YYYY-MM-DD HH:MM:SS",
        "/Job1/event_report.csv:21: event_time: outside the years 1678 to 2261: '9999-12-31 00:00:00'.  Try: correct it",
        "/Job1/event_report.csv:22: event_time: no such date or time: '0000-01-01 00:00:00'.  Try: correct it",
        "... and 5 more of this kind (bad-time)",
    ),
    "times_too_far": (
        "1 jobs, 0 events, 1 warnings, 1 errors",
        "/Job1/event_report.csv:2: event_time: a time more than 292 years from the job's start: '2261-01-01 00:00:00'.  Try: correct it",
        "/Job1/meta.json: warning: Job1 has no events.",
    ),
    "truncated.jsonl": (
        "1 jobs, 2 events, 0 warnings, 1 errors",
        ":2: the text ends before its JSON does.  Try: fetch the file again",
    ),
    "truncated.jsonl.gz": (
        "0 jobs, 0 events, 0 warnings, 1 errors",
        ": cannot be unpacked: truncated compressed stream.  Try: fetch the file again",
    ),
    "two_objects.jsonl": (
        "1 jobs, 2 events, 0 warnings, 1 errors",
        ":2: two values where one is expected.  Try: write one job a line",
    ),
    "unterminated_quote": (
        "1 jobs, 1 events, 0 warnings, 1 errors",
        "/Job1/event_report.csv:3: a quote that is never closed, with 2 lines behind it.  Try: close it, or double it inside a quoted field",
    ),
    "web_page.jsonl": (
        "0 jobs, 0 events, 0 warnings, 1 errors",
        ":1: a web page in place of the data.  Try: download the file itself",
    ),
    "web_parquet": (
        "0 jobs, 0 events, 0 warnings, 2 errors",
        "/events.parquet:1: a web page in place of the data.  Try: download the file itself",
        "/jobs.parquet:1: a web page in place of the data.  Try: download the file itself",
    ),
    "zip.jsonl": (
        "0 jobs, 0 events, 0 warnings, 1 errors",
        ":1: a zip archive in place of the data.  Try: unpack it",
    ),
}


def said(name, findings):
    """All lines about a fixture, with its name left out in front."""
    return tuple(line.removeprefix(name) for line in findings.lines())


def collected(name):
    """What a reader that does not stop finds, and the trace that is left."""
    findings = Findings(strict=False)
    try:
        trace = read(name, findings)
    except TraceError as error:
        findings.caught(error)
        trace = None
    return trace, findings


def test_every_file_is_expected(bad):
    assert sorted(path.name for path in bad.iterdir()) == sorted(BAD)


@pytest.mark.parametrize("name", BAD)
def test_all_faults_are_found_and_placed(bad, name):
    trace, findings = collected(name)
    jobs, events = (len(trace), trace.events.num_rows) if trace else (0, 0)
    assert (findings.summary(jobs, events), *said(name, findings)) == BAD[name]


@pytest.mark.parametrize("name", BAD)
def test_the_strict_reader_stops_at_the_first(bad, name):
    _, findings = collected(name)
    errors = {str(each) for each in findings.shown if each.severity == "error"}
    with pytest.raises(TraceError) as caught:
        open_trace(name)
    assert str(caught.value) in errors


@pytest.mark.parametrize("name", BAD)
def test_the_lenient_reader_keeps_the_rest_and_lists_what_it_skipped(bad, name):
    trace, findings = collected(name)
    if trace is None or not trace.jobs:
        with pytest.raises(TraceError):
            open_trace(name, lenient=True)
        return
    lenient = open_trace(name, lenient=True)
    assert lenient == trace
    assert lenient.findings.lines() == findings.lines()
