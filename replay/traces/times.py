"""Times as they are written: text to nanoseconds and back, never through a time zone.

A trace's clock has no zone. Its text is ``YYYY-MM-DD HH:MM:SS``, perhaps with a ``T`` and a
fraction of up to nine digits; anything else is refused, not guessed.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from replay.traces.texts import Column

__all__ = [
    "SECOND",
    "format_ns",
    "format_times",
    "parse_one",
    "parse_times",
    "shift_times",
    "sound_times",
    "why_not",
]

SECOND = 1_000_000_000
"""Nanoseconds in a second."""

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - the trace's clock has no zone
_LIMIT = 1 << 63
_TIME = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[ T]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?"
)
_WRITE_SO = "write it as YYYY-MM-DD HH:MM:SS"
_ZONE = r"([Zz]|[+-][0-9]{2}:?([0-9]{2})?| ?[A-Z]{3,4})"
_FAULTS = (
    (r"", "an empty time", "fill it in"),
    (r"\s.*|.*\s", "blanks around a time", "remove them"),
    (r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?", "a number, not a time", _WRITE_SO),
    (rf".*[0-9]{{2}}:[0-9]{{2}}.*{_ZONE}", "a time with a zone", "leave the zone out"),
    (r"[0-9]{1,2}[/.-][0-9]{1,2}[/.-][0-9]{2,4}\b.*", "an ambiguous date", _WRITE_SO),
)


def parse_one(text: str) -> int | None:
    """Nanoseconds since 1970-01-01 00:00:00 on the trace's own clock, or None if not a time.

    Examples:
        >>> parse_one("1969-12-31 23:59:59.5")
        -500000000
        >>> parse_one("1969-02-30 00:00:00") is None
        True

    """
    ns = _moment(text)
    return ns if ns is not None and -_LIMIT < ns < _LIMIT else None


def why_not(text: str) -> tuple[str, str]:
    """What is wrong with a time that :func:`parse_one` refused, and what to do about it.

    Examples:
        >>> why_not("1969-10-15T13:49:13Z")
        ('a time with a zone', 'leave the zone out')

    """
    if _TIME.fullmatch(text):
        exists = _moment(text) is not None
        return "outside the years 1678 to 2261" if exists else "no such date or time", "correct it"
    for pattern, what, remedy in _FAULTS:
        if re.fullmatch(pattern, text, re.DOTALL):
            return what, remedy
    return "not a time", _WRITE_SO


def parse_times(texts: Column) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Parse a column of texts without nulls; they need not be UTF-8.

    Returns:
        Nanoseconds, int64[n] (0 where refused), and which were refused, bool[n].

    Examples:
        >>> parse_times(pa.array(["1970-01-01 00:00:01", "noon"]))
        (array([1000000000,          0]), array([False,  True]))

    """
    bad = np.zeros(len(texts), bool)
    sound = sound_times(texts)
    if sound is not None:
        return sound, bad
    ns = np.zeros(len(texts), np.int64)
    known: dict[bytes, int | None] = {}
    for i, raw in enumerate(texts.cast(pa.binary()).to_pylist()):
        if raw not in known:
            known[raw] = parse_one(raw.decode("utf-8", "replace"))
        moment = known[raw]
        if moment is None:
            bad[i] = True
        else:
            ns[i] = moment
    return ns, bad


def sound_times(texts: Column) -> NDArray[np.int64] | None:
    """Parse a column of texts at once: nanoseconds, int64[n]; None unless all of them are times.

    Examples:
        >>> sound_times(pa.array(["1970-01-01 00:00:01", "1969-12-31 23:59:59"]))
        array([ 1000000000, -1000000000])

    """
    if texts.null_count or not _may_be_cast(texts):
        return None
    try:
        ns: NDArray[np.int64] = texts.cast(pa.timestamp("ns")).cast(pa.int64()).to_numpy()
    except pa.ArrowInvalid:
        return None
    return ns


def format_ns(ns: int) -> str:
    """Write a time: seconds, and as many digits of a fraction as it takes.

    Examples:
        >>> format_ns(-500_000_000)
        '1969-12-31 23:59:59.5'

    """
    seconds, fraction = divmod(ns, SECOND)
    text = str(_EPOCH + timedelta(seconds=seconds))
    return f"{text}.{fraction:09d}".rstrip("0") if fraction else text


def format_times(ns: NDArray[np.int64]) -> Column:
    """Write many times as :func:`format_ns` does.

    Examples:
        >>> format_times(np.array([0, -500_000_000])).to_pylist()
        ['1970-01-01 00:00:00', '1969-12-31 23:59:59.5']

    """
    seconds, fraction = np.divmod(ns, SECOND)
    texts: Column = pa.array(seconds).cast(pa.timestamp("s")).cast(pa.string())
    broken = np.flatnonzero(fraction)
    if len(broken):
        exact = [format_ns(moment) for moment in ns[broken].tolist()]
        texts = pc.replace_with_mask(texts, pa.array(fraction != 0), pa.array(exact))
    return texts


def shift_times(texts: Iterable[str], seconds: int) -> list[str]:
    """Move times by whole seconds; the separator and the fraction stay as written.

    Raises:
        OverflowError: One of them would leave the years that a trace can hold.
    """
    moved = []
    for text in texts:
        ns = _moment(text[:19])
        if ns is None or not -_LIMIT < ns + seconds * SECOND < _LIMIT - SECOND:
            raise OverflowError(text)
        date, time = format_ns(ns + seconds * SECOND).split(" ")
        moved.append(f"{date}{text[10]}{time}{text[19:]}")
    return moved


def _moment(text: str) -> int | None:
    """Like :func:`parse_one`, without the bounds of 64 bits."""
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = map(int, match.groups()[:6])
    try:
        since = datetime(year, month, day, hour, minute, second) - _EPOCH  # noqa: DTZ001 - no zone
    except ValueError:
        return None
    fraction = int((match[7] or "").ljust(9, "0"))
    return (since.days * 86_400 + since.seconds) * SECOND + fraction


def _may_be_cast(texts: Column) -> bool:
    """Whether all are as long as a whole time: Arrow's cast also takes a bare date or HH:MM."""
    each: Column = pc.binary_length(texts)
    lengths: Column = pc.min_max(each)
    shortest, longest = lengths["min"].as_py(), lengths["max"].as_py()
    return shortest is not None and shortest >= 19 and longest <= 29
