"""The verb ``score``: verdicts that anyone wrote, against the truth of a trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from replay.cli.judging import GATES, POLICY, options, policy_of, publish, references, words
from replay.cli.output import note

if TYPE_CHECKING:
    from replay.scoring import Score, VerdictLog
    from replay.traces import Trace

__all__ = ["score"]


@click.command()
@click.option("--trace", "trace_path", required=True, metavar="PATH", help="The trace.")
@click.option("--format", "form", help="folders, jsonl or parquet, where a path holds several.")
@click.option("--verdicts", required=True, metavar="FILE", help="JSON lines or Parquet.")
@click.option(
    "--detectors", default="", metavar="A,B", help="Detectors that may have said nothing."
)
@click.option("--jobs", default="", metavar="JOB,..", help="Score these jobs only.")
@click.option("--truth", metavar="FILE", help="Onsets; truth.json beside the trace unless given.")
@click.option("--curves", is_flag=True, help="Add threshold sweeps and delay curves to the JSON.")
@click.option("--seed", default=0, show_default=True, help="Of the resampling.")
@click.option("--out", type=click.Path(), help="Keep verdicts and score in this folder.")
@options(POLICY, GATES)
def score(**given: Any) -> None:
    """Score a verdict log against the truth of a trace.

    A log has one verdict a line: detector, job_id, ip (null for the whole job, or a list),
    event_time, and if need be seq, action (raise or retract), score, reason, evidence.
    """
    from replay import traces
    from replay.scoring import onsets_beside, read_log, read_onsets
    from replay.scoring import score as judge

    policy = policy_of(given, given["seed"])
    trace = traces.open(given["trace_path"], form=given["form"])
    log = read_log(given["verdicts"])
    jobs = words(given["jobs"])
    if jobs:
        trace, log = _only(trace, log, jobs)
    declared = words(given["detectors"])
    truth = given["truth"]
    result = judge(
        trace,
        log,
        policy=policy,
        detectors=declared,
        baselines=references({*declared, *log.words("detector")}),
        onsets=read_onsets(truth) if truth else onsets_beside(given["trace_path"]),
        curves=given["curves"],
        settings={"comparable": not jobs},
    )
    if given["out"]:
        _keep(Path(given["out"]), log, result)
    publish(result, given)


def _only(trace: Trace, log: VerdictLog, jobs: tuple[str, ...]) -> tuple[Trace, VerdictLog]:
    """Some jobs of the trace, and the verdicts on them."""
    log.check_jobs(trace.job_ids)
    chosen = log.of_jobs(jobs)
    if left := len(log) - len(chosen):
        note(f"{left} verdicts are about other jobs and were left out")
    return trace.select(jobs), chosen


def _keep(folder: Path, log: VerdictLog, result: Score) -> None:
    from replay.errors import UsageError

    try:
        folder.mkdir(parents=True, exist_ok=True)
        log.write(folder / "verdicts.jsonl")
        log.write(folder / "verdicts.parquet")
        (folder / "score.json").write_text(result.json(), encoding="utf-8", newline="\n")
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror}.") from error
