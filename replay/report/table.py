"""A score as a table: one row per detector, references dimmed, every header a metric's name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from replay.scoring import DetectorScore, Score

__all__ = ["HEADLINE", "Table", "cell", "headline", "table", "title"]

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
    notes: tuple[str, ...] = field(default=())


def table(score: Score, metrics: tuple[str, ...] | None = None) -> Table:
    """The score of every detector, one row each.

    Args:
        score: The score.
        metrics: Which metrics to show, or None for the headline.
    """
    shown = metrics or headline(score)
    rows = tuple(
        (name, *(cell(scored, key) for key in shown)) for name, scored in score.detectors.items()
    )
    dim = tuple(n for n, scored in enumerate(score.detectors.values()) if scored.baseline)
    return Table(title(score), ("<detector", *map(_header, shown)), rows, dim, _notes(score, shown))


def headline(score: Score) -> tuple[str, ...]:
    """The headline metrics that this score has."""
    known = {key for scored in score.detectors.values() for key in scored.metrics}
    return tuple(key for key in HEADLINE if key in known)


def title(score: Score) -> str:
    """How many jobs and positives the numbers rest on, and whether they may be compared."""
    settings = score.settings
    text = (
        f"{settings['jobs']} jobs, {settings['positives']} positive of "
        f"{settings['positives'] + settings['negatives']} labelled nodes, policy {settings['policy']}"
    )
    if settings["hold_s"]:
        text += f", hold {settings['hold_s']:g} s"
    if settings["grace_s"]:
        text += f", grace {settings['grace_s']:g} s"
    return text + ("" if settings.get("comparable", True) else " (filtered: not comparable)")


def cell(scored: DetectorScore, key: str) -> str:
    """One value, short; a dash where it is undefined."""
    value = scored.metrics.get(key)
    if value is None:
        infinite = scored.undefined.get(key, "").startswith("infinite")
        return INFINITE if infinite else UNDEFINED
    if isinstance(value, int):
        return str(value)
    return f"{value:.1f}" if _is_large(key) else f"{value:.3f}"


def _is_large(key: str) -> bool:
    """Seconds and rates per hour need no third decimal."""
    return key.startswith(
        ("latency_", "lead_", "false_alarms", "mtbfa", "rmdd_", "km_rmst", "cost")
    )


def _header(key: str) -> str:
    """A metric's name, broken at underscores so that columns stay narrow."""
    lines = [""]
    for number, word in enumerate(key.split("_")):
        piece = f"_{word}" if number else word
        if lines[-1] and len(lines[-1]) + len(piece) > 14:
            lines.append("")
        lines[-1] += piece
    return "\n".join(lines)


def _notes(score: Score, shown: tuple[str, ...]) -> tuple[str, ...]:
    notes = []
    labels = score.settings["labels"]
    meaning = ", ".join(f"{raw!r} {seen['count']}x → {seen['as']}" for raw, seen in labels.items())
    notes.append(f"labels: {meaning or 'none'}")
    for name, scored in score.detectors.items():
        strict, plain = scored.metrics["precision_strict"], scored.metrics["precision"]
        if "precision" in shown and strict != plain:
            notes.append(
                f"{name}: precision_strict {cell(scored, 'precision_strict')}{_outside(scored)}"
            )
        if late := scored.metrics["late_verdicts"]:
            notes.append(f"{name}: {late} verdicts after a job's end are not counted")
    return tuple(notes)


def _outside(scored: DetectorScore) -> str:
    kinds = ("unlabelled_raised", "phantom_raised", "ignored_raised")
    found = [f"{kind} {scored.metrics[kind]}" for kind in kinds if scored.metrics[kind]]
    return f" ({', '.join(found)})" if found else ""
