"""The knobs of the generator: what each turns, in which unit, and where its number comes from."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from replay.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["PRESETS", "Knobs", "describe", "turn"]


def _knob(
    default: float, unit: str, what: str, source: str, *, least: float = 0.0, most: float = 1.0
) -> Any:
    """Declare a knob from ``least`` to ``most``."""
    about = {"unit": unit, "what": what, "source": source, "least": least, "most": most}
    return field(default=default, metadata=about)


@dataclass(frozen=True, slots=True, kw_only=True)
class Knobs:
    """All knobs; the defaults are the preset ``dataset``.

    Each stands with its default, its unit, what it turns, and where the number comes from;
    ``alert-replay synth --list-knobs`` prints the table.
    "Calibrated" means: fitted to the two totals that the published data set states, 98 jobs and
    about 344,000 events; how they split is a free choice, which is what the presets are for.
    """

    # the mix of jobs
    healthy: float = _knob(0.12, "share of jobs", "nothing goes wrong", "chosen")
    software: float = _knob(
        0.12,
        "share of jobs",
        "the job fails, and no node is to blame",
        "Llama 3, table 5: 12.9 % software",
    )
    double: float = _knob(
        0.07,
        "share of faulty jobs",
        "two nodes fail within 5 minutes",
        "InfiniteHBD-Trace: 9 % of onset clusters; Minder: 1 %",
    )
    silent: float = _knob(
        0.05,
        "share of faulty jobs",
        "the culprit never alerts",
        "chosen: half of L4's 10.1 % of failures without log evidence",
    )
    late: float = _knob(
        0.10,
        "share of faulty jobs",
        "the culprit alerts only after the cascade began",
        "ByteRobust, table 3: all but host and GPU checks need a time-out",
    )

    # their size and length
    max_nodes: float = _knob(
        800, "nodes", "largest job", "caps the tail so that the mean is 76", least=1, most=20_000
    )
    max_hours: float = _knob(36, "hours", "longest job", "calibrated", most=1_000)
    short: float = _knob(
        0.5, "share of jobs", "log-normal with median 1300 s, not exponential", "calibrated"
    )

    # noise
    background: float = _knob(
        5.0, "alerts per node-hour", "background of a healthy node", "calibrated", most=10_000
    )
    chatty: float = _knob(
        0.035, "share of nodes", "healthy nodes that shout", "calibrated; NVSentinel"
    )
    chatty_alerts: float = _knob(
        165, "alerts", "least that a chatty node shouts, Pareto tail 1.1", "calibrated", most=1e6
    )
    chatty_most: float = _knob(
        8000, "alerts", "most that a chatty node shouts", "calibrated", most=1e7
    )
    chatty_root: float = _knob(
        0.03,
        "share of chatty nodes",
        "shout a kind that elsewhere marks culprits",
        "NVSentinel: 800,000 Xid 95 from one node",
    )
    mute: float = _knob(0.04, "share of nodes", "healthy nodes that never alert", "chosen")
    decoys: float = _knob(
        0.014,
        "alerts per node-hour",
        "lone alerts of a root kind on a healthy node",
        "fitted: no kind is right more than 7 times in 10",
        most=100,
    )
    decoy_least: float = _knob(
        0.4, "alerts per job", "such alerts even in a short job", "fitted", most=1000
    )
    decoy_hard: float = _knob(
        0.004, "share of decoys", "come twice and in company, like a real fault", "fitted"
    )
    waves: float = _knob(
        0.3,
        "share of jobs",
        "a fleet-wide false wave, half of them at the start",
        "NVSentinel: 214 of 288 nodes, planned reboots",
    )

    # faults
    prelude: float = _knob(
        0.6, "share of culprits", "weak signs before the onset, Poisson(6)", "calibrated"
    )
    ailing: float = _knob(
        0.20,
        "share of culprits",
        "weak signs from the job's first seconds, and as loud as a chatty node",
        "chosen: Meta's lemon nodes; SuperBench, 10 % of new nodes defective",
    )
    sticky: float = _knob(
        0.6, "share of culprits", "the first kind repeats at every poll", "calibrated"
    )
    terse: float = _knob(0.04, "share of culprits", "say one kind once", "chosen")
    rejoins: float = _knob(
        0.35, "share of living culprits", "also join the cascade", "dead nodes cannot report"
    )
    weak: float = _knob(
        0.25,
        "share of failing jobs",
        "the cascade reaches few nodes, Beta(1, 8), not most, Beta(6, 1 or 2)",
        "calibrated",
    )
    cascade_alerts: float = _knob(
        4.5,
        "alerts per node",
        "median of a node in a cascade, times 1 + Pareto(1.5)",
        "calibrated",
        most=1000,
    )
    cascade_most: float = _knob(
        12, "alerts per node", "most in a cascade", "calibrated", most=100_000
    )

    # how it is written down
    duplicates: float = _knob(
        0.03, "share of rows", "delivered twice", "chosen; 43 % in one public stream"
    )
    unordered: float = _knob(0.02, "share of rows", "written up to 90 s late", "chosen")
    outside: float = _knob(
        0.15, "share of jobs", "agents talk before the start and after the end", "chosen"
    )
    strangers: float = _knob(
        0.12, "share of jobs", "one or two nodes alert that have no label", "chosen"
    )
    lemons: float = _knob(
        0.40,
        "share of jobs",
        "share nodes with others of their eight, one a repeat offender",
        "InfiniteHBD-Trace: 135 of 231 faulty nodes failed more than once",
    )
    epoch: float = _knob(
        0.04, "share of jobs", "shifted across midnight of 1970-01-01", "chosen: times may be 0"
    )
    storm: float = _knob(
        0.0,
        "share of cascade",
        "squeezed into the storm's first second",
        "public streams: 237 in a second",
    )


PRESETS: dict[str, Knobs] = {
    "dataset": Knobs(),
    "quiet": Knobs(
        background=1.0,
        chatty=0.0,
        waves=0.0,
        duplicates=0.0,
        unordered=0.0,
        outside=0.0,
        decoys=0.002,
        decoy_least=0.05,
        decoy_hard=0.0,
        strangers=0.0,
    ),
    "chatty": Knobs(background=10.0, chatty=0.10, chatty_root=0.06, decoys=0.028, duplicates=0.10),
    "stormy": Knobs(
        waves=0.8,
        weak=0.05,
        cascade_alerts=9.0,
        cascade_most=60,
        storm=0.5,
        duplicates=0.43,
        unordered=0.06,
    ),
}
"""``dataset`` is calibrated; the others turn its noise down, its nodes up, its storms up."""


def describe(preset: str = "dataset") -> list[dict[str, Any]]:
    """List the knobs of a preset: name, value, unit, what it turns, where the number comes from.

    Raises:
        UsageError: There is no such preset.

    Examples:
        >>> describe("chatty")[0]["knob"]
        'healthy'

    """
    knobs = turn(preset, {})
    return [
        {
            "knob": each.name,
            "value": getattr(knobs, each.name),
            **{key: each.metadata[key] for key in ("unit", "what", "source")},
        }
        for each in fields(knobs)
    ]


def turn(preset: str, knobs: Mapping[str, float]) -> Knobs:
    """The knobs of a preset, some of them turned.

    Raises:
        UsageError: There is no such preset or knob, or a value is out of its range.
    """
    if preset not in PRESETS:
        raise UsageError(f"There is no preset {preset!r}.", f"one of: {', '.join(PRESETS)}")
    about = {each.name: each.metadata for each in fields(Knobs)}
    for name, value in knobs.items():
        if name not in about:
            raise UsageError(f"There is no knob {name!r}.", f"one of: {', '.join(about)}")
        least, most = about[name]["least"], about[name]["most"]
        if not least <= value <= most:  # NaN is not
            raise UsageError(f"Knob {name} is {value:g}.", f"a number from {least:g} to {most:g}")
    turned = replace(PRESETS[preset], **knobs)
    for shares in (("healthy", "software"), ("double", "silent", "late")):
        total = sum(getattr(turned, name) for name in shares)
        if total > 1.0:
            raise UsageError(
                f"{' + '.join(shares)} is {total:g}.", "shares that add up to at most 1"
            )
    return turned
