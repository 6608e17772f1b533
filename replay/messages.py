"""What travels from the engine to the host, and what the host answers.

Messages of one job come in this order: one :class:`JobStarted`, then :class:`AlertSlice` and
:class:`Watermark` with times that never go back, then one :class:`JobEnded`. None of them
carries the truth. A seek begins a new ``epoch``, and each job's sequence begins anew in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from replay.api import AlertBatch, Job, Verdict

__all__ = ["AlertSlice", "JobEnded", "JobStarted", "Message", "TimedVerdict", "Watermark"]


@dataclass(frozen=True, slots=True)
class JobStarted:
    """A job begins.

    Attributes:
        run: Id of this replay.
        epoch: 0, and one more after every seek or loop.
        job: The job as detectors see it.
        start_time: The job's start as the trace writes it; dates verdict logs, never shown to
            detectors.
        at: Trace seconds since the job's start at which the replay enters the job.
    """

    run: str
    epoch: int
    job: Job
    start_time: str
    at: float = 0.0


@dataclass(slots=True)  # nobody changes one; to freeze it would double what a replay costs
class AlertSlice:
    """All alerts of one job at one instant, or a piece of them.

    Attributes:
        run: Id of this replay.
        epoch: See :class:`JobStarted`.
        batch: The alerts.
        scheduled_wall: Wall seconds (Unix) at which they were due; None in virtual time.
        published_wall: Wall seconds (Unix) at which they left; None in virtual time.
        catch_up: True for alerts skipped by a seek and delivered unpaced.
    """

    run: str
    epoch: int
    batch: AlertBatch
    scheduled_wall: float | None = None
    published_wall: float | None = None
    catch_up: bool = False


@dataclass(frozen=True, slots=True)
class Watermark:
    """Everything of this job up to and including ``at`` has been published.

    Attributes:
        run: Id of this replay.
        epoch: See :class:`JobStarted`.
        job: The job's id.
        at: Trace seconds since the job's start.
    """

    run: str
    epoch: int
    job: str
    at: float


@dataclass(frozen=True, slots=True)
class JobEnded:
    """The job is over: its end time has passed and all its alerts are out.

    Attributes:
        run: Id of this replay.
        epoch: See :class:`JobStarted`.
        job: The job's id.
        at: Trace seconds since the job's start: its end, or its last alert if that is later.
        count: How many alerts of this job were published in this epoch.
        complete: False when the replay was stopped before the job's end.
    """

    run: str
    epoch: int
    job: str
    at: float
    count: int
    complete: bool = True


Message = JobStarted | AlertSlice | Watermark | JobEnded


@dataclass(frozen=True, slots=True)
class TimedVerdict:
    """A verdict, stamped by the host.

    Attributes:
        run: Id of the replay.
        epoch: See :class:`JobStarted`.
        detector: Name of the detector.
        job: The job's id.
        number: Position among this detector's verdicts on this job, from 0.
        at: Trace seconds since the job's start: time of the newest alert delivered, or of the
            wake-up.
        verdict: What was said.
        trigger_seq: ``seq`` of the newest alert delivered; None before the first.
        scheduled_wall: Of the triggering slice; None in virtual time or for a wake-up.
        published_wall: Of the triggering slice; None in virtual time or for a wake-up.
        emitted_wall: Wall seconds (Unix) when it was said; None in virtual time.
        catch_up: True if the newest alert delivered was caught up on after a seek.
    """

    run: str
    epoch: int
    detector: str
    job: str
    number: int
    at: float
    verdict: Verdict
    trigger_seq: int | None = None
    scheduled_wall: float | None = None
    published_wall: float | None = None
    emitted_wall: float | None = None
    catch_up: bool = False
