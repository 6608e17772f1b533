"""The folder that a run is kept in, and that an earlier one in it is not lost."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from replay.errors import ReplayError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from replay.scoring.log import VerdictLog
    from replay.scoring.scorer import Score

__all__ = ["FILES", "keep", "make_room"]

FILES = ("config.toml", "verdicts.jsonl", "verdicts.parquet", "score.json", "run.json")
"""What a kept run may consist of."""


def make_room(folder: str | Path, *, force: bool = False) -> None:
    """Make the folder, and refuse what could not be kept, while nothing has been run yet.

    Args:
        folder: Where the run is to be kept.
        force: An earlier run there may be replaced.

    Raises:
        UsageError: An earlier run is there, or the folder cannot be written.

    """
    target = Path(folder)
    try:
        str(target).encode()
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=target):
            pass
        found = [name for name in FILES if (target / name).exists()]
    except UnicodeEncodeError as error:
        raise UsageError(f"The run cannot be kept in {folder}: the name is not UTF-8.") from error
    except OSError as error:
        raise UsageError(f"The run cannot be kept in {folder}: {error.strerror}.") from error
    if found and not force:
        raise UsageError(
            f"{folder} holds an earlier run: {', '.join(found)}.",
            "another folder, or --force to replace it",
        )


def keep(
    folder: str | Path,
    log: VerdictLog,
    score: Score,
    texts: Mapping[str, str],
    *,
    force: bool = False,
) -> None:
    """Keep verdicts, score and more: all of it, or what was there before.

    Args:
        folder: Where.
        log: The verdicts.
        score: What they are worth.
        texts: Name in :data:`FILES` → content.
        force: Replace an earlier run.

    Raises:
        UsageError: As of :func:`make_room`.
        ReplayError: It cannot be written.

    """
    make_room(folder, force=force)
    target = Path(folder)
    try:
        with tempfile.TemporaryDirectory(prefix=".new-", dir=target) as new:
            log.write(Path(new, "verdicts.jsonl"))
            log.write(Path(new, "verdicts.parquet"))
            for name, text in {"score.json": score.json(), **texts}.items():
                Path(new, name).write_bytes(text.encode())
            for name in FILES:
                if Path(new, name).exists():
                    Path(new, name).replace(target / name)
                else:
                    (target / name).unlink(missing_ok=True)
    except OSError as error:
        raise ReplayError(
            f"The run cannot be kept in {folder}: {error.strerror or error}."
        ) from error
