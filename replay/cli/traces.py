"""The verbs about traces: check, convert, list, describe, anonymize, fetch."""

from __future__ import annotations

import shutil
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from replay.cli.output import command, note, print_json, print_line, print_table

if TYPE_CHECKING:
    from replay.traces import Findings, Form, Trace
    from replay.traces.facts import JobFacts

__all__ = ["anonymize", "convert", "fetch", "info", "jobs", "validate"]

SCHEMA = 1
"""Version of every ``--json`` document of these verbs."""

BAD_DATA = 3

_FORMS = click.Choice(["folders", "jsonl", "parquet"])
_BLOCKS = " ▁▂▃▄▅▆▇█"

path_argument = click.argument("path", type=click.Path())
json_option = click.option("--json", "as_json", is_flag=True, help="Say it as one JSON document.")
format_option = click.option(
    "--format", "form", type=_FORMS, help="Form to read, where several stand side by side."
)
lenient_option = click.option(
    "--lenient", is_flag=True, help="Skip faulty rows and jobs, and list them, instead of stopping."
)


@click.command()
@path_argument
@format_option
@json_option
def validate(path: str, form: Form | None, as_json: bool) -> None:
    """Check a trace: every fault with its place and its remedy. Exit code 3 if there is one."""
    from replay.errors import TraceError
    from replay.traces import Findings
    from replay.traces.reading import read

    findings = Findings(strict=False)
    trace = None
    try:
        trace = read(path, findings, form=form)
    except TraceError as error:
        findings.caught(error)
    jobs, events = (0, 0) if trace is None else (len(trace), trace.events.num_rows)
    if as_json:
        counts = {"jobs": jobs, "events": events}
        form_read = None if trace is None else trace.form
        print_json(
            {"schema": SCHEMA, "source": path, "form": form_read, **counts, **_said(findings)}
        )
    else:
        _note_form(trace)
        for line in findings.lines():
            print_line(line)
        print_line(findings.summary(jobs, events))
    if findings.errors:
        raise click.exceptions.Exit(BAD_DATA)


@click.command()
@click.argument("source", metavar="IN", type=click.Path())
@click.argument("target", metavar="OUT", type=click.Path())
@click.option("--to", type=_FORMS, help="Form to write; OUT.jsonl[.gz|.zst] needs none.")
@format_option
@lenient_option
@json_option
def convert(
    source: str, target: str, to: Form | None, form: Form | None, lenient: bool, as_json: bool
) -> None:
    """Write a trace in another form, without loss."""
    from replay import traces

    trace = _read(source, form, lenient)
    written = traces.write(trace, target, to)
    _take_onsets_along(source, written)
    counts = {"jobs": len(trace), "events": trace.events.num_rows}
    if as_json:
        print_json({"schema": SCHEMA, "written": str(written), **counts, **_said(trace.findings)})
    else:
        print_line(f"{written}: {counts['jobs']} jobs, {counts['events']} events")
        note(f"Next: {command('validate', written)}")


def _take_onsets_along(source: str, written: Path) -> None:
    """Copy the ``truth.json`` of a synthetic trace's folder into the new one."""
    from replay.scoring import onsets_beside

    if source.startswith("hf://") or onsets_beside(source) is None:
        return
    old = Path(source)
    truth = (old if old.is_dir() else old.parent) / "truth.json"
    if written.is_dir():
        shutil.copyfile(truth, written / truth.name)
    else:
        note(f"The onsets in {truth} stay there: name them with score --truth {truth}")


@click.command()
@path_argument
@format_option
@lenient_option
@json_option
def jobs(path: str, form: Form | None, lenient: bool, as_json: bool) -> None:
    """List the jobs of a trace."""
    from replay.traces.facts import facts_of_jobs

    trace = _read(path, form, lenient)
    facts = facts_of_jobs(trace)
    if as_json:
        print_json({"schema": SCHEMA, "source": path, "jobs": [asdict(job) for job in facts]})
        return
    columns = ["<job", "<starts", "lasts", "nodes", "alerting", "alerts", "kinds", "<GPUs"]
    print_table(columns, [_row(job) for job in facts])
    note(f"Next: {command('info', path, facts[0].id)}")


def _row(job: JobFacts) -> tuple[str, ...]:
    from replay.traces.findings import named

    counts = (job.nodes, job.alerting, job.alerts, len(job.kinds))
    numbers = (f"{count:,}" for count in counts)
    return (named(job.id), job.start_time, _span(job.duration), *numbers, named(job.gpu_generation))


@click.command()
@path_argument
@click.argument("job", required=False)
@click.option("--truth", is_flag=True, help="Also show which nodes were at fault.")
@format_option
@lenient_option
@json_option
def info(
    path: str, job: str | None, truth: bool, form: Form | None, lenient: bool, as_json: bool
) -> None:
    """Describe one job, or a whole trace."""
    trace = _read(path, form, lenient)
    document = _about_trace(trace, truth) if job is None else _about_job(trace, job, truth)
    if as_json:
        print_json({"schema": SCHEMA, "source": path, **document, **_said(trace.findings)})
    elif job is None:
        _print_trace(document)
        note(f"Next: {command('info', path, trace.jobs[0].id)}")
    else:
        _print_job(document)
        note(f"Next: {command('run', path, job, '--speed', 10)}")


@click.command()
@click.argument("source", metavar="IN", type=click.Path())
@click.argument("target", metavar="OUT", type=click.Path())
@click.option("--key-file", required=True, type=click.Path(), help="A secret of 16 bytes or more.")
@click.option("--per-job", is_flag=True, help="Another pseudonym for a node in every job.")
@click.option("--seed", default=0, show_default=True, help="Another seed, other shifts of time.")
@click.option(
    "--event-names",
    "names_file",
    type=click.Path(),
    help="JSON object: name of an event, and what it becomes. Without it names are kept.",
)
@click.option("--keep-job-ids", is_flag=True, help="Do not rename the jobs.")
@click.option("--to", type=_FORMS, help="Form to write; the form read, if not given.")
@format_option
@json_option
def anonymize(
    source: str,
    target: str,
    key_file: str,
    per_job: bool,
    seed: int,
    names_file: str | None,
    keep_job_ids: bool,
    to: Form | None,
    form: Form | None,
    as_json: bool,
) -> None:
    """Make a trace shareable: pseudonyms, shifted times; says what remains linkable."""
    from pathlib import Path

    from replay import traces
    from replay.traces import anonymize as room

    pseudonyms = room.Pseudonyms(room.read_key(Path(key_file)), per_job, seed)
    names = room.read_names(Path(names_file)) if names_file is not None else None
    trace = _read(source, form, lenient=False)
    result = room.anonymize(trace, pseudonyms, event_names=names, keep_job_ids=keep_job_ids)
    written = traces.write(result, target, to or traces.form_for(target, trace.form))
    left = room.linkable(result, mapped=names is not None, renamed=not keep_job_ids)
    if as_json:
        print_json({"schema": SCHEMA, "written": str(written), "linkable": asdict(left)})
        return
    print_line(f"{written}: {len(result)} jobs, {result.events.num_rows} events")
    print_line("What remains linkable:")
    for line in left.lines():
        print_line(f"- {line}")
    note(f"Next: {command('validate', written)}")


@click.command()
@click.option("--revision", required=True, help="Commit hash to fetch; or a branch, to learn it.")
@click.option("--dataset", default=None, metavar="OWNER/NAME", help="Another data set.")
@click.option("--form", default="parquet", type=click.Choice(["parquet", "jsonl"]))
@click.option("--into", type=click.Path(), envvar="ALERT_REPLAY_CACHE", help="Where to keep it.")
@click.option("--endpoint", envvar="ALERT_REPLAY_HUB", help="Address of the hub.")
@json_option
def fetch(
    revision: str,
    dataset: str | None,
    form: Form,
    into: str | None,
    endpoint: str | None,
    as_json: bool,
) -> None:
    """Download the published data set once, check it, and keep it for offline use."""
    import os
    from pathlib import Path

    from replay.errors import UsageError
    from replay.traces import hub

    repo = dataset or hub.PUBLISHED
    cache = Path(into or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "alert-replay")
    try:
        cache = cache.expanduser()
    except RuntimeError as error:
        raise UsageError("There is no home folder to keep it in.", "--into FOLDER") from error
    fetched = hub.fetch(cache, revision, repo=repo, form=form, endpoint=endpoint)
    about = {"licence": hub.LICENCE, "citation": hub.CITATION} if repo == hub.PUBLISHED else {}
    if as_json:
        document = {**asdict(fetched), "folder": str(fetched.folder), "dataset": repo, **about}
        print_json({"schema": SCHEMA, **document})
        return
    state = "was there already" if fetched.cached else "fetched"
    note(f"{repo} at {fetched.commit}: {state}; checksums match.")
    for name, digest in fetched.sums.items():
        note(f"sha256 {digest}  {name}")
    for label, text in about.items():
        note(f"{label.capitalize()}: {text}")
    print_line(str(fetched.folder))
    note(f"Next: {command('validate', fetched.folder)}")


def _about_job(trace: Trace, job_id: str, truth: bool) -> dict[str, Any]:
    from replay.traces.facts import facts_of_jobs, shared_nodes

    one = trace.job(job_id)
    (facts,) = facts_of_jobs(one)
    document = {**asdict(facts), "shared_nodes": shared_nodes(trace, job_id)}
    if truth:
        labels = one.jobs[0].ip_status
        document["faulty"] = {node: label for node, label in labels.items() if label != "normal"}
    return document


def _about_trace(trace: Trace, truth: bool) -> dict[str, Any]:
    from replay.traces.facts import facts_of_jobs, recurring_nodes

    facts = facts_of_jobs(trace)
    nodes, recurring = recurring_nodes(trace)
    document: dict[str, Any] = {
        "form": trace.form,
        "jobs": len(trace),
        "alerts": trace.events.num_rows,
        "nodes": nodes,
        "recurring_nodes": recurring,
        "kinds": len({kind.name for job in facts for kind in job.kinds}),
        "shortest": min(job.duration for job in facts),
        "longest": max(job.duration for job in facts),
        **{name: sum(getattr(job, name) for job in facts) for name in _QUALITY},
    }
    if truth:
        document["faulty"] = {
            job.id: {node: label for node, label in job.ip_status.items() if label != "normal"}
            for job in trace.jobs
        }
    return document


def _print_trace(about: dict[str, Any]) -> None:
    from replay.traces.findings import named

    for label, text in {
        "form": about["form"],
        "jobs": f"{about['jobs']:,}, of {_span(about['shortest'])} to {_span(about['longest'])}",
        "alerts": f"{about['alerts']:,} of {about['kinds']} kinds",
        "nodes": f"{about['nodes']:,}, of which {about['recurring_nodes']:,} in more than one job",
    }.items():
        print_line(f"{label:<9}{text}")
    _print_quality(about)
    for job, faulty in about.get("faulty", {}).items():
        print_line(f"{named(job)}: {_faulty(faulty)}")


def _print_job(about: dict[str, Any]) -> None:
    from replay.traces.findings import named

    silent = about["nodes"] - about["alerting"]
    span = f"{about['start_time']} to {about['end_time']}, {_span(about['duration'])}"
    for label, text in {
        "job": named(about["id"]),
        "span": span,
        "GPUs": named(about["gpu_generation"]) or "not said",
        "nodes": f"{about['nodes']:,}, of which {silent:,} never alert",
        "alerts": f"{about['alerts']:,}{_first_and_last(about)}",
        "bursts": _sparkline(about["bursts"]),
    }.items():
        print_line(f"{label:<9}{text}")
    kinds = about["kinds"]
    rows = [(named(kind["name"]), f"{kind['alerts']:,}", f"{kind['nodes']:,}") for kind in kinds]
    print_table(["<kind", "alerts", "nodes"], rows)
    _print_quality(about)
    if shared := about["shared_nodes"]:
        others = ", ".join(f"{named(job)} ({count})" for job, count in list(shared.items())[:10])
        print_line(f"shares nodes with {len(shared)} jobs: {others}")
    if "faulty" in about:
        print_line(f"faulty   {_faulty(about['faulty'])}")


_QUALITY = {
    "outside": "alerts lie outside the job's span",
    "unsorted": "alerts come after a later one in the file",
    "unlisted": "nodes alert without being listed in ip_status",
    "tied": "alerts share their instant with another",
    "repeated": "alerts repeat an earlier one in every column",
}


def _print_quality(about: dict[str, Any]) -> None:
    for name, what in _QUALITY.items():
        if about[name]:
            print_line(f"note     {about[name]:,} {what}")


def _faulty(labels: dict[str, str]) -> str:
    from replay.traces.findings import named

    return ", ".join(f"{named(node)} ({named(label)})" for node, label in labels.items()) or "none"


def _first_and_last(about: dict[str, Any]) -> str:
    if about["first"] is None:
        return ""
    return f", the first at {_span(about['first'])}, the last at {_span(about['last'])}"


def _sparkline(counts: tuple[int, ...]) -> str:
    """Counts as blocks; any alert at all shows."""
    most = max(counts, default=0)
    return "".join(_BLOCKS[-(-8 * count // most)] if count else " " for count in counts)


def _span(seconds: float) -> str:
    """Seconds as ``H:MM:SS``, with days in front where there are any."""
    whole, sign = round(abs(seconds)), "-" if seconds < 0 else ""
    days, rest = divmod(whole, 86_400)
    minutes, second = divmod(rest, 60)
    clock = f"{minutes // 60}:{minutes % 60:02}:{second:02}"
    return f"{sign}{days}d {clock}" if days else f"{sign}{clock}"


def _read(path: str, form: Form | None, lenient: bool) -> Trace:
    """Read a trace; say its form, and how much was odd or skipped."""
    from replay import traces

    trace = traces.open(path, form=form, lenient=lenient)
    _note_form(trace)
    findings = trace.findings
    if findings.errors:
        for line in findings.lines():
            note(line)
    if findings.errors or findings.warnings:
        summary = findings.summary(len(trace), trace.events.num_rows)
        note(f"{summary}.  See: {command('validate', path)}")
    return trace


def _note_form(trace: Trace | None) -> None:
    if trace:
        note(f"Read {trace.source} as {trace.form}.")


def _said(findings: Findings) -> dict[str, Any]:
    return {
        "warnings": findings.warnings,
        "errors": findings.errors,
        "findings": [finding.as_dict() for finding in findings.shown],
        "counts": [
            {"severity": severity, "kind": kind, "count": count}
            for (severity, kind), count in findings.counts.items()
        ],
    }
