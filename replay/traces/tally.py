"""What is odd about one job's rows: counted while reading, said once at the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from replay.traces.findings import named

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from replay.traces.findings import Findings, Place
    from replay.traces.model import TraceJob

__all__ = ["Run", "Tally"]

_DONE = {"keep": "kept", "clip": "moved to its edge", "drop": "left out"}


@dataclass(frozen=True, slots=True)
class Run:
    """Some rows of one job, in the order of the file.

    Attributes:
        piece: Columns of many jobs.
        start: The first of them in the piece; the others follow it.
        at: Their nanoseconds since the job's start, int64[n].
        ip: Their nodes as codes into ``nodes``, intp[n].
        nodes: Every node of the piece.
        place: Where row ``i`` of the piece stands.
    """

    piece: pa.RecordBatch
    start: int
    at: NDArray[np.int64]
    ip: NDArray[np.intp]
    nodes: Sequence[str]
    place: Callable[[int], Place]


class Tally:
    """Counts the rows of one job that are allowed but odd.

    Args:
        job: The job.
    """

    def __init__(self, job: TraceJob) -> None:
        self.job = job
        self.events = 0
        self._newest: int | None = None
        self._counts = {"unsorted": 0, "outside": 0, "unlisted": 0}
        self._first: dict[str, tuple[Place, str, str]] = {}
        self._unlisted: set[str] = set()

    def add(self, run: Run) -> None:
        """Count rows that follow those before them in the file."""
        at = run.at
        self.events += len(at)
        early = np.empty(len(at), bool)
        early[0] = self._newest is not None and at[0] < self._newest
        np.less(at[1:], at[:-1], out=early[1:])
        self._newest = int(at[-1])
        if early.any():
            self._count("unsorted", "event_time", early, run)
        if at.min() < 0 or at.max() > self.job.duration_ns:
            outside = (at < 0) | (at > self.job.duration_ns)
            self._count("outside", "event_time", outside, run)
        seen = np.zeros(len(run.nodes), bool)
        seen[run.ip] = True
        listed = self.job.ip_status
        strange = [code for code in np.flatnonzero(seen).tolist() if run.nodes[code] not in listed]
        if strange:
            self._unlisted.update(run.nodes[code] for code in strange)
            self._count("unlisted", "ip", np.isin(run.ip, strange), run)

    def warn(self, outside: str, findings: Findings) -> None:
        """Report what was counted.

        Args:
            outside: What was done with alerts outside the job's span.
            findings: Takes the warnings.
        """
        counts, job = self._counts, named(self.job.id)
        said = {
            "unsorted": "come after a later one, and are replayed in order of time",
            "outside": f"lie outside its span, and are {_DONE[outside]}",
            "unlisted": f"come from nodes that ip_status does not list ({len(self._unlisted)})",
        }
        for kind, what in said.items():
            if counts[kind]:
                place, column, value = self._first[kind]
                sentence = f"{counts[kind]} of the alerts of {job} {what}; the first"
                findings.warn(kind, sentence, place, column, value)

    def _count(self, kind: str, column: str, mask: NDArray[np.bool_], run: Run) -> None:
        self._counts[kind] += int(np.count_nonzero(mask))
        if kind not in self._first:
            row = run.start + int(np.argmax(mask))
            self._first[kind] = run.place(row), column, str(run.piece.column(column)[row])
