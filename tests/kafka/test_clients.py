"""The two client libraries agree, and what they need is said."""

from __future__ import annotations

import sys

import confluent_kafka
import pytest
from kafka.partitioner.default import DefaultPartitioner
from kafka_jobs import raw

from replay.errors import ConfigError, TransportError, UsageError
from replay.transports.kafka.clients import client
from replay.transports.kafka.outbox import Outbox, ensure_topic
from replay.transports.kafka.partitions import partition_of
from replay.transports.kafka.settings import Settings, read_properties

JOBS = [f"Job{number}" for number in range(1, 99)]


class Cluster:
    """What kafka-python's partitioner asks of a cluster."""

    def topics(self):
        return {"t"}

    def partitions_for_topic(self, topic):
        return set(range(7))

    available_partitions_for_topic = partitions_for_topic


class Forgetful:
    """A client of brokers that tell of a new topic only after some questions."""

    def __init__(self, questions):
        self.left = questions
        self.made = {}

    def topics(self, settings):
        self.left -= bool(self.made)
        return {} if self.left > 0 else self.made

    def create(self, settings, partitions):
        self.made[settings.topic] = partitions


def test_a_new_topic_is_there_for_readers_too():
    kafka = Forgetful(3)
    assert ensure_topic(Settings("127.0.0.1:1", "new", partitions=2), kafka) == 2
    assert kafka.topics(None) == {"new": 2}
    with pytest.raises(TransportError, match=r"'new' .* but does not appear"):
        ensure_topic(Settings("127.0.0.1:1", "new", wait=0), Forgetful(10**9))


def test_kafka_python_puts_jobs_where_we_do():
    places = DefaultPartitioner()
    for job in [*JOBS, "", "☃", "x" * 41]:
        key = job.encode()
        assert places.partition("t", job, key, None, None, Cluster()) == partition_of(key, 7)


@pytest.mark.kafka
def test_librdkafka_puts_jobs_where_we_do(tansu, topic):
    settings = Settings(tansu.address, topic, partitions=7, client="confluent")
    Outbox(settings).close()
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": tansu.address, "partitioner": "murmur2_random"}
    )
    for job in JOBS:
        producer.produce(topic, b"{}", job.encode())
    producer.flush()
    records = raw(settings)
    assert len(records) == len(JOBS)
    assert all(record.partition == partition_of(record.key, 7) for record in records)


@pytest.mark.kafka
def test_both_write_the_same_bytes_to_the_same_places(broker, topic):
    written = []
    for name in ("kafka-python", "confluent"):
        settings = Settings(broker.address, f"{topic}-{name}", partitions=7, client=name)
        outbox = Outbox(settings)
        for job in JOBS:
            outbox.put(job, [b'{"v":1}', b"2"], [("h", b"x")])
        outbox.close()
        written.append({(r.partition, r.offset, r.key, r.value) for r in raw(settings)})
    assert written[0] == written[1]
    assert len(written[0]) == 2 * len(JOBS)


@pytest.mark.kafka
def test_a_missing_checksum_library_is_told(tansu, topic, monkeypatch):
    settings = Settings(tansu.address, topic, client="kafka-python")
    monkeypatch.setitem(sys.modules, "crc32c", None)
    with pytest.warns(RuntimeWarning, match="crc32c is not installed: .* slower without it"):
        client(settings).producer(settings).close(1.0)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("kafka://", "does not name a topic"),
        ("kafka://host:1", "does not name a topic"),
        ("kafka://host:1/a/b", "does not name a topic"),
        ("memory:", "does not name a topic"),
        ("kafka://host:x/t", "'host:x' is not host:port"),
        ("kafka://host:0/t", "'host:0' is not host:port"),
        ("kafka://:1/t", "':1' is not host:port"),
        ("kafka://me:secret@host:1/t", "A URL is no place for a password"),
        ("kafka://host:1/t?colour=red", "no option 'colour'"),
        ("kafka://host:1/t?partitions=0", "partitions '0' is not a whole number of at least 1"),
        ("kafka://host:1/t?partitions=1.5", "partitions '1.5' is not a whole number"),
        ("kafka://host:1/t?wait=nan", "wait 'nan' is not a number of at least 0"),
        ("kafka://host:1/t?client=java", "client 'java' is none of auto, kafka-python, confluent"),
    ],
)
def test_what_is_no_topic_is_told(url, words):
    with pytest.raises(UsageError) as caught:
        Settings.parse(url)
    assert words in str(caught.value)
    assert "secret" not in str(caught.value)


def test_what_a_url_says():
    said = Settings.parse("kafka://one,two:9,[::1]:7/alerts%21?partitions=8&linger=0&wait=2.5")
    assert said.servers == "one:9092,two:9,[::1]:7"
    assert (said.topic, said.partitions, said.linger_ms, said.wait) == ("alerts!", 8, 0, 2.5)


def test_properties_come_from_a_file_and_the_environment(tmp_path):
    file = tmp_path / "client.properties"
    file.write_text("# ours\n\nsasl.mechanisms = PLAIN\nsasl.password=a=b\nbootstrap.servers=x:1\n")
    environ = {"ALERT_REPLAY_KAFKA_SASL_USERNAME": "me", "HOME": "/"}
    assert read_properties(str(file), environ) == {
        "sasl.mechanism": "PLAIN",
        "sasl.password": "a=b",
        "sasl.username": "me",
    }
    settings = Settings.parse(f"kafka://h/t?config={file}", {"ALERT_REPLAY_KAFKA_CLIENT_ID": "c"})
    assert settings.properties["client.id"] == "c"
    assert "a=b" not in repr(settings)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sasl.pasword=hush", "1: there is no property 'sasl.pasword'.  Try: sasl.password"),
        ("sasl.password hush", "1: not name=value"),
        ("ssl.ca.location=/no/such", "there is no file '/no/such' for ssl.ca.location"),
    ],
)
def test_properties_that_do_not_fit_are_told_without_their_value(tmp_path, text, words):
    file = tmp_path / "client.properties"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_properties(str(file), {})
    assert words in str(caught.value)
    assert "hush" not in str(caught.value)


def test_a_file_of_properties_must_be_there(tmp_path):
    with pytest.raises(ConfigError, match="Cannot read"):
        read_properties(str(tmp_path / "none"), {})
