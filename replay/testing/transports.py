"""What every transport must keep to, as plain functions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from replay.api import Job
from replay.errors import TransportError
from replay.messages import AlertSlice, JobEnded, JobStarted, Watermark
from replay.testing.streams import TINY_TRACES, bound, stream

if TYPE_CHECKING:
    from replay.messages import Message
    from replay.testing.streams import Check
    from replay.transports import Sink, Source

__all__ = ["transport_checks"]

Ends = Callable[[], tuple["Sink", "Source"]]


def transport_checks(make: Ends, *, ends: bool = True) -> list[Check]:
    """Everything the contracts of :class:`~replay.transports.Sink` and ``Source`` ask for.

    Args:
        make: Opens a fresh sink and the source that reads from it.
        ends: Whether closing the sink ends the source. A broker may not know.

    Returns:
        Functions without arguments, named for what they check, that raise ``AssertionError``
        where the transport breaks the rule.

    Examples:
        >>> from replay.transports.memory import Channel
        >>> def make():
        ...     channel = Channel()
        ...     return channel.sink, channel.source
        >>> for check in transport_checks(make):
        ...     check()

    """
    return [bound(check, make) for check in (*CHECKS, *(ENDINGS if ends else ()))]


# --- reading and comparing --------------------------------------------------------------------


def _events(messages: Sequence[Message]) -> dict[str, list[Any]]:
    """Job → what is told of it, alert by alert: a transport may cut slices and join them."""
    events: dict[str, list[Any]] = {}
    for message in messages:
        if isinstance(message, AlertSlice):
            rest = replace(message, batch=None)  # type: ignore[arg-type]  # all but the batch
            told = [(rest, tuple(alert)) for alert in message.batch]
            events.setdefault(message.batch.job, []).extend(told)
        else:
            job = message.job.id if isinstance(message, JobStarted) else message.job
            events.setdefault(job, []).append(message)
    return events


def _read(source: Source, count: int) -> list[Message]:
    """Read until so many alerts and other messages have come, or no more will."""
    messages: list[Message] = []
    idle = 0
    while _count(messages) < count:
        new = source.poll(0.5)
        if new is None:
            break
        idle = 0 if new else idle + 1
        if idle > 60:
            break
        messages += new
    return messages + list(source.poll(0.0) or ())


def _count(messages: Sequence[Message]) -> int:
    return sum(len(m.batch) if isinstance(m, AlertSlice) else 1 for m in messages)


def _transfer(make: Ends, messages: Sequence[Message], at_once: int) -> list[Message]:
    """Publish on a thread of its own, so that a full transport can be read; give what comes out."""
    sink, source = make()

    def write() -> None:
        with sink:
            for first in range(0, len(messages), at_once):
                sink.publish(messages[first : first + at_once])

    writer = threading.Thread(target=write, daemon=True)
    with source:
        writer.start()
        came = _read(source, _count(messages))
        writer.join()
    return came


def _carries(make: Ends, messages: Sequence[Message], at_once: int) -> None:
    """What goes in comes out."""
    found, wanted = _events(_transfer(make, messages, at_once)), _events(messages)
    for job, events in wanted.items():
        came = found.get(job, [])
        for number, event in enumerate(events):
            if number >= len(came) or came[number] != event:
                got = came[number] if number < len(came) else "nothing"
                raise AssertionError(f"event {number} of job {job!r}: {event} became {got}")
    if found.keys() != wanted.keys() or any(len(found[j]) != len(e) for j, e in wanted.items()):
        raise AssertionError("more came out than went in")


# --- checks -----------------------------------------------------------------------------------


def carries_every_trace(make: Ends) -> None:
    """Every alert of every job comes out once, in order, with all it says."""
    messages = list(chain.from_iterable(tiny.messages() for tiny in TINY_TRACES))
    _carries(make, messages, 3)


def carries_jobs_side_by_side(make: Ends) -> None:
    """Jobs that alternate keep their own order."""
    streams = [tiny.messages() for tiny in TINY_TRACES]
    longest = max(map(len, streams))
    rounds = [[s[number] for s in streams if number < len(s)] for number in range(longest)]
    _carries(make, list(chain.from_iterable(rounds)), 50)


def carries_odd_values(make: Ends) -> None:
    """Names of any script, times before the start, wall times or none, later epochs."""
    job = Job("Aufträge/ 7\u2028", ("a b", "節点", "ü,\n\"'"), "")
    rows = [(-1e6, "節点", "κ"), (-0.5, "a b", ""), (0.0, "ü,\n\"'", "x"), (1e9 + 0.25, "z", "x")]
    told = stream(job, rows, end=2e9, run="läuft", epoch=3)
    marked: list[Message] = []
    for number, message in enumerate(told):
        if isinstance(message, AlertSlice):
            wall = None if number % 2 else 1.7e9 + number / 8
            kept = replace(
                message, scheduled_wall=wall, published_wall=wall, catch_up=number % 3 == 0
            )
            marked += [kept, Watermark("läuft", 3, job.id, message.batch.at)]
        elif isinstance(message, JobEnded):
            marked.append(replace(message, complete=False))
        else:
            marked.append(message)
    _carries(make, marked, 1)


def carries_large_slices(make: Ends) -> None:
    """Thousands of alerts in one instant pass."""
    nodes = tuple(f"node-{number:05}" for number in range(5000))
    rows = [(float(number % 2), node, "link_flap") for number, node in enumerate(nodes)]
    _carries(make, stream(Job("large", nodes), rows), 100)


def names_only_what_was_seen(make: Ends) -> None:
    """A batch's tables of names hold the job's nodes, and else only names seen so far."""
    for tiny in TINY_TRACES:
        nodes, kinds = set(tiny.job.nodes), set[str]()
        for message in _transfer(make, tiny.messages(), 10):
            if not isinstance(message, AlertSlice):
                continue
            batch = message.batch
            nodes.update(alert.node for alert in batch)
            kinds.update(alert.kind for alert in batch)
            if tuple(batch.nodes[: len(tiny.job.nodes)]) != tiny.job.nodes:
                raise AssertionError(f"{tiny.name}: the job's nodes do not come first")
            if not (nodes.issuperset(batch.nodes) and kinds.issuperset(batch.kinds)):
                raise AssertionError(f"{tiny.name}: a batch at {batch.at} s knows later names")


def waits_and_returns(make: Ends) -> None:
    """Polling where nothing is gives nothing, and not the end; publishing nothing is allowed."""
    sink, source = make()
    with source, sink:
        sink.publish([])
        came = source.poll(0.01)
        if came is None or len(came):
            raise AssertionError(f"an empty transport gave {came!r}")


def closes_twice(make: Ends) -> None:
    """Both ends may be closed again; nothing can be published after that."""
    sink, source = make()
    sink.close()
    sink.close()
    try:
        sink.publish(TINY_TRACES[0].messages())
    except TransportError:
        pass
    else:
        raise AssertionError("a closed sink took messages")
    source.close()
    source.close()


def ends_with_its_sink(make: Ends) -> None:
    """When the sink is closed, the source gives what is left, and then None."""
    sink, source = make()
    messages = TINY_TRACES[0].messages()
    with source:
        with sink:
            sink.publish(messages)
        came = _read(source, _count(messages))
        if _events(came) != _events(messages):
            raise AssertionError(f"{messages} became {came}")
        for _ in range(2):
            if source.poll(0.5) is not None:
                raise AssertionError("the source does not say that no more will come")


CHECKS: tuple[Callable[[Ends], None], ...] = (
    carries_every_trace,
    carries_jobs_side_by_side,
    carries_odd_values,
    carries_large_slices,
    names_only_what_was_seen,
    waits_and_returns,
    closes_twice,
)
ENDINGS: tuple[Callable[[Ends], None], ...] = (ends_with_its_sink,)
