"""Verdicts as records, and back."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from replay.api import Verdict
from replay.messages import TimedVerdict
from replay.transports.wire.fields import (
    VERSION,
    PoisonError,
    count_of,
    field_of,
    json_text,
    number_of,
    number_or_none,
    parse,
    shown,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Judged", "decode_verdict", "encode_verdict", "verdict_id"]


@dataclass(frozen=True, slots=True)
class Judged:
    """A worker has judged a whole job: closes the job's verdicts.

    Attributes:
        run: Id of the replay.
        epoch: As in :class:`~replay.messages.JobStarted`.
        job: The job's id.
        at: Trace seconds since the job's start at which it ended.
        count: How many alerts the publisher sent.
        missing: How many of them never arrived.
        complete: False when the replay was stopped before the job's end.
        verdicts: Detector → number of its verdicts.
        failed: Detector → why it was stopped.
    """

    run: str
    epoch: int
    job: str
    at: float
    count: int
    missing: int = 0
    complete: bool = True
    verdicts: Mapping[str, int] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)


def verdict_id(run: str, epoch: int, detector: str, job: str, number: int) -> str:
    """The same for the same verdict, whoever computes it and however often.

    Examples:
        >>> verdict_id("r1", 0, "burst", "Job1", 0)
        '...'

    """
    name = json.dumps([run, epoch, detector, job, number])
    return hashlib.blake2b(name.encode(), digest_size=12).hexdigest()


def encode_verdict(said: TimedVerdict | Judged) -> bytes:
    """The value of a verdict's record, or of the one that closes a job's verdicts."""
    common = {"run": said.run, "epoch": said.epoch, "job_id": said.job, "t": said.at}
    if isinstance(said, Judged):
        record = {
            "v": VERSION,
            "type": "judged",
            **common,
            "count": said.count,
            "missing": said.missing,
            "complete": said.complete,
            "verdicts": dict(said.verdicts),
            "failed": dict(said.failed),
        }
        return json_text(record).encode()
    verdict = said.verdict
    record = {
        "v": VERSION,
        "type": "verdict",
        "id": verdict_id(said.run, said.epoch, said.detector, said.job, said.number),
        **common,
        "detector": said.detector,
        "number": said.number,
        "ip": verdict.node,
        "action": verdict.action,
        "score": verdict.score,
        "reason": verdict.reason,
        "evidence": list(verdict.evidence),
        "trigger_seq": said.trigger_seq,
    }
    for wall in ("scheduled_wall", "published_wall", "emitted_wall"):
        if getattr(said, wall) is not None:
            record[wall] = getattr(said, wall)
    if said.catch_up:
        record["catch_up"] = True
    return json_text(record).encode()


def decode_verdict(value: bytes | None) -> TimedVerdict | Judged:
    """What :func:`encode_verdict` wrote.

    Raises:
        PoisonError: The record cannot be understood.

    Examples:
        >>> said = TimedVerdict("r1", 0, "burst", "Job1", 0, 3.0, Verdict("a", score=0.5))
        >>> decode_verdict(encode_verdict(said)) == said
        True

    """
    record = parse(value)
    kind = record.get("type")
    common = (field_of(record, "run", str), count_of(record, "epoch"))
    if kind == "judged":
        return Judged(
            *common,
            field_of(record, "job_id", str),
            number_of(record, "t"),
            count_of(record, "count"),
            count_of(record, "missing"),
            field_of(record, "complete", bool),
            {
                name: count_of(record["verdicts"], name)
                for name in field_of(record, "verdicts", dict)
            },
            {
                name: field_of(record["failed"], name, str)
                for name in field_of(record, "failed", dict)
            },
        )
    if kind != "verdict":
        raise PoisonError("type", f"type is {shown(kind)}")
    node, action = record.get("ip"), record.get("action")
    if node is not None and type(node) is not str:
        raise PoisonError("field", f"ip is {shown(node)}, not text or null")
    if action not in {"raise", "retract"}:
        raise PoisonError("field", f"action is {shown(action)}, not raise or retract")
    evidence = field_of(record, "evidence", list)
    if not all(type(seq) is int for seq in evidence):
        raise PoisonError("field", "evidence holds something that is not a number")
    trigger = None if record.get("trigger_seq") is None else count_of(record, "trigger_seq")
    return TimedVerdict(
        *common,
        field_of(record, "detector", str),
        field_of(record, "job_id", str),
        count_of(record, "number"),
        number_of(record, "t"),
        Verdict(
            node,
            action,
            number_of(record, "score"),
            field_of(record, "reason", str),
            tuple(evidence),
        ),
        trigger,
        number_or_none(record, "scheduled_wall"),
        number_or_none(record, "published_wall"),
        number_or_none(record, "emitted_wall"),
        record.get("catch_up") is True,
    )
