"""Jobs to send through a broker, and what detectors say of them without one."""

from __future__ import annotations

import random
import threading
import time

from replay.api import Detector, Job, Verdict
from replay.host import JobHost
from replay.messages import TimedVerdict, Watermark
from replay.plugins import DetectorSpec
from replay.testing import stream
from replay.transports.kafka.clients import client
from replay.transports.kafka.collect import collect
from replay.transports.kafka.worker import Worker


class Quiet(Detector):
    """Blames a node ten seconds after its last alert, so it needs its alarm clock."""

    def __init__(self, job, *, work=0):
        super().__init__(job)
        self._last = {}
        self._work = work

    def observe(self, alert):
        self._last[alert.node] = alert.at
        self.wake_at = min(self._last.values()) + 10.0
        sum(range(self._work))
        return ()

    def advance(self, now):
        for node in [node for node, at in self._last.items() if at + 10.0 <= now]:
            del self._last[node]
            yield Verdict(node, score=now, reason="quiet")
        self.wake_at = min(self._last.values(), default=None)
        if self.wake_at is not None:
            self.wake_at += 10.0


SPECS = (DetectorSpec.of(Quiet), DetectorSpec.parse("burst:window=30,threshold=3"))


def jobs_of(count, alerts, *, seed=0, run="r1", prefix="Job"):
    """Some jobs as messages; each has its own rhythm and its own clock."""
    lots = random.Random(seed)
    jobs = {}
    for number in range(1, count + 1):
        name = f"{prefix}{number}"
        nodes = tuple(f"node-{letter}" for letter in "abcdef")
        at, rows = lots.uniform(-50, 50), []
        for _ in range(alerts):
            at += lots.choice([0.0, 0.0, 1.0, 3.0, 12.0])
            rows.append((at, lots.choice(nodes), lots.choice(["ecc", "xid", "nic_down"])))
        messages = stream(Job(name, nodes), rows, end=at + 60, run=run)
        quiet = Watermark(run, 0, name, at + 30)
        jobs[name] = [*messages[:-1], quiet, messages[-1]]
    return jobs


def interleaved(jobs, *, seed=0):
    """The messages of all jobs, mixed; each job in its order."""
    lots = random.Random(seed)
    queues = [list(messages) for messages in jobs.values()]
    mixed = []
    while queues:
        queue = lots.choice(queues)
        mixed.append(queue.pop(0))
        if not queue:
            queues.remove(queue)
    return mixed


def said(verdicts: list[TimedVerdict]):
    """What was said, without when by the wall."""
    return sorted(
        (v.job, v.detector, v.number, v.at, v.verdict.node or "", v.verdict.score, v.trigger_seq)
        for v in verdicts
    )


def alone(jobs, specs=SPECS):
    """What the detectors say in this process."""
    verdicts = []
    for messages in jobs.values():
        host = JobHost(specs)
        for message in messages:
            verdicts += host.feed(message)
    return said(verdicts)


def wait_for(condition, seconds=120.0):
    """Until it comes about."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.05)


def stays(value, seconds=1.0):
    """Wait until something has not changed for so long; what it is then."""
    seen, since = value(), time.monotonic()
    while time.monotonic() - since < seconds:
        time.sleep(0.05)
        if (now := value()) != seen:
            seen, since = now, time.monotonic()
    return seen


def raw(settings):
    """Every record of a topic, as it lies there."""
    kafka = client(settings)
    partitions = range(kafka.topics(settings)[settings.topic])
    reader = kafka.reader(settings, partitions)
    records, deadline = [], time.monotonic() + 120
    while any(reader.end(p) is None or _next(records, p) < reader.end(p) for p in partitions):
        records += reader.poll(0.1, 5000)
        assert time.monotonic() < deadline
    reader.close()
    return records


def _next(records, partition):
    return max((r.offset + 1 for r in records if r.partition == partition), default=0)


class Crew:
    """Workers on threads of this process."""

    def __init__(self, source, target, *, group="", specs=SPECS, **options):
        self._make = lambda: Worker(
            source, target, group or source.topic, lambda: JobHost(specs), **options
        )
        self._hands = []
        self.target = target

    def add(self):
        """One more worker."""
        worker = self._make()
        thread = threading.Thread(target=worker.run)
        thread.start()
        self._hands.append((worker, thread))
        return worker

    def remove(self, place=0):
        """End a worker cleanly; what it did."""
        worker, thread = self._hands.pop(place)
        worker.stop()
        thread.join(120)
        assert not thread.is_alive()
        return worker.work

    def records(self):
        """Records read by those still here."""
        return sum(worker.work.records for worker, _ in self._hands)

    def finish(self):
        """End all; what they did."""
        for worker, _ in self._hands:
            worker.stop()
        return [self.remove() for _ in list(self._hands)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.finish()

    def collected(self, jobs, **options):
        """What they said of these jobs, once all is judged."""
        target = self.target
        wait_for(lambda: target.topic in client(target).topics(target))
        return collect(target, jobs, idle=120.0, **options)
