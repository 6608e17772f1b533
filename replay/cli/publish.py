"""The verb ``publish``: the player alone, into a topic."""

from __future__ import annotations

import contextlib
import os
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from replay.cli.brokers import kafka_options, settings_of
from replay.cli.judging import options as with_options
from replay.cli.output import note, print_json, print_line, tell_left_out
from replay.cli.serving import METRICS_OPTIONS, METRICS_WORDS, service
from replay.cli.stopping import stoppable
from replay.errors import TransportError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from replay.cli.serving import Service
    from replay.config import RunConfig
    from replay.engine import Played, Player
    from replay.plugins import DetectorSpec
    from replay.timeline import Timeline
    from replay.traces import Trace
    from replay.transports.kafka.outbox import Sending
    from replay.transports.kafka.sink import KafkaSink

__all__ = ["publish"]

_OWN = {
    *METRICS_WORDS,
    "as_json",
    "kafka_client",
    "kafka_config",
    "on_broker_loss",
    "partitions",
    "quiet",
    "run_id",
    "target",
    "wait_for_broker",
}
"""Options that are not part of the configuration of a run."""


@click.command()
@click.argument("path")
@click.argument("jobs", nargs=-1, metavar="[JOB]...")
@click.option("--to", "target", required=True, metavar="URL", help="kafka://host:port/topic")
@click.option("--speed", metavar="X|max", help="Trace seconds per wall second. [default: max]")
@click.option("--partitions", type=int, metavar="N", help="Of the topic; made if missing. [4]")
@click.option("--run", "run_id", metavar="ID", help="Names this replay in every record.")
@click.option(
    "--on-broker-loss",
    type=click.Choice(["wait", "pause", "fail"]),
    default="wait",
    show_default=True,
    help="Keep the schedule and catch up, stand still meanwhile, or give up after"
    " --wait-for-broker.",
)
@click.option("--schedule", metavar="together|sequence|stagger|pool:K", help="[default: together]")
@click.option("--format", type=click.Choice(["folders", "jsonl", "parquet"]), help="Trace form.")
@click.option("--lenient", is_flag=True, help="Skip bad rows and jobs, and list them.")
@click.option("--outside", type=click.Choice(["keep", "clip", "drop"]), help="[default: keep]")
@click.option("--spread", type=click.Choice(["none", "even", "random"]), help="[default: none]")
@click.option("--seed", type=int, help="Of --spread random. [default: 0]")
@click.option("--kind", metavar="REGEX", help="Publish only these kinds.")
@click.option("--exclude-kind", metavar="REGEX", help="Leave these kinds out.")
@click.option("--node", metavar="REGEX", help="Publish only the alerts of these nodes.")
@click.option("--start-offset", metavar="T", help="Begin T trace seconds in.")
@click.option("--duration", metavar="T", help="Stop after T trace seconds.")
@click.option("--loop", type=int, metavar="N", help="Play N times.")
@click.option("--start-paused", is_flag=True, help="Wait for the space key.")
@click.option("--max-gap", metavar="T", help="Cut longer silences down to T. [default: 1d]")
@click.option("--when-late", type=click.Choice(["catch-up", "slip", "fail"]))
@click.option("--json", "as_json", is_flag=True, help="How it went, as one JSON document.")
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
@with_options(METRICS_OPTIONS)
@kafka_options
@click.pass_context
def publish(ctx: click.Context, /, **options: Any) -> None:
    """Play a trace into a Kafka topic, at its pace.

    Each job's alerts arrive in order in one partition, under the job's id as key; the value is one
    JSON object. The truth is not published.

    Keys work in a terminal as they do for run.
    """
    from replay import traces
    from replay.config import parse_speed
    from replay.engine import Playback, Player
    from replay.timeline import Timeline
    from replay.transports.kafka.settings import BULK_LINGER
    from replay.transports.kafka.sink import KafkaSink

    config = _config(ctx, options)
    speed = parse_speed(config.speed)
    settings = settings_of(options["target"], options, partitions=options["partitions"])
    if speed == "max" and settings.linger is None:
        settings = settings.but(linger=BULK_LINGER)
    trace = traces.open(config.path, form=config.format or None, lenient=config.lenient)
    tell_left_out(trace.findings)
    chosen = trace.select(config.jobs) if config.jobs else trace
    timeline = Timeline.build(
        chosen,
        schedule=config.schedule,
        node=config.node,
        kind=config.kind,
        exclude_kind=config.exclude_kind,
        outside=config.outside,
        spread=config.spread,
        seed=config.seed,
    )
    run_id = options["run_id"] or uuid.uuid4().hex[:12]
    when_late = "slip" if options["on_broker_loss"] == "pause" else config.when_late
    playback = Playback(
        speed=speed,
        start_paused=config.start_paused,
        start_s=config.start_offset or None,
        duration_s=config.duration,
        loops=config.loop,
        max_gap_s=config.max_gap if config.max_gap != float("inf") else None,
        when_late=when_late,
    )
    note(f"{trace.source}: {len(chosen)} jobs, {len(timeline)} alerts, as run {run_id}")
    with service(options) as served:
        sink = KafkaSink(settings, on_loss=options["on_broker_loss"], note=note)
        observer = None if served is None else served.metrics
        player = Player(timeline, sink.publish, playback, run=run_id, observer=observer)
        if served is not None:
            _measure(served, timeline, player, sink)
        try:
            with (
                stoppable(lambda _: player.stop()) as stop,
                sink,
                _watched(chosen, player, quiet=options["quiet"]),
            ):
                played = player.play()
        except TransportError:
            for line in _sentences(sink.report):
                note(line)
            raise
    _show(played, sink.report, run_id, as_json=options["as_json"])
    if sink.report.losses:
        ctx.exit(5)
    if not played.complete:
        ctx.exit(stop.exit_code)


def _measure(served: Service, timeline: Timeline, player: Player, sink: KafkaSink) -> None:
    """Show how the replay and the broker do."""
    from replay.cli.figures import of_publisher
    from replay.metrics import pairs_ahead

    if served.metrics.series.looks_ahead:
        served.metrics.series.ahead = pairs_ahead(timeline)
    served.metrics.watch(player=player, figures=lambda: of_publisher(sink.report))


def _config(ctx: click.Context, options: dict[str, Any]) -> RunConfig:
    from replay.config import load

    said = {
        name.replace("_", "-"): list(value) if isinstance(value, tuple) else value
        for name, value in options.items()
        if name not in _OWN and ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
    config, _ = load(said, os.environ, Path.cwd(), None)
    return config


@contextlib.contextmanager
def _watched(trace: Trace, player: Player, *, quiet: bool) -> Iterator[None]:
    """A line of progress, and keys that work, where there is a terminal."""
    from replay.cli.watch import Watch

    terminal = sys.stdin.isatty() and sys.stderr.isatty()
    with Watch(quiet=quiet, terminal=terminal).on(_Playing(trace, player)):
        yield


class _Playing(NamedTuple):
    """A player whose detectors are elsewhere."""

    trace: Trace
    player: Player
    detectors: Sequence[DetectorSpec] = ()


def _show(played: Played, report: Sending, run_id: str, *, as_json: bool) -> None:
    from dataclasses import asdict

    late = played.lateness
    document = {
        "schema": 1,
        "run": run_id,
        "complete": played.complete,
        "alerts": played.alerts,
        "speed": played.speed,
        "speed_achieved": played.speed_achieved,
        "wall_s": played.wall_s,
        "late": played.late,
        "lateness_wall_s": {
            "p50": late.quantile(0.5),
            "p99": late.quantile(0.99),
            "max": late.max_s,
        },
        "kafka": asdict(report),
    }
    if as_json:
        print_json(document)
        return
    print_line(f"{played.alerts} alerts of run {run_id}")
    for line in _sentences(report):
        print_line(line)
    if not played.complete:
        note("partial: stopped before the end")
    note("next: alert-replay detect --from this topic --to a topic for verdicts")


def _sentences(report: Sending) -> Iterator[str]:
    """How the broker did, in words."""
    yield (
        f"{report.acked} of {report.sent} records acknowledged,"
        f" in {len(report.partitions)} partitions"
    )
    for outage in report.outages:
        end = outage.start_wall if outage.end_wall is None else outage.end_wall
        yield (
            f"the broker was away for {end - outage.start_wall:.1f} s, {outage.records} records"
            " waited; the pace was not kept then"
        )
    for loss in report.losses:
        jobs = ", ".join(f"{job} up to t={at:g}" for job, (_, at) in sorted(loss.jobs.items()))
        yield (
            f"the broker forgot {loss.records} acknowledged records of partition {loss.partition},"
            f" written in {loss.end_wall - loss.start_wall:.1f} s: {jobs}"
        )
