"""PromQL as tokens with their places, and strings as Go reads them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from detectors.rules.durations import parse_duration
from detectors.rules.errors import LanguageError, Unsupported

__all__ = ["Token", "quote", "tokenize", "unquote"]

_TOKEN = re.compile(
    r"""(?P<space>\s+)
      | (?P<comment>\#[^\n]*)
      | (?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`[^`]*`)
      | (?P<duration>(?:[0-9]+(?:ms|[smhdwy]))+(?![0-9A-Za-z_.]))
      | (?P<number>0[xX][0-9a-fA-F]+|(?:[0-9][0-9_]*(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
      | (?P<name>[A-Za-z_:][A-Za-z0-9_:]*(?![\w.]))
      | (?P<other>[^\W\d][\w:.]*)
      | (?P<op>==|!=|<=|>=|=~|!~|[-+*/%^<>=(){}\[\],:@!])""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of an expression.

    Attributes:
        kind: ``string``, ``duration``, ``number``, ``name`` or ``op``.
        text: As written.
        start: Its first character's position.
    """

    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        """The position after its last character."""
        return self.start + len(self.text)

    @property
    def number(self) -> float:
        """What a number is worth, and how many seconds a duration has.

        Raises:
            LanguageError: It is a duration whose units are out of order.
        """
        if self.kind == "duration":
            return parse_duration(self.text) / 1000
        if self.text[:2] in {"0x", "0X"}:
            return float(int(self.text, 16))
        return float(self.text)

    @property
    def milliseconds(self) -> int:
        """A number of seconds, or a duration.

        Raises:
            LanguageError: It is a duration whose units are out of order.
        """
        return parse_duration(self.text) if self.kind == "duration" else round(self.number * 1000)


def tokenize(text: str) -> list[Token]:
    """Cut an expression into tokens; space and comments are left out.

    Raises:
        LanguageError: A character belongs to none.
        Unsupported: A name has dots or letters that only a quoted one may have.

    Examples:
        >>> [token.text for token in tokenize("rate(x[5m]) > 0.5  # often")]
        ['rate', '(', 'x', '[', '5m', ']', ')', '>', '0.5']

    """
    tokens: list[Token] = []
    position, in_brackets = 0, False
    while position < len(text):
        if in_brackets and text[position] == ":":  # of a subquery; elsewhere a colon begins a name
            tokens.append(Token("op", ":", position))
            position += 1
            continue
        found = _TOKEN.match(text, position)
        if found is None:
            raise LanguageError(f"unexpected {text[position]!r} at character {position + 1}")
        kind = str(found.lastgroup)
        if kind == "other":
            raise Unsupported(f"the unquoted name {found.group()!r}", "it must be quoted")
        if kind not in {"space", "comment"}:
            tokens.append(Token(kind, found.group(), position))
            in_brackets = (in_brackets or found.group() == "[") and found.group() != "]"
        position = found.end()
    return tokens


_SIMPLE = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ESCAPE = re.compile(
    r"\\(?:x(?P<x>[0-9a-fA-F]{2})|u(?P<u>[0-9a-fA-F]{4})|U(?P<U>[0-9a-fA-F]{8})"
    r"|(?P<o>[0-7]{3})|(?P<c>.))",
    re.DOTALL,
)


def unquote(text: str) -> str:
    r"""Read a string literal with its quotes, by Go's rules.

    Raises:
        LanguageError: An escape in it is none.
        Unsupported: It is not UTF-8.

    Examples:
        >>> unquote(r'"a\tb"'), unquote(r"`\d`")
        ('a\tb', '\\d')

    """
    if text[0] == "`":
        return text[1:-1]

    def one(found: re.Match[str]) -> bytes:
        if found["x"] or found["o"]:
            code = int(found["x"], 16) if found["x"] else int(found["o"], 8)
            if code > 255:
                raise LanguageError(f"unknown escape {found.group()} in {text}")
            return bytes([code])
        if found["u"] or found["U"]:
            return chr(int(found["u"] or found["U"], 16)).encode()
        char = found["c"]
        if char in _SIMPLE:
            return _SIMPLE[char].encode()
        if char == "\\" or char == text[0]:
            return str(char).encode()
        raise LanguageError(f"unknown escape {found.group()} in {text}")

    inner, out, position = text[1:-1], [], 0
    for found in _ESCAPE.finditer(inner):
        out += [inner[position : found.start()].encode(), one(found)]
        position = found.end()
    out.append(inner[position:].encode())
    try:
        return b"".join(out).decode()
    except UnicodeDecodeError:
        raise Unsupported(f"the string {text}", "it is not UTF-8") from None


def quote(text: str) -> str:
    """Write a string literal that every PromQL reader takes alike."""
    return '"' + text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") + '"'
