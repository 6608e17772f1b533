"""How messages move from the engine to the host: two ends, found by the scheme of a URL.

Transports are entry points of the group ``alert_replay.transports``: the name is the URL's scheme,
and the value a module or object with two functions, ``open_sink(url)`` and ``open_source(url)``.
"""

from __future__ import annotations

from typing import Protocol, cast

from replay.errors import UsageError
from replay.plugins import TRANSPORTS, load
from replay.transports.base import Sink, Source

__all__ = ["Sink", "Source", "Transport", "open_sink", "open_source"]


class Transport(Protocol):
    """What an entry point of the group gives: a module or object with these two functions."""

    def open_sink(self, url: str) -> Sink:
        """Open the end that messages go into."""

    def open_source(self, url: str) -> Source:
        """Open the end that messages come out of."""


def open_sink(url: str) -> Sink:
    """Open the end that messages go into.

    Args:
        url: For instance ``memory:``, or ``kafka://host:port/topic``.

    Raises:
        UsageError: Not a URL, or an option that the transport does not know.
        PluginError: No transport has this scheme, or its package is missing.
        TransportError: The service cannot be reached.
    """
    return _transport(url).open_sink(url)


def open_source(url: str) -> Source:
    """Open the end that messages come out of; raises as :func:`open_sink`."""
    return _transport(url).open_source(url)


def _transport(url: str) -> Transport:
    scheme, colon, _ = url.partition(":")
    if not (scheme and colon):
        raise UsageError(f"{url!r} is not the URL of a transport.", "memory:")
    return cast("Transport", load(TRANSPORTS, scheme.lower(), "transport"))
