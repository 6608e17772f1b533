"""What is odd about one job's rows: counted while reading, said once at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from replay.traces.findings import Findings, Place
    from replay.traces.model import TraceJob
    from replay.traces.texts import Column

__all__ = ["Tally"]

_DONE = {"keep": "kept", "clip": "moved to its edge", "drop": "left out"}


class Tally:
    """Counts the rows of one job that are allowed but odd.

    Args:
        job: The job.
    """

    def __init__(self, job: TraceJob) -> None:
        self.job = job
        self.events = 0
        self._last: int | None = None
        self._counts = {"unsorted": 0, "outside": 0, "unlisted": 0}
        self._first: dict[str, tuple[Place, str]] = {}
        self._unlisted: set[str] = set()

    def add(
        self,
        at: NDArray[np.int64],
        ip: Column,
        event_time: Column,
        place: Callable[[int], Place],
    ) -> None:
        """Count rows, in the order of the file.

        Args:
            at: Nanoseconds since the job's start.
            ip: Their nodes.
            event_time: Their times, as written.
            place: Where row ``i`` stands.
        """
        self.events += len(at)
        before = at[0] if self._last is None else self._last
        self._last = int(at[-1])
        self._count("unsorted", np.diff(at, prepend=before) < 0, event_time, place)
        self._count("outside", (at < 0) | (at > self.job.duration_ns), event_time, place)
        codes = pc.unique(ip.indices)
        strange = [
            (code, node)
            for code, node in zip(
                codes.to_pylist(), ip.dictionary.take(codes).to_pylist(), strict=True
            )
            if node not in self.job.ip_status
        ]
        if strange:
            self._unlisted.update(node for _, node in strange)
            mask = np.isin(ip.indices.to_numpy(), [code for code, _ in strange])
            self._count("unlisted", mask, ip, place)

    def warn(self, outside: str, findings: Findings) -> None:
        """Report what was counted.

        Args:
            outside: What was done with alerts outside the job's span.
            findings: Takes the warnings.
        """
        job, counts = self.job.id, self._counts
        said = {
            "unsorted": (
                "event_time",
                f"{counts['unsorted']} alerts of {job} come after a later one; they are replayed in order of time",
            ),
            "outside": (
                "event_time",
                f"{counts['outside']} alerts of {job} lie outside its span and are {_DONE[outside]}; the first",
            ),
            "unlisted": (
                "ip",
                f"{counts['unlisted']} alerts of {job} come from {len(self._unlisted)} nodes that ip_status does not list; the first",
            ),
        }
        for kind, (column, what) in said.items():
            if counts[kind]:
                place, value = self._first[kind]
                findings.warn(kind, what, place, column, value)

    def _count(
        self, kind: str, mask: NDArray[np.bool_], values: Column, place: Callable[[int], Place]
    ) -> None:
        if not mask.any():
            return
        self._counts[kind] += int(np.count_nonzero(mask))
        if kind not in self._first:
            row = int(np.argmax(mask))
            self._first[kind] = place(row), values[row].as_py()
