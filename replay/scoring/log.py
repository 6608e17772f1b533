"""The verdict log: what was said about whom and when, as columns; to and from files.

A row on disk has the data set's words: ``seq, detector, job_id, ip, event_time, action, score,
reason, evidence``, and for live runs ``trigger_seq, published_wall, scheduled_wall,
emitted_wall``. Anybody may write such a file; it is read strictly.
"""

from __future__ import annotations

import codecs
import json
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from replay.errors import TraceError, UsageError
from replay.scoring.words import coded
from replay.traces.files import PARQUET_MAGIC, head, open_bytes, unreadable
from replay.traces.records import BadJsonError, Repeated, load_json
from replay.traces.times import SECOND, format_ns, format_times, parse_one, parse_times, why_not

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from replay.messages import TimedVerdict
    from replay.traces import Trace, TraceJob

__all__ = ["ROWS", "VerdictLog", "read_log", "verdict_row"]

_TOKEN = pa.dictionary(pa.int32(), pa.string())

ROWS = pa.schema(
    [
        ("seq", pa.int64()),
        ("detector", _TOKEN),
        ("job_id", _TOKEN),
        ("ip", _TOKEN),
        ("event_time", pa.string()),
        ("action", _TOKEN),
        ("score", pa.float64()),
        ("reason", pa.string()),
        ("evidence", pa.list_(pa.int64())),
        ("trigger_seq", pa.int64()),
        ("published_wall", pa.float64()),
        ("scheduled_wall", pa.float64()),
        ("emitted_wall", pa.float64()),
    ]
)
"""Columns of :attr:`VerdictLog.table`. A null ``ip`` stands for the whole job."""

_LIVE = ("trigger_seq", "published_wall", "scheduled_wall", "emitted_wall")
_NEEDED = ("detector", "job_id", "ip", "event_time")
_OPEN = ("ip", *_LIVE)
_NUMBERS = ("score", "published_wall", "scheduled_wall", "emitted_wall")
_ACTIONS = ("raise", "retract")
_CHUNK = 16_384
_LARGEST = float(np.finfo(np.float64).max)


@dataclass(frozen=True, slots=True)
class VerdictLog:
    """Verdicts as columns.

    Attributes:
        table: Columns of :data:`ROWS`, one row per verdict and node.
        time_ns: int64[n], ``event_time`` in nanoseconds on the trace's own clock.
        source: What was read, as the user named it.
    """

    table: pa.Table = field(repr=False)
    time_ns: NDArray[np.int64] = field(repr=False)
    source: str = ""

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)  # type: ignore[no-untyped-call]  # pyarrow's own door

    @classmethod
    def of(
        cls, trace: Trace, verdicts: Iterable[TimedVerdict], detectors: Sequence[str] = ()
    ) -> Self:
        """The log of a run, in canonical order whatever order the verdicts come in.

        The order is (job as in the trace, time, detector as declared, number), and ``seq`` is the
        position in it.

        Args:
            trace: Where the jobs' starts are taken from.
            verdicts: What the host gave.
            detectors: Names in declared order; others follow in the order of their names.

        Raises:
            UsageError: A verdict is about a job that the trace does not have.
        """
        said = _gathered(_said_about(trace, verdicts), _SAID)
        at, number = (said.column(name).to_numpy() for name in ("at", "number"))
        job = _places(said.column("job_id"), trace.job_ids)
        detector = _places(said.column("detector"), detectors)
        order = np.lexsort((number, detector, at, job))
        time_ns, times = _event_times(trace, job[order], at[order])
        columns = {"seq": pa.array(np.arange(len(order))), "event_time": times}
        for name, kind in zip(ROWS.names, ROWS.types, strict=True):
            if name not in columns:
                column = said.column(name).take(order).combine_chunks()
                if pa.types.is_dictionary(kind):  # words are numbered as they come now
                    column = column.cast(pa.string()).dictionary_encode()
                columns[name] = column
        return cls(pa.table([columns[name] for name in ROWS.names], schema=ROWS), time_ns)

    @classmethod
    def from_rows(cls, rows: Iterable[tuple[Any, ...]], source: str = "") -> Self:
        """Build from rows that are known to be good.

        Args:
            rows: The fields of :data:`ROWS`, then ``event_time`` in nanoseconds.
            source: Where they come from.
        """
        whole = _gathered(rows, _KEPT)
        time_ns = whole.column("time_ns").to_numpy().astype(np.int64)
        return cls(whole.drop_columns(["time_ns"]), time_ns, source)

    def words(self, name: str) -> list[str]:
        """Every word of a column, each once."""
        return coded(self.table.column(name))[1]

    def codes(self, name: str, numbers: Mapping[str, int]) -> NDArray[np.int64]:
        """int64[n]: the number of each row's word; -1 where there is none."""
        codes, words = coded(self.table.column(name))
        # one more entry, which -1 reaches, for rows without a word
        return np.array([*(numbers.get(word, -1) for word in words), -1], np.int64)[codes]

    def check_jobs(self, jobs: Iterable[str]) -> None:
        """Make sure that every verdict is about one of these jobs.

        Raises:
            TraceError: One is not.
        """
        numbers = self.codes("job_id", dict.fromkeys(jobs, 0))
        if len(numbers) and numbers.min() < 0:
            raise TraceError(
                "the trace has no such job",
                self.source,
                column="job_id",
                value=str(self.table.column("job_id")[int(np.argmax(numbers < 0))]),
                remedy="score it against the trace it was made on",
            )

    def of_jobs(self, jobs: Iterable[str]) -> Self:
        """The verdicts on these jobs."""
        keep = self.codes("job_id", dict.fromkeys(jobs, 0)) >= 0
        return replace(self, table=self.table.filter(pa.array(keep)), time_ns=self.time_ns[keep])

    def rows(self) -> Iterator[dict[str, Any]]:
        """Every row as a document, keys in the order of :data:`ROWS`; live keys where known."""
        for batch in self.table.to_batches(_CHUNK):
            for row in batch.to_pylist():
                for key in _LIVE:
                    if row[key] is None:
                        del row[key]
                yield row

    def write(self, path: str | Path) -> None:
        """Write to ``*.parquet``, or as JSON lines under any other name."""
        if str(path).endswith(".parquet"):
            pq.write_table(self.table, path, compression="zstd")
            return
        with Path(path).open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(
                json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in self.rows()
            )


def verdict_row(verdict: TimedVerdict, job: TraceJob, seq: int) -> dict[str, Any]:
    """One verdict as a row of the log, for printing while a run goes on.

    Args:
        verdict: What the host gave.
        job: The job it is about, for its start.
        seq: Arrival order.
    """
    row = dict(zip(_SAID.names, _said(verdict), strict=True))
    time_ns = job.start_ns + int(_nanoseconds(np.float64(verdict.at)))
    row["seq"] = seq
    row["event_time"] = format_ns(time_ns).replace(" ", "T" if "T" in job.start_time else " ")
    row["evidence"] = list(verdict.verdict.evidence)
    known = {key: row[key] for key in ROWS.names}
    return {key: value for key, value in known.items() if key not in _LIVE or value is not None}


_SAID = pa.schema(
    [
        *(field for field in ROWS if field.name not in {"seq", "event_time"}),
        pa.field("at", pa.float64()),
        pa.field("number", pa.int64()),
    ]
)
"""What a verdict says of itself."""

_KEPT = ROWS.append(pa.field("time_ns", pa.int64()))
"""What is known of a row of a log."""


def _said(said: TimedVerdict) -> tuple[Any, ...]:
    """A verdict as a row of :data:`_SAID`."""
    verdict = said.verdict
    return (
        said.detector,
        said.job,
        verdict.node,
        verdict.action,
        float(verdict.score),
        verdict.reason,
        verdict.evidence,
        said.trigger_seq,
        said.published_wall,
        said.scheduled_wall,
        said.emitted_wall,
        said.at,
        said.number,
    )


def _said_about(trace: Trace, verdicts: Iterable[TimedVerdict]) -> Iterator[tuple[Any, ...]]:
    """Rows of :data:`_SAID`, all about jobs of a trace."""
    jobs = set(trace.job_ids)
    for verdict in verdicts:
        if verdict.job not in jobs:
            raise UsageError(f"A verdict is about job {verdict.job!r}, which the trace lacks.")
        yield _said(verdict)


def _gathered(rows: Iterable[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    """A table of rows, some at a time: Arrow needs less room for them than Python."""
    batches = []
    waiting = iter(rows)
    while chunk := list(islice(waiting, _CHUNK)):
        columns = zip(zip(*chunk, strict=True), schema.types, strict=True)
        arrays = [_column(values, kind) for values, kind in columns]
        batches.append(pa.table(arrays, schema=schema))
    if not batches:
        return schema.empty_table()
    return pa.concat_tables(batches).unify_dictionaries().combine_chunks()


def _places(column: pa.ChunkedArray[Any], known: Sequence[str]) -> NDArray[np.int64]:
    """int64[n]: the place of each row's word among known ones, then others in their order."""
    codes, words = coded(column)
    every = dict.fromkeys([*known, *sorted(set(words).difference(known))])
    place = {word: number for number, word in enumerate(every)}
    return np.array([place[word] for word in words], np.int64)[codes]


def _event_times(
    trace: Trace, job: NDArray[np.int64], at: NDArray[np.float64]
) -> tuple[NDArray[np.int64], pa.Array[Any]]:
    """Times on the trace's own clock: nanoseconds, and texts as their jobs' starts are written.

    Args:
        trace: The trace.
        job: int64[n], places of its jobs.
        at: float64[n], seconds since their starts.
    """
    starts = np.array([one.start_ns for one in trace.jobs], np.int64)
    with_t = np.array(["T" in one.start_time for one in trace.jobs], bool)
    time_ns = starts[job] + _nanoseconds(at)
    texts = format_times(time_ns)
    if with_t.any():
        other = pc.replace_substring(texts, " ", "T", max_replacements=1)
        texts = pc.if_else(pa.array(with_t[job]), other, texts)
    return time_ns, texts


def _nanoseconds(at: Any) -> Any:
    """Seconds as whole nanoseconds, exact for whole seconds of any size: float64 → int64."""
    whole = np.floor(at)
    return whole.astype(np.int64) * SECOND + np.rint((at - whole) * SECOND).astype(np.int64)


def read_log(path: str | Path) -> VerdictLog:
    """Read a verdict log: Parquet, or JSON lines, plain or packed with gzip or zstd.

    Raises:
        TraceError: A row is not a verdict; names the file and the line.
    """
    file, name = Path(path), str(path)
    if head(file, 4) != PARQUET_MAGIC:
        return VerdictLog.from_rows(_checked(_lines(file), name), name)
    table = _read_table(file)
    return _as_it_is(table, name) or VerdictLog.from_rows(_checked(_numbered(table), name), name)


# --- files to rows ----------------------------------------------------------------------------


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Numbered rows of a file of JSON lines; blank lines and a byte order mark are passed over."""
    try:
        with open_bytes(path) as stream:
            for line, raw in enumerate(stream, start=1):
                if line == 1:
                    raw = raw.removeprefix(codecs.BOM_UTF8)  # noqa: PLW2901 - the same line
                if raw.strip():
                    yield line, _parse(raw, str(path), line)
    except OSError as error:
        raise unreadable(path, error) from error


def _parse(raw: bytes, path: str, line: int) -> dict[str, Any]:
    """One line as a document."""
    try:
        row = load_json(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise TraceError("not UTF-8", path, line, value=repr(raw[:40])) from error
    except BadJsonError as error:
        raise TraceError(error.what, path, line, remedy="one verdict a line") from error
    if isinstance(row, Repeated):
        raise TraceError(row.what, path, line, row.key)
    if not isinstance(row, dict):
        raise TraceError("not an object", path, line, value=repr(row), remedy="one verdict a line")
    return row


def _read_table(path: Path) -> pa.Table:
    """A Parquet file, its times as text."""
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise unreadable(path, error) from error
    if len(set(table.column_names)) != len(table.column_names):
        raise TraceError("two columns have the same name", str(path))
    for name in _NEEDED:
        if name not in table.column_names:
            raise TraceError("the column is missing", str(path), column=name)
    if "event_time" in table.column_names:
        times = table.column("event_time")
        if pa.types.is_timestamp(times.type) and times.type.tz is None:
            text = pc.replace_substring_regex(times.cast(pa.string()), r"(\.\d*[1-9])0+$", r"\1")
            text = pc.replace_substring_regex(text, r"\.0+$", "")
            place = table.column_names.index("event_time")
            table = table.set_column(place, "event_time", text)
    return table


def _numbered(table: pa.Table) -> Iterator[tuple[int, dict[str, Any]]]:
    line = 0
    for batch in table.to_batches(_CHUNK):
        for row in batch.to_pylist():
            line += 1
            yield line, row


def _as_it_is(table: pa.Table, path: str) -> VerdictLog | None:
    """A table that needs no second look, without going through its rows; None for any other."""
    columns = {}
    for name, kind in zip(ROWS.names, ROWS.types, strict=True):
        if name not in table.column_names:
            return None
        try:
            columns[name] = table.column(name).cast(kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None
    whole = pa.table(columns, schema=ROWS).unify_dictionaries().combine_chunks()
    full = all(whole.column(name).null_count == 0 for name in ROWS.names if name not in _OPEN)
    if not full or not _words_fit(whole):
        return None
    texts = cast("pa.StringArray", whole.column("event_time").combine_chunks())
    time_ns, bad = parse_times(texts)
    return None if bad.any() else VerdictLog(whole, time_ns, path)


def _words_fit(table: pa.Table) -> bool:
    """No empty name, no unknown action, no number that is not finite."""
    words = {name: set(coded(table.column(name))[1]) for name in ("detector", "job_id", "ip")}
    if any("" in found for found in words.values()):
        return False
    if not set(coded(table.column("action"))[1]) <= set(_ACTIONS):
        return False
    finite = (pc.all(pc.is_finite(table.column(name))).as_py() for name in _NUMBERS)
    return all(answer is not False for answer in finite)


# --- one row ----------------------------------------------------------------------------------


def _checked(rows: Iterable[tuple[int, dict[str, Any]]], path: str) -> Iterator[tuple[Any, ...]]:
    """Fields of :data:`ROWS` and nanoseconds, one row per node; refuses what is no verdict."""
    times: dict[str, int] = {}  # a log repeats its times
    with_seq: bool | None = None
    for line, document in rows:
        row = _Row(path, line, document)
        seq = row.whole("seq")
        if with_seq is None:
            with_seq = seq is not None
        if with_seq != (seq is not None):
            row.refuse("seq", "some rows have a number and some have none")
        text = row.text("event_time")
        if text not in times:
            times[text] = row.time_ns(text)
        before = (line - 1 if seq is None else seq, row.text("detector"), row.text("job_id"))
        after = (
            text,
            row.action(),
            row.number("score", 1.0),
            row.reason(),
            row.wholes("evidence"),
            row.whole("trigger_seq"),
            row.number("published_wall", None),
            row.number("scheduled_wall", None),
            row.number("emitted_wall", None),
            times[text],
        )
        for node in row.nodes():
            yield (*before, node, *after)


@dataclass(frozen=True, slots=True)
class _Row:
    """One row being checked."""

    path: str
    line: int
    row: dict[str, Any]

    def refuse(self, key: str, what: str, value: object = None, remedy: str = "") -> NoReturn:
        shown = None if value is None else value if isinstance(value, str) else repr(value)
        raise TraceError(what, self.path, self.line, key, shown, remedy)

    def needed(self, key: str) -> Any:
        if key not in self.row:
            self.refuse(key, "the key is missing")
        return self.row[key]

    def text(self, key: str) -> str:
        value = self.needed(key)
        if not isinstance(value, str) or not value:
            self.refuse(key, "not a text with something in it", value)
        return self.unicode(key, value)

    def unicode(self, key: str, value: str) -> str:
        try:
            value.encode()
        except UnicodeEncodeError:
            self.refuse(key, "half of a surrogate pair", ascii(value))
        return value

    def time_ns(self, text: str) -> int:
        time_ns = parse_one(text)
        if time_ns is None:
            what, remedy = why_not(text)
            self.refuse("event_time", what, text, remedy)
        return time_ns

    def reason(self) -> str:
        value = self.row.get("reason")
        if value is not None and not isinstance(value, str):
            self.refuse("reason", "not a text", value)
        return self.unicode("reason", value or "")

    def nodes(self) -> list[str | None]:
        """One raise per node of a list; null is the whole job."""
        value = self.needed("ip")
        if value is None:
            return [None]
        nodes = value if isinstance(value, list) else [value]
        if not nodes or any(not isinstance(node, str) or not node for node in nodes):
            self.refuse("ip", "not a node", value, "a text, a list of texts, or null")
        if len(set(nodes)) < len(nodes):
            self.refuse("ip", "the list names a node twice", value)
        return [self.unicode("ip", node) for node in nodes]

    def action(self) -> str:
        value = self.row.get("action", "raise")
        if value not in _ACTIONS:
            self.refuse("action", "unknown action", value, "raise or retract")
        return str(value)

    def number(self, key: str, default: float | None) -> float | None:
        value = self.row.get(key, default)
        if value is None and default is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.refuse(key, "not a number", value)
        if not abs(value) <= _LARGEST:  # also refuses NaN, and integers beyond every float
            self.refuse(key, "not a finite number", value)
        return float(value)

    def whole(self, key: str) -> int | None:
        value = self.row.get(key)
        if value is not None and not _is_whole(value):
            self.refuse(key, "not a whole number", value)
        return value

    def wholes(self, key: str) -> list[int]:
        value = self.row.get(key)
        if value is None:
            return []
        if not isinstance(value, list) or not all(map(_is_whole, value)):
            self.refuse(key, "not a list of whole numbers", value)
        return value


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


def _column(values: Sequence[Any], kind: pa.DataType) -> pa.Array[Any]:
    if pa.types.is_dictionary(kind):
        return pa.array(values, pa.string()).dictionary_encode()
    return pa.array(values, kind)
