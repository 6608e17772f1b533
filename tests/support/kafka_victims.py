"""Workers in processes of their own, to be killed."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from multiprocessing import connection

from kafka_jobs import SPECS, wait_for

from replay.host import JobHost
from replay.transports.kafka import confluent, kafka_python  # so that a fork has them
from replay.transports.kafka.worker import Worker

__all__ = ["confluent", "kafka_python", "victims"]


@contextlib.contextmanager
def victims(count, source, target, group, specs=SPECS):
    """Some workers that have work, as processes; none of them outlives the block."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["kafka_victims"])
    readies = [context.Event() for _ in range(count)]
    hands = [
        context.Process(target=_work, args=(source, target, group, ready, specs), daemon=True)
        for ready in readies
    ]
    try:
        for hand in hands:
            hand.start()
        wait_for(lambda: not all(h.is_alive() for h in hands) or all(r.is_set() for r in readies))
        assert all(hand.is_alive() for hand in hands)
        yield hands
    finally:
        begun = [hand for hand in hands if hand.pid is not None]
        for hand in begun:
            hand.terminate()
        for hand in begun:
            hand.join(30)
            hand.kill()  # nothing happens to one that is gone
            hand.join()


class _Ready(Worker):
    """Says when it has something to do."""

    def gained(self, marks):
        if marks:
            self.ready.set()
        return super().gained(marks)


def _work(source, target, group, ready, specs):
    threading.Thread(target=_follow, daemon=True).start()
    worker = _Ready(source, target, group, lambda: JobHost(specs))
    worker.ready = ready
    signal.signal(signal.SIGTERM, lambda *_: worker.stop())
    worker.run()


def _follow():
    """Do not outlive the tests, however they end."""
    connection.wait([multiprocessing.parent_process().sentinel])
    os._exit(1)
