"""Workers of a group say what one process says, whatever happens to them."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import threading

import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka_jobs import SPECS, Crew, alone, interleaved, jobs_of, raw, said, wait_for

from replay.api import Detector, Verdict
from replay.errors import TransportError
from replay.host import JobHost
from replay.messages import AlertSlice, JobStarted
from replay.plugins import DetectorSpec
from replay.transports.kafka.clients import client
from replay.transports.kafka.collect import collect
from replay.transports.kafka.outbox import Outbox
from replay.transports.kafka.sink import KafkaSink
from replay.transports.kafka.worker import Worker
from replay.transports.wire import Encoder

pytestmark = pytest.mark.kafka


@pytest.fixture
def target(settings):
    return settings.on(f"{settings.topic}-verdicts")


@pytest.fixture
def quick(settings):
    """Settings with which a group notices in two seconds that a member is gone."""
    return settings.but(session=2.0, partitions=4)


def work_off(source, target, records, *, group="", watch=None, **options):
    """One worker until it has read so many records; what it did."""
    worker = Worker(source, target, group or source.topic, watch or hosts, **options)
    with on_thread(worker):
        wait_for(lambda: worker.work.records >= records)
    return worker.work


@contextlib.contextmanager
def on_thread(worker):
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield
    finally:
        worker.stop()
        thread.join(60)


def hosts():
    return JobHost(SPECS)


def publish(settings, messages):
    with KafkaSink(settings) as sink:
        sink.publish(messages)
    return sink.report.sent


def test_one_worker_says_what_one_process_says(quick, target):
    jobs = jobs_of(6, 60)
    publish(quick, interleaved(jobs))
    with Crew(quick, target) as crew:
        crew.add()
        collected = crew.collected(jobs)
        (work,) = crew.finish()
    assert said(collected.verdicts) == alone(jobs)
    assert collected.complete
    assert (collected.duplicates, collected.conflicts, collected.poisoned) == (0, 0, 0)
    assert collected.detectors == ("Quiet", "burst")
    assert (work.jobs, work.alerts, work.open_jobs) == (6, 360, 0)
    assert (work.counters.gaps, work.counters.duplicates, work.counters.corrupt) == (0, 0, 0)
    assert work.committed_lag == 0


def test_partitions_change_hands_and_nothing_is_lost(quick, target):
    """Two workers, then one, then two, while jobs are open: no gap, and the same verdicts."""
    jobs = jobs_of(8, 80)
    mixed = interleaved(jobs)
    third = len(mixed) // 3
    works = []
    with Crew(quick, target) as crew, KafkaSink(quick) as sink:
        crew.add()
        crew.add()
        sink.publish(mixed[:third])
        wait_for(lambda: crew.records() >= third // 2)
        works.append(crew.remove())
        sink.publish(mixed[third : 2 * third])
        wait_for(lambda: crew.records() >= third // 2)
        crew.add()
        sink.publish(mixed[2 * third :])
        collected = crew.collected(jobs)
        works += crew.finish()
    assert said(collected.verdicts) == alone(jobs)
    assert collected.complete
    assert collected.conflicts == 0
    assert [(w.counters.gaps, w.counters.reorders, w.counters.corrupt) for w in works] == [
        (0, 0, 0)
    ] * 3
    assert sum(work.jobs for work in works) >= 8
    assert all(not work.dead_letters for work in works)


def test_a_poison_record_goes_to_the_dead_letters(quick, target):
    jobs = jobs_of(2, 30)
    messages = interleaved(jobs)
    half = len(messages) // 2
    encoder = Encoder()
    outbox = Outbox(quick)
    for message in messages[:half]:
        outbox.put(job_of(message), encoder.encode(message))
    outbox.put("Job1", [b"no JSON", b'{"v":2}'], [("trace", b"x")])
    for message in messages[half:]:
        outbox.put(job_of(message), encoder.encode(message))
    outbox.close()
    with Crew(quick, target) as crew:
        crew.add()
        collected = crew.collected(jobs)
        (work,) = crew.finish()
    assert said(collected.verdicts) == alone(jobs)  # later records are handled
    assert work.dead_letters == {"json": 1, "version": 1}
    letters = raw(quick.on(f"{quick.topic}.dlq"))
    assert [letter.value for letter in letters] == [b"no JSON", b'{"v":2}']
    poison = {r.value: r for r in raw(quick) if r.value in {b"no JSON", b'{"v":2}'}}
    for told, letter in zip(headers_of(letters, quick), letters, strict=True):
        origin = poison[letter.value]
        assert told["topic"] == quick.topic
        assert (told["partition"], told["offset"]) == (str(origin.partition), str(origin.offset))
        assert told["key"] == "Job1"
        assert told["reason"] in told["error"]


def headers_of(letters, settings):
    """The headers of the dead letters, which our own reader has no use for."""
    consumer = KafkaConsumer(bootstrap_servers=settings.servers, enable_auto_commit=False)
    place = TopicPartition(f"{settings.topic}.dlq", 0)
    consumer.assign([place])
    consumer.seek_to_beginning(place)
    found = []
    while len(found) < len(letters):
        for records in consumer.poll(1000).values():
            found += [{key: value.decode() for key, value in r.headers} for r in records]
    consumer.close()
    return found


def job_of(message):
    if isinstance(message, JobStarted):
        return message.job.id
    return message.batch.job if isinstance(message, AlertSlice) else message.job


def test_poison_can_be_skipped_or_fail(quick, target):
    jobs = jobs_of(1, 10)
    outbox = Outbox(quick)
    outbox.put("Job1", [b"no JSON"])
    outbox.close()
    publish(quick, jobs["Job1"])
    worker = Worker(quick, target, f"{quick.topic}-1", hosts, on_poison="fail")
    with pytest.raises(TransportError, match=r"offset 0: json: not JSON in UTF-8.*--on-poison"):
        worker.run()
    skipping = Worker(quick, target, f"{quick.topic}-2", hosts, on_poison="skip", idle_exit=2.0)
    assert skipping.run().jobs == 1
    assert worker.work.dead_letters == skipping.work.dead_letters == {"json": 1}
    assert f"{quick.topic}.dlq" not in client(quick).topics(quick)


def test_a_new_owner_skips_what_is_judged(quick, target):
    """A job ends while another is open: who reads the open one again meets the tail of the other."""
    jobs = jobs_of(2, 40, prefix="Same")
    one, other = jobs.values()
    one_partition = quick.but(partitions=1)
    with KafkaSink(one_partition) as sink:
        sink.publish(one[:5])
        head = sink.report.sent
        sink.publish(other[:20])
        sink.publish(one[5:])  # over, before the other is
        count = sink.report.sent
        first = work_off(one_partition, target, count)
        sink.publish(other[20:])
        second = work_off(one_partition, target, sink.report.sent - head)
    assert (first.jobs, first.open_jobs, first.skipped) == (1, 1, 0)
    assert (second.jobs, second.open_jobs) == (1, 0)
    assert second.skipped > 0
    assert not second.dead_letters
    collected = collect(target, jobs)
    assert said(collected.verdicts) == alone(jobs)
    assert (collected.complete, collected.conflicts) == (True, 0)


def test_a_crashed_detector_is_told(quick, target):
    class Crash(Detector):
        def observe(self, alert):
            if alert.seq == 3:
                raise RuntimeError("boom")
            return ()

    jobs = jobs_of(1, 10)
    sent = publish(quick, jobs["Job1"])
    specs = (DetectorSpec.of(Crash), *SPECS)
    work = work_off(quick, target, sent, watch=lambda: JobHost(specs))
    assert [(failure.detector, failure.job) for failure in work.failures] == [("Crash", "Job1")]
    collected = collect(target, jobs)
    assert "boom" in collected.judged["Job1"].failed["Crash"]
    assert said(collected.verdicts) == alone(jobs)


def test_verdicts_of_a_detector_with_a_will_of_its_own_conflict(quick, target):
    class Moody(Detector):
        moods = itertools.count()

        def observe(self, alert):
            yield Verdict(alert.node, score=float(next(self.moods)))

    jobs = jobs_of(1, 5)
    sent = publish(quick, jobs["Job1"])
    moody = (DetectorSpec.of(Moody),)
    for group in ("one", "other"):
        work_off(quick, target, sent, group=f"{quick.topic}-{group}", watch=lambda: JobHost(moody))
    collected = collect(target, jobs)
    assert (collected.duplicates, collected.conflicts) == (5, 5)


def test_a_job_that_is_never_judged_is_missing(quick, target):
    jobs = jobs_of(2, 10)
    sent = publish(quick, jobs["Job1"] + jobs["Job2"][:-1])
    work = work_off(quick, target, sent)
    assert (work.jobs, work.open_jobs) == (1, 1)
    collected = collect(target, jobs, idle=1.0)
    assert collected.missing == ("Job2",)
    assert not collected.complete
    assert {verdict.job for verdict in collected.verdicts} == {"Job1", "Job2"}


def test_a_seek_begins_a_job_anew(quick, target):
    before = jobs_of(1, 20)["Job1"]
    after = [dataclasses.replace(message, epoch=1) for message in jobs_of(1, 20, seed=5)["Job1"]]
    work = work_off(quick, target, publish(quick, before[:10] + after))
    assert (work.jobs, work.open_jobs) == (1, 0)
    collected = collect(target, ["Job1"])
    assert said(collected.verdicts) == alone({"Job1": after})
    assert {verdict.epoch for verdict in collected.verdicts} == {1}


def test_the_newest_run_is_taken_unless_one_is_named(quick, target):
    old, new = jobs_of(1, 20, run="old"), jobs_of(1, 20, seed=7, run="new")
    work_off(quick, target, publish(quick, old["Job1"]) + publish(quick, new["Job1"]))
    notes = []
    assert said(collect(target, ["Job1"], note=notes.append).verdicts) == alone(new)
    assert notes == ["2 runs are in this topic; taking new"]
    assert said(collect(target, ["Job1"], run="old").verdicts) == alone(old)
    with pytest.raises(TransportError, match="holds no verdict of run 'older'"):
        collect(target, ["Job1"], run="older", idle=0.5)


def test_there_must_be_a_topic(quick, target):
    with pytest.raises(TransportError, match=f"There is no topic '{quick.topic}'"):
        Worker(quick.but(wait=0.0), target, quick.topic, hosts)
    with pytest.raises(TransportError, match=f"There is no topic '{target.topic}'"):
        collect(target, ["Job1"])
