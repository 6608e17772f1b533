"""Messages → the values of records."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from zlib import crc32

from replay.messages import AlertSlice, JobEnded, JobStarted, Message, Watermark
from replay.transports.wire.fields import head_of, json_text

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Encoder"]

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


class _Written:
    """One job on the writing side."""

    __slots__ = ("alert", "count", "crc", "end", "event_time", "start", "tick")

    def __init__(self, started: JobStarted) -> None:
        self.start, self.alert, self.tick, self.end = (
            head_of(kind, started.run, started.epoch, started.job.id)
            for kind in ("start", "alert", "tick", "end")
        )
        self.event_time = _event_times(started.start_time)
        self.count = 0
        self.crc = 0


class _Texts(dict[str, str]):
    """Names as JSON, each written once."""

    def __missing__(self, name: str) -> str:
        text = self[name] = json_text(name)
        return text


class Encoder:
    """Messages → the values of records. Remembers each open job's count and checksum.

    Examples:
        >>> from replay.api import Job
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
            f'{job.start}"t":{message.at!r},'
            f'"start_time":{json_text(message.start_time)},"nodes":{json_text(message.job.nodes)},'
            f'"gpu_generation":{json_text(message.job.gpu_generation)}}}'
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
            f'{head}"seq":{seq}{middle}{known[nodes[node]]},"event":{known[kinds[kind]]}'
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
            f'{job.tick}"seq":{job.count},"t":{at!r},"event_time":{job.event_time(at)}}}'
        ).encode()

    def _end(self, message: JobEnded) -> bytes:
        job = self._job(message.job)
        del self._jobs[message.job]
        at = float(message.at)
        return (
            f'{job.end}"t":{at!r},'
            f'"event_time":{job.event_time(at)},"count":{message.count},'
            f'"checksum":"{job.crc:08x}","complete":{json_text(message.complete)}}}'
        ).encode()


def _tail(message: AlertSlice) -> str:
    """The fields that most alerts do not have."""
    tail = "" if message.scheduled_wall is None else f',"scheduled_wall":{message.scheduled_wall!r}'
    if message.published_wall is not None:
        tail += f',"published_wall":{message.published_wall!r}'
    if message.catch_up:
        tail += ',"catch_up":true'
    return tail + "}"
