"""Tasks over any ``concurrent.futures.Executor``: this process, many, or a Dask cluster.

What comes back is put in the order of the tasks, so neither the number of workers nor the order
they finish in can be seen in it. A worker that is killed costs time, not results.
"""

from __future__ import annotations

import contextlib
import importlib
from concurrent.futures import BrokenExecutor, Executor, Future, as_completed
from typing import TYPE_CHECKING, Any

from replay.bench.task import watch
from replay.errors import ReplayError, TransportError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from replay.bench.task import Task, Watched

__all__ = ["Serial", "dask", "processes", "scatter"]

MOST_BREAKS = 3
"""How often in a row a pool may break without a single task done."""


class Serial(Executor):
    """Runs each task at once, in this process."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run it, and give what came of it."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - it is raised where the result is asked for
            future.set_exception(error)
        return future


def processes(workers: int) -> Executor:
    """A pool of processes on this machine; for one worker, this very process."""
    if workers == 1:
        return Serial()
    import multiprocessing  # noqa: PLC0415 - only where there are processes to start
    from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415 - likewise

    # not fork: threads of Arrow and of the linear algebra may hold locks
    methods = multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
    context.set_forkserver_preload([watch.__module__])
    return ProcessPoolExecutor(workers, mp_context=context)


@contextlib.contextmanager
def dask(scheduler: str, timeout_s: float = 10.0) -> Iterator[Executor]:
    """The workers of a running Dask cluster, as an executor.

    Args:
        scheduler: Address of its scheduler, such as ``tcp://10.0.0.1:8786``.
        timeout_s: Wall seconds to wait for it.

    Raises:
        UsageError: Dask is not installed, or the address is none.
        TransportError: The scheduler does not answer.
    """
    try:
        distributed = importlib.import_module("distributed")
    except ImportError as error:
        raise UsageError("Dask is not installed.", "pip install 'alert-replay[dask]'") from error
    try:
        client = distributed.Client(scheduler, timeout=timeout_s)
    except OSError as error:
        raise TransportError(
            f"The Dask scheduler at {scheduler} did not answer in {timeout_s:g} s. Is it up?",
            "dask scheduler, or --workers N for processes on this machine",
        ) from error
    except ValueError as error:
        raise UsageError(
            f"{scheduler!r} is no address of a scheduler.", "tcp://HOST:8786"
        ) from error
    try:
        with client, client.get_executor(pure=False) as executor:
            yield executor
    except distributed.KilledWorker as error:
        raise ReplayError(
            f"A Dask worker died again and again: {error}.",
            "--workers 1, to see what a detector does there",
        ) from error


def scatter(
    todo: Sequence[Task],
    pool: Callable[[], AbstractContextManager[Executor]],
    done: Callable[[Task], None],
) -> list[Watched]:
    """Watch every task; results in the order of the tasks.

    A pool that breaks, because a worker was killed, is made anew for what is left to do.

    Args:
        todo: The tasks.
        pool: Makes an executor; called again when one broke.
        done: Called after each task.

    Raises:
        ReplayError: The pool breaks again and again and nothing gets done.
        PluginError: A detector cannot be built by a worker.
    """
    results: dict[int, Watched] = {}
    breaks = 0
    while len(results) < len(todo):
        before = len(results)
        left = [number for number in range(len(todo)) if number not in results]
        # the longest first, so that no worker is left with it at the end
        left.sort(key=lambda number: -todo[number].trace.events.num_rows)
        with pool() as executor:
            broken = _collect(executor, {n: todo[n] for n in left}, results, done)
        breaks = breaks + 1 if broken and len(results) == before else 0
        if breaks == MOST_BREAKS:
            jobs = ", ".join(todo[n].trace.jobs[0].id for n in left[:5])
            raise ReplayError(
                f"Workers died {breaks} times in a row over: {jobs}.",
                "--workers 1, to see what a detector does there",
            )
    return [results[number] for number in range(len(todo))]


def _collect(
    executor: Executor,
    todo: Mapping[int, Task],
    results: dict[int, Watched],
    done: Callable[[Task], None],
) -> bool:
    """Put what comes back in place; True if the executor broke on the way."""
    futures: dict[Future[Watched], int] = {}
    broken = False
    try:
        for number, task in todo.items():
            futures[executor.submit(watch, task)] = number
    except BrokenExecutor:  # so early that not everything could be handed over
        broken = True
    try:
        for future in as_completed(futures):
            try:
                results[futures[future]] = future.result()
            except BrokenExecutor:
                broken = True
            else:
                done(todo[futures[future]])
    finally:
        for future in futures:  # does nothing to one that is done
            future.cancel()
    return broken
