"""Two detectors side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replay.report.table import HEADLINE, Table, number

if TYPE_CHECKING:
    from replay.scoring import Comparison, Delta

__all__ = ["comparison_table"]

MANY = 8


def comparison_table(compared: Comparison, metrics: tuple[str, ...] = HEADLINE) -> Table:
    """One row per metric: A, B, their difference with its interval, and how often A is above.

    Args:
        compared: What was compared.
        metrics: Which metrics to show, those of them that exist.
    """
    rows = tuple(_row(key, compared.deltas[key]) for key in metrics if key in compared.deltas)
    won, lost = len(compared.wins), len(compared.losses)
    exact = f"only A {compared.only_a}, only B {compared.only_b}"
    notes = (
        f"jobs won {won}, lost {lost}, tied {compared.ties}: fewer nodes named wrongly wins",
        f"jobs exactly right: {exact}; McNemar p = {compared.mcnemar_p:.3g}",
        *_named("won", compared.wins),
        *_named("lost", compared.losses),
    )
    columns = ("<metric", "A", "B", "A - B", "95 % interval", "share above 0")
    title = (
        f"A = {compared.a}, B = {compared.b}: {compared.jobs} jobs, {compared.positives} positive"
    )
    if not compared.comparable:
        title += " (filtered: not comparable)"
    return Table(title, columns, rows, (), notes)


def _row(key: str, delta: Delta) -> tuple[str, ...]:
    interval = delta.interval
    if interval.low is None or interval.high is None:
        bounds = interval.reason
    else:
        bounds = f"{number(key, interval.low)} to {number(key, interval.high)}"
    share = number("", delta.share_above)
    values = (number(key, value) for value in (delta.a, delta.b, delta.delta))
    return (key, *values, bounds, share)


def _named(what: str, jobs: tuple[str, ...]) -> tuple[str, ...]:
    if not jobs:
        return ()
    more = f" and {len(jobs) - MANY} more" if len(jobs) > MANY else ""
    return (f"{what}: {', '.join(jobs[:MANY])}{more}",)
