"""The verb ``detectors``: which there are, what one does, and a start for one's own."""

from __future__ import annotations

import json
import keyword
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from replay.cli.output import aside, command, note, print_json, print_line, print_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from replay.messages import TimedVerdict
    from replay.plugins import DetectorSpec, Option
    from replay.testing import TinyTrace

__all__ = ["detectors"]

FAULT = 10_000.0
"""When a node fails in the example, in seconds since the job's start."""

GUESTS = {
    "token-memory": (
        "bench",
        """Raises, as a job starts, every node that was faulty in another job of the trace.

A reference that bench puts into every table: what does not beat it may only know which machines
are bad. It reads the truth of the other jobs, which no detector ever sees, and so cannot be run.""",
    ),
    "prometheus": (
        "run --live-rules",
        """What a Prometheus of yours said while it watched the replay.

prometheus:ALERT is one alert of the rule file, prometheus the whole file.""",
    ),
}
"""Names that tables show and that are no detectors → which verb adds them, and what they are."""

JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


@click.group()
def detectors() -> None:
    """List, show or start detectors."""


# --- list -------------------------------------------------------------------------------------


@detectors.command("list")
@JSON
def list_(as_json: bool) -> None:
    """List the detectors that are installed."""
    from replay.plugins import DETECTORS, installed

    with aside():
        rows = [_row(name) for name in dict.fromkeys(point.name for point in installed(DETECTORS))]
    if as_json:
        print_json({"schema": 1, "detectors": rows})
        return
    print_table(
        ["<detector", "<what it does", "<options", "<from"],
        [[row["name"], row["what"], " ".join(row["options"]), row["origin"]] for row in rows],
        dim=(number for number, row in enumerate(rows) if row["baseline"]),
    )
    note("Next: alert-replay detectors show NAME")


def _row(name: str) -> dict[str, Any]:
    """One line of the list; a detector that cannot be loaded says so instead of what it does."""
    from replay.errors import PluginError
    from replay.plugins import DETECTORS, detector_class, installed, options_of, owner

    origin = " and ".join(owner(point) for point in installed(DETECTORS) if point.name == name)
    row = {"name": name, "what": "", "baseline": False, "options": {}, "origin": origin}
    try:
        cls = detector_class(name)
    except PluginError as error:
        return row | {"what": str(error), "error": str(error)}
    options = {option.name: _written(option.default) for option in options_of(cls).values()}
    return row | {"what": _first_line(cls), "baseline": cls.baseline, "options": options}


def _first_line(cls: type) -> str:
    return _prose(cls).partition("\n")[0]


def _written(value: Any) -> Any:
    """A default as JSON can say it; detectors as one writes them."""
    import inspect

    if value is inspect.Parameter.empty:
        return "required"
    if isinstance(value, type):
        return _installed_as(value)
    if value and isinstance(value, tuple) and all(isinstance(item, type) for item in value):
        return "+".join(map(_installed_as, value))
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return str(value)
    return value


def _installed_as(cls: type) -> str:
    """The name that a class is installed under, or its own."""
    from replay.plugins import DETECTORS, installed

    target = f"{cls.__module__}:{cls.__qualname__}"
    names = (point.name for point in installed(DETECTORS) if point.value == target)
    return next(names, cls.__name__)


# --- show -------------------------------------------------------------------------------------


@detectors.command()
@click.argument("name")
@JSON
def show(name: str, as_json: bool) -> None:
    """Show what a detector does, its options, its cost, and an example.

    NAME is an installed detector or FILE.py:Class; options may follow, as in burst:window=30.
    """
    from replay.plugins import DETECTORS, DetectorSpec, installed, options_of
    from replay.testing import play

    guest = name.partition(":")[0]
    if guest in GUESTS and guest not in {point.name for point in installed(DETECTORS)}:
        _show_guest(guest, as_json=as_json)
        return
    scene = _scene()
    with aside():
        spec = DetectorSpec.parse(name)
        verdicts = play(scene.job, scene.alerts, spec, end=scene.end)
        cost = _cost(spec)
    told = {
        "schema": 1,
        "name": spec.name,
        "doc": _prose(spec.cls),
        "baseline": spec.cls.baseline,
        "origin": spec.origin,
        "options": [_option(option, spec.options) for option in options_of(spec.cls).values()],
        "us_per_alert": round(cost, 3),
        "example": {
            "picture": _picture(scene, verdicts),
            "verdicts": [
                {
                    "t": timed.at,
                    "ip": timed.verdict.node,
                    "action": timed.verdict.action,
                    "score": timed.verdict.score,
                    "reason": timed.verdict.reason,
                }
                for timed in verdicts
            ],
        },
    }
    if as_json:
        print_json(told)
    else:
        _print_shown(told)


def _show_guest(name: str, *, as_json: bool) -> None:
    """Say what a name means that is no detector's."""
    origin, doc = GUESTS[name]
    if as_json:
        told = {"schema": 1, "name": name, "doc": doc, "baseline": name == "token-memory"}
        print_json(told | {"origin": origin, "options": [], "us_per_alert": None, "example": None})
        return
    print_line(f"{name}  (no detector; from {origin})\n\n{doc}")


def _prose(cls: type) -> str:
    """A class's docstring up to its first section, without markup."""
    import inspect

    lines = inspect.cleandoc(cls.__doc__ or "").splitlines()
    sections = [number for number, line in enumerate(lines) if line in {"Args:", "Examples:"}]
    text = "\n".join(lines[: sections[0]] if sections else lines).strip()
    return _plain(text.replace("\n\n::\n\n", "\n\n"))


def _plain(text: str) -> str:
    """Prose without markup."""
    return re.sub(r":\w+:`([^`]+)`", r"\1", text).replace("``", "")


def _option(option: Option, given: Mapping[str, Any]) -> dict[str, Any]:
    told = {
        "name": option.name,
        "type": option.type_name,
        "default": _written(option.default),
        "doc": _plain(option.doc),
    }
    return told | ({"value": _written(given[option.name])} if option.name in given else {})


def _cost(spec: DetectorSpec) -> float:
    """Microseconds per alert, the median over a few plays of a stream of some thousand alerts."""
    import statistics

    from replay.api import Job
    from replay.host import JobHost
    from replay.testing import stream

    nodes = tuple(f"node-{number:02}" for number in range(16))
    rows = [
        (float(number // 8), nodes[number * number % 16], f"kind-{number % 7}")
        for number in range(4000)
    ]
    messages = stream(Job("measured", nodes), rows)
    costs = []
    for _ in range(5):
        host = JobHost([spec])
        for message in messages:
            host.feed(message)
        cost = host.tally.costs[spec.name]
        costs.append(cost.ns / 1e3 / max(1, cost.alerts))
    return statistics.median(costs)


def _scene() -> TinyTrace:
    """Hours of humming and chatter; then a node says what is wrong with it, and the others fall."""
    from replay.api import Job
    from replay.testing import TinyTrace

    nodes = tuple(f"node-{letter}" for letter in "abcdefghijkl")
    hum = [(400.0 * number + 7.0, nodes[5 * number % 12], "ecc") for number in range(25)]
    chatter = [(5000.0 + 3.0 * number, "node-b", "fan_speed") for number in range(100)]
    words = ("xid_48", "row_remap_failure", "dcgm_unhealthy")
    fault = [(FAULT + number, "node-c", kind) for number, kind in enumerate(words)]
    polls = [(FAULT + 12.0 * number, "node-c", "xid_48") for number in range(1, 8)]
    cascade = [
        (FAULT + 6.0 + number % 5, node, kind)
        for number, node in enumerate(nodes)
        if node != "node-c"
        for kind in ("process_exit", "connection_reset_by_peer")
    ]
    rows = sorted(hum + chatter + fault + polls + cascade, key=lambda row: row[0])
    return TinyTrace("scene", Job("scene", nodes, "Hopper"), tuple(rows), FAULT + 110.0)


def _picture(scene: TinyTrace, verdicts: Iterable[TimedVerdict]) -> list[str]:
    """The end of the scene: a row for each node, a column for two seconds."""
    begin, width = FAULT - 10.0, 60

    def column(at: float) -> int:
        return max(0, min(int((at - begin) / 2.0), width - 1))

    rows = {node: ["."] * width for node in (*scene.job.nodes, "the job")}
    for at, node, _ in scene.alerts:
        if at >= begin:
            cell = rows[node][column(at)]
            rows[node][column(at)] = str(min(9, int(cell.replace(".", "0")) + 1))
    for timed in verdicts:
        if timed.at < begin:
            continue
        node = timed.verdict.node or "the job"
        rows[node][column(timed.at)] = "!" if timed.verdict.action == "raise" else "-"
    head = "".join(f"{begin + 2 * number:<10g}" for number in range(0, width, 10)).rstrip()
    left = max(map(len, rows))
    return [f"{'seconds':<{left}}  {head}"] + [
        f"{node:<{left}}  {''.join(cells)}" for node, cells in rows.items()
    ]


def _print_shown(told: dict[str, Any]) -> None:
    print_line(f"{told['name']}  (from {told['origin']}{', a baseline' * told['baseline']})")
    print_line(f"\n{told['doc']}\n")
    if told["options"]:
        print_table(
            ["<option", "<type", "<default", "<what it means"],
            [[o["name"], o["type"], str(o["default"]), o["doc"]] for o in told["options"]],
        )
        print_line("")
    print_line(f"Cost here: {told['us_per_alert']:.2f} microseconds per alert.\n")
    print_line("Example, the end of a job of hours in which node-c fails and the others then fall.")
    print_line("Digits count alerts in two seconds, ! is a raise, - a retraction.\n")
    for line in told["example"]["picture"]:
        print_line(f"  {line}")
    print_line("")
    for said in told["example"]["verdicts"]:
        about = said["ip"] or "the job"
        print_line(f"  {said['t']:g} s  {said['action']} {about}: {said['reason'] or 'no reason'}")
    if not told["example"]["verdicts"]:
        print_line("  It says nothing here.")


# --- new --------------------------------------------------------------------------------------


@detectors.command()
@click.argument("name")
@click.option("--dir", "folder", type=click.Path(path_type=Path), default=Path(), help="Where to.")
@JSON
def new(name: str, folder: Path, as_json: bool) -> None:
    """Write a detector that works, and a test of its contract that passes."""
    module, cls = _names(name)
    files = {
        folder / f"{module}.py": _DETECTOR,
        folder / f"test_{module}.py": _TEST,
    }
    _write(files, {"MODULE": module, "CLASS": cls})
    detector, test = files
    if as_json:
        print_json({"schema": 1, "detector": f"{detector}:{cls}", "files": [str(f) for f in files]})
        return
    print_line(f"Wrote {detector} and {test}.")
    note(f"Next: python -m pytest {shlex.quote(str(test))} (after: pip install pytest)")
    note(f"      {command('detectors', 'show', f'{detector}:{cls}')}")


def _names(name: str) -> tuple[str, str]:
    """The module's and the class's name; refuses names that would get in the way."""
    from replay.errors import UsageError
    from replay.plugins import DETECTORS, installed

    module = name.replace("-", "_")
    if not (module.isascii() and module.isidentifier() and module == module.lower().strip("_")):
        raise UsageError(f"{name!r} does not name a detector.", "lower-case words and dashes")
    if keyword.iskeyword(module) or module in {*sys.stdlib_module_names, "replay", "detectors"}:
        raise UsageError(f"{name!r} would hide a Python module of that name.", f"my-{name}")
    if name in {point.name for point in installed(DETECTORS)}:
        raise UsageError(f"There is a detector {name!r} already.", f"my-{name}")
    return module, "".join(word.capitalize() for word in module.split("_"))


def _write(files: Mapping[Path, str], words: Mapping[str, str]) -> None:
    from replay.errors import UsageError

    for file in files:
        if file.exists():
            raise UsageError(f"{file} is there already, and stays as it is.", "another name")
    for file, text in files.items():
        for word, value in words.items():
            text = text.replace(word, value)  # noqa: PLW2901 - filled in word by word
        try:
            with file.open("x", encoding="utf-8") as out:
                out.write(text)
        except OSError as error:
            raise UsageError(f"{file} cannot be written: {error.strerror}.") from error


_DETECTOR = '''"""A detector of one's own: CLASS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replay.api import Detector, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from replay.api import Alert, Job


class CLASS(Detector):
    """Blames a node that shows several kinds of alert within a short while, once.

    Args:
        job: The job to watch.
        kinds: How many kinds it takes.
        window: Seconds within which they must come.

    Examples:
        >>> from replay.api import Job
        >>> from replay.testing import play
        >>> alerts = [(0.0, "a", "ecc"), (1.0, "b", "ecc"), (5.0, "b", "xid")]
        >>> for timed in play(Job("Job1", ("a", "b")), alerts, CLASS):
        ...     print(timed.at, timed.verdict.node, timed.verdict.reason)
        5.0 b 2 kinds within 60 s

    """

    def __init__(self, job: Job, *, kinds: int = 2, window: float = 60.0) -> None:
        super().__init__(job)
        if kinds < 1:
            raise ValueError(f"kinds must be at least 1, not {kinds}")
        if not window > 0:
            raise ValueError(f"window must be positive, not {window}")
        self._kinds = kinds
        self._window = window
        self._newest: dict[str, dict[str, float]] = {}  # node, kind: when it was last seen
        self._blamed: set[str] = set()

    def observe(self, alert: Alert) -> Iterable[Verdict]:
        """Called once for each alert, in order. Time is alert.at; never read a clock here."""
        if self.job.nodes and alert.node not in self.job.nodes:
            return
        newest = self._newest.setdefault(alert.node, {})
        newest[alert.kind] = alert.at
        lately = [kind for kind, at in newest.items() if at >= alert.at - self._window]
        if len(lately) >= self._kinds and alert.node not in self._blamed:
            self._blamed.add(alert.node)
            yield Verdict(
                alert.node,
                reason=f"{len(lately)} kinds within {self._window:g} s",
                evidence=(alert.seq,),
            )
'''

_TEST = '''"""The contract that every detector keeps, and what this one is for."""

from __future__ import annotations

from pathlib import Path

import pytest

from replay.api import Job
from replay.plugins import DetectorSpec
from replay.testing import detector_checks, play

SPEC = DetectorSpec.parse(f"{Path(__file__).with_name('MODULE.py')}:CLASS")


@pytest.mark.parametrize("check", detector_checks(SPEC), ids=lambda check: check.__name__)
def test_contract(check):
    check()


def test_blames_the_node_that_shows_several_kinds():
    alerts = [(0.0, "a", "ecc"), (1.0, "b", "ecc"), (5.0, "b", "xid")]
    verdicts = play(Job("Job1", ("a", "b")), alerts, SPEC)
    assert [(timed.at, timed.verdict.node) for timed in verdicts] == [(5.0, "b")]
'''
