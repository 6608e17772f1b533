"""A detector that fails is stopped on that job, named and counted; nothing else notices."""

from __future__ import annotations

import math
import re
import sys

import numpy as np
import pytest

from replay.api import Detector, Job, Verdict
from replay.errors import DetectorError
from replay.host import Host, JobHost
from replay.plugins import DetectorSpec
from replay.testing import stream


def spec(cls, name=""):
    """A spec without the trial that :meth:`DetectorSpec.of` makes."""
    return DetectorSpec(name or cls.__name__, cls)


def answering(answer):
    """A detector that answers its second alert with whatever this is."""

    class Answering(Detector):
        """Answers."""

        def observe_batch(self, batch):
            return answer() if batch.seq[0] == 1 else [Verdict(None, reason="fine")]

        def observe(self, alert):
            return ()

    return Answering


class NoTruth:
    def __bool__(self):
        raise RuntimeError("neither true nor false")


class Mute:
    def __repr__(self):
        raise RuntimeError("no words")


def crash():
    raise ZeroDivisionError("division by zero")


def crash_half_way():
    yield Verdict("a")
    raise ZeroDivisionError


def for_ever():
    return for_ever()


BROKEN = {
    "crash": (crash, r"ZeroDivisionError: division by zero \(test_isolation.py, line \d+\)"),
    "crash while yielding": (crash_half_way, r"ZeroDivisionError \(test_isolation.py"),
    "sys.exit": (lambda: sys.exit(3), "SystemExit: 3"),
    "stop iteration": (lambda: next(iter(())), "StopIteration"),
    "recursion": (for_ever, "RecursionError"),
    "nothing": (lambda: None, "gave None where verdicts are expected"),
    "a bare verdict": (lambda: Verdict("a"), r"gave Verdict\(node='a'.* where verdicts"),
    "a number": (lambda: 3, "gave 3 where verdicts are expected"),
    "a text": (lambda: "a", "said 'a', which is not a Verdict"),
    "a node": (lambda: ["a"], "said 'a', which is not a Verdict"),
    "one good, one bad": (lambda: [Verdict("a"), ("a", "raise")], "which is not a Verdict"),
    "node is a number": (lambda: [Verdict(3)], "blamed 3, which is not a node's name"),
    "action": (lambda: [Verdict("a", "blame")], "said 'blame', which is neither"),
    "action is a list": (lambda: [Verdict("a", ["raise"])], "neither 'raise' nor 'retract'"),
    "score is NaN": (lambda: [Verdict("a", score=math.nan)], "score nan, which is not a finite"),
    "score is infinite": (lambda: [Verdict("a", score=-math.inf)], "score -inf, which"),
    "score is text": (lambda: [Verdict("a", score="1")], "score '1', which is not a finite"),
    "score is None": (lambda: [Verdict("a", score=None)], "score None, which is not a finite"),
    "evidence": (lambda: [Verdict("a", evidence=(1.5,))], r"evidence \(1.5,\), not alert numbers"),
    "evidence is a number": (lambda: [Verdict("a", evidence=3)], "evidence 3, not alert numbers"),
    "a long mistake": (lambda: ["x" * 999], r"said 'x{50,60}\.\.\., which"),
    "not printable": (lambda: [Mute()], "RuntimeError: no words"),
    "neither true nor false": (NoTruth, "where verdicts are expected"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_answer_stops_that_detector_alone(case, job, echo, diary):
    answer, words = BROKEN[case]
    detectors = [spec(answering(answer), "bad"), spec(echo, "good")]
    host = JobHost(detectors, diary)
    messages = stream(job, [(float(n), "a", "x") for n in range(4)], end=99.0)
    said = [timed for message in messages for timed in host.feed(message)]

    alone = JobHost([spec(echo, "good")])
    wanted = [timed for message in messages for timed in alone.feed(message)]
    assert [timed for timed in said if timed.detector == "good"] == wanted
    assert [timed.at for timed in said if timed.detector == "bad"] == [0.0]

    (failure,) = host.tally.failures
    assert isinstance(failure, DetectorError)
    assert failure.exit_code == 6
    assert (failure.detector, failure.job) == ("bad", "Job1")
    assert failure.__cause__ is not None
    assert diary.failures == [("bad", "Job1", failure)]
    assert re.search(words, str(failure)), str(failure)


def test_other_jobs_go_on(echo):
    host = Host([spec(answering(crash), "bad"), spec(echo, "good")])
    one, two = Job("one", ("a",)), Job("two", ("a",))
    host.feed(stream(one, [(0.0, "a", "x"), (1.0, "a", "x"), (2.0, "a", "x")]))
    said = host.feed(stream(two, [(0.0, "a", "x")]))
    assert {timed.detector for timed in said} == {"bad", "good"}
    assert [(failure.detector, failure.job) for failure in host.tally.failures] == [("bad", "one")]


def test_keyboard_interrupt_passes_through(job):
    class Interrupted(Detector):
        """Is interrupted."""

        def observe(self, alert):
            raise KeyboardInterrupt

    host = JobHost([spec(Interrupted)])
    start, one, _ = stream(job, [(0.0, "a", "x")])
    host.feed(start)
    with pytest.raises(KeyboardInterrupt):
        host.feed(one)
    assert not host.tally.failures


def waking(*alarms):
    """A detector that asks to be woken at these times, one after the other."""

    class Waking(Detector):
        """Wakes."""

        def __init__(self, job):
            super().__init__(job)
            self.alarms = list(alarms)
            self.wake_at = self.alarms.pop(0)

        def observe(self, alert):
            return ()

        def advance(self, now):
            self.wake_at = self.alarms.pop(0)
            return [Verdict(None, reason=str(now))]

    return Waking


@pytest.mark.parametrize(
    ("alarms", "words"),
    [
        ((5.0, 5.0), "woken at 5.0, it asked for 5.0, which is not later"),
        ((5.0, 4.0), "woken at 5.0, it asked for 4.0, which is not later"),
        ((5.0, math.nan), "woken at 5.0, it asked for nan"),
        ((math.nan,), "asked for nan"),
        (("soon",), "TypeError"),
        ((5.0, "soon"), "TypeError"),
        ((5.0,), "IndexError"),
    ],
)
def test_alarm_that_makes_no_sense_stops_the_detector(job, alarms, words):
    host = JobHost([spec(waking(*alarms))])
    said = [timed for message in stream(job, [], end=100.0) for timed in host.feed(message)]
    assert said == []
    (failure,) = host.tally.failures
    assert words in str(failure)


def test_crash_at_construction_wake_up_and_end(job):
    class AtBirth(Detector):
        """Cannot be built."""

        def __init__(self, job):
            raise OSError("no model here")

        def observe(self, alert):
            return ()

    class AtEnd(Detector):
        """Has no last words."""

        def observe(self, alert):
            return ()

        def finish(self):
            raise KeyError("gone")

    host = JobHost([spec(AtBirth), spec(AtEnd), spec(waking(3.0, 9.0, None))])
    said = [timed for message in stream(job, [], end=100.0) for timed in host.feed(message)]
    assert [timed.at for timed in said] == [3.0, 9.0]
    first, second = host.tally.failures
    assert "OSError: no model here" in str(first)
    assert "KeyError: 'gone'" in str(second)


def test_numbers_and_names_of_numpy_become_plain(job):
    def answer():
        return [
            Verdict(
                np.str_("a"), score=np.float32(0.5), evidence=[np.int64(0), 1], reason=np.str_("r")
            ),
            Verdict(None, score=3),
            Verdict("b", score=True),
        ]

    host = JobHost([spec(answering(answer))])
    messages = stream(job, [(0.0, "a", "x"), (1.0, "a", "x")])
    verdicts = [timed.verdict for message in messages for timed in host.feed(message)][1:]
    assert verdicts == [
        Verdict("a", score=0.5, evidence=(0, 1), reason="r"),
        Verdict(None, score=3.0),
        Verdict("b", score=1.0),
    ]
    for verdict in verdicts:
        assert type(verdict.score) is float
        assert type(verdict.node) in {str, type(None)}
        assert type(verdict.reason) is str
        assert all(type(seq) is int for seq in verdict.evidence)


@pytest.mark.parametrize("kind", [list, tuple, iter, set])
def test_any_iterable_will_do(job, kind):
    host = JobHost([spec(answering(lambda: kind([Verdict("a"), Verdict("z", "retract")])))])
    messages = stream(job, [(0.0, "a", "x"), (1.0, "a", "x")])
    said = [timed for message in messages for timed in host.feed(message)][1:]
    assert {(v.verdict.node, v.verdict.action) for v in said} == {("a", "raise"), ("z", "retract")}


def test_one_detector_cannot_date_or_change_anothers_input(job, echo, feed):
    class Vandal(Detector):
        """Writes where it should not."""

        def observe_batch(self, batch):
            batch.seq[0] = 99
            return ()

        def observe(self, alert):
            return ()

    host = JobHost([spec(Vandal), spec(echo)])
    messages = stream(job, [(0.0, "a", "x")])
    said = [timed for message in messages for timed in host.feed(message)]
    assert "read-only" in str(host.tally.failures[0])
    assert said[0].verdict.evidence == (0,)


def test_observe_that_returns_a_verdict_is_told_to_yield_it(job, diary):
    class Returns(Detector):
        def observe(self, alert):
            return Verdict(alert.node)

    host = JobHost([DetectorSpec.of(Returns)], diary)
    for message in stream(job, [(0.0, "a", "x")], end=9.0):
        host.feed(message)
    (failure,) = host.tally.failures
    assert "Returns.observe gave one verdict, not many: yield it" in str(failure)
