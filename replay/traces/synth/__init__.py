"""Synthetic traces: seeded, calibrated, and honest about being made."""

from __future__ import annotations

from replay.traces.synth.knobs import PRESETS, Knobs
from replay.traces.synth.make import Made, make
from replay.traces.synth.write import write

__all__ = ["PRESETS", "Knobs", "Made", "make", "write"]
