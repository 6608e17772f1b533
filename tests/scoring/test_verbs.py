"""The verbs score and compare: every flag, exit codes, and what is written."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import pytest

from replay import traces


@pytest.fixture
def stored(bench, tmp_path):
    """A trace and a log on disk: ``x`` is right about Job1, wrong about Job2; ``y`` names the job."""
    trace = bench.trace(
        bench.job("Job1", {"a": "normal", "b": "faulty"}, [(10, "b", "k")]),
        bench.job("Job2", {"a": "normal", "c": "Degraded"}, [(5, "c", "k")], generation="Ampere"),
    )
    traces.write(trace, tmp_path / "trace.jsonl")
    said = [
        bench.say("b", 30, 0.9),
        bench.say("a", 40, 0.5, job="Job2"),
        bench.say(None, 50, job="Job2", detector="y"),
        bench.say("c", 605, job="Job2", detector="y"),
    ]
    bench.log(trace, said).write(tmp_path / "verdicts.jsonl")
    bench.log(trace, said).write(tmp_path / "verdicts.parquet")
    return tmp_path


@pytest.fixture
def scored(stored, call):
    """Calls ``score`` on them."""

    def run(*more, verdicts="verdicts.jsonl"):
        return call(
            *("score", "--trace", stored / "trace.jsonl", "--verdicts", stored / verdicts),
            *("--resamples", 20, *more),
        )

    return run


def document(answer):
    code, out, err = answer
    assert code == 0, err
    return json.loads(out)


def test_json_has_the_documented_form(scored):
    found = document(scored("--json", "--detectors", "silent,x"))
    assert set(found) == {"schema", "detectors", "settings"}
    assert found["schema"] == 1
    assert list(found["detectors"]) == ["silent", "x", "y"]
    x = found["detectors"]["x"]
    assert {"metrics", "undefined", "jobs"} <= set(x)
    assert (x["metrics"]["tp"], x["metrics"]["fp"], x["metrics"]["fn"]) == (1, 1, 1)
    assert list(x["jobs"]) == ["Job1", "Job2"]
    assert found["detectors"]["silent"]["metrics"]["recall"] == 0.0
    assert found["detectors"]["silent"]["baseline"] is True
    settings = found["settings"]
    assert settings["labels"]["Degraded"] == {"count": 1, "as": "positive"}
    assert (settings["jobs"], settings["positives"], settings["comparable"]) == (2, 2, True)
    for key in (
        "data_hash",
        "label_map",
        "policy",
        "hold_s",
        "grace_s",
        "cost",
        "seed",
        "versions",
    ):
        assert key in settings


def test_both_forms_of_a_log_give_the_same_bytes(scored):
    assert scored("--json") == scored("--json", verdicts="verdicts.parquet")


def test_flags_reach_the_policy(scored):
    found = document(
        scored(
            *(
                "--json",
                "--hold",
                5,
                "--grace",
                10,
                "--within",
                "20,90.5",
                "--by",
                "gpu_generation",
            ),
            *(
                "--label-map",
                "normal=negative,degraded=ignore,*=positive",
                "--cluster",
                "component",
            ),
            *("--cost", "miss-averse,zero=job_alert", "--seed", 3, "--curves"),
        )
    )
    settings = found["settings"]
    assert (settings["hold_s"], settings["grace_s"], settings["seed"]) == (5.0, 10.0, 3)
    assert settings["labels"]["Degraded"]["as"] == "ignore"
    assert settings["cost"]["zero"] == "job_alert"
    assert settings["components"] == {"Job1": 0, "Job2": 0}
    x, y = found["detectors"]["x"], found["detectors"]["y"]
    assert x["metrics"]["latency_start_p50"] == 35.0
    assert "recall_at_90.5_start" in x["metrics"]
    assert "recall_at_60_start" not in x["metrics"]
    assert set(x["strata"]["gpu_generation"]) == {"Ampere", "Hopper"}
    assert set(x["curves"]) == {"amoc", "delay"}
    assert y["metrics"]["ignored_raised"] == 1  # within the grace, and held for the hold


def test_final_and_strict(scored):
    assert document(scored("--json", "--policy", "final"))["settings"]["policy"] == "final"
    code, _, err = scored("--strict-labels")
    assert code == 2
    assert "does not name the label 'Degraded'" in err


def test_onsets_are_read_where_they_stand(scored, stored):
    assert "latency_onset_p50" not in document(scored("--json"))["detectors"]["x"]["metrics"]
    truth = {"schema": 1, "jobs": {"Job1": {"onset": {"b": 10}}, "Job2": {}}}
    (stored / "truth.json").write_text(json.dumps(truth))
    metrics = document(scored("--json"))["detectors"]["x"]["metrics"]
    assert metrics["latency_onset_p50"] == 20.0
    assert metrics["positives_zero_undefined_onset"] == 1
    (stored / "truth.json").write_text('{"schema": 2}')
    code, _, err = scored()
    assert code == 3
    assert "truth.json" in err


def test_some_jobs(scored):
    code, out, err = scored("--jobs", "Job1")
    assert code == 0
    assert out.splitlines()[0].rstrip() == (
        "1 jobs, 1 positive of 2 labelled nodes, policy ever (filtered: not comparable)"
    )
    assert "3 verdicts are about other jobs and were left out" in err
    assert scored("--jobs", "Job9")[0] == 2


def test_table_shows_what_a_reader_must_know(scored):
    code, out, _ = scored("--metrics", "precision,oracle_f1,cost_score", "--by", "gpu_generation")
    assert code == 0
    assert (
        "labels: 'Degraded' 1x as positive, 'faulty' 1x as positive, 'normal' 2x as negative" in out
    )
    assert "verdicts after a job's end are not counted: y 1" in out
    assert "oracle_f1 and oracle_threshold are tuned on the scored data" in out
    assert "cost: c_fn=10.0" in out
    assert "gpu_generation Ampere" in out


def test_what_is_kept_can_be_scored_again(scored, stored, call):
    assert scored("--out", stored / "kept")[0] == 0
    kept = (stored / "kept" / "score.json").read_bytes()
    assert scored("--out", stored / "again", verdicts="kept/verdicts.parquet")[0] == 0
    assert (stored / "again" / "score.json").read_bytes() == kept


# --- gates ------------------------------------------------------------------------------------


def test_gates_met_and_not_met(scored, stored):
    files = ("--junit", stored / "gates.xml", "--markdown", stored / "score.md")
    files += ("--html", stored / "score.html")
    gates = ("--fail-if", "x: f1 < 0.4", "--fail-if", "precision < 0.9", "--fail-if", "y: mrr >= 2")
    code, _, err = scored(*gates, *files, "--github")
    assert code == 4
    assert "2 of 4 gates failed" in err
    assert "gate passed: x: f1 < 0.4 (f1 is 0.5)" in err
    assert (
        "gate FAILED: y: precision < 0.9 (precision is undefined: no labelled node was raised)"
        in err
    )
    assert "::error title=x%3A precision < 0.9::precision is 0.5" in err
    suite = ET.parse(stored / "gates.xml").getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("4", "2")
    cases = [
        (case.get("classname"), case.get("name"), len(case)) for case in suite.iter("testcase")
    ]
    assert ("x", "f1 < 0.4", 0) in cases
    assert ("x", "precision < 0.9", 1) in cases
    text = (stored / "score.md").read_text()
    assert "| detector | precision |" in text
    assert "**Gates: 2 passed, 2 failed**" in text
    assert "Gates: 2 passed, 2 failed" in (stored / "score.html").read_text()


def test_gates_of_the_settings_file(scored, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "alert-replay.toml").write_text('fail-if = "x: f1 < 0.6"\n')
    assert scored()[0] == 4
    assert scored("--fail-if", "x: f1 < 0.4")[0] == 0


def test_gates_in_the_document(scored):
    found = document(scored("--json", "--fail-if", "x: f1 < 0.1"))
    (gate,) = found["gates"]
    assert gate == {"gate": "f1 < 0.1", "detector": "x", "passed": True, "message": "f1 is 0.5"}


@pytest.mark.parametrize(
    "flags",
    [
        ("--fail-if", "f3 < 1"),
        ("--fail-if", "f1 is low"),
        ("--max-drop", "f1=0.1"),
        ("--metrics", "f3"),
        ("--within", "soon"),
        ("--cost", "c_fn=1,c_delay_per_hour=9"),
        ("--label-map", "normal"),
        ("--by", "colour"),
        ("--policy", "maybe"),
        ("--hold", "-1"),
        ("--junit", "/nowhere/at/all.xml"),
    ],
)
def test_usage_errors(scored, flags):
    code, _, err = scored(*flags)
    assert code == 2
    assert "Traceback" not in err


def test_baseline_and_drop(scored, stored):
    assert scored("--out", stored / "before")[0] == 0
    before = ("--baseline", stored / "before")
    assert scored(*before, "--max-drop", "f1=0", "--max-drop", "cost_score=0")[0] == 0
    code, _, err = scored(*before, "--max-drop", "f1=0.1", "--hold", 580)  # no hit lasts that long
    assert code == 4
    assert "f1 went from 0.5 to 0.0" in err
    assert scored("--baseline", stored / "nothing", "--max-drop", "f1=0")[0] == 3


def test_times_have_units(scored):
    for words in (("--hold", "565"), ("--hold", "565s"), ("--hold", "9.41666667m")):
        settings = document(scored("--json", *words))["settings"]
        assert settings["hold_s"] == pytest.approx(565)
    assert document(scored("--json", "--grace", "1h"))["settings"]["grace_s"] == 3600
    code, _, err = scored("--hold", "long")
    assert code == 2
    assert "--hold: 'long' is not a duration.  Try: 90, 90s" in err


def test_one_place_of_verdicts(scored):
    code, _, err = scored("--from", "kafka://127.0.0.1:1/verdicts")
    assert code == 2
    assert "--verdicts and --from are two places of verdicts.  Try: one of them" in err


def test_onsets_that_are_not_there(scored, stored):
    code, _, err = scored("--truth", stored / "none.json")
    assert code == 3
    assert "none.json: cannot be read: No such file or directory." in err


@pytest.mark.parametrize(
    ("trace", "verdicts"), [("trace.jsonl", "none.jsonl"), ("none", "verdicts.jsonl")]
)
def test_missing_files(stored, call, trace, verdicts):
    code, _, err = call("score", "--trace", stored / trace, "--verdicts", stored / verdicts)
    assert code == 3
    assert "alert-replay:" in err


# --- compare ----------------------------------------------------------------------------------


@pytest.fixture
def two_runs(scored, stored):
    scored("--out", stored / "one")
    scored("--out", stored / "two", "--hold", 565)
    return stored / "one", stored / "two"


def test_compare_two_runs(two_runs, call):
    code, out, err = call("compare", *two_runs)
    assert code == 0
    assert "A = x, B = x" in out
    assert "A = y, B = y" in out
    assert "jobs won 0, lost 1, tied 1" in out  # the blame of a is too short for the hold
    assert "hold_s differs: 0.0 and 565.0" in err
    assert "less is better: latency_job_alert_p50_all" in err


def test_compare_folds_what_is_the_same(two_runs, call):
    code, out, _ = call("compare", two_runs[0], two_runs[0])
    assert code == 0
    assert out == "the same in both runs: x, y\n"
    code, out, _ = call("compare", two_runs[0], two_runs[0], "--pair", "x=x")
    assert "A = x, B = x" in out


def test_compare_says_which_options_differ(two_runs, call):
    for folder, options in zip(two_runs, ("", ":threshold=4"), strict=True):
        text = f'detector = ["burst{options}", "no-such-plug-in"]'
        (folder / "config.toml").write_text(text)
    assert "asked for" not in call("compare", *two_runs)[2]  # nothing can be told of them
    for folder, options in zip(two_runs, ("", ":threshold=4"), strict=True):
        (folder / "config.toml").write_text(f'detector = ["burst{options}"]')
        file = folder / "score.json"
        file.write_text(file.read_text().replace('"x"', '"burst"'))
    _, _, err = call("compare", *two_runs)
    assert "burst was asked for as burst in A, as burst:threshold=4 in B" in err


def test_compare_detectors_of_one_run(two_runs, call):
    code, out, _ = call("compare", two_runs[0], two_runs[0], "--pair", "x=y", "--json")
    assert code == 0
    (found,) = json.loads(out)["comparisons"]
    assert (found["a"], found["b"]) == ("x", "y")
    assert found["metrics"]["recall"]["delta"] == 0.5


def test_compare_says_who_crashed(two_runs, call):
    file = two_runs[1] / "score.json"
    document = json.loads(file.read_text())
    document["detectors"]["x"]["failures"] = {"Job2": "ValueError: no"}
    file.write_text(json.dumps(document))
    code, _, err = call("compare", *two_runs)
    assert code == 0
    assert "B: x crashed on 1 of 2 jobs (Job2: ValueError: no)" in err
    assert "A: x crashed" not in err


def test_compare_what_cannot_be(two_runs, call, stored):
    assert call("compare", two_runs[0], two_runs[1], "--pair", "x=z")[0] == 2
    assert call("compare", two_runs[0], stored / "nothing")[0] == 3
    (stored / "broken.json").write_text('{"schema": 1, "detectors": {"x": {}}, "settings": {}}')
    code, _, err = call("compare", two_runs[0], stored / "broken.json")
    assert code == 3
    assert "not a score" in err
    code, _, err = call("compare", *two_runs, "--metrics", "f11")
    assert code == 2
    assert "There is no metric 'f11'.  Try: f1" in err
