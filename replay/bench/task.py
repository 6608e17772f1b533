"""One job with all its detectors: taken out of a trace, and watched on whatever machine.

A task carries no label: the truth stays with the process that scores. Nodes go by pseudonyms that
differ from job to job, unless told otherwise, so that no detector can recognise a node it has met
before.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from replay.engine import Playback, Player
from replay.host import Host
from replay.observer import Observer
from replay.plugins import DetectorSpec, options_of
from replay.scoring.words import coded
from replay.timeline import Timeline
from replay.traces.model import EVENTS, Trace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from replay.errors import DetectorError
    from replay.host import Cost
    from replay.messages import TimedVerdict
    from replay.traces.anonymize import Pseudonyms
    from replay.traces.build import Outside

__all__ = ["Asked", "Masks", "Task", "Watched", "tasks", "watch"]


class Asked(NamedTuple):
    """A detector, as a task names it.

    Attributes:
        name: What verdicts and tables call it.
        text: How it was asked for.
        model: What it learned from other jobs, as JSON text; empty if nothing.
    """

    name: str
    text: str
    model: str = ""


@dataclass(frozen=True, slots=True)
class Task:
    """One job, ready to be watched anywhere.

    Attributes:
        trace: The job alone; every label reads ``normal``.
        detectors: Who is to watch it.
        seed: For detectors that take one.
        outside: Alerts outside their job's time: ``keep``, ``clip`` or ``drop``.
    """

    trace: Trace
    detectors: tuple[Asked, ...]
    seed: int = 0
    outside: Outside = "keep"

    @property
    def size(self) -> int:
        """How many alerts there are."""
        return int(self.trace.events.num_rows)

    def __str__(self) -> str:
        return self.trace.jobs[0].id


@dataclass(frozen=True, slots=True)
class Watched:
    """What the detectors said about one job.

    Attributes:
        verdicts: What they said.
        costs: Detector → what it cost.
        failures: Detectors that crashed.
        alerts: How many alerts they were given.
    """

    verdicts: list[TimedVerdict]
    costs: dict[str, Cost]
    failures: list[DetectorError]
    alerts: int


class _Listener(Observer):
    """Keeps the verdicts."""

    def __init__(self) -> None:
        self.verdicts: list[TimedVerdict] = []

    def judged(self, verdict: TimedVerdict) -> None:
        self.verdicts.append(verdict)


def watch(task: Task) -> Watched:
    """Replay one job in virtual time into all its detectors.

    Raises:
        PluginError: A detector is not installed here, or an option does not fit.
    """
    timeline = Timeline.build(task.trace, outside=task.outside)
    listener = _Listener()
    with contextlib.redirect_stdout(sys.stderr):  # a plug-in may print; results are not its
        host = Host(_specs(task.detectors, task.seed), listener)
        played = Player(timeline, host.feed, Playback(), run="bench").play()
    tally = host.tally
    return Watched(listener.verdicts, tally.costs, tally.failures, played.alerts)


@lru_cache(maxsize=8)
def _specs(detectors: tuple[Asked, ...], seed: int) -> tuple[DetectorSpec, ...]:
    """Detectors as asked for; found once per process."""
    return tuple(_spec(asked, seed) for asked in detectors)


def _spec(asked: Asked, seed: int) -> DetectorSpec:
    spec = DetectorSpec.parse(asked.text)
    options = dict(spec.options)
    if "seed" in options_of(spec.cls):
        options.setdefault("seed", seed)
    if asked.model:
        options["model"] = json.loads(asked.model)
    return replace(spec, name=asked.name, options=options)


@dataclass(frozen=True, slots=True)
class Masks:
    """Per-job pseudonyms, and the way back.

    Attributes:
        pseudonyms: Where they come from; None keeps the real names.
        back: Job → pseudonym → node.
    """

    pseudonyms: Pseudonyms | None
    back: dict[str, dict[str, str]] = field(default_factory=dict)

    def mask(self, job: str, nodes: Iterable[str]) -> dict[str, str]:
        """Node → the name that detectors see."""
        if self.pseudonyms is None:
            return {node: node for node in nodes}
        masked = {node: self.pseudonyms.node(job, node) for node in nodes}
        self.back[job] = {name: node for node, name in masked.items()}
        return masked

    def names(self, job: str) -> dict[str, str]:
        """Node → the name that detectors see in this job, if another one."""
        return {node: name for name, node in self.back.get(job, {}).items()}

    def unmask(self, said: TimedVerdict) -> TimedVerdict:
        """A verdict about the real node; a name that was made up stays as it is."""
        names = self.back.get(said.job)
        if not names:
            return said
        verdict = said.verdict
        node = None if verdict.node is None else names.get(verdict.node, verdict.node)
        reason = _PSEUDONYM.sub(lambda found: names.get(found[0], found[0]), verdict.reason)
        return replace(said, verdict=replace(verdict, node=node, reason=reason))


_PSEUDONYM = re.compile(r"(?<![0-9a-f:])[0-9a-f]{1,4}(?::[0-9a-f]{1,4}){7}(?![0-9a-f:])")


def tasks(
    trace: Trace,
    detectors: Sequence[DetectorSpec],
    masks: Masks,
    *,
    seed: int = 0,
    outside: Outside = "keep",
) -> Iterator[Task]:
    """One task per job, the truth taken out and the nodes masked."""
    named = tuple(Asked(spec.name, spec.text) for spec in detectors)
    bounds = trace.bounds
    columns = {name: coded(trace.events.column(name)) for name in ("ip", "event")}
    at = trace.events.column("at").to_numpy()
    times = trace.events.column("event_time")
    for number, job in enumerate(trace.jobs):
        rows = slice(bounds[number], bounds[number + 1])
        node, nodes = _own(columns["ip"], rows)
        kind, kinds = _own(columns["event"], rows)
        names = masks.mask(job.id, sorted({*job.ip_status, *nodes}))
        blind = dict.fromkeys(sorted(names[node] for node in job.ip_status), "normal")
        many = rows.stop - rows.start
        # copies, not slices: a slice would travel with the whole trace behind it
        events = pa.Table.from_arrays(
            [
                pa.array(np.zeros(many, np.int32)),
                _words(node, [names[name] for name in nodes]),
                pa.array(times.slice(rows.start, many).to_pylist(), pa.string()),
                _words(kind, kinds),
                pa.array(at[rows].copy()),
            ],
            schema=EVENTS,
        )
        alone = Trace((replace(job, ip_status=blind),), events)
        yield Task(alone, named, seed, outside)


def _own(
    column: tuple[NDArray[np.int64], list[str]], rows: slice
) -> tuple[NDArray[np.int32], list[str]]:
    """Codes and words of one job's rows, none of any other job's."""
    codes, words = column
    used, own = np.unique(codes[rows], return_inverse=True)
    return own.astype(np.int32), [words[code] for code in used.tolist()]


def _words(codes: NDArray[np.int32], words: list[str]) -> pa.Array[Any]:
    return pa.DictionaryArray.from_arrays(codes, pa.array(words, pa.string()))
