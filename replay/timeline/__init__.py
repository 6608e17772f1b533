"""When: jobs and their alerts laid out on one axis of replay time, before anything moves.

What lives here is pure: a trace goes in, a :class:`Timeline` of sorted columns comes out. What
waits for a clock is in ``engine``.
"""

from __future__ import annotations

from replay.timeline.facts import Facts, Plan
from replay.timeline.reel import Reel
from replay.timeline.schedule import Schedule, seconds
from replay.timeline.tape import PIECE, SECOND, Slot, Timeline

__all__ = ["PIECE", "SECOND", "Facts", "Plan", "Reel", "Schedule", "Slot", "Timeline", "seconds"]
