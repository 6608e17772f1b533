"""Runs scripts in the test language of Prometheus's PromQL engine against ours.

    python tests/promqltest.py FILE.test.. [--dialect prometheus3|prometheus2] [--delayed-names]

Prints every failure and every refusal with its line, and last ``N passed, N failed, N refused``.
A query is *refused* when the evaluator says by name that it does not evaluate something in it
(native histograms, experimental syntax); it is *failed* when the answer is another one.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

from detectors.rules.durations import parse_duration
from detectors.rules.errors import EvaluationError, LanguageError, Unsupported
from detectors.rules.evaluation import DIALECTS, Evaluator, Sample, Series
from detectors.rules.labels import Labels, show
from detectors.rules.language import parse
from detectors.rules.notation import parse_labels, parse_values
from detectors.rules.series import Storage

TOLERANCE = 1e-6
_NATIVE = "native histograms are not evaluated"
SMALLEST_NORMAL = 2.2250738585072014e-308

_LOAD = re.compile(r"load(?P<nhcb>_with_nhcb)?\s+(?P<step>\S+)")
_INSTANT = re.compile(
    r"eval(?:_(?P<mode>fail|warn|ordered|info))?\s+instant\s+(?:at\s+(?P<at>\S+))?\s+(?P<query>.+)"
)
_RANGE = re.compile(
    r"eval(?:_(?P<mode>fail|warn|info))?\s+range\s+from\s+(?P<start>\S+)\s+to\s+(?P<end>\S+)"
    r"\s+step\s+(?P<step>\S+)\s+(?P<query>.+)"
)
_EXPECT = re.compile(
    r"expect\s+(?P<kind>ordered|fail|warn|no_warn|info|no_info|string|range\s+vector)"
    r"(?:\s+(?P<match>regex|msg):\s*(?P<text>.+))?(?P<rest>.*)"
)
_VECTOR_RANGE = re.compile(r"\s*from\s+(?P<start>\S+)\s+to\s+(?P<end>\S+)\s+step\s+(?P<step>\S+)")

_POSITION = re.compile(r" \\?\((?:[0-9]+:[0-9]+|\[0-9\]\+:\[0-9\]\+)\\?\)$")
"""Where in the query a remark arose, or an expression for it; ours do not say."""


class ScriptError(Exception):
    """The script itself cannot be read."""


@dataclass
class Expectations:
    """What a query should give."""

    ordered: bool = False
    fail: list[tuple[str, str]] | None = None
    notes: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    no_warn: bool = False
    no_info: bool = False
    string: str | None = None
    scalar: float | None = None
    spacing: tuple[int, int] | None = None
    series: list[tuple[Labels, list[float | None]]] = field(default_factory=list)
    refused: str = ""


@dataclass
class Query:
    """One ``eval`` and where it stands."""

    line: int
    text: str
    start: int
    end: int
    step: int | None
    expected: Expectations = field(default_factory=Expectations)


@dataclass
class Outcome:
    """How the queries of one file went."""

    passed: int = 0
    failed: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


def moment(text: str) -> int:
    """A time or step in milliseconds: a duration, or seconds."""
    try:
        return round(float(text) * 1000)
    except ValueError:
        return -parse_duration(text[1:]) if text.startswith("-") else parse_duration(text)


class Script:
    """Reads one file and runs it, command by command."""

    def __init__(self, path: Path, dialect: str, *, delayed_names: bool | None = None) -> None:
        self.path = path
        self.dialect = dialect
        self.delayed_names = dialect == "prometheus3" if delayed_names is None else delayed_names
        self.storage = Storage()
        self.outcome = Outcome()

    def run(self) -> Outcome:
        """Run all commands of the file."""
        lines = self.path.read_text(encoding="utf-8").splitlines()
        number = 0
        while number < len(lines):
            line = lines[number].strip()
            body, after = self._body(lines, number + 1)
            if not line or line.startswith("#"):
                number += 1
                continue
            if line == "clear":
                self.storage = Storage()
                number += 1
            else:
                try:
                    self._command(line, body, number + 1)
                except ScriptError as error:  # told, and the rest is run all the same
                    self.outcome.failed.append(str(error))
                number = after
        return self.outcome

    def _command(self, line: str, body: list[tuple[int, str]], number: int) -> None:
        if line.startswith("load"):
            self._load(line, body, number)
        elif line.startswith("eval"):
            self._eval(line, body, number)
        else:
            raise ScriptError(f"{self.path}:{number}: unknown command {line!r}")

    @staticmethod
    def _body(lines: list[str], number: int) -> tuple[list[tuple[int, str]], int]:
        """The lines that belong to a command: up to an empty one."""
        body = []
        while number < len(lines) and lines[number].strip():
            line = lines[number].strip()
            if re.match(r"(load(_with_nhcb)?|eval(_\w+)?)\s|clear$", line):
                break
            if not line.startswith("#"):
                body.append((number + 1, line))
            number += 1
        return body, number

    def _load(self, line: str, body: list[tuple[int, str]], number: int) -> None:
        found = _LOAD.fullmatch(line)
        if found is None:
            raise ScriptError(f"{self.path}:{number}: bad load command {line!r}")
        step = moment(found["step"])
        samples = {}  # a series named twice in one load counts as it stands last
        for place, text in body:
            try:
                labels, rest = parse_labels(text)
                if "{{" in rest or rest.startswith("@st"):
                    reason = "start timestamps" if rest.startswith("@") else "native histograms"
                    self.storage.refused[labels] = f"{reason} are not evaluated"
                    continue
                values = parse_values(rest)
            except LanguageError as error:
                raise ScriptError(f"{self.path}:{place}: {error}") from None
            if found["nhcb"]:
                self._load_native_twin(labels)
            samples[labels] = [(i * step, v) for i, v in enumerate(values) if v is not None]
        for labels, known in samples.items():
            self.storage.append(labels, [t for t, _ in known], [v for _, v in known])

    def _load_native_twin(self, labels: Labels) -> None:
        """Classic buckets are loaded once more as a native histogram, which we do not hold."""
        pairs = dict(labels)
        name = pairs["__name__"]
        if name.endswith("_bucket"):
            pairs.pop("le", None)
            pairs["__name__"] = name.removesuffix("_bucket")
            self.storage.refused[tuple(sorted(pairs.items()))] = _NATIVE

    def _eval(self, line: str, body: list[tuple[int, str]], number: int) -> None:
        query, mode = self._query(line, number)
        self._expect(query, mode, body)
        try:
            problem = self._problem(query)
        except Unsupported as error:
            self.outcome.refused.append(f"{self.path}:{number}: {query.text}\n    {error}")
            return
        if problem:
            self.outcome.failed.append(f"{self.path}:{number}: {query.text}\n    {problem}")
        else:
            self.outcome.passed += 1

    def _query(self, line: str, number: int) -> tuple[Query, str]:
        found = _RANGE.fullmatch(line)
        if found is not None:
            span = [moment(found[name]) for name in ("start", "end", "step")]
            return Query(number, found["query"], *span), found["mode"] or ""
        found = _INSTANT.fullmatch(line)
        if found is None:
            raise ScriptError(f"{self.path}:{number}: bad eval command {line!r}")
        at = moment(found["at"] or "0")
        return Query(number, found["query"], at, at, None), found["mode"] or ""

    def _expect(self, query: Query, mode: str, body: list[tuple[int, str]]) -> None:
        expected = query.expected
        if mode == "fail":
            expected.fail = []
        elif mode in {"warn", "info"}:
            expected.notes[mode] = []
        expected.ordered = mode == "ordered"
        for place, text in body:
            if text.startswith("expect"):
                self._expect_line(query, text, place)
            else:
                self._expect_result(query, text, place)

    def _expect_line(self, query: Query, text: str, place: int) -> None:
        expected = query.expected
        old = re.match(r"expected_fail_(message|regexp)\s+(.+)", text)
        if old is not None:
            kind = "msg" if old[1] == "message" else "regex"
            expected.fail = [*(expected.fail or []), (kind, old[2])]
            return
        found = _EXPECT.fullmatch(text)
        if found is None:
            raise ScriptError(f"{self.path}:{place}: bad expectation {text!r}")
        kind = found["kind"]
        matches = [(found["match"], found["text"].strip())] if found["match"] else []
        if kind == "ordered":
            expected.ordered = True
        elif kind == "fail":
            expected.fail = (expected.fail or []) + matches
        elif kind in {"warn", "info"}:
            expected.notes.setdefault(kind, []).extend(matches)
        elif kind == "no_warn":
            expected.no_warn = True
        elif kind == "no_info":
            expected.no_info = True
        elif kind == "string":
            rest = found["rest"].removeprefix(" ")
            expected.string = parse(rest).value if rest[:1] in {'"', "'", "`"} else rest
        else:
            spacing = _VECTOR_RANGE.fullmatch(found["rest"])
            if spacing is None:
                raise ScriptError(f"{self.path}:{place}: bad expectation {text!r}")
            expected.spacing = (moment(spacing["start"]), moment(spacing["step"]))

    def _expect_result(self, query: Query, text: str, place: int) -> None:
        expected = query.expected
        try:
            expected.scalar = float(text)
        except ValueError:
            pass
        else:
            return
        if text[0] in {'"', "'", "`"}:
            expected.string = parse(text).value
            return
        try:
            labels, rest = parse_labels(text)
            expected.series.append((labels, parse_values(rest)))
        except Unsupported as error:
            expected.refused = str(error)
        except LanguageError as error:
            raise ScriptError(f"{self.path}:{place}: {error}") from None

    def _problem(self, query: Query) -> str:
        """What is wrong with our answer; empty when nothing is."""
        expected = query.expected
        evaluator = Evaluator(self.storage, self.dialect, delayed_names=self.delayed_names)
        try:
            expr = parse(query.text, experimental=True)
            if query.step is None:
                answer = evaluator.instant(expr, query.start)
            else:
                answer = evaluator.range(expr, query.start, query.end, query.step)
        except Unsupported:
            if expected.fail is not None:
                return ""
            raise
        except (LanguageError, EvaluationError) as error:
            return _failure_problem(expected, str(error))
        if expected.refused:
            raise Unsupported("{{...}}", "native histograms are not evaluated")
        if expected.fail is not None:
            return f"should fail, but gives {_shown(answer)}"
        if self.dialect == "prometheus3":
            problem = _notes_problem(expected, list(evaluator.notes))
            if problem:
                return problem
        if query.step is None:
            return _instant_problem(expected, answer)
        return _range_problem(query, answer)


def _failure_problem(expected: Expectations, error: str) -> str:
    if expected.fail is None:
        return f"fails: {error}"
    for kind, text in expected.fail:
        if kind == "msg" and text not in error:
            return f"fails with {error!r}, not with {text!r}"
        if kind == "regex" and not re.search(text, error):
            return f"fails with {error!r}, which does not match {text!r}"
    return ""


def _notes_problem(expected: Expectations, notes: list[str]) -> str:
    by_kind = {
        "warn": [note for note in notes if note.startswith("PromQL warning")],
        "info": [note for note in notes if note.startswith("PromQL info")],
    }
    for kind, wanted in expected.notes.items():
        if not by_kind[kind]:
            return f"lacks a remark of kind {kind}"
        for match, text in [(match, _POSITION.sub("", text)) for match, text in wanted]:
            if not any(
                text in note if match == "msg" else re.search(text, note) for note in by_kind[kind]
            ):
                return f"lacks the remark {text!r}, has {by_kind[kind]}"
    if expected.no_warn and by_kind["warn"]:
        return f"has a warning: {by_kind['warn']}"
    if expected.no_info and by_kind["info"]:
        return f"has a remark: {by_kind['info']}"
    return ""


def almost_equal(first: float, second: float) -> bool:
    """Equal but for rounding, as Prometheus's own tests have it."""
    if first == second or (math.isnan(first) and math.isnan(second)):
        return True
    if math.isnan(first) or math.isnan(second) or math.isinf(first) or math.isinf(second):
        return False
    total, difference = abs(first) + abs(second), abs(first - second)
    if first == 0 or second == 0 or total < SMALLEST_NORMAL:
        return difference < TOLERANCE * SMALLEST_NORMAL
    return difference / min(total, 1.7976931348623157e308) < TOLERANCE


def _shown(answer: object) -> str:
    if isinstance(answer, list):
        parts = []
        for element in answer:
            if isinstance(element, Sample):
                parts.append(f"{show(element.labels)} {element.value!r}")
            else:
                pairs = zip(element.times, element.values, strict=True)
                points = " ".join(f"{value!r}@{time}" for time, value in pairs)
                parts.append(f"{show(element.labels)} {points}")
        return "; ".join(parts) or "nothing"
    return repr(answer)


def _instant_problem(expected: Expectations, answer: object) -> str:
    if isinstance(answer, str):
        return "" if answer == expected.string else f"gives {answer!r}, not {expected.string!r}"
    if isinstance(answer, float):
        if expected.scalar is not None and almost_equal(answer, expected.scalar):
            return ""
        return f"gives {answer!r}, not {expected.scalar!r}"
    if expected.scalar is not None:
        return f"gives {_shown(answer)}, not {expected.scalar!r}"
    if expected.spacing is not None or (answer and isinstance(answer[0], Series)):
        start, step = expected.spacing or (0, 1)
        return _series_problem(expected, answer, start, step)
    wanted = [(labels, values[0]) for labels, values in expected.series]
    got = [(sample.labels, sample.value) for sample in answer]
    if not expected.ordered:
        wanted.sort(key=lambda pair: pair[0])
        got.sort(key=lambda pair: pair[0])
    same = len(wanted) == len(got) and all(
        a[0] == b[0] and a[1] is not None and almost_equal(b[1], a[1])
        for a, b in zip(wanted, got, strict=True)
    )
    shown = "; ".join(f"{show(labels)} {value!r}" for labels, value in wanted)
    return "" if same else f"gives {_shown(answer)}, not {shown or 'nothing'}"


def _range_problem(query: Query, answer: object) -> str:
    expected = query.expected
    if expected.scalar is not None and not expected.series:
        steps = (query.end - query.start) // query.step + 1
        expected.series = [((), [expected.scalar] * steps)]
    return _series_problem(expected, answer, query.start, query.step)


def _series_problem(expected: Expectations, answer: list[Series], start: int, step: int) -> str:
    wanted = {}
    for labels, values in expected.series:
        points = [(start + i * step, v) for i, v in enumerate(values) if v is not None]
        if points:
            wanted[labels] = points
    got = {one.labels: list(zip(one.times, one.values, strict=True)) for one in answer}
    same = wanted.keys() == got.keys() and all(
        len(points) == len(got[labels])
        and all(
            a[0] == b[0] and almost_equal(b[1], a[1])
            for a, b in zip(points, got[labels], strict=True)
        )
        for labels, points in wanted.items()
    )
    shown = "; ".join(
        f"{show(labels)} " + " ".join(f"{v!r}@{t}" for t, v in points)
        for labels, points in wanted.items()
    )
    return "" if same else f"gives {_shown(answer)}, not {shown or 'nothing'}"


def main(arguments: list[str] | None = None) -> int:
    """Run the files named and print how they went."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE.test")
    parser.add_argument("--dialect", choices=DIALECTS, default="prometheus3")
    parser.add_argument(
        "--delayed-names",
        action=argparse.BooleanOptionalAction,
        help="whether names are dropped last, as scripts of 2.55 and of 3.x expect "
        "(default: in prometheus3)",
    )
    options = parser.parse_args(arguments)
    total = Outcome()
    for path in options.files:
        try:
            outcome = Script(path, options.dialect, delayed_names=options.delayed_names).run()
        except (ScriptError, OSError, UnicodeDecodeError) as error:
            total.failed.append(f"{path}: {error}")
            continue
        total.passed += outcome.passed
        total.failed += outcome.failed
        total.refused += outcome.refused
    for problem in total.failed:
        print("FAILED", problem)  # noqa: T201 - a command
    for refusal in total.refused:
        print("refused", refusal)  # noqa: T201 - a command
    print(  # noqa: T201 - a command
        f"{total.passed} passed, {len(total.failed)} failed, {len(total.refused)} refused"
    )
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
