"""What a Prometheus or an Alertmanager posts, read as data from strangers."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["BadNotices", "Notice", "of_alerts", "of_webhook"]

_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)
_WORDS = ("summary", "description", "message")


@dataclass(frozen=True, slots=True)
class Notice:
    """One alert, as it was told.

    Attributes:
        labels: Pairs sorted by name.
        starts_ns: Unix nanoseconds since which it fires; None if it was not said.
        ends_ns: Unix nanoseconds until which it fires or fired; None if it was not said.
        status: What the sender calls it; empty where ``ends_ns`` has to tell.
        words: Its first annotation for people.
    """

    labels: tuple[tuple[str, str], ...]
    starts_ns: int | None
    ends_ns: int | None = None
    status: Literal["", "firing", "resolved"] = ""
    words: str = ""

    @property
    def alert(self) -> str:
        """The alert's name."""
        return dict(self.labels).get("alertname", "")

    def resolved(self, now_ns: int) -> bool:
        """Whether it is over."""
        if self.status:
            return self.status == "resolved"
        return self.ends_ns is not None and self.ends_ns <= now_ns


class BadNotices(Exception):  # noqa: N818 - a remark to the sender, not a failure of ours
    """A body that is not what it should be.

    Args:
        what: Why, in one sentence.
    """

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


def of_alerts(body: bytes) -> list[Notice]:
    """Read what ``POST /api/v2/alerts`` brings: a list of alerts.

    Raises:
        BadNotices: It is no such list.

    Examples:
        >>> of_alerts(b'[{"labels": {"alertname": "Hang"}, "startsAt": "2026-01-01T00:00:00.5Z"}]')
        [Notice(labels=(('alertname', 'Hang'),), starts_ns=1767225600500000000, ...)]

    """
    return list(_notices(_parsed(body), "the body"))


def of_webhook(body: bytes) -> list[Notice]:
    """Read what an Alertmanager posts to a webhook.

    Raises:
        BadNotices: It is no such document.
    """
    document = _parsed(body)
    if not isinstance(document, dict):
        raise BadNotices("the body is not an object")
    if str(document.get("version", "4")) != "4":
        raise BadNotices("its version is not 4")
    return list(_notices(document.get("alerts"), "alerts"))


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body.decode("utf-8"))
    except UnicodeDecodeError:
        raise BadNotices("the body is not UTF-8") from None
    except RecursionError:
        raise BadNotices("the body is nested too deeply") from None
    except ValueError as error:
        raise BadNotices(f"the body is not JSON: {str(error)[:200]}") from None


def _notices(found: Any, where: str) -> Iterator[Notice]:
    if not isinstance(found, list):
        raise BadNotices(f"{where} is not a list")
    for number, item in enumerate(found):
        try:
            yield _notice(item)
        except BadNotices as bad:
            raise BadNotices(f"alert {number}: {bad.what}") from None


def _notice(item: Any) -> Notice:
    if not isinstance(item, dict):
        raise BadNotices("it is not an object")
    labels = _texts(item.get("labels"), "labels")
    if not labels.get("alertname"):
        raise BadNotices("labels has no alertname")
    annotations = _texts(item.get("annotations") or {}, "annotations")
    status = item.get("status", "")
    if isinstance(status, dict):  # as the Alertmanager's own API gives it
        status = ""
    if status not in ("", "firing", "resolved"):
        raise BadNotices("status is neither firing nor resolved")
    words: Iterable[str] = (annotations[name] for name in _WORDS if annotations.get(name))
    return Notice(
        tuple(sorted((name, text) for name, text in labels.items() if text)),
        _time(item.get("startsAt"), "startsAt"),
        _time(item.get("endsAt"), "endsAt"),
        status,
        next(iter(words), ""),
    )


def _texts(found: Any, where: str) -> dict[str, str]:
    if not isinstance(found, dict) or not all(isinstance(text, str) for text in found.values()):
        raise BadNotices(f"{where} is not an object of texts")
    try:
        "".join([*found, *found.values()]).encode()
    except UnicodeEncodeError:
        raise BadNotices(f"{where} holds half a character") from None
    return found


def _time(found: Any, where: str) -> int | None:
    """Unix nanoseconds of an RFC 3339 time; None for none and for the year 1."""
    if found is None or found == "":
        return None
    match = _TIME.fullmatch(found) if isinstance(found, str) else None
    if match is None:
        raise BadNotices(f"{where} is not a time like 2026-01-01T00:00:00Z")
    date, clock, fraction, zone = match.groups()
    if date.startswith("0001"):
        return None
    try:
        offset = "+00:00" if zone in "Zz" else zone
        moment = datetime.fromisoformat(f"{date}T{clock}{offset}")
        since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    except (ValueError, OverflowError):
        raise BadNotices(f"{where} is not a time like 2026-01-01T00:00:00Z") from None
    whole = since.days * 86_400 + since.seconds
    return whole * 10**9 + int((fraction or "").ljust(9, "0"))
