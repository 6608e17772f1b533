"""What a path holds: which form, and in which files or folders. Content decides, not names."""

from __future__ import annotations

import glob
import os
import re
import stat
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from replay.errors import TraceError, UsageError
from replay.traces.columns import EVENT_COLUMNS
from replay.traces.files import PARQUET_MAGIC, head, require_file, unreadable
from replay.traces.findings import Place, shown
from replay.traces.folders import EVENTS_FILE, META_FILE, PACKED_ENDINGS
from replay.traces.names import natural_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from replay.traces.findings import Findings

__all__ = ["FORMS", "Form", "Located", "locate"]

Form = Literal["folders", "jsonl", "parquet"]
"""The three published forms of a trace."""

FORMS: tuple[Form, ...] = get_args(Form)

_JOB_FILES = {name + ending for name in (META_FILE, EVENTS_FILE) for ending in PACKED_ENDINGS}
_TABLES = (".parquet", ".pq")
_JOB_LINES = tuple(name + end for name in (".jsonl", ".ndjson") for end in PACKED_ENDINGS)
_SHARD = re.compile(r"(.*)-([0-9]{5})-of-([0-9]{5})(\..*)?")
_MOST_ENTRIES = 200_000
_DEEPEST = 32
_LOOKED = "NAME/meta.json with NAME/event_report.csv, *.jsonl, *.parquet"


@dataclass(frozen=True, slots=True)
class Located:
    """What to read.

    Attributes:
        form: The form.
        paths: Job folders, or files; in natural order.
    """

    form: Form
    paths: tuple[Path, ...]


def locate(path: str, form: Form | None, findings: Findings) -> Located:
    """Find out what a path holds.

    Args:
        path: A file, a job's folder, a folder above, or a glob.
        form: Take this form where there are several.
        findings: Takes what is wrong on the way.

    Raises:
        TraceError: There is nothing, or there are several forms side by side.
        UsageError: ``form`` is none of :data:`FORMS`.
    """
    if form is not None and form not in FORMS:
        raise UsageError(f"There is no form {form!r}.", f"one of {', '.join(FORMS)}")
    search = _Search(findings)
    roots = _roots(path)
    for root in roots:
        search.guarded(partial(search.named, root, alone=len(roots) == 1), root)
    found = {each: sorted(search.found[each], key=_natural) for each in FORMS}
    sides = [each for each in FORMS if found[each]]
    chosen = [each for each in sides if form in (None, each)]
    if len(chosen) > 1:
        what = f"several forms side by side: {_examples(found, sides)}"
        raise TraceError(what, path, remedy=f"--format {chosen[-1]}")
    if not chosen and findings.errors:
        return Located(form or FORMS[0], ())  # why there is nothing has been said
    if not chosen:
        what = f"no job found (looked for {_LOOKED}, here and below)"
        if sides:
            what = f"no job found in the form {form}, but {_examples(found, sides)}"
        raise TraceError(what, path, remedy="name the folder or the file that holds the jobs")
    _check_shards(found[chosen[0]], findings)
    return Located(chosen[0], tuple(found[chosen[0]]))


def _natural(path: Path) -> tuple[object, ...]:
    return natural_key(str(path))


def _examples(found: dict[Form, list[Path]], sides: list[Form]) -> str:
    return " and ".join(f"{side} ({found[side][0]})" for side in sides)


def _roots(path: str) -> list[Path]:
    if "\0" in path:
        raise TraceError("no name of a file", value=shown(path))
    if os.path.lexists(path):
        return [Path(path)]
    roots = glob.glob(path, recursive=True)  # noqa: PTH207 - Path.glob takes no absolute pattern
    if not roots:
        what = "nothing matches" if glob.has_magic(path) else "there is no such file or folder"
        raise TraceError(what, path)
    return sorted(map(Path, roots), key=_natural)


class _Search:
    """Walks folders and sorts what it meets by form."""

    def __init__(self, findings: Findings) -> None:
        self.findings = findings
        self.found: dict[Form, set[Path]] = {form: set() for form in FORMS}
        self.entries = 0

    def guarded(self, step: Callable[[], None], path: Path) -> None:
        """Take a step; what is wrong with its path is reported, and ends this step alone."""
        try:
            step()
        except OSError as error:
            self.findings.caught(unreadable(path, error))
        except TraceError as error:
            self.findings.caught(error)

    def named(self, path: Path, *, alone: bool) -> None:
        """Take in a path that was named, perhaps by a glob among others."""
        if _is_folder(path):
            self._walk(path, ())
        elif path.name in _JOB_FILES:
            self.found["folders"].add(path.parent)
        elif (form := _form(path)) == "parquet" and alone:
            # one table is half a trace: the other stands beside it
            tables = (each for each in path.parent.iterdir() if each.name.endswith(_TABLES))
            self.found[form].update([path, *tables])
        else:
            self.found[form].add(path)

    def _walk(self, folder: Path, above: tuple[tuple[int, int], ...]) -> None:
        status = folder.stat()
        here = status.st_dev, status.st_ino
        if here in above:
            what, remedy = "a folder that contains itself", "remove the link"
            raise TraceError(what, str(folder), remedy=remedy)
        if len(above) > _DEEPEST:
            what, remedy = f"more than {_DEEPEST} folders deep", "name the trace's own folder"
            raise TraceError(what, str(folder), remedy=remedy)
        for path in sorted(folder.iterdir()):
            self.entries += 1
            if self.entries > _MOST_ENTRIES:
                what, remedy = f"more than {_MOST_ENTRIES} files", "name the trace's own folder"
                raise TraceError(what, str(folder), remedy=remedy)
            if not path.name.startswith("."):
                self.guarded(partial(self._met, path, (*above, here)), path)

    def _met(self, path: Path, above: tuple[tuple[int, int], ...]) -> None:
        """Take in a path met on a walk; what is no part of any form is passed by."""
        if path.name in _JOB_FILES:
            self.found["folders"].add(path.parent)
        elif _is_folder(path):
            self._walk(path, above)
        elif path.name.endswith((*_TABLES, *_JOB_LINES)):
            self.found[_form(path)].add(path)


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except FileNotFoundError:
        require_file(path)  # says that it is a dangling link
        raise


def _form(path: Path) -> Form:
    """The form of a file, by its first bytes, then by its name.

    Raises:
        TraceError: It is of no form.
    """
    start = head(path)
    if start.startswith(PARQUET_MAGIC):
        return "parquet"
    if path.name.endswith(_TABLES):
        raise TraceError("not a Parquet file, though named so", str(path))
    if path.name.endswith(_JOB_LINES):
        return "jsonl"
    text = start.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b"{"):
        return "jsonl"
    what, remedy, value = "not a trace; it begins with", "", None
    if not start:
        what = "the file is empty"
    elif text.startswith(b"["):
        what, remedy = "a JSON list, where a trace has a job a line", "jq -c '.[]'"
    elif all(column.encode() in text for column in EVENT_COLUMNS):
        what, remedy = "events without their job", f"name the folder that also has {META_FILE}"
    else:
        value = start[:40].decode("utf-8", "backslashreplace")
    raise TraceError(what, str(path), value=value, remedy=remedy)


def _check_shards(paths: list[Path], findings: Findings) -> None:
    """Make sure that of files named ``NAME-00000-of-00002`` all are there."""
    shards: dict[tuple[Path, str, str, str], set[int]] = {}
    for path in paths:
        if match := _SHARD.fullmatch(path.name):
            stem, number, total, ending = match.groups(default="")
            shards.setdefault((path.parent, stem, total, ending), set()).add(int(number))
    for (folder, stem, total, ending), numbers in shards.items():
        missing = [number for number in range(int(total)) if number not in numbers]
        if missing:
            name = folder / f"{stem}-{missing[0]:0{len(total)}d}-of-{total}{ending}"
            what = f"missing, as are {len(missing)} of {int(total)} shards"
            findings.error("missing-shard", what, Place(str(name)), remedy="fetch all of them")
