"""The numbers of Kafka's two ends as metrics: what is under way, and how far behind the workers are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replay.metrics import Figure

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from replay.transports.kafka.outbox import Sending
    from replay.transports.kafka.worker import Work

__all__ = ["of_publisher", "of_workers"]


def of_publisher(report: Sending) -> Iterator[Figure]:
    """What a sink has done so far.

    Examples:
        >>> from replay.transports.kafka.outbox import Sending
        >>> {figure.name: figure.values[()] for figure in of_publisher(Sending(5, 3, 2))}
        {'kafka_sent_records': 5, 'kafka_acked_records': 3, 'kafka_unacked_records': 2, ...}

    """
    yield Figure("kafka_sent_records", "Records handed to Kafka.", "counter", (), {(): report.sent})
    yield Figure(
        "kafka_acked_records", "Records acknowledged by it.", "counter", (), {(): report.acked}
    )
    yield Figure("kafka_unacked_records", "Records under way.", "gauge", (), {(): report.unacked})
    yield Figure(
        "kafka_blocked_seconds",
        "Wall time for which publishing had to wait for room.",
        "counter",
        (),
        {(): report.blocked_seconds},
    )
    yield Figure(
        "kafka_outages",
        "Times in which nothing was acknowledged for a second.",
        "counter",
        (),
        {(): len(report.outages)},
    )
    yield Figure(
        "kafka_forgotten_records",
        "Records that the broker had acknowledged and then forgot.",
        "counter",
        (),
        {(): sum(loss.records for loss in report.losses)},
    )


def of_workers(works: Sequence[Work]) -> Iterator[Figure]:
    """What the workers of this machine have done so far, and how far behind they are."""

    def summed(name: str) -> int:
        return sum(getattr(work, name) for work in works)

    def counted(name: str) -> int:
        return sum(getattr(work.counters, name) for work in works)

    yield Figure(
        "kafka_lag_records",
        "Records of our partitions not yet read (processed), or that a new owner would read again"
        " (committed).",
        "gauge",
        ("position",),
        {("processed",): summed("lag"), ("committed",): summed("committed_lag")},
    )
    for name, field, about in (
        ("kafka_partitions", "partitions", "Partitions owned."),
        ("kafka_open_jobs", "open_jobs", "Jobs begun and not over."),
        ("kafka_unacked_records", "unacked", "Verdicts under way."),
    ):
        yield Figure(name, about, "gauge", (), {(): summed(field)})
    for name, field, about in (
        ("kafka_read_records", "records", "Records read, again or for the first time."),
        ("kafka_judged_jobs", "jobs", "Jobs judged to their end."),
        ("kafka_verdicts", "verdicts", "Verdicts published, again or for the first time."),
        ("kafka_rebalances", "rebalances", "Times that partitions came or went."),
    ):
        yield Figure(name, about, "counter", (), {(): summed(field)})
    for name, field, about in (
        ("kafka_gaps", "gaps", "Alerts that did not come before a later one did."),
        ("kafka_duplicates", "duplicates", "Records that came again."),
        ("kafka_reorders", "reorders", "Alerts that came after a later one."),
        ("kafka_corrupt_jobs", "corrupt", "Jobs whose alerts do not have their checksum."),
    ):
        yield Figure(name, about, "counter", (), {(): counted(field)})
    reasons: dict[tuple[str, ...], float] = {}
    for work in works:
        for reason, count in work.dead_letters.items():
            reasons[reason,] = reasons.get((reason,), 0) + count
    yield Figure(
        "kafka_dead_letters", "Records that made no sense.", "counter", ("reason",), reasons
    )
