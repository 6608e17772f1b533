"""A worker in a process of its own, to be killed."""

from __future__ import annotations

import multiprocessing
import signal

from kafka_jobs import SPECS

from replay.host import JobHost
from replay.transports.kafka import confluent, kafka_python  # so that a fork has them
from replay.transports.kafka.worker import Worker

__all__ = ["confluent", "kafka_python", "start"]


def start(source, target, group, specs=SPECS):
    """A worker, and the event of its first partition; forked from where all is imported."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["kafka_victims"])
    ready = context.Event()
    process = context.Process(target=_work, args=(source, target, group, ready, specs), daemon=True)
    process.start()
    return process, ready


class _Ready(Worker):
    """Says when it has something to do."""

    def gained(self, marks):
        if marks:
            self.ready.set()
        return super().gained(marks)


def _work(source, target, group, ready, specs):
    worker = _Ready(source, target, group, lambda: JobHost(specs))
    worker.ready = ready
    signal.signal(signal.SIGTERM, lambda *_: worker.stop())
    worker.run()
