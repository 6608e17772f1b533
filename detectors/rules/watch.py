"""A rule file over one job: step by step as time goes, or the whole job at once.

Both give the same verdicts. At one instant the scrape comes first, then the groups in the order
of the file, and in a group its rules in order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from detectors.rules.counters import Census, Counters, History
from detectors.rules.errors import EvaluationError
from detectors.rules.evaluation import Evaluator
from detectors.rules.groups import Alerts, Change, Element, identity, recorded
from detectors.rules.keys import starts
from detectors.rules.labels import NAME, Labels, show
from detectors.rules.series import STALE, Storage
from detectors.rules.vectors import Vector
from replay.api import Job, Verdict

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from detectors.rules.files import Group, Rule
    from detectors.rules.program import Program

    Times = NDArray[np.int64]
    Elements = list[tuple[Labels, float]]

__all__ = [
    "Changes",
    "Evaluation",
    "Watch",
    "changes_of",
    "judge",
    "ticks",
    "verdicts_of",
]

Changes = list[tuple["Rule", Change]]
"""What alerts did at one instant, in the order of their rules."""


_FARTHEST = 256
"""How many instants are evaluated beforehand at most."""


def _after(at: int, period: int, offset: int) -> int:
    """The first whole multiple, shifted by ``offset``, that is later."""
    return (at - offset) // period * period + period + offset


def first_tick(first_alert: float | None, program: Program) -> int:
    """The scrape at which watching begins: that of the start, or of an earlier alert."""
    if first_alert is None or first_alert >= 0:
        return 0
    scrape = program.settings.scrape
    tick = int(np.floor(first_alert * 1000 / scrape)) * scrape
    while tick / 1000.0 < first_alert:
        tick += scrape
    return tick


def ticks(start: int, end: float, period: int, offset: int) -> Times:
    """All times of a grid from ``start`` (milliseconds) to ``end`` (seconds)."""
    first = _after(start - 1, period, offset)
    last = int(np.ceil(end * 1000)) + 1
    grid = np.arange(first, last + 1, period, dtype=np.int64)
    return grid[grid / 1000.0 <= end]


@dataclass(slots=True)
class Book:
    """Who is accused: turns what alerts do into verdicts on nodes.

    Several alerts may accuse one node; it is raised with the first and retracted with the last.

    Attributes:
        label: The label that names the node.
        alert: The one alert that is listened to; empty for all.
    """

    label: str
    alert: str = ""
    _firing: dict[str | None, int] = field(default_factory=dict)
    _nodes: dict[Labels, str | None] = field(default_factory=dict, repr=False)
    _shown: dict[Labels, str] = field(default_factory=dict, repr=False)

    def take(self, changes: Changes) -> list[Verdict]:
        """Take in all changes of one instant."""
        before: dict[str | None, int] = {}
        first: dict[str | None, tuple[Rule, Change]] = {}  # that accuse each node
        for rule, change in changes:
            if self.alert and self.alert != rule.name:
                continue
            node = self._node(change.labels)
            firing = self._firing.get(node, 0)
            before.setdefault(node, firing)
            if change.kind == "firing":
                self._firing[node] = firing + 1
                first.setdefault(node, (rule, change))
            else:
                self._firing[node] = firing - 1
        nodes = list(before)
        if len(nodes) > 1:
            nodes.sort(key=lambda name: (name is not None, name or ""))
        verdicts = []
        for node in nodes:
            now = self._firing[node]
            if now and not before[node]:
                verdicts.append(Verdict(node, "raise", reason=self._reason(*first[node])))
            elif before[node] and not now:
                verdicts.append(Verdict(node, "retract", reason="resolved"))
            if not now:
                del self._firing[node]
        return verdicts

    def _node(self, labels: Labels) -> str | None:
        """The node that an alert names."""
        try:
            return self._nodes[labels]
        except KeyError:
            return self._nodes.setdefault(labels, dict(labels).get(self.label))

    def _reason(self, rule: Rule, change: Change) -> str:
        """The alert's first words for people, or its labels."""
        element = change.element
        for name in ("summary", "description", "message"):
            template = rule.annotations.get(name)
            if template is not None and element is not None:
                return template.render(dict(element.source), element.value)
        if change.labels not in self._shown:
            labels = tuple([pair for pair in change.labels if pair[0] != "alertname"])
            self._shown[change.labels] = show(labels)
        return rule.name + self._shown[change.labels]


@dataclass(slots=True)
class _State:
    """A rule and what it remembers."""

    rule: Rule
    group: Group
    alerts: Alerts | None
    error: str = ""
    firing: dict[Labels, None] = field(default_factory=dict)
    recorded: frozenset[Labels] = frozenset()
    names: dict[Labels, Labels] = field(default_factory=dict)

    def elements(self, found: Elements) -> list[Element]:
        """Name what was found: the alerts, or the series to record."""
        if len(found) > self.group.limit > 0 and self.alerts is None:
            raise EvaluationError(f"exceeded limit of {self.group.limit} with series")
        return [Element(self.named(labels, value), value, labels) for labels, value in found]

    def named(self, labels: Labels, value: float) -> Labels:
        """The label set of the alert that an element is, or of the series it is recorded as."""
        constant = self.alerts is None or self._constant
        name = self.names.get(labels) if constant else None
        if name is None:
            if self.alerts is None:
                name = recorded(self.rule, labels)
            else:
                name = identity(self.rule, labels, value)
            if constant:
                self.names[labels] = name
        return name

    @property
    def sweeps(self) -> bool:
        """Whether all times can be taken in at once."""
        return (
            self.alerts is not None
            and self._constant
            and not self.rule.keep
            and not self.group.limit
        )

    def settled(self, count: int) -> bool:
        """Whether nothing can change while the same elements come again."""
        active = self.alerts.active if self.alerts is not None else {}
        return (
            self._constant
            and len(active) == count
            and all(alert.fired_at is not None for alert in active.values())
        )

    @property
    def _constant(self) -> bool:
        """Whether an element's labels alone say which alert it is."""
        return not any(template.uses_value for template in self.rule.labels.values())

    def step(self, at: int, found: Elements | None) -> list[Change]:
        """What the rule's alerts do at one time; None stands for a failed evaluation."""
        alerts = self.alerts
        if alerts is None or found is None or not (found or alerts.active):
            return []
        try:
            changes = alerts.step(at, self.elements(found))
        except EvaluationError as error:
            self.error = error.what
            changes = [
                Change("resolved", labels, at) for labels in self.firing if not alerts.active
            ]
        changes.sort(key=lambda change: change.labels)
        for change in changes:
            if change.kind == "firing":
                self.firing[change.labels] = None
            else:
                self.firing.pop(change.labels, None)
        return changes


def _states(program: Program) -> list[_State]:
    return [
        _State(rule, group, Alerts(rule, group.limit) if rule.alerting else None)
        for group in program.file.groups
        for rule in group.rules
    ]


def _evaluator(program: Program, storage: Storage) -> Evaluator:
    settings = program.settings
    return Evaluator(
        storage,
        settings.dialect,
        lookback=settings.lookback,
        subquery_step=settings.interval,
    )


_NOTHING: Elements = []


def _columns(answer: Vector | NDArray[np.float64] | str, steps: int) -> list[Elements | None]:
    """What an evaluation gave at each step."""
    if isinstance(answer, str):
        return [None] * steps
    if not isinstance(answer, Vector):
        return [[((), float(value))] for value in answer]
    out: list[Elements | None] = [_NOTHING] * steps
    at_step, at_row = np.nonzero(answer.present.T)
    values = answer.values[at_row, at_step].tolist()
    pairs = [
        (answer.labels[row], value) for row, value in zip(at_row.tolist(), values, strict=True)
    ]
    begins = starts(at_step)
    for begin, end in pairwise([*begins.tolist(), len(pairs)]):
        out[int(at_step[begin])] = pairs[begin:end]
    return out


def _evaluated(evaluator: Evaluator, state: _State, times: Times) -> list[Elements | None]:
    """What a rule gives at each time; None where it fails.

    A failure belongs to single steps: the times are halved until it stands alone.
    """
    if not len(times):
        return []
    try:
        return _columns(evaluator.steps(state.rule.expr, times), len(times))
    except EvaluationError as error:
        if len(times) == 1:
            state.error = error.what
            return [None]
        half = len(times) // 2
        return [
            *_evaluated(evaluator, state, times[:half]),
            *_evaluated(evaluator, state, times[half:]),
        ]


class Evaluation:
    """The rules of a file, evaluated one instant after the other.

    Args:
        program: The rules.
        storage: Where samples are, and where rules write.

    Attributes:
        states: Every rule and what it remembers, in the order of the file.
    """

    def __init__(self, program: Program, storage: Storage, *, keep_alerts: bool) -> None:
        self.program = program
        self.storage = storage
        self.states = _states(program)
        self._keep_alerts = keep_alerts
        self._evaluator = _evaluator(program, storage)

    def due(self, at: int) -> list[Group]:
        """The groups whose time has come."""
        offset = self.program.settings.eval_offset
        return [
            group
            for group in self.program.file.groups
            if (at - offset) % self.program.period(group) == 0
        ]

    def evaluate(self, at: int, due: list[Group]) -> Changes:
        """Evaluate some groups at ``at`` milliseconds."""
        changes: Changes = []
        for state in self.states:
            if not any(state.group is group for group in due):
                continue
            state.error = ""
            query_at = at - state.group.query_offset
            found = _evaluated(self._evaluator, state, np.array([query_at], np.int64))[0]
            changes += [(state.rule, change) for change in state.step(at, found)]
            if found is not None:
                self._write(state, query_at, found)
        return changes

    def foresee(self, times: list[int]) -> dict[int, list[Elements | None]]:
        """What each rule that is due will give at some times, were they now; for alerts only."""
        found: dict[int, list[Elements | None]] = {at: [] for at in times}
        for state in self.states:
            mine = [at for at in times if any(group is state.group for group in self.due(at))]
            query_times = np.array(mine, np.int64) - state.group.query_offset
            for at, column in zip(
                mine, _evaluated(self._evaluator, state, query_times), strict=True
            ):
                found[at].append(column)
        return found

    def conclude(self, at: int, due: list[Group], found: list[Elements | None]) -> Changes:
        """Let alerts take in what was foreseen for them."""
        states = [state for state in self.states if any(state.group is group for group in due)]
        return [
            (state.rule, change)
            for state, column in zip(states, found, strict=True)
            for change in state.step(at, column)
        ]

    def _write(self, state: _State, at: int, found: Elements) -> None:
        """Store what a rule recorded, or its alerts."""
        if state.alerts is None:
            _record(state, at, found, self.storage)
        elif self._keep_alerts:
            _store(state, at, _alert_samples(state.alerts), self.storage)


class Watch:
    """Watches one job as its time goes by.

    While no alert comes, what rules will give is known beforehand: it is evaluated for more and
    more instants at once, and thrown away with the first alert.

    Args:
        program: The rules.
        job: The job.

    Attributes:
        next: Milliseconds of trace time at which :meth:`tick` is due.
    """

    def __init__(self, program: Program, job: Job) -> None:
        settings = program.settings
        self._program = program
        self._counters = Counters(
            job.id, job.nodes, settings.zero, settings.vocabulary, program.reach
        )
        self._storage = Storage()
        self._evaluation = Evaluation(program, self._storage, keep_alerts=program.sequential)
        self._grids = {(settings.scrape, 0)} | {
            (program.period(group), settings.eval_offset) for group in program.file.groups
        }
        self._only_alerts = all(rule.alerting for rule in program.file.rules)
        self._foreseen: dict[int, list[Elements | None]] = {}
        self._span = 1
        self._scraped = self._begun = False
        self.next = 0

    def count(self, at: float, node: str, kind: str) -> None:
        """Take in one alert, at ``at`` trace seconds."""
        if not self._begun:
            self._begun = True
            self.next = first_tick(at, self._program)
        self._counters.count(node, kind)
        self._foreseen.clear()
        self._span, self._scraped = 1, False

    def tick(self) -> Changes:
        """Scrape and evaluate what is due at :attr:`next`, and move on."""
        at, self._begun = self.next, True
        if at % self._program.settings.scrape == 0:
            self._counters.scrape(at)
            self._scraped = True
        self.next = self._following(at)
        due = self._evaluation.due(at)
        if not due:
            return []
        if not (self._only_alerts and self._scraped) or self._program.sequential:
            self._storage.replace(self._counters.block(), at - self._program.reach)
            return self._evaluation.evaluate(at, due)
        if at not in self._foreseen:
            self._foresee(at)
        return self._evaluation.conclude(at, due, self._foreseen.pop(at))

    def _following(self, at: int) -> int:
        return min(_after(at, period, offset) for period, offset in self._grids)

    def _foresee(self, at: int) -> None:
        """Evaluate from ``at`` on as if no more alerts came, each time twice as far."""
        times = [at]
        while len(times) < self._span:
            times.append(self._following(times[-1]))
        scrape = self._program.settings.scrape
        ahead = [later for later in times[1:] if later % scrape == 0]
        self._storage.replace(self._counters.block(ahead), at - self._program.reach)
        self._foreseen = self._evaluation.foresee(times)
        self._span = min(2 * self._span, _FARTHEST)


def _recordings(elements: list[Element]) -> dict[Labels, float]:
    samples: dict[Labels, float] = {}
    for element in elements:
        if element.labels in samples:
            raise EvaluationError(
                "vector contains metrics with the same labelset after applying rule labels"
            )
        samples[element.labels] = element.value
    return samples


def _alert_samples(alerts: Alerts) -> dict[Labels, float]:
    """``ALERTS`` and ``ALERTS_FOR_STATE``."""
    samples: dict[Labels, float] = {}
    for alert in alerts.active.values():
        state = "pending" if alert.fired_at is None else "firing"
        pairs = dict(alert.labels)
        named = {**pairs, NAME: "ALERTS", "alertstate": state}
        samples[tuple(sorted(named.items()))] = 1.0
        since = {**pairs, NAME: "ALERTS_FOR_STATE"}
        samples[tuple(sorted(since.items()))] = float(alert.active_at // 1000)
    return samples


def judge(program: Program, history: History) -> list[tuple[int, Verdict]]:
    """Watch a whole job at once.

    Returns:
        Verdicts and when they were said, in milliseconds of trace time, in order.
    """
    settings = program.settings
    return verdicts_of(changes_of(program, history), settings.label, settings.alert)


def verdicts_of(
    changes: dict[int, Changes], label: str, alert: str = ""
) -> list[tuple[int, Verdict]]:
    """What alerts did, as verdicts on the nodes that a label names.

    Args:
        changes: By time, ascending.
        label: The label that names the node.
        alert: The one alert that is listened to; empty for all.
    """
    book = Book(label, alert)
    return [(at, verdict) for at, here in changes.items() for verdict in book.take(here)]


_CELLS = 1_000_000
"""How many series times instants are evaluated at once: what bounds the memory of a long job."""


def changes_of(program: Program, history: History) -> dict[int, Changes]:
    """What the alerts of a rule file do over a whole job, by time, ascending."""
    if program.sequential:
        return _replayed(program, history)
    settings = program.settings
    start = first_tick(float(history.at[0]) if len(history.at) else None, program)
    census = Census(history, settings.scrape, settings.zero, settings.vocabulary)
    scrapes = ticks(start, history.end, settings.scrape, 0)
    states = _states(program)
    due = [
        ticks(start, history.end, program.period(state.group), settings.eval_offset)
        for state in states
    ]
    storage = Storage()
    evaluator = _evaluator(program, storage)
    by_time: dict[int, Changes] = {}
    width = max(64, _CELLS // max(1, census.size)) * settings.scrape
    last = int(history.end * 1000) + 1
    for begin in range(start, last + 1, width):
        seen = scrapes[_between(scrapes, begin - program.reach, begin + width)]
        storage.replace(census.block(seen), begin - program.reach)
        for state, times in zip(states, due, strict=True):
            mine = times[_between(times, begin, begin + width)]
            _pass(evaluator, state, mine, by_time)
    return dict(sorted(by_time.items()))


def _between(times: Times, begin: int, end: int) -> slice:
    """The times from ``begin`` on and before ``end``."""
    return slice(*np.searchsorted(times, [begin, end]).tolist())


def _pass(evaluator: Evaluator, state: _State, times: Times, by_time: dict[int, Changes]) -> None:
    """Evaluate a rule at some times, and let it record or its alerts change."""
    query_times = times - state.group.query_offset
    if state.sweeps and _sweep(evaluator, state, times, query_times, by_time):
        return
    columns = _evaluated(evaluator, state, query_times)
    if state.alerts is None:
        for at, found in zip(query_times.tolist(), columns, strict=True):
            if found is not None:
                _record(state, at, found, evaluator.storage)
        return
    settled: list[Labels] | None = None
    for at, found in zip(times.tolist(), columns, strict=True):
        if not found and not state.alerts.active:
            continue
        names = None if found is None else [labels for labels, _ in found]
        if names is not None and names == settled:
            continue  # the same alerts as before, and all of them fire
        for change in state.step(at, found):
            by_time.setdefault(at, []).append((state.rule, change))
        settled = names if state.settled(len(names or ())) else None


def _sweep(
    evaluator: Evaluator,
    state: _State,
    times: Times,
    query_times: Times,
    by_time: dict[int, Changes],
) -> bool:
    """Let a rule's alerts take in all times at once; tell whether that could be done."""
    if not len(times) or state.alerts is None:
        return False
    try:
        answer = evaluator.steps(state.rule.expr, query_times)
    except EvaluationError:
        return False  # at some times only
    if not isinstance(answer, Vector):
        return False
    answer = answer.seen()
    names = [state.named(labels, 0.0) for labels in answer.labels]
    if len(set(names)) < len(names):
        return False
    for change in state.alerts.sweep(times, names, answer):
        by_time.setdefault(change.at, []).append((state.rule, change))
    state.firing = dict.fromkeys(state.alerts.firing)
    return True


def _record(state: _State, at: int, found: Elements, storage: Storage) -> None:
    """Store what a recording rule gave, and end the series it gave no more."""
    try:
        samples = _recordings(state.elements(found))
    except EvaluationError as error:
        state.error = error.what
        return
    _store(state, at, samples, storage)


def _store(state: _State, at: int, samples: dict[Labels, float], storage: Storage) -> None:
    for labels in state.recorded - samples.keys():
        storage.append(labels, [at], [STALE])
    for labels, value in samples.items():
        storage.append(labels, [at], [value])
    state.recorded = frozenset(samples)


def _replayed(program: Program, history: History) -> dict[int, Changes]:
    """Feed a whole job to a watch, step by step."""
    watch = Watch(program, Job(history.job, history.members))
    moments, total, number = history.at.tolist(), len(history.at), 0
    nodes, kinds = history.node.tolist(), history.kind.tolist()
    if total:
        watch.next = first_tick(moments[0], program)
    by_time: dict[int, Changes] = {}
    while watch.next / 1000.0 <= history.end:
        at = watch.next
        while number < total and moments[number] <= at / 1000.0:
            watch.count(moments[number], history.nodes[nodes[number]], history.kinds[kinds[number]])
            number += 1
        changes = watch.tick()
        if changes:
            by_time[at] = changes
    return by_time
