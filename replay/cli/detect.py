"""The verb ``detect``: workers of a consumer group that judge what is published to a topic."""

from __future__ import annotations

import contextlib
import signal
import sys
from typing import TYPE_CHECKING, Any

import click

from replay.cli.brokers import kafka_options, settings_of
from replay.cli.durations import Duration
from replay.cli.output import aside, complain, note, print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from replay.cli.crew import Order
    from replay.transports.kafka.worker import Work

__all__ = ["detect"]


@click.command()
@click.option("--from", "source", required=True, metavar="URL", help="kafka://host:port/topic")
@click.option("--to", "target", required=True, metavar="URL", help="kafka://host:port/verdicts")
@click.option(
    "--group", default="alert-replay", show_default=True, metavar="G", help="The consumer group."
)
@click.option(
    "-d",
    "--detector",
    multiple=True,
    default=("burst",),
    show_default=True,
    metavar="NAME[:k=v,..]",
    help="A detector; repeatable. FILE.py:Class works too.",
)
@click.option(
    "--workers",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    metavar="N",
    help="Processes on this machine; start the same command elsewhere for more.",
)
@click.option(
    "--idle-exit",
    type=Duration(),
    metavar="T",
    help="Stop when nothing came for so long, such as 30s.",
)
@click.option(
    "--on-poison",
    type=click.Choice(["dlq", "skip", "fail"]),
    default="dlq",
    show_default=True,
    help="A record that makes no sense is kept in TOPIC.dlq, left alone, or ends the worker.",
)
@click.option(
    "--metrics", metavar="[HOST]:PORT", help="Show to a Prometheus how far the workers are."
)
@click.option("--json", "as_json", is_flag=True, help="What was done, as one JSON document.")
@kafka_options
@click.pass_context
def detect(ctx: click.Context, /, **options: Any) -> None:
    """Judge the jobs that are published to a topic, on as many machines as you like.

    The unit of work is a job: all its alerts are in one partition, and one worker of the group owns
    it. Have at least as many partitions as workers. When a worker goes away, another one reads its
    open jobs again from their start; the verdicts are the same and carry the same ids.

    Runs until SIGTERM, or until nothing came for --idle-exit.
    """
    from replay.cli.crew import Order, together
    from replay.plugins import parse_detectors

    for spec in parse_detectors(options["detector"]):
        spec.check()
    order = Order(
        settings_of(options["source"], options),
        settings_of(options["target"], options),
        options["group"],
        tuple(options["detector"]),
        options["on_poison"],
        options["idle_exit"],
        tells=bool(options["metrics"]),
    )
    with _measured(options["metrics"]) as gauge, aside():
        if options["workers"] == 1:
            works = _alone(order, gauge)
        else:
            works = together(order, options["workers"], gauge.told)
    _show(works, as_json=options["as_json"])
    if any(work.failures for work in works):
        ctx.exit(6)


class _Gauge:
    """How far the workers are, for whoever scrapes."""

    def __init__(self) -> None:
        self.ask: Callable[[], Sequence[Work]] = lambda: ()

    def told(self, works: Sequence[Work]) -> None:
        """Workers of other processes have told."""
        self.ask = lambda: works


@contextlib.contextmanager
def _measured(address: str | None) -> Iterator[_Gauge]:
    """Show metrics while the block runs, if that is asked for."""
    gauge = _Gauge()
    if not address:
        yield gauge
        return
    from replay.cli.figures import of_workers
    from replay.cli.serving import served
    from replay.metrics import Metrics

    metrics = Metrics()
    metrics.watch(figures=lambda: of_workers(gauge.ask()))
    with served(address, metrics):
        yield gauge


def _alone(order: Order, gauge: _Gauge) -> list[Work]:
    """One worker, in this process."""
    from replay.cli.crew import worker_of

    worker = worker_of(order, note)
    gauge.ask = lambda: [worker.standing]
    before = [
        (number, signal.signal(number, lambda *_: worker.stop()))
        for number in (signal.SIGTERM, signal.SIGINT)
    ]
    note(f"{order.group}: waiting for alerts of topic {order.source.topic}")
    sys.stderr.flush()
    try:
        return [worker.run()]
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def _show(works: Sequence[Work], *, as_json: bool) -> None:
    from dataclasses import asdict

    documents = []
    for work in works:
        document = asdict(work) | {
            "failures": [
                {"detector": failure.detector, "job_id": failure.job, "what": failure.what}
                for failure in work.failures
            ]
        }
        documents.append(document)
    for work in works:
        for failure in work.failures:
            complain(failure)
    if as_json:
        print_json({"schema": 1, "workers": documents})
        return
    columns = ("worker", "records", "alerts", "jobs", "open", "verdicts", "gaps", "dead letters")
    rows = [
        (
            str(number),
            str(work.records),
            str(work.alerts),
            str(work.jobs),
            str(work.open_jobs),
            str(work.verdicts),
            str(work.counters.gaps),
            str(work.dead_letters.total()),
        )
        for number, work in enumerate(works, 1)
    ]
    print_table(columns, rows)
    note("next: alert-replay score --trace PATH --from the topic of the verdicts")
