"""Metrics of several groups of jobs at once: named columns with a reason for every null.

Nearly every metric is a function of sums over jobs. A sheet keeps those per-job parts beside the
value, so that resampling jobs needs no second definition of anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

__all__ = ["Groups", "Number", "Sheet", "divide"]

Number = int | float | None


@dataclass(frozen=True, slots=True)
class Groups:
    """Jobs, dealt into groups.

    Attributes:
        names: Names of the G groups.
        of_job: int64[J], the group of each job.
    """

    names: tuple[str, ...]
    of_job: NDArray[np.int64]

    @classmethod
    def whole(cls, jobs: int) -> Self:
        """All jobs in one group."""
        return cls(("",), np.zeros(jobs, np.int64))

    @classmethod
    def each(cls, names: Sequence[str]) -> Self:
        """Every job by itself."""
        return cls(tuple(names), np.arange(len(names)))

    @classmethod
    def by(cls, values: Sequence[str]) -> Self:
        """Jobs with the same value together; groups in the order of their names."""
        names = sorted(set(values))
        number = {name: place for place, name in enumerate(names)}
        return cls(tuple(names), np.array([number[value] for value in values], np.int64))

    def __len__(self) -> int:
        return len(self.names)

    def sum(self, values: NDArray[Any]) -> NDArray[Any]:
        """Sum one value per job into one per group."""
        sums = np.zeros(len(self), np.float64 if values.dtype.kind == "f" else np.int64)
        np.add.at(sums, self.of_job, values)
        return sums


def divide(numerator: NDArray[Any], denominator: NDArray[Any]) -> NDArray[np.float64]:
    """Quotients; NaN where the denominator is zero."""
    quotient = np.full(np.shape(denominator), np.nan)
    np.divide(numerator, denominator, out=quotient, where=np.asarray(denominator) != 0)
    return quotient


@dataclass(frozen=True, slots=True)
class Parts:
    """What a metric is made of: ``value = formula(*sums)`` with each sum over jobs."""

    formula: Callable[..., NDArray[np.float64]]
    per_job: tuple[NDArray[Any], ...]

    @property
    def touched(self) -> NDArray[np.bool_]:
        """bool[J]: jobs in which some part is not zero."""
        touched = np.zeros(len(self.per_job[0]), np.bool_)
        for values in self.per_job:
            touched |= values != 0
        return touched


@dataclass(frozen=True, slots=True)
class Sheet:
    """Columns of metrics, one value per group.

    Inside, NaN stands for undefined and never leaves; every column that may hold it comes with a
    reason.
    """

    groups: Groups
    values: dict[str, NDArray[Any]] = field(default_factory=dict)
    reasons: dict[str, list[tuple[NDArray[np.bool_], str]]] = field(default_factory=dict)
    parts: dict[str, Parts] = field(default_factory=dict)

    def count(self, key: str, per_job: NDArray[Any]) -> None:
        """A sum over jobs."""
        self.values[key] = self.groups.sum(per_job)

    def ratio(self, key: str, numerator: NDArray[Any], denominator: NDArray[Any], why: str) -> None:
        """A quotient of two sums over jobs; ``why`` says what it means that nothing is below."""
        self.formula(key, divide, (numerator, denominator), why)

    def formula(
        self,
        key: str,
        formula: Callable[..., NDArray[np.float64]],
        per_job: tuple[NDArray[Any], ...],
        why: str,
    ) -> None:
        """Any function of sums over jobs that is NaN where undefined, for the reason ``why``."""
        self.parts[key] = Parts(formula, per_job)
        self.put(key, formula(*(self.groups.sum(values) for values in per_job)), why)

    def put(
        self,
        key: str,
        values: NDArray[Any],
        why: str,
        *more: tuple[NDArray[np.bool_], str],
    ) -> None:
        """A finished column.

        Args:
            key: Name of the metric.
            values: One per group; NaN where undefined.
            why: The reason of a NaN that none of ``more`` covers.
            more: Groups and the reason that holds for them, the first that fits.
        """
        self.values[key] = values
        self.reasons[key] = [*more, (np.ones(len(self.groups), np.bool_), why)]

    def rows(self) -> list[dict[str, Number]]:
        """Metrics of every group."""
        columns = [
            [None if value != value else value for value in values.tolist()]  # noqa: PLR0124 - NaN
            for values in self.values.values()
        ]
        return [dict(zip(self.values, row, strict=True)) for row in zip(*columns, strict=True)]

    def column(self, group: int) -> tuple[dict[str, Number], dict[str, str]]:
        """Metrics of one group, and the reasons of its nulls."""
        metrics: dict[str, Number] = {}
        undefined: dict[str, str] = {}
        for key, values in self.values.items():
            value = values[group].item()
            if value != value:  # noqa: PLR0124 - NaN, the only value unequal to itself
                undefined[key] = next(why for where, why in self.reasons[key] if where[group])
                value = None
            metrics[key] = value
        return metrics, undefined
