"""Cross-validation: what a learned detector was fitted on, and what it can never have seen."""

from __future__ import annotations

import functools

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from replay.bench import bench, processes
from replay.bench.folds import Course, deal, fit, lesson
from replay.bench.task import Masks, tasks
from replay.errors import PluginError, UsageError
from replay.plugins import parse_detectors
from replay.scoring import Policy
from replay.traces.anonymize import Pseudonyms

POLICY = Policy(resamples=0)

LEARNER = '''
from replay.api import Learner, Verdict


class Own(Learner):
    """Remembers which jobs it was fitted on, and tells at the end of another."""

    def __init__(self, job, *, model=None):
        super().__init__(job)
        self.model = model

    def observe(self, alert):
        return ()

    def finish(self):
        said = "as installed" if self.model is None else " ".join(self.model["jobs"])
        return [Verdict(None, reason=said)]

    @classmethod
    def fit(cls, lessons):
        if not any(any(lesson.labels.values()) for lesson in lessons):
            raise ValueError("nobody is guilty")
        return {"jobs": [lesson.job.id for lesson in lessons]}


class Kin(Own):
    """Shares the fit of the other."""
'''


@pytest.fixture
def learner(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(LEARNER)
    return str(path)


@pytest.fixture
def apart(trace):
    """Job1, Job2 and Job10 hang together by their nodes, Job3 too: only Job4 and Job5 stand alone."""
    job = trace.jobs[0]
    more = (
        type(job)(
            "Job4", job.start_time, job.end_time, "", {"x": "broken"}, job.start_ns, job.end_ns
        ),
        type(job)(
            "Job5", job.start_time, job.end_time, "", {"y": "normal"}, job.start_ns, job.end_ns
        ),
    )
    return type(trace)((*trace.jobs, *more), trace.events, "apart")


def told(found, name="Own"):
    rows = (row for row in found.log.rows() if row["detector"] == name)
    return {row["job_id"]: row["reason"] for row in rows}


def test_each_job_is_watched_by_what_learned_elsewhere(apart, learner):
    found = bench(apart, [f"{learner}:Own", f"{learner}:Kin"], policy=POLICY, folds=2)
    # the four jobs that hang together make one fold, the two that stand alone the other
    assert told(found) == {
        **dict.fromkeys(("Job1", "Job2", "Job3", "Job10"), "Job4 Job5"),
        **dict.fromkeys(("Job4", "Job5"), "Job1 Job2 Job3 Job10"),
    }
    assert told(found, "Kin") == told(found)
    assert found.score.settings["folds"] == 2


def test_same_over_processes(apart, learner):
    plain = bench(apart, [f"{learner}:Own"], policy=POLICY, folds=3)
    many = bench(
        apart, [f"{learner}:Own"], policy=POLICY, folds=3, pool=functools.partial(processes, 2)
    )
    assert many.score.json() == plain.score.json()


def test_without_folds_a_learner_is_as_it_was_installed(apart, learner):
    assert set(told(bench(apart, [f"{learner}:Own"], policy=POLICY)).values()) == {"as installed"}


def test_nothing_to_cross_validate(trace, apart, learner):
    with pytest.raises(UsageError, match="None of the detectors learns"):
        bench(apart, ["silent"], policy=POLICY, folds=2)
    with pytest.raises(UsageError, match="All jobs share nodes"):
        bench(trace, [f"{learner}:Own"], policy=POLICY, folds=2)


def test_too_little_to_learn_from(apart, learner):
    healthy = apart.select(["Job2", "Job5"])
    with pytest.raises(PluginError, match="Own cannot be fitted: nobody is guilty"):
        bench(healthy, [f"{learner}:Own"], policy=POLICY, folds=2)


def test_fitting_what_does_not_learn():
    with pytest.raises(PluginError, match="does not learn"):
        fit(Course("silent", "silent", (), (), ()))


def test_a_lesson_is_a_whole_job_under_its_pseudonyms(trace):
    masks = Masks(Pseudonyms(b"0123456789abcdef", per_job=True))
    task = next(tasks(trace, parse_detectors(["silent"]), masks))
    names = masks.names("Job1")
    found = lesson(task, {names["b"]: True}, "0")
    assert set(found.job.nodes) == set(names.values())
    assert [(batch.at, len(batch)) for batch in found.batches] == [(5.0, 1), (9.0, 2)]
    assert (found.end, found.group) == (60.0, "0")


@given(components=st.lists(st.integers(0, 8), min_size=2, max_size=40), folds=st.integers(2, 6))
def test_dealing(components, folds):
    assume(len(set(components)) > 1)
    found = deal(components, folds)
    assert set(found) == set(range(min(folds, len(set(components)))))
    for component in set(components):
        assert (
            len({fold for fold, other in zip(found, components, strict=True) if other == component})
            == 1
        )
