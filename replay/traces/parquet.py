"""The Parquet form: a table of jobs and a table of events, each perhaps in several files."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

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
from replay.traces.texts import Column, as_names, as_text, misfit, picked, utf8_faults
from replay.traces.times import sound_times

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from replay.traces.build import TraceBuilder
    from replay.traces.findings import Findings

__all__ = ["read_parquet"]

_ROWS = 1 << 17  # most rows checked at once
_POOL = 1 << 15  # rows to put together where batches hold fewer
_AHEAD = 1  # batches of them that may wait
_FEW = 8  # bytes in the file for each time; below it, most times are told by a number
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
    with _ahead(_batches(events)) as coming:
        _read_jobs(_reported(_batches(jobs if events else ()), findings), builder)
        _read_events(_reported(coming, findings), builder)


def _batches(tables: Iterable[_Table]) -> Generator[_Batch | TraceError]:
    """The batches of all tables; an error in place of what cannot be read of one."""
    for table in tables:
        try:
            yield from table.batches()
        except TraceError as error:
            yield error


def _reported(batches: Iterable[_Batch | TraceError], findings: Findings) -> Iterator[_Batch]:
    """The batches without what cannot be read, which is reported.

    Raises:
        TraceError: There is something of the sort, and findings are strict.
    """
    for batch in batches:
        if isinstance(batch, TraceError):
            findings.caught(batch)
        else:
            batch.report(findings)
            yield batch


def _read_jobs(batches: Iterable[_Batch], builder: TraceBuilder) -> None:
    for batch in batches:
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


def _read_events(batches: Iterable[_Batch], builder: TraceBuilder) -> None:
    for batch in batches:
        names = as_names(batch.columns["job_id"])
        words: list[str] = names.dictionary.to_pylist()
        codes = names.indices.fill_null(len(words)) if names.null_count else names.indices
        job = picked(_job_numbers(words, builder), codes)
        if len(job) and job.min() < 0:
            _report_jobless(batch, names, job, builder.findings)
            batch.leave_out(job < 0)
            job = job[job >= 0]
        builder.add_events(Rows(job, batch.columns, batch.place, batch.ns))


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
        faults: Key → rows that are not UTF-8, bool[n], where there are any.
        ns: Times of all rows in nanoseconds, int64[n]; None where any is no time.
        kept: Which rows of the batch are left; None when all are.
    """

    path: str
    before: int
    columns: dict[str, Column]
    faults: dict[str, NDArray[np.bool_]]
    ns: NDArray[np.int64] | None
    kept: NDArray[np.intp] | None = None

    @classmethod
    def of(cls, path: str, before: int, batch: pa.RecordBatch) -> Self:
        """Take in what was decoded; needs no other thread and reports nothing."""
        columns = {key: as_text(batch.column(key)) for key in batch.schema.names}
        faults = {
            key: faulty
            for key, column in columns.items()
            if key != "event_time" and (faulty := utf8_faults(column)) is not None
        }
        ns = None
        if "event_time" in columns:
            ns = _times(columns["event_time"])
            columns["event_time"] = columns["event_time"].cast(pa.string())
        return cls(path, before, columns, faults, ns)

    def report(self, findings: Findings) -> None:
        """Report rows whose names are not UTF-8, and leave them out; of times it shows later."""
        for key, faulty in self.faults.items():
            findings.of_rows("error", "not-text", faulty, self.place, key, _not_utf8)
        if self.faults:
            self.leave_out(np.logical_or.reduce(list(self.faults.values())))

    def place(self, row: int) -> Place:
        """Where a row stands; rows of a table are counted from 1."""
        number = row if self.kept is None else int(self.kept[row])
        return Place(self.path, self.before + number + 1)

    def leave_out(self, mask: NDArray[np.bool_]) -> None:
        """Leave out the rows that are masked."""
        if not mask.any():
            return
        rows = pa.array(~mask)
        self.ns = None if self.ns is None else self.ns[~mask]
        self.columns = {
            key: _words_in_use(column.filter(rows)) for key, column in self.columns.items()
        }
        self.kept = np.flatnonzero(~mask) if self.kept is None else self.kept[~mask]


def _times(column: Column) -> NDArray[np.int64] | None:
    """Times of a column in nanoseconds, int64[n]; None unless all of its texts are times."""
    if not pa.types.is_dictionary(column.type):
        return sound_times(column)
    ns = None if column.null_count else sound_times(column.dictionary)
    return None if ns is None else picked(ns, column.indices)


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
            names = [*_NAMES, "event_time"] if _few_times(table) else _NAMES
        self.keys = self._keys()
        self._dictionaries = [name for name in names if name in self.keys]

    def batches(self) -> Iterator[_Batch]:
        """The columns wanted, some rows at a time.

        Raises:
            TraceError: The file is broken.
        """
        done = 0
        names = self._dictionaries
        with _guarded(self.path), pq.ParquetFile(self.path, read_dictionary=names) as table:
            for batch in _pooled(table.iter_batches(_ROWS, columns=list(self.keys))):
                yield _Batch.of(self.path, done, batch)
                done += len(batch)

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


@contextmanager
def _ahead(items: Generator[_Batch | TraceError]) -> Iterator[Iterator[_Batch | TraceError]]:
    """The same items, made on a thread from now on, ahead of the one that is worked on."""
    with closing(items), ThreadPoolExecutor(1) as thread:
        coming = deque(thread.submit(next, items, None) for _ in range(_AHEAD))

        def each() -> Iterator[_Batch | TraceError]:
            while (item := coming.popleft().result()) is not None:
                coming.append(thread.submit(next, items, None))
                yield item

        try:
            yield each()
        finally:
            for future in coming:
                future.cancel()


def _pooled(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in larger batches: hubs write files in groups of a thousand rows."""
    pool: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if pool and rows + len(batch) > max(_POOL, len(pool[0])):
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


def _few_times(table: pq.ParquetFile) -> bool:
    """Whether a dictionary is how the file itself holds times; else making one takes long."""
    groups, names = table.metadata, table.schema_arrow.names
    if "event_time" not in names or len(groups.schema) != len(names):
        return False
    place = names.index("event_time")
    chunks = [groups.row_group(i).column(place) for i in range(groups.num_row_groups)]
    size = sum(chunk.total_uncompressed_size for chunk in chunks)
    return size < _FEW * sum(chunk.num_values for chunk in chunks)


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
