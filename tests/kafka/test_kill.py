"""Workers die without a word at any point; the verdicts are those of an undisturbed process."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from kafka_jobs import alone, interleaved, jobs_of, said
from kafka_victims import victims

from replay.transports.kafka.clients import client
from replay.transports.kafka.collect import collect
from replay.transports.kafka.outbox import ensure_topic
from replay.transports.kafka.settings import Settings
from replay.transports.kafka.sink import KafkaSink

pytestmark = pytest.mark.kafka
RUNS = 20
AT_ONCE = 5
PUBLISHING_S = 1.5


def one_run(address, number):
    """Two workers, one of them killed while alerts come in; what they said, and should have."""
    lots = random.Random(number)
    name = ("kafka-python", "confluent")[number % 2]
    source = Settings(
        address, f"killed-{number}", partitions=2, client=name, wait=60.0, session=1.0
    )
    target = source.on(f"killed-{number}-verdicts")
    jobs = jobs_of(4, 40, seed=number)
    messages = interleaved(jobs, seed=number)
    kafka = client(source)
    ensure_topic(source, kafka)
    ensure_topic(target, kafka)
    deaths = lots.uniform(0.0, PUBLISHING_S)
    with victims(2, source, target, source.topic) as workers:
        publish(source, messages, workers[lots.randrange(2)], deaths)
        collected = collect(target, jobs, idle=120.0)
    return collected, said(collected.verdicts), alone(jobs)


def publish(source, messages, victim, deaths):
    """Publish at a steady rate; the victim dies after so many seconds."""
    with KafkaSink(source) as sink:
        began = time.monotonic()
        for place, message in enumerate(messages):
            due = began + PUBLISHING_S * place / len(messages)
            time.sleep(max(0.0, due - time.monotonic()))
            sink.publish([message])
            if time.monotonic() - began > deaths:
                victim.kill()
    victim.kill()


@pytest.fixture(scope="module")
def outcomes(apache):
    with ThreadPoolExecutor(AT_ONCE) as hands:
        return [hands.submit(one_run, apache.address, number) for number in range(RUNS)]


@pytest.mark.parametrize("number", range(RUNS))
def test_a_killed_worker_changes_nothing(outcomes, number):
    collected, verdicts, expected = outcomes[number].result()
    assert verdicts == expected
    assert collected.complete
    assert collected.conflicts == 0


def test_something_was_said_twice(outcomes):
    """Else no worker died while it had something in hand, and nothing was shown."""
    assert sum(outcome.result()[0].duplicates for outcome in outcomes) > 0
