"""The command line: the only place that prints or exits."""

from __future__ import annotations

from replay.cli.main import main

__all__ = ["main"]
