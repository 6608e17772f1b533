"""What the detectors' tests share: a job, a detector that says what it is told, and short words."""

from __future__ import annotations

import functools

import pytest

from replay.api import Detector, Job, Verdict


class Scripted(Detector):
    """Says what a script tells it to, when its time comes.

    Args:
        job: The job.
        script: (at, what to say) in order of time.
        last: What to say at the end.
    """

    def __init__(self, job, *, script=(), last=()):
        super().__init__(job)
        self._script = list(script)
        self._last = last
        self._set_alarm()

    def _set_alarm(self):
        self.wake_at = self._script[0][0] if self._script else None

    def observe(self, alert):
        return ()

    def advance(self, now):
        said = [verdict for at, verdict in self._script if at <= now]
        self._script = [(at, verdict) for at, verdict in self._script if at > now]
        self._set_alarm()
        return said

    def finish(self):
        return self._last


def _verdict(word):
    node, _, score = word[1:].partition(" ")
    return Verdict(node, "raise" if word[0] == "+" else "retract", score=float(score or 1.0))


@pytest.fixture
def job():
    return Job("Job1", tuple("abcdefgh"))


@pytest.fixture
def scripted():
    """``scripted((5.0, "+a"), (9.0, "-a"), last=["+b 0.7"])`` makes detectors that say so."""

    def make(*script, last=()):
        steps = [(at, _verdict(word)) for at, word in script]
        return functools.partial(Scripted, script=steps, last=[_verdict(word) for word in last])

    return make


@pytest.fixture
def words():
    """Timed verdicts as ``(at, "+a")``; the job as a whole is ``"+None"``."""

    def words(timed):
        signs = {"raise": "+", "retract": "-"}
        return [(t.at, f"{signs[t.verdict.action]}{t.verdict.node}") for t in timed]

    return words
