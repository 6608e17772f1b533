"""Cuts batches out of a timeline."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from replay.api import AlertBatch
from replay.timeline.tape import SECOND

if TYPE_CHECKING:
    from replay.timeline.tape import Timeline

__all__ = ["Reel"]


class Reel:
    """Cuts batches out of a timeline; keeps nothing but the names it has already shown.

    Args:
        timeline: What to cut from.
    """

    def __init__(self, timeline: Timeline) -> None:
        # One at a time, a memoryview gives plain integers twice as fast as an array does.
        self._job = timeline.slice_job.data
        self._start = timeline.slice_start.data
        self._stop = timeline.slice_stop.data
        self._seen_nodes = timeline.slice_nodes.data
        self._seen_kinds = timeline.slice_kinds.data
        self._node = timeline.node
        self._kind = timeline.kind
        self._slots = timeline.slots
        self._nodes: list[tuple[str, ...]] = [()] * len(timeline.slots)
        self._kinds: list[tuple[str, ...]] = [()] * len(timeline.slots)
        self._seq = np.arange(max((slot.count for slot in timeline.slots), default=0))
        self._seq.flags.writeable = False
        self._size = len(timeline.slice_job)

    def __len__(self) -> int:
        return self._size

    def size(self, index: int) -> int:
        """How many alerts a slice has."""
        return self._stop[index] - self._start[index]

    def job(self, index: int) -> int:
        """Which slot a slice belongs to."""
        return self._job[index]

    def batch(self, index: int, now_ns: int, skip: int = 0, take: int | None = None) -> AlertBatch:
        """One slice as a batch, or a part of it.

        Args:
            index: Which slice.
            now_ns: Its replay time.
            skip: Alerts left out at its beginning.
            take: How many alerts at most.
        """
        number = self._job[index]
        slot = self._slots[number]
        start, stop = self._start[index] + skip, self._stop[index]
        if take is not None:
            stop = min(stop, start + take)
        nodes = self._nodes[number]
        if len(nodes) != self._seen_nodes[index]:
            nodes = self._nodes[number] = slot.nodes[: self._seen_nodes[index]]
        kinds = self._kinds[number]
        if len(kinds) != self._seen_kinds[index]:
            kinds = self._kinds[number] = slot.kinds[: self._seen_kinds[index]]
        first = slot.first_row
        return AlertBatch(
            slot.job.id,
            (now_ns - slot.zero_ns) / SECOND,
            self._seq[start - first : stop - first],
            self._node[start:stop],
            self._kind[start:stop],
            nodes,
            kinds,
        )
