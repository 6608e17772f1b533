"""A score as a table: one row per detector, references dimmed, every header a metric's name."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from replay.scoring import with_infinity
from replay.traces.findings import named

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from replay.scoring import DetectorScore, Interval, Score, Stratum

__all__ = ["HEADLINE", "Table", "crash", "number", "strata_tables", "table", "title"]

HEADLINE = (
    "precision",
    "recall",
    "f1",
    "recall_at_300_job_alert",
    "latency_job_alert_p50_all",
    "healthy_job_false_alarm_rate",
    "false_alarms_per_1000_node_hours",
    "hit_at_1",
)
"""Metrics that a table shows unless told otherwise."""

UNDEFINED, INFINITE = "-", "∞"
_COARSE = ("latency_", "lead_", "false_alarms", "mtbfa", "rmdd_", "km_rmst", "cost", "job_latency_")


@dataclass(frozen=True, slots=True)
class Table:
    """Cells, ready to be shown.

    Attributes:
        title: A line above.
        columns: Headers; one that starts with ``"<"`` is aligned left.
        rows: Cells.
        dim: Numbers of the rows to dim.
        notes: Lines below.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    dim: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()


def table(
    score: Score, metrics: tuple[str, ...] | None = None, *, leaderboard: bool = False
) -> Table:
    """The score of every detector, one row each.

    Args:
        score: The score.
        metrics: Which metrics to show; the headline if None.
        leaderboard: Put the best F1 first, and the 95 % interval below each value that has one.
    """
    shown = metrics or _headline(score)
    listed = list(score.detectors.items())
    if leaderboard:
        listed.sort(key=lambda item: (-(item[1].metrics["f1"] or 0.0), item[0]))
    rows = tuple(
        (_name(name, scored), *(_cell(scored, key, intervals=leaderboard) for key in shown))
        for name, scored in listed
    )
    dim = tuple(place for place, (_, scored) in enumerate(listed) if scored.baseline)
    notes = (*_crashes(score), *_notes(score, shown, leaderboard=leaderboard))
    return Table(title(score), _columns(shown), rows, dim, notes)


def strata_tables(score: Score) -> Iterator[Table]:
    """One table for every value of every property that jobs were scored apart by."""
    shown = _headline(score)
    first = next(iter(score.detectors.values()), None)
    for by, strata in first.strata.items() if first else ():
        for value in strata:
            rows = tuple(
                (_name(name, scored), *(_value(scored.strata[by][value], key) for key in shown))
                for name, scored in score.detectors.items()
            )
            basis = _basis(strata[value].jobs, *_population(strata[value]))
            yield Table(f"{by} {value or '(none)'}: {basis}", _columns(shown), rows, _dim(score))


def title(score: Score) -> str:
    """How many jobs and positives the numbers rest on, and whether they may be compared."""
    settings = score.settings
    basis = _basis(settings["jobs"], settings["positives"], settings["negatives"])
    text = f"{basis}, policy {settings['policy']}"
    if settings["hold_s"]:
        text += f", hold {settings['hold_s']:g} s"
    if settings["grace_s"]:
        text += f", grace {settings['grace_s']:g} s"
    return text + ("" if settings["comparable"] else " (filtered: not comparable)")


def _basis(jobs: int, positives: int, negatives: int) -> str:
    return f"{jobs} jobs, {positives} positive of {positives + negatives} labelled nodes"


def _population(stratum: Stratum) -> tuple[int, int]:
    tp, fp, fn, tn = (int(stratum.metrics[key] or 0) for key in ("tp", "fp", "fn", "tn"))
    return tp + fn, fp + tn


def number(key: str, value: float | None) -> str:
    """One value, short; a dash where it is undefined. Seconds and costs need no third decimal."""
    if value is None:
        return UNDEFINED
    if math.isinf(value):
        return f"{'-' * (value < 0)}{INFINITE}"
    if isinstance(value, int):
        return str(value)
    coarse = key.startswith(_COARSE) or "_ms_" in key
    return f"{value:.1f}" if coarse else f"{value:.3f}"


def _headline(score: Score) -> tuple[str, ...]:
    known = {key for scored in score.detectors.values() for key in scored.metrics}
    return tuple(key for key in HEADLINE if key in known)


def _name(name: str, scored: DetectorScore) -> str:
    """Who a row is about; figures of a detector that crashed are not its merit."""
    return f"{named(name)} (crashed)" if scored.failures else named(name)


def _dim(score: Score) -> tuple[int, ...]:
    scores = enumerate(score.detectors.values())
    return tuple(place for place, scored in scores if scored.baseline)


def _cell(scored: DetectorScore, key: str, *, intervals: bool) -> str:
    value = _value(scored, key)
    interval = scored.intervals.get(key) if intervals else None
    return f"{value}\n{_bounds(key, interval)}" if interval else value


def _value(scored: DetectorScore | Stratum, key: str) -> str:
    value = number(key, with_infinity(scored, key))
    if not key.startswith("latency_") or key.endswith(("_all", "_n")):
        return value
    # a latency over hits alone flatters the detector that finds little
    return f"{value} of {scored.metrics[key.rpartition('_')[0] + '_n']} detected"


def _bounds(key: str, interval: Interval) -> str:
    if interval.low is None:
        return "no interval"
    high = INFINITE if interval.high is None else number(key, interval.high)
    return f"{number(key, interval.low)} to {high}"


def _columns(metrics: tuple[str, ...]) -> tuple[str, ...]:
    return ("<detector", *map(_header, metrics))


def _header(key: str) -> str:
    """A metric's name, broken at underscores so that columns stay narrow."""
    lines = [""]
    for place, word in enumerate(key.split("_")):
        piece = f"_{word}" if place else word
        if lines[-1] and len(lines[-1]) + len(piece) > 10:
            lines.append("")
        lines[-1] += piece
    return "\n".join(lines)


def _notes(score: Score, shown: tuple[str, ...], *, leaderboard: bool) -> Iterator[str]:
    labels: Mapping[str, Mapping[str, object]] = score.settings["labels"]
    meanings = (f"{raw!r} {seen['count']}x as {seen['as']}" for raw, seen in labels.items())
    yield f"labels: {', '.join(meanings) or 'none'}"
    for key in shown if leaderboard else ():
        shares = {
            name: scored.intervals[key].dropped
            for name, scored in score.detectors.items()
            if key in scored.intervals
        }
        found = [f"{name} {share:.2%}" for name, share in shares.items() if share > 0]
        if len(found) > 2 and len({*shares.values()}) == 1:
            found = [f"{next(iter(shares.values())):.2%} for all"]
        if found:
            yield f"{key} is undefined in some of the resamples: {', '.join(found)}"
    for name, scored in score.detectors.items():
        strict, plain = scored.metrics["precision_strict"], scored.metrics["precision"]
        if "precision" in shown and strict != plain:
            yield f"{name}: precision_strict {number('', strict)}{_outside(scored)}"
    for key, where in (
        ("late_verdicts", "after a job's end"),
        ("early_verdicts", "before a job's start"),
    ):
        found = [
            f"{name} {scored.metrics[key]}"
            for name, scored in score.detectors.items()
            if scored.metrics[key]
        ]
        if found:
            yield f"verdicts {where} are not counted: {', '.join(found)}"
    if any(key.startswith("oracle_") for key in shown):
        yield "oracle_f1 and oracle_threshold are tuned on the scored data"
    if any(key.startswith("cost") for key in shown):
        weights = score.settings["cost"].items()
        yield f"cost: {', '.join(f'{name}={value}' for name, value in weights)}"


def _crashes(score: Score) -> Iterator[str]:
    for name, scored in score.detectors.items():
        if scored.failures:
            yield f"{name} crashed {crash(scored, score.settings['jobs'])}"


def crash(scored: DetectorScore, jobs: int) -> str:
    """Where a detector crashed, and what that means for its figures."""
    job, what = next(iter(scored.failures.items()))
    more = ", ..." if len(scored.failures) > 1 else ""
    return (
        f"on {len(scored.failures)} of {jobs} jobs ({job}: {what}{more})"
        " and said nothing there from then on; its figures are not its merit"
    )


_OUTSIDE = {
    "unlabelled_raised": "nodes that alert but have no label",
    "phantom_raised": "nodes that their job does not have, as the log names them",
    "ignored_raised": "nodes whose label is ignored",
}


def _outside(scored: DetectorScore) -> str:
    found = [f"{kind} {scored.metrics[kind]}" for kind in _OUTSIDE if scored.metrics[kind]]
    said = "; ".join(what for kind, what in _OUTSIDE.items() if scored.metrics[kind])
    return f" ({', '.join(found)}: {said})" if found else ""
