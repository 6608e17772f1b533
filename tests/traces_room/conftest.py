"""Small traces to read, break and write again."""

from __future__ import annotations

from pathlib import Path

import pytest

FIXTURES = Path(__file__).parent.parent / "traces"


@pytest.fixture
def good(monkeypatch):
    """The folder of traces that may be odd but are read; messages name paths below it."""
    monkeypatch.chdir(FIXTURES / "good")
    return Path()


@pytest.fixture
def bad(monkeypatch):
    """The folder of traces that are refused; messages name paths below it."""
    monkeypatch.chdir(FIXTURES / "bad")
    return Path()
