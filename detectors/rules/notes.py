"""What Prometheus says beside an answer, in its words; without places, which we do not keep."""

from __future__ import annotations

from detectors.rules.functions import format_value
from detectors.rules.tokens import quote

__all__ = ["ORDER", "bad_bound", "bad_quantile", "falling_buckets", "no_counter"]

ORDER = (
    "PromQL warning: sort is ineffective for range queries since results are always ordered by "
    "labels"
)


def _of_metric(name: str) -> str:
    """Names are not told once they are dropped."""
    return f" for metric name {quote(name)}" if name else ""


def bad_bound(text: str, name: str) -> str:
    """A series of a histogram has ``text`` for a bound."""
    return (
        'PromQL warning: bucket label "le" is missing or has a malformed value of '
        + quote(text)
        + _of_metric(name)
    )


def bad_quantile(value: float) -> str:
    """No share of anything."""
    return "PromQL warning: quantile value should be between 0 and 1, got " + format_value(value)


def falling_buckets(name: str) -> str:
    """A bucket holds less than one inside it."""
    return (
        "PromQL info: input to histogram_quantile needed to be fixed for monotonicity (see "
        "https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile)"
        + _of_metric(name)
    )


def no_counter(name: str) -> str:
    """What is rated does not look like a counter."""
    return (
        "PromQL info: metric might not be a counter, name does not end in "
        f"_total/_sum/_count/_bucket: {quote(name)}"
    )
