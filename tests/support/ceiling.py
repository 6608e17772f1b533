"""How well can a detector do on a made trace? Asks one that knows the generator.

``python tests/support/ceiling.py [PRESET [SEED ...]]`` prints, per seed:

* the *bound*: culprits who say at least one root kind before the job ends, with no false verdict;
* the *informed* detector below, which is online but knows which kinds are roots, which belong to
  cascades, and how false waves and decoys look; what it reaches can be reached;
* the simple baselines, and the kind that is right most often.

The truth lies between bound and informed.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from replay.traces.synth import make
from replay.traces.synth.vocabulary import CRASH, DECOYS, HANG, NOISE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replay.traces.synth import Made

ROOTS = frozenset(DECOYS.items)
CASCADES = frozenset(CRASH.items + HANG.items) - frozenset(NOISE.items)
WINDOW = 90  # seconds in which evidence on a node adds up
HOLD = 15  # seconds to wait and see whether the whole fleet says the same
STORM = 0.2  # share of nodes with cascade kinds that makes a storm


@dataclass
class Incident:
    """One job's alerts in order, and the answer."""

    nodes: list[str]
    end: int
    rows: list[tuple[int, str, str]]
    onset: dict[str, int]
    story: str


@dataclass
class Tally:
    """Sums over jobs."""

    tp: int = 0
    fp: int = 0
    fn: int = 0
    bound: int = 0
    hits: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    fast: int = 0
    faulty: int = 0
    sound: int = 0
    alarmed: int = 0
    told: Counter[str] = field(default_factory=Counter)
    right: Counter[str] = field(default_factory=Counter)


def incidents(made: Made) -> Iterator[Incident]:
    """The jobs of a trace; alerts of nodes without label are left out."""
    events, bounds = made.trace.events, made.trace.bounds
    ips, kinds = events["ip"].to_pylist(), events["event"].to_pylist()
    at = (events["at"].to_numpy() // 10**9).tolist()
    for number, job in enumerate(made.trace):
        rows = range(bounds[number], bounds[number + 1])
        ordered = sorted(rows, key=at.__getitem__)
        known = [(at[i], ips[i], kinds[i]) for i in ordered if ips[i] in job.ip_status]
        truth = made.truth[job.id]
        end = job.duration_ns // 10**9
        yield Incident(list(job.ip_status), end, known, truth["onset"], truth["story"])


def informed(job: Incident) -> dict[str, tuple[float, int]]:
    """Node → (score, second of the verdict), by a detector that knows the generator."""
    few = max(2, 0.08 * len(job.nodes))
    said: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))  # kind, node
    storm: int | None = None
    stormers: dict[str, int] = {}
    waiting: list[tuple[int, str]] = []
    blamed: dict[str, tuple[float, int]] = {}

    def score(node: str, now: int) -> float:
        total = 0.0
        for kind, nodes in said.items():
            times = [t for t in nodes.get(node, ()) if now - t <= WINDOW]
            if not times:
                continue
            if kind in CASCADES and sum(1 for t in stormers.values() if t >= times[0] - 5) > few:
                continue
            speakers = sum(1 for ts in nodes.values() if ts[-1] >= times[0] - 60)
            long_winded = sum(1 for t in nodes[node] if t < now - 2 * WINDOW) > 3
            if speakers > few or long_winded:
                continue
            total += 1.0 + (0.5 if times[-1] - times[0] >= 8 else 0.0)
        return total

    def judge(now: int, node: str) -> None:
        worth = score(node, now)
        near = storm is not None and now - storm <= 120 and blamed.keys() <= {node}
        if worth >= (1.5 if near else 2.0) and now <= job.end:
            before = blamed.get(node)
            blamed[node] = (max(worth, before[0]), before[1]) if before else (worth, now)

    for now, node, kind in job.rows:
        while waiting and waiting[0][0] < now:
            judge(*waiting.pop(0))
        if kind in CASCADES:
            stormers[node] = now
            recent = sum(1 for t in stormers.values() if now - t <= 60)
            if recent >= max(3, STORM * len(job.nodes)) and storm is None:
                storm = now
                suspects = sorted({n for by in said.values() for n in by})
                waiting += [(now + HOLD, suspect) for suspect in suspects]
                waiting.sort()
        if kind in ROOTS:
            said[kind][node].append(now)
            waiting.append((now + HOLD, node))
            waiting.sort()
    for now, node in waiting:
        judge(min(now, job.end), node)
    return blamed


def measure(made: Made) -> Tally:
    """Everything the report prints."""
    tally = Tally()
    for job in incidents(made):
        blamed = informed(job)
        guilty = job.onset.keys()
        tally.tp += len(blamed.keys() & guilty)
        tally.fp += len(blamed.keys() - guilty)
        tally.fn += len(guilty - blamed.keys())
        speaking = {
            n for t, n, k in job.rows if k in ROOTS and n in guilty and job.onset[n] <= t <= job.end
        }
        tally.bound += len(speaking)
        tally.fast += sum(blamed[n][1] - job.onset[n] <= 60 for n in blamed.keys() & guilty)
        for node, kind in {(n, k) for _, n, k in job.rows}:
            tally.told[kind] += 1
            tally.right[kind] += node in guilty
        if not guilty:
            tally.sound += 1
            tally.alarmed += bool(blamed)
            continue
        tally.faulty += 1
        counts = Counter(n for _, n, _ in job.rows)
        kinds = Counter(n for n, _ in {(n, k) for _, n, k in job.rows})
        tally.hits["informed"] += hit({n: s for n, (s, _) in blamed.items()}, guilty)
        tally.hits["loudest"] += hit(counts, guilty)
        tally.hits["most-kinds"] += hit(kinds, guilty)
        tally.hits["first-alert"] += bool(job.rows) and job.rows[0][1] in guilty
    return tally


def hit(scores: dict[str, float], guilty) -> float:
    """Chance that the top node is guilty, ties broken by lot."""
    if not scores:
        return 0.0
    best = max(scores.values())
    top = [n for n, s in scores.items() if s == best]
    return sum(n in guilty for n in top) / len(top)


def report(preset: str, seed: int) -> str:
    t = measure(make(preset, 98, seed))
    positives = t.tp + t.fn
    bound = 2 * t.bound / (t.bound + positives)
    f1 = 2 * t.tp / (2 * t.tp + t.fp + t.fn)
    hits = " ".join(f"{name} {hit / t.faulty:.2f}" for name, hit in t.hits.items())
    best = max((t.right[k] / t.told[k], k) for k in t.told)
    return (
        f"{preset} {seed}: bound F1 {bound:.3f} | informed F1 {f1:.3f} P {t.tp / (t.tp + t.fp):.2f} "
        f"R {t.tp / positives:.2f} in 60 s {t.fast / positives:.2f} alarms {t.alarmed}/{t.sound} "
        f"| hit@1 {hits} | kind {best[1]} {best[0]:.2f}"
    )


if __name__ == "__main__":
    which = sys.argv[1] if len(sys.argv) > 1 else "dataset"
    for number in [int(word) for word in sys.argv[2:]] or [1, 2, 3]:
        print(report(which, number))  # noqa: T201 - it is a report
