"""A plug-in as a reader of the README writes it, for the type checker alone."""

from collections.abc import Iterable, Iterator

from replay.api import Alert, AlertBatch, Detector, Job, Verdict
from replay.testing import TINY_TRACES, detector_checks, play, stream, transport_checks
from replay.transports import Sink, Source
from replay.transports.memory import Channel


class Mine(Detector):
    """Blames whoever alerts often.

    Args:
        job: The job to watch.
        count: How many alerts it takes.
    """

    def __init__(self, job: Job, *, count: int = 3) -> None:
        super().__init__(job)
        self.count = count
        self.seen: dict[str, int] = {}

    def observe(self, alert: Alert) -> Iterator[Verdict]:
        self.seen[alert.node] = self.seen.get(alert.node, 0) + 1
        if self.seen[alert.node] == self.count:
            self.wake_at = alert.at + 60
            yield Verdict(alert.node, reason=f"{self.count} alerts", evidence=(alert.seq,))


class Quick(Mine):
    """Takes whole batches, and thinks again when a minute has passed."""

    def observe_batch(self, batch: AlertBatch) -> Iterable[Verdict]:
        names: list[str] = [batch.nodes[code] for code in batch.node.tolist()]
        return [Verdict(name) for name in names if name in self.job.nodes]

    def advance(self, now: float) -> Iterable[Verdict]:
        self.wake_at = None
        return [Verdict(node, "retract", score=now) for node in self.seen]

    def finish(self) -> list[Verdict]:
        return []


def both_ends() -> tuple[Sink, Source]:
    channel = Channel(max_alerts=10)
    return channel.sink, channel.source


def use() -> Iterator[tuple[str | None, float]]:
    job = Job("Job1", ("a", "b"))
    alerts = [(0.0, "a", "ecc"), (1.0, "a", "ecc")]
    for timed in play(job, alerts, Mine, "burst:window=30", end=60.0):
        yield timed.verdict.node, timed.at
    for check in [*detector_checks(Mine), *transport_checks(both_ends)]:
        check()
        assert check.__name__
    sink, source = both_ends()
    with sink, source:
        sink.publish(stream(job, alerts))
        assert source.poll(1.0)
    assert TINY_TRACES[0].trace().job_ids
