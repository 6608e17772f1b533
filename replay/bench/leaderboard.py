"""Every job and every detector, scored beside what knows only which nodes were faulty before."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from replay.api import Verdict
from replay.bench.folds import cross_validate
from replay.bench.pool import Serial, scatter
from replay.bench.task import Masks, tasks, watch
from replay.config import RunConfig, to_toml
from replay.host import Cost
from replay.messages import TimedVerdict
from replay.plugins import parse_detectors
from replay.scoring import Policy, Score, VerdictLog, keep, score
from replay.traces.anonymize import Pseudonyms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from replay.bench.pool import MakePool
    from replay.bench.task import Task, Watched
    from replay.errors import DetectorError
    from replay.scoring import Onsets
    from replay.traces.build import Outside
    from replay.traces.model import Trace

__all__ = ["TOKEN_MEMORY", "Bench", "bench"]

TOKEN_MEMORY = "token-memory"  # noqa: S105 - a reference: raises nodes that were faulty elsewhere


@dataclass(frozen=True, slots=True)
class Bench:
    """What came out of a bench.

    Attributes:
        config: What was asked for.
        log: Every verdict, in canonical order, nodes by their real names.
        score: What they are worth.
        costs: Detector → what it cost, over all jobs.
        failures: Detectors that crashed on a job.
        keep_ip: Whether detectors saw the nodes' real names.
    """

    config: RunConfig
    log: VerdictLog = field(repr=False)
    score: Score = field(repr=False)
    costs: Mapping[str, Cost] = field(repr=False)
    failures: tuple[DetectorError, ...] = ()
    keep_ip: bool = False

    def write(self, folder: str | Path, *, force: bool = False) -> None:
        """Keep it as a run is kept; only ``run.json``, which tells the cost, differs each time.

        Args:
            folder: Where.
            force: Replace an earlier run there.

        Raises:
            UsageError: An earlier run is there, or the folder cannot be written.
            ReplayError: The disk is full, or the like; an earlier run is still there.
        """
        texts = {"config.toml": to_toml(self.config), "run.json": self._figures()}
        keep(folder, self.log, self.score, texts, force=force)

    def _figures(self) -> str:
        figures = {
            "detectors": {
                name: {"calls": cost.calls, "alerts": cost.alerts, "wall_s": cost.seconds}
                for name, cost in self.costs.items()
            },
            "failures": [
                {"detector": failure.detector, "job_id": failure.job, "what": failure.what}
                for failure in self.failures
            ],
        }
        return json.dumps(figures, ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def bench(
    trace: Trace,
    detectors: Sequence[str],
    *,
    policy: Policy | None = None,
    pool: MakePool = Serial,
    seed: int = 0,
    keep_ip: bool = False,
    outside: Outside = "keep",
    onsets: Onsets | None = None,
    curves: bool = False,
    folds: int = 0,
    filtered: bool = False,
    done: Callable[[Task], None] = lambda _: None,
) -> Bench:
    """Run every detector over every job, and score them beside ``token-memory``.

    Args:
        trace: Exactly the jobs that are to be scored.
        detectors: As :func:`replay.plugins.parse_detectors` takes them.
        policy: How to judge.
        pool: Makes the executor that tasks go through.
        seed: For detectors that take one, and for the pseudonyms.
        keep_ip: Let detectors see the nodes' real names.
        outside: Alerts outside their job's time: ``keep``, ``clip`` or ``drop``.
        onsets: When faults began, where that is known.
        curves: Also sweep thresholds and draw delay curves.
        folds: Fit learned detectors on the jobs of all other folds than a job's own; 0 leaves
            them as they are.
        filtered: True when the trace holds not all jobs of its source.
        done: Called after each task.

    Raises:
        PluginError: A detector is unknown, an option does not fit, or it cannot be fitted.
        UsageError: There is nothing to cross-validate.
        ReplayError: The workers die again and again.

    Examples:
        >>> from replay.testing import TINY_TRACES
        >>> culprit = next(tiny for tiny in TINY_TRACES if tiny.name == "culprit")
        >>> found = bench(culprit.trace(), ["first-alert", "silent"])
        >>> {name: scored.metrics["recall"] for name, scored in found.score.detectors.items()}
        {'first-alert': 1.0, 'silent': 0.0, 'token-memory': 0.0}

    """
    policy = policy or Policy(seed=seed)
    specs = parse_detectors(detectors)
    key = hashlib.sha256(f"bench {seed}".encode()).digest()
    masks = Masks(None if keep_ip else Pseudonyms(key, per_job=True))
    todo = list(tasks(trace, specs, masks, seed=seed, outside=outside))
    if folds:
        todo = cross_validate(todo, specs, trace, masks, policy.labels, folds, pool)
    watched = scatter(watch, todo, pool, done)
    failures = [failure for each in watched for failure in each.failures]
    verdicts = [masks.unmask(said) for each in watched for said in each.verdicts]
    names = [*(spec.name for spec in specs), TOKEN_MEMORY]
    log = VerdictLog.of(trace, [*verdicts, *remembered(trace, policy)], names)
    references = [spec.name for spec in specs if spec.cls.baseline]
    scored = score(
        trace,
        log,
        policy=policy,
        detectors=names,
        baselines=[*references, TOKEN_MEMORY],
        onsets=onsets,
        curves=curves,
        failures=failures,
        settings={
            "speed": "max",
            "outside": outside,
            "seed": seed,
            "keep_ip": keep_ip,
            "folds": folds,
            "comparable": not filtered,
        },
    )
    config = RunConfig(
        path=trace.source,
        jobs=trace.job_ids if filtered else (),
        outside=outside,
        detector=tuple(spec.text for spec in specs),
        seed=seed,
        policy=policy.kind,
        hold=policy.hold_s,
        grace=policy.grace_s,
        label_map=",".join(
            f"{label}={meaning}" for label, meaning in policy.labels.meanings.items()
        ),
        strict_labels=policy.labels.strict,
    )
    return Bench(config, log, scored, _costs(watched), tuple(failures), keep_ip)


def _costs(watched: Iterable[Watched]) -> dict[str, Cost]:
    """What each detector cost over all jobs."""
    total: dict[str, Cost] = {}
    for each in watched:
        for name, cost in each.costs.items():
            sum_ = total.setdefault(name, Cost())
            sum_.calls += cost.calls
            sum_.alerts += cost.alerts
            sum_.ns += cost.ns
    return total


def remembered(trace: Trace, policy: Policy) -> Iterator[TimedVerdict]:
    """What one would say who knows which nodes were faulty in the other jobs, and nothing else."""
    faulty: dict[str, list[str]] = {}
    for job in trace.jobs:
        for node, label in job.ip_status.items():
            if policy.labels.meaning(label) == "positive":
                faulty.setdefault(node, []).append(job.id)
    for job in trace.jobs:
        number = 0
        for node in sorted(job.ip_status):
            others = [other for other in faulty.get(node, []) if other != job.id]
            if others:
                verdict = Verdict(node, reason=f"faulty in {others[0]}")
                yield TimedVerdict("bench", 0, TOKEN_MEMORY, job.id, number, 0.0, verdict)
                number += 1
