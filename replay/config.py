"""What a run is asked to do, as one frozen value, and where each part of it was said.

A value is looked for in this order: the command line, ``ALERT_REPLAY_*`` in the environment,
the file given by ``--config`` (or ``alert-replay.toml`` in the working folder), the user's own
file under the XDG configuration folder, the default. Unknown keys are errors.
"""

from __future__ import annotations

import contextlib
import difflib
import math
import tomllib
from dataclasses import Field, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

from replay.errors import ConfigError, UsageError
from replay.timeline import seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["MAX", "MEMORY", "RunConfig", "load", "parse_speed", "to_toml"]

MAX: Literal["max"] = "max"
"""The word for "as fast as the machine can"."""

MEMORY = "memory"
"""The word for "within this process"."""


SLOWEST, FASTEST = 1e-9, 1e12
"""What a clock of nanoseconds can keep."""


def parse_speed(text: str | float) -> float | Literal["max"]:
    """Trace seconds per wall second, or the word ``max``.

    Raises:
        ConfigError: Not a positive number that a clock can keep, nor the word.

    Examples:
        >>> parse_speed("10"), parse_speed("0.5x"), parse_speed("max")
        (10.0, 0.5, 'max')

    """
    if isinstance(text, str) and text.strip().lower() == MAX:
        return MAX
    try:
        speed = float(text.strip().lower().removesuffix("x") if isinstance(text, str) else text)
    except ValueError:
        speed = math.nan
    if not (0 < speed < math.inf):
        raise ConfigError(f"speed {text!r} is not a positive number.", "--speed 10, or --speed max")
    if not (SLOWEST <= speed <= FASTEST):
        raise ConfigError(
            f"speed {text!r} is not from {SLOWEST:g} to {FASTEST:g}.", "--speed 10, or --speed max"
        )
    return speed


@dataclass(frozen=True, slots=True)
class RunConfig:
    """Everything that decides the outcome of a run.

    Attributes:
        path: The trace: a file, a folder, a glob, or ``hf://...``.
        jobs: Ids of the jobs to replay; empty means all.
        format: ``folders``, ``jsonl`` or ``parquet`` where a path holds several; else sniffed.
        lenient: Skip bad rows and jobs, counted and listed, instead of refusing the trace.
        outside: Alerts outside their job's time: ``keep``, ``clip`` or ``drop``.
        detector: Detectors, as ``NAME:option=value,...`` or ``FILE.py:Class:option=value,...``.
        baselines: Also run the references that every detector has to beat.
        speed: Trace seconds per wall second, or ``max``.
        schedule: ``together``, ``sequence``, ``stagger`` or ``pool:K``.
        spread: Where alerts stand inside their second: ``none``, ``even`` or ``random``.
        seed: Of everything that draws lots.
        kind: Regular expression of the kinds to replay.
        exclude_kind: Regular expression of the kinds to leave out.
        node: Regular expression of the nodes whose alerts to replay.
        start_offset: Trace seconds into the schedule at which to begin.
        duration: Trace seconds after which to stop; None plays to the end.
        loop: How many times to play.
        start_paused: Wait for the key or call that resumes.
        max_gap: Trace seconds: a longer silence is cut down to this; ``inf`` cuts nothing.
        when_late: ``catch-up``, ``slip`` or ``fail``.
        via: How messages reach the detectors: ``memory``, or the URL of a transport.
        policy: How verdicts become decisions: ``ever`` or ``final``.
        hold: Trace seconds a verdict must stand to count.
        grace: Trace seconds after a job's end in which a verdict still counts.
        label_map: ``LABEL=negative|positive|ignore,...``; empty means the default map.
        strict_labels: Refuse labels that the map does not name.
        fail_if: Gates on the score, as ``"f1 < 0.8"`` or ``"burst: f1 < 0.8"``.
    """

    path: str = ""
    jobs: tuple[str, ...] = ()
    format: Literal["", "folders", "jsonl", "parquet"] = ""
    lenient: bool = False
    outside: Literal["keep", "clip", "drop"] = "keep"
    detector: tuple[str, ...] = ()
    baselines: bool = True
    speed: str = MAX
    schedule: str = "together"
    spread: Literal["none", "even", "random"] = "none"
    seed: int = 0
    kind: str = ""
    exclude_kind: str = ""
    node: str = ""
    start_offset: float = 0.0
    duration: float | None = None
    loop: int = 1
    start_paused: bool = False
    max_gap: float = 86400.0
    when_late: Literal["catch-up", "slip", "fail"] = "catch-up"
    via: str = MEMORY
    policy: Literal["ever", "final"] = "ever"
    hold: float = 0.0
    grace: float = 0.0
    label_map: str = ""
    strict_labels: bool = False
    fail_if: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            ConfigError: Naming the key, the value and what would do.
        """
        parse_speed(self.speed)
        for item in fields(self):
            if item.name in _CHOICES:
                _one_of(item.name.replace("_", "-"), getattr(self, item.name), _CHOICES[item.name])
        for key in ("hold", "grace"):
            _at_least(key, getattr(self, key), 0)
        _at_least("loop", self.loop, 1)
        if self.duration is not None:
            _at_least("duration", self.duration, 0)
        if not self.max_gap >= 0:
            raise ConfigError(f"max-gap {self.max_gap!r} is not a number of at least 0.")
        if not math.isfinite(self.start_offset):
            raise ConfigError(f"start-offset {self.start_offset!r} is not a finite number.")


def _one_of(key: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigError(f"{key} {value!r} is none of {', '.join(filter(None, choices))}.")


def _at_least(key: str, value: float, least: float) -> None:
    if not (least <= value < math.inf):
        raise ConfigError(f"{key} {value!r} is not a finite number of at least {least}.")


def _texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        return tuple(value)
    raise TypeError("a list of texts")


def _text(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise TypeError("a text")
    return str(value)


def _flag(value: Any) -> bool:
    words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in words:
        return words[value.lower()]
    raise TypeError("true or false")


def _whole(value: Any) -> int:
    if isinstance(value, str):
        value = float(value) if "." in value else int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError("a whole number")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise TypeError("a number of seconds")
    if isinstance(value, str) and value.strip() not in {"inf", "nan"}:
        return seconds(value)
    return float(value)


_CHOICES: dict[str, tuple[str, ...]] = {
    name: get_args(hint)
    for name, hint in get_type_hints(RunConfig).items()
    if get_origin(hint) is Literal
}
_READERS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "str": (_text, "a text"),
    "bool": (_flag, "true or false"),
    "int": (_whole, "a whole number"),
    "float": (_number, "a number of seconds"),
    "float | None": (_number, "a number of seconds"),
    "tuple[str, ...]": (_texts, "a list of texts"),
}
_NOT_OURS = ("KAFKA_", "HUB", "CACHE")
"""Variables of the transports and of the hub, which read them themselves."""

_KEYS = {item.name.replace("_", "-"): item for item in fields(RunConfig)}


def load(
    flags: Mapping[str, Any],
    environ: Mapping[str, str],
    folder: Path,
    config_file: Path | None = None,
) -> tuple[RunConfig, dict[str, str]]:
    """Put a run's configuration together.

    Args:
        flags: What the command line said; keys with dashes, only those that were given.
        environ: The environment.
        folder: Where ``alert-replay.toml`` is looked for.
        config_file: Read instead of ``alert-replay.toml``; must exist.

    Returns:
        The configuration, and for each key where it was said.

    Raises:
        ConfigError: A file that is not TOML, an unknown key, or a value that does not fit.
    """
    values: dict[str, Any] = {}
    origins = dict.fromkeys(_KEYS, "default")
    for origin, said in _layers(flags, environ, folder, config_file):
        for key, value in said.items():
            item = _known(key, origin)
            values[item.name] = _read(item, key, value, origin)
            origins[key] = origin
    try:
        return RunConfig(**values), origins
    except ConfigError as error:
        origin = origins.get(error.what.partition(" ")[0], "command line")
        if origin == "command line":
            raise
        raise ConfigError(f"{origin}: {error.what}", error.remedy) from error


def _layers(
    flags: Mapping[str, Any],
    environ: Mapping[str, str],
    folder: Path,
    config_file: Path | None,
) -> list[tuple[str, Mapping[str, Any]]]:
    files = [config_file or folder / "alert-replay.toml"]
    with contextlib.suppress(RuntimeError):  # who has no home has no file there
        user = Path(environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser()
        files.insert(0, user / "alert-replay" / "config.toml")
    layers: list[tuple[str, Mapping[str, Any]]] = [
        (str(file), _toml(file)) for file in files if file == config_file or file.is_file()
    ]
    prefix = "ALERT_REPLAY_"
    said = {
        name.removeprefix(prefix).lower().replace("_", "-"): value
        for name, value in sorted(environ.items())
        if name.startswith(prefix) and not name.removeprefix(prefix).startswith(_NOT_OURS)
    }
    layers.extend((("environment", said), ("command line", flags)))
    return layers


def _toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        remedy = f"{file / 'config.toml'}" if (file / "config.toml").is_file() else ""
        raise ConfigError(f"{file} cannot be read as TOML: {error.strerror}.", remedy) from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{file} cannot be read as TOML: {error}") from error


def _known(key: str, origin: str) -> Field[Any]:
    if key in _KEYS:
        return _KEYS[key]
    near = difflib.get_close_matches(key, _KEYS, n=1)
    raise ConfigError(f"{origin}: there is no setting {key!r}.", f"{near[0]!r}" if near else "")


def _read(item: Field[Any], key: str, value: Any, origin: str) -> Any:
    read, wanted = _READERS["str" if item.name in _CHOICES else str(item.type)]
    if isinstance(value, str) and origin == "environment" and wanted == "a list of texts":
        value = value.split()
    try:
        return read(value)
    except UsageError as error:
        raise ConfigError(f"{origin}: {key}: {error.what}", error.remedy) from error
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{origin}: {key} is {value!r}, not {wanted}.") from error


def to_toml(config: RunConfig) -> str:
    """The whole configuration as TOML; :func:`load` reads it back to an equal value.

    Raises:
        ConfigError: A path has bytes in it that are not UTF-8.

    Examples:
        >>> print(to_toml(RunConfig(path="data/sample", speed="10")).splitlines()[0])
        path = "data/sample"

    """
    import tomli_w  # noqa: PLC0415 - only a run that is kept pays for it

    document = {}
    for key, item in _KEYS.items():
        value = getattr(config, item.name)
        if value is not None:
            document[key] = list(value) if isinstance(value, tuple) else value
    text = tomli_w.dumps(document)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(
            f"The name of {config.path} is not UTF-8, and cannot be kept.", "another name"
        ) from error
    return text
