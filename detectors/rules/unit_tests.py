"""Unit tests for rules, in the format of ``promtool test rules``."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from detectors.rules.documents import Node, compose, read_text
from detectors.rules.durations import format_duration
from detectors.rules.errors import EvaluationError, RuleFileError
from detectors.rules.evaluation import Evaluator, Sample
from detectors.rules.files import RuleFile, read_rules
from detectors.rules.labels import Labels, make, show
from detectors.rules.language import parse
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
    groups = [
        group
        for node in _items(top, "rule_files")
        for file in _rule_files(node)
        for group in file.groups
    ]
    groups.sort(key=lambda group: order.index(group.name) if group.name in order else -1)
    settings = Settings(dialect, scrape=interval, interval=interval)
    program = Program(RuleFile(str(path), tuple(groups)), settings, replayed=False)
    outcome = Outcome()
    for node in _items(top, "tests"):
        _Test(program, node, outcome).run()
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

    def __init__(self, program: Program, node: Node, outcome: Outcome) -> None:
        self.program = program
        self.outcome = outcome
        self.node = node
        self.pairs = node.mapping("a test", _TEST_KEYS)
        self.name = self.pairs["name"].text("name") if "name" in self.pairs else ""
        for key in ("external_labels", "external_url"):
            if key in self.pairs and self.pairs[key].raw.value:
                raise self.pairs[key].error(f"{key} is not known here")

    def run(self) -> None:
        samples = self._samples()
        alerts = self._entries("alert_rule_test", ("eval_time", "alertname", "exp_alerts"))
        queries = self._entries("promql_expr_test", ("expr", "eval_time", "exp_samples"))
        checks = [*alerts, *queries]
        last = max((_duration(check, "eval_time", 0) for check in checks), default=-1)
        storage = Storage()
        evaluation = Evaluation(self.program, storage, keep_alerts=True)
        interval = self.program.settings.interval
        for at in range(0, last + 1, interval):
            while samples and samples[-1][0] <= at:  # rules see no sample before its time
                moment, labels, value = samples.pop()
                storage.append(labels, [moment], [value])
            # promtool evaluates every group at every step, whatever its own interval
            evaluation.evaluate(at, list(self.program.file.groups))
            for state in evaluation.states:
                if state.error:
                    where = f"rule {state.rule.name!r} at {format_duration(at)}"
                    self._fail(f"{where}: {state.error}", self.node.line)
            for check in alerts:
                if at <= _duration(check, "eval_time", 0) < at + interval:
                    self._check_alerts(check, evaluation)
        for check in queries:
            self._check_samples(check, storage)

    def _samples(self) -> list[tuple[int, Labels, float]]:
        """All samples, the latest first."""
        samples: list[tuple[int, Labels, float]] = []
        step = _duration(self.pairs, "interval", self.program.settings.interval)
        for pairs in self._entries("input_series", ("series", "values")):
            line = f"{pairs['series'].text('series')} {pairs['values'].text('values')}"
            labels, values = pairs["series"].guarded(partial(parse_series, line), "input_series")
            samples += [
                (n * step, labels, value) for n, value in enumerate(values) if value is not None
            ]
        samples.sort(key=lambda sample: sample[0])
        samples.reverse()
        return samples

    def _entries(self, key: str, known: tuple[str, ...]) -> list[dict[str, Node]]:
        out = []
        for node in _items(self.pairs, key):
            pairs = node.mapping(f"an entry of {key}", known)
            for needed in known[:2]:
                if needed not in pairs:
                    raise node.error(f"an entry of {key} has no {needed}")
            out.append(pairs)
        return out

    def _fail(self, what: str, line: int) -> None:
        name = f" ({self.name})" if self.name else ""
        self.outcome.failures.append(f"{self.node.path}:{line}{name}: {what}")

    def _compare(self, what: str, line: int, wanted: list[str], got: list[str]) -> None:
        if sorted(wanted) == sorted(got):
            self.outcome.passed += 1
            return
        shown = [", ".join(sorted(side)) or "nothing" for side in (wanted, got)]
        self._fail(f"{what}: expected {shown[0]}; got {shown[1]}", line)

    # alerts ---------------------------------------------------------------------------------

    def _check_alerts(self, check: dict[str, Node], evaluation: Evaluation) -> None:
        name, moment = check["alertname"].text("alertname"), _duration(check, "eval_time", 0)
        wanted = [str(_wanted_alert(node, name)) for node in _items(check, "exp_alerts")]
        got = [
            str(_got_alert(state.rule.annotations, active))
            for state in evaluation.states
            if state.alerts is not None and state.rule.name == name
            for active in state.alerts.active.values()
            if active.fired_at is not None
        ]
        what = f"alert {name} at {format_duration(moment)}"
        self._compare(what, check["alertname"].line, wanted, got)

    # expressions ----------------------------------------------------------------------------

    def _check_samples(self, check: dict[str, Node], storage: Storage) -> None:
        node, moment = check["expr"], _duration(check, "eval_time", 0)
        text, settings = node.text("expr"), self.program.settings
        expr = node.guarded(lambda: parse(text), "expr")
        evaluator = Evaluator(storage, settings.dialect, subquery_step=settings.interval)
        what = f"{' '.join(text.split())} at {format_duration(moment)}"
        wanted = [_wanted_sample(one) for one in _items(check, "exp_samples")]
        try:
            answer = evaluator.instant(expr, moment)
        except EvaluationError as error:
            self._fail(f"{what}: {error.what}", node.line)
            return
        if isinstance(answer, float):
            answer = [Sample((), answer)]
        samples = [one for one in answer if isinstance(one, Sample)]
        got = [_shown_sample(one.labels, one.value) for one in samples]
        self._compare(what, node.line, wanted, got)


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


def _wanted_sample(node: Node) -> str:
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
    return _shown_sample(labels, number)


def _shown_sample(labels: Labels, value: float) -> str:
    return f"{show(labels)} {float(value)!r}"
