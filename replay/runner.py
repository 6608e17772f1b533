"""Wires a whole run: trace → tape → engine → transport → host → verdicts → score.

The only module that knows every room.
"""

from __future__ import annotations

import json
import math
import threading
import time
import uuid
from array import array
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import replay.traces
from replay.api import Detector
from replay.config import MAX, MEMORY, RunConfig, parse_speed, to_toml
from replay.engine import Playback, Player
from replay.errors import TransportError, UsageError
from replay.host import Cost, Host, Tally
from replay.messages import AlertSlice
from replay.observer import Observer
from replay.plugins import DetectorSpec, options_of, parse_detectors
from replay.scoring import (
    Gate,
    LabelMap,
    Policy,
    Score,
    VerdictLog,
    blank,
    check,
    keep,
    onsets_beside,
    score,
)
from replay.timeline import Timeline
from replay.transports import open_pipe
from replay.transports.memory import Channel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from replay.clock import Wall
    from replay.engine import Played
    from replay.live import LiveRules
    from replay.messages import Message, TimedVerdict
    from replay.traces import Trace
    from replay.transports import Pipe

__all__ = ["BASELINES", "Replay", "Run", "prepare", "run"]

BASELINES = ("silent", "accuse-all", "random", "loudest", "first-alert", "most-kinds")
"""References that stand beside every score."""

DEFAULT = ("burst",)
"""What runs when no detector is named."""


@dataclass(frozen=True, slots=True)
class Run:
    """What came out of a replay.

    Attributes:
        config: What was asked for.
        log: The verdicts of the epoch that counts, in canonical order.
        score: What they are worth.
        played: How the replay went.
        tally: What the detectors cost, and which of them crashed.
        complete: False when the replay was stopped early, or alerts were lost on the way.
        carried: How the transport did; None where the engine handed messages over itself.
        live: What live rules told, and how late; None where there were none.
    """

    config: RunConfig
    log: VerdictLog = field(repr=False)
    score: Score = field(repr=False)
    played: Played
    tally: Tally = field(repr=False)
    complete: bool = True
    carried: Mapping[str, Any] | None = None
    live: Mapping[str, Any] | None = None

    @property
    def verdicts(self) -> list[dict[str, Any]]:
        """The verdicts as rows of the log."""
        return list(self.log.rows())

    def document(self) -> dict[str, Any]:
        """The score and how the run went, as one JSON document."""
        return self.score.document() | {"complete": self.complete, "run": self.figures()}

    def figures(self) -> dict[str, Any]:
        """How the run went: pace, cost and failures. Wall times differ from run to run."""
        played = self.played
        late = played.lateness
        return {
            "complete": self.complete,
            "epochs": played.epochs,
            "alerts": played.alerts,
            "alerts_caught_up": played.caught_up,
            "verdicts": len(self.log),
            "speed": played.speed,
            "speed_achieved": played.speed_achieved,
            "planned_wall_s": played.planned_wall_s,
            "wall_s": played.wall_s,
            "paused_wall_s": played.paused_wall_s,
            "late": played.late,
            "early": played.early,
            "lateness_wall_s": {
                "p50": late.quantile(0.5),
                "p99": late.quantile(0.99),
                "max": late.max_s,
            },
            "jumps": [asdict(jump) for jump in played.jumps],
            "transport": self.carried,
            "live_rules": self.live,
            "detectors": {
                name: {"calls": cost.calls, "alerts": cost.alerts, "wall_s": cost.seconds}
                for name, cost in self.tally.costs.items()
            },
            "failures": [
                {"detector": failure.detector, "job_id": failure.job, "what": failure.what}
                for failure in self.tally.failures
            ],
        }

    def write(self, folder: str | Path, *, force: bool = False) -> None:
        """Keep the run: ``config.toml``, ``verdicts.jsonl`` and ``.parquet``, ``score.json``, ``run.json``.

        Args:
            folder: Where.
            force: Replace an earlier run there.

        Raises:
            UsageError: An earlier run is there, or the folder cannot be written.
            ReplayError: The disk is full, or the like; an earlier run is still there.
        """
        figures = json.dumps(self.figures(), ensure_ascii=False, allow_nan=False, indent=1) + "\n"
        texts = {"config.toml": to_toml(self.config), "run.json": figures}
        keep(folder, self.log, self.score, texts, force=force)


class _Listener(Observer):
    """Keeps the verdicts, and tells everybody else."""

    def __init__(self, others: Sequence[Observer]) -> None:
        self.verdicts: list[TimedVerdict] = []
        self.others = others
        self.heard: Callable[[], None] = lambda: None

    def published(self, message: Message) -> None:
        for other in self.others:
            other.published(message)

    def jumped(self, before: float, after: float, epoch: int) -> None:
        for other in self.others:
            other.jumped(before, after, epoch)

    def judged(self, verdict: TimedVerdict) -> None:
        self.verdicts.append(verdict)
        for other in self.others:
            other.judged(verdict)
        self.heard()

    def failed(self, detector: str, job: str, error: BaseException) -> None:
        for other in self.others:
            other.failed(detector, job, error)


class _Lag:
    """By how much alerts left late, in the newest epoch; those that a seek catches up apart."""

    def __init__(self) -> None:
        self._epoch = 0
        self._ms, self._alerts = array("d"), array("q")

    def add(self, piece: AlertSlice) -> None:
        """Count the alerts of a slice."""
        if piece.published_wall is None or piece.scheduled_wall is None or piece.catch_up:
            return
        if piece.epoch != self._epoch:
            self._epoch = piece.epoch
            del self._ms[:], self._alerts[:]
        self._ms.append(1000 * (piece.published_wall - piece.scheduled_wall))
        self._alerts.append(len(piece.batch))

    def ms(self) -> NDArray[np.float64]:
        """Wall milliseconds, one an alert."""
        return np.repeat(np.array(self._ms), np.array(self._alerts))


class Replay:
    """A run that is ready to start. Its :attr:`player` takes orders from any thread.

    Args:
        trace: What to replay: exactly the jobs that are to be scored.
        detectors: Who watches.
        config: How; ``path``, ``jobs`` and ``detector`` have been seen to already.
        observers: Who looks on.
        run_id: Names this replay in messages; made up unless given.
        filtered: True when the trace holds not all jobs of its source.
        wall: Wall time for a paced replay; the machine's own unless told otherwise.
        note: Told, in a sentence, what a person should know of the transport or of a wait.
        live: Rules that a Prometheus evaluates; it is waited for before the clock starts.

    Attributes:
        transit: How long slices took from the engine to the host; its calls are slices. Nothing
            where the engine hands messages over itself.

    Raises:
        UsageError: Live rules are to watch a replay without a pace.
    """

    def __init__(
        self,
        trace: Trace,
        detectors: Sequence[DetectorSpec],
        config: RunConfig,
        *,
        observers: Iterable[Observer] = (),
        run_id: str = "",
        filtered: bool = False,
        wall: Wall | None = None,
        note: Callable[[str], None] = lambda _: None,
        live: LiveRules | None = None,
    ) -> None:
        self.trace = trace
        self.config = config
        self.detectors = tuple(_seeded(spec, config.seed) for spec in detectors)
        self.timeline = Timeline.build(
            trace,
            schedule=config.schedule,
            node=config.node,
            kind=config.kind,
            exclude_kind=config.exclude_kind,
            outside=config.outside,
            spread=config.spread,
            seed=config.seed,
        )
        self._policy = _policy(config)
        for label in sorted({label for job in trace for label in job.ip_status.values()}):
            self._policy.labels.meaning(label)  # an unknown label shows before the run, not after
        self._filtered = filtered or bool(config.kind or config.exclude_kind or config.node)
        paced = config.speed != MAX
        if live is not None and not paced:
            raise UsageError("Live rules need a speed that Prometheus can follow.", "--speed 60")
        self._live = live
        self._unix = _unix(wall)
        self.transit = Cost()
        self._lag = _Lag()
        self._listener = _Listener((*observers, *filter(None, [live])))
        watched = self._listener if self._listener.others else None
        self._host = Host(self.detectors, self._listener, wall=self._unix if paced else None)
        self._run_id = run_id or uuid.uuid4().hex[:12]
        self._note = note
        self._pipe: Pipe | None = Channel("run") if paced else None
        publish: Callable[[Sequence[Message]], object] = self._host.feed
        if config.via != MEMORY:
            publish = self._publish
        elif self._pipe is not None:
            publish = self._pipe.sink.publish
        self.player = Player(
            self.timeline,
            publish,
            _playback(config),
            run=self._run_id,
            wall=wall,
            observer=watched,
            ready=[] if live is None else [self._await_prometheus],
        )
        if live is not None:
            live.watch(self.timeline, self.player, self._listener.judged)
        self._listener.heard = self.player.heard

    def play(self) -> Run:
        """Play to the end, or until the player is told to stop; then score.

        Raises:
            TransportError: The transport cannot be reached, or the consuming side failed.
        """
        if self.config.via != MEMORY:
            bulk = self.config.speed == MAX
            self._pipe = open_pipe(self.config.via, self._run_id, bulk=bulk, note=self._note)
        played = self._play_through(self._pipe) if self._pipe else self.player.play()
        if self._live is not None and played.complete:
            self._live.settle()
        return self._score(played)

    @property
    def tally(self) -> Tally:
        """What the detectors cost so far."""
        return self._host.tally

    def standing(self) -> tuple[Trace, VerdictLog, Policy, list[str]]:
        """The truth, the verdicts so far, how to judge them, and who is judged; for any thread."""
        verdicts = list(self._listener.verdicts)
        newest = max((verdict.epoch for verdict in verdicts), default=0)
        current = [verdict for verdict in verdicts if verdict.epoch == newest]
        names = self._names
        return self.trace, VerdictLog.of(self.trace, current, names), self._policy, names

    @property
    def is_opening(self) -> bool:
        """Whether the transport, if it is a service, has still to be reached."""
        return self.config.via != MEMORY and self._pipe is None

    def check_gates(self) -> None:
        """Hold the gates against a blank score: what they name shows before the run, not after.

        Raises:
            UsageError: A gate makes no sense, or names what will not be scored.
        """
        gates = [Gate.parse(text) for text in self.config.fail_if]
        if self.config.speed != MAX:  # what a clock says is known only when it has run
            gates = [gate for gate in gates if not gate.is_of_the_wall]
        if not gates:
            return
        check(blank(self.trace, self._names, self._policy), gates)

    @property
    def _names(self) -> list[str]:
        """Whoever says verdicts, in declared order."""
        live = () if self._live is None else self._live.names
        return [*(spec.name for spec in self.detectors), *live]

    def _time(self, messages: Sequence[Message]) -> None:
        """See how long slices have been under way."""
        now = self._unix()
        for message in messages:
            if isinstance(message, AlertSlice) and message.published_wall is not None:
                self.transit.add(round(1e9 * (now - message.published_wall)))
                self._lag.add(message)

    def _await_prometheus(self) -> None:
        """Let the clock stand until it is there."""
        if self._live is not None:
            self._note("Waiting for Prometheus; Ctrl-C ends it.")
            self._live.begin(lambda: self.player.stopping)

    def _publish(self, messages: Sequence[Message]) -> None:
        """To a transport that is opened when the play begins."""
        if self._pipe is None:
            raise RuntimeError("the player belongs to a replay: play that")
        self._pipe.sink.publish(messages)

    def _play_through(self, pipe: Pipe) -> Played:
        """Play with the host on a thread of its own: a slow detector does not delay the clock."""
        failure: list[BaseException] = []

        def consume() -> None:
            try:
                with pipe.source as source:
                    while (messages := source.poll(60.0)) is not None:
                        self._time(messages)
                        self._host.feed(messages)
            except BaseException as error:  # noqa: BLE001 - handed to the thread that waits
                failure.append(error)
                self.player.stop()

        consumer = threading.Thread(target=consume, name="host")
        consumer.start()
        try:
            with pipe.sink:
                played = self.player.play()
        except TransportError:
            consumer.join()
            if failure:  # then nobody read any more, and this is why
                raise failure[0] from None
            raise
        finally:
            consumer.join()
        if failure:
            raise failure[0]
        return played

    def _score(self, played: Played) -> Run:
        last = played.epochs - 1
        verdicts = [verdict for verdict in self._listener.verdicts if verdict.epoch == last]
        names = self._names
        log = VerdictLog.of(self.trace, verdicts, names)
        complete = played.complete and self._reaches_the_end()
        complete = complete and not (self._pipe and self._pipe.lost)
        skipped = any(jump.why not in {"gap", "loop"} for jump in played.jumps)
        whole = complete and not (self._filtered or skipped or self.config.start_offset)
        scored = score(
            self.trace,
            log,
            policy=self._policy,
            detectors=names,
            baselines=[spec.name for spec in self.detectors if spec.cls.baseline],
            onsets=onsets_beside(self.trace.source),
            publish_lag_ms=None if self.config.speed == MAX else self._lag.ms(),
            failures=self._host.tally.failures,
            settings={
                "speed": self.config.speed,
                "schedule": self.config.schedule,
                "outside": self.config.outside,
                "spread": self.config.spread,
                "seed": self.config.seed,
                "complete": complete,
                "comparable": whole,
            },
        )
        carried = self._pipe.figures() if self._pipe else None
        live = None if self._live is None else self._live.document()
        return Run(self.config, log, scored, played, self._host.tally, complete, carried, live)

    def _reaches_the_end(self) -> bool:
        """Whether the duration asked for, if any, leaves nothing out."""
        if self.config.duration is None:
            return True
        begin = self.config.start_offset or self.timeline.begin_ns / 1e9
        return begin + self.config.duration >= self.timeline.end_ns / 1e9


def _unix(wall: Wall | None) -> Callable[[], float]:
    """Wall seconds (Unix), from the machine or from the wall given."""
    return time.time if wall is None else lambda: wall.unix_ns() / 1e9


def _seeded(spec: DetectorSpec, seed: int) -> DetectorSpec:
    """The run's seed, for a detector that takes one and was not given another."""
    if "seed" not in options_of(spec.cls) or "seed" in spec.options:
        return spec
    return replace(spec, options={**spec.options, "seed": seed})


def _playback(config: RunConfig) -> Playback:
    return Playback(
        speed=parse_speed(config.speed),
        start_paused=config.start_paused,
        start_s=config.start_offset or None,
        duration_s=config.duration,
        loops=config.loop,
        max_gap_s=config.max_gap if math.isfinite(config.max_gap) else None,
        when_late=config.when_late,
    )


def _policy(config: RunConfig) -> Policy:
    labels = LabelMap(strict=config.strict_labels)
    if config.label_map:
        labels = LabelMap.parse(config.label_map, strict=config.strict_labels)
    return Policy(
        kind=config.policy,
        hold_s=config.hold,
        grace_s=config.grace,
        labels=labels,
        seed=config.seed,
    )


def prepare(
    config: RunConfig,
    observers: Iterable[Observer] = (),
    note: Callable[[str], None] = lambda _: None,
    live: LiveRules | None = None,
) -> Replay:
    """Open the trace and find the detectors that a configuration names.

    Args:
        config: What is asked for.
        observers: Who looks on.
        note: As of :class:`Replay`.
        live: As of :class:`Replay`.

    Raises:
        TraceError: The trace cannot be read.
        UsageError: There is no such job.
        PluginError: There is no such detector, or an option does not fit.
    """
    detectors = parse_detectors(config.detector or DEFAULT)
    if config.baselines:
        named = {spec.name for spec in detectors}
        detectors += parse_detectors(name for name in BASELINES if name not in named)
    trace = replay.traces.open(
        config.path, form=config.format or None, lenient=config.lenient, outside="keep"
    )
    chosen = trace.select(config.jobs) if config.jobs else trace
    filtered = len(chosen) < len(trace)
    return Replay(
        chosen,
        detectors,
        config,
        observers=observers,
        run_id="" if live is None else live.run,
        filtered=filtered,
        note=note,
        live=live,
    )


def run(
    trace: Trace | str | Path,
    detectors: str | Iterable[str | type[Detector] | DetectorSpec] = DEFAULT,
    **settings: Any,
) -> Run:
    """Replay a trace into detectors and score them.

    Args:
        trace: A trace, or where to find one.
        detectors: One or more names with options (``"burst:window=30"``), classes, or specs.
        **settings: Fields of :class:`replay.config.RunConfig`, such as ``speed=10``.

    Raises:
        TraceError: The trace cannot be read.
        PluginError: There is no such detector, or an option does not fit.
        ConfigError: A setting does not fit.

    Examples:
        >>> from replay.testing import TINY_TRACES
        >>> culprit = next(tiny for tiny in TINY_TRACES if tiny.name == "culprit")
        >>> result = run(culprit.trace(), ["first-alert"])
        >>> result.score["first-alert"].metrics["precision"]
        1.0

    """
    opened = replay.traces.open(trace) if isinstance(trace, str | Path) else trace
    if "speed" in settings:
        settings["speed"] = str(settings["speed"])
    try:
        config = RunConfig(path=opened.source, **settings)
    except TypeError as error:
        raise UsageError(f"run() takes no such setting: {error}.") from error
    chosen = [detectors] if isinstance(detectors, str) else detectors
    return Replay(opened, [_spec(detector) for detector in chosen], config).play()


def _spec(detector: str | type[Detector] | DetectorSpec) -> DetectorSpec:
    if isinstance(detector, str):
        return DetectorSpec.parse(detector)
    if isinstance(detector, type) and issubclass(detector, Detector):
        return DetectorSpec.of(detector)
    if isinstance(detector, DetectorSpec):
        return detector
    raise UsageError(
        f"{detector!r} is no detector.", "a name, a class, or DetectorSpec.of(CLASS, option=value)"
    )
