"""Getting a process ready to keep time, and putting everything back afterwards."""

from __future__ import annotations

import contextlib
import gc
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["frozen_garbage", "realtime"]

_PR_SET_TIMERSLACK = 29
_PR_GET_TIMERSLACK = 30

_INTERPRETERS_OWN = 1000
"""Fewer frozen objects than this are the interpreter's: 3.12 starts with some 375, others with none."""


@contextlib.contextmanager
def frozen_garbage() -> Iterator[None]:
    """What is loaded by now is not looked at by the garbage collector meanwhile."""
    if gc.get_freeze_count() > _INTERPRETERS_OWN:  # someone's, who means to keep them so
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextlib.contextmanager
def realtime(switch_interval_s: float | None) -> Iterator[None]:
    """Loaded data is no garbage, threads take turns quickly, this thread's timers are exact.

    Args:
        switch_interval_s: Wall seconds until a busy thread has to give way; None leaves it.
    """
    interval = sys.getswitchinterval()
    slack = _timer_slack(1)
    try:
        if switch_interval_s:
            sys.setswitchinterval(switch_interval_s)
        with frozen_garbage():
            yield
    finally:
        sys.setswitchinterval(interval)
        if slack:
            _timer_slack(slack)


def _timer_slack(wanted_ns: int) -> int:
    """Set how late this thread's timers may fire; give what it was, or 0 where it is unknown."""
    if not sys.platform.startswith("linux"):
        return 0
    import ctypes  # noqa: PLC0415 - only here, and only when paced

    try:
        prctl = ctypes.CDLL(None).prctl
        prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
        before = int(prctl(_PR_GET_TIMERSLACK, 0, 0, 0, 0))
        prctl(_PR_SET_TIMERSLACK, wanted_ns, 0, 0, 0)
    except (OSError, AttributeError):
        return 0
    return max(before, 0)
