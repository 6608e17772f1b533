"""The Parquet form: a table of jobs and a table of events, each perhaps in several files."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from replay.errors import TraceError
from replay.traces.check import JOB_KEYS
from replay.traces.columns import EVENT_COLUMNS, Rows
from replay.traces.files import PARQUET_MAGIC, head
from replay.traces.findings import Place, named, shown
from replay.traces.records import BadJsonError, load_json
from replay.traces.texts import Column, as_names, as_text, misfit, utf8_faults

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from replay.traces.build import TraceBuilder
    from replay.traces.findings import Findings

__all__ = ["read_parquet"]

_ROWS = 1 << 17  # rows checked at once
_EVENT_KEYS = ("job_id", *EVENT_COLUMNS)
_NAMES = ["job_id", "ip", "event"]  # read as dictionaries: few words, many rows
_UNKNOWN, _REFUSED = -1, -2  # numbers of jobs that are not there
_SECONDS = (1 << 63) // 1_000_000_000  # what nanoseconds can hold


def read_parquet(paths: Sequence[Path], builder: TraceBuilder) -> None:
    """Read files of jobs and of events, told apart by their columns, into a builder.

    Raises:
        TraceError: When strict and something is wrong, or there is no file of either sort.
    """
    findings = builder.findings
    tables: dict[tuple[str, ...], list[_Table]] = {JOB_KEYS: [], _EVENT_KEYS: []}
    for path in paths:
        try:
            table = _Table(path, findings)
        except TraceError as error:
            findings.caught(error)
        else:
            tables.setdefault(table.keys, []).append(table)
    for keys, sort in ((JOB_KEYS, "jobs"), (_EVENT_KEYS, "events")):
        if not tables[keys] and not findings.errors:
            what, remedy = f"no table of {sort} among the files", f"add {sort}.parquet"
            raise TraceError(what, ", ".join(map(str, paths)), remedy=remedy)
    jobs = [table for table in tables[JOB_KEYS] if table.has_columns()]
    events = [table for table in tables[_EVENT_KEYS] if table.has_columns()]
    for table in jobs if events else ():
        _read_jobs(table, builder)
    for table in events:
        _read_events(table, builder)


def _read_jobs(table: _Table, builder: TraceBuilder) -> None:
    for batch in table.batches():
        for row, record in enumerate(pa.RecordBatch.from_pydict(batch.columns).to_pylist()):
            place = batch.place(row)
            try:
                if record["ip_status"] is not None:
                    record["ip_status"] = load_json(record["ip_status"])
            except BadJsonError as error:
                what, remedy = error.what, error.remedy
                builder.findings.error("bad-json", what, place, "ip_status", remedy=remedy)
                builder.refuse(record)
            else:
                builder.add_job(record, place)


def _read_events(table: _Table, builder: TraceBuilder) -> None:
    for batch in table.batches():
        names = as_names(batch.columns["job_id"])
        words: list[str] = names.dictionary.to_pylist()
        codes = names.indices.fill_null(len(words)) if names.null_count else names.indices
        job = _job_numbers(words, builder)[codes.to_numpy()]
        if len(job) and job.min() < 0:
            _report_jobless(batch, names, job, builder.findings)
            batch.leave_out(job < 0)
            job = job[job >= 0]
        builder.add_events(Rows(job, batch.columns, batch.place))


def _job_numbers(words: list[str], builder: TraceBuilder) -> NDArray[np.int32]:
    """The number of each job, or why it has none; the last stands for null."""
    numbers = [
        builder.numbers.get(word, _REFUSED if word in builder.refused else _UNKNOWN)
        for word in words
    ]
    return np.array([*numbers, _UNKNOWN], np.int32)


def _report_jobless(
    batch: _Batch, names: Column, job: NDArray[np.int32], findings: Findings
) -> None:
    def explain(row: int) -> tuple[str, str | None, str]:
        value = names[row].as_py()
        if value is None:
            return "null in place of a job", None, "fill it in"
        return "an event of a job that is not there", value, "add the job, or drop its events"

    place, refused = batch.place, np.flatnonzero(job == _REFUSED)
    findings.of_rows("error", "unknown-job", job == _UNKNOWN, place, "job_id", explain)
    if len(refused):
        what = f"events of jobs that were refused, left out with them ({len(refused)}); the first"
        value = names[int(refused[0])].as_py()
        findings.warn("refused-job", what, place(int(refused[0])), "job_id", value)


@dataclass(slots=True)
class _Batch:
    """Some rows of a file.

    Attributes:
        path: The file.
        before: How many rows of it come before these.
        columns: Key → text; may hold nulls.
        kept: Which rows of the batch are left; None when all are.
    """

    path: str
    before: int
    columns: dict[str, Column]
    kept: NDArray[np.intp] | None = None

    def place(self, row: int) -> Place:
        """Where a row stands; rows of a table are counted from 1."""
        number = row if self.kept is None else int(self.kept[row])
        return Place(self.path, self.before + number + 1)

    def leave_out(self, mask: NDArray[np.bool_]) -> None:
        """Leave out the rows that are masked."""
        if not mask.any():
            return
        rows = pa.array(~mask)
        self.columns = {
            key: _words_in_use(column.filter(rows)) for key, column in self.columns.items()
        }
        self.kept = np.flatnonzero(~mask) if self.kept is None else self.kept[~mask]


def _words_in_use(column: Column) -> Column:
    """The same column without words that no row has; one of them may be what was refused."""
    if not pa.types.is_dictionary(column.type):
        return column
    return column.dictionary_decode().dictionary_encode()


class _Table:
    """One Parquet file, opened, its columns checked.

    Attributes:
        path: The file.
        schema: Its columns.
        int96: Those that hold the old sort of timestamp.
        keys: The columns it must have; none when it is no part of a trace.
    """

    def __init__(self, file: Path, findings: Findings) -> None:
        self.path = path = str(file)
        self.findings = findings
        if head(file)[:4] != PARQUET_MAGIC:
            raise TraceError("not a Parquet file, though named so", path)
        with _guarded(path), pq.ParquetFile(path) as table:
            self.schema = table.schema_arrow
            self.int96 = _int96(table.schema)
        self.keys = self._keys()

    def batches(self) -> Iterator[_Batch]:
        """The columns wanted, some rows at a time; what cannot be read ends them.

        Raises:
            TraceError: The file is broken, and findings are strict.
        """
        done = 0
        keys, names = list(self.keys), [name for name in _NAMES if name in self.keys]
        try:
            with (
                _guarded(self.path),
                pq.ParquetFile(self.path, read_dictionary=names) as table,
                closing(_ahead(_pooled(table.iter_batches(_ROWS, columns=keys)))) as batches,
            ):
                for batch in batches:
                    columns = {key: as_text(batch.column(key)) for key in self.keys}
                    yield self._decodable(_Batch(self.path, done, columns))
                    done += len(batch)
        except TraceError as error:
            self.findings.caught(error)

    def _decodable(self, batch: _Batch) -> _Batch:
        """The rows whose names are UTF-8; the others are reported. Times are parsed anyway."""
        bad = np.zeros(0, bool)
        for key, column in batch.columns.items():
            faults = None if key == "event_time" else utf8_faults(column)
            if faults is not None:
                self.findings.of_rows("error", "not-text", faults, batch.place, key, _not_utf8)
                bad = bad | faults if len(bad) else faults
        batch.leave_out(bad)
        return batch

    def _keys(self) -> tuple[str, ...]:
        names = set(self.schema.names)
        for keys in (_EVENT_KEYS, JOB_KEYS):
            if len(names.intersection(keys[1:])) > 1:
                return keys
        what, value = "a table of neither jobs nor events, left out", ",".join(self.schema.names)
        self.findings.warn("other-table", what, Place(self.path), value=shown(value))
        return ()

    def has_columns(self) -> bool:
        """Whether its columns are there and hold what they should; reports what does not.

        Raises:
            TraceError: They do not, and findings are strict.
        """
        before, place, names = self.findings.errors, Place(self.path), self.schema.names
        what: str | None
        for key in self.keys:
            if key not in names:
                what, value = "the column is missing", shown(",".join(names))
                self.findings.error("missing-column", what, place, key, value, "add it")
            elif names.count(key) > 1:
                what = "the column is there twice"
                self.findings.error("duplicate-column", what, place, key, remedy="keep one")
            elif what := self._misfit(key):
                self.findings.error("not-text", what, place, key, remedy="store it as text")
        for name in names:
            if name not in self.keys:
                what = "a column that is no part of a trace, left out"
                self.findings.warn("extra-column", what, place, named(name))
        return self.findings.errors == before

    def _misfit(self, key: str) -> str | None:
        what = misfit(self.schema.field(key).type, time=key.endswith("_time"))
        if what is None and key in self.int96:  # nanoseconds may have wrapped around
            seconds = pq.ParquetFile(self.path, coerce_int96_timestamp_unit="s")
            with _guarded(self.path), seconds as table:
                times: Column = table.read([key]).column(0).cast(pa.int64())
            first, last = pc.min(times).as_py(), pc.max(times).as_py()
            if first is not None and not -_SECONDS < first <= last < _SECONDS:
                return "timestamps outside the years 1678 to 2261"
        return what


def _ahead(batches: Iterator[pa.RecordBatch]) -> Generator[pa.RecordBatch]:
    """The same batches, the next one decoded on a thread while this one is worked on."""
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(next, batches, None)
        while (batch := coming.result()) is not None:
            coming = thread.submit(next, batches, None)
            yield batch


def _pooled(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in larger batches: hubs write files in groups of a thousand rows."""
    pool: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if pool and rows + len(batch) > _ROWS:
            yield _one(pool)
            pool, rows = [], 0
        pool.append(batch)
        rows += len(batch)
    if pool:
        yield _one(pool)


def _one(pool: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(pool) == 1:
        return pool[0]
    return pa.Table.from_batches(pool).unify_dictionaries().combine_chunks().to_batches()[0]


def _int96(schema: Any) -> set[str]:
    """Columns of the old sort of timestamp."""
    columns = (schema.column(i) for i in range(len(schema)))
    return {column.path for column in columns if column.physical_type == "INT96"}


def _not_utf8(_: int) -> tuple[str, str | None, str]:
    return "not UTF-8", None, "save the text as UTF-8"


@contextmanager
def _guarded(path: str) -> Iterator[None]:
    """Turn what Arrow raises over a broken file into our error."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError) as error:
        lines = str(error).splitlines()
        what = f"not readable as Parquet: {shown(lines[0]) if lines else type(error).__name__}"
        raise TraceError(what, path, remedy="fetch the file again") from None
