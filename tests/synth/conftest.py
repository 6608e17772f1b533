"""The published size, made once a session."""

from __future__ import annotations

import pytest

from replay.traces.synth import make


@pytest.fixture(scope="session")
def dataset():
    """98 jobs of the preset ``dataset``."""
    return make("dataset", 98, 7)
