"""The table of detectors in the README, made anew.

``python tests/support/leaderboard.py [PRESET [FIRST-LAST [JOBS]]]`` makes one synthetic trace per
seed, runs every detector over it, and prints a table in Markdown: means over the traces, each with
its 95 % interval. The detectors were built and tuned on seeds 1 to 20 alone.

* Learned detectors are cross-validated within each trace, whole components of jobs that share
  nodes at a time, so each was fitted on about eighty jobs. "over all traces" is cross-validated
  too, in two folds of whole traces: each half is judged by what the other half taught. "as
  shipped" is the model that comes with the package, fitted on seeds 1 to 10.
* The oracle knows how the generator works; see ``ceiling.py``.
"""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import repeat
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from ceiling import measure
from shipped_model import fit_on

from detectors.learned import SHIPPED
from replay.bench import bench
from replay.errors import ReplayError
from replay.plugins import parse_detectors
from replay.scoring import Policy
from replay.traces.synth import make

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from concurrent.futures import Executor

    from replay.bench.pool import MakePool

ORACLE = "an oracle that knows the generator"
CROSSED = "learned, over all traces"
DETECTORS = {
    "learned": "learned",
    CROSSED: "learned:model={model}",
    "learned, as shipped": f"learned:model={SHIPPED}",
    "log-odds": "log-odds",
    **{
        name: name
        for name in (
            "episodes",
            "peers",
            "distinct-kinds",
            "sequence",
            "vote",
            "rate-change",
            "silence",
            "first-in-storm",
            "tolerance",
            "burst",
        )
    },
}
REFERENCES = ("most-kinds", "loudest", "first-alert", "random")
"""The wrappers have no rows of their own: they are worth what they wrap."""

COLUMNS = {
    "node F1": "f1",
    "precision": "precision",
    "recall": "recall",
    "hit@1": "hit_at_1",
    "recall 60 s after onset": "recall_at_60_onset",
    "healthy jobs blamed": "healthy_job_false_alarm_rate",
}

Row = dict[str, "float | None"]


def main(words: Sequence[str], make_pool: MakePool) -> None:
    """Print the table."""
    preset = words[0] if words else "dataset"
    first, _, last = (words[1] if len(words) > 1 else "101-120").partition("-")
    seeds = range(int(first), int(last or first) + 1)
    jobs = int(words[2]) if len(words) > 2 else 98
    with make_pool() as pool, TemporaryDirectory() as room:
        models = crossed(pool, preset, seeds, jobs, Path(room))
        found = []
        for rows in pool.map(rows_of, repeat(preset), seeds, repeat(jobs), models):
            found.append(rows)
            sys.stderr.write(f"{len(found)} of {len(seeds)}\n")
    sys.stdout.write("\n".join(table(found)) + "\n")


def crossed(pool: Executor, preset: str, seeds: range, jobs: int, room: Path) -> list[Path | None]:
    """For each seed, a model that was fitted on every other one; None where there is no other."""
    halves = [list(seeds[1::2]), list(seeds[::2])]
    if not all(halves):
        return [None] * len(seeds)
    for number, model in enumerate(pool.map(fit_on, repeat(preset), halves, repeat(jobs))):
        (room / f"{number}.json").write_text(model, encoding="utf-8")
    return [room / f"{number % 2}.json" for number in range(len(seeds))]


def rows_of(preset: str, seed: int, jobs: int, model: Path | None = None) -> dict[str, Row]:
    """One trace: name → metric → value."""
    made = make(preset, jobs, seed)
    onsets = {job: told["onset"] for job, told in made.truth.items()}
    names = {name: text.format(model=model) for name, text in DETECTORS.items()}
    if model is None:
        names.pop(CROSSED, None)
    names |= zip(REFERENCES, REFERENCES, strict=True)
    asked = list(names.values())
    found = bench(made.trace, asked, policy=Policy(resamples=0), onsets=onsets, folds=5)
    # where one class comes twice, the score tells them apart by what was asked for
    called = [spec.name for spec in parse_detectors(asked)]
    rows: dict[str, Mapping[str, Any]] = {
        name: found.score[own].metrics for name, own in zip(names, called, strict=True)
    }
    rows = {ORACLE: oracle(measure(made)), **rows}
    return {name: {key: row[key] for key in COLUMNS.values()} for name, row in rows.items()}


def oracle(tally: Any) -> Row:
    """What the informed detector reached, under the scorer's names."""
    culprits = tally.tp + tally.fn
    return {
        "f1": 2 * tally.tp / (2 * tally.tp + tally.fp + tally.fn),
        "precision": tally.tp / (tally.tp + tally.fp),
        "recall": tally.tp / culprits,
        "hit_at_1": tally.hits["informed"] / tally.faulty,
        "recall_at_60_onset": tally.fast / culprits,
        "healthy_job_false_alarm_rate": tally.alarmed / tally.sound,
    }


def table(found: Sequence[Mapping[str, Row]]) -> list[str]:
    """Lines of Markdown."""
    lines = [f"| detector | {' | '.join(COLUMNS)} |", "|---|" + "---|" * len(COLUMNS)]
    for name in (ORACLE, *DETECTORS, *REFERENCES):
        known = [rows[name] for rows in found if name in rows]
        cells = [interval(row[key] for row in known) for key in COLUMNS.values()]
        detector, *how = name.split(", ")
        shown = name if name == ORACLE else ", ".join([f"`{detector}`", *how])
        lines.append(f"| {shown} | {' | '.join(cells)} |")
    return lines


def interval(values: Iterable[float | None]) -> str:
    """The mean over traces, and two standard errors to either side."""
    known = np.array([value for value in values if value is not None])
    if not len(known):
        return "-"
    mean = known.mean()
    if len(known) == 1:
        return f"{mean:.2f}"
    off = 2.0 * known.std(ddof=1) / len(known) ** 0.5
    return f"{mean:.2f} ({max(0.0, mean - off):.2f} to {min(1.0, mean + off):.2f})"


if __name__ == "__main__":
    try:
        main(sys.argv[1:], partial(ProcessPoolExecutor, 2))
    except ReplayError as error:
        sys.exit(str(error))
