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

__all__ = ["Run"]

BACKGROUND, CHATTER, DECOY, WAVE, FAULT, CASCADE, ENDING = range(10, 17)  # streams of draws
CLUMP = 2.0  # mean alerts of one background cause: half of all gaps are below 10 s (Tachyon)
SHOUT = 40.0  # mean alerts of one outburst of a chatty node
BEFORE, AFTER = 120, 40  # seconds around the job in which agents may talk


class Run:
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
        self._speechless = self._choose_speechless(ending)
        self._stalled = self._env.event()
        self._start_processes()
        self._env.run(plan.duration + (AFTER if self._outside else 1))

    def _choose_speechless(self, draws: Draws) -> set[int]:
        culprits = {culprit.node for culprit in self.plan.culprits}
        quiet = {i for i in range(self.plan.nodes) if draws.chance(self.knobs.mute)} - culprits
        return quiet | {culprit.node for culprit in self.plan.culprits if culprit.lag is None}

    def _start_processes(self) -> None:
        plan, knobs = self.plan, self.knobs
        culprits = {culprit.node for culprit in plan.culprits}
        chatter = self._streams[CHATTER]
        for node in range(len(plan.tokens)):
            if knobs.background > 0.0:
                self._begin(self._background(node))
            if chatter.chance(knobs.chatty) and node not in culprits:
                self._begin(self._chatter(node))
        self._begin(self._decoys())
        for culprit in plan.culprits:
            self._begin(self._fail(culprit))
            if self._streams[FAULT].chance(knobs.prelude):
                self._begin(self._prelude(culprit))
            if self._streams[FAULT].chance(knobs.ailing):
                self._begin(self._ail(culprit.node))
        if plan.wave is not None:
            self._begin(self._wave(plan.wave))
        if plan.stall is not None:
            self._begin(self._stall(plan.stall))
            self._begin(self._cascade())
        self._begin(self._teardown())

    def _begin(self, process: Process) -> None:
        self._env.process(process)

    def _say(self, node: int, kind: str, times: int = 1) -> None:
        if node not in self._speechless:
            self.rows += [(int(self._env.now), node, kind)] * times

    def _until(self, at: int) -> simpy.Event:
        return self._env.timeout(max(0, at - int(self._env.now)))

    def _at(self, at: int, node: int, kind: str) -> Process:
        yield self._until(at)
        self._say(node, kind)

    # healthy life

    def _background(self, node: int) -> Process:
        draws, pause = self._streams[BACKGROUND], self._env.timeout
        mean = 3600.0 * CLUMP / self.knobs.background
        while True:
            yield pause(draws.gap(mean))
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
        mean = SHOUT * (duration / max(left, 1) - 1.0)  # an outburst takes about a second an alert
        while left > 0:
            yield pause(draws.gap(mean))
            outburst = min(left, draws.geometric(SHOUT))
            left -= outburst
            for _ in range(outburst):
                self._say(node, draws.choose(kinds))
                yield pause(draws.whole(0, 2))

    def _decoys(self) -> Process:
        draws, plan = self._streams[DECOY], self.plan
        expected = self.knobs.decoys * plan.nodes * plan.duration / 3600.0
        expected = max(expected, self.knobs.decoy_least)
        while expected > 0.0:
            yield self._env.timeout(draws.gap(plan.duration / expected))
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

    def _wave(self, at: int) -> Process:
        draws = self._streams[WAVE]
        kinds = [WAVES.at(draws.unit()) for _ in range(draws.whole(1, 2))]
        reach = 0.5 + 0.45 * draws.unit()
        yield self._until(at)
        for node in range(self.plan.nodes):
            if draws.chance(reach):
                for _ in range(draws.whole(1, 2)):
                    self._begin(self._at(at + draws.whole(0, 40), node, draws.choose(kinds)))

    # failing

    def _prelude(self, culprit: Culprit) -> Process:
        draws = self._streams[FAULT]
        since = max(0, culprit.onset - 3600)
        for _ in range(draws.poisson(6.0)):
            at = draws.whole(since, max(since, culprit.onset - 1))
            self._begin(self._at(at, culprit.node, PRELUDE.at(draws.unit())))
        yield self._env.timeout(0)

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
            self._begin(self._at(now + after, node, kind))
            if draws.chance(fault.shared):
                other = draws.whole(0, self.plan.nodes - 1)
                self._begin(self._at(now + draws.whole(5, 60), other, kind))
        if dies:
            yield self._until(now + last + 1)
            self._speechless.add(node)
        while sticky and not terse:
            yield self._env.timeout(draws.whole(*fault.poll))
            self._say(node, lead, devices)

    def _companions(self, culprit: Culprit, lead: str) -> list[str]:
        """What else it says: at least one more kind."""
        draws, fault = self._streams[FAULT], culprit.fault
        others = [pair for pair in fault.companions if pair[0] != lead]
        chosen = [kind for kind, probability in others if draws.chance(probability)]
        return chosen or [others[0][0]]

    def _stall(self, at: int) -> Process:
        yield self._until(at)
        self._stalled.succeed()

    def _cascade(self) -> Process:
        draws, plan, knobs = self._streams[CASCADE], self.plan, self.knobs
        reach = (
            draws.ranked(1, 8)
            if draws.chance(knobs.weak)
            else draws.ranked(6, 6 + draws.whole(0, 1))
        )
        culprits = {culprit.node for culprit in plan.culprits}
        kinds = HANG if plan.hang else CRASH
        yield self._stalled
        for node in range(plan.nodes):
            if draws.chance(reach * knobs.rejoins if node in culprits else reach):
                self._begin(self._victim(node, kinds, 20.0 if plan.hang else 8.0))

    def _victim(self, node: int, kinds: Table[str], mean: float) -> Process:
        draws, pause, knobs = self._streams[CASCADE], self._env.timeout, self.knobs
        mine = [kinds.at(draws.unit()) for _ in range(draws.whole(1, 3))]
        if not draws.chance(knobs.storm):
            yield pause(draws.gap(mean))
        for _ in range(int(min(knobs.cascade_alerts * draws.pareto(1.5), knobs.cascade_most))):
            self._say(node, draws.choose(mine))
            if not draws.chance(knobs.storm):
                yield pause(draws.whole(0, 6))

    def _teardown(self) -> Process:
        draws, plan = self._streams[ENDING], self.plan
        reach, first = draws.unit(), plan.duration - 8
        yield self._until(first)
        for node in range(plan.nodes):
            if draws.chance(reach):
                at = first + draws.whole(0, 8 + (AFTER // 2 if self._outside else 0))
                self._begin(self._at(at, node, TEARDOWN.at(draws.unit())))


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
