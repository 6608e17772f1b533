"""Each way to break the detector's contract is caught, by the check that is there for it."""

from __future__ import annotations

import gc
import random
import time

import pytest

from replay.api import Detector, Job, Verdict
from replay.errors import DetectorError, PluginError
from replay.plugins import DetectorSpec
from replay.testing import detector_checks


class Good(Detector):
    """Blames whoever alerts.

    Examples:
        >>> 1 + 1
        2

    """

    def observe(self, alert):
        return [Verdict(alert.node, reason=alert.kind, evidence=(alert.seq,))]


class Remembers(Good):
    __doc__ = Good.__doc__
    seen = {}  # noqa: RUF012 - this is the mistake: what one object learns, the next one knows

    def observe(self, alert):
        known = self.seen.setdefault(self.job.id, set())
        known.add(alert.at)
        return [Verdict(alert.node, score=float(len(known)))]


class TossesCoins(Good):
    __doc__ = Good.__doc__

    def observe(self, alert):
        return [Verdict(alert.node, score=random.random())]


class ReadsTheClock(Good):
    __doc__ = Good.__doc__

    def observe(self, alert):
        return [Verdict(alert.node, score=time.perf_counter())]


class ReadsCodes(Good):
    __doc__ = Good.__doc__

    def observe_batch(self, batch):
        return [Verdict(None, score=float(code)) for code in batch.kind.tolist()]


class TrustsHashes(Good):
    __doc__ = Good.__doc__

    def observe(self, alert):
        return [Verdict(next(iter({alert.node, *self.job.nodes})))]


class Vandal(Good):
    __doc__ = Good.__doc__

    def observe_batch(self, batch):
        said = super().observe_batch(batch)
        batch.kind[:] = 0
        return said


class Forger(Good):
    __doc__ = Good.__doc__

    def observe_batch(self, batch):
        said = super().observe_batch(batch)
        batch.at = 0.0
        return said


class KeepsTheBatch(Good):
    __doc__ = Good.__doc__

    def __init__(self, job: Job):
        super().__init__(job)
        self.first = None

    def observe(self, alert):
        self.first = self.first or ([0], [alert.node])
        return ()

    def observe_batch(self, batch):
        self.first = self.first or (batch.node[:1], batch.nodes)
        return ()

    def finish(self):
        if self.first is None:
            return ()
        (code,), nodes = self.first
        return [Verdict(nodes[code])]


class SharesNotes(Good):
    __doc__ = Good.__doc__
    notes = []  # noqa: RUF012 - this is the mistake: all jobs write into one list

    def __init__(self, job: Job):
        super().__init__(job)
        self.notes.clear()

    def observe(self, alert):
        self.notes.append(alert.node)
        del self.notes[:-5]
        return [Verdict(None, reason=str(self.notes))]


class BlamesStrangers(Good):
    __doc__ = Good.__doc__

    def observe(self, alert):
        return [Verdict("node-of-another-job")]


class CitesTheFuture(Good):
    __doc__ = Good.__doc__

    def observe(self, alert):
        return [Verdict(alert.node, evidence=(alert.seq + 1,))]


class Hoards(Good):
    __doc__ = Good.__doc__

    def __init__(self, job: Job):
        super().__init__(job)
        self.all = []

    def observe(self, alert):
        self.all.append(alert.seq)
        return ()


class CountsBatches(Good):
    __doc__ = Good.__doc__

    def observe_batch(self, batch):
        return [Verdict(None, score=float(len(batch)))]


class HasTwoMinds(Good):
    __doc__ = Good.__doc__

    def observe_batch(self, batch):
        return [Verdict(alert.node, reason="batch") for alert in batch]


class DecidesTooEarly(Good):
    __doc__ = Good.__doc__

    def observe_batch(self, batch):
        loudest = max(batch.alerts, key=lambda alert: alert.node)
        return [Verdict(loudest.node)]

    def observe(self, alert):
        return [Verdict(alert.node)]


class StumblesOverStrangers(Good):
    __doc__ = Good.__doc__

    def observe(self, alert):
        return [Verdict(alert.node, score=1.0 + self.job.nodes.index(alert.node))]


class SetsAlarmsBack(Good):
    __doc__ = Good.__doc__

    def observe(self, alert):
        self.wake_at = alert.at
        return ()


class NeverSleeps(Good):
    __doc__ = Good.__doc__
    wake_at = 0.0

    def advance(self, now):
        self.wake_at = now + 0.9
        return ()


class NeedsAlerts(Good):
    __doc__ = Good.__doc__

    def __init__(self, job: Job):
        super().__init__(job)
        self.nodes = set()

    def observe(self, alert):
        self.nodes.add(alert.node)
        return ()

    def finish(self):
        return [Verdict(max(self.nodes))]


class NeverTrains(Good):
    __doc__ = Good.__doc__

    def __init__(self, job: Job, *, protect: bool = False):
        super().__init__(job)
        self.protect = protect

    def observe(self, alert):
        return [Verdict(alert.node, score=1 / (not self.protect))]


class Shy(Detector):
    def observe(self, alert):
        return ()


class Vague(Detector):
    """Has no example."""

    def observe(self, alert):
        return ()


def boasts():
    """Made here, where nobody looks for examples to run."""

    class Boasts(Vague):
        """Has an example that is not so.

        Examples:
            >>> 1 + 1
            3

        """

    return Boasts


class ForgetsWhenPickled(Good):
    __doc__ = Good.__doc__

    def __init__(self, job: Job):
        super().__init__(job)
        self.count = 0

    def __getstate__(self):
        return {"job": self.job, "count": 0}

    def observe(self, alert):
        self.count += 1
        return [Verdict(alert.node, score=float(self.count))]


class Spies(Good):
    __doc__ = Good.__doc__

    def __init__(self, job: Job):
        super().__init__(job)
        self.answer = self.look(job) if job.id.startswith("holds_no_truth") else None

    @staticmethod
    def look(job):
        found = (o for o in gc.get_objects() if type(o).__name__ == "TraceJob" and o.id == job.id)
        return next(found, None)

    def __reduce__(self):
        raise TypeError("cannot be pickled")


PLAYED_TWICE = {
    "no_look_ahead",
    "deterministic",
    "same_at_any_watermark",
    "ties_in_any_split",
    "batch_equals_single",
    "input_not_kept",
    "jobs_kept_apart",
    "pickled_or_not",
}

# what catches it, and nothing else does
CAUGHT = {
    Good: set(),
    Remembers: PLAYED_TWICE,
    TossesCoins: PLAYED_TWICE | {"same_in_every_process"},
    ReadsTheClock: PLAYED_TWICE | {"same_in_every_process"},
    ReadsCodes: {"deterministic", "batch_equals_single"},
    TrustsHashes: {"same_in_every_process"},
    KeepsTheBatch: {"input_not_kept"},
    SharesNotes: {"jobs_kept_apart"},
    BlamesStrangers: {"blames_known_nodes"},
    CitesTheFuture: {"blames_known_nodes"},
    Hoards: {"bounded_memory"},
    CountsBatches: {"ties_in_any_split", "batch_equals_single"},
    HasTwoMinds: {"batch_equals_single"},
    DecidesTooEarly: {"ties_in_any_split", "batch_equals_single"},
    NeverSleeps: {"survives_silence"},
    NeverTrains: {"options_flipped"},
    Shy: {"documented"},
    Vague: {"documented"},
    boasts(): {"documented"},
    ForgetsWhenPickled: {"pickled_or_not"},
    Spies: {"holds_no_truth"},
}

# what catches it, among others: it also crashes, or spoils what is played again
ALSO_CAUGHT = {
    Vandal: "input_untouched",
    Forger: "input_untouched",
    StumblesOverStrangers: "survives",
    SetsAlarmsBack: "survives",
    NeedsAlerts: "survives_empty_job",
}


def failing(detector):
    """Names of the checks that fail; the slow one is spared those who are not its case."""
    names = set()
    for check in detector_checks(detector):
        if check.__name__ == "bounded_memory" and detector not in {Good, Hoards}:
            continue
        try:
            check()
        except Exception:  # noqa: BLE001 - which check fails is the question
            names.add(check.__name__)
    return names


@pytest.mark.parametrize("detector", CAUGHT, ids=lambda detector: detector.__name__)
def test_caught(detector):
    assert failing(detector) == CAUGHT[detector]


@pytest.mark.parametrize("detector", ALSO_CAUGHT, ids=lambda detector: detector.__name__)
def test_caught_among_others(detector):
    assert ALSO_CAUGHT[detector] in failing(detector)


def test_a_detector_that_cannot_be_built_says_so():
    with pytest.raises(PluginError, match="no detector 'brst'"):
        detector_checks("brst")
    with pytest.raises(PluginError, match="has no method observe"):
        detector_checks(Detector)


def test_options_go_along():
    checks = detector_checks(DetectorSpec.of(NeverTrains, protect=True))
    with pytest.raises(DetectorError, match="ZeroDivisionError"):
        next(check for check in checks if check.__name__ == "survives")()


def test_checks_are_named_and_documented():
    checks = detector_checks(Good)
    names = [check.__name__ for check in checks]
    assert len(set(names)) == len(names) == 18
    assert all(check.__doc__ for check in checks)
