"""Columns of events: text as Arrow arrays, checked whole columns at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replay.traces.texts import Column, as_names
from replay.traces.times import parse_times, why_not

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from replay.traces.findings import Explain, Findings, Place

__all__ = ["EVENT_COLUMNS", "Inspection", "Rows", "run_starts"]

EVENT_COLUMNS = ("ip", "event_time", "event")
"""What every row of events holds."""

_NONE = np.zeros(0, bool)  # a mask of no rows


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of events, as read.

    Attributes:
        job: Number of each row's job, int32[n].
        columns: :data:`EVENT_COLUMNS` as Arrow text of any sort, valid UTF-8; may hold nulls,
            which are refused.
        place: Where row ``i`` stands.
        ns: The times in nanoseconds, int64[n], where the reader knows that all are times.
    """

    job: NDArray[np.int32]
    columns: Mapping[str, Column]
    place: Callable[[int], Place]
    ns: NDArray[np.int64] | None = None


class Inspection:
    """Checks some rows; a row with a fault is reported and marked.

    Attributes:
        bad: bool[n], the rows that were refused.
    """

    def __init__(self, rows: Rows, findings: Findings) -> None:
        self.rows = rows
        self.findings = findings
        self.bad = np.zeros(len(rows.job), bool)

    def names(self, column: str) -> Column:
        """A column of names, dictionary-encoded; nulls are marked as bad."""
        names = as_names(self.rows.columns[column])
        words: Column = names.dictionary
        nulls = _mask(names.is_null()) if names.null_count else _NONE
        codes = names.indices.fill_null(0) if names.null_count else names.indices

        def having(words_so: Column) -> NDArray[np.bool_]:
            faulty = _mask(words_so)
            if not faulty.any():
                return _NONE
            mask: NDArray[np.bool_] = faulty[codes.to_numpy()]
            return mask & ~nulls if len(nulls) else mask

        def say(what: str, remedy: str) -> Explain:
            return lambda row: (what, names[row].as_py() or None, remedy)

        self.refuse(column, nulls, "empty", say("null in place of text", "fill it in"))
        empty = having(pc.equal(words, pa.scalar("")))
        self.refuse(column, empty, "empty", say("an empty text", "fill it in"))
        nul = having(pc.match_substring(words, "\0"))
        self.refuse(column, nul, "not-text", say("a NUL character", "remove it"))
        blank = having(pc.not_equal(words, pc.utf8_trim_whitespace(words)))
        kept = say("blanks around a text, kept as part of it", "")
        self.findings.of_rows("warning", "blanks", blank, self.rows.place, column, kept)
        return names

    def times(self) -> tuple[Column, NDArray[np.int64]]:
        """The column of times, as written and in nanoseconds."""
        column = "event_time"
        texts = self.rows.columns[column].cast(pa.string())
        if self.rows.ns is not None:
            return texts, self.rows.ns
        nulls = _NONE
        if texts.null_count:
            nulls, texts = _mask(texts.is_null()), texts.fill_null("")
            say = "null in place of a time", None, "fill it in"
            self.refuse(column, nulls, "empty", lambda _: say)
        ns, bad = parse_times(texts)
        if len(nulls):
            bad &= ~nulls
        self.refuse(column, bad, "bad-time", lambda row: _why_not(texts, row))
        return texts, ns

    def offsets(
        self, texts: Column, ns: NDArray[np.int64], starts: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Nanoseconds since each row's job started.

        Args:
            texts: The times as written.
            ns: The times.
            starts: When each row's job started.
        """
        at = ns - starts
        if _fits(ns, starts):
            return at
        wrapped = ((ns ^ starts) & (ns ^ at)) < 0
        what, remedy = "a time more than 292 years from the job's start", "correct it"
        self.refuse(
            "event_time", wrapped, "bad-time", lambda row: (what, texts[row].as_py(), remedy)
        )
        return at

    def refuse(self, column: str, mask: NDArray[np.bool_], kind: str, explain: Explain) -> None:
        """Report rows as faulty and mark them.

        Args:
            column: Where the fault is.
            mask: bool[n], the faulty rows; empty when there are none.
            kind: Sort of fault.
            explain: What is wrong with row ``i``.

        Raises:
            TraceError: When strict and there is such a row.
        """
        self.findings.of_rows("error", kind, mask, self.rows.place, column, explain)
        if len(mask):
            self.bad |= mask


def run_starts(job: NDArray[np.int32]) -> NDArray[np.intp]:
    """Where the rows of another job begin.

    Args:
        job: Number of each row's job.

    Examples:
        >>> run_starts(np.array([1, 1, 0, 1], np.int32))
        array([0, 2, 3])

    """
    changes = np.flatnonzero(job[1:] != job[:-1]) + 1
    return np.concatenate(([0], changes)) if len(job) else changes


def _fits(ns: NDArray[np.int64], starts: NDArray[np.int64]) -> bool:
    """Whether no difference of these can leave 64 bits."""
    if not len(ns):
        return True
    longest = int(ns.max()) - int(starts.min())
    shortest = int(ns.min()) - int(starts.max())
    return shortest >= -(1 << 63) and longest < 1 << 63


def _why_not(texts: Column, row: int) -> tuple[str, str | None, str]:
    text = texts[row].cast(pa.binary()).as_py().decode("utf-8", "backslashreplace")
    what, remedy = why_not(text)
    return what, text or None, remedy


def _mask(flags: Column) -> NDArray[np.bool_]:
    mask: NDArray[np.bool_] = flags.to_numpy(zero_copy_only=False)
    return mask
