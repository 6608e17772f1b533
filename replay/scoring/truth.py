"""Who was faulty, and when anything could first have been known; as columns, job by job.

Jobs stand in natural order and nodes in the order of their names, so that neither the order of a
file nor that of the keys of ``ip_status`` can reach a result. Times are nanoseconds since the
job's start.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from replay.errors import TraceError
from replay.scoring.words import coded
from replay.traces.names import natural_key
from replay.traces.times import SECOND

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from replay.scoring.policy import LabelMap
    from replay.traces import Trace

__all__ = ["Onsets", "Truth", "Zero", "data_hash", "onsets_beside", "read_onsets"]

Onsets = dict[str, dict[str, float]]
"""Job → node → seconds from the job's start to the onset of its fault."""

POSITIVE, NEGATIVE, IGNORED = 1, 0, -1
_STATE = {"positive": POSITIVE, "negative": NEGATIVE, "ignore": IGNORED}


@dataclass(frozen=True, slots=True)
class Zero:
    """Where a latency is counted from, for every labelled node.

    Attributes:
        name: Its name.
        at_ns: int64[N], since the job's start.
        known: bool[N], False where there is no such moment.
    """

    name: str
    at_ns: NDArray[np.int64]
    known: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Truth:
    """J jobs, N pairs (job, node) with a label.

    Attributes:
        jobs: J ids in natural order.
        start_ns: int64[J], on the trace's own clock.
        end_ns: int64[J], since the job's start.
        generation: J values of ``gpu_generation``.
        nodes: Every token of the trace, sorted.
        job: int32[N], ascending.
        node: int32[N], codes into ``nodes``, ascending within a job.
        state: int8[N], 1 positive, 0 negative, -1 ignored.
        label: int32[N], codes into ``labels``.
        labels: Raw labels, sorted.
        label_meanings: What each of them means.
        zeros: Named zeros; ``onset`` only where the onsets are known.
        alert_job: int32[E], ascending.
        alert_at_ns: int64[E], ascending within a job.
        stranger_keys: int64[S], sorted: ``job * len(nodes) + node`` of the nodes that alerted in a
            job without a label in it.
    """

    jobs: tuple[str, ...]
    start_ns: NDArray[np.int64] = field(repr=False)
    end_ns: NDArray[np.int64] = field(repr=False)
    generation: tuple[str, ...] = field(repr=False)
    nodes: tuple[str, ...] = field(repr=False)
    job: NDArray[np.int32] = field(repr=False)
    node: NDArray[np.int32] = field(repr=False)
    state: NDArray[np.int8] = field(repr=False)
    label: NDArray[np.int32] = field(repr=False)
    labels: tuple[str, ...] = field(repr=False)
    label_meanings: tuple[str, ...] = field(repr=False)
    zeros: Mapping[str, Zero] = field(repr=False)
    alert_job: NDArray[np.int32] = field(repr=False)
    alert_at_ns: NDArray[np.int64] = field(repr=False)
    stranger_keys: NDArray[np.int64] = field(repr=False)

    @classmethod
    def of(cls, trace: Trace, labels: LabelMap, onsets: Onsets | None = None) -> Self:
        """Take the truth out of a trace.

        Args:
            trace: The trace.
            labels: What raw labels mean.
            onsets: When faults began, where that is known.

        Raises:
            UsageError: A label is not in the map.
        """
        order = natural_order(trace)
        jobs = [trace.jobs[number] for number in order]
        rank = np.empty(len(jobs), np.int32)
        rank[order] = np.arange(len(jobs), dtype=np.int32)
        alerts = _Alerts.of(trace, rank)
        nodes = sorted({node for job in jobs for node in job.ip_status} | set(alerts.words))
        code = {node: number for number, node in enumerate(nodes)}
        raw = sorted({label for job in jobs for label in job.ip_status.values()})
        meanings = tuple(labels.meaning(label) for label in raw)
        raw_code = {label: number for number, label in enumerate(raw)}

        sizes = [len(job.ip_status) for job in jobs]
        job = np.repeat(np.arange(len(jobs), dtype=np.int32), sizes)
        node = np.array([code[node] for job in jobs for node in job.ip_status], np.int32)
        label = np.array(
            [raw_code[label] for job in jobs for label in job.ip_status.values()], np.int32
        )
        sort = np.lexsort((node, job))
        node, label = node[sort], label[sort]
        state = np.array([_STATE[meaning] for meaning in meanings], np.int8)[label]

        keys = job.astype(np.int64) * len(nodes) + node
        seen, first_at = alerts.firsts(code)
        zeros = _zeros(alerts, job, find(seen, keys), first_at, len(jobs))
        if onsets is not None:
            names = [
                (jobs[j].id, nodes[n]) for j, n in zip(job.tolist(), node.tolist(), strict=True)
            ]
            zeros["onset"] = _onset(names, onsets)
        return cls(
            jobs=tuple(job.id for job in jobs),
            start_ns=np.array([job.start_ns for job in jobs], np.int64),
            end_ns=np.array([job.duration_ns for job in jobs], np.int64),
            generation=tuple(job.gpu_generation for job in jobs),
            nodes=tuple(nodes),
            job=job,
            node=node,
            state=state,
            label=label,
            labels=tuple(raw),
            label_meanings=meanings,
            zeros=zeros,
            alert_job=alerts.job,
            alert_at_ns=alerts.at_ns,
            stranger_keys=np.setdiff1d(seen, keys, assume_unique=True),
        )

    @property
    def keys(self) -> NDArray[np.int64]:
        """int64[N], ascending: ``job * len(nodes) + node`` of each labelled pair."""
        return self.job.astype(np.int64) * len(self.nodes) + self.node

    @property
    def positive(self) -> NDArray[np.bool_]:
        """bool[N]: the faulty ones."""
        return np.equal(self.state, POSITIVE)

    @property
    def negative(self) -> NDArray[np.bool_]:
        """bool[N]: the healthy ones."""
        return np.equal(self.state, NEGATIVE)

    def label_counts(self) -> dict[str, dict[str, Any]]:
        """Each raw label with its count and its meaning."""
        counts = np.bincount(self.label, minlength=len(self.labels)).tolist()
        return {
            label: {"count": count, "as": meaning}
            for label, count, meaning in zip(self.labels, counts, self.label_meanings, strict=True)
        }

    def job_sum(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """Sum whole numbers (or count truths) of labelled pairs by job."""
        sums = np.bincount(self.job, weights=values, minlength=len(self.jobs))
        return sums.astype(np.int64)

    def components(self) -> NDArray[np.int64]:
        """int64[J]: jobs that share a node token, directly or through others, share a number."""
        parent = list(range(len(self.jobs)))

        def root(job: int) -> int:
            while parent[job] != job:
                parent[job] = parent[parent[job]]
                job = parent[job]
            return job

        size = max(len(self.nodes), 1)
        keys = np.concatenate((self.keys, self.stranger_keys))
        owner: dict[int, int] = {}
        for job, node in zip((keys // size).tolist(), (keys % size).tolist(), strict=True):
            other = owner.setdefault(node, job)
            a, b = sorted((root(job), root(other)))
            parent[b] = a
        roots = [root(job) for job in range(len(parent))]
        return np.unique(roots, return_inverse=True)[1].astype(np.int64)


@dataclass(frozen=True, slots=True)
class _Alerts:
    """Alerts of all jobs, by (job, time)."""

    job: NDArray[np.int32]
    at_ns: NDArray[np.int64]
    word: NDArray[np.int64]
    words: tuple[str, ...]

    @classmethod
    def of(cls, trace: Trace, rank: NDArray[np.int32]) -> Self:
        job = rank[trace.events.column("job").to_numpy()]
        at_ns = trace.events.column("at").to_numpy().astype(np.int64)
        word, words = coded(trace.events.column("ip"))
        used, word = _used(word, len(words))
        names = tuple(words[number] for number in used.tolist())
        later = (job[1:] > job[:-1]) | ((job[1:] == job[:-1]) & (at_ns[1:] >= at_ns[:-1]))
        if later.all():  # as most traces are written
            return cls(job, at_ns, word, names)
        order = np.lexsort((at_ns, job))
        return cls(job[order], at_ns[order], word[order], names)

    def firsts(self, code: Mapping[str, int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Pairs (job, node) that alerted, as sorted keys, and when each did so first."""
        codes = np.array([code[word] for word in self.words], np.int64)
        keys = self.job.astype(np.int64) * len(code) + codes[self.word]
        # the alerts are in time order within a job, so the first occurrence is the first alert
        found, first = np.unique(keys, return_index=True)
        return found, self.at_ns[first]

    def first_of_jobs(self, jobs: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """First alert of each job, and whether there is one."""
        found, first = np.unique(self.job, return_index=True)
        at_ns, known = np.zeros(jobs, np.int64), np.zeros(jobs, np.bool_)
        at_ns[found], known[found] = self.at_ns[first], True
        return at_ns, known


def _used(codes: NDArray[np.int64], size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The codes there are of ``size`` ones, ascending, and which of those each is."""
    used = np.flatnonzero(np.bincount(codes, minlength=size))
    place = np.zeros(size, np.int64)
    place[used] = np.arange(len(used))
    return used, place[codes]


def find(keys: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """Position of each wanted key among sorted keys; -1 where it is not there."""
    place = np.searchsorted(keys, wanted)
    inside = np.minimum(place, len(keys) - 1) if len(keys) else place
    there = keys[inside] == wanted if len(keys) else np.zeros(len(wanted), np.bool_)
    return np.where(there, place, -1)


def _zeros(
    alerts: _Alerts,
    job: NDArray[np.int32],
    place: NDArray[np.int64],
    first_at: NDArray[np.int64],
    jobs: int,
) -> dict[str, Zero]:
    """The zeros that every trace has; ``place`` says where a pair stands among those that alerted."""
    at_ns, known = alerts.first_of_jobs(jobs)
    node_at = np.zeros(len(job), np.int64)
    node_at[place >= 0] = first_at[place[place >= 0]]
    return {
        "start": Zero("start", np.zeros(len(job), np.int64), np.ones(len(job), np.bool_)),
        "job_alert": Zero("job_alert", at_ns[job], known[job]),
        "node_alert": Zero("node_alert", node_at, place >= 0),
    }


def _onset(truth_pairs: Sequence[tuple[str, str]], onsets: Onsets) -> Zero:
    known = np.array([node in onsets.get(job, {}) for job, node in truth_pairs], np.bool_)
    at_ns = np.array(
        [round(onsets.get(job, {}).get(node, 0) * SECOND) for job, node in truth_pairs], np.int64
    )
    return Zero("onset", at_ns, known)


def natural_order(trace: Trace) -> list[int]:
    """Positions of a trace's jobs in natural order, whatever order they have."""
    return sorted(range(len(trace)), key=lambda number: natural_key(trace.jobs[number].id))


def data_hash(trace: Trace) -> str:
    """SHA-256 over what the trace says, whatever form it was read from.

    The order of jobs, of the keys of ``ip_status`` and of alerts at different times does not
    matter; that of alerts at one instant does.
    """
    digest = hashlib.sha256()
    words = {name: coded(trace.events.column(name)) for name in ("ip", "event")}
    at = trace.events.column("at").to_numpy()
    bounds = trace.bounds
    for number in natural_order(trace):
        job = trace.jobs[number]
        head = (job.id, job.start_time, job.end_time, job.gpu_generation)
        labels = (word for pair in sorted(job.ip_status.items()) for word in pair)
        _add(digest, (*head, *labels))
        rows = slice(bounds[number], bounds[number + 1])
        order = np.argsort(at[rows], kind="stable")
        digest.update(at[rows][order].astype("<i8").tobytes())
        for codes, vocabulary in words.values():
            used, local = _used(codes[rows], len(vocabulary))
            names = [vocabulary[code] for code in used.tolist()]
            rank = np.argsort(np.argsort(names)) if names else used
            _add(digest, sorted(names))
            digest.update(rank[local][order].astype("<i8").tobytes())
    return digest.hexdigest()


def _add(digest: hashlib._Hash, words: Sequence[str]) -> None:
    """Hash words so that no other words give the same: a trace holds no NUL."""
    text = "\0".join((str(len(words)), *words, ""))
    digest.update(text.encode())


def onsets_beside(path: str | Path) -> Onsets | None:
    """The onsets in the ``truth.json`` of a trace's folder; None where there is none.

    Raises:
        TraceError: There is one that cannot be read.
    """
    trace = Path(path)
    file = (trace if trace.is_dir() else trace.parent) / "truth.json"
    return read_onsets(file) if file.is_file() else None


def read_onsets(path: str | Path) -> Onsets:
    """Read the ``truth.json`` that stands beside a synthetic trace.

    Raises:
        TraceError: It is not of the form ``{"schema": 1, "jobs": {JOB: {"onset": {NODE: S}}}}``.
    """
    name = str(path)
    try:
        document = json.loads(Path(path).read_text("utf-8"))
        if document["schema"] != 1:
            raise TraceError(
                "unknown schema", name, column="schema", value=repr(document["schema"])
            )
        return {
            job: {node: float(at) for node, at in entry.get("onset", {}).items()}
            for job, entry in document["jobs"].items()
        }
    except OSError as error:
        raise TraceError(f"cannot be read: {error.strerror}", name) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TraceError(
            "not a truth file", name, remedy='{"schema": 1, "jobs": {"Job1": {"onset": {}}}}'
        ) from error
