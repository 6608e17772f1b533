"""The same replay in its plainest form: one SimPy process, one timeout per instant.

Several times slower than the player, and knows no clock and no controls. It is here to be read,
and to be compared with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import simpy

from replay.messages import JobEnded, JobStarted
from replay.timeline import Reel

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from replay.messages import Message
    from replay.timeline import Timeline

__all__ = ["play_plainly"]


def play_plainly(
    timeline: Timeline, publish: Callable[[Sequence[Message]], object], run: str = ""
) -> None:
    """Publish everything on a timeline, in order, in virtual time."""
    env = simpy.Environment(timeline.begin_ns)
    env.process(_play(env, timeline, publish, run))
    env.run()


def _play(
    env: simpy.Environment,
    timeline: Timeline,
    publish: Callable[[Sequence[Message]], object],
    run: str,
) -> Generator[simpy.Event, None, None]:
    reel = Reel(timeline)
    starts = timeline.instant_starts.tolist()
    begins = {slot.begin_ns for slot in timeline.slots}
    ends = {slot.end_ns for slot in timeline.slots}
    number = 0
    for at in timeline.landmarks_ns.tolist():
        yield env.timeout(at - env.now)
        messages: list[Message] = []
        if at in begins:
            messages += [
                JobStarted(run, 0, slot.job, slot.start_time, slot.at(at))
                for slot in timeline.slots
                if slot.begin_ns == at
            ]
        if number < len(timeline.instant_ns) and timeline.instant_ns[number] == at:
            messages += reel.slices(starts[number], starts[number + 1], run=run)
            number += 1
        if at in ends:
            messages += [
                JobEnded(run, 0, slot.job.id, slot.at(at), slot.count)
                for slot in timeline.slots
                if slot.end_ns == at
            ]
        publish(messages)
