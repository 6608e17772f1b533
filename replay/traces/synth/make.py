"""Plans are run, and become a trace and its truth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from replay.errors import UsageError
from replay.traces.model import EVENTS, Trace, TraceJob
from replay.traces.synth.draws import Draws
from replay.traces.synth.knobs import turn
from replay.traces.synth.plan import plan
from replay.traces.synth.simulate import Simulation, delivered

if TYPE_CHECKING:
    from replay.traces.synth.plan import Plan

__all__ = ["Made", "make"]

DELIVERY = 20  # the stream of draws that decides how rows are written down
SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Made:
    """A made trace, and what only its maker knows.

    Attributes:
        trace: The trace, as if read from files.
        truth: Job → what went wrong with it; :mod:`replay.traces.synth.write` says in which words.
        recipe: Preset, jobs, seed and the knobs that were turned: all it takes to make it again.
    """

    trace: Trace
    truth: dict[str, dict[str, Any]]
    recipe: dict[str, Any]


def make(preset: str = "dataset", jobs: int = 98, seed: int = 7, **knobs: float) -> Made:
    """Make a trace; equal arguments give equal bytes, on every machine.

    Args:
        preset: ``quiet``, ``chatty``, ``stormy`` or ``dataset``.
        jobs: How many; job ``i`` is the same whatever their number.
        seed: 0 or more.
        **knobs: Fields of :class:`~replay.traces.synth.knobs.Knobs` to turn.

    Raises:
        UsageError: An argument is unknown or out of its range.

    Examples:
        >>> made = make("quiet", jobs=2, seed=1)
        >>> made.trace.job_ids
        ('Job1', 'Job2')

    """
    if jobs < 1 or seed < 0:
        raise UsageError(f"jobs is {jobs}, seed is {seed}.", "jobs from 1, seeds from 0")
    turned = turn(preset, knobs)
    plans = [plan(seed, number, turned) for number in range(jobs)]
    tables = []
    for each in plans:
        said = Simulation(each, turned, seed).rows
        tables.append(_columns(each, delivered(said, turned, Draws(seed, each.number, DELIVERY))))
    events = pa.concat_tables(tables).unify_dictionaries()
    trace = Trace(tuple(_job(each) for each in plans), events, f"synth {preset} {seed}")
    recipe = {"preset": preset, "jobs": jobs, "seed": seed, "knobs": knobs}
    return Made(trace, {_id(each): _truth(each) for each in plans}, recipe)


def _id(each: Plan) -> str:
    return f"Job{each.number + 1}"


def _times(seconds: np.ndarray[Any, np.dtype[np.int64]]) -> pa.Array[Any]:
    """Seconds since 1970 → text as the published set writes it."""
    return pa.array(seconds, pa.timestamp("s")).cast(pa.string())


def _time(second: int) -> str:
    return str(_times(np.array([second], np.int64))[0])


def _columns(each: Plan, rows: list[tuple[int, int, str]]) -> pa.Table:
    at = np.array([row[0] for row in rows], np.int64)
    nodes = pa.array([row[1] for row in rows], pa.int32())
    kinds = pa.array([row[2] for row in rows], pa.string())
    columns = [
        pa.array(np.full(len(rows), each.number, np.int32)),
        pa.DictionaryArray.from_arrays(nodes, pa.array(each.tokens, pa.string())),
        _times(at + each.start),
        kinds.dictionary_encode(),
        pa.array(at * SECOND),
    ]
    return pa.Table.from_arrays(columns, schema=EVENTS)


def _job(each: Plan) -> TraceJob:
    labels = dict.fromkeys(each.tokens[: each.nodes], "normal")
    for culprit in each.culprits:
        labels[each.tokens[culprit.node]] = culprit.fault.label
    end = each.start + each.duration
    return TraceJob(
        _id(each),
        _time(each.start),
        _time(end),
        each.gpu_generation,
        labels,
        each.start * SECOND,
        end * SECOND,
    )


def _truth(each: Plan) -> dict[str, Any]:
    culprits = {each.tokens[culprit.node]: culprit for culprit in each.culprits}
    return {
        "story": each.story,
        "onset": {ip: culprit.onset for ip, culprit in culprits.items()},
        "onset_time": {ip: _time(each.start + culprit.onset) for ip, culprit in culprits.items()},
        "fault": {ip: culprit.fault.name for ip, culprit in culprits.items()},
        "cascade": each.stall,
        "false_wave": each.wave,
    }
