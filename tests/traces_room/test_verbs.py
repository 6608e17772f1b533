"""The verbs about traces: what they print, where, and with which exit code."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from replay.cli.verbs import run_verb
from replay.traces import FORMS
from replay.traces import open as open_trace

SUMMARY = re.compile(r"\d+ jobs, \d+ events, \d+ warnings, \d+ errors")
FIXTURES = Path(__file__).parent.parent / "traces"


@pytest.fixture
def verb(capsys):
    """Run a verb: its exit code, standard output and standard error."""

    def run(*words):
        code = run_verb([str(word) for word in words])
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("[gb]*/*")), ids=lambda path: path.name)
def test_validate_says_the_same_in_both_ways(verb, path):
    code, out, _ = verb("validate", path)
    assert code == (0 if path.parent.name == "good" else 3)
    *lines, last = out.splitlines()
    assert SUMMARY.fullmatch(last)
    json_code, out, err = verb("validate", path, "--json")
    document = json.loads(out)
    assert (json_code, err) == (code, "")
    names = ("jobs", "events", "warnings", "errors")
    assert last == ", ".join(f"{document[name]} {name}" for name in names)
    assert len(document["findings"]) == sum(not line.startswith("... and ") for line in lines)
    assert sum(each["count"] for each in document["counts"]) == (
        document["warnings"] + document["errors"]
    )


def test_validate_prints_findings_and_counts(verb, bad):
    code, out, err = verb("validate", "many")
    assert code == 3
    *lines, more, last = out.splitlines()
    assert lines == [
        f"many/Job1/event_report.csv:{row}: event_time: not a time: 'noon'.  "
        "Try: write it as YYYY-MM-DD HH:MM:SS"
        for row in range(3, 23)
    ]
    assert more == "... and 10 more of this kind (bad-time)"
    assert last == "1 jobs, 2 events, 0 warnings, 30 errors"
    assert err == "Read many as folders.\n"


def test_validate_as_data(verb, bad):
    code, out, _ = verb("validate", "label_null.jsonl", "--json")
    assert code == 3
    assert json.loads(out) == {
        "schema": 1,
        "source": "label_null.jsonl",
        "form": "jsonl",
        "jobs": 0,
        "events": 0,
        "warnings": 0,
        "errors": 1,
        "findings": [
            {
                "severity": "error",
                "kind": "bad-label",
                "what": "null in place of text",
                "path": "label_null.jsonl",
                "line": 1,
                "column": "ip_status.n2",
                "value": "null",
                "remedy": 'write "normal", or what it is',
            }
        ],
        "counts": [{"severity": "error", "kind": "bad-label", "count": 1}],
    }


def test_validate_of_nothing(verb):
    code, out, _ = verb("validate", "nowhere")
    assert code == 3
    assert out == (
        "nowhere: there is no such file or folder.\n0 jobs, 0 events, 0 warnings, 1 errors\n"
    )


def test_validate_chooses_a_form(verb, bad):
    code, out, _ = verb("validate", "side_by_side", "--format", "jsonl")
    assert (code, out) == (0, "1 jobs, 2 events, 0 warnings, 0 errors\n")


def test_convert_in_every_direction(verb, good, tmp_path):
    trace = open_trace("texts.jsonl")
    for first in FORMS:
        once = tmp_path / first
        code, out, err = verb("convert", "texts.jsonl", once, "--to", first)
        assert (code, out) == (0, f"{once}: 1 jobs, 25 events\n")
        assert err.startswith("Read texts.jsonl as jsonl.\n")
        assert err.endswith(f"Next: alert-replay validate {once}\n")
        for second in FORMS:
            twice = tmp_path / f"{first}-{second}"
            assert verb("convert", once, twice, "--to", second)[0] == 0
            assert open_trace(twice) == trace


def test_convert_takes_onsets_along_into_a_folder(verb, tmp_path):
    made = tmp_path / "made"
    assert verb("synth", made, "--preset", "quiet", "--jobs", "2", "--to", "jsonl")[0] == 0
    folder = tmp_path / "tables"
    assert verb("convert", made, folder, "--to", "parquet")[0] == 0
    assert (folder / "truth.json").read_bytes() == (made / "truth.json").read_bytes()
    code, _, err = verb("convert", made, tmp_path / "alone.jsonl")
    assert code == 0
    assert f"name them with score --truth {made / 'truth.json'}" in err


def test_convert_knows_a_file_of_lines_by_its_name(verb, good, tmp_path):
    target = tmp_path / "out.jsonl.zst"
    code, out, _ = verb("convert", "one_event", target, "--json")
    document = json.loads(out)
    assert (code, document["written"], document["events"]) == (0, str(target), 1)
    assert open_trace(target) == open_trace("one_event")


def test_convert_refuses_bad_data_unless_lenient(verb, bad, tmp_path):
    target = tmp_path / "out.jsonl"
    code, out, err = verb("convert", "short_row", target)
    line = (
        "short_row/Job1/event_report.csv:3: 2 fields where the header has 3: "
        "'n1,1969-10-15 13:49:24'.  Try: add what is missing"
    )
    assert (code, out, err) == (3, "", f"alert-replay: {line}\n")
    assert not target.exists()
    code, out, err = verb("convert", "short_row", target, "--lenient")
    assert (code, out) == (0, f"{target}: 1 jobs, 2 events\n")
    assert line in err
    assert "1 jobs, 2 events, 0 warnings, 1 errors.  See: alert-replay validate short_row" in err


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["out"], 2, "In which form should out be?  Try: --to folders|jsonl|parquet"),
        (["taken", "--to", "folders"], 2, "taken is there already.  Try: another name"),
        (["file/out", "--to", "folders"], 1, "file/out.partial cannot be written"),
    ],
)
def test_convert_has_nowhere_to_write(verb, tmp_path, monkeypatch, words, code, message):
    monkeypatch.chdir(tmp_path)
    Path("taken").mkdir()
    Path("taken/x").write_text("")
    Path("file").write_text("")
    found, out, err = verb("convert", FIXTURES / "good" / "one_event", *words)
    assert (found, out) == (code, "")
    assert f"alert-replay: {message}" in err


def test_jobs(verb, good):
    code, out, err = verb("jobs", "outside")
    assert code == 0
    header, row = (line.split() for line in out.splitlines())
    assert header == ["job", "starts", "lasts", "nodes", "alerting", "alerts", "kinds", "GPUs"]
    assert row == ["Job1", "1969-10-15", "13:49:13", "0:22:42", "2", "2", "4", "4", "Hopper"]
    assert err.splitlines()[-1] == "Next: alert-replay info outside Job1"
    code, out, _ = verb("jobs", "outside", "--json")
    (job,) = json.loads(out)["jobs"]
    assert (job["alerts"], job["outside"], job["first"], job["last"]) == (4, 2, -1.0, 1363.0)


def test_info_of_a_job(verb, good):
    code, out, err = verb("info", "outside", "Job1")
    assert code == 0
    assert "Next: alert-replay run outside Job1 --speed 10" in err
    assert [line.rstrip() for line in out.splitlines()] == [
        "job      Job1",
        "span     1969-10-15 13:49:13 to 1969-10-15 14:11:55, 0:22:42",
        "GPUs     Hopper",
        "nodes    2, of which 0 never alert",
        "alerts   4, the first at -0:00:01, the last at 0:22:43",
        f"bursts   █{' ' * 58}█",
        "kind      alerts  nodes",
        "at_end         1      1",
        "at_start       1      1",
        "early          1      1",
        "late           1      1",
        "note     2 alerts lie outside the job's span",
    ]


def test_info_hides_the_truth_until_it_is_asked_for(verb, good):
    for words in (["outside"], ["outside", "Job1"]):
        hidden = verb("info", *words)[1] + verb("info", *words, "--json")[1]
        assert "faulty" not in hidden
        assert "n2 (faulty)" in verb("info", *words, "--truth")[1]
        faulty = json.loads(verb("info", *words, "--truth", "--json")[1])["faulty"]
        assert faulty in ({"n2": "faulty"}, {"Job1": {"n2": "faulty"}})
    assert "faulty" not in verb("jobs", "outside", "--json")[1]


def test_info_of_a_trace(verb, good):
    code, out, err = verb("info", "odd_job_ids.jsonl")
    assert code == 0
    assert out.splitlines() == [
        "form     jsonl",
        "jobs     18, of 0:22:42 to 0:22:42",
        "alerts   36 of 2 kinds",
        "nodes    2, of which 2 in more than one job",
    ]
    assert err.splitlines()[-1].startswith("Next: alert-replay info odd_job_ids.jsonl ")


def test_info_tells_of_shared_nodes(verb, good):
    _, out, _ = verb("info", "odd_job_ids.jsonl", "CON", "--json")
    shared = json.loads(out)["shared_nodes"]
    assert (len(shared), shared["con"]) == (17, 2)
    _, out, _ = verb("info", "odd_job_ids.jsonl", "CON")
    assert "shares nodes with 17 jobs: " in out


def test_info_counts_repeats_and_ties(verb, good):
    about = json.loads(verb("info", "duplicates_and_ties.jsonl", "Job1", "--json")[1])
    assert (about["tied"], about["repeated"], about["unsorted"]) == (6, 3, 0)
    assert about["kinds"] == [
        {"name": "nic_down", "alerts": 4, "nodes": 2},
        {"name": "gpu_lost", "alerts": 2, "nodes": 1},
    ]


def test_info_of_a_job_without_events(verb, good):
    code, out, _ = verb("info", "no_events", "Job1")
    assert code == 0
    assert "alerts   0\n" in out


def test_info_of_no_such_job(verb, good):
    code, out, err = verb("info", "outside", "Job2")
    assert (code, out) == (2, "")
    assert "There is no job 'Job2' in outside." in err


def test_names_that_cannot_be_printed_are_escaped(verb, good):
    _, out, _ = verb("info", "odd_job_ids.jsonl", "Job\n1")
    assert out.startswith("job      Job\\n1\n")
