"""How a name becomes a class: entry points, and detectors written in a file of one's own.

The built-in detectors and transports come through the same door as everybody else's. Nothing is
loaded before somebody asks for it by name.
"""

from __future__ import annotations

import difflib
import functools
import importlib.util
import inspect
import math
import re
import sys
import types
import typing
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points, packages_distributions
from pathlib import Path
from typing import Any, Literal

from replay.api import Detector, Job
from replay.errors import PluginError, ReplayError

if typing.TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType

__all__ = [
    "DETECTORS",
    "TRANSPORTS",
    "DetectorSpec",
    "Option",
    "clashes",
    "detector_class",
    "installed",
    "load",
    "module_in_file",
    "near",
    "options_of",
    "owner",
    "parse_detectors",
    "split",
]

DETECTORS = "alert_replay.detectors"
"""Entry-point group of detectors: name → class."""

TRANSPORTS = "alert_replay.transports"
"""Entry-point group of transports: URL scheme → module or object that opens sinks and sources."""


# --- entry points -----------------------------------------------------------------------------


def installed(group: str) -> tuple[EntryPoint, ...]:
    """Every entry point of a group, by name; nothing is loaded.

    Two distributions may claim one name; :func:`load` refuses that name, and only that.
    """
    return _installed(group, tuple(sys.path))


@functools.lru_cache(maxsize=8)
def _installed(group: str, _path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Looked for once, as long as modules come from the same places."""
    points = {(point.name, point.value, owner(point)): point for point in entry_points(group=group)}
    return tuple(points[key] for key in sorted(points))


def owner(point: EntryPoint) -> str:
    """The distribution that an entry point came with, and its version."""
    return f"{point.dist.name} {point.dist.version}" if point.dist else "an unknown distribution"


def load(group: str, name: str, noun: str) -> Any:
    """Load what the name of an entry point stands for.

    Args:
        group: The entry-point group.
        name: The entry point's name.
        noun: What such a thing is called, for messages.

    Raises:
        PluginError: No such name, two distributions that claim it, or an import that fails; a
            missing dependency is named together with the command that installs it.
    """
    return _load(_find(group, name, noun), noun)


def _find(group: str, name: str, noun: str) -> EntryPoint:
    points = installed(group)
    found = [point for point in points if point.name == name]
    if not found:
        known = {point.name for point in points}
        raise PluginError(f"There is no {noun} {name!r}{near(name, known)}", _one_of(known))
    if len(found) > 1:
        owners = " and by ".join(map(owner, found))
        raise PluginError(f"The {noun} {name!r} is offered by {owners}.", "uninstall one of them")
    return found[0]


def _load(point: EntryPoint, noun: str) -> Any:
    place = f"The {noun} {point.name!r} ({point.value}, from {owner(point)})"
    try:
        return point.load()
    except ModuleNotFoundError as error:
        missing = error.name or str(error)
        top = point.module.partition(".")[0]
        if missing.partition(".")[0] == top:
            raise PluginError(
                f"{place} cannot be imported: there is no {missing}.",
                f"an environment of its own: another distribution may own the name {top!r}",
            ) from error
        raise PluginError(f"{place} needs {missing!r}.", _pip_line(point, missing)) from error
    except (Exception, SystemExit) as error:
        raise PluginError(f"{place} cannot be loaded: {_in_words(error)}.") from error


def _pip_line(point: EntryPoint, missing: str) -> str:
    if point.dist and point.extras:
        return f"pip install '{point.dist.name}[{','.join(point.extras)}]'"
    return f"pip install {missing.partition('.')[0]}"


def _in_words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".rstrip(".: ")


def near(word: str, known: Iterable[str]) -> str:
    """How a sentence about an unknown word ends: with the known one it looks like, if any.

    Examples:
        >>> near("brust", ["burst", "silent"]), near("x", ["burst"])
        ("; did you mean 'burst'?", '.')

    """
    matches = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {matches[0]!r}?" if matches else "."


def _one_of(known: Iterable[str]) -> str:
    return f"one of {', '.join(sorted(known))}" if known else ""


def clashes() -> tuple[str, ...]:
    """Import packages of ours that another distribution claims too, each in one sentence.

    Names like ``detectors`` are not ours alone. Whoever is installed last overwrites the other,
    and uninstalling one removes files of both.
    """
    home = Path(__file__).resolve().parent.parent
    owners = packages_distributions()
    said: list[str] = []
    for package in ("replay", "detectors"):
        others = sorted(set(owners.get(package, ())) - {"alert-replay"})
        if others:
            said.append(f"The package {package!r} is also installed by {', '.join(others)}.")
        spec = importlib.util.find_spec(package)
        place = Path(spec.origin).resolve().parent if spec and spec.origin else None
        if place != home / package:
            said.append(f"Python finds the package {package!r} at {place}, not in {home}.")
    return tuple(said)


# --- options ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a detector, as its constructor declares it.

    Attributes:
        name: Its name.
        type: Its annotation; the type of the default where there is none.
        default: Its default, or :data:`inspect.Parameter.empty`.
        doc: What the docstring says about it, units included.
    """

    name: str
    type: Any
    default: Any
    doc: str = ""

    @property
    def required(self) -> bool:
        """Whether it must be given."""
        return self.default is inspect.Parameter.empty

    @property
    def type_name(self) -> str:
        """The type as one writes it."""
        if isinstance(self.type, type) and not typing.get_args(self.type):
            return self.type.__name__
        text = str(self.type).replace("Callable[[replay.api.Job], replay.api.Detector]", "detector")
        return re.sub(r"\b(typing|collections\.abc|pathlib)\.", "", text)

    def read(self, text: str) -> Any:
        """Turn what was written into a value.

        Raises:
            ValueError: It does not fit; the message says what would.

        Examples:
            >>> Option("window", float, 60.0).read("30")
            30.0
            >>> Option("kinds", tuple[str, ...], ()).read("nic_down+link_flap")
            ('nic_down', 'link_flap')

        """
        return _read(self.type, text)


def options_of(cls: type[Detector]) -> dict[str, Option]:
    """The options of a detector class, inherited ones included, in order.

    Examples:
        >>> class Late(Detector):
        ...     def __init__(self, job: Job, *, after: float = 60.0) -> None: ...
        >>> options_of(Late)["after"].default
        60.0

    """
    options: dict[str, Option] = {}
    for klass in cls.__mro__:
        if "__init__" not in vars(klass) or klass is Detector:
            continue
        parameters = list(inspect.signature(vars(klass)["__init__"]).parameters.values())[2:]
        docs = _arguments(klass)
        for parameter in parameters:
            if parameter.kind in {parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD}:
                kind = _type_of(parameter, klass)
                option = Option(
                    parameter.name, kind, parameter.default, docs.get(parameter.name, "")
                )
                options.setdefault(parameter.name, option)
        if all(parameter.kind is not parameter.VAR_KEYWORD for parameter in parameters):
            break
    return options


def _type_of(parameter: inspect.Parameter, klass: type) -> Any:
    """An annotation, evaluated where its class was written.

    One by one, because a module may import the types of others for the type checker only.
    """
    if parameter.annotation is not inspect.Parameter.empty:
        carrier = types.SimpleNamespace(__annotations__={"it": parameter.annotation})
        names = vars(sys.modules[klass.__module__]) if klass.__module__ in sys.modules else {}
        try:
            return typing.get_type_hints(carrier, globalns=dict(names))["it"]
        except (NameError, TypeError, AttributeError):
            pass
    default = parameter.default
    return str if default is None or default is inspect.Parameter.empty else type(default)


def _arguments(klass: type) -> dict[str, str]:
    """What a docstring's ``Args:`` section says, name by name."""
    lines = inspect.cleandoc(klass.__doc__ or "").splitlines()
    docs: dict[str, str] = {}
    if "Args:" not in lines:
        return docs
    name = ""
    for line in lines[lines.index("Args:") + 1 :]:
        if line and not line.startswith(" "):
            break
        if entry := re.match(r" {4}\*{0,2}(\w+)(?: \([^)]*\))?: +(.*)", line):
            name, docs[entry[1]] = entry[1], entry[2]
        elif name and line.strip():
            docs[name] += " " + line.strip()
    return docs


def _read(kind: Any, text: str) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in {typing.Union, types.UnionType}:
        return _read_union(arguments, text)
    if origin is Literal:
        return _read_choice(arguments, text)
    if origin in {tuple, list, set, frozenset, Sequence, Collection} and arguments:
        items = [_read(arguments[0], item) for item in split(text, "+")]
        return items if origin is list else (tuple if origin is Sequence else origin)(items)
    if kind is Any or kind is str:
        return text
    if origin is Callable:
        return DetectorSpec.parse(_bare(text)).build
    if kind in _READERS:
        return _READERS[kind](text)
    raise ValueError("takes a value that cannot be written here; build the detector in Python")


def _read_union(kinds: tuple[Any, ...], text: str) -> Any:
    if type(None) in kinds and text.lower() == "none":
        return None
    problems: list[str] = []
    for kind in sorted((kind for kind in kinds if kind is not type(None)), key=lambda k: k is str):
        try:
            return _read(kind, text)
        except (ValueError, PluginError) as error:
            problems.append(str(error))
    raise ValueError(", or ".join(problems) + (", or none" if type(None) in kinds else ""))


def _read_choice(choices: tuple[Any, ...], text: str) -> Any:
    for choice in choices:
        if str(choice) == text:
            return choice
    raise ValueError(f"is none of {', '.join(map(str, choices))}")


def _read_bool(text: str) -> bool:
    words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if text.lower() not in words:
        raise ValueError("is neither true nor false")
    return words[text.lower()]


def _read_int(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("is not a whole number") from None


def _read_float(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if math.isnan(number):
        raise ValueError("is not a number")
    return number


_READERS: dict[Any, Callable[[str], Any]] = {
    bool: _read_bool,
    int: _read_int,
    float: _read_float,
    Path: Path,
}


def split(text: str, separator: str) -> list[str]:
    """Split at a separator, but not inside parentheses.

    Examples:
        >>> split("inner=(burst:window=9,threshold=3),hold=30", ",")
        ['inner=(burst:window=9,threshold=3)', 'hold=30']

    """
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == separator and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


def _bare(text: str) -> str:
    while text.startswith("(") and text.endswith(")"):
        text = text[1:-1].strip()
    return text


# --- detectors --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DetectorSpec:
    """A detector as asked for: a class and its options, ready to watch any number of jobs.

    Attributes:
        name: What verdicts and tables call it.
        cls: The class.
        options: Options given, already converted.
        text: How it was asked for; :meth:`parse` reads it back.
        origin: Where the class came from: a distribution and its version, or a file.
    """

    name: str
    cls: type[Detector]
    options: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""
    origin: str = ""

    @classmethod
    def parse(cls, text: str) -> DetectorSpec:
        """Find a detector, read its options and try them.

        Args:
            text: ``NAME``, ``NAME:key=value,key=value`` or ``FILE.py:Class:key=value``. Items of
                a list are joined by ``+``; a value in parentheses keeps its commas.

        Raises:
            PluginError: Unknown detector or option, a value that does not fit, or code that
                cannot be loaded.

        Examples:
            >>> DetectorSpec.parse("burst:window=30").options
            {'window': 30.0}

        """
        first, _, rest = text.partition(":")
        if first.endswith(".py"):
            name, _, rest = rest.partition(":")
            found, origin = _class_in_file(Path(first), name), first
            name = found.__name__
        else:
            point = _find(DETECTORS, first, "detector")
            found, origin = _detector(_load(point, "detector"), first), owner(point)
            name = first
        spec = cls(name, found, _options(name, found, rest), text, origin)
        spec.check()
        return spec

    @classmethod
    def of(cls, detector: type[Detector], name: str = "", /, **options: Any) -> DetectorSpec:
        """A detector given as a class.

        Args:
            detector: The class.
            name: What to call it; the class's name if empty.
            options: Options, as the constructor takes them.

        Raises:
            PluginError: The class does not take them.
        """
        name = name or detector.__name__
        spec = cls(name, _detector(detector, name), options, name, detector.__module__)
        spec.check()
        return spec

    def build(self, job: Job) -> Detector:
        """A fresh detector for one job."""
        return self.cls(job, **self.options)

    def check(self) -> None:
        """Build one for an empty job, so that a bad option shows before a run begins.

        Raises:
            PluginError: It cannot be built.
            ReplayError: It says so itself, in our own words.
        """
        try:
            self.build(Job(""))
        except ReplayError:
            raise
        except (Exception, SystemExit) as error:
            words = str(error) if isinstance(error, ValueError) else _in_words(error)
            raise PluginError(
                f"Detector {self.name} cannot be built: {words.rstrip('.')}."
            ) from error


def parse_detectors(texts: Iterable[str]) -> tuple[DetectorSpec, ...]:
    """Parse several detectors; where one name comes twice, options tell them apart.

    Raises:
        PluginError: As :meth:`DetectorSpec.parse`, and for the same text given twice.

    Examples:
        >>> [spec.name for spec in parse_detectors(["silent", "burst", "burst:window=30"])]
        ['silent', 'burst', 'burst:window=30']

    """
    specs = [DetectorSpec.parse(text) for text in texts]
    names = [spec.name for spec in specs]
    named: dict[str, DetectorSpec] = {}
    for spec in specs:
        name = spec.name if names.count(spec.name) == 1 else spec.text
        if name in named:
            raise PluginError(f"Detector {name} is asked for twice.", "ask for it once")
        named[name] = DetectorSpec(name, spec.cls, spec.options, spec.text, spec.origin)
    return tuple(named.values())


def detector_class(name: str) -> type[Detector]:
    """The class behind the name of an installed detector.

    Raises:
        PluginError: As :func:`load`, or what is loaded is no detector.

    Examples:
        >>> detector_class("burst").__name__
        'Burst'

    """
    return _detector(load(DETECTORS, name, "detector"), name)


def _options(name: str, cls: type[Detector], text: str) -> dict[str, Any]:
    known = options_of(cls)
    values: dict[str, Any] = {}
    for pair in split(text, ","):
        key, equals, value = (part.strip() for part in pair.partition("="))
        key = key.replace("-", "_")
        if key not in known:
            remedy = _one_of(known) or f"{name} alone: it has no options"
            raise PluginError(f"Detector {name} has no option {key!r}{near(key, known)}", remedy)
        if not equals:
            raise PluginError(f"Option {pair!r} of detector {name} has no value.", f"{key}=...")
        if key in values:
            raise PluginError(f"Option {key!r} of detector {name} is given twice.", "give it once")
        try:
            values[key] = known[key].read(value)
        except ValueError as error:
            raise PluginError(f"Option {key} of detector {name}: {value!r} {error}.") from error
    return values


def _detector(found: Any, place: str) -> type[Detector]:
    if not (isinstance(found, type) and issubclass(found, Detector)):
        raise PluginError(f"{place} is not a detector class.", "a subclass of replay.api.Detector")
    if inspect.isabstract(found):
        missing = ", ".join(sorted(found.__abstractmethods__))
        raise PluginError(f"Detector {found.__name__} has no method {missing}.", "write it")
    return found


def _class_in_file(path: Path, name: str) -> type[Detector]:
    module = module_in_file(path)
    own = {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, Detector)
        and value.__module__ == module.__name__
        and not key.startswith("_")
    }
    if not name and len(own) == 1:
        (name,) = own
    if not name:
        raise PluginError(f"Which detector of {path}?", f"{path}:{' or '.join(own) or 'Class'}")
    if not hasattr(module, name):
        raise PluginError(f"There is no class {name!r} in {path}{near(name, own)}", _one_of(own))
    return _detector(getattr(module, name), f"{name} in {path}")


def module_in_file(path: Path) -> ModuleType:
    """Run a file as a module of its own, once; again only after it has changed.

    Raises:
        PluginError: There is no such file, or it cannot be loaded.
    """
    if not path.is_file():
        raise PluginError(f"There is no file {path}.")
    return _module_at(path.resolve(), path.stat().st_mtime_ns)


@functools.cache
def _module_at(path: Path, version: int) -> ModuleType:
    name = f"alert_replay_file_{path.stem}_{zlib.crc32(f'{path} {version}'.encode()):08x}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise PluginError(f"{path} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look a class's module up there
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        if isinstance(error, ModuleNotFoundError) and error.name:
            remedy = f"pip install {error.name.partition('.')[0]}"
            raise PluginError(f"{path} needs {error.name!r}.", remedy) from error
        raise PluginError(f"{path} cannot be loaded: {_in_words(error)}.") from error
    return module
