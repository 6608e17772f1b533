"""Every installed detector keeps the contract."""

from __future__ import annotations

import pytest

from replay.plugins import DETECTORS, installed
from replay.testing import detector_checks

CHECKS = [
    pytest.param(
        check,
        id=f"{point.name}:{check.__name__}",
        marks=[pytest.mark.once] if check.__name__ == "bounded_memory" else [],
    )
    for point in installed(DETECTORS)
    for check in detector_checks(point.name)
]


@pytest.mark.parametrize("check", CHECKS)
def test_contract(check):
    check()
