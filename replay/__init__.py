"""alert-replay: replay the alert history of an LLM training job, and score who gets blamed.

The two doors are :func:`replay.open` and :func:`replay.run`; plug-ins live behind
:mod:`replay.api`. Nothing is imported until one of them is used, not even ``typing``:
``alert-replay --version`` has to answer at once.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from replay.runner import run
    from replay.traces import open  # noqa: A004 - `replay.open(path)` reads as it should

__all__ = ["__version__", "open", "run"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name == "open":
        from replay.traces import open  # noqa: A004, PLC0415 - lazy: `import replay` stays light

        return open
    if name == "run":
        from replay.runner import run  # noqa: PLC0415 - lazy: `import replay` stays light

        return run
    raise AttributeError(f"module 'replay' has no attribute {name!r}")
