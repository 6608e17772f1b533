"""Sink and source through real brokers: what the memory transport promises, they keep."""

from __future__ import annotations

import itertools
import json
import time

import pytest
from kafka_jobs import raw

from replay.engine import Playback, Player
from replay.errors import TransportError
from replay.messages import AlertSlice
from replay.testing import TINY_TRACES, transport_checks
from replay.timeline import Timeline
from replay.transports import open_sink, open_source
from replay.transports.kafka.clients import client
from replay.transports.kafka.sink import KafkaSink
from replay.transports.kafka.source import KafkaSource
from replay.transports.wire import Counters

pytestmark = pytest.mark.kafka


def both_ends(settings):
    numbers = itertools.count()

    def make():
        fresh = settings.on(f"{settings.topic}-{next(numbers)}")
        sink = KafkaSink(fresh)
        return sink, KafkaSource(fresh)

    return make


def test_the_contract_of_every_transport(settings):
    for check in transport_checks(both_ends(settings), ends=False):
        check()


def read_all(settings, ends, **options):
    with KafkaSource(settings, ends=ends, **options) as source:
        messages = []
        deadline = time.monotonic() + 60
        while (some := source.poll(0.2)) is not None:
            messages += some
            assert time.monotonic() < deadline
        return messages, source


def plain(messages):
    return [
        (m.run, m.batch.alerts, m.scheduled_wall) if isinstance(m, AlertSlice) else m
        for m in messages
    ]


@pytest.mark.parametrize("speed", ["max", 5000.0])
def test_a_replay_arrives_as_it_left(settings, speed):
    trace = next(tiny for tiny in TINY_TRACES if tiny.name == "culprit").trace()
    sent = []
    with KafkaSink(settings) as sink:

        def publish(messages):
            sent.extend(messages)
            sink.publish(messages)

        played = Player(Timeline.build(trace), publish, Playback(speed=speed), run="r1").play()
    received, source = read_all(settings, 1, run="r1")
    assert plain(received) == plain(sent)
    assert source.counters == Counters()
    report = sink.report
    assert played.alerts == sum(len(m.batch) for m in received if isinstance(m, AlertSlice))
    assert (report.sent, report.unacked, report.losses) == (report.acked, 0, [])
    assert report.producers == 1


def test_what_was_there_before_can_be_left_out(settings):
    """One partition, in batches of one: some brokers take the last batch for new."""
    one = settings.but(partitions=1)
    old, new = (TINY_TRACES[number].messages() for number in (1, 2))
    with KafkaSink(one) as sink:
        for message in old:
            sink.publish([message])
    with KafkaSource(one, new=True) as source:
        with KafkaSink(one) as sink:
            sink.publish(new)
        received = []
        while not received or received[-1] != new[-1]:
            received += source.poll(1.0)
    assert plain(received) == plain(new)
    assert source.poisoned <= len(old)


def test_by_url(broker, client_name, topic):
    url = f"kafka://{broker.address}/{topic}?client={client_name}&partitions=2&wait=20"
    messages = TINY_TRACES[1].messages()
    with open_sink(url) as sink:
        sink.publish(messages)
    with open_source(url) as source:
        received = []
        while len(received) < len(messages):
            received += source.poll(1.0)
    assert plain(received) == plain(messages)


def test_event_times_of_1969_stay_in_the_value(settings):
    tiny = next(tiny for tiny in TINY_TRACES if tiny.name == "culprit")
    with KafkaSink(settings) as sink:
        sink.publish(tiny.messages())
    records = raw(settings)
    assert {record.key for record in records} == {b"culprit"}
    assert len({record.partition for record in records}) == 1
    assert all(abs(record.wall - time.time()) < 60 for record in records)
    alerts = [json.loads(r.value) for r in records if b'"type":"alert"' in r.value]
    assert [(a["t"], a["event_time"]) for a in alerts[:1]] == [(12.0, "1969-12-31 23:00:12")]


def test_the_truth_never_travels(settings):
    words = set()
    with KafkaSink(settings) as sink:
        for tiny in TINY_TRACES:
            trace = tiny.trace()
            words |= set(trace.jobs[0].ip_status.values())
            Player(Timeline.build(trace), sink.publish, run="r1").play()
    assert words >= {"normal", "faulty"}
    for record in raw(settings):
        text = record.value.decode()
        assert "ip_status" not in text
        assert not words & set(text.split('"'))


def test_a_topic_is_made_with_the_partitions_asked_for(settings):
    KafkaSink(settings.but(partitions=7)).close()
    assert client(settings).topics(settings)[settings.topic] == 7
    KafkaSink(settings).close()  # and taken as it is when nothing is asked
    with pytest.raises(TransportError, match="has 7 partitions, 8 were asked for"):
        KafkaSink(settings.but(partitions=8))


def test_there_is_nothing_to_read_without_a_topic(settings):
    with pytest.raises(TransportError, match=f"There is no topic '{settings.topic}' at 127"):
        KafkaSource(settings)
    assert settings.topic not in client(settings).topics(settings)
