"""Runs detectors over a stream of messages: stamps time, wakes timers, isolates failures.

Nothing here knows where messages come from or where verdicts go, so the same host serves a replay
in one process, a Kafka worker, or a stream engine. One :class:`JobHost` serves one job of one run;
a :class:`Host` keeps one for every job it hears of.
"""

from __future__ import annotations

import functools
import math
import operator
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsFloat

from replay.api import AlertBatch, Verdict
from replay.errors import DetectorError, TransportError
from replay.messages import AlertSlice, JobStarted, TimedVerdict, Watermark
from replay.observer import Observer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from replay.api import Detector, Job
    from replay.messages import JobEnded, Message
    from replay.plugins import DetectorSpec

__all__ = ["Cost", "Host", "JobHost", "Tally"]


def _lengths() -> list[int]:
    return [0] * 64


@dataclass(slots=True)
class Cost:
    """What a detector cost.

    Attributes:
        calls: How often it was called.
        alerts: How many alerts it was given.
        ns: Wall nanoseconds spent in it.
        lengths: Calls by how many binary digits their nanoseconds had.
    """

    calls: int = 0
    alerts: int = 0
    ns: int = 0
    lengths: list[int] = field(default_factory=_lengths, repr=False, compare=False)

    def add(self, ns: int) -> None:
        """Count a call."""
        self.calls += 1
        self.ns += ns
        self.lengths[ns.bit_length()] += 1

    @property
    def seconds(self) -> float:
        """Wall seconds spent in it."""
        return self.ns / 1e9


@dataclass(slots=True)
class Tally:
    """What a host has to report besides verdicts.

    Attributes:
        costs: Detector → what it cost, over all jobs; in declared order.
        failures: One error for each detector and job it was stopped on; its cause is the original.
        refused: Reason → how many messages were not taken. Reasons: ``"old epoch"``,
            ``"before start"``, ``"after end"``, ``"started twice"``.
        duplicates: Alerts left out because they had come before.
        missing: Alerts that the ends of jobs count and that never came.
    """

    costs: dict[str, Cost] = field(default_factory=dict)
    failures: list[DetectorError] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    duplicates: int = 0
    missing: int = 0


class Host:
    """Detectors watching any number of jobs.

    Args:
        detectors: What to run, with unique names, in the order their verdicts are listed in.
        observer: Told of verdicts and failures as they fall.
        wall: Gives wall seconds (Unix); None in virtual time, where no clock dates a verdict.
        perf: Gives wall nanoseconds; measures cost and decides nothing.

    Attributes:
        tally: Costs, failures, and what was refused.

    Raises:
        ValueError: Two detectors have one name.
    """

    def __init__(
        self,
        detectors: Sequence[DetectorSpec],
        observer: Observer | None = None,
        *,
        wall: Callable[[], float] | None = None,
        perf: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self.tally = Tally()
        self._open = functools.partial(
            JobHost, tuple(detectors), observer, wall=wall, perf=perf, tally=self.tally
        )
        self._open()  # names are looked at now, not when the first job starts
        self._epochs: dict[str, int] = {}
        self._jobs: dict[tuple[str, str], JobHost] = {}

    def feed(self, messages: Iterable[Message]) -> list[TimedVerdict]:
        """Take messages in order; give what the detectors say to them.

        The first message of a later epoch lets go of all jobs of that run's earlier epochs,
        without a word from their detectors.

        Raises:
            TransportError: Alerts of one job came out of order.
        """
        said: list[TimedVerdict] = []
        for message in messages:
            key = message.run, _job_id(message)
            epoch = self._epochs.get(message.run)
            if epoch is None or message.epoch > epoch:
                self._enter(message.run, message.epoch)
            elif message.epoch < epoch:
                self.tally.refused["old epoch"] += 1
                continue
            host = self._jobs.get(key)
            if host is None:
                host = self._jobs[key] = self._open()
            said += host.feed(message)
        return said

    def _enter(self, run: str, epoch: int) -> None:
        self._epochs[run] = epoch
        self._jobs = {key: host for key, host in self._jobs.items() if key[0] != run}


def _job_id(message: Message) -> str:
    if isinstance(message, AlertSlice):
        return message.batch.job
    return message.job.id if isinstance(message, JobStarted) else message.job


class JobHost:
    """Detectors watching one job of one run.

    Can be pickled between two messages if its detectors, observer and clocks can.

    Args:
        detectors: What to run, with unique names, in the order their verdicts are listed in.
        observer: Told of verdicts and failures as they fall.
        wall: Gives wall seconds (Unix); None in virtual time, where no clock dates a verdict.
        perf: Gives wall nanoseconds; measures cost and decides nothing.
        tally: Where to count; one of its own if None.

    Attributes:
        tally: Costs, failures, and what was refused.

    Raises:
        ValueError: Two detectors have one name.
    """

    def __init__(
        self,
        detectors: Sequence[DetectorSpec],
        observer: Observer | None = None,
        *,
        wall: Callable[[], float] | None = None,
        perf: Callable[[], int] = time.perf_counter_ns,
        tally: Tally | None = None,
    ) -> None:
        self.tally = Tally() if tally is None else tally
        self._detectors = tuple(detectors)
        self._observer = Observer() if observer is None else observer
        self._wall = wall
        self._perf = perf
        self._watch: _Watch | None = None
        names = [spec.name for spec in self._detectors]
        if len(set(names)) < len(names):
            raise ValueError(f"detectors need unique names, not {', '.join(names)}")
        for name in names:
            self.tally.costs.setdefault(name, Cost())

    def feed(self, message: Message) -> list[TimedVerdict]:
        """Take the job's next message; give what the detectors say to it.

        A start of a later epoch begins anew with fresh detectors. What does not fit (an older
        epoch, before the start, after the end, alerts that came before) is left out and counted.

        Raises:
            TransportError: Alerts came out of order.
        """
        if isinstance(message, JobStarted):
            return self._begin(message)
        watch = self._watch
        if watch is None or message.epoch > watch.epoch:
            return self._refuse("before start")
        if message.epoch < watch.epoch:
            return self._refuse("old epoch")
        if watch.ended:
            return self._refuse("after end")
        return watch.take(message)

    @property
    def ended(self) -> bool:
        """Whether the job is over."""
        return self._watch is not None and self._watch.ended

    def _begin(self, start: JobStarted) -> list[TimedVerdict]:
        if self._watch is not None and start.epoch <= self._watch.epoch:
            same = start.epoch == self._watch.epoch
            return self._refuse("started twice" if same else "old epoch")
        self._watch = _Watch(
            start, self._detectors, self.tally, self._observer, self._wall, self._perf
        )
        return []

    def _refuse(self, why: str) -> list[TimedVerdict]:
        self.tally.refused[why] += 1
        return []


class _Seat:
    """A detector at work; ``due`` is when it is to be woken, infinity for never."""

    __slots__ = ("cost", "detector", "due", "name", "said")

    def __init__(self, name: str, cost: Cost) -> None:
        self.name = name
        self.cost = cost
        self.due = math.inf
        self.said = 0
        self.detector: Detector

    def take(self, spec: DetectorSpec, job: Job) -> tuple[Verdict, ...]:
        """Build the detector."""
        self.detector = spec.build(job)
        return ()

    def set_alarm(self, now: float, *, woken: bool) -> None:
        """See when the detector wants to be woken; an alarm set in the past is due at once."""
        wake_at = self.detector.wake_at
        if wake_at is None:
            self.due = math.inf
        elif wake_at > now:
            self.due = float(wake_at)
        elif wake_at <= now and not woken:
            self.due = now
        else:
            raise _Breach(f"woken at {now!r}, it asked for {wake_at!r}, which is not later")


class _Watch:
    """One job from its start to its end, within one epoch."""

    __slots__ = (
        "_at", "_delivered", "_newest", "_observer", "_passed", "_perf", "_seats", "_slice", "_start",
        "_tally", "_wall", "ended", "epoch",
    )  # fmt: skip

    def __init__(
        self,
        start: JobStarted,
        detectors: Iterable[DetectorSpec],
        tally: Tally,
        observer: Observer,
        wall: Callable[[], float] | None,
        perf: Callable[[], int],
    ) -> None:
        self.epoch = start.epoch
        self.ended = False
        self._start = start
        self._tally = tally
        self._observer = observer
        self._wall = wall
        self._perf = perf
        self._slice: AlertSlice | None = None
        self._newest: int | None = None
        self._at = -math.inf
        self._passed = -math.inf
        self._delivered = 0
        self._seats = [_Seat(spec.name, tally.costs[spec.name]) for spec in detectors]
        for seat, spec in zip(self._seats, detectors, strict=True):
            self._ask(seat, start.at, seat.take, spec, start.job)

    def take(self, message: AlertSlice | Watermark | JobEnded) -> list[TimedVerdict]:
        """Let the detectors answer one message."""
        if isinstance(message, AlertSlice):
            return self._deliver(message)
        if isinstance(message, Watermark):
            return self._pass_time(message.at)
        return self._finish(message)

    def _deliver(self, message: AlertSlice) -> list[TimedVerdict]:
        """Wake whoever is due before these alerts, then hand them round."""
        batch = self._unseen(message.batch)
        if batch is None:
            return []
        at, count = batch.at, len(batch)
        if at <= self._passed or at < self._at:
            raise TransportError(f"Alerts of job {batch.job} at {at!r} s came too late.")
        said = self._wake(at, inclusive=False)
        self._slice = message
        self._at = at
        self._newest = int(batch.seq[-1])
        self._delivered += count
        for seat in self._seats:
            seat.cost.alerts += count
            said += self._ask(seat, at, seat.detector.observe_batch, batch, slice_=message)
        return said

    def _pass_time(self, at: float) -> list[TimedVerdict]:
        """Wake whoever is due up to ``at``: no more alerts will come from then."""
        self._passed = max(self._passed, at)
        return self._wake(at, inclusive=True)

    def _finish(self, message: JobEnded) -> list[TimedVerdict]:
        """Ask for last words, and let the detectors go."""
        said = self._pass_time(message.at)
        for seat in self._seats:
            said += self._ask(seat, message.at, seat.detector.finish)
        self._tally.missing += max(0, message.count - self._delivered)
        self._seats = []
        self._slice = None
        self.ended = True
        return said

    def _unseen(self, batch: AlertBatch) -> AlertBatch | None:
        """The batch without alerts that came before; None if nothing is left."""
        if not len(batch):
            return None
        if self._newest is None or int(batch.seq[0]) > self._newest:
            return batch
        new = batch.seq > self._newest
        self._tally.duplicates += len(batch) - int(new.sum())
        if not new.any():
            return None
        seq, node, kind = batch.seq[new], batch.node[new], batch.kind[new]
        return AlertBatch(batch.job, batch.at, seq, node, kind, batch.nodes, batch.kinds)

    def _wake(self, until: float, *, inclusive: bool) -> list[TimedVerdict]:
        """Wake, at their own times, all who are due before ``until``, or at it."""
        said: list[TimedVerdict] = []
        for seat in self._seats:
            while seat.due < until or (inclusive and seat.due == until < math.inf):
                due = seat.due
                said += self._ask(seat, due, seat.detector.advance, due, woken=True)
        said.sort(key=operator.attrgetter("at"))
        return said

    def _ask(
        self,
        seat: _Seat,
        at: float,
        method: Callable[..., Iterable[Verdict]],
        *arguments: Any,
        slice_: AlertSlice | None = None,
        woken: bool = False,
    ) -> Sequence[TimedVerdict]:
        """Call a detector; stop it on this job if it fails or breaks its contract."""
        begun = self._perf()
        try:
            verdicts = _checked(method(*arguments))
            seat.set_alarm(at, woken=woken)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - not even a plug-in's sys.exit() ends a run
            self._stop(seat, error)
            return ()
        finally:
            seat.cost.add(self._perf() - begun)
        return [self._stamp(seat, at, verdict, slice_) for verdict in verdicts]

    def _stamp(
        self, seat: _Seat, at: float, verdict: Verdict, slice_: AlertSlice | None
    ) -> TimedVerdict:
        timed = TimedVerdict(
            run=self._start.run,
            epoch=self._start.epoch,
            detector=seat.name,
            job=self._start.job.id,
            number=seat.said,
            at=at,
            verdict=verdict,
            trigger_seq=self._newest,
            scheduled_wall=slice_.scheduled_wall if slice_ else None,
            published_wall=slice_.published_wall if slice_ else None,
            emitted_wall=self._wall() if self._wall else None,
            catch_up=self._slice.catch_up if self._slice else False,
        )
        seat.said += 1
        self._observer.judged(timed)
        return timed

    def _stop(self, seat: _Seat, error: BaseException) -> None:
        seat.due = math.inf
        self._seats = [other for other in self._seats if other is not seat]
        failure = DetectorError(_in_words(error), seat.name, self._start.job.id)
        failure.__cause__ = error
        self._tally.failures.append(failure)
        self._observer.failed(seat.name, self._start.job.id, failure)


class _Breach(Exception):  # noqa: N818 - never leaves this module
    """A detector broke its contract."""


def _checked(verdicts: Iterable[Verdict]) -> Sequence[Verdict]:
    """What a detector said, as plain values."""
    if verdicts.__class__ in {tuple, list} and not verdicts:
        return ()
    if not hasattr(verdicts, "__iter__"):
        raise _Breach(f"gave {_short(verdicts)} where verdicts are expected, one or many in a list")
    return [_plain(verdict) for verdict in verdicts]


def _plain(verdict: Verdict) -> Verdict:
    """A verdict with numpy's numbers and texts turned into Python's, if it makes sense."""
    if not isinstance(verdict, Verdict):
        raise _Breach(f"said {_short(verdict)}, which is not a Verdict")
    node, action = verdict.node, verdict.action
    score: Any = verdict.score  # whatever the types say, plug-ins are not all type-checked
    if not (node is None or isinstance(node, str)):
        raise _Breach(f"blamed {_short(node)}, which is not a node's name")
    if action not in ("raise", "retract"):
        raise _Breach(f"said {_short(action)}, which is neither 'raise' nor 'retract'")
    if not (isinstance(score, SupportsFloat) and math.isfinite(score)):
        raise _Breach(f"gave the score {_short(score)}, which is not a finite number")
    try:
        evidence = tuple(map(operator.index, verdict.evidence))
    except TypeError:
        raise _Breach(f"gave as evidence {_short(verdict.evidence)}, not alert numbers") from None
    name = None if node is None else str(node)
    return Verdict(name, action, float(score), str(verdict.reason), evidence)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _in_words(error: BaseException) -> str:
    if isinstance(error, _Breach):
        return str(error)
    words = " ".join(traceback.format_exception_only(error)[-1].split())
    frames = traceback.extract_tb(error.__traceback__)
    return f"{words} ({Path(frames[-1].filename).name}, line {frames[-1].lineno})"
