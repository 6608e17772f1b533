"""Each way to break the transport's contract is caught, by the check that is there for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from replay.api import AlertBatch
from replay.errors import TransportError
from replay.messages import AlertSlice, JobEnded
from replay.testing import transport_checks
from replay.transports.memory import Channel


class Bad:
    """A transport that works; its subclasses do not."""

    def __init__(self):
        channel = Channel()
        self.sink, self.source = channel.sink, channel.source
        self.put, self.get = channel.put, channel.take
        self.sink.publish = self.publish
        self.source.poll = self.poll

    def publish(self, messages):
        self.put(messages)

    def poll(self, timeout):
        return self.get(timeout)


class Loses(Bad):
    def publish(self, messages):
        self.put([m for m in messages if not (isinstance(m, AlertSlice) and m.batch.seq[0] == 2)])


class Repeats(Bad):
    def publish(self, messages):
        self.put([m for m in messages for _ in range(1 + isinstance(m, AlertSlice))])


class Swaps(Bad):
    def publish(self, messages):
        self.put([*messages[1:2], *messages[:1], *messages[2:]])


def renamed(message, rename):
    """The same slice with another table of nodes; other messages as they are."""
    if not isinstance(message, AlertSlice):
        return message
    batch = message.batch
    columns = batch.seq, batch.node, batch.kind
    other = AlertBatch(batch.job, batch.at, *columns, rename(batch.nodes), batch.kinds)
    return replace(message, batch=other)


class Mumbles(Bad):
    """Changes names that are not plain ASCII."""

    def publish(self, messages):
        def plain(nodes):
            return tuple(node.encode("ascii", "replace").decode() for node in nodes)

        self.put([renamed(message, plain) for message in messages])


class ForgetsWallTimes(Bad):
    def publish(self, messages):
        self.put(
            [replace(m, scheduled_wall=None) if isinstance(m, AlertSlice) else m for m in messages]
        )


class KnowsTheFuture(Bad):
    """Ships one table of names for all batches."""

    def publish(self, messages):
        def whole(nodes):
            return tuple(dict.fromkeys([*nodes, "node-z", "node-y", "node-x", "node-w"]))

        self.put([renamed(message, whole) for message in messages])


class Chokes(Bad):
    """Cuts large slices off."""

    def publish(self, messages):
        for message in messages:
            if isinstance(message, AlertSlice) and len(message.batch) > 1000:
                message = replace(message, batch=self.cut(message.batch))  # noqa: PLW2901 - the same
            self.put([message])

    @staticmethod
    def cut(batch):
        columns = (column[:1000] for column in (batch.seq, batch.node, batch.kind))
        return AlertBatch(batch.job, batch.at, *columns, batch.nodes, batch.kinds)


class EndsTooSoon(Bad):
    def poll(self, timeout):
        return self.get(timeout) or None


class NeverEnds(Bad):
    def poll(self, timeout):
        return self.get(min(timeout, 0.01)) or []


class TakesAnything(Bad):
    """Publishes into the void when it is closed."""

    def publish(self, messages):
        try:
            self.put(messages)
        except TransportError:
            return


class SaysAllIsComplete(Bad):
    def publish(self, messages):
        self.put([replace(m, complete=True) if isinstance(m, JobEnded) else m for m in messages])


CARRIES = {"carries_every_trace", "carries_jobs_side_by_side", "carries_odd_values"}
CAUGHT = {
    Bad: set(),
    Loses: CARRIES | {"names_only_what_was_seen"},
    Repeats: CARRIES | {"carries_large_slices"},
    Swaps: {"carries_every_trace", "carries_large_slices", "ends_with_its_sink"},
    Mumbles: {"carries_odd_values"},
    ForgetsWallTimes: {"carries_odd_values"},
    KnowsTheFuture: {"names_only_what_was_seen"},
    Chokes: {"carries_large_slices"},
    EndsTooSoon: {"waits_and_returns"},
    NeverEnds: {"ends_with_its_sink"},
    TakesAnything: {"closes_twice"},
    SaysAllIsComplete: {"carries_odd_values"},
}


def maker(transport):
    def make():
        made = transport()
        return made.sink, made.source

    return make


def failing(transport, **options):
    names = set()
    for check in transport_checks(maker(transport), **options):
        try:
            check()
        except AssertionError:
            names.add(check.__name__)
    return names


@pytest.mark.parametrize("transport", CAUGHT, ids=lambda transport: transport.__name__)
def test_caught(transport):
    assert failing(transport) == CAUGHT[transport]


def test_a_transport_may_not_know_its_end():
    assert failing(NeverEnds, ends=False) == set()


def test_checks_are_named_and_documented():
    checks = transport_checks(maker(Bad))
    names = [check.__name__ for check in checks]
    assert len(set(names)) == len(names) == 8
    assert all(check.__doc__ for check in checks)
