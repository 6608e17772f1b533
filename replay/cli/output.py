"""How results leave: documents and tables on stdout, notes on stderr."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["note", "print_json", "print_line", "print_table"]


def note(text: str) -> None:
    """Say something that is not a result."""
    click.echo(text, err=True)


def print_line(text: str) -> None:
    """Say one line of a result."""
    click.echo(text)


def print_json(document: Any) -> None:
    """Print one document; null for what is undefined, never NaN."""
    click.echo(json.dumps(document, ensure_ascii=False, allow_nan=False, indent=2))


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
        table.add_row(*(Text(cell) for cell in row), style=style)
    console = Console(highlight=False)
    needed = table.__rich_measure__(console, console.options.update(max_width=10_000)).maximum
    console.width = max(console.width, needed, len(title))  # a figure is never cut short
    console.print(table)
