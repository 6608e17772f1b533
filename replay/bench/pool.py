"""Tasks over any ``concurrent.futures.Executor``: this process, many, or a Dask cluster.

What comes back is put in the order of the tasks, so neither the number of workers nor the order
they finish in can be seen in it. A worker that is killed costs time, not results.
"""

from __future__ import annotations

import contextlib
import importlib
from collections import Counter
from concurrent.futures import BrokenExecutor, Executor, Future, as_completed
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from replay.errors import ReplayError, TransportError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    MakePool = Callable[[], AbstractContextManager[Executor]]

__all__ = ["Serial", "Work", "dask", "processes", "scatter"]

W = TypeVar("W", bound="Work")
R = TypeVar("R")

PRELOAD = ["replay.bench.task"]
"""What workers need, imported once for all of them."""

MOST_DEATHS = 3
"""How many workers a task may kill."""


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


@contextlib.contextmanager
def processes(workers: int) -> Iterator[Executor]:
    """A pool of processes on this machine; for one worker, this very process.

    An interrupt ends them at once: nobody waits for what they have in hand.
    """
    if workers == 1:
        yield Serial()
        return
    import multiprocessing  # noqa: PLC0415 - only where there are processes to start
    from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415 - likewise

    # not fork: threads of Arrow and of the linear algebra may hold locks
    methods = multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
    context.set_forkserver_preload(PRELOAD)
    with ProcessPoolExecutor(workers, mp_context=context) as executor:
        try:
            yield executor
        except KeyboardInterrupt:
            for child in multiprocessing.active_children():
                child.terminate()
            raise


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


class Work(Protocol):
    """A task: it knows roughly how long it takes, and says what it is."""

    @property
    def size(self) -> int:
        """In proportion to the time it takes."""


def scatter(
    call: Callable[[W], R],
    todo: Sequence[W],
    pool: MakePool,
    done: Callable[[W], None] = lambda _: None,
) -> list[R]:
    """Do every task; results in the order of the tasks.

    An executor that breaks, because a worker was killed, is made anew for what is left to do. If
    nothing at all got done in it, the tasks go one by one from then on, so that one which kills
    its worker takes no other with it, and can be named.

    Args:
        call: Does one task; a function of a module, so that workers find it.
        todo: The tasks.
        pool: Makes an executor; called again when one broke.
        done: Called after each task.

    Raises:
        ReplayError: A task kills its worker again and again.
    """
    results: dict[int, R] = {}
    deaths: Counter[int] = Counter()
    one_by_one = False
    # the longest first, so that no worker is left with it at the end
    order = sorted(range(len(todo)), key=lambda number: -todo[number].size)
    while left := [number for number in order if number not in results]:
        with pool() as executor:
            for batch in [[number] for number in left] if one_by_one else [left]:
                if _collect(executor, call, {n: todo[n] for n in batch}, results, done):
                    if one_by_one:
                        deaths[batch[0]] += 1
                    break
        one_by_one = one_by_one or left == [number for number in left if number not in results]
        for number, many in deaths.items():
            if many == MOST_DEATHS:
                raise ReplayError(
                    f"Workers died {many} times over {todo[number]}.",
                    "--workers 1, to see what a detector does there",
                )
    return [results[number] for number in range(len(todo))]


def _collect(
    executor: Executor,
    call: Callable[[W], R],
    todo: Mapping[int, W],
    results: dict[int, R],
    done: Callable[[W], None],
) -> bool:
    """Put what comes back in place; True if the executor broke on the way."""
    futures: dict[Future[R], int] = {}
    broken = False
    try:
        for number, task in todo.items():
            futures[executor.submit(call, task)] = number
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
