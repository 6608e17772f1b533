"""How the learned detectors learn: from jobs whose answer is known, never from the one at hand."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from detectors.suspects import FEATURES, Suspects, Weights
from detectors.windows import Onset, Onsets

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from detectors.suspects import Look
    from replay.api import Job, Lesson

__all__ = ["SCHEMA", "fit"]

SCHEMA = "alert-replay-learned/1"
PARTS = 5
LAPLACE = 1.0  # added to every count
ALARMS = 0.05  # wrong blames per job that a fitted threshold may be expected to bring
SLACK = 0.005  # F1 that is given up for a lower threshold: a miss costs more than a wrong word
RIDGE = 10.0  # pulls coefficients towards zero; matters where jobs are few

Tally = Counter[tuple[bool, str, bool]]
"""(in a storm, kind, faulty) → nodes that began to raise it, each once per job."""


def fit(lessons: Sequence[Lesson]) -> dict[str, Any]:
    """Learn weights, coefficients and thresholds; see :mod:`detectors.learned`.

    Everything is chosen on jobs that were held out, in parts that keep groups together:
    coefficients on features made with the other parts' weights, thresholds on scores made with
    the other parts' coefficients.

    Args:
        lessons: Jobs whose answer is known.

    Returns:
        The model, as a JSON document.

    Raises:
        ValueError: Fewer than two groups, or no suspect that is faulty, or none that is not.
        ModuleNotFoundError: scikit-learn is not installed.
    """
    parts = np.array(_parts(lessons))
    tallies = [_tally(lesson) for lesson in lessons]
    within = {
        part: _weigh(tally for tally, other in zip(tallies, parts, strict=True) if other != part)
        for part in set(parts.tolist())
    }
    looks = _looks(lessons, [within[part] for part in parts.tolist()])
    weights = _weigh(tallies)
    coefficients, intercept = _regress(looks)
    return {
        "schema": SCHEMA,
        "jobs": len(lessons),
        "faulty_nodes": sum(sum(lesson.labels.values()) for lesson in lessons),
        "threshold": _probability(_threshold(lessons, looks, _held_out(looks, parts))),
        "odds": _threshold(lessons, looks, looks.features[:, :3].sum(axis=1)),
        "intercept": _short(intercept),
        "coefficients": dict(zip(FEATURES, map(_short, coefficients), strict=True)),
        "weights": {"calm": _sorted(weights.calm), "storm": _sorted(weights.storm)},
    }


def _parts(lessons: Sequence[Lesson]) -> list[int]:
    """Deal the groups out, the largest first, each to the part that has fewest jobs."""
    sizes = Counter(lesson.group or f"job {lesson.job.id}" for lesson in lessons)
    if len(sizes) < 2:
        raise ValueError("fitting needs at least two jobs that share no nodes")
    filled = [0] * min(PARTS, len(sizes))
    part_of = {}
    for group, size in sizes.most_common():
        part_of[group] = filled.index(min(filled))
        filled[part_of[group]] += size
    return [part_of[lesson.group or f"job {lesson.job.id}"] for lesson in lessons]


# --- weights ----------------------------------------------------------------------------------


class _Census(Suspects):
    """Counts onsets instead of weighing them."""

    def __init__(self, job: Job) -> None:
        super().__init__(job, Weights())
        self.onsets = Onsets(job)
        self.seen: set[tuple[bool, str, str]] = set()

    def weigh(self, onset: Onset) -> None:
        """Note who began to raise what, and in which weather."""
        self.seen.add((self.stormy(onset), onset.kind, onset.node))


def _tally(lesson: Lesson) -> Tally:
    census = _Census(lesson.job)
    for _ in _play(lesson, census):
        pass  # nobody becomes a suspect in a census
    labels = lesson.labels
    return Counter(
        (stormy, kind, labels[node]) for stormy, kind, node in census.seen if node in labels
    )


def _weigh(tallies: Iterable[Tally]) -> Weights:
    """Log-odds of each kind, against those of any kind."""
    total: Tally = Counter()
    for tally in tallies:
        total.update(tally)
    faulty, normal = (
        sum(count for (_, _, is_faulty), count in total.items() if is_faulty is label) + LAPLACE
        for label in (True, False)
    )
    tables: tuple[dict[str, float], dict[str, float]] = {}, {}
    for stormy, kind, _ in total:
        for_it = (total[stormy, kind, True] + LAPLACE) / faulty
        against = (total[stormy, kind, False] + LAPLACE) / normal
        tables[stormy][kind] = math.log(for_it / against)
    return Weights(*tables)


# --- coefficients -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Looks:
    """All looks at suspects whose state is known.

    Attributes:
        features: float64[n, len(FEATURES)].
        suspect: int64[n], number of the suspect: one node of one job.
        lesson: int64[n], number of the lesson.
        faulty: bool[n].
    """

    features: NDArray[np.float64]
    suspect: NDArray[np.int64]
    lesson: NDArray[np.int64]
    faulty: NDArray[np.bool_]


def _looks(lessons: Sequence[Lesson], weights: Sequence[Weights]) -> _Looks:
    numbers: dict[tuple[int, str], int] = {}
    rows: list[tuple[int, int, bool]] = []
    features: list[list[float]] = []
    for number, lesson in enumerate(lessons):
        for look in _play(lesson, Suspects(lesson.job, weights[number])):
            node = look.suspect.node
            if node in lesson.labels:
                suspect = numbers.setdefault((number, node), len(numbers))
                rows.append((suspect, number, lesson.labels[node]))
                features.append(look.features)
    columns = np.array(rows, np.int64).reshape(-1, 3)
    return _Looks(
        np.array(features).reshape(-1, len(FEATURES)),
        columns[:, 0],
        columns[:, 1],
        columns[:, 2].astype(bool),
    )


def _play(lesson: Lesson, suspects: Suspects) -> Iterator[Look]:
    """Let a job pass by, waking at the same times as a host would."""
    end = lesson.end
    for batch in lesson.batches:
        end = max(end, batch.at)
        while (due := suspects.due) is not None and due < batch.at:
            yield from suspects.look(due)
        for alert in batch.alerts:
            suspects.add(alert)
    while (due := suspects.due) is not None and due <= end:
        yield from suspects.look(due)
    yield from suspects.last_look()


def _regress(
    looks: _Looks, keep: NDArray[np.bool_] | None = None
) -> tuple[NDArray[np.float64], float]:
    """Coefficients and intercept; every suspect has one vote, however often it was looked at."""
    rows = np.arange(len(looks.faulty)) if keep is None else np.flatnonzero(keep)
    features, faulty, suspect = looks.features[rows], looks.faulty[rows], looks.suspect[rows]
    return _logistic(features, faulty, 1.0 / np.bincount(suspect)[suspect], RIDGE)


def _logistic(
    features: NDArray[np.float64],
    faulty: NDArray[np.bool_],
    votes: NDArray[np.float64],
    ridge: float,
) -> tuple[NDArray[np.float64], float]:
    """Logistic regression on standardized features."""
    from sklearn.linear_model import (  # type: ignore[import-untyped]  # it has no types  # noqa: PLC0415 - heavy, and not needed to detect
        LogisticRegression,
    )

    if faulty.all() or not faulty.any():
        raise ValueError("fitting needs suspects of both kinds, faulty and normal")
    mean, spread = features.mean(axis=0), features.std(axis=0)
    spread[spread == 0.0] = 1.0
    model = LogisticRegression(C=1.0 / ridge, max_iter=5000)
    model.fit((features - mean) / spread, faulty, sample_weight=votes)
    coefficients = model.coef_[0] / spread
    return coefficients, float(model.intercept_[0] - coefficients @ mean)


def _held_out(looks: _Looks, parts: NDArray[np.int64]) -> NDArray[np.float64]:
    """The log-odds of every look, by coefficients of the other parts."""
    scores = np.empty(len(looks.lesson))
    part_of = parts[looks.lesson]
    for part in np.unique(part_of):
        mine = part_of == part
        coefficients, intercept = _regress(looks, ~mine)
        scores[mine] = looks.features[mine] @ coefficients + intercept
    return scores


# --- thresholds -------------------------------------------------------------------------------


def _threshold(lessons: Sequence[Lesson], looks: _Looks, scores: NDArray[np.float64]) -> float:
    """The lowest threshold that is expected to bring about the best F1, and few wrong blames.

    Jobs are few and suspects that matter are fewer, so nothing is counted: a suspect's highest
    score is turned into a probability of guilt, and hits and wrong blames are sums of these.
    """
    _, where = np.unique(looks.suspect, return_index=True)
    best = np.full(len(where), -np.inf)
    np.maximum.at(best, looks.suspect, scores)
    once = np.ones(len(best))
    (slope,), intercept = _logistic(best[:, np.newaxis], looks.faulty[where], once, ridge=0.001)
    best = np.sort(best)[::-1]
    guilt = 1.0 / (1.0 + np.exp(-(slope * best + intercept)))
    blamed = np.arange(1, len(best) + 1)
    culprits = sum(sum(lesson.labels.values()) for lesson in lessons)
    f1 = 2.0 * np.cumsum(guilt) / (blamed + culprits)
    fits = np.cumsum(1.0 - guilt) <= max(1.0, ALARMS * len(lessons))
    good = fits & (f1 >= f1[fits].max() - SLACK)
    return _short(float(best[good][-1]))


def _probability(log_odds: float) -> float:
    return _short(1.0 / (1.0 + math.exp(-log_odds)))


def _short(number: float) -> float:
    """Six digits: the rest differs from machine to machine."""
    return float(f"{number:.6g}")


def _sorted(table: Mapping[str, float]) -> dict[str, float]:
    return {kind: _short(weight) for kind, weight in sorted(table.items())}
