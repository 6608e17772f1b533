"""What a path holds: which form, and in which files or folders. Content decides, not names."""

from __future__ import annotations

import glob
import os
import re
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

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
_SHARD = re.compile(r"(.*)-([0-9]+)-of-([0-9]+)(\..*)?")
_MOST_ENTRIES = 200_000
_LOOKED = "NAME/meta.json with NAME/event_report.csv, *.jsonl, *.parquet"


@dataclass(frozen=True, slots=True)
class Located:
    """What to read.

    Attributes:
        form: The form.
        paths: Job folders, or files; in natural order.
    """

    form: Form
    paths: tuple[str, ...]


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
        search.guarded(search.named, root, alone=len(roots) == 1)
    found = {each: sorted(search.found[each], key=natural_key) for each in FORMS}
    sides = [each for each in FORMS if found[each]]
    chosen = [each for each in sides if form in (None, each)]
    if len(chosen) > 1:
        what = f"several forms side by side: {_examples(found, sides)}"
        raise TraceError(what, path, remedy=f"--format {chosen[-1]}")
    if not chosen:
        what = f"no job found (looked for {_LOOKED}, here and below)"
        if sides:
            what = f"no job found in the form {form}, but {_examples(found, sides)}"
        raise TraceError(what, path, remedy="name the folder or the file that holds the jobs")
    _check_shards(found[chosen[0]], findings)
    return Located(chosen[0], tuple(found[chosen[0]]))


def _examples(found: dict[Form, list[str]], sides: list[Form]) -> str:
    return " and ".join(f"{side} ({found[side][0]})" for side in sides)


def _roots(path: str) -> list[str]:
    if "\0" in path:
        raise TraceError("no name of a file", value=shown(path))
    if os.path.lexists(path):
        return [path]
    roots = sorted(glob.glob(path, recursive=True), key=natural_key)
    if not roots:
        what = "nothing matches" if glob.has_magic(path) else "there is no such file or folder"
        raise TraceError(what, path)
    return roots


class _Search:
    """Walks folders and sorts what it meets by form."""

    def __init__(self, findings: Findings) -> None:
        self.findings = findings
        self.found: dict[Form, set[str]] = {form: set() for form in FORMS}
        self.entries = 0

    def guarded(self, step: Callable[..., None], path: str, **options: Any) -> None:
        """Take a step; what is wrong with that path is reported and ends that step alone."""
        try:
            step(path, **options)
        except OSError as error:
            self.findings.caught(unreadable(path, error))
        except TraceError as error:
            self.findings.caught(error)

    def named(self, path: str, *, alone: bool) -> None:
        """Take in a path that was named, perhaps by a glob among others."""
        folder, name = os.path.split(path)
        if stat.S_ISDIR(_stat(path).st_mode):
            self._walk(path, ())
        elif name in _JOB_FILES:
            self.found["folders"].add(folder or os.curdir)
        elif (form := _form(path)) == "parquet" and alone:
            beside = os.scandir(folder or os.curdir)
            tables = [entry.name for entry in beside if entry.name.endswith(_TABLES)]
            self.found[form].update(os.path.join(folder, table) for table in tables or [name])
        else:
            self.found[form].add(path)

    def _walk(self, folder: str, above: tuple[tuple[int, int], ...]) -> None:
        status = _stat(folder)
        here = status.st_dev, status.st_ino
        if here in above:
            raise TraceError("a folder that contains itself", folder, remedy="remove the link")
        for name in sorted(os.listdir(folder)):
            self.entries += 1
            if self.entries > _MOST_ENTRIES:
                what = f"more than {_MOST_ENTRIES} files and folders"
                raise TraceError(what, folder, remedy="name the folder of the trace itself")
            if not name.startswith("."):
                self.guarded(self._met, os.path.join(folder, name), above=(*above, here))

    def _met(self, path: str, *, above: tuple[tuple[int, int], ...]) -> None:
        """Take in a path met on a walk; what is no part of any form is passed by."""
        folder, name = os.path.split(path)
        if name in _JOB_FILES:
            self.found["folders"].add(folder)
        elif stat.S_ISDIR(_stat(path).st_mode):
            self._walk(path, above)
        elif name.endswith((*_TABLES, *_JOB_LINES)):
            self.found[_form(path)].add(path)


def _stat(path: str) -> os.stat_result:
    try:
        return os.stat(path)
    except FileNotFoundError:
        require_file(path)  # says whether it is a dangling link
        raise


def _form(path: str) -> Form:
    """The form of a file, by its first bytes, then by its name.

    Raises:
        TraceError: It is of no form.
    """
    start = head(path)
    if start.startswith(PARQUET_MAGIC):
        return "parquet"
    if path.endswith(_TABLES):
        raise TraceError("not a Parquet file, though named so", path)
    text = start.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b"[") and not path.endswith(_JOB_LINES):
        raise TraceError("a JSON list, where a trace has a job a line", path, remedy="jq -c '.[]'")
    if text.startswith(b"{") or path.endswith(_JOB_LINES):
        return "jsonl"
    if not start:
        raise TraceError("the file is empty", path)
    if all(column.encode() in text for column in EVENT_COLUMNS):
        what, remedy = "events without their job", f"name the folder that also has {META_FILE}"
        raise TraceError(what, path, remedy=remedy)
    value = start[:40].decode("utf-8", "backslashreplace")
    raise TraceError("not a trace; it begins with", path, value=value)


def _check_shards(paths: list[str], findings: Findings) -> None:
    """Make sure that of files named ``NAME-00000-of-00002`` all are there."""
    shards: dict[tuple[str, ...], set[int]] = {}
    for path in paths:
        if match := _SHARD.fullmatch(path):
            stem, number, total, ending = match.groups(default="")
            shards.setdefault((stem, total, ending), set()).add(int(number))
    for (stem, total, ending), numbers in shards.items():
        missing = sorted(set(range(int(total))) - numbers)
        if missing:
            name = f"{stem}-{missing[0]:0{len(total)}d}-of-{total}{ending}"
            what = f"{len(missing)} of {int(total)} shards are missing; the first"
            findings.error("missing-shard", what, Place(name), remedy="fetch all of them")
