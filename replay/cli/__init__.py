"""The command line: the only place that prints or exits."""

from __future__ import annotations

import sys

import replay

__all__ = ["main"]


def main(argv: list[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    arguments = sys.argv[1:] if argv is None else argv
    if arguments == ["--version"]:  # before click is paid for
        print(f"alert-replay, version {replay.__version__}")
        return
    from replay.cli.verbs import run_verb

    sys.exit(run_verb(arguments))
