"""What the verbs that talk to Kafka have in common: how to get in, and when to give up."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import click

from replay.cli.durations import Duration
from replay.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from replay.transports.kafka.settings import Settings

__all__ = ["kafka_options", "settings_of", "through"]


_OPTIONS = (
    click.option(
        "--kafka-client",
        type=click.Choice(["auto", "kafka-python", "confluent"]),
        help="The client library; auto takes confluent-kafka where it is installed.",
    ),
    click.option(
        "--kafka-config",
        metavar="FILE",
        default="",
        help="Properties such as security.protocol and sasl.password, as kcat -F reads them;"
        " ALERT_REPLAY_KAFKA_SASL_PASSWORD and the like go before it.",
    ),
    click.option(
        "--wait-for-broker",
        type=Duration(),
        metavar="T",
        help="Wall time to wait for a broker. [default: 30s]",
    ),
)

_IN_A_QUERY = {"client": "kafka_client", "config": "kafka_config", "wait": "wait_for_broker"}


def kafka_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--kafka-client``, ``--kafka-config`` and ``--wait-for-broker``."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def settings_of(url: str, options: dict[str, Any], **more: Any) -> Settings:
    """The topic that a URL names, with what the command line said of it.

    Raises:
        UsageError: Not such a URL, or a value that does not fit.
        ConfigError: The file of properties does not fit.
    """
    from replay.transports.kafka.settings import Settings

    said = Settings.parse(url, os.environ, options["kafka_config"])
    return said.but(client=options["kafka_client"], wait=options["wait_for_broker"], **more)


def through(url: str, options: dict[str, Any]) -> str:
    """The transport that a URL names, with what the command line said of it in its query.

    Raises:
        UsageError: Something was said of Kafka, but the URL does not go there.
        ConfigError: The file of properties does not fit.
    """
    said = {
        key: (option, options[option])
        for key, option in _IN_A_QUERY.items()
        if options[option] not in {None, ""}
    }
    if not url.lower().startswith("kafka:"):
        if said:
            flags = " and ".join(f"--{option.replace('_', '-')}" for option, _ in said.values())
            raise UsageError(
                f"{flags}: --via {url} has no broker.", "--via kafka://host:port/topic"
            )
        return url
    settings_of(url, options)  # what does not fit is told before the trace is read
    query = urlencode({key: value for key, (_, value) in said.items()})
    if not query:
        return url
    return f"{url}{'&' if '?' in url else '?'}{query}"
