"""What travels, as bytes: one JSON object a record, in the data set's published names.

The form is versioned (``v``) and described by ``wire.schema.json`` beside this file
(:func:`schema`). An alert stream holds ``start``, ``alert``, ``tick`` and ``end`` records of each
job, a verdict stream ``verdict`` and ``judged`` ones; the key of every record is the job's id.
Here the two vocabularies meet: ``ip``, ``event``, ``t`` outside, ``node``, ``kind``, ``at`` inside.

Nothing here knows of a broker, a partition or an offset.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from bisect import bisect_left
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from importlib import resources
from typing import TYPE_CHECKING, Any, overload
from zlib import crc32

import numpy as np

from replay.api import AlertBatch, Job, Verdict
from replay.messages import AlertSlice, JobEnded, JobStarted, Message, TimedVerdict, Watermark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


__all__ = [
    "VERSION",
    "Counters",
    "Decoder",
    "Encoder",
    "Judged",
    "PoisonError",
    "decode_verdict",
    "encode_verdict",
    "job_key",
    "schema",
    "verdict_id",
]

VERSION = 1
"""The version of the form written here; records of another are poison."""

_REMEMBERED = 100_000  # finished jobs whose late repeats are still told from strangers


class PoisonError(ValueError):
    """A record that cannot be understood, or has no place in its stream.

    Args:
        reason: One word for counting: ``tombstone``, ``json``, ``version``, ``type``, ``field``,
            ``order`` or ``no-start``.
        detail: What is wrong, with the value.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}"


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


@dataclass(frozen=True, slots=True)
class Judged:
    """A worker has judged a whole job: closes the job's verdicts.

    Attributes:
        run: Id of the replay.
        epoch: As in :class:`~replay.messages.JobStarted`.
        job: The job's id.
        at: Trace seconds since the job's start at which it ended.
        count: How many alerts the publisher sent.
        missing: How many of them never arrived.
        complete: False when the replay was stopped before the job's end.
        verdicts: Detector → number of its verdicts.
        failed: Detector → why it was stopped.
    """

    run: str
    epoch: int
    job: str
    at: float
    count: int
    missing: int = 0
    complete: bool = True
    verdicts: Mapping[str, int] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)


def schema() -> dict[str, Any]:
    """The JSON Schema of every record.

    Examples:
        >>> sorted(schema()["$defs"])
        ['alert', 'end', 'judged', 'start', 'tick', 'verdict']

    """
    text = resources.files("replay.transports").joinpath("wire.schema.json").read_text("utf-8")
    document: dict[str, Any] = json.loads(text)
    return document


def job_key(job: str) -> bytes:
    """The key of every record of a job."""
    return job.encode("utf-8", "surrogatepass")


def _text(value: Any) -> str:
    """JSON, readable where UTF-8 allows (a lone surrogate has no UTF-8)."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text


# ---------------------------------------------------------------------------- event times

_TIME = re.compile(r"(\d{4}-\d\d-\d\d)([ T])(\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?", re.ASCII)


def _event_times(start_time: str) -> Callable[[float], str]:
    """Trace seconds → the time as the trace would write it, as JSON; null where it cannot."""
    match = _TIME.fullmatch(start_time)
    try:
        if match is None:
            raise ValueError(start_time)  # noqa: TRY301 - both mean: not a time
        day, separator, clock, fraction = match.groups()
        whole = datetime.fromisoformat(f"{day} {clock}")
    except ValueError:
        return lambda _: "null"
    midnight = whole.replace(hour=0, minute=0, second=0)
    start_ns = 10**9 * int((whole - midnight).total_seconds())
    start_ns += int((fraction or "").ljust(9, "0") or 0)
    days: dict[int, str] = {}

    def event_time(at: float) -> str:
        seconds, nanos = divmod(start_ns + round(at * 1e9), 10**9)
        number, second = divmod(seconds, 86400)
        date = days.get(number)
        if date is None:
            try:
                date = (midnight + timedelta(days=number)).date().isoformat()
            except OverflowError:
                return "null"
            days[number] = date
        minute, second = divmod(second, 60)
        hour, minute = divmod(minute, 60)
        tail = f".{nanos:09d}".rstrip("0") if nanos else ""
        return f'"{date}{separator}{hour:02d}:{minute:02d}:{second:02d}{tail}"'

    return event_time


# ---------------------------------------------------------------------------- writing


class _Written:
    """One job on the writing side."""

    __slots__ = ("alert", "count", "crc", "event_time", "head")

    def __init__(self, started: JobStarted) -> None:
        self.head = (
            f'"run":{_text(started.run)},"epoch":{started.epoch},"job_id":{_text(started.job.id)}'
        )
        self.alert = f'{{"v":{VERSION},"type":"alert",{self.head},"seq":'
        self.event_time = _event_times(started.start_time)
        self.count = 0
        self.crc = 0


class _Texts(dict[str, str]):
    """Names as JSON, each written once."""

    def __missing__(self, name: str) -> str:
        text = self[name] = _text(name)
        return text


class Encoder:
    """Messages → the values of records. Remembers each open job's count and checksum.

    Examples:
        >>> encoder = Encoder()
        >>> start = JobStarted("r1", 0, Job("Job1", ("a",)), "1969-12-31 23:59:58")
        >>> encoder.encode(start)[0].decode()
        '{"v":1,"type":"start","run":"r1","epoch":0,"job_id":"Job1","t":0.0,...}'
        >>> encoder.encode(Watermark("r1", 0, "Job1", 3.0))[0].decode()
        '{...,"seq":0,"t":3.0,"event_time":"1970-01-01 00:00:01"}'

    """

    def __init__(self) -> None:
        self._jobs: dict[str, _Written] = {}
        self._json = _Texts()

    def encode(self, message: Message) -> list[bytes]:
        """The records of one message, in order; one an alert.

        Raises:
            ValueError: The message's job was never started.
        """
        if isinstance(message, AlertSlice):
            return self._alerts(message)
        if isinstance(message, Watermark):
            return [self._tick(message)]
        if isinstance(message, JobStarted):
            return [self._start(message)]
        return [self._end(message)]

    def _job(self, job: str) -> _Written:
        try:
            return self._jobs[job]
        except KeyError:
            raise ValueError(f"job {job!r} was never started") from None

    def _start(self, message: JobStarted) -> bytes:
        job = self._jobs[message.job.id] = _Written(message)
        return (
            f'{{"v":{VERSION},"type":"start",{job.head},"t":{message.at!r},'
            f'"start_time":{_text(message.start_time)},"nodes":{_text(message.job.nodes)},'
            f'"gpu_generation":{_text(message.job.gpu_generation)}}}'
        ).encode()

    def _alerts(self, message: AlertSlice) -> list[bytes]:
        batch = message.batch
        job = self._job(batch.job)
        at = float(batch.at)
        head = job.alert
        middle = f',"t":{at!r},"event_time":{job.event_time(at)},"ip":'
        last = _tail(message)
        nodes, kinds, known = batch.nodes, batch.kinds, self._json
        rows = zip(batch.seq.tolist(), batch.node.tolist(), batch.kind.tolist(), strict=True)
        texts = [
            f'{head}{seq}{middle}{known[nodes[node]]},"event":{known[kinds[kind]]}'
            for seq, node, kind in rows
        ]
        values = [f'{text},"more":true{last}'.encode() for text in texts[:-1]]
        values += [f"{text}{last}".encode() for text in texts[-1:]]
        crc = job.crc
        for value in values:
            crc = crc32(value, crc)
        job.crc = crc
        job.count += len(values)
        return values

    def _tick(self, message: Watermark) -> bytes:
        job = self._job(message.job)
        at = float(message.at)
        return (
            f'{{"v":{VERSION},"type":"tick",{job.head},"seq":{job.count},"t":{at!r},'
            f'"event_time":{job.event_time(at)}}}'
        ).encode()

    def _end(self, message: JobEnded) -> bytes:
        job = self._job(message.job)
        del self._jobs[message.job]
        at = float(message.at)
        return (
            f'{{"v":{VERSION},"type":"end",{job.head},"t":{at!r},'
            f'"event_time":{job.event_time(at)},"count":{message.count},'
            f'"checksum":"{job.crc:08x}","complete":{_text(message.complete)}}}'
        ).encode()


def _tail(message: AlertSlice) -> str:
    """The fields that most alerts do not have."""
    tail = "" if message.scheduled_wall is None else f',"scheduled_wall":{message.scheduled_wall!r}'
    if message.published_wall is not None:
        tail += f',"published_wall":{message.published_wall!r}'
    if message.catch_up:
        tail += ',"catch_up":true'
    return tail + "}"


# ---------------------------------------------------------------------------- reading


_loads = json.JSONDecoder().decode


def _parse(value: bytes | None) -> dict[str, Any]:
    """One JSON object of our version, its common fields looked at."""
    if value is None:
        raise PoisonError("tombstone", "the record has no value")
    try:
        record = _loads(value.decode())
    except (ValueError, RecursionError) as error:
        raise PoisonError("json", f"not JSON in UTF-8: {error}") from None
    if type(record) is not dict:
        raise PoisonError("json", f"not an object but {_shown(record)}")
    version = record.get("v")
    if type(version) is not int or version != VERSION:
        raise PoisonError("version", f"v is {_shown(record.get('v'))}, this reader knows {VERSION}")
    return record


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


@overload
def _get(record: dict[str, Any], key: str, kind: type[str]) -> str: ...
@overload
def _get(record: dict[str, Any], key: str, kind: type[bool]) -> bool: ...
@overload
def _get(record: dict[str, Any], key: str, kind: type[int]) -> int: ...
@overload
def _get(record: dict[str, Any], key: str, kind: type[dict[str, Any]]) -> dict[str, Any]: ...
@overload
def _get(record: dict[str, Any], key: str, kind: type[list[Any]]) -> list[Any]: ...
def _get(record: dict[str, Any], key: str, kind: type) -> Any:
    value = record.get(key)
    if type(value) is not kind:
        raise PoisonError("field", f"{key} is {_shown(value)}, not {kind.__name__}")
    return value


def _count(record: dict[str, Any], key: str) -> int:
    value = _get(record, key, int)
    if not 0 <= value < 1 << 63:
        raise PoisonError("field", f"{key} is {_shown(value)}, not a count")
    return value


def _number(record: dict[str, Any], key: str) -> float:
    value = record.get(key)
    if type(value) is float and math.isfinite(value):
        return value
    if type(value) is int:
        try:
            return float(value)
        except OverflowError:
            pass
    raise PoisonError("field", f"{key} is {_shown(value)}, not a finite number")


def _maybe(record: dict[str, Any], key: str) -> float | None:
    return None if record.get(key) is None else _number(record, key)


class _Names:
    """Codes by first appearance."""

    __slots__ = ("_seen", "codes")

    def __init__(self, first: Iterable[str]) -> None:
        self.codes = {name: code for code, name in enumerate(dict.fromkeys(first))}
        self._seen = tuple(self.codes)

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
        self.at = -math.inf
        self.ticked = -math.inf
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
    says nothing new is not), a record that makes no sense raises :class:`PoisonError` and changes nothing. Every alert is delivered at most once
    and in order, whatever the broker or the publisher had to send twice.

    Args:
        counters: Where to count; one may serve many decoders.
        run: Read this replay only; None reads all.

    Examples:
        >>> encoder, decoder = Encoder(), Decoder()
        >>> start = JobStarted("r1", 0, Job("Job1", ("a",)), "1969-12-31 23:59:58")
        >>> value, = encoder.encode(start)
        >>> decoder.decode(value) == [start], decoder.decode(value)
        (True, [])
        >>> decoder.counters
        Counters(gaps=0, duplicates=1, reorders=0, corrupt=0)
        >>> decoder.decode(b"{}")
        Traceback (most recent call last):
        replay.transports.wire.PoisonError: version: v is None, this reader knows 1

    """

    def __init__(self, counters: Counters | None = None, *, run: str | None = None) -> None:
        self.counters = Counters() if counters is None else counters
        self._run = run
        self._open: dict[tuple[str, str], _Reading] = {}
        self._done: OrderedDict[tuple[str, str], int] = OrderedDict()

    def decode(self, value: bytes | None) -> list[Message]:
        """The messages that this record completes; none, one, or two after a gap.

        Raises:
            PoisonError: The record cannot be understood or has no place here.
        """
        record = _parse(value)
        run, job = record.get("run"), record.get("job_id")
        if type(run) is not str or type(job) is not str:
            run, job = _get(record, "run", str), _get(record, "job_id", str)
        if self._run is not None and run != self._run:
            return []
        kind = record.get("type")
        epoch = record.get("epoch")
        if type(epoch) is not int or epoch < 0:
            epoch = _count(record, "epoch")
        key = run, job
        if kind == "start":
            return self._start(key, epoch, record)
        if kind not in {"alert", "tick", "end"}:
            raise PoisonError("type", f"type is {_shown(kind)}")
        reading = self._open.get(key)
        if reading is None or epoch != reading.epoch:
            return self._stranger(key, epoch, kind)
        if kind == "alert":
            # decode() has parsed it, so it is bytes
            return self._alert(reading, record, value or b"")
        if kind == "tick":
            return self._tick(reading, record)
        return self._end(key, reading, record)

    def _start(self, key: tuple[str, str], epoch: int, record: dict[str, Any]) -> list[Message]:
        nodes = _get(record, "nodes", list)
        if not all(type(node) is str for node in nodes):
            raise PoisonError("field", "nodes holds something that is not text")
        started = JobStarted(
            key[0],
            epoch,
            Job(key[1], tuple(nodes), _get(record, "gpu_generation", str)),
            _get(record, "start_time", str),
            _number(record, "t"),
        )
        reading = self._open.get(key)
        known = reading.epoch if reading is not None else self._done.get(key, -1)
        if epoch <= known:
            self.counters.duplicates += 1
            return []
        self._done.pop(key, None)
        self._open[key] = _Reading(started)
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
            seq = _count(record, "seq")
        if type(at) is not float or not math.isfinite(at):
            at = _number(record, "t")
        if type(node) is not str or type(kind) is not str:
            node, kind = _get(record, "ip", str), _get(record, "event", str)
        scheduled = published = None
        if "scheduled_wall" in record or "published_wall" in record:
            scheduled = _maybe(record, "scheduled_wall")
            published = _maybe(record, "published_wall")
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
        at = _number(record, "t")
        seq = _count(record, "seq")
        if at <= reading.ticked or at < reading.at or seq < reading.next:
            return []  # says nothing new
        messages = self._passed_over(reading, seq) + self._whole(reading)
        reading.at = reading.ticked = at
        return [*messages, Watermark(reading.run, reading.epoch, reading.job, at)]

    def _end(
        self, key: tuple[str, str], reading: _Reading, record: dict[str, Any]
    ) -> list[Message]:
        at = _number(record, "t")
        count = _count(record, "count")
        checksum, complete = _get(record, "checksum", str), _get(record, "complete", bool)
        if at < reading.at or count < reading.next:
            raise PoisonError(
                "order", f"end at {at!r} after {count} alerts, but more was read before"
            )
        messages = self._passed_over(reading, count) + self._whole(reading)
        if not reading.holes and checksum != f"{reading.crc:08x}":
            self.counters.corrupt += 1
        del self._open[key]
        self._done[key] = reading.epoch
        if len(self._done) > _REMEMBERED:
            self._done.popitem(last=False)
        ended = JobEnded(reading.run, reading.epoch, reading.job, at, count, complete)
        return [*messages, ended]


# ---------------------------------------------------------------------------- verdicts


def verdict_id(run: str, epoch: int, detector: str, job: str, number: int) -> str:
    """The same for the same verdict, whoever computes it and however often.

    Examples:
        >>> verdict_id("r1", 0, "burst", "Job1", 0)
        '...'

    """
    name = json.dumps([run, epoch, detector, job, number])
    return hashlib.blake2b(name.encode(), digest_size=12).hexdigest()


def encode_verdict(said: TimedVerdict | Judged) -> bytes:
    """The value of a verdict's record, or of the one that closes a job's verdicts."""
    common = {"run": said.run, "epoch": said.epoch, "job_id": said.job, "t": said.at}
    if isinstance(said, Judged):
        record = {
            "v": VERSION,
            "type": "judged",
            **common,
            "count": said.count,
            "missing": said.missing,
            "complete": said.complete,
            "verdicts": dict(said.verdicts),
            "failed": dict(said.failed),
        }
        return _text(record).encode()
    verdict = said.verdict
    record = {
        "v": VERSION,
        "type": "verdict",
        "id": verdict_id(said.run, said.epoch, said.detector, said.job, said.number),
        **common,
        "detector": said.detector,
        "number": said.number,
        "ip": verdict.node,
        "action": verdict.action,
        "score": verdict.score,
        "reason": verdict.reason,
        "evidence": list(verdict.evidence),
        "trigger_seq": said.trigger_seq,
    }
    for wall in ("scheduled_wall", "published_wall", "emitted_wall"):
        if getattr(said, wall) is not None:
            record[wall] = getattr(said, wall)
    if said.catch_up:
        record["catch_up"] = True
    return _text(record).encode()


def decode_verdict(value: bytes | None) -> TimedVerdict | Judged:
    """What :func:`encode_verdict` wrote.

    Raises:
        PoisonError: The record cannot be understood.

    Examples:
        >>> said = TimedVerdict("r1", 0, "burst", "Job1", 0, 3.0, Verdict("a", score=0.5))
        >>> decode_verdict(encode_verdict(said)) == said
        True

    """
    record = _parse(value)
    kind = record.get("type")
    common = (_get(record, "run", str), _count(record, "epoch"))
    if kind == "judged":
        return Judged(
            *common,
            _get(record, "job_id", str),
            _number(record, "t"),
            _count(record, "count"),
            _count(record, "missing"),
            _get(record, "complete", bool),
            {name: _count(record["verdicts"], name) for name in _get(record, "verdicts", dict)},
            {name: _get(record["failed"], name, str) for name in _get(record, "failed", dict)},
        )
    if kind != "verdict":
        raise PoisonError("type", f"type is {_shown(kind)}")
    node, action = record.get("ip"), record.get("action")
    if node is not None and type(node) is not str:
        raise PoisonError("field", f"ip is {_shown(node)}, not text or null")
    if action not in {"raise", "retract"}:
        raise PoisonError("field", f"action is {_shown(action)}, not raise or retract")
    evidence = _get(record, "evidence", list)
    if not all(type(seq) is int for seq in evidence):
        raise PoisonError("field", "evidence holds something that is not a number")
    trigger = None if record.get("trigger_seq") is None else _count(record, "trigger_seq")
    return TimedVerdict(
        *common,
        _get(record, "detector", str),
        _get(record, "job_id", str),
        _count(record, "number"),
        _number(record, "t"),
        Verdict(
            node, action, _number(record, "score"), _get(record, "reason", str), tuple(evidence)
        ),
        trigger,
        _maybe(record, "scheduled_wall"),
        _maybe(record, "published_wall"),
        _maybe(record, "emitted_wall"),
        record.get("catch_up") is True,
    )
