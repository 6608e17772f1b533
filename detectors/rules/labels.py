"""Label sets, and what matches them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from detectors.rules.errors import LanguageError, Unsupported

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

__all__ = [
    "METADATA",
    "NAME",
    "Labels",
    "Matcher",
    "keep",
    "make",
    "nameless",
    "show",
    "show_all",
    "translate_regex",
    "without",
]

NAME = "__name__"
METADATA = frozenset({NAME, "__type__", "__unit__"})
"""What a metric is called and measures; what is computed from it is another thing."""

Labels = tuple[tuple[str, str], ...]
"""Pairs sorted by name; an empty value is the same as no label, and is not there."""


def make(pairs: Mapping[str, str] | Iterable[tuple[str, str]]) -> Labels:
    """Build a label set.

    Examples:
        >>> make({"job": "a", "__name__": "up", "zone": ""})
        (('__name__', 'up'), ('job', 'a'))

    """
    return tuple(sorted([pair for pair in dict(pairs).items() if pair[1]]))


def without(labels: Labels, names: Collection[str]) -> Labels:
    """All labels but these."""
    return tuple([pair for pair in labels if pair[0] not in names])


def nameless(labels: Labels) -> Labels:
    """All labels but the metric's name and what goes with it.

    Examples:
        >>> nameless((("__name__", "up"), ("__type__", "gauge"), ("job", "a")))
        (('job', 'a'),)

    """
    if labels and labels[0][0] == NAME and not (len(labels) > 1 and labels[1][0] in METADATA):
        return labels[1:]
    return without(labels, METADATA)


def keep(labels: Labels, names: Collection[str]) -> Labels:
    """These labels only."""
    return tuple([pair for pair in labels if pair[0] in names])


def show(labels: Labels) -> str:
    r"""Write a label set as Prometheus does.

    Examples:
        >>> show((("__name__", "up"), ("job", 'a"b')))
        'up{job="a\\"b"}'

    """
    name = dict(labels).get(NAME, "")
    rest = without(labels, {NAME})
    return name + (show_all(rest) if rest or not name else "")


def show_all(labels: Labels) -> str:
    r"""Write a label set with the metric's name as one of the labels.

    Examples:
        >>> show_all((("__name__", "up"), ("job", 'a"b')))
        '{__name__="up", job="a\\"b"}'

    """
    return "{" + ", ".join(_written(name, "=", value) for name, value in labels) + "}"


def _written(name: str, op: str, value: str) -> str:
    escaped = value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return f'{name}{op}"{escaped}"'


@dataclass(frozen=True, slots=True)
class Matcher:
    """One condition on one label.

    Attributes:
        name: The label.
        op: ``=``, ``!=``, ``=~`` or ``!~``.
        value: What it is compared with; a regular expression must match in full.

    Raises:
        LanguageError: The regular expression is none.
        Unsupported: It uses something that cannot be evaluated as Prometheus does.

    Examples:
        >>> Matcher("kind", "=~", "nic_.*|hang").matches("nic_down")
        True

    """

    name: str
    op: str
    value: str
    _pattern: re.Pattern[str] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.op in {"=~", "!~"}:
            object.__setattr__(self, "_pattern", compile_regex(self.value))

    def matches(self, value: str) -> bool:
        """Whether a label's value (empty when absent) satisfies this."""
        if self._pattern is None:
            return (value == self.value) == (self.op == "=")
        return (self._pattern.fullmatch(value) is not None) == (self.op == "=~")

    def __str__(self) -> str:
        return _written(self.name, self.op, self.value)


def compile_regex(text: str) -> re.Pattern[str]:
    """Compile an RE2 expression for full matches, ``.`` matching line ends as since 3.0.

    Raises:
        LanguageError: It is no regular expression.
        Unsupported: It uses something that Python would read otherwise.
    """
    try:
        return re.compile(translate_regex(text), re.ASCII | re.DOTALL)
    except re.error as error:
        raise LanguageError(f"{text!r} is not a regular expression: {error}") from None


_CLASSES = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": r"\x00-\x7f",
    "blank": r"\t ",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\t\n\v\f\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}
_PIECE = re.compile(
    r"""(?P<quote>\\Q.*?(?:\\E|\Z))
      | (?P<hex>\\x\{[0-9A-Fa-f]+\})
      | (?P<escape>\\.)
      | (?P<posix>\[:\^?[a-z]+:\])
      | (?P<group>\(\?P?<[A-Za-z_0-9]+>|\(\?[imsU]*(?:-[imsU]+)?[:)])
      | (?P<repeat>(?:[*+?]|\{[0-9]+(?:,[0-9]*)?\})\??)
      | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)


def translate_regex(text: str) -> str:  # noqa: C901, PLR0912 - a branch per kind of piece
    r"""Write an RE2 expression the way Python's ``re`` reads it alike.

    Raises:
        Unsupported: Something in it has no equal in Python.

    Examples:
        >>> translate_regex("(?i)nic_[[:digit:]]+$")
        '(?i:nic_[0-9]+\\Z)'

    """
    out: list[str] = []
    closers: list[int] = [0]  # per open group, how many extra parentheses close with it
    in_class, repeated = False, False
    for found in _PIECE.finditer(text):
        kind, piece = str(found.lastgroup), found.group()
        if in_class:
            in_class = not (kind == "other" and piece == "]" and out[-1] not in {"[", "[^"})
            out.append(_in_class(kind, piece, out[-1]) if in_class else "]")
            continue
        if kind == "repeat":
            if repeated:
                raise Unsupported(f"the regular expression {text!r}", f"{piece!r} repeats a repeat")
            out.append(piece)
            repeated = True
            continue
        repeated = False
        if kind == "quote":
            out.append(re.escape(piece[2:].removesuffix("\\E")))
        elif kind == "hex":
            out.append(re.escape(chr(int(piece[3:-1], 16))))
        elif kind == "escape":
            out.append(_escape(piece, text))
        elif kind == "group":
            out.append(_group(piece, text, closers))
        elif kind == "posix":  # outside a class these are ordinary characters of one
            out.append("[" + re.escape(piece[1:-1]) + "]")
        elif piece == "(":
            closers.append(0)
            out.append(piece)
        elif piece == ")":
            extra = closers.pop() if len(closers) > 1 else 0
            out.append(")" * (extra + 1))
        elif piece == "[":
            in_class = True
            out.append(piece)
        elif piece in "{}":
            out.append("\\" + piece)
        else:
            out.append(r"\Z" if piece == "$" else piece)
    return "".join(out) + ")" * closers[0]


def _in_class(kind: str, piece: str, before: str) -> str:
    """Translate one piece inside a character class."""
    if kind == "posix":
        name = piece[2:-2]
        if name.startswith("^") or name not in _CLASSES:
            raise Unsupported(piece, "this class has no equal here")
        return _CLASSES[name]
    if kind == "escape":
        return _escape(piece, piece)
    if kind == "hex":
        return re.escape(chr(int(piece[3:-1], 16)))
    if piece == "^" and before == "[":
        return piece
    if piece == "]":
        return r"\]"
    return "".join("\\" + char if char in "[&~|" else char for char in piece)


def _escape(piece: str, text: str) -> str:
    char = piece[1]
    if char == "z":
        return r"\Z"
    if char.isalnum() and char not in "AbBdDsSwWafnrtvx":
        raise Unsupported(f"the regular expression {text!r}", f"{piece} has no equal here")
    return piece


def _group(piece: str, text: str, closers: list[int]) -> str:
    """Translate the opening of a group, or flags for the rest of one."""
    if piece.endswith(">"):
        closers.append(0)
        return "(?P<" + piece[piece.index("<") + 1 :]
    flags = piece[2:-1]
    if "U" in flags or "m" in flags or "-s" in flags or (flags.startswith("-") and "s" in flags):
        raise Unsupported(
            f"the regular expression {text!r}", f"the flags of {piece!r} are not known here"
        )
    if not text.isascii() and "i" in flags:
        raise Unsupported(f"the regular expression {text!r}", "folding case beyond ASCII differs")
    if piece.endswith(")"):  # flags hold to the end of the group: wrap the rest of it
        if not text.startswith(piece) and "|" in text:
            raise Unsupported(
                f"the regular expression {text!r}", f"{piece} stands amid alternatives"
            )
        closers[-1] += 1
        return f"(?{flags}:"
    closers.append(0)
    return f"(?{flags}:"
