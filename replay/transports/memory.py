"""A bounded pipe within one process: the default transport, and the model for all others.

The URL is ``memory:`` or ``memory:NAME``, and ``?max_alerts=..&max_messages=..&full=..`` may follow.
A sink and a source of one name meet, whichever is opened first; the next pair meets anew.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self, get_args
from urllib.parse import parse_qsl, urlsplit

from replay.errors import TransportError, UsageError
from replay.messages import AlertSlice
from replay.plugins import near

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from replay.messages import Message

__all__ = [
    "Channel",
    "Counts",
    "MemorySink",
    "MemorySource",
    "open_pipe",
    "open_sink",
    "open_source",
]

Full = Literal["block", "drop-new", "drop-old"]
"""What a full channel does: make the sink wait, or drop the newest or the oldest alerts."""


@dataclass(slots=True)
class Counts:
    """What went through a channel.

    Attributes:
        messages: Messages taken in.
        alerts: Alerts taken in.
        blocked_seconds: Wall seconds for which publishing had to wait.
        dropped_slices: Slices dropped because the channel was full.
        dropped: Kind → alerts dropped with them.
    """

    messages: int = 0
    alerts: int = 0
    blocked_seconds: float = 0.0
    dropped_slices: int = 0
    dropped: Counter[str] = field(default_factory=Counter)


class Channel:
    """A bounded queue of messages between one sink and one source; both may be on any thread.

    An empty channel takes a slice of any size. Only slices are ever dropped: where a channel drops,
    starts, watermarks and ends neither wait nor count against its bounds.

    Args:
        name: What errors call it.
        max_alerts: How many alerts may lie here.
        max_messages: How many messages may lie here.
        full: What to do when it is full.
        perf: Gives wall seconds; measures waiting.

    Attributes:
        sink: The end that messages go into.
        source: The end that messages come out of.
        counts: What went through.
    """

    def __init__(
        self,
        name: str = "",
        *,
        max_alerts: int = 100_000,
        max_messages: int = 10_000,
        full: Full = "block",
        perf: Callable[[], float] = time.perf_counter,
    ) -> None:
        if max_alerts < 1 or max_messages < 1:
            raise ValueError(f"a channel needs room for something: {max_alerts=}, {max_messages=}")
        if full not in get_args(Full):
            raise ValueError(f"full must be one of {', '.join(get_args(Full))}, not {full!r}")
        self.name = name
        self.max_alerts = max_alerts
        self.max_messages = max_messages
        self.full = full
        self.sink = MemorySink(self)
        self.source = MemorySource(self)
        self.counts = Counts()
        self._perf = perf
        self._queue: deque[Message] = deque()
        self._slices = 0
        self._alerts = 0
        self._changed = threading.Condition()
        self._closed: dict[type, BaseException | None] = {}

    def __str__(self) -> str:
        return f"memory:{self.name}"

    @property
    def waiting(self) -> tuple[int, int]:
        """How many messages, and alerts in them, lie here now."""
        return len(self._queue), self._alerts

    @property
    def lost(self) -> int:
        """Alerts that were dropped because the channel was full."""
        return self.counts.dropped.total()

    def figures(self) -> dict[str, Any]:
        """How the carrying went."""
        return {
            "sent": self.counts.messages,
            "lost": self.lost,
            "blocked_wall_s": self.counts.blocked_seconds,
        }

    def put(self, messages: Sequence[Message]) -> None:
        """Take messages in; see :meth:`replay.transports.Sink.publish`."""
        with self._changed:
            for message in messages:
                self._put(message)
            self._changed.notify_all()

    def take(self, timeout: float) -> Sequence[Message] | None:
        """Give all there is; see :meth:`replay.transports.Source.poll`."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._queue or self._closed, min(timeout, threading.TIMEOUT_MAX)
            )
            if MemorySource in self._closed:
                raise TransportError(f"{self} was closed for reading.")
            if self._queue:
                return self._take_all()
            if MemorySink not in self._closed:
                return []
            if (error := self._closed[MemorySink]) is not None:
                raise TransportError(f"The writer of {self} failed: {error}") from error
            return None

    def close(self, end: type, error: BaseException | None = None) -> None:
        """Close one end, and say why if something went wrong there; the other end notices.

        What was put in before the sink closed can still be taken.
        """
        with self._changed:
            self._closed.setdefault(end, error)
            if end is MemorySource:
                self._take_all()
            self._changed.notify_all()

    def _take_all(self) -> list[Message]:
        messages = list(self._queue)
        self._queue.clear()
        self._slices = self._alerts = 0
        self._changed.notify_all()
        return messages

    def _put(self, message: Message) -> None:
        size = len(message.batch) if isinstance(message, AlertSlice) else 0
        if self.full == "block":
            self._wait_for_room(size)
        elif isinstance(message, AlertSlice) and not self._has_room(size):
            if self.full == "drop-new":
                self._count_dropped(message)
                return
            self._drop_old(size)
        self._check_open()
        self._queue.append(message)
        self._slices += isinstance(message, AlertSlice)
        self._alerts += size
        self.counts.messages += 1
        self.counts.alerts += size

    def _has_room(self, size: int) -> bool:
        held = len(self._queue) if self.full == "block" else self._slices
        return not held or (held < self.max_messages and self._alerts + size <= self.max_alerts)

    def _wait_for_room(self, size: int) -> None:
        if self._has_room(size) or self._closed:
            return
        begun = self._perf()
        try:
            self._changed.notify_all()  # of what this publishing has put in so far
            self._changed.wait_for(lambda: self._has_room(size) or self._closed)
        finally:
            self.counts.blocked_seconds += self._perf() - begun

    def _drop_old(self, size: int) -> None:
        while not self._has_room(size):
            oldest = next(m for m in self._queue if isinstance(m, AlertSlice))
            self._queue.remove(oldest)
            self._slices -= 1
            self._alerts -= len(oldest.batch)
            self._count_dropped(oldest)

    def _count_dropped(self, message: AlertSlice) -> None:
        self.counts.dropped_slices += 1
        self.counts.dropped.update(alert.kind for alert in message.batch)

    def _check_open(self) -> None:
        if MemorySink in self._closed:
            raise TransportError(f"{self} was closed for writing.")
        if MemorySource in self._closed:
            error = self._closed[MemorySource]
            why = f": its reader failed: {error}" if error else ""
            raise TransportError(f"Nobody reads {self} any more{why}") from error


class _End:
    """What both ends share: each can be closed, and closes itself as a context manager."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel

    def close(self) -> None:
        """Let go; the other end notices. May be called twice."""
        self.channel.close(type(self))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.channel.close(type(self), error if isinstance(error, Exception) else None)


class MemorySink(_End):
    """The end of a channel that messages go into."""

    def publish(self, messages: Sequence[Message]) -> None:
        """Take messages, in order; see :class:`Channel` for what happens when it is full.

        Raises:
            TransportError: Either end is closed.
        """
        self.channel.put(messages)


class MemorySource(_End):
    """The end of a channel that messages come out of."""

    def poll(self, timeout: float) -> Sequence[Message] | None:
        """Give all messages there are, in order.

        Args:
            timeout: Wall seconds to wait for the first one.

        Returns:
            Messages; empty when none came in time; None when the sink is closed and all is taken.

        Raises:
            TransportError: The source is closed, or the writer failed.
        """
        return self.channel.take(timeout)


# --- by URL: ends that have not met yet wait here for each other -----------------------------------

_unmet: dict[str, tuple[type, Channel]] = {}
_meeting = threading.Lock()


def open_sink(url: str) -> MemorySink:
    """Open the writing end of ``memory:NAME``.

    Raises:
        UsageError: An option is off, or the name has a writer that still waits for its reader.
    """
    return _meet(url, MemorySink).sink


def open_source(url: str) -> MemorySource:
    """Open the reading end of ``memory:NAME``.

    Raises:
        UsageError: An option is off, or the name has a reader that still waits for its writer.
    """
    return _meet(url, MemorySource).source


def open_pipe(
    url: str,
    run: str,  # noqa: ARG001 - nobody else can publish here
    *,
    bulk: bool,  # noqa: ARG001 - whatever is there is taken
    note: Callable[[str], None],  # noqa: ARG001 - nothing ever happens to it
) -> Channel:
    """Open both ends of a channel that nobody else meets.

    Raises:
        UsageError: An option is off.
    """
    name, options = _named(url)
    return Channel(name, **options)


def _named(url: str) -> tuple[str, dict[str, Any]]:
    """The name and the options in a URL."""
    parts = urlsplit(url)
    return parts.netloc + parts.path, _options(url, parts.query)


def _meet(url: str, end: type) -> Channel:
    name, options = _named(url)
    with _meeting:
        if name not in _unmet:
            channel = Channel(name, **options)
            _unmet[name] = end, channel
            return channel
        other, channel = _unmet[name]
        if other is end:
            raise UsageError(f"{channel} is open already, and nobody is at its other end.")
        for key, value in options.items():
            if getattr(channel, key) != value:
                raise UsageError(f"{channel} is open with {key}={getattr(channel, key)}.")
        del _unmet[name]
        return channel


def _options(url: str, query: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key in {"max_alerts", "max_messages"} and value.isdecimal() and int(value) > 0:
            options[key] = int(value)
        elif key == "full" and value in get_args(Full):
            options[key] = value
        elif key == "full":
            raise UsageError(f"{url}: full={value!r} is none of {', '.join(get_args(Full))}.")
        elif key in {"max_alerts", "max_messages"}:
            raise UsageError(f"{url}: {key}={value!r} is not a whole number above 0.")
        else:
            known = ["max_alerts", "max_messages", "full"]
            raise UsageError(
                f"{url}: there is no option {key!r}{near(key, known)}",
                "max_alerts, max_messages or full",
            )
    return options
