"""How results leave: documents and tables on stdout, notes on stderr."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import sys
import traceback
from typing import TYPE_CHECKING, Any

import click

from replay.errors import ReplayError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from replay.traces.findings import Findings

__all__ = [
    "as_json",
    "aside",
    "command",
    "complain",
    "note",
    "print_json",
    "print_line",
    "print_table",
    "printable",
    "show_origin",
    "tell_left_out",
    "writing",
]

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""What moves a cursor, rings a bell or turns the direction of text."""


def printable(text: str) -> str:
    r"""Text that leaves a terminal as it is, whatever a trace has in it; lines and tabs stay.

    Examples:
        >>> print(printable("Job\x1b[31m1"))
        Job\x1b[31m1

    """
    return _CONTROLS.sub(lambda found: repr(found[0])[1:-1], text)


def command(*words: object) -> str:
    """A command of ours, to be pasted into a shell.

    Examples:
        >>> command("info", "my traces", "Job1")
        "alert-replay info 'my traces' Job1"

    """
    return shlex.join(["alert-replay", *map(str, words)])


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """Write results while the block runs.

    Raises:
        ReplayError: The disk is full, or the like.
        BrokenPipeError: Nobody reads any more, which is no failure.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise ReplayError(f"Standard output cannot be written: {error.strerror}.") from error


@contextlib.contextmanager
def aside() -> Iterator[None]:
    """Let plug-ins run in the block: what they print is a note, and never part of a result."""
    with contextlib.redirect_stdout(sys.stderr):
        yield


def note(text: str) -> None:
    """Say something that is not a result; that it cannot be said stops nothing."""
    with contextlib.suppress(OSError):
        click.echo(printable(text), err=True)


def complain(error: ReplayError) -> None:
    """Say what went wrong, in one sentence; where ``--debug`` asks for it, also how it came to it."""
    context = click.get_current_context(silent=True)
    if context is not None and context.find_root().obj and error.__cause__ is not None:
        show_origin(error.__cause__)
    note(f"alert-replay: {error}")


def show_origin(error: BaseException) -> None:
    """Show how an error came about."""
    note("".join(traceback.format_exception(error)).rstrip())


def tell_left_out(findings: Findings) -> None:
    """List and count what a lenient reader left out; nothing where it left out nothing."""
    if findings.errors:
        for line in findings.lines():
            note(line)
        faults = "1 fault" if findings.errors == 1 else f"{findings.errors} faults"
        note(
            f"Because of {faults}, rows or jobs were left out (--lenient); the rest is what follows."
        )


def print_line(text: str) -> None:
    """Say one line of a result."""
    with writing():
        click.echo(printable(text))


def as_json(document: Any, indent: int | None = None) -> str:
    """A document as text; null for what is undefined, never NaN."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    plain = encoding.lower().replace("-", "") != "utf8"  # then nothing but ASCII is sure to pass
    return json.dumps(document, ensure_ascii=plain, allow_nan=False, indent=indent)


def print_json(document: Any) -> None:
    """Print one document."""
    with writing():
        click.echo(as_json(document, indent=2))


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    title: str = "",
    dim: Iterable[int] = (),
) -> None:
    """Print a table; numbers align right, rows listed in ``dim`` are dimmed on a terminal.

    Args:
        columns: Headers. One that starts with ``"<"`` is aligned left, others right.
        rows: Cells, already formatted.
        title: A line above the table.
        dim: Row numbers, from 0.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=title or None, title_justify="left", box=None, pad_edge=False, padding=(0, 1)
    )
    for header in columns:
        left = header.startswith("<")
        table.add_column(
            header.removeprefix("<"), justify="left" if left else "right", no_wrap=True
        )
    dimmed = set(dim)
    for number, row in enumerate(rows):
        style = "dim" if number in dimmed else ""
        table.add_row(*(Text(printable(cell)) for cell in row), style=style)
    console = Console(highlight=False)
    needed = table.__rich_measure__(console, console.options.update(max_width=10_000)).maximum
    console.width = max(console.width, needed, len(title))  # a figure is never cut short
    with writing():
        console.print(table)
