"""Shared by all rooms' tests."""

from __future__ import annotations

import os

import hypothesis

hypothesis.settings.register_profile(
    "default",
    deadline=None,
    max_examples=50,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.register_profile(
    "ci", parent=hypothesis.settings.get_profile("default"), derandomize=True
)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "default")
