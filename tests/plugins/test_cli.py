"""The verb ``detectors``, as a user sees it."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from replay.cli import main
from replay.plugins import DETECTORS, detector_class, installed, options_of


@pytest.fixture
def call(capsys):
    """Run the command line; give the exit code, standard output and standard error."""

    def call(*arguments):
        with pytest.raises(SystemExit) as done:
            main(["detectors", *map(str, arguments)])
        return done.value.code, *capsys.readouterr()

    return call


def names():
    return sorted({point.name for point in installed(DETECTORS)})


def test_list(call):
    code, out, error = call("list")
    assert code == 0
    lines = out.splitlines()
    assert lines[0].split()[0] == "detector"
    assert [line.split()[0] for line in lines[1:] if not line.startswith(" ")] == names()
    assert "window threshold margin" in next(line for line in lines if line.startswith("burst"))
    assert "``" not in out
    assert "detectors show NAME" in error


def test_list_as_json(call):
    code, out, error = call("list", "--json")
    assert (code, error) == (0, "")
    document = json.loads(out)
    assert document["schema"] == 1
    assert [row["name"] for row in document["detectors"]] == names()
    burst = next(row for row in document["detectors"] if row["name"] == "burst")
    assert burst["options"] == {
        n: o.default for n, o in options_of(detector_class("burst")).items()
    }
    assert burst["baseline"] is False
    assert next(row for row in document["detectors"] if row["name"] == "loudest")["baseline"]


def test_list_goes_on_where_a_plug_in_is_broken(call, install):
    install("acme", entry_points=f"[{DETECTORS}]\nacme = acme:Gone\n", acme="import tensorplow")
    install("rival", "3.0", entry_points=f"[{DETECTORS}]\nburst = acme:Gone\n")
    code, out, _ = call("list", "--json")
    assert code == 0
    rows = {row["name"]: row for row in json.loads(out)["detectors"]}
    assert "needs 'tensorplow'" in rows["acme"]["error"]
    assert "is offered by" in rows["burst"]["error"]
    assert "rival 3.0" in rows["burst"]["origin"]
    assert rows["silent"]["what"].startswith("Never says anything")
    assert call("list")[0] == 0


@pytest.mark.parametrize("name", names())
def test_show_every_detector(call, name):
    code, out, error = call("show", name)
    assert (code, error) == (0, "")
    assert out.startswith(f"{name}  (from alert-replay ")
    assert "microseconds per alert" in out
    assert "node-c" in out
    assert not re.search(r"``|:\w+:`|^::", out, re.MULTILINE)
    if not detector_class(name).baseline and name != "rules":  # rules are the user's own
        assert "  raise node-c: " in out, "it does not find the fault in the example"
        assert "Cost: " in out
        assert "Source:" in out


def test_detectors_inside_others_are_shown_as_one_writes_them(call):
    options = json.loads(call("show", "vote", "--json")[1])["options"]
    assert (options[0]["type"], options[0]["default"]) == (
        "tuple[detector, ...]",
        "distinct-kinds+sequence+peers",
    )


@pytest.mark.parametrize(
    ("name", "origin"),
    [("token-memory", "bench"), ("prometheus:ManyAlerts", "run --live-rules")],
)
def test_show_a_name_of_the_tables_that_is_no_detector(call, name, origin):
    code, out, error = call("show", name)
    assert (code, error) == (0, "")
    assert out.startswith(f"{name.partition(':')[0]}  (no detector; from {origin})\n\n")
    told = json.loads(call("show", name, "--json")[1])
    shown = json.loads(call("show", "burst", "--json")[1])
    assert told.keys() == shown.keys()
    assert told["origin"] == origin


def test_show_as_json(call):
    code, out, _ = call("show", "burst:window=5,threshold=2", "--json")
    assert code == 0
    told = json.loads(out)
    assert (told["schema"], told["name"], told["baseline"]) == (1, "burst", False)
    options = {option["name"]: option for option in told["options"]}
    assert (options["window"]["default"], options["window"]["value"]) == (60.0, 5.0)
    assert options["window"]["doc"].startswith("Seconds")
    assert "value" not in options["margin"]
    assert told["us_per_alert"] > 0
    *_, said = told["example"]["verdicts"]
    assert (said["t"], said["ip"], said["action"]) == (10_011.0, "node-c", "raise")
    (row,) = (line for line in told["example"]["picture"] if line.startswith("node-c"))
    assert row.split()[1].index("!") == 10


def test_show_a_retraction_and_the_job_itself(call, write):
    path = write(
        "wavering.py",
        """
        from replay.api import Detector, Verdict

        class Wavering(Detector):
            '''Says and takes back.'''

            def __init__(self, job, *, needed, ever=float("inf"), sort=complex(1)):
                super().__init__(job)

            def observe(self, alert):
                if alert.kind == "xid_48" and alert.at == 10_000.0:
                    return [Verdict(alert.node)]
                return [Verdict("node-c", "retract"), Verdict(None)] if alert.at == 10_012.0 else []
        """,
    )
    code, out, _ = call("show", f"{path}:Wavering:needed=x")
    assert code == 0
    lines = out.splitlines()
    (row,) = (line.split()[1] for line in lines if line.startswith("  node-c"))
    assert (row[5], row[11]) == ("!", "-")
    assert "  10012 s  retract node-c: no reason" in lines
    assert "  10012 s  raise the job: no reason" in lines
    for word in ("required", "inf", "(1+0j)", "complex"):
        assert word in out
    json.loads(call("show", f"{path}:Wavering:needed=x", "--json")[1])
    assert call("show", f"{path}:Wavering")[0] == 2


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["show", "brst"], 2, "did you mean 'burst'?"),
        (["show", "burst:windw=3"], 2, "did you mean 'window'?"),
        (["show"], 2, "Missing argument"),
        (["lst"], 2, "No such command 'lst'"),
        (["new", "random"], 2, "would hide a Python module of that name.  Try: my-random"),
        (["new", "class"], 2, "would hide a Python module"),
        (["new", "detectors"], 2, "would hide a Python module"),
        (["new", "burst"], 2, "There is a detector 'burst' already.  Try: my-burst"),
        (["new", "first-alert"], 2, "There is a detector 'first-alert' already"),
        (["new", "3x"], 2, "'3x' does not name a detector.  Try: lower-case words and dashes"),
        (["new", "Mine"], 2, "does not name a detector"),
        (["new", "a/b"], 2, "does not name a detector"),
        (["new", "_x"], 2, "does not name a detector"),
        (["new", "ünder"], 2, "does not name a detector"),
        (["new", ""], 2, "does not name a detector"),
        (["new", "mine", "--dir", "/nowhere/at/all"], 2, "mine.py cannot be written: No such file"),
    ],
)
def test_mistakes(call, arguments, code, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found, out, error = call(*arguments)
    assert (found, out) == (code, "")
    assert words in error
    assert not list(tmp_path.iterdir())


def test_a_crashing_detector_is_named(call, write):
    path = write(
        "crash.py",
        """
        from replay.api import Detector

        class Crash(Detector):
            '''Crashes.'''

            def observe(self, alert):
                return 1 / 0
        """,
    )
    code, _, error = call("show", path)
    assert code == 6
    assert "detector Crash on job scene: ZeroDivisionError" in error
    assert "crash.py, line 8" in error


def test_new_works_at_once(call, tmp_path):
    code, out, error = call("new", "two-kinds", "--dir", tmp_path)
    assert code == 0
    detector, test = tmp_path / "two_kinds.py", tmp_path / "test_two_kinds.py"
    assert out == f"Wrote {detector} and {test}.\n"
    assert f"python -m pytest {test}" in error
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--doctest-modules",
         "-W", "error", str(tmp_path)],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "20 passed" in ran.stdout
    assert call("show", f"{detector}:TwoKinds")[0] == 0


def test_new_overwrites_nothing(call, tmp_path):
    call("new", "mine", "--dir", tmp_path)
    kept = {path: path.read_text() for path in tmp_path.iterdir()}
    (tmp_path / "mine.py").unlink()
    code, _, error = call("new", "mine", "--dir", tmp_path)
    assert code == 2
    assert "test_mine.py is there already, and stays as it is" in error
    assert not (tmp_path / "mine.py").exists()
    assert (tmp_path / "test_mine.py").read_text() == kept[tmp_path / "test_mine.py"]


def test_new_as_json(call, tmp_path):
    code, out, error = call("new", "mine", "--dir", tmp_path, "--json")
    assert (code, error) == (0, "")
    assert json.loads(out) == {
        "schema": 1,
        "detector": f"{tmp_path / 'mine.py'}:Mine",
        "files": [str(tmp_path / "mine.py"), str(tmp_path / "test_mine.py")],
    }
