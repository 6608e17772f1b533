"""How verdicts are judged: labels, windows, what counts as a hit, and what a mistake costs."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

from replay.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["PROFILES", "Cost", "LabelMap", "Meaning", "Policy"]

Meaning = Literal["negative", "positive", "ignore"]
ZeroName = Literal["start", "job_alert", "node_alert", "onset"]
ANYTHING = "*"


def _fold(label: str) -> str:
    return label.strip().casefold()


@dataclass(frozen=True, slots=True)
class LabelMap:
    """What a raw label of ``ip_status`` means.

    Labels are compared without surrounding blanks and without case. ``"*"`` stands for every
    label that is not named.

    Attributes:
        meanings: Label → ``"negative"``, ``"positive"`` or ``"ignore"``.
        strict: Refuse a label that only ``"*"`` covers.

    Examples:
        >>> LabelMap().meaning(" Normal "), LabelMap().meaning("gpu_lost"), LabelMap().meaning("")
        ('negative', 'positive', 'ignore')

    """

    meanings: Mapping[str, Meaning] = field(
        default_factory=lambda: MappingProxyType(
            {"normal": "negative", "": "ignore", ANYTHING: "positive"}
        )
    )
    strict: bool = False

    def __post_init__(self) -> None:
        for label, meaning in self.meanings.items():
            if meaning not in get_args(Meaning):
                raise UsageError(
                    f"A label cannot mean {meaning!r} (label {label!r}).",
                    "negative, positive or ignore",
                )
        folded = {_fold(label): meaning for label, meaning in self.meanings.items()}
        if len(folded) < len(self.meanings):
            raise UsageError("The label map names a label twice.", "labels ignore case and blanks")
        object.__setattr__(self, "meanings", MappingProxyType(folded))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self.meanings), self.strict)

    @classmethod
    def parse(cls, text: str, *, strict: bool = False) -> Self:
        """Read ``"normal=negative,faulty=positive,*=ignore"``.

        Raises:
            UsageError: It is not of that form.
        """
        meanings: dict[str, Any] = {}
        for part in text.split(","):
            label, equals, meaning = part.rpartition("=")
            if not equals:
                raise UsageError(f"{part!r} is not LABEL=MEANING.", "normal=negative,*=positive")
            if _fold(label) in meanings:
                raise UsageError(f"The label map names {label!r} twice.")
            meanings[_fold(label)] = meaning.strip()
        return cls(meanings, strict)

    def meaning(self, label: str | None) -> Meaning:
        """What a raw label means; a missing one counts as empty.

        Raises:
            UsageError: The map does not name it.
        """
        folded = _fold(label or "")
        if folded in self.meanings:
            return self.meanings[folded]
        if ANYTHING in self.meanings and not self.strict:
            return self.meanings[ANYTHING]
        raise UsageError(
            f"The label map does not name the label {label!r}.",
            f"--label-map with {folded}=positive, {folded}=negative or {folded}=ignore in it",
        )


@dataclass(frozen=True, slots=True)
class Cost:
    """What mistakes cost, in a unit of one's own.

    Attributes:
        c_fn: A faulty node that is missed.
        c_fp: A healthy node that is blamed.
        c_delay_per_hour: An hour between the zero and a hit; earlier than the zero costs nothing.
        tau_s: Seconds after which delay costs no more.
        c_healthy_job_alarm: An alarm in a job without a faulty node.
        zero: Where delay is counted from.

    Raises:
        UsageError: A weight is negative, or a late hit would cost more than a miss.
    """

    c_fn: float = 10.0
    c_fp: float = 1.0
    c_delay_per_hour: float = 6.0
    tau_s: float = 1800.0
    c_healthy_job_alarm: float = 2.0
    zero: ZeroName = "start"

    def __post_init__(self) -> None:
        if self.zero not in get_args(ZeroName):
            raise UsageError(
                f"Delay cannot be counted from {self.zero!r}.", ", ".join(get_args(ZeroName))
            )
        for name in _WEIGHTS:
            value = getattr(self, name)
            if not isfinite(value) or value < 0:
                raise UsageError(f"The cost {name} is {value}.", "zero or a positive number")
        latest = self.c_delay_per_hour * self.tau_s / 3600
        if latest > self.c_fn:
            raise UsageError(
                f"A hit {self.tau_s:g} s late would cost {latest:g}, more than the {self.c_fn:g} "
                "of a miss.",
                "a smaller c_delay_per_hour or tau_s, or a larger c_fn",
            )

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a profile's name, or ``"c_fn=10,c_fp=1,zero=start"``, or both, profile first.

        Raises:
            UsageError: It is not of that form, or the weights make no sense.

        Examples:
            >>> Cost.parse("page-averse,tau_s=600").tau_s
            600.0

        """
        values: dict[str, Any] = {}
        for number, part in enumerate(text.split(",")):
            name, equals, value = (piece.strip() for piece in part.partition("="))
            if not equals and number == 0 and name in PROFILES:
                values.update(PROFILES[name].document())
            elif name == "zero" and equals:
                values[name] = value
            elif name in _WEIGHTS and equals:
                values[name] = _number(name, value)
            else:
                known = ", ".join([*PROFILES, *(f"{weight}=" for weight in _WEIGHTS), "zero="])
                raise UsageError(f"{part.strip()!r} is not a cost.", f"one of: {known}")
        return cls(**values)

    def document(self) -> dict[str, float | str]:
        """The weights by name."""
        return {name: getattr(self, name) for name in (*_WEIGHTS, "zero")}


_WEIGHTS = ("c_fn", "c_fp", "c_delay_per_hour", "tau_s", "c_healthy_job_alarm")


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise UsageError(f"The cost {name} is {text!r}, which is not a number.") from error


PROFILES: Mapping[str, Cost] = MappingProxyType(
    {
        "balanced": Cost(),
        "page-averse": Cost(c_fn=10, c_fp=5, c_delay_per_hour=2, c_healthy_job_alarm=20),
        "miss-averse": Cost(c_fn=50, c_fp=1, c_delay_per_hour=12, c_healthy_job_alarm=1),
    }
)
"""Named weights."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Everything a score depends on besides the trace and the verdicts.

    Attributes:
        kind: ``"ever"``: a node is blamed if some raise on it lasted at least ``hold_s``.
            ``"final"``: if a raise on it was open at the end.
        hold_s: Seconds a raise must last to count under ``"ever"``.
        grace_s: Seconds after a job's end in which verdicts still count.
        labels: What raw labels mean.
        within: Seconds: every ``<T>`` in the names of metrics.
        cost: What mistakes cost.
        by: Properties of jobs to score apart: ``"gpu_generation"``.
        cluster: What is resampled for intervals: ``"job"``, or ``"component"``: groups of jobs
            that share node tokens.
        resamples: How often.
        seed: Of the resampling.

    Raises:
        UsageError: A value makes no sense.
    """

    kind: Literal["ever", "final"] = "ever"
    hold_s: float = 0.0
    grace_s: float = 0.0
    labels: LabelMap = field(default_factory=LabelMap)
    within: tuple[float, ...] = (60, 300, 600, 1800)
    cost: Cost = field(default_factory=Cost)
    by: tuple[str, ...] = ()
    cluster: Literal["job", "component"] = "job"
    resamples: int = 9999
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind not in {"ever", "final"}:
            raise UsageError(f"There is no policy {self.kind!r}.", "ever or final")
        if self.cluster not in {"job", "component"}:
            raise UsageError(f"Jobs cannot be clustered by {self.cluster!r}.", "job or component")
        for name in ("hold_s", "grace_s"):
            value = getattr(self, name)
            if not isfinite(value) or value < 0:
                raise UsageError(f"{name} is {value}.", "zero or more seconds")
        if self.hold_s > 0 and self.kind == "final":
            raise UsageError("A hold has no meaning under the policy 'final'.", "policy ever")
        if any(not isfinite(limit) or limit <= 0 for limit in self.within):
            raise UsageError(f"within is {self.within}.", "positive seconds, such as 60,300")
        if unknown := set(self.by) - {"gpu_generation"}:
            raise UsageError(f"Jobs have no property {min(unknown)!r}.", "gpu_generation")
        if self.resamples < 0 or self.seed < 0:
            raise UsageError("The number of resamples and the seed are zero or more.")
        object.__setattr__(self, "within", tuple(sorted(set(map(float, self.within)))))

    def document(self) -> dict[str, Any]:
        """The policy by name."""
        return {
            "policy": self.kind,
            "hold_s": self.hold_s,
            "grace_s": self.grace_s,
            "label_map": dict(sorted(self.labels.meanings.items())),
            "strict_labels": self.labels.strict,
            "within_s": list(self.within),
            "cost": self.cost.document(),
            "by": list(self.by),
            "cluster": self.cluster,
            "resamples": self.resamples,
            "seed": self.seed,
        }
