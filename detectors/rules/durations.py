"""Durations as Prometheus writes them: ``1h30m``, ``15s``, ``500ms``."""

from __future__ import annotations

import re

from detectors.rules.errors import LanguageError

__all__ = ["UNITS", "format_duration", "parse_duration"]

UNITS = {
    "y": 365 * 86_400_000,
    "w": 7 * 86_400_000,
    "d": 86_400_000,
    "h": 3_600_000,
    "m": 60_000,
    "s": 1000,
    "ms": 1,
}
"""Milliseconds per unit, largest first: the order in which they may be written."""

_SHAPE = re.compile("".join(f"(?:([0-9]+){unit})?" for unit in UNITS))


def parse_duration(text: str) -> int:
    """Read a duration.

    Returns:
        Milliseconds.

    Raises:
        LanguageError: It is none.

    Examples:
        >>> parse_duration("1h30m"), parse_duration("500ms"), parse_duration("0")
        (5400000, 500, 0)

    """
    if text == "0":
        return 0
    found = _SHAPE.fullmatch(text)
    if not text or found is None:
        raise LanguageError(
            f"{text!r} is not a duration", "whole numbers with units, like 5m or 1h30m"
        )
    return sum(
        int(count) * unit
        for count, unit in zip(found.groups(), UNITS.values(), strict=True)
        if count
    )


def format_duration(milliseconds: int) -> str:
    """Write a duration, shortest first units left out.

    Examples:
        >>> format_duration(5_400_000), format_duration(1500), format_duration(0)
        ('1h30m', '1s500ms', '0s')

    """
    if milliseconds == 0:
        return "0s"
    sign, rest, parts = ("-" if milliseconds < 0 else ""), abs(milliseconds), []
    for unit, size in UNITS.items():
        # years and weeks only when nothing is left over, as Prometheus prints them
        if unit in {"y", "w", "d"} and rest % size:
            continue
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return sign + "".join(parts)
