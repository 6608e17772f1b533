"""The verb ``score``: verdicts that anyone wrote, against the truth of a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from replay.cli.brokers import kafka_options, settings_of
from replay.cli.durations import Duration
from replay.cli.judging import (
    GATES,
    KEEPING,
    POLICY,
    options,
    policy_of,
    publish,
    references,
    words,
)
from replay.cli.output import note
from replay.errors import UsageError

if TYPE_CHECKING:
    from replay.scoring import VerdictLog
    from replay.traces import Trace

__all__ = ["score"]


@click.command()
@click.option("--trace", "trace_path", required=True, metavar="PATH", help="The trace.")
@click.option("--format", "form", help="folders, jsonl or parquet, where a path holds several.")
@click.option("--verdicts", metavar="FILE", help="JSON lines or Parquet.")
@click.option("--from", "topic", metavar="URL", help="Or kafka://host:port/verdicts.")
@click.option("--run", "run_id", metavar="ID", help="Of that topic; the newest unless given.")
@click.option(
    "--idle-exit",
    type=Duration(),
    default="30s",
    show_default=True,
    metavar="T",
    help="Take the topic as it is when nothing came for so long.",
)
@click.option(
    "--detectors", default="", metavar="A,B", help="Detectors that may have said nothing."
)
@click.option("--jobs", default="", metavar="JOB,..", help="Score these jobs only.")
@click.option("--truth", metavar="FILE", help="Onsets; truth.json beside the trace unless given.")
@click.option("--curves", is_flag=True, help="Add threshold sweeps and delay curves to the JSON.")
@click.option("--seed", default=0, show_default=True, help="Of the resampling.")
@kafka_options
@options(KEEPING, POLICY, GATES)
@click.pass_context
def score(ctx: click.Context, /, **given: Any) -> None:
    """Score a verdict log against the truth of a trace.

    A log has one verdict a line: detector, job_id, ip (null for the whole job, or a list),
    event_time, and if need be seq, action (raise or retract), score, reason, evidence.

    A topic of verdicts is read until every job is judged, each verdict once.
    """
    from replay import traces
    from replay.scoring import keep, make_room, onsets_beside, read_log, read_onsets
    from replay.scoring import score as judge

    if given["topic"] and given["verdicts"]:
        raise UsageError("--verdicts and --from are two places of verdicts.", "one of them")
    policy = policy_of(given, given["seed"])
    trace = traces.open(given["trace_path"], form=given["form"])
    if given["out"]:
        make_room(given["out"], force=given["force"])
    jobs = words(given["jobs"])
    declared = words(given["detectors"])
    whole = True
    if given["topic"]:
        trace = trace.select(jobs) if jobs else trace
        log, judges, whole = _collected(trace, given)
        declared = declared or judges
    elif given["verdicts"]:
        log = read_log(given["verdicts"])
        if jobs:
            trace, log = _only(trace, log, jobs)
    else:
        raise UsageError("Which verdicts?", "--verdicts FILE, or --from kafka://host:port/verdicts")
    truth = given["truth"]
    if not (declared or len(log)):
        raise UsageError(
            "There is no verdict to score.", "--detectors NAME for one that said nothing"
        )
    result = judge(
        trace,
        log,
        policy=policy,
        detectors=declared,
        baselines=references({*declared, *log.words("detector")}),
        onsets=read_onsets(truth) if truth else onsets_beside(given["trace_path"]),
        curves=given["curves"],
        settings={"comparable": whole and not jobs, "complete": whole},
    )
    if given["out"]:
        keep(given["out"], log, result, {}, force=given["force"])
    publish(result, given)
    if not whole:
        ctx.exit(1)


def _collected(trace: Trace, given: dict[str, Any]) -> tuple[VerdictLog, tuple[str, ...], bool]:
    """The verdicts of a topic, who gave them, and whether every job is judged."""
    from replay.scoring import VerdictLog
    from replay.transports.kafka.collect import collect

    found = collect(
        settings_of(given["topic"], given),
        trace.job_ids,
        run=given["run_id"],
        idle=given["idle_exit"],
        note=note,
    )
    for line in found.sentences():
        note(line)
    return VerdictLog.of(trace, found.verdicts, found.detectors), found.detectors, found.complete


def _only(trace: Trace, log: VerdictLog, jobs: tuple[str, ...]) -> tuple[Trace, VerdictLog]:
    """Some jobs of the trace, and the verdicts on them."""
    log.check_jobs(trace.job_ids)
    chosen = log.of_jobs(jobs)
    if left := len(log) - len(chosen):
        note(f"{left} verdicts are about other jobs and were left out")
    return trace.select(jobs), chosen
