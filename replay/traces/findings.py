"""What was found wrong or odd while reading, and whether that stops the reading."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from replay.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    Explain = Callable[[int], tuple[str, str | None, str]]
    """What is wrong with row ``i``, its value if that helps, and the remedy."""

__all__ = ["Finding", "Findings", "Place", "Severity", "named", "shown"]

Severity = Literal["error", "warning"]


def shown(value: Any) -> str:
    """A refused value as text that any file can take: as it is, or as JSON."""
    text = value if isinstance(value, str) else json.dumps(value)
    return text[:200].encode("utf-8", "backslashreplace").decode()


def named(text: str) -> str:
    r"""A name inside a sentence: as it is where it can be printed, else escaped.

    Examples:
        >>> print(named("Job\n1"))
        Job\n1

    """
    return text if text.isprintable() else repr(text)[1:-1]


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands.

    Attributes:
        path: The file, as the user named it.
        line: Line of a text file or row of a table, from 1; None where there is none.
        prefix: What leads to the column inside that line, such as ``"events[3]."``.
    """

    path: str
    line: int | None = None
    prefix: str = ""

    def __str__(self) -> str:
        return self.path if self.line is None else f"{self.path}:{self.line}"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong (an error) or odd (a warning).

    Attributes:
        severity: An error was refused or skipped; a warning was kept.
        kind: A short name of its sort, such as ``"bad-time"``.
        what: The thing, in one sentence without the place.
        place: Where.
        column: Column or key.
        value: The offending value, as written.
        remedy: What to change.
    """

    severity: Severity
    kind: str
    what: str
    place: Place
    column: str = ""
    value: str | None = None
    remedy: str = ""

    @property
    def error(self) -> TraceError:
        """The same as an error to raise."""
        what = f"warning: {self.what}" if self.severity == "warning" else self.what
        column = self.place.prefix + self.column
        return TraceError(
            what, self.place.path, self.place.line, column.rstrip("."), self.value, self.remedy
        )

    def as_dict(self) -> dict[str, Any]:
        """The same as plain data, for ``--json``."""
        place = asdict(self.place)
        column = place.pop("prefix") + self.column
        return {
            "severity": self.severity,
            "kind": self.kind,
            "what": self.what,
            **place,
            "column": column.rstrip("."),
            "value": self.value,
            "remedy": self.remedy,
        }

    def __str__(self) -> str:
        return str(self.error)


@dataclass(slots=True)
class Findings:
    """Takes in findings; when strict, the first error is raised instead.

    A reader reports an error and then skips the row or job it is about, so the same reader
    serves strict reading, lenient reading and ``validate``.

    Attributes:
        strict: Raise errors.
        shown: The first :data:`KEPT` findings of each kind, in the order they were found.
        counts: ``(severity, kind)`` → how many there were in all.

    Examples:
        >>> findings = Findings(strict=False)
        >>> findings.error("empty", "an empty node", Place("a.csv", 2), "ip")
        >>> print(findings.summary(jobs=1, events=0))
        1 jobs, 0 events, 0 warnings, 1 errors

    """

    strict: bool = True
    shown: list[Finding] = field(default_factory=list)
    counts: dict[tuple[Severity, str], int] = field(default_factory=dict)

    KEPT = 20

    def error(
        self,
        kind: str,
        what: str,
        place: Place,
        column: str = "",
        value: str | None = None,
        remedy: str = "",
    ) -> None:
        """Report something that cannot be read.

        Raises:
            TraceError: When strict.
        """
        self._add(Finding("error", kind, what, place, column, value, remedy))

    def warn(
        self,
        kind: str,
        what: str,
        place: Place,
        column: str = "",
        value: str | None = None,
        remedy: str = "",
    ) -> None:
        """Report something odd that is kept."""
        self._add(Finding("warning", kind, what, place, column, value, remedy))

    def of_rows(
        self,
        severity: Severity,
        kind: str,
        mask: NDArray[np.bool_],
        place: Callable[[int], Place],
        column: str,
        explain: Explain,
    ) -> None:
        """Report all rows that have one fault, drawing up only the first few.

        Args:
            severity: Whether they are refused or kept.
            kind: Sort of fault.
            mask: bool[n], the rows that have it.
            place: Where row ``i`` stands.
            column: Where in the row.
            explain: What is wrong with row ``i``.

        Raises:
            TraceError: When strict, these are errors, and there is one.
        """
        if not mask.any():
            return
        rows = mask.nonzero()[0]
        for row in rows[: self.KEPT].tolist():
            what, value, remedy = explain(row)
            value = None if value is None else shown(value)
            self._add(Finding(severity, kind, what, place(row), column, value, remedy))
        if len(rows) > self.KEPT:
            self.counts[severity, kind] += len(rows) - self.KEPT

    def caught(self, error: TraceError) -> None:
        """Report an error that ended the reading of a file.

        Raises:
            TraceError: When strict.
        """
        place = Place(error.path, error.line)
        what, remedy = error.what, error.remedy
        self.error("unreadable", what, place, error.column, error.value, remedy)

    @property
    def errors(self) -> int:
        """How many rows or jobs were refused."""
        return sum(n for (severity, _), n in self.counts.items() if severity == "error")

    @property
    def warnings(self) -> int:
        """How many oddities were kept."""
        return sum(n for (severity, _), n in self.counts.items() if severity == "warning")

    def lines(self) -> list[str]:
        """One line for each finding shown, and one for each kind that had more."""
        lines = []
        for key, total in self.counts.items():
            of_kind = [finding for finding in self.shown if (finding.severity, finding.kind) == key]
            lines += [str(finding) for finding in of_kind]
            if total > len(of_kind):
                lines.append(f"... and {total - len(of_kind)} more of this kind ({key[1]})")
        return lines

    def summary(self, jobs: int, events: int) -> str:
        """The closing line of a check."""
        return f"{jobs} jobs, {events} events, {self.warnings} warnings, {self.errors} errors"

    def _add(self, finding: Finding) -> None:
        if self.strict and finding.severity == "error":
            raise finding.error
        key = finding.severity, finding.kind
        total = self.counts.get(key, 0)
        self.counts[key] = total + 1
        if total < self.KEPT:
            self.shown.append(finding)
