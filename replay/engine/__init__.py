"""Moving: a SimPy environment with a tape beside its heap, and the player that drives it.

The player walks a timeline, waits on the clock, publishes messages and obeys controls. It never
sees the truth, and it never prints.
"""

from __future__ import annotations

from replay.engine.environment import LAST, TapeEnvironment
from replay.engine.options import MAX, Playback
from replay.engine.plain import play_plainly
from replay.engine.player import Player
from replay.engine.report import Jump, Lateness, Played, PlayerState

__all__ = [
    "LAST",
    "MAX",
    "Jump",
    "Lateness",
    "Playback",
    "Played",
    "Player",
    "PlayerState",
    "TapeEnvironment",
    "play_plainly",
]
