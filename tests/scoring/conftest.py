"""Traces and verdict logs small enough to be worked out by hand."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from replay.traces import EVENTS, Trace, TraceJob
from replay.traces.times import SECOND, format_ns, parse_one

EPOCH = "1970-01-01 00:00:00"


def make_job(
    name: str = "Job1",
    nodes: dict[str, str] | None = None,
    alerts: list[tuple[float, str, str]] | None = None,
    *,
    start: str = EPOCH,
    duration: float = 600,
    generation: str = "Hopper",
) -> tuple[TraceJob, list[tuple[float, str, str]]]:
    """One job; times of alerts in seconds since its start."""
    start_ns = parse_one(start)
    assert start_ns is not None
    end_ns = start_ns + round(duration * SECOND)
    job = TraceJob(name, start, format_ns(end_ns), generation, nodes or {}, start_ns, end_ns)
    return job, alerts or []


def make_trace(*made: tuple[TraceJob, list[tuple[float, str, str]]]) -> Trace:
    """Jobs, in the order given."""
    rows = [
        (number, node, job.start_ns, kind, round(at * SECOND))
        for number, (job, alerts) in enumerate(made)
        for at, node, kind in alerts
    ]
    columns: list[list[Any]] = [list(column) for column in zip(*rows, strict=True)] or [[]] * 5
    number, node, start, kind, at = columns
    text = [format_ns(begin + offset) for begin, offset in zip(start, at, strict=True)]
    arrays = [
        pa.array(number, pa.int32()),
        pa.array(node, pa.string()).dictionary_encode(),
        pa.array(text, pa.string()),
        pa.array(kind, pa.string()).dictionary_encode(),
        pa.array(at, pa.int64()),
    ]
    return Trace(tuple(job for job, _ in made), pa.Table.from_arrays(arrays, schema=EVENTS))


def say(
    node: str | None,
    at: float,
    score: float = 1.0,
    action: str = "raise",
    *,
    job: str = "Job1",
    detector: str = "x",
    seq: int | None = None,
    walls: tuple[float | None, float | None, float | None] = (None, None, None),
) -> dict[str, Any]:
    """One verdict, ``at`` seconds after the job's start; walls: published, scheduled, emitted."""
    return {
        "node": node,
        "at": at,
        "score": score,
        "action": action,
        "job": job,
        "detector": detector,
        "seq": seq,
        "walls": walls,
    }


def make_log(trace: Trace, said: list[dict[str, Any]]) -> Any:
    """A log of verdicts; those without a number get their place."""
    from replay.scoring import VerdictLog  # noqa: PLC0415 - the mutants swap it

    starts = {job.id: job.start_ns for job in trace.jobs}
    rows = []
    for place, one in enumerate(said):
        time_ns = starts.get(one["job"], 0) + round(one["at"] * SECOND)
        seq = place if one["seq"] is None else one["seq"]
        rows.append(
            (
                seq,
                one["detector"],
                one["job"],
                one["node"],
                format_ns(time_ns),
                one["action"],
                one["score"],
                "",
                [],
                None,
                *one["walls"],
                time_ns,
            )
        )
    return VerdictLog.from_rows(rows)


class Bench:
    """What tests are given: builders, and the score of one detector in one call."""

    job = staticmethod(make_job)
    trace = staticmethod(make_trace)
    say = staticmethod(say)
    log = staticmethod(make_log)

    @staticmethod
    def score(trace: Trace, said: list[dict[str, Any]], detector: str = "x", **given: Any) -> Any:
        """The score of one detector; policy fields and the scorer's own arguments mixed."""
        from replay.scoring import Policy, score  # noqa: PLC0415 - the mutants swap it

        own = {
            key: given.pop(key) for key in ("onsets", "publish_lag_ms", "curves") if key in given
        }
        policy = Policy(**{"resamples": 0, **given})
        return score(trace, make_log(trace, said), policy=policy, detectors=[detector], **own)[
            detector
        ]

    def one(
        self,
        nodes: dict[str, str],
        said: list[dict[str, Any]],
        alerts: list[tuple[float, str, str]] | None = None,
        **given: Any,
    ) -> Any:
        """Metrics of one detector on one job of 600 s."""
        return self.score(make_trace(make_job("Job1", nodes, alerts)), said, **given).metrics


@pytest.fixture(scope="session")
def bench() -> Bench:
    """Builders of tiny traces and logs."""
    return Bench()


@pytest.fixture
def call(capsys):
    """Calls the command line in this process; gives exit code, standard output and error."""
    from replay.cli.verbs import run_verb  # noqa: PLC0415 - only some tests need it

    def run(*arguments: object) -> tuple[int, str, str]:
        code = run_verb([str(argument) for argument in arguments])
        return code, *capsys.readouterr()

    return run
