"""alert-replay: replay the alert history of an LLM training job, and score who gets blamed.

The two doors are :func:`replay.open` and :func:`replay.run`; plug-ins live behind
:mod:`replay.api`. Nothing heavy is imported until one of them is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from replay.runner import run
    from replay.traces import open  # noqa: A004 - `replay.open(path)` reads as it should

__all__ = ["open", "run"]


def __getattr__(name: str) -> Any:
    if name == "open":
        from replay.traces import open  # noqa: A004, PLC0415 - lazy: `import replay` stays light

        return open
    if name == "run":
        from replay.runner import run  # noqa: PLC0415 - lazy: `import replay` stays light

        return run
    raise AttributeError(f"module 'replay' has no attribute {name!r}")
