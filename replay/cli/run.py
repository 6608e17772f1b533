"""``alert-replay run``: replay a trace into detectors, and score them."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from replay.cli.brokers import kafka_options, through
from replay.cli.judging import FAIL_IF, KEEPING, enforce, gates
from replay.cli.judging import options as with_options
from replay.cli.output import (
    aside,
    command,
    complain,
    note,
    print_json,
    print_line,
    print_table,
    tell_left_out,
)
from replay.cli.serving import LIVE_OPTIONS, LIVE_WORDS, METRICS_OPTIONS, METRICS_WORDS, service
from replay.cli.stopping import stoppable
from replay.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replay.cli.stopping import Stop
    from replay.cli.watch import Watch
    from replay.config import RunConfig
    from replay.runner import Replay, Run

__all__ = ["run"]

_OWN = {
    "as_json",
    "config",
    "dry_run",
    "force",
    "jsonl",
    "kafka_client",
    "kafka_config",
    "out",
    "quiet",
    "wait_for_broker",
    *METRICS_WORDS,
    *LIVE_WORDS,
}
"""Options that say what to show or keep; all others are part of the configuration."""


@click.command()
@click.argument("path", required=False)
@click.argument("jobs", nargs=-1, metavar="[JOB]...")
@click.option(
    "-d",
    "--detector",
    multiple=True,
    metavar="NAME[:k=v,..]",
    help="A detector; repeatable. FILE.py:Class works too. [default: burst]",
)
@click.option("--baselines/--no-baselines", default=True, help="Run the reference detectors too.")
@click.option("--speed", metavar="X|max", help="Trace seconds per wall second. [default: max]")
@click.option(
    "--schedule",
    metavar="together|sequence|stagger|pool:K",
    help="Where many jobs stand in time. [default: together]",
)
@click.option("--format", type=click.Choice(["folders", "jsonl", "parquet"]), help="Trace form.")
@click.option("--lenient", is_flag=True, help="Skip bad rows and jobs, and list them.")
@click.option(
    "--outside",
    type=click.Choice(["keep", "clip", "drop"]),
    help="Alerts outside their job's time. [default: keep]",
)
@click.option(
    "--spread",
    type=click.Choice(["none", "even", "random"]),
    help="Place alerts inside their second. [default: none]",
)
@click.option("--seed", type=int, help="Seed of everything that draws lots. [default: 0]")
@click.option("--kind", metavar="REGEX", help="Replay only these kinds.")
@click.option("--exclude-kind", metavar="REGEX", help="Leave these kinds out.")
@click.option("--node", metavar="REGEX", help="Replay only the alerts of these nodes.")
@click.option("--start-offset", metavar="T", help="Begin T trace seconds in.")
@click.option("--duration", metavar="T", help="Stop after T trace seconds.")
@click.option("--loop", type=int, metavar="N", help="Play N times; the last one is scored.")
@click.option("--start-paused", is_flag=True, help="Wait for the space key.")
@click.option("--max-gap", metavar="T", help="Cut longer silences down to T. [default: 1d]")
@click.option(
    "--when-late",
    type=click.Choice(["catch-up", "slip", "fail"]),
    help="What to do about being late. [default: catch-up]",
)
@click.option("--via", metavar="URL", help="memory, or kafka://host:port/topic. [default: memory]")
@kafka_options
@with_options(METRICS_OPTIONS, LIVE_OPTIONS)
@click.option("--policy", type=click.Choice(["ever", "final"]), help="[default: ever]")
@click.option("--hold", metavar="T", help="Seconds a verdict must stand to count.")
@click.option("--grace", metavar="T", help="Seconds after a job's end that still count.")
@click.option("--label-map", metavar="K=V,..", help="What labels mean: normal=negative,*=positive.")
@click.option("--strict-labels", is_flag=True, help="Refuse labels that the map does not name.")
@FAIL_IF
@click.option("--config", type=click.Path(path_type=Path), help="Read settings from a TOML file.")
@with_options(KEEPING)
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of a table.")
@click.option("--jsonl", is_flag=True, help="Verdicts as JSON lines, as they fall.")
@click.option("--dry-run", is_flag=True, help="Say what would be played, and how long it takes.")
@click.option("-q", "--quiet", is_flag=True, help="No verdict lines, no progress.")
@click.pass_context
def run(ctx: click.Context, /, **options: Any) -> None:
    """Replay the jobs of a trace into detectors, and score what they say.

    PATH is a trace: a file, a folder, a glob or hf://datasets/OWNER/NAME@REV/FILE. All its jobs
    are replayed unless some are named.

    While a run is paced, keys work in a terminal: space pauses, left and right jump 10 s, up and
    down change the speed, a full stop steps, t shows the truth, q ends with a report.
    """
    from replay.cli.watch import Watch
    from replay.runner import prepare

    config = _config(ctx, options)
    if options["as_json"] and options["jsonl"]:
        raise UsageError("--json and --jsonl are two forms of one output.", "one of them")
    watch = Watch(
        jsonl=options["jsonl"], quiet=options["quiet"] or options["as_json"], terminal=_terminal()
    )
    with nullcontext() if options["dry_run"] else service(options, config.speed) as served:
        observers = [watch, *([] if served is None else [served.metrics])]
        with aside():
            replay = prepare(config, observers, note, None if served is None else served.live)
        _warn(replay)
        if options["dry_run"]:
            _plan(replay, as_json=options["as_json"])
            return
        _make_sure(replay, options)
        if served is not None:
            served.watch(replay)
        done, stop = _play(replay, watch)
    _show(done, options)
    if not stop.asked:
        enforce(gates(done.score, config.fail_if))
    if done.tally.failures:
        ctx.exit(6)
    if not done.complete:
        ctx.exit(stop.exit_code)


def _config(ctx: click.Context, options: dict[str, Any]) -> RunConfig:
    from replay.config import load

    said = {
        name.replace("_", "-"): list(value) if isinstance(value, tuple) else value
        for name, value in options.items()
        if name not in _OWN and ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
    config, _ = load(said, os.environ, Path.cwd(), options["config"])
    if not config.path:
        raise UsageError("Which trace?", "alert-replay run data/sample")
    if config.start_paused and not (_terminal() or options["dry_run"]):
        raise UsageError("Nobody is there to press the space key.", "a terminal for --start-paused")
    return replace(config, via=through(config.via, options))


def _terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _warn(replay: Replay) -> None:
    trace, facts = replay.trace, replay.timeline.facts
    note(f"{trace.source}: {trace.form}, {len(trace)} jobs, {trace.events.num_rows} alerts")
    tell_left_out(trace.findings)
    if trace.findings.warnings and not trace.findings.errors:
        whole = " about the whole trace" if replay.config.jobs else ""
        see = command("validate", trace.source)
        note(f"{trace.findings.warnings} warnings{whole}; see: {see}")
    if facts.left_out:
        note(f"{facts.left_out} alerts are left out by the filters")
    if facts.left_out and not len(replay.timeline):
        raise UsageError(
            "The filters leave no alert to replay.", "a pattern for the whole word: --kind 'xid_.*'"
        )


def _plan(replay: Replay, *, as_json: bool) -> None:
    """What would be played, and how long it would take."""
    from dataclasses import asdict

    config, timeline = replay.config, replay.timeline
    facts = {"jobs": len(timeline.slots), "alerts": len(timeline), **asdict(timeline.facts)}
    facts["span_s"] = (timeline.end_ns - timeline.begin_ns) / 1e9
    if config.speed != "max":
        from replay.config import parse_speed

        gap = config.max_gap if config.max_gap != float("inf") else None
        facts |= asdict(timeline.plan(float(parse_speed(config.speed)), gap))
    if as_json:
        print_json({"schema": 1, "plan": facts})
        return
    print_table(["<", ""], [(key, _figure(value)) for key, value in facts.items()])


def _make_sure(replay: Replay, options: dict[str, Any]) -> None:
    """Refuse, before it is played, what could not be kept or judged after it."""
    from replay.config import to_toml
    from replay.scoring import make_room

    replay.check_gates()
    if options["out"]:
        to_toml(replay.config)
        make_room(options["out"], force=options["force"])


def _figure(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    return str(len(value)) if isinstance(value, tuple | list) else str(value)


def _play(replay: Replay, watch: Watch) -> tuple[Run, Stop]:
    """Play, to the end or until a signal asks for it."""

    def asked(stop: Stop) -> None:
        if replay.is_opening:  # there is nothing to report yet, nor anybody who could be told
            raise SystemExit(stop.exit_code)
        replay.player.stop()
        note("Stopping; once more to end at once, without a report.")

    with stoppable(asked) as stop, watch.on(replay), aside():
        return replay.play(), stop


def _show(done: Run, options: dict[str, Any]) -> None:
    for failure in done.tally.failures:
        complain(failure)
    try:
        if options["out"]:
            done.write(options["out"], force=options["force"])
    finally:  # what could not be kept is still shown
        _say(done, options)
    if options["out"]:
        again = command("run", "--config", options["out"] / "config.toml")
        note(f"kept in {options['out']}; next: {again}")


def _say(done: Run, options: dict[str, Any]) -> None:
    if options["as_json"]:
        print_json(done.document())
    elif options["jsonl"]:
        for line in _sentences(done):
            note(line)
    else:
        from replay.report import table

        shown = table(done.score)
        print_table(shown.columns, shown.rows, title=shown.title, dim=shown.dim)
        for line in (*shown.notes, *_sentences(done)):
            print_line(line)


def _sentences(done: Run) -> Iterator[str]:
    """How the run went, in words."""
    played = done.played
    if done.live is not None:
        from replay.cli.serving import sentences

        yield from sentences(done.live)
    if not done.complete:
        yield "partial: the replay was stopped before its end, and what was not seen counts as missed"
    if played.wall_s is not None and played.speed_achieved is not None:
        late = played.lateness.quantile(0.5) or 0.0
        yield (
            f"{played.alerts} alerts in {played.wall_s:.2f} s of wall time at {played.speed_achieved:.4g}x; "
            f"late by {1e3 * late:.3f} ms (median), {1e3 * played.lateness.max_s:.1f} ms (most)"
        )
