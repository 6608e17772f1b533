"""Everything that may go wrong, as one small tree.

::

    ReplayError                 exit 1: the run failed
    ├── UsageError              exit 2: the call's words are off
    │   └── ConfigError         exit 2: a configuration file or value is off
    ├── TraceError              exit 3: bad data, with file, line, column, value and remedy
    ├── GateError               exit 4: a gate failed
    ├── TransportError          exit 5: a service could not be reached, or went away
    └── PluginError             exit 2: a detector or transport could not be found or loaded
        └── DetectorError       exit 6: a detector crashed or broke its contract

Every class rebuilds from its positional ``args``: SimPy re-raises a failed process as
``type(exc)(*exc.args)``, and process pools pickle errors the same way.
A caller's mistake in Python (a negative speed, say) stays a ``ValueError``.
"""

from __future__ import annotations

__all__ = [
    "ConfigError",
    "DetectorError",
    "GateError",
    "PluginError",
    "ReplayError",
    "TraceError",
    "TransportError",
    "UsageError",
]


class ReplayError(Exception):
    """Something went wrong that a user can understand; the base of all our errors.

    Args:
        what: One sentence: what failed and where.
        remedy: One thing to try, if there is one.
    """

    exit_code = 1

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(what, remedy)
        self.what = what
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.what}  Try: {self.remedy}" if self.remedy else self.what


class UsageError(ReplayError):
    """The caller's words do not fit: an unknown job, a senseless option."""

    exit_code = 2


class ConfigError(UsageError):
    """A configuration file or value does not fit."""


class TraceError(ReplayError):
    """A trace cannot be read as it is.

    Args:
        what: What is wrong, in one sentence without the place.
        path: The file, as the user named it.
        line: Line of a text file or row of a table, counted from 1; None where there is none.
        column: Column or key.
        value: The offending value, shortened if long.
        remedy: What to change.

    Examples:
        >>> print(TraceError("not a time", "a.csv", 3, "event_time", "noon", "write HH:MM:SS"))
        a.csv:3: event_time: not a time: 'noon'.  Try: write HH:MM:SS

    """

    exit_code = 3

    def __init__(
        self,
        what: str,
        path: str = "",
        line: int | None = None,
        column: str = "",
        value: str | None = None,
        remedy: str = "",
    ) -> None:
        super().__init__(what, remedy)
        self.args = (what, path, line, column, value, remedy)
        self.path = path
        self.line = line
        self.column = column
        self.value = value

    def __str__(self) -> str:
        place = self.path + (f":{self.line}" if self.line is not None else "")
        parts = [part for part in (place, self.column, self.what) if part]
        text = ": ".join(parts)
        if self.value is not None:
            shown = self.value if len(self.value) <= 80 else self.value[:77] + "..."
            text += f": {shown!r}"
        text = text.rstrip(".") + "."
        return f"{text}  Try: {self.remedy}" if self.remedy else text


class GateError(ReplayError):
    """A score did not meet the gate that was asked for."""

    exit_code = 4


class TransportError(ReplayError):
    """A service could not be reached, or went away."""

    exit_code = 5


class PluginError(ReplayError):
    """A plug-in could not be found, loaded or built with the options given."""

    exit_code = 2


class DetectorError(PluginError):
    """A detector crashed or broke its contract.

    Args:
        what: What happened, in one sentence.
        detector: The detector's name.
        job: The job it was watching.
    """

    exit_code = 6

    def __init__(self, what: str, detector: str = "", job: str = "") -> None:
        super().__init__(what)
        self.args = (what, detector, job)
        self.detector = detector
        self.job = job

    def __str__(self) -> str:
        place = f"detector {self.detector} on job {self.job}: " if self.detector else ""
        return place + self.what
