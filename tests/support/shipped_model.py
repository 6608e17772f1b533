"""The model that comes with the package, made anew.

``python tests/support/shipped_model.py`` fits ``learned`` on the synthetic traces of seeds 1 to
10, 98 jobs each, and writes what it learned where the package keeps it.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from detectors.learned import SHIPPED
from replay.bench.folds import Course, fit
from replay.traces.synth import make

if TYPE_CHECKING:
    from collections.abc import Iterable


def fit_on(preset: str, seeds: Iterable[int], jobs: int) -> str:
    """Fit ``learned`` on one synthetic trace per seed; the model as JSON text."""
    courses = [(seed, Course.of(make(preset, jobs, seed).trace, "learned")) for seed in seeds]
    return fit(
        replace(
            courses[0][1],
            jobs=tuple(task for _, course in courses for task in course.jobs),
            labels=tuple(answers for _, course in courses for answers in course.labels),
            groups=tuple(f"{seed}/{group}" for seed, course in courses for group in course.groups),
        )
    )


if __name__ == "__main__":
    model = json.loads(fit_on("dataset", range(1, 11), 98))
    SHIPPED.write_text(json.dumps(model, indent=1) + "\n", encoding="utf-8")
