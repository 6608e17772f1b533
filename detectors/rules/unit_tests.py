"""Unit tests for rules, in the format of ``promtool test rules``."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from detectors.rules.documents import Node, compose, read_text
from detectors.rules.durations import format_duration
from detectors.rules.errors import EvaluationError, RuleFileError
from detectors.rules.evaluation import Evaluator, Sample
from detectors.rules.files import RuleFile, read_rules
from detectors.rules.labels import Labels, make, show
from detectors.rules.language import String, parse, ranged, unwrap
from detectors.rules.notation import parse_labels, parse_series
from detectors.rules.program import Program, Settings
from detectors.rules.series import Storage
from detectors.rules.watch import Evaluation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from detectors.rules.evaluation import Dialect
    from detectors.rules.groups import Active
    from detectors.rules.templates import Template

__all__ = ["Outcome", "run_tests"]

_TOP_KEYS = ("rule_files", "evaluation_interval", "group_eval_order", "tests", "fuzzy_compare")
_TEST_KEYS = (
    "name",
    "interval",
    "start_timestamp",
    "input_series",
    "alert_rule_test",
    "promql_expr_test",
    "external_labels",
    "external_url",
)


@dataclass(slots=True)
class Outcome:
    """How the tests of one file went.

    Attributes:
        passed: How many checks held.
        failures: What did not, each with its place.
    """

    passed: int = 0
    failures: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Alert:
    labels: Labels
    annotations: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        shown = ", ".join(f"{name}={text!r}" for name, text in self.annotations)
        return show(self.labels) + (f" with {shown}" if shown else "")


def run_tests(path: str | Path, dialect: Dialect = "prometheus3") -> Outcome:
    """Run the tests in a file.

    Args:
        path: The file; rule files in it are looked for beside it.
        dialect: Which release's windows.

    Raises:
        RuleFileError: The file, or a rule file it names, is bad.
    """
    root = compose(read_text(path), str(path))
    if root is None:
        raise RuleFileError("holds no tests", str(path))
    top = root.mapping("the file", _TOP_KEYS)
    interval = _duration(top, "evaluation_interval", 60_000)
    order = [node.text("a group") for node in _items(top, "group_eval_order")]
    settings = Settings(dialect, scrape=interval, interval=interval)
    files = [file for node in _items(top, "rule_files") for file in _rule_files(node)]
    for file in files:
        Program(file, settings, replayed=False)  # refuses, and names the file
    groups = [group for file in files for group in file.groups]
    groups.sort(key=lambda group: order.index(group.name) if group.name in order else -1)
    program = Program(RuleFile(str(path), tuple(groups)), settings, replayed=False)
    fuzzy = "fuzzy_compare" in top and top["fuzzy_compare"].text("fuzzy_compare") == "true"
    outcome = Outcome()
    for node in _items(top, "tests"):
        _Test(program, node, outcome, fuzzy=fuzzy).run()
    return outcome


def _items(pairs: dict[str, Node], key: str) -> list[Node]:
    return pairs[key].items(key) if key in pairs else []


def _duration(pairs: dict[str, Node], key: str, default: int) -> int:
    return pairs[key].duration(key) if key in pairs else default


def _rule_files(node: Node) -> list[RuleFile]:
    """The rule files that a name or pattern stands for."""
    pattern, folder = node.text("a rule file"), Path(node.path).parent
    found = sorted(folder.glob(pattern)) if re.search(r"[*?\[]", pattern) else [folder / pattern]
    if not found or not all(file.is_file() for file in found):
        raise node.error(f"there is no rule file {pattern!r}")
    return [read_rules(file) for file in found]


class _Test:
    """One entry of ``tests``."""

    def __init__(self, program: Program, node: Node, outcome: Outcome, *, fuzzy: bool) -> None:
        self.program = program
        self.fuzzy = fuzzy
        self.outcome = outcome
        self.node = node
        self.pairs = node.mapping("a test", _TEST_KEYS)
        self.name = self.pairs["name"].text("name") if "name" in self.pairs else ""
        self.start = _start(self.pairs["start_timestamp"]) if "start_timestamp" in self.pairs else 0
        for key in ("external_labels", "external_url"):
            if key in self.pairs and self.pairs[key].raw.value:
                raise self.pairs[key].error(f"{key} is not known here")

    def run(self) -> None:
        samples = self._samples()
        alerts = self._entries("alert_rule_test", ("alertname", "eval_time", "exp_alerts"))
        queries = self._entries("promql_expr_test", ("expr", "eval_time", "exp_samples"))
        last = max(map(self._moment, [*alerts, *queries]), default=self.start)
        storage = Storage()
        evaluation = Evaluation(self.program, storage, keep_alerts=True)
        interval = self.program.settings.interval
        for at in range(self.start, last + 1, interval):
            while samples and samples[-1][0] <= at:  # rules see no sample before its time
                moment, labels, value = samples.pop()
                storage.append(labels, [moment], [value])
            # promtool evaluates every group at every step, whatever its own interval
            evaluation.evaluate(at, list(self.program.file.groups))
            for state in evaluation.states:
                if state.error:
                    where = f"rule {state.rule.name!r} at {self._written(at)}"
                    self._fail(f"{where}: {state.error}", self.node.line)
            for check in alerts:
                if at <= self._moment(check) < at + interval:
                    self._check_alerts(check, evaluation)
        for check in queries:
            self._check_samples(check, storage)

    def _moment(self, check: dict[str, Node]) -> int:
        return self.start + _duration(check, "eval_time", 0)

    def _written(self, moment: int) -> str:
        return format_duration(moment - self.start)

    def _samples(self) -> list[tuple[int, Labels, float]]:
        """All samples, the latest first."""
        samples: list[tuple[int, Labels, float]] = []
        step = _duration(self.pairs, "interval", self.program.settings.interval)
        for pairs in self._entries("input_series", ("series", "values"), needed=2):
            line = f"{pairs['series'].text('series')} {pairs['values'].text('values')}"
            labels, values = pairs["series"].guarded(partial(parse_series, line), "input_series")
            samples += [
                (self.start + number * step, labels, value)
                for number, value in enumerate(values)
                if value is not None
            ]
        samples.sort(key=lambda sample: sample[0])
        samples.reverse()
        return samples

    def _entries(self, key: str, known: tuple[str, ...], needed: int = 1) -> list[dict[str, Node]]:
        out = []
        for node in _items(self.pairs, key):
            pairs = node.mapping(f"an entry of {key}", known)
            for name in known[:needed]:
                if name not in pairs:
                    raise node.error(f"an entry of {key} has no {name}")
            out.append(pairs)
        return out

    def _fail(self, what: str, line: int) -> None:
        name = f" ({self.name})" if self.name else ""
        self.outcome.failures.append(f"{self.node.path}:{line}{name}: {what}")

    def _compare(
        self, what: str, line: int, wanted: list[str], got: list[str], *, alike: bool = False
    ) -> None:
        if alike or sorted(wanted) == sorted(got):
            self.outcome.passed += 1
            return
        shown = [", ".join(sorted(side)) or "nothing" for side in (wanted, got)]
        self._fail(f"{what}: expected {shown[0]}; got {shown[1]}", line)

    # alerts ---------------------------------------------------------------------------------

    def _check_alerts(self, check: dict[str, Node], evaluation: Evaluation) -> None:
        name = check["alertname"].text("alertname")
        wanted = [str(_wanted_alert(node, name)) for node in _items(check, "exp_alerts")]
        got = [
            str(_got_alert(state.rule.annotations, active))
            for state in evaluation.states
            if state.alerts is not None and state.rule.name == name
            for active in state.alerts.active.values()
            if active.fired_at is not None
        ]
        what = f"alert {name} at {self._written(self._moment(check))}"
        self._compare(what, check["alertname"].line, wanted, got)

    # expressions ----------------------------------------------------------------------------

    def _check_samples(self, check: dict[str, Node], storage: Storage) -> None:
        node, moment = check["expr"], self._moment(check)
        text, settings = node.text("expr"), self.program.settings
        expr = node.guarded(lambda: parse(text), "expr")
        evaluator = Evaluator(storage, settings.dialect, subquery_step=settings.interval)
        what = f"{' '.join(text.split())} at {self._written(moment)}"
        wanted = [_wanted_sample(one) for one in _items(check, "exp_samples")]
        if ranged(expr) or isinstance(unwrap(expr), String):
            self._fail(f"{what}: it gives neither a vector nor a number", node.line)
            return
        try:
            answer = evaluator.instant(expr, moment)
        except EvaluationError as error:
            self._fail(f"{what}: {error.what}", node.line)
            return
        if isinstance(answer, float):
            answer = [Sample((), answer)]
        got = [one for one in answer if isinstance(one, Sample)]
        alike = self.fuzzy and _neighbours(wanted, got)
        shown = [[_shown_sample(one) for one in side] for side in (wanted, got)]
        self._compare(what, node.line, *shown, alike=alike)


def _texts(pairs: dict[str, Node], key: str) -> dict[str, str]:
    inner = pairs[key].mapping(key) if key in pairs else {}
    return {name: value.text(name) for name, value in inner.items()}


def _wanted_alert(node: Node, name: str) -> _Alert:
    pairs = node.mapping("an expected alert", ("exp_labels", "exp_annotations"))
    annotations = _texts(pairs, "exp_annotations")
    labels = make({**_texts(pairs, "exp_labels"), "alertname": name})
    return _Alert(labels, tuple(sorted(annotations.items())))


def _got_alert(annotations: Mapping[str, Template], active: Active) -> _Alert:
    pairs, element = {}, active.element
    if element is not None:
        source = dict(element.source)
        pairs = {name: text.render(source, element.value) for name, text in annotations.items()}
    return _Alert(active.labels, tuple(sorted(pairs.items())))


def _start(node: Node) -> int:
    """Milliseconds since 1970, from seconds or a date and time with its zone."""
    text = node.text("start_timestamp")
    try:
        return round(float(text) * 1000)
    except ValueError:
        pass
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        date = None
    if date is None or date.tzinfo is None:
        raise node.error(f"{text!r} is neither seconds nor a time", "2024-01-01T00:00:00Z")
    return round(date.timestamp() * 1000)


def _neighbours(wanted: list[Sample], got: list[Sample]) -> bool:
    """Whether no value is farther off than the next number there is."""
    if len(wanted) != len(got):
        return False
    pairs = zip(*(sorted(side, key=lambda one: one.labels) for side in (wanted, got)), strict=True)
    return all(
        one.labels == other.labels
        and (
            one.value == other.value
            or other.value in {math.nextafter(one.value, side) for side in (-math.inf, math.inf)}
        )
        for one, other in pairs
    )


def _wanted_sample(node: Node) -> Sample:
    pairs = node.mapping("an expected sample", ("labels", "value", "histogram"))
    if "histogram" in pairs:
        raise pairs["histogram"].error("native histograms are not evaluated")
    text = (pairs["labels"].text("labels") if "labels" in pairs else "") or "{}"
    labels, _ = node.guarded(lambda: parse_labels(text), "labels")
    value = pairs["value"].text("value") if "value" in pairs else "0"
    try:
        number = float(re.sub(r"^([-+]?)\.(inf|nan)$", r"\1\2", value, flags=re.IGNORECASE))
    except ValueError:
        raise pairs["value"].error(f"{value!r} is not a number") from None
    return Sample(labels, number)


def _shown_sample(sample: Sample) -> str:
    return f"{show(sample.labels)} {float(sample.value)!r}"
