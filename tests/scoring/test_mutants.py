"""Planted mistakes are noticed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.once
def test_every_planted_mistake_is_noticed():
    script = Path(__file__).with_name("mutants.py")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    unnoticed = [line for line in done.stdout.splitlines() if not line.startswith("noticed")]
    assert done.returncode == 0, "\n".join(unnoticed) + done.stderr
    assert len(done.stdout.splitlines()) > 20
