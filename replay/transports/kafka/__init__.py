"""Replay over Kafka: the same sink and source as in memory, at ``kafka://host:port/topic``.

Here is everything that knows a broker, a partition or an offset: where and how to get in
(``settings``), the seam to a client library (``clients``, ``kafka_python``, ``confluent``), the
writing end (``sink``), the reading end (``source``), the member of a group that judges
(``worker``), and the collector of what the members said (``collect``).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from replay.transports.base import Pipe, Sink, Source

__all__ = ["open_pipe", "open_sink", "open_source"]


def open_sink(url: str) -> Sink:
    """Publish to ``kafka://host:port/topic?...``; makes the topic when it is missing.

    Raises:
        UsageError: Not such a URL, or an option it does not know.
        TransportError: The broker does not let us in.
    """
    from replay.transports.kafka.settings import Settings  # noqa: PLC0415 - the client only where it is used
    from replay.transports.kafka.sink import KafkaSink  # noqa: PLC0415 - the client only where it is used

    return KafkaSink(Settings.parse(url, os.environ))


def open_source(url: str) -> Source:
    """Read ``kafka://host:port/topic?...`` from its beginning; raises as :func:`open_sink`."""
    from replay.transports.kafka.settings import Settings  # noqa: PLC0415 - the client only where it is used
    from replay.transports.kafka.source import KafkaSource  # noqa: PLC0415 - the client only where it is used

    return KafkaSource(Settings.parse(url, os.environ))


def open_pipe(url: str, run: str, *, bulk: bool, note: Callable[[str], None]) -> Pipe:
    """Publish a replay to a topic and read it back; raises as :func:`open_sink`."""
    from replay.transports.kafka.relay import Relay  # noqa: PLC0415 - the client only where it is used
    from replay.transports.kafka.settings import BULK_LINGER, Settings  # noqa: PLC0415 - as above

    settings = Settings.parse(url, os.environ)
    if bulk and settings.linger is None:
        settings = settings.but(linger=BULK_LINGER)
    return Relay(settings, run, note=note)
