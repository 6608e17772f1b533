"""The rules a job's record must meet, the same for every form, for reading and for validating."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from replay.traces.findings import named, shown
from replay.traces.model import TraceJob
from replay.traces.records import Repeated
from replay.traces.times import parse_one, why_not

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from replay.traces.findings import Findings, Place

__all__ = ["JOB_KEYS", "check_job", "describe", "text_fault", "warn_of_job"]

JOB_KEYS = ("job_id", "start_time", "end_time", "gpu_generation", "ip_status")
"""What a job's record holds."""

_TEXT_KEYS = JOB_KEYS[:4]


def describe(value: Any) -> str:
    """What a JSON value is, for a message."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, (int, float)):
        return "a number"
    if isinstance(value, dict):
        return "an object"
    return "a list" if isinstance(value, list) else "text"


def text_fault(value: Any) -> str | None:
    """Why a value cannot be one of a trace's texts; None when it can."""
    if not isinstance(value, str):
        return f"{describe(value)} in place of text"
    if "\0" in value:
        return "a NUL character"
    try:
        value.encode()
    except UnicodeEncodeError:
        return "half of a surrogate pair"
    return None


def check_job(
    record: Mapping[str, Any], place: Place, findings: Findings, keys: Sequence[str] = JOB_KEYS
) -> TraceJob | None:
    """Turn a job's record into a job; None when it was refused.

    Args:
        record: What was read.
        place: Where.
        findings: Takes what is wrong or odd.
        keys: Keys that may be there without being reported as left out.

    Raises:
        TraceError: When strict and something is wrong.
    """
    before = findings.errors
    _check_keys(record, place, findings, keys)
    if "ip_status" in record:
        _check_labels(record["ip_status"], place, findings)
    if findings.errors > before:
        return None
    start = _time(record, "start_time", place, findings)
    end = _time(record, "end_time", place, findings)
    if start is None or end is None:
        return None
    if end < start:
        what = f"the job ends before it starts, at {record['start_time']}"
        findings.error("negative-span", what, place, "end_time", record["end_time"], "correct it")
        return None
    job_id, start_time, end_time, gpu_generation, ip_status = (record[key] for key in JOB_KEYS)
    return TraceJob(job_id, start_time, end_time, gpu_generation, ip_status, start, end)


def warn_of_job(job: TraceJob, events: int, place: Place, findings: Findings) -> None:
    """Report what is allowed in a job but leaves little to replay or to score."""
    name = named(job.id)
    if not job.ip_status:
        what = f"{name} lists no node: nothing to score"
        findings.warn("no-nodes", what, place, "ip_status")
    elif set(job.ip_status.values()) == {"normal"}:
        what = f"{name} has no faulty node: nothing to find"
        findings.warn("no-fault", what, place, "ip_status")
    if not events:
        findings.warn("no-events", f"{name} has no events", place)
    if job.start_ns == job.end_ns:
        findings.warn("zero-length", f"{name} ends as it starts", place, "end_time", job.end_time)


def _check_keys(
    record: Mapping[str, Any], place: Place, findings: Findings, keys: Sequence[str]
) -> None:
    if isinstance(record, Repeated):
        key = named(record.key)
        findings.error("duplicate-key", record.what, place, key, remedy="keep one of them")
    for key in JOB_KEYS:
        if key not in record:
            findings.error("missing-key", "the key is missing", place, key, remedy="add it")
        elif key in _TEXT_KEYS and (fault := text_fault(record[key])):
            value = shown(record[key])
            findings.error("not-text", fault, place, key, value, "write it as text")
    if record.get("job_id") == "":
        findings.error("empty", "an empty text", place, "job_id", remedy="name the job")
    for key in record:
        if key not in keys:
            what = "a key that is no part of a job, left out"
            findings.warn("extra-key", what, place, named(key))


def _time(record: Mapping[str, Any], key: str, place: Place, findings: Findings) -> int | None:
    text = record[key]
    ns = parse_one(text)
    if ns is None:
        what, remedy = why_not(text)
        findings.error("bad-time", what, place, key, text or None, remedy)
    return ns


def _check_labels(labels: Any, place: Place, findings: Findings) -> None:
    if not isinstance(labels, dict):
        what = f"{describe(labels)} in place of an object of node and label"
        findings.error("not-object", what, place, "ip_status", shown(labels), "write {...}")
        return
    if isinstance(labels, Repeated):
        column = f"ip_status.{named(labels.key)}"
        findings.error("duplicate-key", labels.what, place, column, remedy="keep one of them")
    for node in labels if _has_odd_text(labels) else ():
        fault = text_fault(node) if node else "an empty node"
        if fault:
            column = f"ip_status.{named(node)}"
            findings.error(
                "not-text" if node else "empty", fault, place, column, remedy="correct it"
            )
    for node, label in [item for item in labels.items() if item[1] != "normal"]:
        _check_label(label, f"ip_status.{named(node)}", place, findings)


def _has_odd_text(labels: Mapping[str, Any]) -> bool:
    """Whether a node may be at fault; tells at once for thousands of ordinary ones."""
    together = "".join(labels)
    return "" in labels or not (together.isascii() and together.isprintable())


def _check_label(label: Any, column: str, place: Place, findings: Findings) -> None:
    if fault := text_fault(label):
        value = shown(label)
        findings.error("bad-label", fault, place, column, value, 'write "normal", or what it is')
    elif not label:
        findings.error("bad-label", "an empty label", place, column, remedy="fill it in")
    elif label.strip().casefold() == "normal":
        what = "a label that is not quite 'normal', so the node counts as faulty"
        findings.warn("odd-label", what, place, column, label, "write it as normal")
