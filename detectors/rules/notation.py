"""Prometheus's notation for test series: ``x{node="a"} 0+3x5 _ stale 1``."""

from __future__ import annotations

import re

from detectors.rules.errors import LanguageError, Unsupported
from detectors.rules.labels import NAME, Labels, make
from detectors.rules.series import STALE, Storage
from detectors.rules.tokens import unquote

__all__ = ["load", "parse_labels", "parse_series", "parse_values"]

_NUMBER = r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?(?i:inf|nan)"
_ITEM = re.compile(
    rf"(?:(?P<blank>_)|(?P<stale>stale)|(?P<start>{_NUMBER}))"
    rf"(?:(?P<step>[-+](?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+](?i:inf|nan))?"
    rf"x(?P<times>[0-9]+))?"
)
_STRING = r'"(?:\\.|[^"\\])*"|' + r"'(?:\\.|[^'\\])*'|`[^`]*`"
_PAIR = re.compile(
    rf"\s*(?:(?P<name>[^\W\d][\w.]*|{_STRING})\s*(?:=\s*(?P<value>{_STRING}))?)\s*(?P<end>,|\}})"
)


def parse_labels(text: str) -> tuple[Labels, str]:
    """Read a series' name and labels from the front of a line.

    Returns:
        The label set, and the rest of the line.

    Raises:
        LanguageError: There is no series.

    Examples:
        >>> parse_labels('x{node="a"} 1 2')
        ((('__name__', 'x'), ('node', 'a')), ' 1 2')

    """
    found = re.match(r"\s*((?:[^\W\d]|:)[\w.:]*)?\s*", text)
    name = (found.group(1) or "") if found else ""
    rest = text[found.end() :] if found else text
    pairs = {NAME: name} if name else {}
    if not rest.startswith("{") or rest.startswith("{{"):  # the latter is a native histogram
        if not name:
            raise LanguageError(f"no series in {text.strip()!r}")
        return make(pairs), text[found.end(1) :] if found else rest
    rest = rest[1:]
    if rest.lstrip().startswith("}"):
        return make(pairs), rest.lstrip()[1:]
    while True:
        found = _PAIR.match(rest)
        if found is None:
            raise LanguageError(f"bad labels in {text.strip()!r}")
        key = found["name"]
        key = unquote(key) if key[0] in "\"'`" else key
        if found["value"] is None:  # {"name", ...}: the metric's name, quoted
            pairs[NAME] = key
        else:
            pairs[key] = unquote(found["value"])
        rest = rest[found.end() :]
        if found["end"] == "}":
            return make(pairs), rest
        if rest.lstrip().startswith("}"):
            return make(pairs), rest.lstrip()[1:]


def parse_values(text: str) -> list[float | None]:
    """Read values; None where there is no sample.

    Raises:
        LanguageError: Something in it is no value.
        Unsupported: It holds native histograms.

    Examples:
        >>> parse_values("1+2x3 _x2 -1")
        [1.0, 3.0, 5.0, 7.0, None, None, -1.0]

    """
    if "{{" in text:
        raise Unsupported("{{...}}", "native histograms are not evaluated")
    out: list[float | None] = []
    for item in text.split():
        found = _ITEM.fullmatch(item)
        if found is None:
            raise LanguageError(f"{item!r} is not a value")
        times = found["times"]
        if found["blank"]:
            out.extend([None] * (int(times) if times else 1))
            continue
        start = STALE if found["stale"] else float(found["start"])
        step = float(found["step"]) if found["step"] else 0.0
        out.append(start)
        if times:
            for _ in range(int(times)):  # repeated addition, as the loader of Prometheus does
                start = start if found["stale"] or found["step"] is None else start + step
                out.append(start)
    return out


def parse_series(line: str) -> tuple[Labels, list[float | None]]:
    """Read a whole line.

    Raises:
        LanguageError: It is no series with values.
        Unsupported: It holds native histograms.
    """
    labels, rest = parse_labels(line)
    return labels, parse_values(rest)


def load(step: int, *lines: str, storage: Storage | None = None) -> Storage:
    """Store series, their first value at time 0 and the others ``step`` milliseconds apart.

    Raises:
        LanguageError: A line is no series with values.
        Unsupported: A line holds native histograms.
    """
    storage = Storage() if storage is None else storage
    for line in lines:
        labels, values = parse_series(line)
        times = [number * step for number, value in enumerate(values) if value is not None]
        storage.append(labels, times, [value for value in values if value is not None])
    return storage
