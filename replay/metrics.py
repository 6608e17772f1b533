"""What a run or a worker shows to a Prometheus.

An observer that counts, and two expositions. The one at ``/metrics`` never tells the truth, so
that no rule can learn it; what does is apart, at ``/metrics/score``. Nothing is registered with
the library's global registry.

The counters that rules are written against, ``llm_alert_events_total{job_id,ip,event}``, may be
thousands, and the library takes 35-140 us to write one of them. Their lines are therefore kept as
bytes, and only those that changed are written anew.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)

from replay.messages import AlertSlice, JobEnded, JobStarted
from replay.observer import Observer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import Collector

    from replay.api import AlertBatch, Job
    from replay.engine import Player
    from replay.host import Cost, Tally
    from replay.messages import Message, TimedVerdict
    from replay.scoring import Policy, VerdictLog
    from replay.timeline import Timeline
    from replay.traces import Trace

    Standing = tuple[Trace, VerdictLog, Policy, list[str]]

__all__ = ["BUDGET", "CONTENT_TYPE", "Figure", "Metrics", "Series", "Zero", "pairs_ahead"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""What the expositions are."""

BUDGET = 5000
"""Series of alerts above which a Prometheus that scrapes every second may not keep up."""

Zero = Literal["none", "two-step", "cross", "seen"]
"""What a counter shows before its first alert; see :class:`Series`."""

_HEAD = (
    b"# HELP llm_alert_events_total Alerts of a job so far, by node and kind.\n"
    b"# TYPE llm_alert_events_total counter\n"
)
_PATIENCE = 2
"""How many answers may have got lost one after the other."""

_LENGTHS = range(10, 34, 2)
"""Binary digits of nanoseconds at which the buckets of costs end: 1 us to 4 s."""

_WALL = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
_TRACE = (1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)


@dataclass(frozen=True, slots=True)
class Figure:
    """One family of numbers, for whoever has some to show beside those of this module.

    Attributes:
        name: Without the prefix ``alert_replay_``; a counter's without ``_total``.
        about: What it counts or measures, one sentence.
        kind: ``counter`` for what only grows, else ``gauge``.
        labels: Names of its labels.
        values: Values of the labels → number.
    """

    name: str
    about: str
    kind: Literal["counter", "gauge"]
    labels: tuple[str, ...] = ()
    values: Mapping[tuple[str, ...], float] = field(default_factory=dict)


class _JobSeries:
    """The lines of one job."""

    __slots__ = (
        "counts",
        "ended",
        "fresh",
        "label",
        "lines",
        "named",
        "places",
        "prefixes",
        "stale",
        "zeros",
    )

    def __init__(self, job: str) -> None:
        self.label = f'llm_alert_events_total{{job_id="{_escaped(job)}",ip="'
        self.prefixes: list[bytes] = []
        self.counts: list[int] = []
        self.lines: list[bytes] = []
        self.named: dict[tuple[str, str], int] = {}
        self.places: dict[tuple[int, int], int] = {}
        self.stale: set[int] = set()  # whose line is not what was counted
        self.fresh: set[int] = set()  # which are to show 0 first
        self.zeros: set[int] = set()  # which have shown it, but perhaps to nobody
        self.ended = False

    def place(self, node: str, kind: str) -> int:
        """Where the line of a pair is; made if it is not there."""
        place = self.named.get((node, kind))
        if place is None:
            place = self.named[node, kind] = len(self.lines)
            text = f'{self.label}{_escaped(node)}",event="{_escaped(kind)}"}} '
            self.prefixes.append(text.encode())
            self.counts.append(0)
            self.lines.append(self.prefixes[-1] + b"0\n")
        return place

    def refresh(self, *, arrived: bool) -> None:
        """Write anew the lines that changed."""
        if arrived:
            self.stale |= self.zeros
            self.zeros = self.fresh
        else:
            self.zeros |= self.fresh
        self.fresh = set()
        for place in self.stale:
            self.lines[place] = b"%b%d\n" % (self.prefixes[place], self.counts[place])
        self.stale = set()


class Series:
    """The counters of alerts, as bytes.

    A job's series are there from its start until they have been shown once more after its end;
    then they go, as those of a job that is over do.

    Args:
        zero: What a counter shows before its first alert. ``none``: it is not there. ``two-step``:
            it shows 0 until that has been read once, and the count from then on. ``cross``: it is
            there from the job's start, for all its nodes and ``kinds``. ``seen``: it is there from
            the start for all pairs that will alert, which looks ahead.
        kinds: The kinds that ``cross`` begins with.
        budget: More series than this are told of once.
        note: Takes one line for the user.

    Attributes:
        ahead: Job → the pairs that ``seen`` begins with.

    Examples:
        >>> from replay.testing import TINY_TRACES
        >>> series = Series("two-step")
        >>> for message in next(t for t in TINY_TRACES if t.name == "culprit").messages():
        ...     series.take(message)
        >>> series.render().splitlines()[2]
        b'llm_alert_events_total{job_id="culprit",ip="node-c",event="ecc"} 0'

    """

    def __init__(
        self,
        zero: Zero = "none",
        kinds: Sequence[str] = (),
        *,
        budget: int = BUDGET,
        note: Callable[[str], object] = lambda _: None,
    ) -> None:
        self._zero = zero
        self._kinds = tuple(kinds)
        self.ahead: Mapping[str, Iterable[tuple[str, str]]] = {}
        self._budget = budget
        self._note = note
        self._jobs: dict[str, _JobSeries] = {}
        self._lock = threading.Lock()
        self._told = False
        self._reader: object = None
        self._unsure = 0

    @property
    def size(self) -> int:
        """How many lines there are."""
        with self._lock:
            return sum(len(job.lines) for job in self._jobs.values())

    @property
    def looks_ahead(self) -> bool:
        """Whether :attr:`ahead` is wanted."""
        return self._zero == "seen"

    def take(self, message: Message) -> None:
        """Count what a message brings."""
        with self._lock:
            if isinstance(message, AlertSlice):
                self._count(message.batch)
            elif isinstance(message, JobStarted):
                self._start(message.job)
            elif isinstance(message, JobEnded) and message.job in self._jobs:
                self._jobs[message.job].ended = True

    def render(self, reader: object = None) -> bytes:
        """All lines as they are now, and the next step of those that have two.

        Args:
            reader: The connection that is answered. One that asks again has got the answer before:
                only then do counters that showed 0 go on. A reader that comes anew each time is
                believed the third time.
        """
        with self._lock:
            known = self._reader in {None, reader}
            self._unsure = 0 if known else self._unsure + 1
            arrived = self._unsure in {0, _PATIENCE}
            if arrived:
                self._unsure = 0
            self._reader = reader
            parts = [_HEAD]
            for name, job in list(self._jobs.items()):
                job.refresh(arrived=arrived)
                parts += job.lines
                if job.ended:
                    del self._jobs[name]
            return b"".join(parts)

    def _start(self, job: Job) -> None:
        lines = self._jobs[job.id] = _JobSeries(job.id)
        if self._zero == "cross":
            for node in job.nodes:
                for kind in self._kinds:
                    lines.place(node, kind)
        elif self._zero == "seen":
            for node, kind in self.ahead.get(job.id, ()):
                lines.place(node, kind)
        self._look_at_the_budget()

    def _count(self, batch: AlertBatch) -> None:
        job = self._jobs.get(batch.job)
        if job is None:
            return
        places, counts, stale = job.places, job.counts, job.stale
        for pair in zip(batch.node.tolist(), batch.kind.tolist(), strict=True):
            place = places.get(pair)
            if place is None:
                place = self._add(job, batch.nodes[pair[0]], batch.kinds[pair[1]])
                places[pair] = place
            counts[place] += 1
            if place not in job.fresh and place not in job.zeros:
                stale.add(place)

    def _add(self, job: _JobSeries, node: str, kind: str) -> int:
        known = len(job.lines)
        place = job.place(node, kind)
        if place == known and self._zero == "two-step":
            job.fresh.add(place)
        self._look_at_the_budget()
        return place

    def _look_at_the_budget(self) -> None:
        if self._told:
            return
        total = sum(len(job.lines) for job in self._jobs.values())
        if total > self._budget:
            self._told = True
            self._note(
                f"more than {self._budget} series of alerts are shown at once: a Prometheus may"
                " not keep up.  Try: fewer jobs at a time (--schedule sequence), or a lower speed"
            )


def _escaped(text: str) -> str:
    """A label's value as the exposition writes it."""
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def pairs_ahead(timeline: Timeline) -> dict[str, list[tuple[str, str]]]:
    """Every pair of node and kind that will alert, job by job."""
    import numpy as np  # noqa: PLC0415 - only who looks ahead needs it

    found = {}
    for slot in timeline.slots:
        part = slice(slot.first_row, slot.first_row + slot.count)
        both = np.stack([timeline.node[part], timeline.kind[part]], axis=1)
        unique = np.unique(both, axis=0).tolist()
        found[slot.job.id] = [(slot.nodes[node], slot.kinds[kind]) for node, kind in unique]
    return found


class Metrics(Observer):
    """Counts what goes on, and writes it down when asked.

    Args:
        series: The counters of alerts; plain ones unless given.

    Examples:
        >>> metrics = Metrics()
        >>> [line for line in metrics.render().decode().splitlines() if "build" in line][-1]
        'alert_replay_build_info{version="..."} 1.0'

    """

    def __init__(self, series: Series | None = None) -> None:
        self.series = Series() if series is None else series
        self._lock = threading.Lock()
        self._alerts: Counter[str] = Counter()
        self._verdicts: Counter[tuple[str, str]] = Counter()
        self._errors: Counter[str] = Counter()
        self._jobs: dict[str, str] = {}
        self._player: Player | None = None
        self._tally: Tally | None = None
        self._transit: Cost | None = None
        self._standing: Callable[[], Standing] | None = None
        self._more: list[Callable[[], Iterable[Figure]]] = []
        self._registry = _registry(self)
        self._truth = _registry(_Truth(self))

    def watch(
        self,
        *,
        player: Player | None = None,
        tally: Tally | None = None,
        transit: Cost | None = None,
        standing: Callable[[], Standing] | None = None,
        figures: Callable[[], Iterable[Figure]] | None = None,
    ) -> None:
        """Also show these, read when a scrape comes.

        Args:
            player: Where the replay is and how well it keeps its pace.
            tally: What the detectors cost.
            transit: How long slices are under way.
            standing: The truth, the verdicts so far, how to judge them, and who is judged; for
                the scores only.
            figures: Anything else.
        """
        self._player = self._player if player is None else player
        self._tally = self._tally if tally is None else tally
        self._transit = self._transit if transit is None else transit
        self._standing = self._standing if standing is None else standing
        self._more += [] if figures is None else [figures]

    def render(self, reader: object = None) -> bytes:
        """``/metrics``: nothing in it depends on the truth.

        Args:
            reader: As of :meth:`Series.render`.
        """
        return self.series.render(reader) + generate_latest(self._registry)

    def render_score(self) -> bytes:
        """``/metrics/score``: what the verdicts so far are worth."""
        return generate_latest(self._truth)

    # the observer ---------------------------------------------------------------------------

    def published(self, message: Message) -> None:
        """Count alerts."""
        self.series.take(message)
        if isinstance(message, AlertSlice):
            kinds = message.batch.kinds
            with self._lock:
                for code in message.batch.kind.tolist():
                    self._alerts[kinds[code]] += 1
        elif isinstance(message, JobStarted):
            with self._lock:
                self._jobs[message.job.id] = message.job.gpu_generation

    def judged(self, verdict: TimedVerdict) -> None:
        """Count verdicts."""
        with self._lock:
            self._verdicts[verdict.detector, verdict.verdict.action] += 1

    def failed(self, detector: str, job: str, error: BaseException) -> None:  # noqa: ARG002 - as declared
        """Count crashes."""
        with self._lock:
            self._errors[detector] += 1

    # the exposition -------------------------------------------------------------------------

    def collect(self) -> Iterator[Metric]:
        """What the library asks a collector for."""
        with self._lock:
            alerts = dict(self._alerts)
            verdicts = {**self._verdicts}
            errors, jobs = dict(self._errors), dict(self._jobs)
        yield _info("build", "The version that runs.", [{"version": version("alert-replay")}])
        yield _info(
            "job",
            "Jobs that have started.",
            [{"job_id": job, "gpu_generation": gpu} for job, gpu in jobs.items()],
        )
        figures = [
            Figure(
                "alerts_published",
                "Alerts published, by kind.",
                "counter",
                ("kind",),
                {(kind,): count for kind, count in alerts.items()},
            ),
            Figure(
                "verdicts",
                "Verdicts, by detector and action.",
                "counter",
                ("detector", "action"),
                {(name, action): count for (name, action), count in verdicts.items()},
            ),
            Figure(
                "detector_errors",
                "Jobs on which a detector crashed.",
                "counter",
                ("detector",),
                {(name,): count for name, count in errors.items()},
            ),
        ]
        for more in (self._of_player, *self._more):
            figures += more()
        yield from map(_family, figures)
        yield from self._histograms()

    def _of_player(self) -> Iterator[Figure]:
        if self._player is None:
            return
        state = self._player.state()
        yield _gauge("trace_position_seconds", "Where the replay is, trace time.", state.position_s)
        yield _gauge("progress_ratio", "How much of it is done.", state.progress)
        yield _gauge("paused", "1 while it stands still.", float(state.status == "paused"))
        yield _gauge("epoch", "One more after every jump back.", state.epoch)
        if state.speed != "max":
            yield _gauge("speed_ratio", "Trace seconds per wall second, asked for.", state.speed)
        if state.speed_achieved is not None:
            yield _gauge(
                "speed_achieved_ratio",
                "Trace seconds per wall second, so far.",
                state.speed_achieved,
            )

    def _histograms(self) -> Iterator[Metric]:
        if self._player is not None:
            pacing = self._player.lateness()
            yield _histogram(
                "pacing_lag_seconds", "How late slices left, wall time.", {(): pacing}, _WALL
            )
        if self._transit is not None:
            yield _costs(
                "transport_lag_seconds",
                "From leaving to the detectors, wall time.",
                {(): self._transit},
            )
        if self._tally is not None:
            yield _costs(
                "detector_observe_seconds",
                "What a call of a detector took, wall time.",
                {(name,): cost for name, cost in list(self._tally.costs.items())},
                ("detector",),
            )


class _Truth:
    """Collects what may be told apart only."""

    _METRICS = ("precision", "recall", "f1")

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        """The scores so far, and how soon faulty nodes were blamed."""
        from dataclasses import replace  # noqa: PLC0415 - only who asks pays for scoring

        from replay.scoring import score  # noqa: PLC0415 - likewise

        ask = self._metrics._standing  # noqa: SLF001 - the two are one
        if ask is None:
            return
        standing = ask()
        trace, log, policy, detectors = standing
        scored = score(trace, log, policy=replace(policy, resamples=0), detectors=detectors)
        values: dict[tuple[str, ...], float] = {
            (name, metric): float(value)
            for name, found in scored.detectors.items()
            for metric in self._METRICS
            if (value := found.metrics.get(metric)) is not None
        }
        yield _family(
            Figure(
                "score_ratio",
                "What the verdicts so far are worth.",
                "gauge",
                ("detector", "metric"),
                values,
            )
        )
        yield _histogram(
            "detection_latency_trace_seconds",
            "From a job's first alert to the blame of a faulty node, trace time.",
            {
                (name,): [(second, 1) for second in found]
                for name, found in _latencies(standing).items()
            },
            _TRACE,
            ("detector",),
        )


def _latencies(standing: Standing) -> dict[str, list[float]]:
    """Detector → trace seconds from the job's first alert to each faulty node's blame."""
    from replay.scoring.delay import Delays  # noqa: PLC0415 - only who asks pays for scoring
    from replay.scoring.intervals import judge, rows_by_detector  # noqa: PLC0415 - likewise
    from replay.scoring.truth import Truth  # noqa: PLC0415 - likewise

    trace, log, policy, detectors = standing
    truth = Truth.of(trace, policy.labels, None)
    found = {}
    for name, rows in rows_by_detector(log, truth, detectors):
        delays = Delays.of(truth, judge(rows, truth, policy), truth.zeros["job_alert"])
        found[name] = (delays.ns[delays.hit] / 1e9).tolist()
    return found


def _registry(collector: Any) -> CollectorRegistry:
    """A registry of our own with one collector, which is not asked before a scrape comes."""
    registry = CollectorRegistry(auto_describe=False)
    wanted: Collector = collector
    registry.register(wanted)
    return registry


def _gauge(name: str, about: str, value: float) -> Figure:
    return Figure(name, about, "gauge", (), {(): value})


def _family(figure: Figure) -> Metric:
    cls = CounterMetricFamily if figure.kind == "counter" else GaugeMetricFamily
    family = cls(f"alert_replay_{figure.name}", figure.about, labels=figure.labels)
    for labels, value in figure.values.items():
        family.add_metric(labels, value)
    return family


def _info(name: str, about: str, rows: Iterable[dict[str, str]]) -> Metric:
    family = InfoMetricFamily(f"alert_replay_{name}", about)
    for row in rows:
        family.add_metric([], row)
    return family


def _histogram(
    name: str,
    about: str,
    values: Mapping[tuple[str, ...], Iterable[tuple[float, int]]],
    bounds: Sequence[float],
    labels: tuple[str, ...] = (),
) -> Metric:
    """A histogram of numbers that were counted already: pairs of a number and how often."""
    family = HistogramMetricFamily(f"alert_replay_{name}", about, labels=labels)
    for key, counted in values.items():
        pairs = list(counted)
        buckets = [
            (repr(bound), float(sum(count for value, count in pairs if value <= bound)))
            for bound in bounds
        ]
        total = float(sum(count for _, count in pairs))
        family.add_metric(
            key, [*buckets, ("+Inf", total)], sum(value * count for value, count in pairs)
        )
    return family


def _costs(
    name: str,
    about: str,
    costs: Mapping[tuple[str, ...], Cost],
    labels: tuple[str, ...] = (),
) -> Metric:
    """A histogram of wall times that were counted by their lengths."""
    family = HistogramMetricFamily(f"alert_replay_{name}", about, labels=labels)
    for key, cost in costs.items():
        lengths = list(cost.lengths)
        buckets = [
            (repr(2**digits / 1e9), float(sum(lengths[: digits + 1]))) for digits in _LENGTHS
        ]
        family.add_metric(key, [*buckets, ("+Inf", float(sum(lengths)))], cost.seconds)
    return family
