"""Detectors by name, by file, and what is said when that fails."""

from __future__ import annotations

import os
import pickle
import re

import pytest

from replay.api import Detector, Job
from replay.errors import PluginError, UsageError
from replay.plugins import (
    DETECTORS,
    DetectorSpec,
    clashes,
    detector_class,
    installed,
    load,
    parse_detectors,
)

FILE = '''
    """Two detectors."""
    from __future__ import annotations
    from dataclasses import dataclass
    from replay.api import Alert, Detector, Job, Verdict

    @dataclass
    class Note:
        text: str

    class Mine(Detector):
        """Blames whoever alerts.

        Args:
            job: The job.
            least: From which number on.
        """

        def __init__(self, job: Job, *, least: int = 0) -> None:
            super().__init__(job)
            if least < 0:
                raise ValueError("least must not be negative")
            self.least = least

        def observe(self, alert):
            return [Verdict(alert.node, reason=Note("x").text)] if alert.seq >= self.least else ()

    class Yours(Mine):
        """The same."""

    class Half(Detector):
        """Forgot something."""

    helper = 3
'''


def test_by_name():
    spec = DetectorSpec.parse("burst:window=30,threshold=3")
    assert (spec.name, spec.options) == ("burst", {"window": 30.0, "threshold": 3})
    assert spec.text == "burst:window=30,threshold=3"
    assert re.fullmatch(r"alert-replay \d.*", spec.origin)
    assert DetectorSpec.parse(spec.text) == spec
    detector = spec.build(Job("Job1", ("a",)))
    assert detector.job.id == "Job1"
    assert detector is not spec.build(Job("Job1", ("a",)))


def test_dashes_and_blanks_in_options(write):
    path = write("blanks.py", FILE.replace("least", "at_least"))
    spec = DetectorSpec.parse(f"{path}:Mine: at-least = 3 ")
    assert spec.options == {"at_least": 3}


def test_by_file(write):
    path = write("mine.py", FILE)
    spec = DetectorSpec.parse(f"{path}:Mine:least=2")
    assert (spec.name, spec.options, spec.origin) == ("Mine", {"least": 2}, str(path))
    assert spec.build(Job("Job1")).least == 2
    assert DetectorSpec.parse(f"{path}:Mine:least=2") == spec
    assert pickle.loads(pickle.dumps(spec)) == spec


def test_a_file_is_run_again_when_it_has_changed(write):
    path = write("again.py", FILE)
    first = DetectorSpec.parse(f"{path}:Mine").cls
    path.write_text(path.read_text().replace("Two detectors", "Other detectors"))
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 10**9))
    second = DetectorSpec.parse(f"{path}:Mine").cls
    assert first is not second


def test_the_only_detector_of_a_file_needs_no_name(write):
    path = write("only.py", FILE.replace("class Yours(Mine)", "class Yours").replace(
        "class Half(Detector)", "class Half"))  # fmt: skip
    assert DetectorSpec.parse(str(path)).name == "Mine"
    assert DetectorSpec.parse(f"{path}::least=3").options == {"least": 3}


def test_by_class():
    cls = detector_class("burst")
    assert DetectorSpec.of(cls, window=3.0).name == "Burst"
    assert DetectorSpec.of(cls, "quick", window=3.0).name == "quick"
    with pytest.raises(PluginError, match=r"TypeError: .*unexpected keyword argument 'windw'"):
        DetectorSpec.of(cls, windw=3.0)
    with pytest.raises(PluginError, match="int is not a detector class"):
        DetectorSpec.of(int)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("brst", r"There is no detector 'brst'; did you mean 'burst'\?"),
        ("zzz", r"There is no detector 'zzz'\.  Try: one of accuse-all, "),
        ("", "There is no detector ''"),
        ("burst:windo=3", r"Detector burst has no option 'windo'; did you mean 'window'\?"),
        ("burst:zzz=3", r"has no option 'zzz'\.  Try: one of .*threshold"),
        ("silent:loud=3", r"has no option 'loud'\.  Try: silent alone: it has no options"),
        ("burst:3", r"Detector burst has no option '3'\.  Try: one of .*threshold"),
        ("burst:window", r"Option 'window' of detector burst has no value\.  Try: window=\.\.\."),
        ("burst:window=soon", r"Option window of detector burst: 'soon' is not a number\."),
        ("burst:threshold=2.5", r"'2.5' is not a whole number"),
        ("burst:window=1,window=2", r"Option 'window' of detector burst is given twice"),
        ("burst:job=x", r"Detector burst has no option 'job'"),
        ("burst:window=-1", r"Detector burst cannot be built: window must be positive, not -1.0\."),
        ("nowhere.py:Mine", r"There is no file nowhere\.py"),
        ("burst:window=a.py:Mine", r"Option window of detector burst: 'a\.py:Mine' is not a num"),
        ("FILE", r"Which detector of .*mine\.py\?  Try: .*mine\.py:Mine or Yours or Half"),
        ("FILE:Mien", r"There is no class 'Mien' in .*mine\.py; did you mean 'Mine'\?"),
        ("FILE:Half", r"Detector Half has no method observe"),
        ("FILE:Note", r"Note in .*mine\.py is not a detector class"),
        ("FILE:helper", r"helper in .*mine\.py is not a detector class"),
        ("FILE:Mine:leas=3", r"Detector Mine has no option 'leas'; did you mean 'least'\?"),
        ("FILE:Mine:least=-1", r"Detector Mine cannot be built: least must not be negative"),
    ],
)
def test_what_is_said(text, words, write):
    with pytest.raises(PluginError, match=words) as caught:
        DetectorSpec.parse(text.replace("FILE", str(write("mine.py", FILE))))
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import nothing_of_this_name", r"needs 'nothing_of_this_name'\.  Try: pip install noth"),
        ("import no.such.thing", r"needs 'no'\.  Try: pip install no$"),
        ("exit(3)", r"cannot be loaded: SystemExit: 3\."),
        ("1/0", r"cannot be loaded: ZeroDivisionError: division by zero\."),
        ("def f(:", r"cannot be loaded: SyntaxError: .*line 1"),
        ("\0", r"cannot be loaded: SyntaxError"),
    ],
)
def test_files_that_do_not_run(source, words, write):
    path = write("broken.py", source)
    for _ in range(2):  # the second time is no different
        with pytest.raises(PluginError, match=words):
            DetectorSpec.parse(f"{path}:Mine")


def test_what_a_detector_says_itself_stands(write):
    path = write(
        "strict.py",
        """
        from replay.api import Detector
        from replay.errors import UsageError

        class Strict(Detector):
            def __init__(self, job):
                raise UsageError("There is no rule file.", "write one")

            def observe(self, alert):
                return ()
        """,
    )
    with pytest.raises(UsageError, match=r"^There is no rule file\.  Try: write one$"):
        DetectorSpec.parse(f"{path}:Strict")


def test_the_same_name_twice_is_told_apart():
    specs = parse_detectors(["burst", "silent", "burst:window=30"])
    assert [spec.name for spec in specs] == ["burst", "silent", "burst:window=30"]
    with pytest.raises(PluginError, match="Detector burst is asked for twice"):
        parse_detectors(["burst", "burst"])


# --- entry points of other distributions -----------------------------------------------------------

PLUGIN = """
    from replay.api import Detector

    class Other(Detector):
        '''Says nothing.'''

        def observe(self, alert):
            return ()
"""


def entry(name, value):
    return f"[{DETECTORS}]\n{name} = {value}\n"


def test_plug_in_of_another_distribution(install):
    install("acme-plug", "2.1", entry_points=entry("acme", "acme_plug:Other"), acme_plug=PLUGIN)
    spec = DetectorSpec.parse("acme")
    assert (spec.cls.__name__, spec.origin) == ("Other", "acme-plug 2.1")
    assert "acme" in [point.name for point in installed(DETECTORS)]


def test_two_distributions_with_one_name(install):
    install("acme-plug", "2.1", entry_points=entry("burst", "acme_plug:Other"), acme_plug=PLUGIN)
    words = (
        r"'burst' is offered by (acme-plug 2\.1 and by alert-replay .*|alert.* acme-plug 2\.1)\."
    )
    with pytest.raises(PluginError, match=words):
        DetectorSpec.parse("burst")
    assert DetectorSpec.parse("silent").name == "silent"  # nobody else is affected


@pytest.mark.parametrize(
    ("value", "source", "words"),
    [
        (
            "acme_plug:Other",
            "import tensorplow",
            r"needs 'tensorplow'\.  Try: pip install tensorpl",
        ),
        (
            "acme_plug:Other [deep]",
            "import tensorplow.nn",
            r"needs 'tensorplow'\.  Try: pip install 'acme-plug\[deep\]'",
        ),
        (
            "acme_plug:Gone",
            PLUGIN,
            r"\(acme_plug:Gone, from acme-plug 1\.0\) cannot be loaded: Attr",
        ),
        ("acme_gone:Other", PLUGIN, r"cannot be imported: there is no acme_gone\.  Try: an env"),
        ("acme_plug.sub:Other", PLUGIN, r"cannot be imported: there is no acme_plug"),
        ("acme_plug:Other", "raise OSError('no disk')", r"cannot be loaded: OSError: no disk\."),
        ("acme_plug", PLUGIN, r"acme is not a detector class"),
        ("acme_plug:Other", "class Other: pass", r"acme is not a detector class"),
    ],
)
def test_plug_ins_that_cannot_be_loaded(install, value, source, words):
    install("acme-plug", entry_points=entry("acme", value), acme_plug=source)
    with pytest.raises(PluginError, match=words):
        DetectorSpec.parse("acme")


def test_nothing_is_loaded_before_it_is_asked_for(install):
    install("acme-plug", entry_points=entry("acme", "acme_plug:Other"), acme_plug="1/0")
    assert "acme" in [point.name for point in installed(DETECTORS)]
    assert DetectorSpec.parse("silent").name == "silent"


def test_every_built_in_loads():
    ours = [point for point in installed(DETECTORS) if point.dist.name == "alert-replay"]
    assert len(ours) >= 7
    for point in ours:
        assert issubclass(load(DETECTORS, point.name, "detector"), Detector)


def test_clashes(install, tmp_path, monkeypatch):
    assert clashes() == ()
    install("stranger", packages="detectors\n")
    assert clashes() == ("The package 'detectors' is also installed by stranger.",)
    shadow = tmp_path / "work" / "replay"
    shadow.mkdir(parents=True)
    (shadow / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(shadow.parent)
    monkeypatch.delitem(__import__("sys").modules, "replay")
    (first, second) = clashes()
    assert f"Python finds the package 'replay' at {shadow}, not in " in first
    assert "stranger" in second
