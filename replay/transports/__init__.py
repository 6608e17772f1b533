"""How messages move from the engine to the host."""

from __future__ import annotations

from replay.transports.base import Sink, Source

__all__ = ["Sink", "Source"]
