"""The workers of one ``detect``: each a process, ended together, and heard when one fails."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import threading
import time
from dataclasses import dataclass
from multiprocessing import connection
from typing import TYPE_CHECKING, cast

from replay.cli.output import aside, note
from replay.errors import ReplayError, TransportError
from replay.host import JobHost
from replay.plugins import parse_detectors
from replay.transports.kafka.worker import Work, Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.context import SpawnProcess

    from replay.transports.kafka.settings import Settings
    from replay.transports.kafka.worker import OnPoison

__all__ = ["Order", "together", "worker_of"]

_TELLING_S = 1.0


@dataclass(frozen=True, slots=True)
class Order:
    """What a worker is to do; travels to its process.

    Attributes:
        source: The topic with alerts.
        target: The topic for verdicts.
        group: The consumer group.
        detectors: As on the command line.
        on_poison: See :class:`Worker`.
        idle_exit: See :class:`Worker`.
        tells: Whether it says once a second how far it is.
    """

    source: Settings
    target: Settings
    group: str
    detectors: tuple[str, ...]
    on_poison: OnPoison
    idle_exit: float | None
    tells: bool = False


def worker_of(order: Order, say: Callable[[str], None]) -> Worker:
    """Connect a worker; raises as :class:`Worker`."""
    specs = parse_detectors(order.detectors)
    return Worker(
        order.source,
        order.target,
        order.group,
        lambda: JobHost(specs, wall=time.time),
        on_poison=order.on_poison,
        idle_exit=order.idle_exit,
        note=say,
    )


def together(
    order: Order, count: int, told: Callable[[list[Work]], None] = lambda _: None
) -> list[Work]:
    """Run some workers until all are done; SIGTERM and Ctrl-C end them all, cleanly.

    Args:
        order: What each is to do.
        count: How many.
        told: Hears how far they are, if they tell.

    Raises:
        ReplayError: What the first of them that failed raised; the others end cleanly.
        TransportError: One was killed. The others go on, and its work is theirs.
        KeyboardInterrupt: They were stopped before they had reached a broker.
    """
    crew = [_Hand(order, number) for number in range(1, count + 1)]

    def stop(*_: object) -> None:
        for hand in crew:
            hand.stop()

    before = [(n, signal.signal(n, stop)) for n in (signal.SIGTERM, signal.SIGINT)]
    try:
        _hear_out(crew, stop, told)
    finally:
        stop()
        for number, handler in before:
            signal.signal(number, handler)
    for hand in crew:
        if hand.error is not None:
            raise hand.error
    if any(hand.interrupted for hand in crew):
        raise KeyboardInterrupt
    works = [hand.work for hand in crew if hand.work is not None]
    if len(works) < count:
        raise TransportError(
            f"{count - len(works)} of {count} workers were killed; the others took their work over.",
            "the same command again, if jobs are left open",
        )
    return works


def _hear_out(
    crew: list[_Hand], stop: Callable[[], None], told: Callable[[list[Work]], None]
) -> None:
    """Listen until each has had its last word; when one fails, the others are to stop."""
    waiting = {hand.ear: hand for hand in crew}
    while waiting:
        for ear in connection.wait(list(waiting)):
            hand = waiting[cast("connection.Connection", ear)]
            if not hand.hear():
                del waiting[hand.ear]
            if hand.error is not None:
                stop()
        told([hand.so_far for hand in crew])


class _Hand:
    """A worker's process, seen from the one that started it."""

    def __init__(self, order: Order, number: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.so_far = Work()
        self.work: Work | None = None
        self.error: ReplayError | None = None
        self.interrupted = False
        self.ear, mouth = context.Pipe(duplex=False)
        self._process: SpawnProcess = context.Process(
            target=_work, args=(order, number, mouth), name=f"worker-{number}"
        )
        self._process.start()
        mouth.close()

    def stop(self) -> None:
        """Tell it to finish what is in hand."""
        if self._process.is_alive():
            self._process.terminate()

    def hear(self) -> bool:
        """Take its next word: how far it is, what it did, or why it failed; whether more will come.

        One that was killed says nothing.
        """
        try:
            word = self.ear.recv()
        except EOFError:
            self._process.join()
            self.ear.close()
            return False
        if word is None:
            self.interrupted = True
        elif isinstance(word, ReplayError):
            self.error = word
        else:
            self.so_far, is_last = word
            self.work = self.so_far if is_last else None
        return True


def _work(order: Order, number: int, mouth: connection.Connection) -> None:
    """Be one worker."""

    def deaf() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def stop(*_: object) -> None:
        if worker is None:  # still on the way to its broker
            deaf()
            raise KeyboardInterrupt
        worker.stop()

    worker: Worker | None = None
    word: tuple[Work, bool] | ReplayError | None = None
    with contextlib.suppress(KeyboardInterrupt):  # wherever it strikes, on the way or in trouble
        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        try:
            worker = worker_of(order, lambda text: note(f"worker {number}: {text}"))
            with aside(), _telling(worker, mouth) if order.tells else contextlib.nullcontext():
                word = worker.run(), True
        except ReplayError as error:
            word = error
        deaf()
    mouth.send(word)


@contextlib.contextmanager
def _telling(worker: Worker, mouth: connection.Connection) -> Iterator[None]:
    """Say how far it is, once a second, while the block runs."""
    over = threading.Event()

    def tell() -> None:
        while not over.wait(_TELLING_S):
            mouth.send((worker.standing, False))

    thread = threading.Thread(target=tell, name="telling", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
