"""What the verbs that score have in common: how to judge, what to gate, where to put it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from replay.cli.durations import Duration
from replay.cli.output import note, print_json, print_line, print_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from replay.report import Table
    from replay.scoring import Drop, GateResult, Policy, Score
    from replay.traces import Trace

__all__ = [
    "FAIL_IF",
    "GATES",
    "KEEPING",
    "POLICY",
    "enforce",
    "foresee",
    "gates",
    "metrics_of",
    "options",
    "policy_of",
    "publish",
    "references",
    "show",
]

ALWAYS_REFERENCES = frozenset({"token-memory"})

POLICY = (
    click.option(
        "--policy",
        "kind",
        type=click.Choice(["ever", "final"]),
        default="ever",
        show_default=True,
        help="A node is blamed if it was raised at all, or if it is raised at the end.",
    ),
    click.option(
        "--hold", type=Duration(), default=0.0, metavar="T", help="Time a raise must last to count."
    ),
    click.option(
        "--grace",
        type=Duration(),
        default=0.0,
        metavar="T",
        help="Time after a job's end that counts.",
    ),
    click.option(
        "--label-map",
        metavar="K=V,..",
        help="Meaning of labels: normal=negative,=ignore,*=positive unless given.",
    ),
    click.option("--strict-labels", is_flag=True, help="Refuse labels that only * covers."),
    click.option(
        "--within",
        default="60,300,600,1800",
        show_default=True,
        metavar="S,..",
        help="Every <T> in recall_at_<T>, rmdd_<T>, aurt_<T> and km_.._<T>.",
    ),
    click.option(
        "--cost",
        default="balanced",
        show_default=True,
        metavar="PROFILE|K=V,..",
        help="balanced, page-averse, miss-averse, or c_fn=10,c_fp=1,c_delay_per_hour=6,"
        "tau_s=1800,c_healthy_job_alarm=2,zero=start.",
    ),
    click.option("--by", default="", metavar="KEY,..", help="Score apart by: gpu_generation."),
    click.option(
        "--cluster",
        type=click.Choice(["job", "component"]),
        default="job",
        show_default=True,
        help="Resample jobs, or groups of jobs that share node tokens.",
    ),
    click.option("--resamples", default=9999, show_default=True, metavar="N", help="0 for none."),
)
"""Options that say how to judge."""

FAIL_IF = click.option(
    "--fail-if",
    multiple=True,
    metavar="GATE",
    help='Exit 4 if it holds or is undefined: "f1 < 0.8", "burst: recall_at_60_start < 0.5".',
)

KEEPING = (
    click.option(
        "--out", type=click.Path(path_type=Path, file_okay=False), help="Keep the run here."
    ),
    click.option("--force", is_flag=True, help="Replace an earlier run in the folder of --out."),
)
"""Options that say where to keep what came out."""

GATES = (
    FAIL_IF,
    click.option("--baseline", type=click.Path(), help="An earlier run, for --max-drop."),
    click.option(
        "--max-drop", multiple=True, metavar="METRIC=D", help="Exit 4 if it got worse by more."
    ),
    click.option("--metrics", default="", metavar="KEY,..", help="Columns of the table."),
    click.option("--junit", type=click.Path(), help="Write the gates as JUnit XML."),
    click.option("--markdown", type=click.Path(), help="Write the table and gates as Markdown."),
    click.option("--html", type=click.Path(), help="Write them as a page that needs no network."),
    click.option(
        "--github",
        is_flag=True,
        envvar="GITHUB_ACTIONS",
        help="Annotate the build with gates that failed. On under GitHub Actions.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print one JSON document."),
)
"""Options that say what must hold, and how to show it."""


def options(*groups: Iterable[Callable[..., Any]]) -> Callable[[Any], Any]:
    """Put groups of options on a command, in their order."""

    def decorate(command: Any) -> Any:
        for option in reversed([option for group in groups for option in group]):
            command = option(command)
        return command

    return decorate


def policy_of(given: dict[str, Any], seed: int = 0) -> Policy:
    """Take the options of :data:`POLICY` out of a command's, as one value.

    Raises:
        UsageError: A value makes no sense.
    """
    from replay.errors import UsageError
    from replay.scoring import Cost, LabelMap, Policy

    label_map, strict = given.pop("label_map"), given.pop("strict_labels")
    within = given.pop("within")
    try:
        limits = tuple(float(part) for part in within.split(","))
    except ValueError as error:
        raise UsageError(f"--within {within!r} is no list of seconds.", "60,300") from error
    return Policy(
        kind=given.pop("kind"),
        hold_s=given.pop("hold"),
        grace_s=given.pop("grace"),
        labels=LabelMap(strict=strict)
        if label_map is None
        else LabelMap.parse(label_map, strict=strict),
        within=limits,
        cost=Cost.parse(given.pop("cost")),
        by=words(given.pop("by")),
        cluster=given.pop("cluster"),
        resamples=given.pop("resamples"),
        seed=seed,
    )


def words(text: str) -> tuple[str, ...]:
    """Words between commas, blanks around them dropped; none if empty."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def references(detectors: Iterable[str]) -> list[str]:
    """Which of these names belong to reference detectors, as far as they are installed."""
    from replay.plugins import DETECTORS, installed

    points = {point.name: point for point in installed(DETECTORS)}
    found = []
    for name in detectors:
        plain = name.partition(":")[0]
        try:
            baseline = plain in points and points[plain].load().baseline
        except Exception:  # noqa: BLE001 - what cannot be loaded here can still be scored
            baseline = False
        if baseline or plain in ALWAYS_REFERENCES:
            found.append(name)
    return found


def publish(score: Score, given: dict[str, Any], *, leaderboard: bool = False) -> None:
    """Show a score, hold it against its gates, and write what was asked for.

    Args:
        score: The score.
        given: A command's options, with those of :data:`GATES` in it.
        leaderboard: Best first, with intervals.

    Raises:
        GateError: A gate failed.
        UsageError: A gate names what does not exist.
    """
    from replay import report

    results = _gates_of(score, given)
    if given["junit"]:
        _write(given["junit"], report.junit(score, results))
    if given["markdown"]:
        _write(given["markdown"], report.markdown(score, results))
    if given["html"]:
        _write(given["html"], report.html(score, results))
    if given["as_json"]:
        print_json(score.document() | _gates(results))
    else:
        show(report.table(score, _metrics(score, given["metrics"]), leaderboard=leaderboard))
        for stratum in report.strata_tables(score):
            print_line("")
            show(stratum)
    for line in report.github_annotations(results) if given["github"] else ():
        note(line)
    enforce(results)


def foresee(given: dict[str, Any], trace: Trace, detectors: Sequence[str], policy: Policy) -> None:
    """Refuse what :func:`publish` would refuse, while nothing has been run yet.

    Args:
        given: A command's options, with those of :data:`GATES` in it.
        trace: What will be scored.
        detectors: Who will be.
        policy: How.

    Raises:
        UsageError: A gate or a column names what does not exist, or a file cannot be written.
    """
    from replay import scoring
    from replay.errors import UsageError

    for path in (Path(given[key]) for key in ("junit", "markdown", "html") if given[key]):
        if path.is_dir() or not path.parent.is_dir():
            why = "it is a folder" if path.is_dir() else f"there is no folder {path.parent}"
            raise UsageError(f"{path} cannot be written: {why}.")
    if given["metrics"] or given["baseline"] or given["max_drop"] or _asked_of(given):
        blank = scoring.blank(trace, detectors, policy)
        _metrics(blank, given["metrics"])
        _gates_of(blank, given)


def _asked_of(given: dict[str, Any]) -> Sequence[str]:
    """The gates of the command line, or else those of the configuration."""
    asked: Sequence[str] = given["fail_if"] or _configured()
    return asked


def _gates_of(score: Score, given: dict[str, Any]) -> list[GateResult]:
    from replay import scoring

    baseline = scoring.Score.read(given["baseline"]) if given["baseline"] else None
    drops = [scoring.Drop.parse(text) for text in given["max_drop"]]
    return gates(score, _asked_of(given), drops, baseline)


def gates(
    score: Score,
    texts: Iterable[str],
    drops: Sequence[Drop] = (),
    baseline: Score | None = None,
) -> list[GateResult]:
    """Hold a score against gates as they are written, and against an earlier score.

    Raises:
        UsageError: A gate makes no sense, or names what does not exist.
    """
    from replay.scoring import Gate, check

    return check(score, [Gate.parse(text) for text in texts], drops, baseline)


def enforce(results: Sequence[GateResult]) -> None:
    """Say how the gates stand.

    Raises:
        GateError: One of them failed.
    """
    from replay.errors import GateError

    for result in results:
        verdict = "passed" if result.passed else "FAILED"
        note(f"gate {verdict}: {result.detector}: {result.gate} ({result.message})")
    if failed := [result for result in results if not result.passed]:
        raise GateError(f"{len(failed)} of {len(results)} gates failed.")


def _configured() -> tuple[str, ...]:
    """The gates of ``alert-replay.toml`` and the environment, for a command that names none."""
    from replay.config import load

    config, _ = load({}, os.environ, Path.cwd())
    return config.fail_if


def show(shown: Table) -> None:
    """Print a table of ours and its notes."""
    print_table(shown.columns, shown.rows, title=shown.title, dim=shown.dim)
    for line in shown.notes:
        print_line(line)


def _metrics(score: Score, text: str) -> tuple[str, ...] | None:
    """Metrics to show; a name that no detector has is an error."""
    return metrics_of(text, {key for scored in score.detectors.values() for key in scored.metrics})


def metrics_of(text: str, known: Iterable[str]) -> tuple[str, ...] | None:
    """Names of metrics between commas; None if there is none.

    Raises:
        UsageError: One of them is not known.
    """
    import difflib

    from replay.errors import UsageError

    shown = words(text)
    known = set(known)
    for key in shown:
        if key not in known:
            close = difflib.get_close_matches(key, sorted(known), 5, 0.0)
            raise UsageError(f"There is no metric {key!r}.", ", ".join(close))
    return shown or None


def _gates(results: Iterable[GateResult]) -> dict[str, Any]:
    found = [
        {
            "gate": result.gate,
            "detector": result.detector,
            "passed": result.passed,
            "message": result.message,
        }
        for result in results
    ]
    return {"gates": found} if found else {}


def _write(path: str, text: str) -> None:
    from replay.errors import UsageError

    try:
        Path(path).write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.") from error
