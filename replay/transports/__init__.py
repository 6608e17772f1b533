"""How messages move from the engine to the host: two ends, found by the scheme of a URL.

Transports are entry points of the group ``alert_replay.transports``: the name is the URL's scheme,
and the value a module or object with the functions of :class:`Transport`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

from replay.errors import UsageError
from replay.plugins import TRANSPORTS, load
from replay.transports.base import Pipe, Sink, Source

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Pipe", "Sink", "Source", "Transport", "open_pipe", "open_sink", "open_source"]


class Transport(Protocol):
    """What an entry point of the group gives: a module or object with these functions."""

    def open_sink(self, url: str) -> Sink:
        """Open the end that messages go into."""

    def open_source(self, url: str) -> Source:
        """Open the end that messages come out of."""

    def open_pipe(self, url: str, run: str, *, bulk: bool, note: Callable[[str], None]) -> Pipe:
        """Open both ends in this process."""


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


def open_pipe(
    url: str, run: str, *, bulk: bool = False, note: Callable[[str], None] = lambda _: None
) -> Pipe:
    """Open both ends in this process; raises as :func:`open_sink`.

    Args:
        url: As of :func:`open_sink`.
        run: Id of the replay; where others publish too, only its messages come out.
        bulk: Messages come as fast as they are taken: much at once counts for more than soon.
        note: Told, in a sentence, what a person should know.
    """
    return _transport(url).open_pipe(url, run, bulk=bulk, note=note)


def _transport(url: str) -> Transport:
    scheme, colon, _ = url.partition(":")
    if not (scheme and colon):
        raise UsageError(f"{url!r} is not the URL of a transport.", "memory:")
    return cast("Transport", load(TRANSPORTS, scheme.lower(), "transport"))
