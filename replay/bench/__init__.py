"""The leaderboard: every job and every detector, as fast as the machines allow."""

from __future__ import annotations

from replay.bench.leaderboard import TOKEN_MEMORY, Bench, bench
from replay.bench.pool import Serial, dask, processes
from replay.bench.task import Task

__all__ = ["TOKEN_MEMORY", "Bench", "Serial", "Task", "bench", "dask", "processes"]
