"""Cross-validation: a learned detector knows nothing from jobs that share nodes with this one.

Jobs that share node tokens, directly or through others, make one component. Components are dealt
into folds; the detector that watches a job was fitted on the jobs of all other folds.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from replay.api import Learner, Lesson
from replay.bench.pool import scatter
from replay.bench.task import Masks, tasks
from replay.engine import Playback, Player
from replay.errors import PluginError, UsageError
from replay.messages import AlertSlice, JobEnded
from replay.plugins import DetectorSpec
from replay.scoring import LabelMap, Truth
from replay.timeline import Timeline

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from replay.bench.pool import MakePool
    from replay.bench.task import Task
    from replay.messages import Message
    from replay.traces.model import Trace

__all__ = ["Course", "cross_validate", "deal", "fit", "lesson"]


@dataclass(frozen=True, slots=True)
class Course:
    """Jobs to fit a detector on, with their answers.

    Attributes:
        name: What the detector is called.
        text: How it was asked for.
        jobs: The jobs, labels apart.
        labels: For each job, node → whether it was faulty.
        groups: For each job, the name of its component.
    """

    name: str
    text: str
    jobs: tuple[Task, ...]
    labels: tuple[Mapping[str, bool], ...]
    groups: tuple[str, ...]

    @classmethod
    def of(cls, trace: Trace, detector: str, labels: LabelMap | None = None) -> Self:
        """All jobs of a trace, under the nodes' real names.

        Args:
            trace: With its truth.
            detector: As :meth:`replay.plugins.DetectorSpec.parse` takes it.
            labels: What raw labels mean.
        """
        labels, masks = labels or LabelMap(), Masks(None)
        answers = [_answers(trace, number, masks, labels) for number in range(len(trace))]
        groups = map(str, _components(trace, labels))
        jobs = tuple(tasks(trace, (), masks))
        return cls(detector, detector, jobs, tuple(answers), tuple(groups))

    @property
    def size(self) -> int:
        """How many alerts there are to learn from."""
        return sum(task.size for task in self.jobs)

    def __str__(self) -> str:
        return f"{self.name} on {len(self.jobs)} jobs"


def fit(course: Course) -> str:
    """Fit a detector; the model as JSON text.

    Raises:
        PluginError: There is too little to learn from, or a package is missing.
    """
    learner = DetectorSpec.parse(course.text).cls
    if not issubclass(learner, Learner):
        raise PluginError(f"Detector {course.name} does not learn.")
    lessons = [
        lesson(task, labels, group)
        for task, labels, group in zip(course.jobs, course.labels, course.groups, strict=True)
    ]
    try:
        return json.dumps(learner.fit(lessons))
    except ModuleNotFoundError as error:
        raise PluginError(
            f"Detector {course.name} cannot be fitted: {error}.",
            "pip install 'alert-replay[learn]'",
        ) from error
    except ValueError as error:
        raise PluginError(f"Detector {course.name} cannot be fitted: {error}.") from error


def lesson(task: Task, labels: Mapping[str, bool], group: str) -> Lesson:
    """A whole job as :meth:`replay.api.Learner.fit` takes it."""
    (job,) = task.trace.jobs
    batches = []
    end = job.duration_ns / 1e9

    def keep(messages: Sequence[Message]) -> None:
        nonlocal end
        for message in messages:
            if isinstance(message, AlertSlice):
                batches.append(message.batch)
            elif isinstance(message, JobEnded):
                end = message.at

    Player(Timeline.build(task.trace, outside=task.outside), keep, Playback(), run="fit").play()
    return Lesson(job.public, tuple(batches), end, labels, group)


def deal(components: Sequence[int], folds: int) -> list[int]:
    """The fold of each job: whole components, the largest first, each to the smallest fold.

    Raises:
        UsageError: There is only one component, so nothing can be held out.

    Examples:
        >>> deal([0, 0, 0, 1, 2, 2], 2)
        [0, 0, 0, 1, 1, 1]

    """
    sizes = Counter(components)
    if len(sizes) < 2:
        raise UsageError("All jobs share nodes with each other, so none can be held out.")
    filled = [0] * min(folds, len(sizes))
    fold = {}
    for component, size in sorted(sizes.items(), key=lambda item: (-item[1], item[0])):
        fold[component] = filled.index(min(filled))
        filled[fold[component]] += size
    return [fold[component] for component in components]


def cross_validate(
    todo: Sequence[Task],
    specs: Iterable[DetectorSpec],
    trace: Trace,
    masks: Masks,
    labels: LabelMap,
    folds: int,
    pool: MakePool,
) -> list[Task]:
    """Give every learned detector in every task a model that has not seen its job's component.

    A detector that was asked for with a model of its own keeps it.

    Args:
        todo: One task per job of the trace, in its order.
        specs: The detectors.
        trace: With its truth.
        masks: What the nodes are called in the tasks.
        labels: What raw labels mean.
        folds: At most how many folds.
        pool: Makes the executor that the fits go through.

    Raises:
        PluginError: A detector cannot be fitted.
        UsageError: Nothing can be held out.
    """
    teachers: dict[object, DetectorSpec] = {}
    family: dict[str, object] = {}
    for spec in specs:
        if (way := _way(spec)) is not None:
            family[spec.name] = way
            teachers.setdefault(way, spec)
    if not teachers:
        raise UsageError("None of the detectors learns.", "leave --cross-validate out")
    component = _components(trace, labels)
    fold = deal(component, folds)
    answers = [_answers(trace, number, masks, labels) for number in range(len(trace))]

    courses = {}
    for way, spec in teachers.items():
        for held_out in range(max(fold) + 1):
            jobs = [number for number in range(len(todo)) if fold[number] != held_out]
            courses[way, held_out] = Course(
                spec.name,
                spec.text,
                tuple(replace(todo[number], detectors=()) for number in jobs),
                tuple(answers[number] for number in jobs),
                tuple(str(component[number]) for number in jobs),
            )
    models = dict(zip(courses, scatter(fit, list(courses.values()), pool), strict=True))
    return [
        replace(
            task,
            detectors=tuple(
                asked._replace(model=models[family[asked.name], fold[number]])
                if asked.name in family
                else asked
                for asked in task.detectors
            ),
        )
        for number, task in enumerate(todo)
    ]


def _way(spec: DetectorSpec) -> object:
    """How a detector is fitted, the same for those that share it; None if it is not to be."""
    if not issubclass(spec.cls, Learner) or "model" in spec.options:
        return None
    return getattr(spec.cls.fit, "__func__", spec.cls.fit)


def _components(trace: Trace, labels: LabelMap) -> list[int]:
    """For each job of the trace, the component that it belongs to."""
    truth = Truth.of(trace, labels)
    component = dict(zip(truth.jobs, truth.components().tolist(), strict=True))
    return [component[job.id] for job in trace.jobs]


def _answers(trace: Trace, number: int, masks: Masks, labels: LabelMap) -> dict[str, bool]:
    """Node, as detectors see it → whether it was faulty; ignored ones left out."""
    job = trace.jobs[number]
    names = masks.names(job.id)
    meanings = {node: labels.meaning(label) for node, label in sorted(job.ip_status.items())}
    return {
        names.get(node, node): meaning == "positive"
        for node, meaning in meanings.items()
        if meaning != "ignore"
    }
