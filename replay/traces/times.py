"""Times as they are written: text to nanoseconds and back, never through a time zone.

A trace's clock has no zone. Its text is ``YYYY-MM-DD HH:MM:SS``, perhaps with a ``T`` and a
fraction of up to nine digits; anything else is refused, not guessed.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["SECOND", "format_ns", "parse_one", "parse_times", "shift_times", "why_not"]

SECOND = 1_000_000_000
"""Nanoseconds in a second."""

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - the trace's clock has no zone
_TIME = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[ T]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?"
)
_ZONED = re.compile(r"[0-9]{2}:[0-9]{2}.*(?:Z|z|[+-][0-9]{2}:?[0-9]{0,2}| ?[A-Z]{3,4})")
_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?")
_OTHER_ORDER = re.compile(r"[0-9]{1,4}[/.-][0-9]{1,2}[/.-][0-9]{1,4}.*")
_LIMIT = 1 << 63
_WRITE_SO = "write it as YYYY-MM-DD HH:MM:SS"


def parse_one(text: str) -> int | None:
    """Nanoseconds since 1970-01-01 00:00:00 on the trace's own clock, or None if not a time.

    Examples:
        >>> parse_one("1969-12-31 23:59:59.5")
        -500000000
        >>> parse_one("1969-02-30 00:00:00") is None
        True

    """
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    *fields, fraction = match.groups()
    try:
        since = datetime(*(int(part) for part in fields)) - _EPOCH  # type: ignore[arg-type] # noqa: DTZ001 - six ints; no zone
    except ValueError:
        return None
    ns = (since.days * 86_400 + since.seconds) * SECOND + int((fraction or "0").ljust(9, "0"))
    return ns if -_LIMIT < ns < _LIMIT else None


def why_not(text: str) -> tuple[str, str]:
    """What is wrong with a time that :func:`parse_one` refused, and what to do about it."""
    if text != text.strip():
        return "blanks around a time", "remove them"
    if _TIME.fullmatch(text):
        year = int(text[:4])
        if 1677 < year < 2262 or year == 0:
            return "a date or time that does not exist", "correct it"
        return "a time outside the years 1678 to 2261", "correct it"
    if _NUMBER.fullmatch(text):
        return "a number, not a time", _WRITE_SO
    if _ZONED.search(text):
        return "a time with a zone, where the trace's clock has none", "leave the zone out"
    if _OTHER_ORDER.fullmatch(text) and not re.match(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        return "an ambiguous date", _WRITE_SO
    return "not a time", _WRITE_SO


def parse_times(texts: pa.StringArray) -> tuple[np.ndarray, np.ndarray]:
    """Parse a column of texts without nulls.

    Returns:
        Nanoseconds, int64[n] (0 where refused), and which were refused, bool[n].

    Examples:
        >>> parse_times(pa.array(["1970-01-01 00:00:01", "noon"]))
        (array([1000000000,          0]), array([False,  True]))

    """
    bad = np.zeros(len(texts), bool)
    if _all_strict(texts):
        try:
            # Arrow also takes a bare date, HH:MM and such, hence the check of lengths before
            times = pc.cast(texts, pa.timestamp("ns"))
            return times.cast(pa.int64()).to_numpy(zero_copy_only=False), bad
        except pa.ArrowInvalid:
            pass  # a bad one among them: go one by one and say which
    known: dict[str, int | None] = {}
    parsed = np.zeros(len(texts), np.int64)
    for i, text in enumerate(texts.to_pylist()):
        if text not in known:
            known[text] = parse_one(text)
        ns = known[text]
        if ns is None:
            bad[i] = True
        else:
            parsed[i] = ns
    return parsed, bad


def _all_strict(texts: pa.StringArray) -> bool:
    lengths = pc.min_max(pc.binary_length(texts)).as_py()
    shortest, longest = lengths["min"], lengths["max"]
    if shortest == 19 == longest:
        return True
    return shortest is not None and shortest >= 19 and longest <= 29


def format_ns(ns: int) -> str:
    """Write a time: seconds, and as many digits of a fraction as it takes.

    Examples:
        >>> format_ns(-500_000_000)
        '1969-12-31 23:59:59.5'

    """
    seconds, fraction = divmod(ns, SECOND)
    text = str(_EPOCH + timedelta(seconds=seconds))
    return f"{text}.{fraction:09d}".rstrip("0") if fraction else text


def shift_times(texts: list[str], seconds: int) -> list[str]:
    """Move times by whole seconds; the separator and the fraction stay as written.

    Raises:
        OverflowError: The result lies outside what a trace can hold.
    """
    moved = []
    for text in texts:
        whole = parse_one(text[:19])
        ns = (whole or 0) + seconds * SECOND
        if not -_LIMIT < ns < _LIMIT - SECOND:
            raise OverflowError(text)
        date, time = format_ns(ns).split(" ")
        moved.append(f"{date}{text[10]}{time}{text[19:]}")
    return moved
