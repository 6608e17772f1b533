"""What will happen to a job, decided before it runs: its nodes, its length, who fails, when.

Job ``i`` depends on the seed, the knobs and ``i`` alone, never on how many jobs there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from replay.traces.synth.draws import Draws, Table, exp, log, stratum
from replay.traces.synth.vocabulary import FAULTS, GENERATIONS, Fault

if TYPE_CHECKING:
    from replay.traces.synth.knobs import Knobs

__all__ = ["Culprit", "Plan", "Story", "plan"]

Story = Literal["healthy", "software", "plain", "double", "silent", "late"]

# Streams of draws. A job has one for each concern, (number, concern), so that turning a knob of one
# leaves the others as they were; what jobs share has (concern,).
SHAPE, CLOCK, NAMES, EXTRAS, TROUBLE = range(1, 6)
STORY, LEMONS = 1_000_000_001, 1_000_000_002

SIZES = ((16, 1.0), (32, 0.317), (64, 0.183), (625, 0.036), (20_000, 0.003))
"""Nodes → share of jobs that have at least so many: 8 GPUs a node, after 3,079 pretraining jobs
(arXiv 2505.05713); the last point only continues the slope."""

FAMILY = 8  # jobs that may share nodes: small, so that folds by shared tokens stay small


@dataclass(frozen=True, slots=True)
class Culprit:
    """A node that will fail.

    Attributes:
        node: Its number.
        fault: How it fails.
        onset: When, in seconds since the job's start.
        lag: Seconds from the onset until it says so; None if it never does.
    """

    node: int
    fault: Fault
    onset: int
    lag: int | None


@dataclass(frozen=True, slots=True)
class Plan:
    """A job before it runs. Times are whole seconds since its start.

    Attributes:
        number: From 0.
        story: What it is an example of.
        gpu_generation: As the trace will say it.
        tokens: Names of its nodes, strangers last.
        strangers: How many of them have no label.
        start: Its start, in seconds since 1970.
        duration: From start to end.
        culprits: Nodes that fail, by onset; none in a job without a node fault.
        stall: When the fleet notices; None in a healthy job.
        hang: Whether the fleet times out instead of crashing.
        wave: When a false wave rolls over the fleet; None for never.
    """

    number: int
    story: Story
    gpu_generation: str
    tokens: tuple[str, ...]
    strangers: int
    start: int
    duration: int
    culprits: tuple[Culprit, ...]
    stall: int | None
    hang: bool
    wave: int | None

    @property
    def nodes(self) -> int:
        """How many nodes have a label."""
        return len(self.tokens) - self.strangers


def plan(seed: int, number: int, knobs: Knobs) -> Plan:
    """Decide what will happen to job ``number``."""
    shape, extras = Draws(seed, number, SHAPE), Draws(seed, number, EXTRAS)
    generation = GENERATIONS.at(shape.unit())
    nodes = min(_size(shape.unit()), int(knobs.max_nodes))
    duration = _duration(shape, nodes, knobs)
    strangers = extras.whole(1, 2) if extras.chance(knobs.strangers) else 0
    tokens, lemon = _names(seed, number, nodes, strangers, knobs)
    story = _story(seed, number, knobs)
    trouble = Draws(seed, number, TROUBLE)
    culprits: tuple[Culprit, ...] = ()
    stall, hang = None, False
    if story == "software":
        stall, hang = duration - _most(trouble.whole(10, 300), duration), trouble.chance(0.4)
    elif story != "healthy":
        fault = _fault(trouble, generation)
        onset = duration - _most(trouble.whole(*fault.end), duration)
        stall = min(onset + trouble.whole(*fault.stall), (onset + duration) // 2)
        hang = fault.hang
        lag = _lag(trouble, story, fault, stall - onset, duration - onset)
        anyone, is_lemon = trouble.whole(0, nodes - 1), trouble.chance(0.7)
        culprits = (Culprit(anyone if lemon is None or not is_lemon else lemon, fault, onset, lag),)
        if story == "double" and nodes > 1:
            culprits += (_second(trouble, culprits[0], nodes, duration),)
    return Plan(
        number=number,
        story=story,
        gpu_generation=generation,
        tokens=tuple(tokens),
        strangers=strangers,
        start=_start(Draws(seed, number, CLOCK), duration, knobs),
        duration=duration,
        culprits=culprits,
        stall=stall,
        hang=hang,
        wave=_wave(extras, duration) if extras.chance(knobs.waves) else None,
    )


def _story(seed: int, number: int, knobs: Knobs) -> Story:
    faulty = 1.0 - knobs.healthy - knobs.software
    plain = 1.0 - knobs.double - knobs.silent - knobs.late
    stories: dict[Story, float] = {
        "healthy": knobs.healthy,
        "software": knobs.software,
        "double": faulty * knobs.double,
        "silent": faulty * knobs.silent,
        "late": faulty * knobs.late,
        "plain": faulty * plain,
    }
    return Table(stories).at(stratum(seed, number, STORY))


def _size(unit: float) -> int:
    """Nodes of a job: the inverse of :data:`SIZES`, straight between points on log-log paper."""
    above = 1.0 - unit
    for (low, high_share), (high, low_share) in pairwise(SIZES):
        if above >= low_share:
            slope = log(high / low) / log(low_share / high_share)
            return round(low * exp(slope * log(above / high_share)))
    return SIZES[-1][0]


def _duration(draws: Draws, nodes: int, knobs: Knobs) -> int:
    """Seconds: an early death, or as long as a fleet of this size lives (Meta: 7.9 h at 128)."""
    if draws.chance(knobs.short):
        seconds = draws.lognormal(1300.0, 0.9)
    else:
        seconds = draws.exponential(7.9 * 3600.0 * 128.0 / max(nodes, 16))
    return max(120, round(min(seconds, knobs.max_hours * 3600.0)))


def _start(draws: Draws, duration: int, knobs: Knobs) -> int:
    """Somewhere in 1969 or 1970: each job has its own clock."""
    if draws.chance(knobs.epoch):
        return -draws.whole(1, duration - 1)
    return draws.whole(-365 * 86_400, 365 * 86_400)


def _tokens(draws: Draws, n: int) -> list[str]:
    """Names in IPv6 form, without leading zeros, as the published set has them."""
    words = draws.words(8 * n)
    return [":".join(f"{word:x}" for word in words[i : i + 8]) for i in range(0, 8 * n, 8)]


def _names(
    seed: int, number: int, nodes: int, strangers: int, knobs: Knobs
) -> tuple[list[str], int | None]:
    """Names of all nodes; some may be in other jobs of the family too, and one of those ails."""
    draws = Draws(seed, number, NAMES)
    places = draws.sample(range(nodes), draws.whole(1, 4)) if draws.chance(knobs.lemons) else []
    tokens = _tokens(Draws(seed, number, NAMES, 0), nodes + strangers)
    family = _tokens(Draws(seed, LEMONS, number // FAMILY), 4)
    for place, token in zip(places, family, strict=False):
        tokens[place] = token
    return tokens, places[0] if places else None


def _wave(draws: Draws, duration: int) -> int:
    return draws.whole(0, 60) if draws.chance(0.5) else draws.whole(0, duration)


def _fault(draws: Draws, generation: str) -> Fault:
    column = {"Hopper": 0, "Ampere": 1}.get(generation, 2)
    by_name = Table({i: fault.weights[column] for i, fault in enumerate(FAULTS)})
    return FAULTS[by_name.at(draws.unit())]


def _most(seconds: int, duration: int) -> int:
    """A job that fails early has failed for at most 7/10 of its life."""
    return min(seconds, duration * 7 // 10)


def _lag(draws: Draws, story: Story, fault: Fault, stall: int, end: int) -> int | None:
    if story == "silent":
        return None
    lag = draws.whole(*fault.lag)
    if story == "late":
        lag = max(lag, stall + draws.whole(5, 120))
    return min(lag, end * 3 // 4)


def _second(draws: Draws, first: Culprit, nodes: int, duration: int) -> Culprit:
    """Another node, by the same cause, within five minutes."""
    node = (first.node + draws.whole(1, nodes - 1)) % nodes
    onset = first.onset + draws.whole(0, min(300, (duration - first.onset) // 2))
    return Culprit(node, first.fault, onset, draws.whole(*first.fault.lag))
