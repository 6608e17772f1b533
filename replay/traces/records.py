"""JSON as it should be: no key twice, no NaN, no bottomless nesting; errors as one sentence."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["BadJsonError", "Repeated", "load_json"]


class BadJsonError(ValueError):
    """A text is not JSON; the sentence says why and what to do.

    Args:
        what: What is wrong.
        remedy: What to change.
        position: Characters into the text, from 0.
    """

    def __init__(self, what: str, remedy: str = "", position: int = 0) -> None:
        super().__init__(what, remedy, position)
        self.what = what
        self.remedy = remedy
        self.position = position


class Repeated(dict[str, Any]):
    """An object in which a key stands twice.

    Attributes:
        key: The key.
        what: Which entries hold it, for a message.
    """

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        first: dict[str, int] = {}
        self.key = self.what = ""
        for i, (key, _) in enumerate(pairs, start=1):
            if key in first:
                self.key = key
                self.what = f"the key is there twice, as entries {first[key]} and {i}"
                break
            first[key] = i


def load_json(text: str) -> Any:
    """Parse one JSON value.

    Raises:
        BadJsonError: It is not one.

    Examples:
        >>> load_json('{"a": 1}{"b": 2}')
        Traceback (most recent call last):
            ...
        replay.traces.records.BadJsonError: ('two values where one is expected', ...)

    """
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise _explain(text, error) from None
    except RecursionError:
        raise BadJsonError("JSON nested too deeply", "write flat values") from None
    except ValueError as error:  # a number of more digits than Python converts
        if isinstance(error, BadJsonError):
            raise
        raise BadJsonError("a number too long to be one", "write it in quotes") from None


def _explain(text: str, error: json.JSONDecodeError) -> BadJsonError:
    if error.msg == "Extra data":
        return BadJsonError("two values where one is expected", "write one job a line", error.pos)
    if error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string"):
        return BadJsonError("the text ends before its JSON does", "fetch the file again", error.pos)
    what = error.msg[0].lower() + error.msg[1:]
    near = text[error.pos : error.pos + 20]
    return BadJsonError(f"not JSON: {what} at character {error.pos + 1} ({near!r})", "", error.pos)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    plain = dict(pairs)
    return plain if len(plain) == len(pairs) else Repeated(pairs)


def _constant(name: str) -> Any:
    raise BadJsonError(f"{name} is not JSON", "write the value in quotes")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant)
