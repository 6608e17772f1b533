"""What answers HTTP: the metrics of a run, and alerts that a Prometheus or Alertmanager sends."""

from replay.web.notices import BadNotices, Notice, of_alerts, of_webhook
from replay.web.server import MOST_BYTES, Answer, Request, Route, Server, parse_address

__all__ = [
    "MOST_BYTES",
    "Answer",
    "BadNotices",
    "Notice",
    "Request",
    "Route",
    "Server",
    "of_alerts",
    "of_webhook",
    "parse_address",
]
