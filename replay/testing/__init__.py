"""For authors of plug-ins: hand-made traces, a player of a few lines, and contract checks.

In a test of your own::

    import pytest
    from replay.testing import detector_checks

    @pytest.mark.parametrize("check", detector_checks(MyDetector), ids=lambda c: c.__name__)
    def test_contract(check):
        check()

Nothing here needs pytest; checks are plain functions that raise ``AssertionError``.
"""

from __future__ import annotations

from replay.clock import ManualClock
from replay.testing.detectors import detector_checks
from replay.testing.streams import TINY_TRACES, TinyTrace, play, stream
from replay.testing.transports import transport_checks

__all__ = [
    "TINY_TRACES",
    "ManualClock",
    "TinyTrace",
    "detector_checks",
    "play",
    "stream",
    "transport_checks",
]
