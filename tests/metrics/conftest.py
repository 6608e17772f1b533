"""Shared by the tests of metrics."""

from __future__ import annotations

import pytest

from replay.testing import TINY_TRACES


@pytest.fixture
def tiny_trace():
    """A few alerts and a culprit."""
    return next(tiny for tiny in TINY_TRACES if tiny.name == "culprit").trace()
