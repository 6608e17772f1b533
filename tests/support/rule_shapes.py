"""Alerting rules of the shapes that people write, anew over the metric of a replay."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

__all__ = ["expression", "rule_file"]

METRIC = "llm_alert_events_total"
RANGES = ("30s", "45s", "1m", "2m", "3m", "5m")
KINDS = ("hang", "nic_down", "ecc", "slow")


def selector(draw: random.Random) -> str:
    """The metric, often narrowed."""
    matchers = []
    if draw.random() < 0.5:
        kind, other = draw.sample(KINDS, 2)
        matchers.append(
            draw.choice(
                [
                    f'event="{kind}"',
                    f'event!="{kind}"',
                    f'event=~"{kind}|{other}"',
                    f'event!~"{kind[0]}.*"',
                    'event=~".+_.+"',
                ]
            )
        )
    if draw.random() < 0.15:
        matchers.append(draw.choice(['ip!=""', 'ip=~"node-[0-4]"', 'job_id="Job1"', 'rack=""']))
    return METRIC + ("{" + ",".join(matchers) + "}" if matchers else "")


def ranged(draw: random.Random) -> str:
    """A range of it, seldom shifted."""
    offset = f" offset {draw.choice(('15s', '30s', '1m'))}" if draw.random() < 0.1 else ""
    return f"{selector(draw)}[{draw.choice(RANGES)}]{offset}"


def counted(draw: random.Random) -> str:
    """How often things happened: exact numbers where windows are full."""
    return draw.choice(
        [
            lambda: f"increase({ranged(draw)})",
            lambda: f"changes({ranged(draw)})",
            lambda: f"delta({ranged(draw)})",
            lambda: f"rate({ranged(draw)}) * 60",
            lambda: f"irate({ranged(draw)}) * 15",
            lambda: f"idelta({ranged(draw)})",
            lambda: f"max_over_time({ranged(draw)})",
            lambda: f"({selector(draw)} - {selector(draw)} offset 1m)",
            lambda: f"last_over_time({ranged(draw)})",
            lambda: f"count_over_time({ranged(draw)})",
            lambda: f"avg_over_time({ranged(draw)})",
            lambda: f"sum_over_time({ranged(draw)})",
            lambda: f"quantile_over_time(0.9, {ranged(draw)})",
            lambda: f"max_over_time(increase({ranged(draw)})[2m:30s])",
            lambda: f"deriv({ranged(draw)}) * 60",
            lambda: f"predict_linear({ranged(draw)}, 120)",
            lambda: f"clamp_min(increase({ranged(draw)}), 1)",
            lambda: f"round(increase({ranged(draw)}))",
            lambda: f"floor(rate({ranged(draw)}) * 100)",
            lambda: f"abs(delta({ranged(draw)}))",
            lambda: f"resets({ranged(draw)}) + 1",
            lambda: f"(time() - timestamp({selector(draw)}) + increase({ranged(draw)}))",
        ]
    )()


def grouped(draw: random.Random) -> str:
    """Counts brought together, mostly by node."""
    by = draw.choice(
        ["by (job_id, ip)"] * 5 + ["by (ip)", "without (event)", "by (job_id)", "by (ip, event)"]
    )
    op = draw.choice(["sum"] * 6 + ["count", "max", "min", "avg", "group", "stdvar"])
    inner = counted(draw)
    if op == "count" or draw.random() < 0.15:
        inner = f"{inner} > {draw.choice(('0', '0.37', '1.3'))}"
    return f"{op} {by} ({inner})"


def threshold(draw: random.Random) -> str:
    """A comparison with a number that sums of fractions do not meet by rounding alone."""
    op = draw.choice([">"] * 6 + [">=", "<", "<=", "!="])
    return f"{op} {draw.choice(('0', '0.413', '1.017', '2.39', '3.071', '5.13', '10.7'))}"


def expression(draw: random.Random) -> str:
    """One condition."""
    return draw.choice(
        [lambda: f"{counted(draw)} {threshold(draw)}"] * 5
        + [lambda: f"{grouped(draw)} {threshold(draw)}"] * 7
        + [
            lambda: (
                f"{grouped(draw)} / on (job_id) group_left () sum by (job_id) "
                f"(increase({ranged(draw)})) > {draw.choice(('0.213', '0.507'))}"
            ),
            lambda: f"{counted(draw)} {threshold(draw)} and {counted(draw)} {threshold(draw)}",
            lambda: (
                f"{grouped(draw)} {threshold(draw)} unless on (ip) {grouped(draw)} {threshold(draw)}"
            ),
            lambda: f"{grouped(draw)} {threshold(draw)} or {counted(draw)} {threshold(draw)}",
            lambda: f"absent({selector(draw)})",
            lambda: f"absent_over_time({ranged(draw)})",
            lambda: f"{selector(draw)} {threshold(draw)}",
            lambda: f"({grouped(draw)} > bool 1.1) == 1",
            lambda: f'label_replace({counted(draw)}, "ip", "$1", "ip", "(.*)") {threshold(draw)}',
            lambda: (
                f"{counted(draw)} > on (job_id, ip) group_left () (sum by (job_id, ip) ({selector(draw)}) * 0.313)"
            ),
            lambda: (
                f"{counted(draw)} - ignoring (event) group_left () max without (event) ({selector(draw)}) < -0.17"
            ),
            lambda: f'count_values by (ip) ("n", {selector(draw)}) > 1',
            lambda: f"scalar(sum(increase({ranged(draw)}))) * {selector(draw)} > 3.3",
            lambda: f"-({counted(draw)}) ^ 2 < -4.4",
            lambda: f"quantile by (ip) (0.7, {counted(draw)}) > 1.21",
            lambda: f"vector(1) > 0 unless on () sum({selector(draw)}) > 4",
        ]
    )()


def rule_file(draw: random.Random, count: int) -> str:
    """A rule file with that many alerts, in groups of different intervals."""
    lines = ["groups:"]
    for number in range(count):
        if number % 20 == 0:
            lines += [
                f"- name: group-{number}",
                "  interval: 15s",
                "  rules:",
            ]
        lines += [f"  - alert: Alert{number}", f"    expr: {json.dumps(expression(draw))}"]
        if draw.random() < 0.6:
            lines.append(f"    for: {draw.choice(('0s', '10s', '15s', '30s', '1m', '2m'))}")
        if draw.random() < 0.25:
            lines.append(f"    keep_firing_for: {draw.choice(('20s', '30s', '1m'))}")
        if draw.random() < 0.3:
            lines += ["    labels:", f"      severity: {draw.choice(('page', 'ticket'))}"]
            if draw.random() < 0.3:
                lines.append("      where: '{{ $labels.ip }}/{{ $labels.event }}'")
    return "\n".join(lines) + "\n"
