"""What a reader is shown: numbers, escapes, and nothing that is not a metric."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import pytest

from replay.report import (
    HEADLINE,
    Table,
    github_annotations,
    html,
    junit,
    markdown_table,
    strata_tables,
    table,
)
from replay.report.table import number
from replay.scoring import DetectorScore, GateResult, Interval, Score, Stratum

NUL = {"precision_strict": None, "late_verdicts": 0, "early_verdicts": 0}
SETTINGS = {
    "jobs": 3,
    "positives": 2,
    "negatives": 8,
    "policy": "ever",
    "hold_s": 0.0,
    "grace_s": 0.0,
    "comparable": True,
    "labels": {"normal": {"count": 8, "as": "negative"}},
    "cost": {"c_fn": 10.0},
}


def scored(metrics, *, undefined=None, baseline=False, **given):
    return DetectorScore(
        {"precision": None, "f1": None, **NUL, **metrics},
        undefined or {},
        {},
        baseline=baseline,
        **given,
    )


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("f1", 0.12345, "0.123"),
        ("f1", None, "-"),
        ("tp", 12, "12"),
        ("latency_start_p50", 12.34, "12.3"),
        ("processing_ms_p50", 0.26, "0.3"),
        ("cost_score", -5.04, "-5.0"),
        ("latency_start_p50_all", math.inf, "∞"),
        ("latency_start_p50_all", -math.inf, "-∞"),
    ],
)
def test_numbers(key, value, text):
    assert number(key, value) == text


def test_rows_columns_and_dimming():
    score = Score(
        {
            "x": scored({"f1": 0.5}, undefined={"latency_job_alert_p50_all": "infinite: few"}),
            "silent": scored({"f1": 0.0, "latency_job_alert_p50_all": None}, baseline=True),
        },
        SETTINGS,
    )
    shown = table(score)
    assert shown.title == "3 jobs, 2 positive of 10 labelled nodes, policy ever"
    headers = [column.removeprefix("<").replace("\n", "") for column in shown.columns]
    assert headers == ["detector", "precision", "f1", "latency_job_alert_p50_all"]
    assert set(headers[1:]) <= set(HEADLINE)
    assert shown.rows == (("x", "-", "0.500", "∞"), ("silent", "-", "0.000", "-"))
    assert shown.dim == (1,)
    assert shown.notes == ("labels: 'normal' 8x as negative",)


def test_a_leaderboard_is_best_first_with_intervals():
    interval = Interval(0.25, 0.75, 0.0, 12)
    none = Interval(None, None, 0.5, 3, "no interval: few")
    open_above = Interval(0.1, None, 0.0, 12, "infinite above")
    score = Score(
        {
            "low": scored({"f1": 0.2}, baseline=True, intervals={"f1": none}),
            "none": scored({}, intervals={"f1": open_above}),
            "high": scored({"f1": 0.5}, intervals={"f1": interval}),
        },
        SETTINGS,
    )
    shown = table(score, ("f1",), leaderboard=True)
    assert shown.rows == (
        ("high", "0.500\n0.250 to 0.750"),
        ("low", "0.200\nno interval"),
        ("none", "-\n0.100 to ∞"),
    )
    assert shown.dim == (1,)
    assert "f1 is undefined in some of the resamples: low 50.00%" in shown.notes


def test_a_latency_over_hits_says_how_many():
    metrics = {"latency_start_p50": 12.34, "latency_start_n": 3, "latency_start_p50_all": None}
    undefined = {"latency_start_p50_all": "infinite: fewer than 50 % were detected"}
    score = Score({"x": scored(metrics, undefined=undefined)}, SETTINGS)
    shown = table(score, ("latency_start_p50", "latency_start_n", "latency_start_p50_all"))
    assert shown.rows == (("x", "12.3 of 3 detected", "3", "∞"),)


def test_notes_on_blame_outside_the_population():
    metrics = {
        "precision": 1.0,
        "precision_strict": 0.5,
        "phantom_raised": 3,
        "unlabelled_raised": 0,
        "ignored_raised": 1,
        "late_verdicts": 2,
        "early_verdicts": 1,
    }
    settings = SETTINGS | {"comparable": False, "hold_s": 30.0, "grace_s": 60.0}
    shown = table(Score({"x": scored(metrics)}, settings))
    assert shown.title.endswith("policy ever, hold 30 s, grace 60 s (filtered: not comparable)")
    (note,) = [note for note in shown.notes if "precision_strict" in note]
    assert note.startswith("x: precision_strict 0.500 (phantom_raised 3, ignored_raised 1: nodes")
    assert "verdicts after a job's end are not counted: x 2" in shown.notes
    assert "verdicts before a job's start are not counted: x 1" in shown.notes


def test_strata():
    counts = {"tp": 1, "fp": 2, "fn": 3, "tn": 4}
    strata = {
        "gpu_generation": {
            "": Stratum(2, {"f1": 0.5, **counts}, {}),
            "Hopper": Stratum(3, {"f1": None, **counts}, {}),
        }
    }
    shown = list(strata_tables(Score({"x": scored({"f1": 0.1}, strata=strata)}, SETTINGS)))
    assert [each.title for each in shown] == [
        "gpu_generation (none): 2 jobs, 4 positive of 10 labelled nodes",
        "gpu_generation Hopper: 3 jobs, 4 positive of 10 labelled nodes",
    ]
    assert [each.rows[0][-1] for each in shown] == ["0.500", "-"]


def test_markdown_escapes_and_marks():
    shown = Table(
        "a | b", ("<detector", "f\n1"), (("x|y", "1\n2"), ("`z`", "3")), (1,), ("<note>",)
    )
    assert markdown_table(shown).splitlines() == [
        "a \\| b",
        "",
        "| detector | f1 |",
        "| :--- | ---: |",
        "| x\\|y | 1 2 |",
        "| *\\`z\\`* | *3* |",
        "",
        "- \\<note\\>",
    ]


class Page(HTMLParser):
    """The cells of a page, and its tags."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.cells = [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.cells += [""] if tag in {"td", "th", "li", "caption"} else []

    def handle_data(self, data):
        if self.cells:
            self.cells[-1] += data.strip()


def test_a_page_holds_everything_and_runs_nothing():
    name = "<script>alert(1)</script>&\"'"
    metrics = {"f1": 0.5, "tp": 1, "fp": 0, "fn": 1, "tn": 8}
    interval = Interval(0.25, 0.75, 0.0, "")
    stratum = {"gpu_generation": {"<b>": Stratum(3, metrics, {})}}
    score = Score({name: scored(metrics, intervals={"f1": interval}, strata=stratum)}, SETTINGS)
    results = [
        GateResult("f1 < 0.8", name, False, "f1 is 0.5"),
        GateResult("f1 < 0", name, True, ""),
    ]
    page = Page(html(score, results))
    assert not {"script", "b", "link", "img"} & set(page.tags)
    assert name in page.cells
    assert "0.5000.250 to 0.750" in page.cells
    assert any("gpu_generation <b>" in cell for cell in page.cells)
    assert f"failed: {name}: f1 < 0.8 (f1 is 0.5)" in page.cells


def test_junit_takes_any_name():
    score = Score({'<x> & "y"\x00': scored({})}, SETTINGS)
    results = [
        GateResult("f1 < 1", '<x> & "y"\x00', False, "f1 is <low>"),
        GateResult("f1 < 0", "z", True, "f1 is 0.5"),
    ]
    root = ET.fromstring(junit(score, results))
    cases = list(root.iter("testcase"))
    assert [case.get("classname") for case in cases] == ['<x> & "y"?', "z"]
    assert [failure.text for failure in root.iter("failure")] == ["f1 is <low>"]
    assert (root.get("tests"), root.get("failures")) == ("2", "1")
    alone = ET.fromstring(junit(score, []))
    assert [case.get("name") for case in alone.iter("testcase")] == ["scored"]


def test_who_crashed_is_marked_everywhere():
    scores = {
        "x": scored({"f1": 0.5}, failures={"Job1": "ValueError: <no>", "Job3": "..."}),
        "y": scored({"f1": 0.4}, strata={"gpu": {}}),
    }
    score = Score(scores, SETTINGS)
    shown = table(score)
    assert [row[0] for row in shown.rows] == ["x (crashed)", "y"]
    assert shown.notes[0] == (
        "x crashed on 2 of 3 jobs (Job1: ValueError: <no>, ...) and said nothing there from then on;"
        " its figures are not its merit"
    )
    assert '<td class="left">x (crashed)</td>' in html(score)
    assert "| x (crashed) |" in markdown_table(shown)
    for results in ([], [GateResult("f1 < 0.1", "x", True, "f1 is 0.5")]):
        root = ET.fromstring(junit(score, results))
        assert (root.get("tests"), root.get("errors"), root.get("failures")) == ("2", "1", "0")
        (error,) = root.iter("error")
        assert "on 2 of 3 jobs" in error.text


def test_annotations_escape():
    results = [
        GateResult("f1 < 1, or so", "x:y", False, "100 %\nlow"),
        GateResult("f1 < 1", "z", True, "fine"),
    ]
    assert github_annotations(results) == [
        "::error title=x%3Ay%3A f1 < 1%2C or so::100 %25%0Alow",
    ]
