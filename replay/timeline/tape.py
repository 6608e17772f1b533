"""A trace laid out on one axis of replay time, as sorted columns: the tape."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

import numpy as np

from replay.errors import UsageError
from replay.timeline.facts import Facts, Plan
from replay.timeline.rows import (
    REACH,
    SECOND,
    TOO_FAR,
    Rows,
    check_reach,
    keep_inside,
    pattern,
    spread_out,
)
from replay.timeline.schedule import Schedule, Span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from replay.api import Job
    from replay.traces.model import Trace, TraceJob

__all__ = ["PIECE", "SECOND", "Slot", "Timeline"]

PIECE = 1024
"""Most alerts in one slice: a longer instant is cut, so that a pause can fall inside it."""


@dataclass(frozen=True, slots=True)
class Slot:
    """Where one job stands on the axis. All times are nanoseconds of replay time.

    Attributes:
        job: The job, as a detector may see it.
        start_time: The job's start, as the trace writes it.
        zero_ns: The job's own zero, its start.
        begin_ns: Its zero, or its first alert if that is earlier.
        end_ns: Its end, or its last alert if that is later.
        nodes: The job's nodes, then every other node, in the order of first appearance.
        kinds: Its kinds, in the order of first appearance.
        first_row: The job owns the rows ``first_row`` to ``first_row + count`` of the columns.
        count: How many alerts it has.
    """

    job: Job
    start_time: str
    zero_ns: int
    begin_ns: int
    end_ns: int
    nodes: tuple[str, ...] = field(repr=False)
    kinds: tuple[str, ...] = field(repr=False)
    first_row: int
    count: int

    def at(self, replay_ns: int) -> float:
        """Replay time as trace seconds since this job's start."""
        return (replay_ns - self.zero_ns) / SECOND


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """Jobs and alerts in the order they are played: (replay time, job, row in the file).

    Alerts are rows of ``node`` and ``kind``, each job's together and in its own order, so that a
    row's place after its job's first is its ``seq``. A *slice* is all alerts of one job at one
    instant (at most :data:`PIECE` of them); slices stand in the order they are played. An
    *instant* is all slices of one time. Every column is read-only.

    Attributes:
        slots: The jobs, in natural order.
        node: int32[alerts], codes into the slot's ``nodes``.
        kind: int32[alerts], codes into the slot's ``kinds``.
        slice_job: int32[slices], index into ``slots``.
        slice_at: float64[slices], trace seconds since the job's start.
        slice_start: int64[slices], first row.
        slice_stop: int64[slices], row after the last.
        slice_nodes: int32[slices], how many of the slot's nodes have been seen after it.
        slice_kinds: int32[slices], how many of its kinds.
        numbers: int64[slices + 1], alerts played before each slice, and in all.
        instant_ns: int64[instants], distinct times, ascending.
        instant_starts: int64[instants + 1], first slice of each instant.
        facts: What the rows were like.
    """

    slots: tuple[Slot, ...]
    node: NDArray[np.int32] = field(repr=False)
    kind: NDArray[np.int32] = field(repr=False)
    slice_job: NDArray[np.int32] = field(repr=False)
    slice_at: NDArray[np.float64] = field(repr=False)
    slice_start: NDArray[np.int64] = field(repr=False)
    slice_stop: NDArray[np.int64] = field(repr=False)
    slice_nodes: NDArray[np.int32] = field(repr=False)
    slice_kinds: NDArray[np.int32] = field(repr=False)
    numbers: NDArray[np.int64] = field(repr=False)
    instant_ns: NDArray[np.int64] = field(repr=False)
    instant_starts: NDArray[np.int64] = field(repr=False)
    facts: Facts

    @classmethod
    def build(
        cls,
        trace: Trace,
        *,
        schedule: Schedule | str = "together",
        job: str = "",
        node: str = "",
        kind: str = "",
        exclude_kind: str = "",
        outside: Literal["keep", "clip", "drop"] = "keep",
        spread: Literal["none", "even", "random"] = "none",
        seed: int = 0,
    ) -> Self:
        """Lay a trace out.

        Args:
            trace: What to play.
            schedule: How many jobs share the axis.
            job: Regular expression for the whole of a job's id; others are left out.
            node: Likewise for the node of an alert.
            kind: Likewise for its kind.
            exclude_kind: Alerts whose kind matches are left out.
            outside: What becomes of alerts before their job's start or after its end: kept as
                they are, moved to the border, or left out.
            spread: Where alerts with a whole-second stamp stand inside their second: all at its
                beginning, evenly, or at random. Their order stays.
            seed: Of random starts and random spread.

        Raises:
            UsageError: A pattern is not a regular expression, a word is unknown, or the jobs do
                not fit into 146 years of replay time.
        """
        rows = Rows.of(trace, job, node, kind, exclude_kind)
        total = trace.events.num_rows
        rows, before, after = keep_inside(rows, outside)
        check_reach(rows)
        unsorted = len(rows.unsorted())
        rows = spread_out(rows.sorted(), spread, seed)
        plan = Schedule.parse(schedule) if isinstance(schedule, str) else schedule
        slots, names = _place(rows, plan, seed)
        facts = Facts(
            left_out=total - len(rows.at), unsorted=unsorted, before_start=before, after_end=after
        )
        return cls._cut(rows, slots, names, facts)

    @classmethod
    def _cut(cls, rows: Rows, slots: tuple[Slot, ...], names: _Names, facts: Facts) -> Self:
        """Cut the rows into slices, and put those into playing order."""
        starts, tied = _slice_starts(rows)
        stops = np.append(starts[1:], len(rows.at)) if len(starts) else starts
        owner = rows.job[starts].astype(np.intp)
        zeros = np.fromiter((slot.zero_ns for slot in slots), np.int64, len(slots))
        edges = np.fromiter((slot.first_row for slot in slots), np.int64, len(slots))
        at = rows.at[starts]
        times = at + zeros[owner]
        order = _stable_order(times)  # slices stand by job: equal times keep that
        times = times[order]
        first = np.flatnonzero(_changes(times))
        slice_start, slice_stop = starts[order], stops[order]
        timeline = cls(
            slots=slots,
            node=rows.node,
            kind=rows.kind,
            slice_job=owner[order].astype(np.int32),
            slice_at=_seconds(at[order]),
            slice_start=slice_start,
            slice_stop=slice_stop,
            slice_nodes=(names.listed[owner] + _seen(names.new_nodes, stops, owner, edges))[order],
            slice_kinds=_seen(names.new_kinds, stops, owner, edges)[order],
            numbers=np.concatenate(([0], np.cumsum(slice_stop - slice_start))),
            instant_ns=times[first],
            instant_starts=np.append(first, len(times)),
            facts=facts,
        )
        return timeline._frozen(tied)

    def _frozen(self, tied: int) -> Self:
        """Lock the columns and complete the facts."""
        for name in (
            *("node", "kind", "slice_job", "slice_at", "slice_start", "slice_stop"),
            *("slice_nodes", "slice_kinds", "numbers", "instant_ns", "instant_starts"),
        ):
            getattr(self, name).flags.writeable = False
        counts = np.diff(self.numbers[self.instant_starts])
        marks = self.landmarks_ns
        gaps = np.diff(marks)
        widest = int(gaps.argmax()) if len(gaps) else None
        facts = replace(
            self.facts,
            tied=tied,
            largest_instant=int(counts.max()) if len(counts) else 0,
            longest_gap_s=0.0 if widest is None else int(gaps[widest]) / SECOND,
            longest_gap_at_s=0.0 if widest is None else int(marks[widest]) / SECOND,
        )
        return replace(self, facts=facts)

    def __len__(self) -> int:
        return len(self.node)

    @property
    def begin_ns(self) -> int:
        """Where the replay begins: the first job's begin. 0 when there is no job."""
        return min((slot.begin_ns for slot in self.slots), default=0)

    @property
    def end_ns(self) -> int:
        """Where it ends: the last job's end. 0 when there is no job."""
        return max((slot.end_ns for slot in self.slots), default=0)

    @property
    def landmarks_ns(self) -> NDArray[np.int64]:
        """Every time at which something happens: a job begins or ends, or an alert falls."""
        edges = [edge for slot in self.slots for edge in (slot.begin_ns, slot.end_ns)]
        marks = np.concatenate((self.instant_ns, np.array(edges, np.int64)))
        marks.sort(kind="stable")  # as good as sorted already
        new: NDArray[np.bool_] = np.diff(marks, prepend=marks[:1] - 1) != 0
        return marks[new]

    def slot(self, job_id: str) -> Slot:
        """Where a job stands.

        Raises:
            UsageError: There is no such job.
        """
        for slot in self.slots:
            if slot.job.id == job_id:
                return slot
        raise UsageError(f"There is no job {job_id!r} on this timeline.")

    def plan(self, speed: float, max_gap_s: float | None = None) -> Plan:
        """What playing the whole of it at one speed will take."""
        return Plan.of(self, speed, max_gap_s)

    def matching(self, node: str = "", kind: str = "", after: int = 0) -> int | None:
        """Find an alert by regular expressions for the whole of its node and kind.

        Args:
            node: Expression for the node; empty means any.
            kind: Expression for the kind; empty means any.
            after: Alerts already played; the search begins behind them.

        Returns:
            How many alerts have been played once it is out; None if there is no such alert.
        """
        node_fits, kind_fits = pattern(node, "node"), pattern(kind, "kind")
        fitting = [
            (
                np.array([node_fits(name) for name in slot.nodes], bool),
                np.array([kind_fits(name) for name in slot.kinds], bool),
            )
            for slot in self.slots
        ]
        piece = int(np.searchsorted(self.numbers, after, side="right")) - 1
        for index in range(piece, len(self.slice_job)):
            nodes, kinds = fitting[self.slice_job[index]]
            rows = slice(int(self.slice_start[index]), int(self.slice_stop[index]))
            hits = np.flatnonzero(nodes[self.node[rows]] & kinds[self.kind[rows]])
            played = hits + int(self.numbers[index]) + 1
            played = played[played > after]
            if len(played):
                return int(played[0])
        return None


class _Names(NamedTuple):
    """How many names each job lists, and the rows at which others are seen for the first time."""

    listed: NDArray[np.int32]
    new_nodes: NDArray[np.int64]
    new_kinds: NDArray[np.int64]


def _place(rows: Rows, schedule: Schedule, seed: int) -> tuple[tuple[Slot, ...], _Names]:
    """Give every job its slot, and its names codes of its own."""
    bounds = rows.bounds()
    jobs = [job.public for job in rows.jobs]
    spans = [
        _span(job, rows.at[start:stop])
        for job, start, stop in zip(rows.jobs, bounds, bounds[1:], strict=False)
    ]
    zeros = schedule.zeros(spans, seed)
    if any(zero + span.tail > REACH for zero, span in zip(zeros, spans, strict=True)):
        raise UsageError(*TOO_FAR)
    coder = _Coder(rows.node_names), _Coder(rows.kind_names)
    new_nodes, new_kinds = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    slots = []
    for number, (job, span, zero) in enumerate(zip(jobs, spans, zeros, strict=True)):
        start, stop = bounds[number], bounds[number + 1]
        nodes, new = coder[0].encode(rows.node[start:stop], job.nodes)
        new_nodes.append(new + start)
        kinds, new = coder[1].encode(rows.kind[start:stop], ())
        new_kinds.append(new + start)
        slots.append(
            Slot(
                job=job,
                start_time=rows.jobs[number].start_time,
                zero_ns=zero,
                begin_ns=zero + span.lead,
                end_ns=zero + span.tail,
                nodes=nodes,
                kinds=kinds,
                first_row=start,
                count=stop - start,
            )
        )
    listed = np.fromiter((len(job.nodes) for job in jobs), np.int32, len(jobs))
    return tuple(slots), _Names(listed, np.concatenate(new_nodes), np.concatenate(new_kinds))


def _span(job: TraceJob, at: NDArray[np.int64]) -> Span:
    first, last = (int(at[0]), int(at[-1])) if len(at) else (0, 0)
    return Span(min(0, first), max(0, job.duration_ns, last))


class _Coder:
    """Turns codes of the whole trace into codes of one job, by first appearance."""

    def __init__(self, names: list[str]) -> None:
        self._names = names
        self._code = {name: code for code, name in enumerate(names)}
        self._first = np.zeros(len(names), np.int64)
        self._local = np.full(len(names), -1, np.int32)  # all -1 again after each job

    def encode(
        self, codes: NDArray[np.int32], listed: Sequence[str]
    ) -> tuple[tuple[str, ...], NDArray[np.int64]]:
        """Change codes in place; give names in code order and the rows that bring unlisted ones."""
        local = self._local
        known = np.fromiter(map(self._code.get, listed, repeat(-1)), np.int64, len(listed))
        places = np.flatnonzero(known >= 0)
        known = known[places]
        local[known] = places
        words = codes.astype(np.intp)  # which numpy follows several times faster than int32
        if not len(known):
            codes[:], new, rows = self._by_appearance(words, len(listed))
        else:
            local.take(words, out=codes, mode="clip")  # the mode that needs no copy; all fit
            local[known] = -1
            rows = np.flatnonzero(codes < 0)
            if not len(rows):
                return tuple(listed), rows
            codes[rows], new, first = self._by_appearance(words.take(rows), len(listed))
            rows = rows.take(first)
        return (*listed, *(self._names[code] for code in new.tolist())), rows

    def _by_appearance(
        self, words: NDArray[np.intp], base: int
    ) -> tuple[NDArray[np.int32], NDArray[np.intp], NDArray[np.int64]]:
        """Codes from ``base`` on, the words in the order of those, and their first rows."""
        rows = self._first_rows(words)
        new = words.take(rows)
        self._local[new] = np.arange(base, base + len(new))
        codes = self._local.take(words)
        self._local[new] = -1
        return codes, new, rows

    def _first_rows(self, codes: NDArray[np.intp]) -> NDArray[np.int64]:
        """Where each code stands for the first time, ascending."""
        if len(codes) < len(self._names):
            return np.sort(np.unique(codes, return_index=True)[1])
        count = len(codes)
        self._first[:] = count
        self._first[codes[::-1]] = np.arange(count - 1, -1, -1)  # what is assigned last stays
        return np.sort(self._first[self._first < count])


def _slice_starts(rows: Rows) -> tuple[NDArray[np.int64], int]:
    """First rows of all slices in row order, and how many alerts share their instant."""
    count = len(rows.at)
    if not count:
        return np.zeros(0, np.int64), 0
    new = rows.instants()
    first = np.flatnonzero(new)
    sizes = np.diff(np.append(first, count))
    tied = int(sizes[sizes > 1].sum())
    for long in np.flatnonzero(sizes > PIECE):
        new[first[long] : first[long] + sizes[long] : PIECE] = True
    return np.flatnonzero(new), tied


def _changes(values: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which values differ from the one before; the first does."""
    changed = np.ones(len(values), bool)
    np.not_equal(values[1:], values[:-1], out=changed[1:])
    return changed


def _stable_order(times_ns: NDArray[np.int64]) -> NDArray[np.intp]:
    """The order that sorts times and keeps equal ones as they are.

    Whole seconds leave room in 64 bits for the place beside the time: that sorts several times
    faster than merging the runs of many jobs.
    """
    count = len(times_ns)
    if not count:
        return np.zeros(0, np.intp)
    seconds = times_ns // SECOND
    room = count.bit_length()
    if int(np.ptp(seconds)) >> (62 - room) or (seconds * SECOND != times_ns).any():
        return np.argsort(times_ns, kind="stable")
    key = ((seconds - seconds.min()) << room) | np.arange(count)
    key.sort()
    order: NDArray[np.intp] = key & ((1 << room) - 1)
    return order


def _seconds(times_ns: NDArray[np.int64]) -> NDArray[np.float64]:
    """Nanoseconds as the nearest seconds, which is what dividing Python's integers gives."""
    exact = times_ns / SECOND
    if times_ns.min(initial=0) >= -(2**53) and times_ns.max(initial=0) <= 2**53:
        return exact
    for place in np.flatnonzero(np.abs(times_ns) > 2**53).tolist():
        exact[place] = int(times_ns[place]) / SECOND
    return exact


def _seen(
    new: NDArray[np.int64],
    stops: NDArray[np.int64],
    owner: NDArray[np.intp],
    edges: NDArray[np.int64],
) -> NDArray[np.int32]:
    """How many of the new names came up between each slice's job's first row and its own end.

    Args:
        new: Rows that bring a name, ascending.
        stops: Ends of all slices, in row order.
        owner: Their jobs.
        edges: Each job's first row.
    """
    brought = np.bincount(np.searchsorted(stops, new, side="right"), minlength=len(stops))
    earlier = np.searchsorted(new, edges).astype(np.int32)
    return np.cumsum(brought, dtype=np.int32) - earlier[owner]
