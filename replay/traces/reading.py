"""Reading a trace, whatever its form."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from replay.errors import TraceError
from replay.traces.build import TraceBuilder
from replay.traces.findings import Findings
from replay.traces.folders import read_folders
from replay.traces.jsonl import read_jsonl
from replay.traces.locate import locate
from replay.traces.parquet import read_parquet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replay.traces.build import Outside
    from replay.traces.locate import Form
    from replay.traces.model import Trace

__all__ = ["open", "read"]

_READERS = {"folders": read_folders, "jsonl": read_jsonl, "parquet": read_parquet}


def open(  # noqa: A001 - `replay.open(path)` reads as it should
    path: str | os.PathLike[str],
    *,
    form: Form | None = None,
    lenient: bool = False,
    outside: Outside = "keep",
) -> Trace:
    """Read a trace.

    Args:
        path: A file, a job's folder, a folder above, a glob, or
            ``hf://datasets/OWNER/NAME@REVISION/PATH``.
        form: ``"folders"``, ``"jsonl"`` or ``"parquet"``, where there are several; else the form
            is found out.
        lenient: Skip faulty rows and jobs, and list them in :attr:`Trace.findings`.
        outside: What to do with alerts outside their job's span: ``"keep"`` them, ``"clip"``
            them to its edge, or ``"drop"`` them. All are counted in a warning.

    Returns:
        The trace, jobs in natural order; ``trace.findings`` says what was odd.

    Raises:
        TraceError: Something is wrong in the data, or there are no data.
        UsageError: ``form`` is unknown.
    """
    trace = read(path, Findings(strict=not lenient), form=form, outside=outside)
    if not trace.jobs:
        raise next(each.error for each in trace.findings.shown if each.severity == "error")
    return trace


def read(
    path: str | os.PathLike[str],
    findings: Findings,
    *,
    form: Form | None = None,
    outside: Outside = "keep",
) -> Trace:
    """Read a trace as :func:`open` does, into findings of your own.

    When these are not strict, all that is wrong is there, and the trace may be left without jobs.

    Raises:
        TraceError: There are no data, or something is wrong and ``findings`` are strict.
        UsageError: ``form`` is unknown.
    """
    source = root = os.fspath(path)
    if source.startswith("hf://"):
        from replay.traces.hub import download  # noqa: PLC0415 - needs an extra

        root = str(download(source))
    located = locate(root, form, findings)
    builder = TraceBuilder(findings, outside)
    with _frugal_memory():
        _READERS[located.form](located.paths, builder)
        trace = builder.build(source, located.form)
    if not trace.jobs and not findings.errors:
        raise TraceError("no job found", source, remedy="name the file that holds the jobs")
    return trace


@contextmanager
def _frugal_memory() -> Iterator[None]:
    """Let Arrow allocate by jemalloc, where it has it: that gives back most of what it frees."""
    before = pa.default_memory_pool()
    if "jemalloc" in pa.supported_memory_backends():
        pa.set_memory_pool(pa.jemalloc_memory_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(before)
