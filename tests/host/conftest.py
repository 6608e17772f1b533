"""Detectors that show what the host does, and an observer that writes it down."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from replay.api import Detector, Job, Verdict
from replay.host import JobHost
from replay.observer import Observer
from replay.plugins import DetectorSpec

NODES = ("a", "b", "c")


class Echo(Detector):
    """Says every call it gets, and asks to be woken ``ahead`` seconds after each alert.

    ``again`` further wake-ups follow each other ``step`` seconds apart.
    """

    def __init__(self, job: Job, *, ahead: float = 5.0, again: int = 2, step: float = 3.0):
        super().__init__(job)
        self.ahead, self.again, self.step = ahead, again, step
        self.left = again

    def observe(self, alert):
        self.wake_at, self.left = alert.at + self.ahead, self.again
        return [Verdict(alert.node, reason=f"saw {alert.kind}", evidence=(alert.seq,))]

    def advance(self, now):
        self.wake_at = now + self.step if self.left else None
        self.left -= 1
        return [Verdict(None, reason=f"woken at {now}")]

    def finish(self):
        return [Verdict(None, reason="over")]


@dataclass
class Diary(Observer):
    """Writes down what it is told."""

    said: list = field(default_factory=list)
    failures: list = field(default_factory=list)

    def judged(self, verdict):
        self.said.append(verdict)

    def failed(self, detector, job, error):
        self.failures.append((detector, job, error))


@pytest.fixture(scope="session")
def echo():
    return Echo


@pytest.fixture
def diary():
    return Diary()


@pytest.fixture
def job():
    return Job("Job1", NODES)


@pytest.fixture
def feed():
    """Feed messages to detectors; give (at, reason) of what they say."""

    def feed(detectors, messages, **options):
        specs = [d if isinstance(d, DetectorSpec) else DetectorSpec.of(d) for d in detectors]
        host = JobHost(specs, **options)
        said = [verdict for message in messages for verdict in host.feed(message)]
        assert not host.tally.failures, host.tally.failures
        return said

    return feed
