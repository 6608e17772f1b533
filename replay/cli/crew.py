"""The workers of one ``detect``: each a process, ended together, and heard when one fails."""

from __future__ import annotations

import multiprocessing
import signal
import time
from dataclasses import dataclass
from multiprocessing import connection
from typing import TYPE_CHECKING, cast

from replay.cli.output import note
from replay.errors import ReplayError, TransportError
from replay.host import JobHost
from replay.plugins import parse_detectors
from replay.transports.kafka.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.context import SpawnProcess

    from replay.transports.kafka.settings import Settings
    from replay.transports.kafka.worker import OnPoison, Work

__all__ = ["Order", "together", "worker_of"]


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
    """

    source: Settings
    target: Settings
    group: str
    detectors: tuple[str, ...]
    on_poison: OnPoison
    idle_exit: float | None


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


def together(order: Order, count: int) -> list[Work]:
    """Run some workers until all are done; SIGTERM and Ctrl-C end them all, cleanly.

    Raises:
        ReplayError: What the first of them that failed raised; the others end cleanly.
        TransportError: One was killed. The others go on, and its work is theirs.
    """
    crew = [_Hand(order, number) for number in range(1, count + 1)]

    def stop(*_: object) -> None:
        for hand in crew:
            hand.stop()

    before = [(n, signal.signal(n, stop)) for n in (signal.SIGTERM, signal.SIGINT)]
    try:
        waiting = {hand.ear: hand for hand in crew}
        while waiting:
            for ear in connection.wait(list(waiting)):
                hand = waiting.pop(cast("connection.Connection", ear))
                hand.hear()
                if hand.error is not None:
                    stop()
    finally:
        stop()
        for number, handler in before:
            signal.signal(number, handler)
    for hand in crew:
        if hand.error is not None:
            raise hand.error
    works = [hand.work for hand in crew if hand.work is not None]
    if len(works) < count:
        raise TransportError(
            f"{count - len(works)} of {count} workers were killed; the others took their work over.",
            "the same command again, if jobs are left open",
        )
    return works


class _Hand:
    """A worker's process, seen from the one that started it."""

    def __init__(self, order: Order, number: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.work: Work | None = None
        self.error: ReplayError | None = None
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

    def hear(self) -> None:
        """Take its last word: what it did, why it failed, or nothing when it was killed."""
        try:
            word = self.ear.recv()
        except EOFError:
            word = None
        if isinstance(word, ReplayError):
            self.error = word
        else:
            self.work = word
        self._process.join()
        self.ear.close()


def _work(order: Order, number: int, mouth: connection.Connection) -> None:
    """Be one worker."""
    stopped = False

    def stop(*_: object) -> None:
        nonlocal stopped
        stopped = True
        if worker is not None:
            worker.stop()

    worker: Worker | None = None
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    try:
        worker = worker_of(order, lambda text: note(f"worker {number}: {text}"))
        if stopped:
            worker.stop()
        mouth.send(worker.run())
    except ReplayError as error:
        mouth.send(error)
