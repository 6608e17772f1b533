"""Cuts slices out of a timeline, as messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from replay.api import AlertBatch
from replay.messages import AlertSlice

if TYPE_CHECKING:
    from replay.timeline.tape import Timeline

__all__ = ["Reel"]


class Reel:
    """Cuts slices out of a timeline; keeps nothing but the names it has already shown.

    Args:
        timeline: What to cut from.

    Attributes:
        job: Which slot each slice belongs to.
    """

    def __init__(self, timeline: Timeline) -> None:
        slots = timeline.slots
        # One at a time, a memoryview gives plain integers twice as fast as an array does.
        self.job = timeline.slice_job.data
        self._at = timeline.slice_at.data
        self._start = timeline.slice_start.data
        self._stop = timeline.slice_stop.data
        self._seen_nodes = timeline.slice_nodes.data
        self._seen_kinds = timeline.slice_kinds.data
        self._node = timeline.node
        self._kind = timeline.kind
        self._all_nodes = [slot.nodes for slot in slots]
        self._all_kinds = [slot.kinds for slot in slots]
        self._ids = [slot.job.id for slot in slots]
        self._firsts = [slot.first_row for slot in slots]
        self._nodes: list[tuple[str, ...]] = [()] * len(slots)
        self._kinds: list[tuple[str, ...]] = [()] * len(slots)
        self._seq = np.arange(max((slot.count for slot in slots), default=0))
        self._seq.flags.writeable = False

    def slices(
        self,
        first: int,
        last: int,
        *,
        run: str = "",
        epoch: int = 0,
        skip: int = 0,
        leave: int = 0,
    ) -> list[AlertSlice]:
        """Slices as messages.

        Args:
            first: The first slice.
            last: The slice after the last one.
            run: See :class:`~replay.messages.AlertSlice`.
            epoch: Likewise.
            skip: Alerts left out at the beginning of the first slice.
            leave: Alerts left out at the end of the last.
        """
        jobs, times, starts, stops = self.job, self._at, self._start, self._stop
        node, kind, seq = self._node, self._kind, self._seq
        ids, firsts, shown_nodes, shown_kinds = self._ids, self._firsts, self._nodes, self._kinds
        seen_nodes, seen_kinds = self._seen_nodes, self._seen_kinds
        messages: list[AlertSlice] = []
        for index in range(first, last):
            number, start, stop = jobs[index], starts[index], stops[index]
            if skip and index == first:
                start += skip
            if leave and index == last - 1:
                stop -= leave
            nodes = shown_nodes[number]
            if len(nodes) != seen_nodes[index]:
                nodes = shown_nodes[number] = self._all_nodes[number][: seen_nodes[index]]
            kinds = shown_kinds[number]
            if len(kinds) != seen_kinds[index]:
                kinds = shown_kinds[number] = self._all_kinds[number][: seen_kinds[index]]
            row = firsts[number]
            batch = AlertBatch(
                ids[number],
                times[index],
                seq[start - row : stop - row],
                node[start:stop],
                kind[start:stop],
                nodes,
                kinds,
            )
            messages.append(AlertSlice(run, epoch, batch))
        return messages
