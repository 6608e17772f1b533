"""Making one's own traces shareable: pseudonyms for nodes, shifted clocks, renamed jobs.

Pseudonyms and shifts come from a secret key by HMAC-SHA-256 (RFC 2104), so the same key gives the
same result and without it none can be undone or guessed. What stays linkable is said, not hidden.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from replay.errors import TraceError, UsageError
from replay.traces.check import text_fault
from replay.traces.files import read_text, require_file, unreadable
from replay.traces.findings import Findings
from replay.traces.model import EVENTS, Trace
from replay.traces.records import BadJsonError, Repeated, load_json
from replay.traces.texts import as_list
from replay.traces.times import SECOND, shift_times

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from replay.traces.model import TraceJob

__all__ = ["Linkable", "Pseudonyms", "anonymize", "linkable", "read_key", "read_names"]

SHORTEST_KEY = 16
"""Bytes; fewer could be tried out."""

LONGEST_SHIFT = 3650 * 86_400
"""Seconds; a job's clock moves forward by one second to ten years."""


@dataclass(frozen=True, slots=True)
class Pseudonyms:
    """Where new names and shifts come from.

    Attributes:
        key: The secret.
        per_job: Give a node another pseudonym in every job.
        seed: Another seed gives other shifts under the same key.

    Examples:
        >>> Pseudonyms(b"sixteen bytes ok").node("Job1", "10.0.0.1")
        '...:...:...:...:...:...:...:...'

    """

    key: bytes
    per_job: bool = False
    seed: int = 0

    def node(self, job: str, node: str) -> str:
        """The pseudonym of a node, of the form of an IPv6 address."""
        digest = self._digest("node", job if self.per_job else "", node)
        groups = (int.from_bytes(digest[i : i + 2]) for i in range(0, 16, 2))
        return ":".join(f"{group:x}" for group in groups)

    def shift(self, job: str) -> int:
        """By how many seconds a job's clock moves forward."""
        return 1 + int.from_bytes(self._digest("shift", str(self.seed), job)) % LONGEST_SHIFT

    def rank(self, job: str) -> bytes:
        """What jobs are sorted by before they are numbered, so that numbers say nothing."""
        return self._digest("job", "", job)

    def _digest(self, *parts: str) -> bytes:
        message = b"".join(len(raw).to_bytes(8) + raw for raw in (part.encode() for part in parts))
        return hmac.digest(self.key, message, hashlib.sha256)


@dataclass(frozen=True, slots=True)
class Linkable:
    """What an anonymised trace still shows.

    Attributes:
        recurring_nodes: Nodes that keep one pseudonym in several jobs.
        job_ids: ``"renamed"`` or ``"kept"``.
        event_names: Names of events, as they are now.
        event_names_are: ``"mapped"`` or ``"kept"``.
        labels: Labels of nodes, as written.
        gpu_generations: As written.
    """

    recurring_nodes: int
    job_ids: str
    event_names: tuple[str, ...]
    event_names_are: str
    labels: tuple[str, ...]
    gpu_generations: tuple[str, ...]

    def lines(self) -> list[str]:
        """The same in sentences."""
        nodes = f"{self.recurring_nodes} nodes keep one pseudonym in several jobs (--per-job: none)"
        return [
            nodes,
            "all intervals within a job are kept, so a job can be known by its rhythm",
            f"job ids are {self.job_ids}",
            f"event names are {self.event_names_are}: {_list(self.event_names)}",
            f"labels are kept: {_list(self.labels)}",
            f"GPU generations are kept: {_list(self.gpu_generations)}",
            "whoever has the key can find out which pseudonym a node got",
        ]


def read_key(path: Path) -> bytes:
    """Read a key; every byte of the file counts, a newline too.

    Raises:
        TraceError: The file cannot be read.
        UsageError: It is too short.
    """
    require_file(path)
    try:
        key = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from None
    if len(key) < SHORTEST_KEY:
        what = f"The key in {path} has {len(key)} bytes; fewer than {SHORTEST_KEY} can be guessed."
        raise UsageError(what, f"openssl rand -out {path} 32")
    return key


def read_names(path: Path) -> dict[str, str]:
    """Read a map of event names: one JSON object, text to text.

    Raises:
        TraceError: The file cannot be read.
        UsageError: It holds something else.
    """
    try:
        names = load_json(read_text(path, Findings()) or "")
    except BadJsonError as error:
        raise UsageError(f"{path}: {error.what}.", error.remedy) from None
    if not isinstance(names, dict) or isinstance(names, Repeated):
        raise UsageError(f"{path} holds no object of names, each once.")
    for old, new in names.items():
        if text_fault(new) or not new:
            raise UsageError(f"{path}: what {old!r} becomes is no text.", "write a name in quotes")
    return names


def anonymize(
    trace: Trace,
    pseudonyms: Pseudonyms,
    *,
    event_names: Mapping[str, str] | None = None,
    keep_job_ids: bool = False,
) -> Trace:
    """A trace of the same shape under other names and at other times.

    Args:
        trace: The trace.
        pseudonyms: Where the new names and the shifts come from.
        event_names: Name of an event → what it becomes; None keeps them.
        keep_job_ids: Keep the ids of jobs instead of numbering them in an order that says nothing.

    Raises:
        UsageError: ``event_names`` lacks one.
        TraceError: A shifted time leaves the years that a trace can hold.
    """
    order = list(range(len(trace)))
    if not keep_job_ids:
        order.sort(key=lambda i: pseudonyms.rank(trace.jobs[i].id))
    bounds = trace.bounds
    jobs, pieces = [], []
    for number, i in enumerate(order):
        old = trace.jobs[i]
        new = _job(old, pseudonyms, "" if keep_job_ids else f"Job{number + 1}")
        rows = trace.events.slice(bounds[i], bounds[i + 1] - bounds[i])
        jobs.append(new)
        pieces.append(_rows(rows, number, old, pseudonyms, event_names))
    events = pa.concat_tables(pieces) if pieces else EVENTS.empty_table()
    return Trace(tuple(jobs), events.unify_dictionaries(), trace.source, trace.form, Findings())


def linkable(trace: Trace, *, mapped: bool, renamed: bool) -> Linkable:
    """What an anonymised trace still shows.

    Args:
        trace: The result of :func:`anonymize`.
        mapped: Whether its event names were replaced.
        renamed: Whether its jobs were.
    """
    jobs_of = Counter(node for job in trace.jobs for node in job.ip_status)
    labels = {label for job in trace.jobs for label in job.ip_status.values()}
    names = set(as_list(trace.events.column("event")))
    return Linkable(
        recurring_nodes=sum(1 for count in jobs_of.values() if count > 1),
        job_ids="renamed" if renamed else "kept",
        event_names=tuple(sorted(names)),
        event_names_are="mapped" if mapped else "kept",
        labels=tuple(sorted(labels)),
        gpu_generations=tuple(sorted({job.gpu_generation for job in trace.jobs})),
    )


def _job(job: TraceJob, pseudonyms: Pseudonyms, name: str) -> TraceJob:
    shift = pseudonyms.shift(job.id)
    start, end = _shifted([job.start_time, job.end_time], shift, job)
    labels = {pseudonyms.node(job.id, node): label for node, label in job.ip_status.items()}
    return replace(
        job,
        id=name or job.id,
        start_time=start,
        end_time=end,
        ip_status=dict(sorted(labels.items())),  # sorted anew: the old order could tell
        start_ns=job.start_ns + shift * SECOND,
        end_ns=job.end_ns + shift * SECOND,
    )


def _rows(
    rows: pa.Table,
    number: int,
    job: TraceJob,
    pseudonyms: Pseudonyms,
    event_names: Mapping[str, str] | None,
) -> pa.Table:
    nodes = as_list(rows.column("ip"))
    node_to = {node: pseudonyms.node(job.id, node) for node in set(nodes)}
    kinds = as_list(rows.column("event"))
    if event_names is not None:
        missing = sorted(set(kinds) - event_names.keys())
        if missing:
            what = f"No name is given for the events {_list(missing)}."
            raise UsageError(what, "add them to the map, or leave the map out to keep all names")
        kinds = [event_names[kind] for kind in kinds]
    times = as_list(rows.column("event_time"))
    columns = [
        pa.array([number] * len(nodes), pa.int32()),
        pa.array([node_to[node] for node in nodes], pa.string()).dictionary_encode(),
        pa.array(_shifted(times, pseudonyms.shift(job.id), job), pa.string()),
        pa.array(kinds, pa.string()).dictionary_encode(),
        rows.column("at"),
    ]
    return pa.table(columns, schema=EVENTS)


def _shifted(times: list[str], shift: int, job: TraceJob) -> list[str]:
    try:
        return shift_times(times, shift)
    except OverflowError as error:
        what = f"a time of {job.id} that leaves the years 1678 to 2261 when shifted"
        raise TraceError(what, value=str(error), remedy="correct it") from None


def _list(names: tuple[str, ...] | list[str]) -> str:
    shown = ", ".join(name or "(empty)" for name in names[:20])
    return f"{shown} and {len(names) - 20} more" if len(names) > 20 else shown
