"""What all records have in common: version, JSON, and fields of the right kind."""

from __future__ import annotations

import json
import math
from importlib import resources
from typing import Any, overload

__all__ = [
    "VERSION",
    "PoisonError",
    "count_of",
    "field_of",
    "head_of",
    "job_key",
    "json_text",
    "number_of",
    "number_or_none",
    "parse",
    "schema",
    "shown",
]

VERSION = 1
"""The version of the form written here; records of another are poison."""


class PoisonError(ValueError):
    """A record that cannot be understood, or has no place in its stream.

    Args:
        reason: One word for counting: ``tombstone``, ``json``, ``version``, ``type``, ``field``,
            ``order`` or ``no-start``.
        detail: What is wrong, with the value.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}"


def head_of(kind: str, run: str, epoch: int, job: str) -> str:
    """How a record of a job begins as we write it."""
    return (
        f'{{"v":{VERSION},"type":"{kind}","run":{json_text(run)},"epoch":{epoch},'
        f'"job_id":{json_text(job)},'
    )


def schema() -> dict[str, Any]:
    """The JSON Schema of every record.

    Examples:
        >>> sorted(schema()["$defs"])
        ['alert', 'end', 'judged', 'start', 'tick', 'verdict']

    """
    text = resources.files("replay.transports").joinpath("wire.schema.json").read_text("utf-8")
    document: dict[str, Any] = json.loads(text)
    return document


def job_key(job: str) -> bytes:
    """The key of every record of a job."""
    return job.encode("utf-8", "surrogatepass")


def json_text(value: Any) -> str:
    """JSON, readable where UTF-8 allows (a lone surrogate has no UTF-8)."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text


_loads = json.JSONDecoder().decode


def parse(value: bytes | None) -> dict[str, Any]:
    """One JSON object of our version, its common fields looked at."""
    if value is None:
        raise PoisonError("tombstone", "the record has no value")
    try:
        record = _loads(value.decode())
    except (ValueError, RecursionError) as error:
        raise PoisonError("json", f"not JSON in UTF-8: {error}") from None
    if type(record) is not dict:
        raise PoisonError("json", f"not an object but {shown(record)}")
    version = record.get("v")
    if type(version) is not int or version != VERSION:
        raise PoisonError("version", f"v is {shown(record.get('v'))}, this reader knows {VERSION}")
    return record


def shown(value: Any) -> str:
    """A value as an error shows it."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


@overload
def field_of(record: dict[str, Any], key: str, kind: type[str]) -> str: ...
@overload
def field_of(record: dict[str, Any], key: str, kind: type[bool]) -> bool: ...
@overload
def field_of(record: dict[str, Any], key: str, kind: type[int]) -> int: ...
@overload
def field_of(record: dict[str, Any], key: str, kind: type[dict[str, Any]]) -> dict[str, Any]: ...
@overload
def field_of(record: dict[str, Any], key: str, kind: type[list[Any]]) -> list[Any]: ...
def field_of(record: dict[str, Any], key: str, kind: type) -> Any:
    """A field that must be of a kind; raises PoisonError, as all below."""
    value = record.get(key)
    if type(value) is not kind:
        raise PoisonError("field", f"{key} is {shown(value)}, not {kind.__name__}")
    return value


def count_of(record: dict[str, Any], key: str) -> int:
    """A field that must be a whole number from 0 on."""
    value = field_of(record, key, int)
    if not 0 <= value < 1 << 63:
        raise PoisonError("field", f"{key} is {shown(value)}, not a count")
    return value


def number_of(record: dict[str, Any], key: str) -> float:
    """A field that must be a finite number."""
    value = record.get(key)
    if type(value) is float and math.isfinite(value):
        return value
    if type(value) is int:
        try:
            return float(value)
        except OverflowError:
            pass
    raise PoisonError("field", f"{key} is {shown(value)}, not a finite number")


def number_or_none(record: dict[str, Any], key: str) -> float | None:
    """A field that may be a finite number."""
    return None if record.get(key) is None else number_of(record, key)
