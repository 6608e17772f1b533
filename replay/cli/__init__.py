"""The command line: the only place that prints or exits."""

from __future__ import annotations

import io
import os
import sys

import replay

__all__ = ["main"]


def main(argv: list[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    arguments = sys.argv[1:] if argv is None else argv
    _settle_streams()
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")  # which gives back what is freed
    if arguments == ["--version"]:  # before click is paid for
        code = _tell_version()
    else:
        from replay.cli.verbs import run_verb

        code = run_verb(arguments)
    sys.exit(_flushed(code))


def _tell_version() -> int:
    try:
        print(f"alert-replay, version {replay.__version__}", flush=True)
    except OSError as error:
        print(f"alert-replay: {error.strerror}.", file=sys.stderr)
        return 1
    return 0


def _settle_streams() -> None:
    """Open what was closed, so that no file takes its number; let every text be written."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8"))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _flushed(code: int) -> int:
    """Write what is left; 1 in place of 0 where a result cannot be written."""
    for stream, failed in ((sys.stdout, 1), (sys.stderr, 0)):
        try:
            stream.flush()
        except OSError:  # must not be tried again when the interpreter ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            code = code or failed
    return code
