"""YAML whose every part knows its line, read strictly."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import yaml

from detectors.rules.durations import parse_duration
from detectors.rules.errors import LanguageError, RuleFileError, Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Node", "compose", "read_text"]

_T = TypeVar("_T")


def read_text(path: str | Path) -> str:
    """Read a whole file.

    Raises:
        RuleFileError: It cannot be read, or is not UTF-8.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise RuleFileError(f"cannot be read: {error.strerror}", str(path)) from None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise RuleFileError("is not UTF-8", str(path), line, "save it as UTF-8") from None


def compose(text: str, path: str) -> Node | None:
    """Turn YAML into nodes; None for an empty text.

    Raises:
        RuleFileError: It is no YAML, or more than one document.
    """
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        raw = yaml.compose(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = f"is not YAML: {error.problem or error.context}"
        raise RuleFileError(what, path, mark.line + 1 if mark is not None else None) from None
    except yaml.YAMLError as error:  # a character that YAML does not allow
        line = text[: getattr(error, "position", 0)].count("\n") + 1
        reason = getattr(error, "reason", "a character is not allowed")
        raise RuleFileError(f"is not YAML: {reason}", path, line) from None
    except RecursionError:
        raise RuleFileError("is nested too deeply", path) from None
    return None if raw is None else Node(raw, path)


@dataclass(frozen=True, slots=True)
class Node:
    """A part of a document.

    Attributes:
        raw: The node as the YAML reader made it.
        path: The file, as the user named it.
    """

    raw: Any = field(repr=False)
    path: str

    @property
    def line(self) -> int:
        """Where it begins, counted from 1."""
        return int(self.raw.start_mark.line) + 1

    @property
    def empty(self) -> bool:
        """Whether nothing stands there."""
        return bool(self.raw.tag == "tag:yaml.org,2002:null")

    def error(self, what: str, remedy: str = "") -> RuleFileError:
        """A fault that lies here."""
        return RuleFileError(what, self.path, self.line, remedy)

    def text(self, what: str) -> str:
        """What is written, as text.

        Raises:
            RuleFileError: It is a list or a mapping.
        """
        if self.empty:
            return ""
        if not isinstance(self.raw, yaml.ScalarNode):
            raise self.error(f"{what} must be a text")
        return str(self.raw.value)

    def items(self, what: str) -> list[Node]:
        """The elements of a list; none if nothing stands there.

        Raises:
            RuleFileError: It is no list.
        """
        if self.empty:
            return []
        if not isinstance(self.raw, yaml.SequenceNode):
            raise self.error(f"{what} must be a list")
        return [Node(raw, self.path) for raw in self.raw.value]

    def mapping(self, what: str, known: tuple[str, ...] = ()) -> dict[str, Node]:
        """The values of a mapping by key; none if nothing stands there.

        Raises:
            RuleFileError: It is no mapping, or a key is unknown or there twice.
        """
        if self.empty and not known:
            return {}
        if not isinstance(self.raw, yaml.MappingNode):
            raise self.error(f"{what} must be a mapping")
        out: dict[str, Node] = {}
        for raw_key, raw_value in self.raw.value:
            key = Node(raw_key, self.path)
            name = key.text("a key")
            if known and name not in known:
                raise key.error(f"unknown key {name!r} in {what}", f"one of: {', '.join(known)}")
            if name in out:
                raise key.error(f"{name!r} stands twice in {what}")
            out[name] = Node(raw_value, self.path)
        return out

    def duration(self, what: str) -> int:
        """A duration in milliseconds; 0 if nothing stands there.

        Raises:
            RuleFileError: It is none.
        """
        text = self.text(what)
        return self.guarded(lambda: parse_duration(text), what) if text else 0

    def guarded(self, make: Callable[[], _T], where: str) -> _T:
        """Make something from what stands here, and give its fault a line.

        Raises:
            RuleFileError: It cannot be made.
        """
        try:
            return make()
        except Unsupported as error:
            what = f"{where}: {error.construct} is refused: {error.reason}"
            raise self.error(what) from None
        except LanguageError as error:
            raise self.error(f"{where}: {error.what}", error.remedy) from None
