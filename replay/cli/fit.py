"""The verb ``fit``: let a detector learn from jobs whose answer is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from replay.cli.judging import words
from replay.cli.output import note, tell_left_out

__all__ = ["fit"]


@click.command()
@click.argument("path")
@click.option("--out", required=True, type=click.Path(dir_okay=False), help="Where to write it.")
@click.option("--detector", default="learned", show_default=True, help="Which one is to learn.")
@click.option("--jobs", default="all", show_default=True, metavar="JOB,..", help="Which jobs.")
@click.option("--label-map", metavar="K=V,..", help="Meaning of labels, as score takes it.")
@click.option("--format", "form", type=click.Choice(["folders", "jsonl", "parquet"]), help="Form.")
@click.option("--lenient", is_flag=True, help="Skip bad rows and jobs, and list them.")
def fit(path: str, out: str, detector: str, **given: Any) -> None:
    """Fit a detector on the jobs of a trace, and write what it learned as JSON.

    Use it as "learned:model=FILE". How well it does on jobs it has seen says nothing: bench
    --cross-validate fits anew for every fold, and leaves out all jobs that share nodes.
    """
    from replay import traces
    from replay.bench.folds import Course
    from replay.bench.folds import fit as learn
    from replay.errors import UsageError
    from replay.scoring import LabelMap

    if not Path(out).parent.is_dir():
        raise UsageError(f"There is no folder {Path(out).parent}.", "make it")
    trace = traces.open(path, form=given["form"], lenient=given["lenient"])
    tell_left_out(trace.findings)
    if given["jobs"] != "all":
        trace = trace.select(words(given["jobs"]))
    labels = LabelMap() if given["label_map"] is None else LabelMap.parse(given["label_map"])
    course = Course.of(trace, detector, labels)
    Path(out).write_text(learn(course) + "\n", encoding="utf-8")
    faulty = sum(sum(answers.values()) for answers in course.labels)
    note(f"Learned from {len(trace)} jobs with {faulty} faulty nodes: {out}")
