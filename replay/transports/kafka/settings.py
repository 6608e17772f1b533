"""Where a topic is and how to get in, as one value: from a URL, a file and the environment."""

from __future__ import annotations

import difflib
import importlib.util
import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.parse import parse_qsl, unquote, urlsplit

from replay.errors import ConfigError, TransportError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "BULK_LINGER",
    "CLIENTS",
    "PROPERTIES",
    "Settings",
    "read_properties",
    "unmade",
    "unreachable",
]

CLIENTS = ("auto", "kafka-python", "confluent")
"""``auto`` takes confluent-kafka where it is installed (extra ``fast``), else kafka-python."""

LINGER = 0.005
"""Wall seconds that a record waits for company, unless said otherwise."""

BULK_LINGER = 0.05
"""The same at maximum speed: fewer, larger requests."""

ENVIRONMENT = "ALERT_REPLAY_KAFKA_"

# property, as kcat and librdkafka write it → whether it is a secret
PROPERTIES = {
    "client.id": False,
    "sasl.mechanism": False,
    "sasl.password": True,
    "sasl.username": False,
    "security.protocol": False,
    "ssl.ca.location": False,
    "ssl.certificate.location": False,
    "ssl.endpoint.identification.algorithm": False,
    "ssl.key.location": False,
    "ssl.key.password": True,
}
_SYNONYMS = {"sasl.mechanisms": "sasl.mechanism"}
_FORM = "kafka://host:port/topic"


@dataclass(frozen=True, slots=True)
class Settings:
    """One topic on one cluster, and how to talk to it.

    Attributes:
        servers: ``host:port``, several with commas between.
        topic: Name of the topic.
        partitions: How many the topic must have, or will get when it is made; None takes what is
            there, or 4.
        replication: Copies of each partition when the topic is made.
        client: One of :data:`CLIENTS`.
        wait: Wall seconds to wait for a broker to answer.
        linger: Wall seconds that a record may wait for company before it is sent; None is
            :data:`LINGER`.
        unacked: Records that may be under way at once.
        session: Wall seconds of silence after which a group gives a member's partitions to others.
        properties: What :data:`PROPERTIES` names; not shown, for there may be secrets in it.
    """

    servers: str
    topic: str
    partitions: int | None = None
    replication: int = 1
    client: str = "auto"
    wait: float = 30.0
    linger: float | None = None
    unacked: int = 20_000
    session: float = 10.0
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def parse(
        cls, url: str, environ: Mapping[str, str] | None = None, properties: str = ""
    ) -> Self:
        """Read ``kafka://host:port[,host:port]/topic?partitions=..&client=..&config=FILE``.

        The query takes ``partitions``, ``replication``, ``client``, ``wait``, ``linger``,
        ``unacked``, ``session`` (see the attributes) and ``config``, a file of properties.

        Args:
            url: Where.
            environ: Environment variables; see :func:`read_properties`.
            properties: A file of properties, before that of the URL.

        Raises:
            UsageError: Not such a URL, or a number that is none.
            ConfigError: The file of properties does not fit.

        Examples:
            >>> Settings.parse("kafka://one:9092,two:9092/alerts?partitions=8")
            Settings(servers='one:9092,two:9092', topic='alerts', partitions=8, ...)

        """
        parts = urlsplit(url)
        topic = unquote(parts.path.lstrip("/"))
        if parts.scheme.lower() != "kafka" or not parts.netloc or not topic or "/" in topic:
            raise UsageError(f"{_safe(url)!r} does not name a topic.", _FORM)
        if "@" in parts.netloc:
            raise UsageError("A URL is no place for a password.", "--kafka-config FILE")
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        said = query.pop("config", "")
        known = read_properties(properties or said, environ or {})
        unknown = sorted(query.keys() - _NUMBERS.keys() - {"client"})
        if unknown:
            options = ", ".join(sorted([*_NUMBERS, "client", "config"]))
            raise UsageError(f"A Kafka URL has no option {unknown[0]!r}.", f"one of: {options}")
        settings = cls(_with_ports(parts.netloc), topic, properties=known)
        return settings.but(**query)

    def but(self, **options: str | float | None) -> Self:
        """The same with some attributes said anew, as text or number; None leaves one as it is.

        Raises:
            UsageError: A value does not fit.
        """
        said = {key: value for key, value in options.items() if value is not None}
        client = said.pop("client", self.client)
        if client not in CLIENTS:
            raise UsageError(f"client {client!r} is none of {', '.join(CLIENTS)}.")
        numbers = {key: _number(key, value) for key, value in said.items()}
        return replace(self, client=client, **numbers)  # type: ignore[arg-type]  # _NUMBERS has their types

    def on(self, topic: str) -> Self:
        """Another topic of the same cluster."""
        return replace(self, topic=topic, partitions=None)

    @property
    def linger_ms(self) -> int:
        """Milliseconds that a record may wait for company."""
        return round(1000 * (LINGER if self.linger is None else self.linger))

    @property
    def client_name(self) -> str:
        """The client that ``client`` comes down to here."""
        if self.client != "auto":
            return self.client
        return "confluent" if importlib.util.find_spec("confluent_kafka") else "kafka-python"


_NUMBERS: dict[str, tuple[type[int | float], float]] = {
    "partitions": (int, 1),
    "replication": (int, 1),
    "wait": (float, 0),
    "linger": (float, 0),
    "unacked": (int, 1),
    "session": (float, 1),
}


def _number(key: str, value: str | float) -> int | float:
    kind, least = _NUMBERS[key]
    try:
        number = kind(value)
    except ValueError:
        number = math.nan
    if not least <= number < math.inf:
        what = "whole number" if kind is int else "number"
        raise UsageError(f"{key} {value!r} is not a {what} of at least {least}.")
    return number


def _with_ports(servers: str) -> str:
    """Every server with its port, 9092 where none is said."""
    named = []
    for server in servers.split(","):
        host, colon, port = server.rpartition(":")
        if not colon or port.endswith("]"):
            host, port = server, "9092"
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 1 << 16:
            raise UsageError(f"{server!r} is not host:port.", _FORM)
        named.append(f"{host}:{port}")
    return ",".join(named)


def _safe(url: str) -> str:
    """A URL without what stands before an ``@``."""
    scheme, separator, rest = url.partition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"


def read_properties(path: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Properties of a file (``name=value`` lines, as ``kcat -F`` reads), then of the environment.

    Args:
        path: The file; empty for none.
        environ: Environment variables; ``ALERT_REPLAY_KAFKA_SASL_PASSWORD`` is
            ``sasl.password``, and so on.

    Raises:
        ConfigError: The file cannot be read, or has a line or a name that does not fit. The value
            is never shown.
    """
    properties: dict[str, str] = {}
    if path:
        try:
            lines = Path(path).read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"Cannot read {path}: {error}.") from error
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.lstrip().startswith(("#", "!")):
                continue
            name, equals, value = line.partition("=")
            if not equals:
                raise ConfigError(f"{path}:{number}: not name=value.")
            _put(properties, name.strip(), value.strip(), f"{path}:{number}")
    for variable, value in sorted(environ.items()):
        if variable.startswith(ENVIRONMENT):
            name = variable.removeprefix(ENVIRONMENT).lower().replace("_", ".")
            _put(properties, name, value, variable)
    properties.pop("bootstrap.servers", None)  # the URL says where
    return properties


def _put(properties: dict[str, str], name: str, value: str, place: str) -> None:
    name = _SYNONYMS.get(name, name)
    if name not in PROPERTIES and name != "bootstrap.servers":
        near = difflib.get_close_matches(name, PROPERTIES, 1)
        raise ConfigError(
            f"{place}: there is no property {name!r}.",
            near[0] if near else f"one of: {', '.join(PROPERTIES)}",
        )
    if name.endswith(".location") and not Path(value).is_file():
        raise ConfigError(f"{place}: there is no file {value!r} for {name}.")
    properties[name] = value


def unmade(settings: Settings, cause: str) -> TransportError:
    """The error for a topic that the broker does not make."""
    if _is_about_version(cause.lower()):
        return unreachable(settings, cause, waited=False)
    return TransportError(
        f"Topic {settings.topic!r} at {settings.servers} cannot be made: {cause.rstrip('.')}."
    )


def _is_about_version(cause: str) -> bool:
    words = ("incompatiblebroker", "unsupportedversion", "not supported by", "requires broker")
    return any(word in cause for word in words)


def unreachable(settings: Settings, cause: str, *, waited: bool = True) -> TransportError:
    """The error for a broker that does not let us in, with the client's own last words."""
    text = f"Kafka at {settings.servers} did not answer"
    if waited:
        text += f" in {settings.wait:g} s"
    remedy = "is the broker up? --wait-for-broker waits longer"
    lower = cause.lower()
    if _is_about_version(lower):
        text = f"Kafka at {settings.servers} is of a version that this client does not speak with"
        remedy = "a broker of version 1.0 or newer, or another --kafka-client"
    elif "certificate" in lower:
        text = f"Kafka at {settings.servers} has a certificate that is not trusted"
        remedy = "ssl.ca.location in --kafka-config FILE"
    elif "sasl" in lower or "authentication" in lower:
        text = f"Kafka at {settings.servers} refused the credentials"
        remedy = "sasl.mechanism, sasl.username and sasl.password in --kafka-config FILE"
    elif "disconnected" in lower and "sasl.username" in settings.properties:
        text = f"Kafka at {settings.servers} hung up, most likely over the credentials"
        remedy = "sasl.mechanism, sasl.username and sasl.password in --kafka-config FILE"
    elif "ssl" in lower:
        text = f"Kafka at {settings.servers} does not speak TLS as asked"
        remedy = "security.protocol in --kafka-config FILE"
    elif settings.properties:
        remedy = "is it the right port for this security.protocol? --wait-for-broker waits longer"
    return TransportError(f"{text}: {cause.rstrip('.')}.", remedy)
