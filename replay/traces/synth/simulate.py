"""A job as it runs: SimPy processes for nodes, faults, cascades, false waves and teardown.

A process never asks another for its random numbers: each concern has a stream of its own, so that
turning one knob leaves the rest of the job as it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import simpy

from replay.traces.synth.draws import Draws
from replay.traces.synth.vocabulary import (
    BABBLE,
    CRASH,
    DECOYS,
    FAULTS,
    HANG,
    NOISE,
    PRELUDE,
    TEARDOWN,
    WAVES,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from replay.traces.synth.draws import Table
    from replay.traces.synth.knobs import Knobs
    from replay.traces.synth.plan import Culprit, Plan

    Process = Generator[simpy.Event, Any, None]

__all__ = ["Simulation", "delivered"]

BACKGROUND, CHATTER, DECOY, WAVE, FAULT, CASCADE, ENDING = range(10, 17)  # streams of draws
CLUMP = 2.0  # mean alerts of one background cause: half of all gaps are below 10 s (Tachyon)
SHOUT = 40.0  # mean alerts of one outburst of a chatty node
BEFORE, AFTER = 120, 40  # seconds around the job in which agents may talk


class Simulation:
    """One job, run to its end.

    Args:
        plan: What will happen.
        knobs: How loud it is.
        seed: The trace's seed.

    Attributes:
        rows: (second since the job's start, node, kind), in the order they were said.
    """

    def __init__(self, plan: Plan, knobs: Knobs, seed: int) -> None:
        self.plan = plan
        self.knobs = knobs
        self.rows: list[tuple[int, int, str]] = []
        self._streams = {i: Draws(seed, plan.number, i) for i in range(BACKGROUND, ENDING + 1)}
        ending = self._streams[ENDING]
        self._outside = ending.chance(knobs.outside)
        self._env = simpy.Environment(-BEFORE if self._outside else 0)
        self._culprits = {culprit.node for culprit in plan.culprits}
        self._speechless = self._choose_speechless(ending)
        self._start()
        self._env.run(plan.duration + (AFTER if self._outside else 1))

    def _choose_speechless(self, draws: Draws) -> set[int]:
        quiet = {i for i in range(self.plan.nodes) if draws.chance(self.knobs.mute)}
        never = {culprit.node for culprit in self.plan.culprits if culprit.lag is None}
        return quiet - self._culprits | never

    def _start(self) -> None:
        plan, knobs = self.plan, self.knobs
        fault, chatter = self._streams[FAULT], self._streams[CHATTER]
        for node in range(len(plan.tokens)):
            if knobs.background > 0.0:
                self._begin(self._background(node))
            if chatter.chance(knobs.chatty) and node not in self._culprits:
                self._begin(self._chatter(node))
        self._begin(self._decoys())
        for culprit in plan.culprits:
            self._begin(self._fail(culprit))
            if fault.chance(knobs.prelude):
                self._warn(culprit)
            if fault.chance(knobs.ailing):
                self._begin(self._ail(culprit.node))
        if plan.wave is not None:
            self._roll(plan.wave)
        if plan.stall is not None:
            self._begin(self._cascade(plan.stall))
        self._tear_down()

    def _begin(self, process: Process) -> None:
        self._env.process(process)

    def _say(self, node: int, kind: str, times: int = 1) -> None:
        if node not in self._speechless:
            self.rows += [(int(self._env.now), node, kind)] * times

    def _until(self, at: int) -> simpy.Event:
        return self._env.timeout(max(0, at - int(self._env.now)))

    def _later(self, at: int, node: int, kind: str) -> None:
        """Let a node say something at its time, if it still can by then."""
        self._until(at).callbacks.append(lambda _: self._say(node, kind))

    # healthy life

    def _background(self, node: int) -> Process:
        draws, pause = self._streams[BACKGROUND], self._env.timeout
        mean, due = 3600.0 * CLUMP / self.knobs.background, float(self._env.now)
        while True:
            due += draws.exponential(mean)
            yield self._until(int(due))
            kind = NOISE.at(draws.unit())
            for _ in range(draws.geometric(CLUMP)):
                self._say(node, kind)
                yield pause(draws.whole(0, 5))

    def _chatter(self, node: int) -> Process:
        draws, pause = self._streams[CHATTER], self._env.timeout
        knobs, duration = self.knobs, self.plan.duration
        left = int(min(draws.pareto(1.1) * knobs.chatty_alerts, knobs.chatty_most, duration))
        table = DECOYS if draws.chance(knobs.chatty_root) else BABBLE
        kinds = [table.at(draws.unit())] + [BABBLE.at(draws.unit())] * draws.whole(0, 1)
        mean, due = duration * SHOUT / max(left, 1), float(self._env.now)
        while left > 0:
            due += draws.exponential(mean)
            yield self._until(int(due))
            outburst = min(left, draws.geometric(SHOUT))
            left -= outburst
            for _ in range(outburst):
                self._say(node, draws.choose(kinds))
                yield pause(draws.whole(0, 2))

    def _decoys(self) -> Process:
        draws, plan = self._streams[DECOY], self.plan
        expected = self.knobs.decoys * plan.nodes * plan.duration / 3600.0
        expected = max(expected, self.knobs.decoy_least)
        due = float(self._env.now)
        while expected > 0.0:
            due += draws.exponential(plan.duration / expected)
            yield self._until(int(due))
            node = draws.whole(0, plan.nodes - 1)
            if draws.chance(self.knobs.decoy_hard):
                self._begin(self._false_fault(node))
            else:
                self._say(node, DECOYS.at(draws.unit()))

    def _false_fault(self, node: int) -> Process:
        draws = self._streams[DECOY]
        fault = draws.choose(FAULTS)
        kinds = [fault.leads.at(draws.unit()), draws.choose(fault.companions)[0]]
        for kind in kinds * draws.whole(1, 2):
            self._say(node, kind)
            yield self._env.timeout(draws.whole(*fault.spread))

    def _roll(self, wave: int) -> None:
        draws = self._streams[WAVE]
        kinds = [WAVES.at(draws.unit()) for _ in range(draws.whole(1, 2))]
        reach = 0.5 + 0.45 * draws.unit()
        for node in range(self.plan.nodes):
            if draws.chance(reach):
                for _ in range(draws.whole(1, 2)):
                    self._later(wave + draws.whole(0, 40), node, draws.choose(kinds))

    # failing

    def _warn(self, culprit: Culprit) -> None:
        draws = self._streams[FAULT]
        since = max(0, culprit.onset - 3600)
        for _ in range(draws.poisson(6.0)):
            at = draws.whole(since, max(since, culprit.onset - 1))
            self._later(at, culprit.node, PRELUDE.at(draws.unit()))

    def _ail(self, node: int) -> Process:
        draws = self._streams[FAULT]
        yield self._until(draws.whole(0, 5))
        self._say(node, PRELUDE.at(draws.unit()))
        yield from self._chatter(node)

    def _fail(self, culprit: Culprit) -> Process:
        draws, fault, node = self._streams[FAULT], culprit.fault, culprit.node
        dies = draws.chance(fault.dies)
        sticky = draws.chance(self.knobs.sticky)
        terse = draws.chance(self.knobs.terse)
        if culprit.lag is None:
            return
        yield self._until(culprit.onset + culprit.lag)
        now, lead, last = int(self._env.now), fault.leads.at(draws.unit()), 0
        devices = min(8, draws.geometric(2.0))
        self._say(node, lead, devices)
        for kind in () if terse else self._companions(culprit, lead):
            after = draws.whole(*fault.spread)
            last = max(last, after)
            self._later(now + after, node, kind)
            if draws.chance(fault.shared):
                other = draws.whole(0, self.plan.nodes - 1)
                self._later(now + draws.whole(5, 60), other, kind)
        if dies:
            yield self._until(now + last + 1)
            self._speechless.add(node)
            return
        while sticky and not terse:
            yield self._env.timeout(draws.whole(*fault.poll))
            self._say(node, lead, devices)

    def _companions(self, culprit: Culprit, lead: str) -> list[str]:
        """What else it says: at least one more root kind."""
        draws, fault = self._streams[FAULT], culprit.fault
        others = [pair for pair in fault.companions if pair[0] != lead]
        chosen = [kind for kind, probability in others if draws.chance(probability)]
        return chosen if set(chosen) & set(DECOYS.items) else [others[0][0], *chosen]

    def _cascade(self, stall: int) -> Process:
        draws, plan, knobs = self._streams[CASCADE], self.plan, self.knobs
        weak = draws.chance(knobs.weak)
        reach = draws.ranked(1, 8) if weak else draws.ranked(6, 6 + draws.whole(0, 1))
        kinds, mean = (HANG, 20.0) if plan.hang else (CRASH, 8.0)
        yield self._until(stall)
        for node in range(plan.nodes):
            if draws.chance(reach * knobs.rejoins if node in self._culprits else reach):
                self._begin(self._victim(node, kinds, mean))

    def _victim(self, node: int, kinds: Table[str], mean: float) -> Process:
        draws, pause, knobs = self._streams[CASCADE], self._env.timeout, self.knobs
        mine = [kinds.at(draws.unit()) for _ in range(draws.whole(1, 3))]
        if not draws.chance(knobs.storm):
            yield pause(int(draws.exponential(mean)))
        for _ in range(int(min(knobs.cascade_alerts * draws.pareto(1.5), knobs.cascade_most))):
            self._say(node, draws.choose(mine))
            if not draws.chance(knobs.storm):
                yield pause(draws.whole(0, 6))

    def _tear_down(self) -> None:
        draws, plan = self._streams[ENDING], self.plan
        reach, last = draws.unit(), 20 if self._outside else 0
        for node in range(plan.nodes):
            if draws.chance(reach):
                at = plan.duration + draws.whole(-8, last)
                self._later(at, node, TEARDOWN.at(draws.unit()))


def delivered(
    rows: Sequence[tuple[int, int, str]], knobs: Knobs, draws: Draws
) -> list[tuple[int, int, str]]:
    """The rows as a collector writes them down: some late, some twice."""
    arrivals = [
        (row[0] + (draws.whole(1, 90) if draws.chance(knobs.unordered) else 0), row) for row in rows
    ]
    arrivals += [
        (at + draws.whole(0, 30), row) for at, row in arrivals if draws.chance(knobs.duplicates)
    ]
    arrivals.sort(key=lambda arrival: arrival[0])
    return [row for _, row in arrivals]
