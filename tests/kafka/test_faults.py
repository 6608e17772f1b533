"""Brokers that freeze, vanish, restart and forget: every alert once and in order, or it is said."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import json
import re
import resource
import ssl
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import trustme
from forwarder import Forwarder
from kafka import KafkaAdminClient
from kafka_brokers import PASSWORD, Apache, Tansu, free_port, old_broker
from kafka_jobs import raw, stays, wait_for

from replay.api import Job
from replay.errors import TransportError
from replay.messages import AlertSlice, JobEnded
from replay.testing import stream
from replay.transports.kafka.settings import Settings
from replay.transports.kafka.sink import KafkaSink
from replay.transports.kafka.source import KafkaSource
from replay.transports.wire import Counters

pytestmark = pytest.mark.kafka
CLIENTS = ("kafka-python", "confluent")
RATE = 300
TROUBLE_S = 8.0


def job(alerts, name="Job1"):
    rows = [(n / 10, f"node-{n % 7}", f"kind-{n % 5}") for n in range(alerts)]
    return stream(Job(name, tuple(f"node-{n}" for n in range(7))), rows, run="r1")


def paced(sink, messages, rate=RATE):
    """Publish at a steady rate; the wall seconds of the longest call."""
    began, longest = time.monotonic(), 0.0
    for number, message in enumerate(messages):
        pause = began + number / rate - time.monotonic()
        if pause > 0:
            time.sleep(pause)
        before = time.monotonic()
        sink.publish([message])
        longest = max(longest, time.monotonic() - before)
    return longest


def read(settings, *, idle=3.0):
    """What is in the topic, until its job ends or nothing comes; with the counters."""
    with KafkaSource(settings) as source:
        messages, last = [], time.monotonic()
        while time.monotonic() - last < idle:
            if some := source.poll(0.2):
                messages += some
                last = time.monotonic()
            if messages and isinstance(messages[-1], JobEnded):
                break
        return messages, source.counters


def seqs(messages):
    return [alert.seq for m in messages if isinstance(m, AlertSlice) for alert in m.batch]


# ------------------------------------------------------------------ trouble on the way


def freeze(broker, forwarder):
    broker.freeze()
    time.sleep(TROUBLE_S)
    broker.thaw()


def cut(broker, forwarder):
    forwarder.cut(refuse=True)
    time.sleep(TROUBLE_S)
    forwarder.heal()


def flap(broker, forwarder):
    for _ in range(int(TROUBLE_S / 0.5)):
        forwarder.cut()
        time.sleep(0.5)


def delay(broker, forwarder):
    forwarder.delay = 0.1
    time.sleep(TROUBLE_S)
    forwarder.delay = 0.0


def kill_and_restart(broker, forwarder):
    broker.kill()
    time.sleep(3.0)
    broker.start()


def suffer(broker, forwarder, settings, trouble, seconds=11):
    """A replay of some seconds, in trouble after the first; everything that can be told of it."""
    messages = job(int(seconds * RATE))
    notes = []
    with KafkaSink(settings, note=notes.append) as sink, ThreadPoolExecutor(1) as hand:
        done = hand.submit(lambda: (time.sleep(1.0), trouble(broker, forwarder)))
        longest = paced(sink, messages)
        done.result()
    received, counters = read(settings)
    return {
        "sent": seqs(messages),
        "got": seqs(received),
        "counters": counters,
        "report": sink.report,
        "longest": longest,
        "notes": notes,
    }


SUFFERINGS = [
    (trouble, name) for trouble in (freeze, cut, flap, delay, kill_and_restart) for name in CLIENTS
]


@pytest.fixture(scope="module")
def sufferings(tmp_path_factory):
    """All troubles at once, each with a broker of its own: they mostly wait."""

    def one(trouble, name, folder):
        kind = Apache if trouble is kill_and_restart else Tansu
        broker = kind(folder)
        with Forwarder(broker.port) as forwarder:
            if kind is Tansu:
                broker.advertised = forwarder.port
            with broker:
                settings = Settings(broker.address, "alerts", 1, client=name, wait=120.0)
                return suffer(broker, forwarder, settings, trouble)

    folders = {
        case: tmp_path_factory.mktemp(f"{case[0].__name__}-{case[1]}") for case in SUFFERINGS
    }
    with ThreadPoolExecutor(len(SUFFERINGS)) as hands:
        return {case: hands.submit(one, *case, folders[case]) for case in SUFFERINGS}


@pytest.mark.parametrize("case", SUFFERINGS, ids=lambda case: f"{case[0].__name__}-{case[1]}")
def test_nothing_is_lost_doubled_or_reordered(sufferings, case):
    outcome = sufferings[case].result()
    assert outcome["got"] == outcome["sent"]
    assert outcome["counters"] == Counters()
    report = outcome["report"]
    assert (report.unacked, report.losses, report.producers) == (0, [], 1)
    assert report.acked == report.sent
    assert report.outages or case[0] in {flap, delay}
    assert all(outage.end_wall is not None for outage in report.outages)


@pytest.mark.parametrize("name", CLIENTS)
def test_a_broker_that_forgets_is_reported(tmp_path, name):
    """The broker restarts empty: a new producer goes on with what was not acknowledged."""
    messages = job(1500)
    notes = []
    with Tansu(tmp_path) as broker:
        settings = Settings(broker.address, "alerts", 1, client=name, wait=30.0)
        with KafkaSink(settings, note=notes.append) as sink, ThreadPoolExecutor(1) as hand:

            def forget():
                wait_for(lambda: sink.report.acked > RATE)
                kill_and_restart(broker, None)

            done = hand.submit(forget)
            paced(sink, messages)
            done.result()
        kept = [json.loads(record.value) for record in raw(settings)]
    report = sink.report
    assert (report.unacked, report.acked) == (0, report.sent)
    assert report.producers >= 2
    (loss,) = report.losses
    last, at = loss.jobs["Job1"]
    assert loss.records == last + 2  # its alerts and its start
    assert at == last / 10
    assert 0 < loss.end_wall - loss.start_wall < 60
    assert any("forgot" in note for note in notes)
    # it went on with the first alert that was not acknowledged
    assert [record["seq"] for record in kept[:-1]] == list(range(last + 1, 1500))
    assert kept[-1]["count"] == 1500


# ------------------------------------------------------------------ what can never be delivered


def test_a_refused_record_fails_the_publisher(apache, client_name, topic):
    settings = Settings(apache.address, topic, client=client_name, wait=20.0)
    admin = KafkaAdminClient(bootstrap_servers=apache.address)
    admin.create_topics(
        {
            topic: {
                "num_partitions": 1,
                "replication_factor": 1,
                "configs": {"max.message.bytes": "200"},
            }
        }
    )
    admin.close()
    with (
        pytest.raises(TransportError, match=r"does not take a record .*(?i:size ?too ?large)"),
        KafkaSink(settings) as sink,
    ):
        sink.publish(job(100))
    assert sink.report.acked < sink.report.sent


def test_a_message_too_large_for_the_client(apache, client_name, topic):
    settings = Settings(apache.address, topic, client=client_name, wait=20.0)
    messages = stream(Job("Job1", ("n" * 2_000_000,)), [], run="r1")
    with (
        pytest.raises(TransportError, match="does not take a record for topic"),
        KafkaSink(settings) as sink,
    ):
        sink.publish(messages)


def test_a_topic_that_cannot_be_made(apache, client_name):
    settings = Settings(apache.address, "no such/name", client=client_name, wait=20.0)
    with pytest.raises(TransportError, match="cannot be made"):
        KafkaSink(settings)
    with pytest.raises(TransportError, match="cannot be made"):
        KafkaSink(settings.on("three-copies").but(replication=3))


def test_failing_is_a_policy(tmp_path, client_name):
    with Tansu(tmp_path) as broker:
        settings = Settings(broker.address, "alerts", 1, client=client_name, wait=2.0)
        sink = KafkaSink(settings, on_loss="fail")
        sink.publish(job(10)[:-1])
        wait_for(lambda: sink.report.unacked == 0)
        broker.freeze()
        sink.publish(job(10, "Job2"))
        with pytest.raises(TransportError, match=r"nothing for \d+ s; 12 records are lost\..*wait"):
            sink.close()


def resident():
    """Bytes of memory that this process has; not the most it ever had."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_memory_stays_flat_while_the_broker_is_frozen(tmp_path, client_name):
    messages = job(40_000)
    with Tansu(tmp_path) as broker:
        settings = Settings(broker.address, "alerts", 1, client=client_name, unacked=5000)
        with KafkaSink(settings) as sink:
            sink.publish(messages[:1])
            broker.freeze()
            publisher = threading.Thread(target=sink.publish, args=(messages[1:],))
            publisher.start()
            wait_for(lambda: sink.report.unacked == 5000)
            full = resident()
            wait_for(lambda: sink.report.outages)
            stays(lambda: sink.report.unacked)
            assert sink.report.unacked == 5000
            assert sink.report.blocked_seconds == 0  # it is still in it
            assert resident() - full < 8 << 20  # 35,000 records would be 28 MB
            broker.thaw()
            publisher.join(120)
        received, counters = read(settings)
    assert seqs(received) == list(range(40_000))
    assert counters == Counters()
    assert sink.report.blocked_seconds > 1


def test_standing_still_is_a_policy(tmp_path, client_name):
    """Once it is known that the broker is away nothing more piles up, however much room."""
    messages = job(3 * RATE)
    with Tansu(tmp_path) as broker:
        settings = Settings(broker.address, "alerts", 1, client=client_name)
        with KafkaSink(settings, on_loss="pause") as sink, ThreadPoolExecutor(1) as hand:
            sink.publish(messages[:1])
            broker.freeze()
            done = hand.submit(lambda: paced(sink, messages[1:]))
            wait_for(lambda: sink.report.outages)
            noticed = sink.report.sent
            assert noticed < len(messages)
            assert stays(lambda: sink.report.sent) <= noticed + 1  # the one in hand
            broker.thaw()
            assert done.result() > 1.0
        assert read(settings)[1] == Counters()


# ------------------------------------------------------------------ who does not get in


class _Web(BaseHTTPRequestHandler):
    timeout = 0.5  # it hears one at a time, and a client that says nothing is not to hold it up

    def log_message(self, *_):
        pass


@pytest.fixture
def web():
    server = HTTPServer(("127.0.0.1", 0), _Web)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    ours, others = trustme.CA(), trustme.CA()
    ours.cert_pem.write_to_path(folder / "ours.pem")
    others.cert_pem.write_to_path(folder / "others.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ours.issue_cert("127.0.0.1").configure_cert(context)
    return folder, context


def refused(settings):
    """The sentence one gets, and the wall seconds until then."""
    began = time.monotonic()
    with pytest.raises(TransportError) as caught:
        KafkaSink(settings)
    assert caught.value.exit_code == 5
    return str(caught.value), time.monotonic() - began


def test_nobody_there(client_name):
    address = f"127.0.0.1:{free_port()}"
    text, took = refused(Settings(address, "alerts", client=client_name, wait=1.5))
    assert text.startswith(f"Kafka at {address} did not answer in 1.5 s: ")
    assert "REFUSED" in text.upper()
    assert took < 10


def test_a_broker_that_comes_late_is_waited_for(tmp_path, client_name):
    broker = Tansu(tmp_path)
    with ThreadPoolExecutor(1) as hand:
        settings = Settings(broker.address, "alerts", client=client_name, wait=60.0)
        waiting = hand.submit(KafkaSink, settings)
        stays(waiting.done)
        assert not waiting.done()
        with broker:
            waiting.result().close()


def test_not_a_broker(web, client_name):
    text, _ = refused(Settings(f"127.0.0.1:{web}", "alerts", client=client_name, wait=1.5))
    assert text.startswith(f"Kafka at 127.0.0.1:{web} did not answer in 1.5 s: ")


@pytest.mark.parametrize("topics", [(), ("alerts",)])
def test_a_broker_of_another_version(client_name, topics, capfd):
    with old_broker(*topics) as address:
        settings = Settings(address, "alerts", client=client_name, wait=20.0)
        with pytest.raises(TransportError) as caught, KafkaSink(settings) as sink:
            sink.publish(job(10))
    assert str(caught.value).startswith(
        f"Kafka at {address} is of a version that this client does not speak with: "
    )
    assert "Try: a broker of version" in str(caught.value)
    assert caught.value.exit_code == 5
    assert capfd.readouterr().err == ""


def test_tls(tansu, certificates, client_name, tmp_path):
    folder, context = certificates
    broker = Tansu(tmp_path)
    with contextlib.ExitStack() as stack:
        forwarder = stack.enter_context(Forwarder(broker.port, context))
        broker.advertised = forwarder.port
        stack.enter_context(broker)
        settings = Settings(
            broker.address,
            "alerts",
            client=client_name,
            wait=10.0,
            properties={"security.protocol": "ssl", "ssl.ca.location": str(folder / "ours.pem")},
        )
        messages = job(20)
        with KafkaSink(settings) as sink:
            sink.publish(messages)
        assert seqs(read(settings)[0]) == list(range(20))

        def using(**properties):
            return dataclasses.replace(
                settings,
                properties={k.replace("_", "."): v for k, v in properties.items()},
                wait=2.0,
            )

        text, _ = refused(
            using(security_protocol="SSL", ssl_ca_location=str(folder / "others.pem"))
        )
        assert "has a certificate that is not trusted" in text
        text, _ = refused(using())  # plain words to a TLS port
        assert text.startswith(f"Kafka at {broker.address} did not answer in 2 s: ")
    secure = using(security_protocol="SSL", ssl_ca_location=str(folder / "ours.pem"))
    text, _ = refused(dataclasses.replace(secure, servers=tansu.address))
    assert "is it the right port for this security.protocol?" in text


def test_sasl(apache, client_name, topic, tmp_path):
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f"sasl.username=alice\nsasl.password={PASSWORD}\n"
    )
    url = f"kafka://{apache.sasl_address}/{topic}?client={client_name}&wait=5"
    settings = Settings.parse(f"{url}&config={file}")
    assert PASSWORD not in repr(settings)
    with KafkaSink(settings) as sink:
        sink.publish(job(20))
    assert seqs(read(settings)[0]) == list(range(20))
    wrong = Settings.parse(url, {"ALERT_REPLAY_KAFKA_SASL_PASSWORD": "guess"}, str(file))
    text, _ = refused(wrong)
    # the broker's word and its hanging up race in kafka-python
    said = "(refused|hung up, most likely over) the credentials: .* sasl.password in --kafka-config"
    assert re.match(f"Kafka at {apache.sasl_address} {said}", text)
    assert "guess" not in text
    text, _ = refused(Settings.parse(url.replace("wait=5", "wait=1.5")))
    assert f"Kafka at {apache.sasl_address} " in text
