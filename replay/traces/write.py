"""Writing a trace, in any of its forms, without loss and only inside the target."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from replay.errors import ReplayError, UsageError
from replay.traces.check import JOB_KEYS
from replay.traces.columns import EVENT_COLUMNS
from replay.traces.folders import EVENTS_FILE, META_FILE
from replay.traces.locate import FORMS
from replay.traces.names import folder_names
from replay.traces.texts import as_list

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replay.traces.locate import Form
    from replay.traces.model import Trace, TraceJob

__all__ = ["JSONL_FILE", "form_for", "write"]

JSONL_FILE = "trace.jsonl"
"""Name of the file when a folder is to hold the JSONL form."""

_PACKED: dict[str, Literal["gzip", "zstd"]] = {".gz": "gzip", ".zst": "zstd"}
_LINES = (".jsonl", ".ndjson")
_ROWS = 1 << 20  # rows of a row group
_JOBS = pa.schema([(key, pa.string()) for key in JOB_KEYS])
_EVENTS = pa.schema([(key, pa.string()) for key in ("job_id", *EVENT_COLUMNS)])
_CARD = """\
---
configs:
- config_name: jobs
  data_files: jobs.parquet
  default: true
- config_name: events
  data_files: events.parquet
---

Two tables joined on `job_id`: `jobs.parquet`, a row a job, and `events.parquet`, a row an alert.
The header above lets `datasets.load_dataset` find them as the configurations `jobs` and `events`.
"""


def write(trace: Trace, target: str | os.PathLike[str], form: Form | None = None) -> Path:
    """Write a trace; read again, it is equal.

    All is written beside the target first and moved there when done, so that a failure leaves
    nothing half written.

    Args:
        trace: What to write.
        target: A file for JSONL (``.jsonl``, perhaps packed: ``.jsonl.gz``, ``.jsonl.zst``), or
            a folder for any form. It must not exist, or be an empty folder.
        form: ``"folders"``, ``"jsonl"`` or ``"parquet"``; by default JSONL where the target is
            named so.

    Returns:
        The file or folder written.

    Raises:
        UsageError: The target exists, or the form is unknown or does not fit the target.
        ReplayError: It cannot be written.
    """
    target = Path(target)
    if target.name in {"", ".."}:
        target = target.resolve()
    form = _form(target, form)
    if os.path.lexists(target) and not _is_empty_folder(target):
        raise UsageError(f"{target} is there already.", "another name, or remove it first")
    partial = target.with_name(target.name + ".partial")
    with _cleaning_up(partial):
        target.parent.mkdir(parents=True, exist_ok=True)
        packing = _packing(target)
        if packing is not None:
            _write_jsonl(trace, partial, packing)
        else:
            partial.mkdir()
            _FOLDER_WRITERS[form](trace, partial)
        partial.replace(target)
    return target


def form_for(target: str | os.PathLike[str], otherwise: Form | None) -> Form | None:
    """The form that a target's name asks for, if it does."""
    return otherwise if _packing(Path(target)) is None else "jsonl"


def _form(target: Path, form: Form | None) -> Form:
    is_lines = _packing(target) is not None
    if form is None:
        if not is_lines:
            raise UsageError(f"In which form should {target} be?", f"--to {'|'.join(FORMS)}")
        return "jsonl"
    if form not in FORMS:
        raise UsageError(f"There is no form {form!r}.", f"one of {', '.join(FORMS)}")
    if is_lines and form != "jsonl":
        raise UsageError(f"{target} is named as JSONL, but {form} is asked for.", "name a folder")
    return form


def _packing(target: Path) -> Literal["gzip", "zstd", ""] | None:
    """How a file of lines is packed, perhaps not at all (""); None for a folder."""
    if target.suffix in _PACKED and target.stem.endswith(_LINES):
        return _PACKED[target.suffix]
    return "" if target.suffix in _LINES else None


def _is_empty_folder(target: Path) -> bool:
    return target.is_dir() and not target.is_symlink() and not any(target.iterdir())


@contextmanager
def _cleaning_up(partial: Path) -> Iterator[None]:
    if os.path.lexists(partial):
        raise UsageError(f"{partial} is left from an earlier try.", f"rm -r {partial}")
    try:
        yield
    except BaseException as error:
        if partial.is_dir():
            shutil.rmtree(partial)
        elif os.path.lexists(partial):
            partial.unlink()
        if isinstance(error, OSError):
            why = os.strerror(error.errno) if error.errno else str(error)
            raise ReplayError(f"{partial} cannot be written: {why}.") from None
        raise


def _events(trace: Trace) -> Iterator[tuple[TraceJob, dict[str, list[str]]]]:
    """Each job with its events, column by column."""
    bounds = trace.bounds
    for i, job in enumerate(trace.jobs):
        rows: Any = trace.events.slice(bounds[i], bounds[i + 1] - bounds[i])
        yield job, {column: as_list(rows.column(column)) for column in EVENT_COLUMNS}


def _record(job: TraceJob) -> dict[str, Any]:
    return {
        "job_id": job.id,
        "start_time": job.start_time,
        "end_time": job.end_time,
        "gpu_generation": job.gpu_generation,
        "ip_status": dict(job.ip_status),
    }


def _json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _write_jsonl(trace: Trace, path: Path, packing: Literal["gzip", "zstd", ""]) -> None:
    with _output(path, packing) as out:
        for job, columns in _events(trace):
            out.write(
                f'{_json(_record(job))[:-1]}, "events": [{_events_json(columns)}]}}\n'.encode()
            )


def _events_json(columns: dict[str, list[str]]) -> str:
    """Events as JSON, each name escaped once; the texts of times need no escape."""
    ips, times, kinds = (columns[column] for column in EVENT_COLUMNS)
    quoted = {text: _json(text) for text in {*ips, *kinds}}
    return ", ".join(
        [
            f'{{"ip": {quoted[ip]}, "event_time": "{time}", "event": {quoted[kind]}}}'
            for ip, time, kind in zip(ips, times, kinds, strict=True)
        ]
    )


def _output(path: Path, packing: Literal["gzip", "zstd", ""]) -> Any:
    if packing:
        return pa.CompressedOutputStream(pa.OSFile(str(path), "wb"), packing)
    return path.open("xb")


def _write_jsonl_folder(trace: Trace, folder: Path) -> None:
    _write_jsonl(trace, folder / JSONL_FILE, "")


def _write_folders(trace: Trace, folder: Path) -> None:
    names = folder_names(trace.job_ids)
    for name, (job, columns) in zip(names, _events(trace), strict=True):
        (folder / name).mkdir()
        (folder / name / META_FILE).write_bytes(_json(_record(job), 2).encode() + b"\n")
        with (folder / name / EVENTS_FILE).open("xb") as out:
            out.write(_csv(columns))


def _csv(columns: dict[str, list[str]]) -> bytes:
    ips, times, kinds = (columns[column] for column in EVENT_COLUMNS)
    quoted = {text: _quoted(text) for text in {*ips, *kinds}}
    lines = [
        f"{quoted[ip]},{time},{quoted[kind]}"
        for ip, time, kind in zip(ips, times, kinds, strict=True)
    ]
    return "\n".join([",".join(EVENT_COLUMNS), *lines, ""]).encode()


def _quoted(text: str) -> str:
    if any(char in text for char in ',"\r\n'):
        return '"' + text.replace('"', '""') + '"'
    return text


def _write_parquet(trace: Trace, folder: Path) -> None:
    records = [_record(job) for job in trace.jobs]
    for record in records:
        record["ip_status"] = _json(record["ip_status"])
    pq.write_table(
        pa.Table.from_pylist(records, _JOBS), folder / "jobs.parquet", compression="zstd"
    )
    ids = pa.array(trace.job_ids, pa.string())
    with pq.ParquetWriter(folder / "events.parquet", _EVENTS, compression="zstd") as out:
        for start in range(0, trace.events.num_rows, _ROWS):
            rows = trace.events.slice(start, _ROWS)
            job = rows.column("job")
            columns = [rows.column(column).cast(pa.string()) for column in EVENT_COLUMNS]
            out.write_table(pa.table([ids.take(job), *columns], schema=_EVENTS))
    (folder / "README.md").write_text(_CARD, "utf-8")


_FOLDER_WRITERS = {
    "folders": _write_folders,
    "jsonl": _write_jsonl_folder,
    "parquet": _write_parquet,
}
