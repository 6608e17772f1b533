"""Cuts batches out of a timeline."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from replay.api import AlertBatch
from replay.timeline.tape import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replay.timeline.tape import Timeline

__all__ = ["Reel"]


class Reel:
    """Cuts batches out of a timeline; keeps nothing but the names it has already shown.

    Args:
        timeline: What to cut from.
    """

    def __init__(self, timeline: Timeline) -> None:
        slots = timeline.slots
        # One at a time, a memoryview gives plain integers twice as fast as an array does.
        self._job = timeline.slice_job.data
        self._start = timeline.slice_start.data
        self._stop = timeline.slice_stop.data
        self._seen_nodes = timeline.slice_nodes.data
        self._seen_kinds = timeline.slice_kinds.data
        self._node = timeline.node
        self._kind = timeline.kind
        self._all_nodes = [slot.nodes for slot in slots]
        self._all_kinds = [slot.kinds for slot in slots]
        self._ids = [slot.job.id for slot in slots]
        self._zeros = [slot.zero_ns for slot in slots]
        self._firsts = [slot.first_row for slot in slots]
        self._nodes: list[tuple[str, ...]] = [()] * len(slots)
        self._kinds: list[tuple[str, ...]] = [()] * len(slots)
        self._seq = np.arange(max((slot.count for slot in slots), default=0))
        self._seq.flags.writeable = False

    def size(self, index: int) -> int:
        """How many alerts a slice has."""
        return self._stop[index] - self._start[index]

    def job(self, index: int) -> int:
        """Which slot a slice belongs to."""
        return self._job[index]

    def batches(
        self, first: int, last: int, now_ns: int, skip: int = 0, leave: int = 0
    ) -> Iterator[AlertBatch]:
        """Slices of one instant as batches.

        Args:
            first: The first slice.
            last: The slice after the last one.
            now_ns: Their replay time.
            skip: Alerts left out at the beginning of the first.
            leave: Alerts left out at the end of the last.
        """
        jobs, starts, stops = self._job, self._start, self._stop
        seen_nodes, seen_kinds = self._seen_nodes, self._seen_kinds
        for index in range(first, last):
            number = jobs[index]
            start, stop = starts[index], stops[index]
            if skip and index == first:
                start += skip
            if leave and index == last - 1:
                stop -= leave
            nodes = self._nodes[number]
            if len(nodes) != seen_nodes[index]:
                nodes = self._nodes[number] = self._all_nodes[number][: seen_nodes[index]]
            kinds = self._kinds[number]
            if len(kinds) != seen_kinds[index]:
                kinds = self._kinds[number] = self._all_kinds[number][: seen_kinds[index]]
            row = self._firsts[number]
            yield AlertBatch(
                self._ids[number],
                (now_ns - self._zeros[number]) / SECOND,
                self._seq[start - row : stop - row],
                self._node[start:stop],
                self._kind[start:stop],
                nodes,
                kinds,
            )
