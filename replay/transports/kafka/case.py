"""One job on trial: what its detectors say to its messages, as records of a topic of verdicts.

:class:`Case` is the part of a worker that knows of no partition and no offset. :class:`KeyedCases`
puts it behind bytes, for stream engines that read a topic themselves and keep a state per key.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Protocol

from replay.messages import AlertSlice, JobEnded, JobStarted
from replay.transports.wire import Decoder, Judged, encode_verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from replay.errors import DetectorError
    from replay.messages import Message, TimedVerdict

__all__ = ["Case", "JobWatch", "KeyedCases"]


class _Tally(Protocol):
    @property
    def costs(self) -> Mapping[str, object]:
        """Detector → what it cost."""

    @property
    def failures(self) -> Sequence[DetectorError]:
        """Detectors that were stopped."""


class JobWatch(Protocol):
    """What watches one job of one run; :class:`replay.host.JobHost` is one."""

    @property
    def tally(self) -> _Tally:
        """What there is to report besides verdicts."""

    def feed(self, message: Message) -> list[TimedVerdict]:
        """Take the job's next message; give what the detectors say to it."""


class Case:
    """A job that has begun and is not over.

    Args:
        watch: Watches it.
    """

    __slots__ = ("_delivered", "_said", "_watch")

    def __init__(self, watch: JobWatch) -> None:
        self._watch = watch
        self._begin()

    def _begin(self) -> None:
        self._delivered = 0
        self._said: Counter[str] = Counter(dict.fromkeys(self._watch.tally.costs, 0))

    @property
    def failures(self) -> Sequence[DetectorError]:
        """Detectors that were stopped."""
        return self._watch.tally.failures

    def feed(self, message: Message) -> list[bytes]:
        """Take the job's next message; the records that it brings about, with its end the last."""
        if isinstance(message, JobStarted):
            self._begin()
        elif isinstance(message, AlertSlice):
            self._delivered += len(message.batch)
        verdicts = self._watch.feed(message)
        for verdict in verdicts:
            self._said[verdict.detector] += 1
        records = [encode_verdict(verdict) for verdict in verdicts]
        if isinstance(message, JobEnded):
            records.append(encode_verdict(self._judged(message)))
        return records

    def _judged(self, ended: JobEnded) -> Judged:
        return Judged(
            ended.run,
            ended.epoch,
            ended.job,
            ended.at,
            ended.count,
            ended.count - self._delivered,
            ended.complete,
            dict(self._said),
            {failure.detector: failure.what for failure in self.failures},
        )


class KeyedCases:
    """Judges the records of one key: what a stream engine keeps as that key's state.

    The clock of a job is its own and stands in its records, so the engine's time is not asked. That
    matters: Flink, Spark and Bytewax have one watermark for all keys, and jobs whose times were
    shifted independently would close each other's timers, or hold them back for ever.

    Can be pickled between two records if the detectors can. A record that comes again changes
    nothing, and verdicts that are said again have the same ids, so a topic of verdicts written at
    least once can be scored with ``alert-replay score --from``.

    Quix Streams::

        import pickle
        from functools import partial

        from quixstreams import Application

        from replay.host import JobHost
        from replay.plugins import parse_detectors
        from replay.transports.kafka.case import KeyedCases

        def judge(value, state):
            kept = state.get_bytes("job")
            job = pickle.loads(kept) if kept else KeyedCases(watch)
            said = job.feed(value)
            state.set_bytes("job", pickle.dumps(job))
            return said

        watch = partial(JobHost, parse_detectors(["burst"]))
        app = Application("127.0.0.1:9092", consumer_group="g", auto_offset_reset="earliest")
        alerts = app.topic("alerts", value_deserializer="bytes")
        verdicts = app.topic("verdicts", value_serializer="bytes")
        app.dataframe(alerts).apply(judge, stateful=True, expand=True).to_topic(verdicts)
        app.run()

    PyFlink, where the stream comes from a Kafka source of strings and goes to a sink of strings
    (not run by our tests: the engine is 800 MB and wants Java)::

        import json
        from functools import partial

        from pyflink.common import Types
        from pyflink.datastream import KeyedProcessFunction
        from pyflink.datastream.state import ValueStateDescriptor

        class Judge(KeyedProcessFunction):
            def open(self, context):
                kind = Types.PICKLED_BYTE_ARRAY()
                self.job = context.get_state(ValueStateDescriptor("job", kind))

            def process_element(self, value, context):
                job = self.job.value() or KeyedCases(watch)
                yield from (said.decode() for said in job.feed(value.encode()))
                self.job.update(job)

        watch = partial(JobHost, parse_detectors(["burst"]))
        by_job = stream.key_by(lambda value: json.loads(value)["job_id"])
        by_job.process(Judge(), Types.STRING()).sink_to(sink)

    Args:
        watch: Makes what watches a job; is pickled with the state.

    Attributes:
        counters: Losses and repeats seen in this key.
    """

    def __init__(self, watch: Callable[[], JobWatch]) -> None:
        self._watch = watch
        self._decoder = Decoder()
        self._cases: dict[str, Case] = {}
        self.counters = self._decoder.counters

    def feed(self, value: bytes | None) -> list[bytes]:
        """Take the key's next record; the records of verdicts that it brings about.

        Raises:
            PoisonError: The record makes no sense; nothing has changed.
        """
        records: list[bytes] = []
        for message in self._decoder.decode(value):
            if isinstance(message, JobStarted) and message.run not in self._cases:
                self._cases[message.run] = Case(self._watch())
            records += self._cases[message.run].feed(message)
            if isinstance(message, JobEnded):
                del self._cases[message.run]
        return records
