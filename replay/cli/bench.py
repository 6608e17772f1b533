"""The verb ``bench``: every detector on every job, on a leaderboard."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from replay.cli.judging import GATES, KEEPING, POLICY, foresee, options, policy_of, publish, words
from replay.cli.output import aside, complain, note, tell_left_out
from replay.cli.stopping import stoppable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from replay.bench import Task
    from replay.cli.stopping import Stop
    from replay.traces import Trace

__all__ = ["bench"]


@click.command()
@click.argument("path")
@click.option("--jobs", default="all", show_default=True, metavar="JOB,..", help="Which jobs.")
@click.option(
    "-d",
    "--detector",
    "--detectors",
    "detectors",
    multiple=True,
    metavar="NAME[:k=v,..]",
    help="A detector; repeatable. [default: all that are installed]",
)
@click.option("--baselines/--no-baselines", default=True, help="Run the references too.")
@click.option("--workers", type=click.IntRange(1), metavar="N", help="Processes. [default: cores]")
@click.option("--scheduler", metavar="tcp://HOST:PORT", help="Use a running Dask cluster instead.")
@click.option(
    "--cross-validate",
    is_flag=True,
    help="Fit learned detectors on jobs that share no node with the job they watch.",
)
@click.option("--folds", type=click.IntRange(2), default=5, show_default=True, help="For that.")
@click.option("--keep-ip", is_flag=True, help="Show detectors the real names of nodes.")
@click.option("--format", "form", type=click.Choice(["folders", "jsonl", "parquet"]), help="Form.")
@click.option("--lenient", is_flag=True, help="Skip bad rows and jobs, and list them.")
@click.option(
    "--outside",
    type=click.Choice(["keep", "clip", "drop"]),
    default="keep",
    show_default=True,
    help="Alerts outside their job's time.",
)
@click.option("--seed", default=0, show_default=True, help="Of detectors, masks and resampling.")
@click.option("--curves", is_flag=True, help="Add threshold sweeps and delay curves to the JSON.")
@options(KEEPING, POLICY, GATES)
@click.pass_context
def bench(ctx: click.Context, /, path: str, **given: Any) -> None:
    """Run every detector on every job, as fast as the machines allow, and rank them.

    Detectors see pseudonyms of nodes, other ones in every job. Beside the references stands
    token-memory, which raises nodes that were faulty in another job.
    """
    from replay import traces
    from replay.bench import TOKEN_MEMORY
    from replay.bench import bench as run
    from replay.plugins import parse_detectors
    from replay.scoring import make_room, onsets_beside

    policy = policy_of(given, given["seed"])
    trace = traces.open(path, form=given["form"], lenient=given["lenient"])
    tell_left_out(trace.findings)
    if given["out"]:
        make_room(given["out"], force=given["force"])
    jobs = () if given["jobs"] == "all" else words(given["jobs"])
    chosen = trace.select(jobs) if jobs else trace
    with aside():
        names = _detectors(given["detectors"], baselines=given["baselines"])
        judged = [*(spec.name for spec in parse_detectors(names)), TOKEN_MEMORY]
    foresee(given, chosen, judged, policy)
    with _interruptible(), _progress(chosen) as done, aside():
        found = run(
            chosen,
            names,
            policy=policy,
            pool=_pool(given["scheduler"], given["workers"]),
            seed=given["seed"],
            keep_ip=given["keep_ip"],
            outside=given["outside"],
            onsets=onsets_beside(path),
            curves=given["curves"],
            folds=given["folds"] if given["cross_validate"] else 0,
            filtered=len(chosen) < len(trace),
            done=done,
        )
    for failure in found.failures:
        complain(failure)
    try:
        if given["out"]:
            found.write(given["out"], force=given["force"])
    finally:  # what could not be kept is still shown
        publish(found.score, given, leaderboard=True)
    if found.failures:
        ctx.exit(6)


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C and SIGTERM end it, workers and all, without a result."""

    def asked(_: Stop) -> None:
        raise KeyboardInterrupt

    with stoppable(asked) as stop:
        try:
            yield
        except KeyboardInterrupt:
            raise click.exceptions.Exit(stop.exit_code or 130) from None


def _pool(scheduler: str | None, workers: int | None) -> Callable[[], Any]:
    from replay.bench import dask, processes

    if scheduler is not None:
        return functools.partial(dask, scheduler)
    return functools.partial(processes, workers or os.cpu_count() or 1)


def _detectors(asked: tuple[str, ...], *, baselines: bool) -> list[str]:
    """Those asked for, or all installed ones that need no option; then the references."""
    from replay.errors import PluginError
    from replay.plugins import DETECTORS, DetectorSpec, installed

    everything = not asked or "all" in asked
    real = [text for text in asked if text != "all"]
    references = []
    for name in dict.fromkeys(point.name for point in installed(DETECTORS)):
        if name in asked:
            continue
        try:
            baseline = DetectorSpec.parse(name).cls.baseline
        except PluginError as error:
            if everything:
                note(f"{name} is left out: {error.what}")
            continue
        if baseline:
            references.append(name)
        elif everything:
            real.append(name)
    return real + (references if baselines else [])


@contextlib.contextmanager
def _progress(trace: Trace) -> Iterator[Callable[[Task], None]]:
    """A bar on a terminal's standard error, moved once a job; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("jobs"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        row = bar.add_task("jobs", total=len(trace))
        yield lambda _: bar.advance(row)
