"""The same detector in other processes, where strings have other hashes."""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import operator
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from replay.plugins import DetectorSpec, module_in_file
from replay.testing.streams import verdicts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replay.api import Detector
    from replay.testing.streams import TinyTrace

__all__ = ["answer_orders", "verdicts_elsewhere"]


def verdicts_elsewhere(spec: DetectorSpec, traces: Sequence[TinyTrace]) -> list[list[str]]:
    """What a detector says to each trace, as text, in two processes with other hashes.

    Returns:
        An answer from each process; none if the class cannot be found from there, or its options
        cannot be taken along.

    Raises:
        AssertionError: The detector fails there.
    """
    place = _place(spec)
    if place is None:
        return []
    others = [_process("1"), _process("2")]
    for child in others:
        if child.stdin is not None:
            pickle.dump((list(sys.path), place, traces), child.stdin)
            child.stdin.flush()
    return [_answer_of(child) for child in others]


def _place(spec: DetectorSpec) -> tuple[str, str, str, bytes] | None:
    """Module, file and name of the class, and its options; None where another cannot have them."""
    cls = spec.cls
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    if file is None or "<locals>" in cls.__qualname__:
        return None
    try:
        return cls.__module__, file, cls.__qualname__, pickle.dumps(dict(spec.options))
    except (pickle.PicklingError, AttributeError, TypeError):
        return None


@functools.cache
def _process(hash_seed: str) -> subprocess.Popen[bytes]:
    """A process that answers orders until this one is over."""
    path = os.pathsep.join(filter(None, sys.path))
    child = subprocess.Popen(  # noqa: S603 - our own interpreter, our own code
        [sys.executable, "-c", f"from {__name__} import answer_orders; answer_orders()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path},
    )
    atexit.register(child.communicate)  # closes its input, which ends it
    return child


def _answer_of(child: subprocess.Popen[bytes]) -> list[str]:
    error, answer = "it died", list[str]()
    try:
        error, answer = pickle.load(child.stdout)  # type: ignore[arg-type]  # noqa: S301 - it is a pipe, from our own child
    except EOFError:
        _process.cache_clear()
    if error:
        raise AssertionError(f"in another process: {error}")
    return answer


def answer_orders() -> None:
    """Play what another process sends, until it closes the pipe."""
    out, sys.stdout = sys.stdout.buffer, sys.stderr  # a plug-in may print
    while True:
        try:
            order = pickle.load(sys.stdin.buffer)  # noqa: S301 - from the process that started us
        except EOFError:
            return
        pickle.dump(_answer(*order), out)
        out.flush()


def _answer(
    path: list[str], place: tuple[str, str, str, bytes], traces: Sequence[TinyTrace]
) -> tuple[str, list[str]]:
    """An error, or what the detector says."""
    sys.path[:] = path
    try:
        spec = _spec_at(*place)
        return "", [repr(verdicts(spec, tiny.messages())) for tiny in traces]
    except Exception as error:  # noqa: BLE001 - told to the process that asked
        return f"{type(error).__name__}: {error}", []


def _spec_at(module: str, file: str, name: str, options: bytes) -> DetectorSpec:
    home: Any = None
    with contextlib.suppress(ImportError):
        home = importlib.import_module(module)
    if getattr(home, "__file__", None) != file:
        home = module_in_file(Path(file))
    cls: type[Detector] = operator.attrgetter(name)(home)
    return DetectorSpec(name, cls, pickle.loads(options))  # noqa: S301 - as above
