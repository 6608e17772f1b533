"""Names of jobs: the order people count them in, and folders that can hold any of them."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["folder_names", "natural_key"]

_DIGITS = re.compile(r"([0-9]+)")
_RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\.|$)", re.IGNORECASE)
_LONGEST = 100


def natural_key(name: str) -> tuple[object, ...]:
    """Sort key under which Job2 comes before Job10.

    Examples:
        >>> sorted(["Job10", "Job2", "Job1"], key=natural_key)
        ['Job1', 'Job2', 'Job10']

    """
    parts: list[object] = []
    for i, part in enumerate(_DIGITS.split(name)):
        number = part.lstrip("0")
        parts.append((len(number), number) if i % 2 else part)
    return tuple(parts), name


def folder_names(job_ids: Iterable[str]) -> list[str]:
    """A folder name for each job: its id where that is safe on any disk, else escaped.

    No name leaves its folder, is reserved, is too long, or equals another one but for case.

    Examples:
        >>> folder_names(["Job1", "../x", "CON", "job1"])
        ['Job1', '%2E.%2Fx', '%43ON', 'job1~cc5ebc64']

    """
    names: list[str] = []
    taken: set[str] = set()
    for job_id in job_ids:
        name = _escaped(job_id)
        if len(name) > _LONGEST or name.casefold() in taken:
            name = f"{name[:_LONGEST]}~{hashlib.sha256(job_id.encode()).hexdigest()[:8]}"
        taken.add(name.casefold())
        names.append(name)
    return names


def _escaped(job_id: str) -> str:
    name = "".join(
        char if char.isascii() and (char.isalnum() or char in "._-") else _percent(char)
        for char in job_id
    )
    if name.startswith(".") or _RESERVED.match(name):
        name = _percent(name[0]) + name[1:]
    return name[:-1] + _percent(".") if name.endswith(".") else name


def _percent(char: str) -> str:
    return "".join(f"%{byte:02X}" for byte in char.encode())
