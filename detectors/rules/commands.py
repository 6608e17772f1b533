"""The verb ``rules``: alerting rules checked, tried on a trace, rescaled and unit-tested.

A command plug-in, not a detector: it opens traces and shows scores, and so it may know the rooms
that detectors must not.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from replay.cli.judging import GATES, POLICY, foresee, options, policy_of, publish
from replay.cli.output import (
    note,
    print_json,
    print_line,
    print_table,
    tell_left_out,
    writing,
)
from replay.errors import ReplayError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from detectors.rules.counters import History
    from detectors.rules.program import Program, Settings
    from detectors.rules.watch import Changes
    from replay.messages import TimedVerdict
    from replay.scoring import Score
    from replay.traces import Trace

__all__ = ["rules"]

SETTINGS = (
    click.option(
        "--dialect",
        type=click.Choice(["prometheus3", "prometheus2"]),
        default="prometheus3",
        show_default=True,
        help="Windows as in Prometheus 3, or with their left end as before.",
    ),
    click.option("--label", default="ip", show_default=True, help="Label that names the node."),
    click.option(
        "--scrape", default="15s", show_default=True, metavar="T", help="Between scrapes."
    ),
    click.option(
        "--interval",
        default="15s",
        show_default=True,
        metavar="T",
        help="Between evaluations, where a group does not say.",
    ),
)
"""Options that say how rules see a job."""


@click.group()
def rules() -> None:
    """Put Prometheus alerting rules on trial: check, run, rescale, test."""


@rules.command()
@click.argument("file")
@options(SETTINGS)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def check(file: str, *, as_json: bool, **given: Any) -> None:
    """Read a rule file; say what is refused, and what is most likely not meant."""
    from detectors.rules.lint import lint
    from detectors.rules.program import load_program

    program = load_program(file, _settings(given))
    remarks = lint(program)
    alerts = sum(rule.alerting for rule in program.file.rules)
    if as_json:
        print_json(
            {
                "file": file,
                "groups": len(program.file.groups),
                "alerting_rules": alerts,
                "recording_rules": len(program.file.rules) - alerts,
                "warnings": [
                    {"line": remark.line, "rule": remark.rule, "text": remark.text}
                    for remark in remarks
                ],
            }
        )
        return
    for line in _remarks(program):
        print_line(line)
    print_line(
        f"{len(program.file.groups)} groups, {alerts} alerting rules, "
        f"{len(program.file.rules) - alerts} recording rules, {len(remarks)} warnings"
    )


@rules.command()
@click.argument("file")
@click.argument("path")
@click.argument("jobs", nargs=-1, metavar="[JOB]...")
@options(SETTINGS)
@click.option("--eval-offset", default="0s", metavar="T", help="Evaluate that much later.")
@click.option(
    "--phases",
    default=1,
    show_default=True,
    type=click.IntRange(1, 100),
    help="Try so many offsets over an interval; show min, median and max.",
)
@click.option(
    "--zero",
    type=click.Choice(["none", "two-step", "cross", "seen"]),
    default="none",
    show_default=True,
    help="What a counter shows before its first alert; seen looks ahead.",
)
@click.option("--kinds", default="", metavar="A|B", help="Kinds that --zero cross begins with.")
@click.option("--lookback", default="5m", show_default=True, metavar="T", help="Until stale.")
@click.option("--format", "form", type=click.Choice(["folders", "jsonl", "parquet"]), help="Form.")
@click.option("--lenient", is_flag=True, help="Skip bad rows and jobs, and list them.")
@click.option("--seed", default=0, show_default=True, help="Of the resampling.")
@click.option("--verdicts", type=click.Path(), help="Write the verdicts as JSON lines.")
@options(POLICY, GATES)
def run(file: str, path: str, jobs: tuple[str, ...], **given: Any) -> None:
    """Evaluate a rule file over the jobs of a trace, and score every alert and the whole file.

    No server is started: the rules see llm_alert_events_total{job_id,ip,event} as a Prometheus
    that scrapes the jobs would, and what they say is held against the truth.
    """
    from replay import traces

    if given["phases"] > 1 and (names := [name for name in _OF_ONE_PHASE if given[name]]):
        flags = " and ".join(f"--{name.replace('_', '-')}" for name in names)
        raise UsageError(
            f"{flags}: --phases shows how much scores vary, not one score.", "one phase"
        )
    settings = _settings(given)
    from detectors.rules.program import load_program

    program = load_program(file, settings)
    trace = traces.open(path, form=given.pop("form"), lenient=given.pop("lenient"))
    tell_left_out(trace.findings)
    trace = trace.select(jobs) if jobs else trace
    policy = policy_of(given, given["seed"])
    phases, where = given.pop("phases"), given.pop("verdicts")
    about = _about(program, comparable=not jobs)
    note(_told(program))
    for line in _remarks(program):
        note(line)
    foresee(given, trace, _names(program), policy)
    scores = [
        _scored(trace, program.shifted(offset), policy, about | {"eval_offset_ms": offset}, where)
        for offset in _offsets(settings, phases)
    ]
    if phases > 1:
        _show_phases(scores, as_json=given["as_json"])
        return
    publish(scores[0], given)


def _remarks(program: Program) -> list[str]:
    """What is most likely not meant."""
    from detectors.rules.lint import lint

    return [
        f"{program.file.path}:{remark.line}: {remark.rule}: {remark.text}"
        for remark in lint(program)
    ]


def _settings(given: dict[str, Any]) -> Settings:
    """Take the options that say how rules see a job out of a command's."""
    from detectors.rules.program import Settings, milliseconds

    return Settings(
        dialect=given.pop("dialect"),
        scrape=milliseconds(given.pop("scrape")),
        interval=milliseconds(given.pop("interval")),
        eval_offset=milliseconds(given.pop("eval_offset", "0s")),
        zero=given.pop("zero", "none"),
        vocabulary=tuple(kind for kind in given.pop("kinds", "").split("|") if kind),
        label=given.pop("label"),
        lookback=milliseconds(given.pop("lookback", "5m")),
    )


def _offsets(settings: Settings, phases: int) -> list[int]:
    """Evaluation offsets, evenly over an interval from the one given on."""
    return [settings.eval_offset + number * settings.interval // phases for number in range(phases)]


def _about(program: Program, *, comparable: bool) -> dict[str, Any]:
    settings = program.settings
    return {
        "comparable": comparable,
        "rules": program.file.path,
        "dialect": settings.dialect,
        "zero": settings.zero,
        "scrape_ms": settings.scrape,
        "interval_ms": settings.interval,
        "lookback_ms": settings.lookback,
        "label": settings.label,
    }


def _told(program: Program) -> str:
    from detectors.rules.durations import format_duration

    settings = program.settings
    ahead = " (looks ahead)" if settings.zero == "seen" else ""
    return (
        f"{program.file.path}: {len(program.file.alerts)} alerts, dialect {settings.dialect}, "
        f"zero {settings.zero}{ahead}, scrapes every {format_duration(settings.scrape)}"
    )


def _scored(
    trace: Trace, program: Program, policy: Any, about: dict[str, Any], where: str | None
) -> Score:
    """Evaluate all jobs and score the file and each of its alerts."""
    from replay.engine.realtime import frozen_garbage
    from replay.scoring import VerdictLog, onsets_beside, score

    names = _names(program)
    with frozen_garbage():
        log = VerdictLog.of(trace, _verdicts(trace, program), names)
    if where:
        _written(where, lambda: log.write(Path(where)))
    onsets = onsets_beside(trace.source)
    return score(trace, log, policy=policy, detectors=names, onsets=onsets, settings=about)


def _names(program: Program) -> list[str]:
    """Who is judged: the file, and each of its alerts."""
    return ["rules", *(f"rules:{alert}" for alert in program.file.alerts)]


def _verdicts(trace: Trace, program: Program) -> Iterator[TimedVerdict]:
    from detectors.rules.watch import changes_of, verdicts_of
    from replay.messages import TimedVerdict

    label = program.settings.label
    for history in _histories(trace):
        changes = changes_of(program, history)
        alone: dict[str, dict[int, Changes]] = {}  # each alert by itself
        for at, here in changes.items():
            for one in here:
                alone.setdefault(one[0].name, {}).setdefault(at, []).append(one)
        streams = {"rules": changes} | {f"rules:{name}": own for name, own in alone.items()}
        for name, stream in streams.items():
            for number, (at, verdict) in enumerate(verdicts_of(stream, label)):
                yield TimedVerdict("rules", 0, name, history.job, number, at / 1000.0, verdict)


def _histories(trace: Trace) -> Iterator[History]:
    """The alerts of each job in order: (time, row)."""
    import numpy as np

    from detectors.rules.counters import History

    wholes = (_whole(trace.events.column(name)) for name in ("ip", "event"))
    columns = [(whole.indices.to_numpy(), whole.dictionary.to_pylist()) for whole in wholes]
    at_ns = trace.events.column("at").to_numpy()
    bounds = trace.bounds
    for number, job in enumerate(trace.jobs):
        begin, end = bounds[number], bounds[number + 1]
        order = begin + np.argsort(at_ns[begin:end], kind="stable")
        moments = at_ns[order] / 1e9
        last = float(moments[-1]) if len(moments) else 0.0
        yield History(
            job.id,
            job.public.nodes,
            moments,
            columns[0][0][order],
            columns[1][0][order],
            columns[0][1],
            columns[1][1],
            max(job.duration_ns / 1e9, last),
        )


def _whole(column: Any) -> Any:
    """One array of a column of words."""
    import pyarrow as pa

    whole = column.unify_dictionaries().combine_chunks()
    return pa.array([], column.type) if isinstance(whole, pa.ChunkedArray) else whole


_OF_ONE_PHASE = (
    "verdicts",
    "fail_if",
    "baseline",
    "max_drop",
    "metrics",
    "junit",
    "markdown",
    "html",
)
"""Options that are about the score of one phase."""

_PHASE_METRICS = ("precision", "recall", "f1", "latency_job_alert_p50_all")


def _show_phases(scores: list[Score], *, as_json: bool) -> None:
    """How results vary with the phase of the evaluations."""
    from replay.report import number
    from replay.scoring import finite, with_infinity

    spread = {
        name: {
            metric: _spread([with_infinity(score[name], metric) for score in scores])
            for metric in _PHASE_METRICS
        }
        for name in scores[0].detectors
    }
    if as_json:
        detectors = {
            name: {
                metric: {which: finite(value) for which, value in three.items()}
                for metric, three in found.items()
            }
            for name, found in spread.items()
        }
        settings = scores[0].settings
        print_json({"phases": len(scores), "detectors": detectors, "settings": settings})
        return
    rows = [
        [name, metric, *(number(metric, found[metric][which]) for which in _WHICH)]
        for name, found in spread.items()
        for metric in _PHASE_METRICS
    ]
    print_table(["<detector", "<metric", *_WHICH], rows, title=f"{len(scores)} phases")


_WHICH = ("min", "median", "max")


def _spread(values: Iterable[Any]) -> dict[str, float | None]:
    known = sorted(float(value) for value in values if value is not None)
    if not known:
        return dict.fromkeys(_WHICH)
    return {"min": known[0], "median": known[(len(known) - 1) // 2], "max": known[-1]}


@rules.command()
@click.argument("file")
@click.option("--speed", required=True, metavar="K", help="Trace seconds per wall second.")
@click.option("--scrape", default="15s", show_default=True, metavar="T", help="Between scrapes.")
@click.option("--out", type=click.Path(), help="Write here instead of printing.")
def rescale(file: str, speed: str, scrape: str, out: str | None) -> None:
    """Rewrite a rule file for a Prometheus that scrapes a replay at a speed.

    Every duration is divided by the speed, and so is what is counted per second. Comments, order
    and templates stay as they are.
    """
    from detectors.rules.documents import read_text
    from detectors.rules.program import milliseconds
    from detectors.rules.rescale import rescale as rewrite

    try:
        factor = Fraction(speed.strip().lower().removesuffix("x"))
    except (ValueError, ZeroDivisionError):
        raise UsageError(f"--speed {speed!r} is not a number.", "--speed 10") from None
    done = rewrite(read_text(file), factor, file, milliseconds(scrape))
    for warning in done.warnings:
        note(warning)
    if out is None:
        with writing():
            click.echo(done.text, nl=False)
        return
    _written(out, lambda: Path(out).write_text(done.text, encoding="utf-8", newline=""))


def _written(path: str, write: Callable[[], Any]) -> None:
    try:
        write()
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.") from error


@rules.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--dialect",
    type=click.Choice(["prometheus3", "prometheus2"]),
    default="prometheus3",
    show_default=True,
    help="Windows as in Prometheus 3, or with their left end as before.",
)
def test(files: tuple[str, ...], dialect: Any) -> None:
    """Run unit tests for rules, in the format of promtool test rules."""
    from detectors.rules.unit_tests import run_tests

    passed = failed = 0
    for file in files:
        outcome = run_tests(file, dialect)
        passed += outcome.passed
        failed += len(outcome.failures)
        for failure in outcome.failures:
            print_line(failure)
    print_line(f"{passed} passed, {failed} failed")
    if failed:
        raise ReplayError(f"{failed} of {passed + failed} checks failed.")
