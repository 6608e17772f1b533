"""The verb ``compare``: two runs on the same jobs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from replay.cli.judging import metrics_of, show
from replay.cli.output import note, print_json, print_line

if TYPE_CHECKING:
    from replay.scoring import Score

__all__ = ["compare"]


@click.command()
@click.argument("a", metavar="RUN")
@click.argument("b", metavar="RUN")
@click.option(
    "--pair",
    "pairs",
    multiple=True,
    metavar="A=B",
    help="A detector of the first run against one of the second; those of one name unless given.",
)
@click.option("--metrics", default="", metavar="KEY,..", help="Rows of the table.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def compare(a: str, b: str, pairs: tuple[str, ...], metrics: str, *, as_json: bool) -> None:
    """Compare two runs: paired differences with intervals, jobs won and lost.

    A RUN is a folder that run, bench or score --out wrote, or the score.json in it. The same run
    twice compares two of its detectors: compare RUN RUN --pair burst=loudest.
    """
    from replay.report import HEADLINE, comparison_table
    from replay.scoring import Score, lower_is_better
    from replay.scoring import compare as compare_pair

    left, right = Score.read(a), Score.read(b)
    chosen = _pairs(left, right, pairs)
    compared = [compare_pair(left, right, *pair) for pair in chosen]
    differences = (*_differences(left, right), *_asked_otherwise(a, b, chosen))
    for line in (*differences, *_crashes(left, right, chosen)):
        note(line)
    known = {key for each in compared for key in each.deltas}
    shown = metrics_of(metrics, known) or HEADLINE
    if as_json:
        print_json({"schema": 1, "comparisons": [each.document() for each in compared]})
        return
    same = [each.a for each in compared if each.same and not pairs]
    for number, each in enumerate(each for each in compared if each.a not in same):
        if number:
            print_line("")
        show(comparison_table(each, shown))
    if same:
        print_line(f"the same in both runs: {', '.join(same)}")
    less = [key for key in shown if lower_is_better(key)]
    if less:
        note(f"less is better: {', '.join(less)}")


def _pairs(left: Score, right: Score, texts: tuple[str, ...]) -> list[tuple[str, str]]:
    """Which detectors to set against which."""
    from replay.errors import UsageError

    if texts:
        pairs = [text.partition("=") for text in texts]
        return [(first.strip(), second.strip() or first.strip()) for first, _, second in pairs]
    common = [(name, name) for name in left.detectors if name in right.detectors]
    if common:
        return common
    if len(left.detectors) == len(right.detectors) == 1:
        return [(next(iter(left.detectors)), next(iter(right.detectors)))]
    raise UsageError("The two runs have no detector of the same name.", "--pair A=B")


def _asked_otherwise(a: str, b: str, pairs: list[tuple[str, str]]) -> list[str]:
    """Detectors that were given other options in the one run than in the other."""
    asked = [_asked(a), _asked(b)]
    return [
        f"{first} was asked for as {asked[0][first]} in A, as {asked[1][second]} in B"
        for first, second in pairs
        if first in asked[0] and second in asked[1] and asked[0][first] != asked[1][second]
    ]


def _asked(run: str) -> dict[str, str]:
    """Detector → how it was asked for, as far as the run's folder tells."""
    from replay.config import load
    from replay.errors import ReplayError
    from replay.plugins import parse_detectors

    config = Path(run) / "config.toml"
    if not config.is_file():
        return {}
    try:
        texts = load({}, {}, config.parent, config)[0].detector
        return {spec.name: text for spec, text in zip(parse_detectors(texts), texts, strict=True)}
    except ReplayError:  # of another version, or a plug-in that is not here: nothing to tell
        return {}


def _crashes(left: Score, right: Score, pairs: list[tuple[str, str]]) -> list[str]:
    """Whose figures are not their merit."""
    from replay.report import crash

    sides = (("A", left, [a for a, _ in pairs]), ("B", right, [b for _, b in pairs]))
    return [
        f"{side}: {name} crashed {crash(score[name], score.settings['jobs'])}"
        for side, score, names in sides
        for name in names
        if score[name].failures
    ]


def _differences(left: Score, right: Score) -> list[str]:
    """Settings that differ; comparing policies is allowed, but must be seen."""
    keys = ("policy", "hold_s", "grace_s", "within_s", "cost", "versions")
    found = [(key, left.settings.get(key), right.settings.get(key)) for key in keys]
    return [f"{key} differs: {one} and {other}" for key, one, other in found if one != other]
