"""Shared by the tests of rules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from detectors.rules.counters import History

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def promqltest():
    """The runner of test scripts, which is a command beside the rooms."""
    spec = importlib.util.spec_from_file_location("promqltest", ROOT / "promqltest.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look a class's module up there
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def small_job():
    """Makes a job of a few nodes and minutes, seeded."""

    def make(seed: int, end: float = 600.0, nodes: int = 6, first: float = 0.0) -> History:
        draw = np.random.default_rng(seed)
        count = int(draw.integers(30, 160))
        names = tuple(f"node-{number}" for number in range(nodes))
        kinds = ("hang", "nic_down", "ecc", "slow")
        at = np.sort(draw.integers(int(first), int(end), count)).astype(float)
        return History(
            "Job1",
            names,
            at,
            draw.choice(nodes, count, p=draw.dirichlet(np.full(nodes, 0.5))),
            draw.choice(4, count, p=draw.dirichlet(np.full(4, 0.7))),
            names,
            kinds,
            end,
        )

    return make
