"""The values of records → messages, each once and in order."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from replay.api import AlertBatch, Job
from replay.messages import AlertSlice, JobEnded, JobStarted, Message, Watermark
from replay.transports.wire.fields import (
    PoisonError,
    count_of,
    field_of,
    head_of,
    number_of,
    number_or_none,
    parse,
    shown,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Counters", "Decoder"]

_TEXT = rb'"([^"\\\x00-\x1f]*)"'
_REST = re.compile(
    rb'"seq":(0|[1-9]\d{0,17}),"t":(-?\d+\.\d+),"event_time":(?:"[ -!#-\[\]-~]*"|null),'
    rb'"ip":%b,"event":%b(,"more":true)?\}' % (_TEXT, _TEXT)
).fullmatch
"""An alert as our own publisher writes it, behind its head: read without making an object of it."""

_REMEMBERED = 100_000  # finished jobs whose late repeats are still told from strangers


@dataclass(slots=True)
class Counters:
    """What a reader found wrong with the order of alerts; all zero on a sound stream.

    Attributes:
        gaps: Alerts that never came before a later one did.
        duplicates: Records that came again.
        reorders: Alerts that came after a later one; they are not delivered.
        corrupt: Jobs whose alerts do not have the checksum that their ``end`` states.
    """

    gaps: int = 0
    duplicates: int = 0
    reorders: int = 0
    corrupt: int = 0


class _Names:
    """Codes by first appearance."""

    __slots__ = ("_seen", "codes", "raw")

    def __init__(self, first: Iterable[str]) -> None:
        self.codes = {name: code for code, name in enumerate(dict.fromkeys(first))}
        self._seen = tuple(self.codes)
        self.raw: dict[bytes, int] = {}  # the same for names as they stand in plain records

    def code(self, name: str) -> int:
        """The code of a name, a new one if it is new."""
        codes = self.codes
        return codes.setdefault(name, len(codes))

    def seen(self) -> tuple[str, ...]:
        """The names seen so far."""
        if len(self._seen) != len(self.codes):
            self._seen = tuple(self.codes)
        return self._seen


class _Reading:
    """One job of one epoch on the reading side: its place in the sequence, and the open slice."""

    __slots__ = (
        "at",
        "crc",
        "epoch",
        "head",
        "held",
        "holes",
        "job",
        "kinds",
        "next",
        "nodes",
        "run",
        "ticked",
    )

    def __init__(self, started: JobStarted) -> None:
        self.run = started.run
        self.epoch = started.epoch
        self.job = started.job.id
        self.head = head_of("alert", started.run, started.epoch, started.job.id).encode()
        self.at = -math.inf
        self.ticked = -math.inf, -1  # time and seq of the newest tick
        self.next = 0
        self.crc = 0
        self.holes: list[tuple[int, int]] = []  # sequence numbers passed over, as [low, high)
        # the slice that is not yet whole: numbers, nodes and kinds of its alerts
        self.held: tuple[list[int], list[int], list[int]] = ([], [], [])
        self.nodes = _Names(started.job.nodes)
        self.kinds = _Names(())

    def is_hole(self, seq: int) -> bool:
        place = bisect_left(self.holes, (seq + 1,)) - 1
        return place >= 0 and self.holes[place][0] <= seq < self.holes[place][1]


class Decoder:
    """The values of records → messages, as they were before they were written.

    Feed it the records of one partition in order. Repeats are dropped and counted (a tick that
    says nothing new is not), a record that makes no sense raises :class:`PoisonError` and changes
    nothing. Every alert is delivered at most once and in order, whatever the broker or the
    publisher had to send twice.

    Args:
        counters: Where to count; one may serve many decoders.
        run: Read this replay only; None reads all.

    Examples:
        >>> from replay.transports.wire import Encoder
        >>> encoder, decoder = Encoder(), Decoder()
        >>> start = JobStarted("r1", 0, Job("Job1", ("a",)), "1969-12-31 23:59:58")
        >>> value, = encoder.encode(start)
        >>> decoder.decode(value) == [start], decoder.decode(value)
        (True, [])
        >>> decoder.counters
        Counters(gaps=0, duplicates=1, reorders=0, corrupt=0)
        >>> decoder.decode(b"{}")
        Traceback (most recent call last):
        replay.transports.wire.fields.PoisonError: version: v is None, this reader knows 1

    """

    def __init__(self, counters: Counters | None = None, *, run: str | None = None) -> None:
        self.counters = Counters() if counters is None else counters
        self._run = run
        self._open: dict[tuple[str, str], _Reading] = {}
        self._done: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._heads: dict[bytes, _Reading] = {}  # how its alerts begin → an open job

    def decode(self, value: bytes | None) -> list[Message]:
        """The messages that this record completes; none, one, or two after a gap.

        Raises:
            PoisonError: The record cannot be understood or has no place here.
        """
        if value is not None and (messages := self._known(value)) is not None:
            return messages
        record = parse(value)
        run, job = record.get("run"), record.get("job_id")
        if type(run) is not str or type(job) is not str:
            run, job = field_of(record, "run", str), field_of(record, "job_id", str)
        if self._run is not None and run != self._run:
            return []
        kind = record.get("type")
        epoch = record.get("epoch")
        if type(epoch) is not int or epoch < 0:
            epoch = count_of(record, "epoch")
        key = run, job
        if kind == "start":
            return self._start(key, epoch, record)
        if kind not in {"alert", "tick", "end"}:
            raise PoisonError("type", f"type is {shown(kind)}")
        reading = self._open.get(key)
        if reading is None or epoch != reading.epoch:
            return self._stranger(key, epoch, kind)
        if kind == "alert":
            # decode() has parsed it, so it is bytes
            return self._alert(reading, record, value or b"")
        return self._tick(reading, record) if kind == "tick" else self._end(key, reading, record)

    def _known(self, value: bytes) -> list[Message] | None:
        """What the next alert of an open job completes; None where it is not plainly that."""
        place = value.find(b',"seq":') + 1
        reading = self._heads.get(value[:place])
        if reading is None:
            return None
        match = _REST(value, place)
        if match is None:
            return None
        seq, at, node, kind, more = match.groups()
        time = float(at)
        if int(seq) != reading.next or not reading.at <= time < math.inf:
            return None
        node_code, kind_code = reading.nodes.raw.get(node), reading.kinds.raw.get(kind)
        if node_code is None or kind_code is None:
            try:
                names = node.decode(), kind.decode()
            except UnicodeDecodeError:
                return None
            node_code = reading.nodes.raw[node] = reading.nodes.code(names[0])
            kind_code = reading.kinds.raw[kind] = reading.kinds.code(names[1])
        messages = self._whole(reading) if time > reading.at else []
        reading.at = time
        reading.crc = crc32(value, reading.crc)
        seqs, nodes, kinds = reading.held
        seqs.append(reading.next)
        nodes.append(node_code)
        kinds.append(kind_code)
        reading.next += 1
        return messages if more else messages + self._whole(reading)

    def _start(self, key: tuple[str, str], epoch: int, record: dict[str, Any]) -> list[Message]:
        nodes = field_of(record, "nodes", list)
        if not all(type(node) is str for node in nodes):
            raise PoisonError("field", "nodes holds something that is not text")
        started = JobStarted(
            key[0],
            epoch,
            Job(key[1], tuple(nodes), field_of(record, "gpu_generation", str)),
            field_of(record, "start_time", str),
            number_of(record, "t"),
        )
        reading = self._open.get(key)
        known = reading.epoch if reading is not None else self._done.get(key, -1)
        if epoch <= known:
            self.counters.duplicates += 1
            return []
        self._done.pop(key, None)
        if reading is not None:
            del self._heads[reading.head]
        reading = self._open[key] = _Reading(started)
        self._heads[reading.head] = reading
        return [started]

    def _stranger(self, key: tuple[str, str], epoch: int, kind: str) -> list[Message]:
        """A record of no open job: a late repeat, or one whose start never came."""
        reading = self._open.get(key)
        newest = reading.epoch if reading is not None else self._done.get(key, -1)
        if epoch > newest:
            raise PoisonError("no-start", f"{kind} of {key[1]!r} in run {key[0]!r}, never started")
        self.counters.duplicates += 1
        return []

    def _alert(self, reading: _Reading, record: dict[str, Any], value: bytes) -> list[Message]:
        seq, at = record.get("seq"), record.get("t")
        node, kind = record.get("ip"), record.get("event")
        if type(seq) is not int or not 0 <= seq < 1 << 63:
            seq = count_of(record, "seq")
        if type(at) is not float or not math.isfinite(at):
            at = number_of(record, "t")
        if type(node) is not str or type(kind) is not str:
            node, kind = field_of(record, "ip", str), field_of(record, "event", str)
        scheduled = published = None
        if "scheduled_wall" in record or "published_wall" in record:
            scheduled = number_or_none(record, "scheduled_wall")
            published = number_or_none(record, "published_wall")
        if seq < reading.next:
            if reading.is_hole(seq):
                self.counters.reorders += 1
            else:
                self.counters.duplicates += 1
            return []
        if at < reading.at:
            raise PoisonError("order", f"t goes back from {reading.at!r} to {at!r}")
        messages = self._passed_over(reading, seq) if seq > reading.next else []
        seqs, nodes, kinds = reading.held
        if seqs and at > reading.at:
            messages += self._whole(reading)
        reading.at = at
        reading.next = seq + 1
        reading.crc = crc32(value, reading.crc)
        seqs.append(seq)
        nodes.append(reading.nodes.code(node))
        kinds.append(reading.kinds.code(kind))
        if record.get("more") is not True:
            catch_up = record.get("catch_up") is True
            messages += self._whole(reading, scheduled, published, catch_up=catch_up)
        return messages

    def _passed_over(self, reading: _Reading, seq: int) -> list[Message]:
        """Note a gap before ``seq``; what is held of a broken slice goes out as it is."""
        if seq == reading.next:
            return []
        self.counters.gaps += seq - reading.next
        reading.holes.append((reading.next, seq))
        reading.next = seq
        return self._whole(reading)

    @staticmethod
    def _whole(
        reading: _Reading,
        scheduled: float | None = None,
        published: float | None = None,
        *,
        catch_up: bool = False,
    ) -> list[Message]:
        """The slice held so far, as a message."""
        seqs, nodes, kinds = reading.held
        if not seqs:
            return []
        batch = AlertBatch(
            reading.job,
            reading.at,
            np.array(seqs, np.int64),
            np.array(nodes, np.int32),
            np.array(kinds, np.int32),
            reading.nodes.seen(),
            reading.kinds.seen(),
        )
        for column in (batch.seq, batch.node, batch.kind):
            column.setflags(write=False)
        for held in reading.held:
            held.clear()
        return [AlertSlice(reading.run, reading.epoch, batch, scheduled, published, catch_up)]

    def _tick(self, reading: _Reading, record: dict[str, Any]) -> list[Message]:
        at = number_of(record, "t")
        seq = count_of(record, "seq")
        if (at, seq) <= reading.ticked or at < reading.at or seq < reading.next:
            return []  # says nothing new
        messages = self._passed_over(reading, seq) + self._whole(reading)
        reading.at = at
        reading.ticked = at, seq
        return [*messages, Watermark(reading.run, reading.epoch, reading.job, at)]

    def _end(
        self, key: tuple[str, str], reading: _Reading, record: dict[str, Any]
    ) -> list[Message]:
        at = number_of(record, "t")
        count = count_of(record, "count")
        checksum, complete = field_of(record, "checksum", str), field_of(record, "complete", bool)
        if at < reading.at or count < reading.next:
            raise PoisonError(
                "order", f"end at {at!r} after {count} alerts, but more was read before"
            )
        messages = self._passed_over(reading, count) + self._whole(reading)
        if not reading.holes and checksum != f"{reading.crc:08x}":
            self.counters.corrupt += 1
        del self._open[key], self._heads[reading.head]
        self._done[key] = reading.epoch
        if len(self._done) > _REMEMBERED:
            self._done.popitem(last=False)
        ended = JobEnded(reading.run, reading.epoch, reading.job, at, count, complete)
        return [*messages, ended]
