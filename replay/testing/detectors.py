"""What every detector must keep to, as plain functions."""

from __future__ import annotations

import doctest
import gc
import io
import itertools
import pickle
import sys
import tracemalloc
import types
import typing
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from replay.api import AlertBatch, Detector, Job
from replay.host import JobHost
from replay.messages import AlertSlice, JobEnded, TimedVerdict, Watermark
from replay.plugins import DetectorSpec, Option, options_of
from replay.testing.processes import verdicts_elsewhere
from replay.testing.streams import (
    TINY_TRACES,
    Check,
    Row,
    TinyTrace,
    batches,
    bound,
    raise_failure,
    said_to_each,
    spec_of,
    stream,
    verdicts,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from replay.messages import Message

__all__ = ["detector_checks"]


def detector_checks(detector: DetectorSpec | type[Detector] | str) -> list[Check]:
    """Everything the contract of :class:`replay.api.Detector` asks for.

    Args:
        detector: A class, text such as ``"burst:window=30"``, or a
            :class:`~replay.plugins.DetectorSpec`.

    Returns:
        Functions without arguments, named for what they check, that raise ``AssertionError`` (or
        the detector's own failure) where the detector breaks the rule.

    Examples:
        >>> for check in detector_checks("burst"):
        ...     check()

    """
    spec = spec_of(detector)
    return [bound(check, spec) for check in CHECKS]


# --- playing ----------------------------------------------------------------------------------


def _tiny(check: str) -> list[TinyTrace]:
    """The tiny traces under names that no other check has used.

    So whatever a class wrongly remembers of its earlier objects is news to the first of them.
    """
    return [
        replace(
            tiny,
            job=Job(
                f"{check}/{tiny.job.id}",
                tuple(f"{check}/{node}" for node in tiny.job.nodes),
                tiny.job.gpu_generation,
            ),
            alerts=tuple((at, f"{check}/{node}", kind) for at, node, kind in tiny.alerts),
        )
        for tiny in TINY_TRACES
    ]


def _require_equal(found: Sequence[Any], wanted: Sequence[Any], where: str) -> None:
    if list(found) == list(wanted):
        return
    pairs = itertools.zip_longest(found, wanted, fillvalue="nothing")
    number, (one, other) = next(item for item in enumerate(pairs) if item[1][0] != item[1][1])
    raise AssertionError(f"{where}: verdict {number} is {one}, not {other}")


def _rebatched(message: Message, make: Callable[[AlertBatch], AlertBatch]) -> Message:
    return (
        replace(message, batch=make(message.batch)) if isinstance(message, AlertSlice) else message
    )


# --- checks -----------------------------------------------------------------------------------


def survives(spec: DetectorSpec, traces: Sequence[TinyTrace] = ()) -> None:
    """Nothing in a stream stops it: no alerts, one alert, ties, strangers, days of silence."""
    for tiny in traces or _tiny("survives"):
        said_to_each(spec, tiny.messages())


def no_look_ahead(spec: DetectorSpec) -> None:
    """The verdicts on a prefix of a stream are a prefix of the verdicts."""
    for tiny in _tiny("no_look_ahead"):
        messages = tiny.messages()
        whole = said_to_each(spec, messages)
        for cut in range(1, len(messages), max(1, len(messages) // 20)):
            begun = [timed for said in whole[:cut] for timed in said]
            again = [timed for said in said_to_each(spec, messages[:cut]) for timed in said]
            _require_equal(again, begun, f"{tiny.name}, first {cut} messages alone")


def deterministic(spec: DetectorSpec, traces: Sequence[TinyTrace] = ()) -> None:
    """The same stream gets the same verdicts, whatever numbers its names go by."""
    for tiny in traces or _tiny("deterministic"):
        messages = tiny.messages()
        first = verdicts(spec, messages)
        _require_equal(verdicts(spec, messages), first, f"{tiny.name}, played again")
        recoded = list(_recoded(tiny.job, messages))
        _require_equal(verdicts(spec, recoded), first, f"{tiny.name}, names numbered differently")


def _recoded(job: Job, messages: Iterable[Message]) -> Iterator[Message]:
    """The same stream, with new names numbered from the last of a batch to the first."""
    nodes = {node: code for code, node in enumerate(job.nodes)}
    kinds: dict[str, int] = {}

    def recode(batch: AlertBatch) -> AlertBatch:
        for alert in reversed(batch.alerts):
            nodes.setdefault(alert.node, len(nodes))
            kinds.setdefault(alert.kind, len(kinds))
        node = np.array([nodes[alert.node] for alert in batch.alerts], np.int32)
        kind = np.array([kinds[alert.kind] for alert in batch.alerts], np.int32)
        return AlertBatch(batch.job, batch.at, batch.seq, node, kind, tuple(nodes), tuple(kinds))

    for message in messages:
        yield _rebatched(message, recode)


def same_in_every_process(spec: DetectorSpec) -> None:
    """Verdicts do not hang on the hashes of strings, which differ from process to process.

    A class inside a function cannot be found from another process, and options that cannot be
    pickled cannot be taken along; then there is nothing to compare.
    """
    traces = _tiny("same_in_every_process")
    here = [repr(verdicts(spec, tiny.messages())) for tiny in traces]
    for there in verdicts_elsewhere(spec, traces):
        for tiny, one, other in zip(traces, here, there, strict=True):
            if one != other:
                raise AssertionError(f"{tiny.name}: another process says {other}, not {one}")


def input_untouched(spec: DetectorSpec) -> None:
    """It does not write into what it is given: others are given the same."""
    for tiny in _tiny("input_untouched"):
        host = JobHost([spec])
        for message in tiny.messages():
            given = _rebatched(message, _copy)
            host.feed(given)
            if not isinstance(given, AlertSlice) or not isinstance(message, AlertSlice):
                continue
            if _contents(given.batch) != _contents(message.batch):
                raise AssertionError(f"{tiny.name}: the batch at {message.batch.at} s was changed")
        raise_failure(host)


def _copy(batch: AlertBatch) -> AlertBatch:
    """The same batch with columns and names that can be written to."""
    columns = batch.seq.copy(), batch.node.copy(), batch.kind.copy()
    return AlertBatch(batch.job, batch.at, *columns, list(batch.nodes), list(batch.kinds))


def _contents(batch: AlertBatch) -> tuple[Any, ...]:
    columns = (column.tolist() for column in (batch.seq, batch.node, batch.kind))
    return (batch.job, batch.at, *columns, list(batch.nodes), list(batch.kinds))


def input_not_kept(spec: DetectorSpec) -> None:
    """It copies what it keeps of a batch's columns: their memory may be used again."""
    for tiny in _tiny("input_not_kept"):
        messages = tiny.messages()
        host = JobHost([spec])
        said: list[TimedVerdict] = []
        for message in messages:
            given = _rebatched(message, _copy)
            said += host.feed(given)
            if isinstance(given, AlertSlice):
                given.batch.seq[:] = -1
                given.batch.node[:] = given.batch.kind[:] = 0
        raise_failure(host)
        found = [(timed.at, timed.verdict) for timed in said]
        wanted = verdicts(spec, messages)
        _require_equal(found, wanted, f"{tiny.name}, columns written over after each batch")


def jobs_kept_apart(spec: DetectorSpec) -> None:
    """Two jobs watched side by side get the verdicts that each gets alone."""
    for one, other in itertools.pairwise(_tiny("jobs_kept_apart")):
        streams = one.messages(), other.messages()
        hosts = JobHost([spec]), JobHost([spec])
        together: tuple[list[Any], list[Any]] = [], []
        for pair in itertools.zip_longest(*streams):
            for message, host, said in zip(pair, hosts, together, strict=True):
                if message is not None:
                    said += [(timed.at, timed.verdict) for timed in host.feed(message)]
        for tiny, messages, said in zip((one, other), streams, together, strict=True):
            _require_equal(said, verdicts(spec, messages), f"{tiny.name}, beside another job")


def ties_in_any_split(spec: DetectorSpec, traces: Sequence[TinyTrace] = ()) -> None:
    """Alerts of one instant get the same verdicts together, in pieces, and one by one."""
    for tiny in traces or _tiny("ties_in_any_split"):
        messages = tiny.messages()
        whole = verdicts(spec, messages)
        for piece in (1, 2, 7):
            split = [part for message in messages for part in _pieces(message, piece)]
            _require_equal(verdicts(spec, split), whole, f"{tiny.name}, {piece} at a time")


def _pieces(message: Message, size: int) -> Iterator[Message]:
    if not isinstance(message, AlertSlice):
        yield message
        return
    batch = message.batch
    for first in range(0, len(batch), size):
        part = slice(first, first + size)
        columns = batch.seq[part], batch.node[part], batch.kind[part]
        cut = AlertBatch(batch.job, batch.at, *columns, batch.nodes, batch.kinds)
        yield replace(message, batch=cut)


def batch_equals_single(spec: DetectorSpec, traces: Sequence[TinyTrace] = ()) -> None:
    """``observe_batch`` says what ``observe`` says, alert by alert."""
    single = replace(
        spec,
        cls=type(spec.cls.__name__, (spec.cls,), {"observe_batch": Detector.observe_batch}),
    )
    for tiny in traces or _tiny("batch_equals_single"):
        messages = tiny.messages()
        one_by_one = verdicts(single, messages)
        _require_equal(verdicts(spec, messages), one_by_one, f"{tiny.name}, as batches")


def same_at_any_watermark(spec: DetectorSpec) -> None:
    """How often the host hears that time has passed changes nothing."""
    for tiny in _tiny("same_at_any_watermark"):
        messages = tiny.messages()
        plain = verdicts(spec, messages)
        for gap in (1.0, 97.0):
            marked = list(_marked(messages, gap))
            _require_equal(verdicts(spec, marked), plain, f"{tiny.name}, watermarks {gap} s apart")


def _marked(messages: Sequence[Message], gap: float) -> Iterator[Message]:
    """The same stream with a watermark after every slice, and up to a thousand in each silence."""
    now = 0.0
    for message in messages:
        if isinstance(message, AlertSlice | JobEnded):
            at = message.batch.at if isinstance(message, AlertSlice) else message.at
            run, epoch = message.run, message.epoch
            job = message.batch.job if isinstance(message, AlertSlice) else message.job
            marks = np.arange(now + gap, at, max(gap, (at - now) / 1000))
            yield from (Watermark(run, epoch, job, float(mark)) for mark in marks)
            yield message
            if isinstance(message, AlertSlice):
                yield Watermark(run, epoch, job, at)
            now = at
        else:
            yield message


def survives_silence(spec: DetectorSpec) -> None:
    """A day without a single alert: no failure, and at most one wake-up a second."""
    day = 86400.0
    for job in (Job("silent", ("node-a", "node-b")), Job("silent")):
        host = JobHost([spec])
        for message in _marked(stream(job, [], end=day), 3600.0):
            host.feed(message)
        raise_failure(host)
        wakes = host.tally.costs[spec.name].calls - 2  # it was built, and asked for last words
        if wakes > day:
            raise AssertionError(f"{wakes} wake-ups in {day:g} s of silence")


def survives_empty_job(spec: DetectorSpec) -> None:
    """A job may have no nodes, no alerts and no length."""
    for job in (Job("empty"), Job("empty", ("node-a",)), Job("empty", ("node-a", "node-b"))):
        said_to_each(spec, stream(job, []))
        said_to_each(spec, stream(job, [(0.0, "node-a", "ecc")]))


def blames_known_nodes(spec: DetectorSpec) -> None:
    """It names only nodes of the job or of alerts it has seen, and cites only such alerts."""
    for tiny in _tiny("blames_known_nodes"):
        messages = tiny.messages()
        known: set[str | None] = {None, *tiny.job.nodes}
        newest = -1
        for message, said in zip(messages, said_to_each(spec, messages), strict=True):
            if isinstance(message, AlertSlice):
                known.update(alert.node for alert in message.batch)
                newest = int(message.batch.seq[-1])
            for timed in said:
                if timed.verdict.node not in known:
                    raise AssertionError(f"{tiny.name}: nobody knows {timed.verdict.node!r}")
                if not all(0 <= seq <= newest for seq in timed.verdict.evidence):
                    raise AssertionError(f"{tiny.name}: evidence unseen: {timed.verdict.evidence}")


def bounded_memory(spec: DetectorSpec) -> None:
    """What it remembers is bounded by nodes and kinds, not by how long the job runs."""
    host = JobHost([spec])
    job = Job("long", tuple(f"node-{number}" for number in range(4)))
    host.feed(stream(job, [])[0])
    slices = deque(AlertSlice("hand-made", 0, batch) for batch in batches(job, _hours()))
    sizes = _sizes(host, slices)
    raise_failure(host)
    grown = sizes[1] - sizes[0]
    if grown > 8 * _HALF:
        raise AssertionError(f"{grown} bytes more after {2 * _HALF} alerts than after {_HALF}")


_HALF = 1000


def _hours() -> list[Row]:
    """Every quarter of a minute for hours, in threes, from four nodes and three kinds."""
    return [
        (15.0 * (number // 3) + number % 3 // 2, f"node-{number % 4}", f"kind-{number // 7 % 3}")
        for number in range(2 * _HALF)
    ]


def _sizes(host: JobHost, slices: deque[AlertSlice]) -> list[int]:
    """Bytes taken up half-way, and at the end."""
    traced = tracemalloc.is_tracing()
    if not traced:
        tracemalloc.start()
    try:
        sizes = []
        half = len(slices) // 2
        for _ in range(2):
            for _ in range(half):
                host.feed(slices.popleft())
            gc.collect()
            sizes.append(tracemalloc.get_traced_memory()[0])
        return sizes
    finally:
        if not traced:
            tracemalloc.stop()


def options_flipped(spec: DetectorSpec) -> None:
    """With each option at other values, it either refuses with ``ValueError`` or keeps the rules."""
    traces = [tiny for tiny in _tiny("options_flipped") if tiny.name in {"culprit", "mixed"}]
    for option in options_of(spec.cls).values():
        for value in _other_values(option):
            flipped = replace(spec, options={**spec.options, option.name: value})
            try:
                flipped.build(Job(""))
            except ValueError:
                continue
            for check in (survives, deterministic, ties_in_any_split, batch_equals_single):
                try:
                    check(flipped, traces)
                except Exception as error:
                    raise AssertionError(f"{option.name}={value!r}: {error}") from error


def _other_values(option: Option) -> list[Any]:
    """Some values that an option may have besides its default; texts are anybody's guess."""
    kinds = typing.get_args(option.type) or (option.type,)
    if typing.get_origin(option.type) is typing.Literal:
        return [choice for choice in kinds if choice != option.default]
    values: list[Any] = [None] if type(None) in kinds else []
    if bool in kinds:
        values += [True, False]
    elif not isinstance(option.default, str):
        number = option.default if isinstance(option.default, int | float) else 1
        values += [number + 1, number * 2] if int in kinds else []
        values += [number * 2.0, number / 2.0] if float in kinds else []
    return [value for value in values if value != option.default]


def documented(spec: DetectorSpec) -> None:
    """Its class has a docstring with an example, and the example runs."""
    cls = spec.cls
    if not (cls.__doc__ or "").strip():
        raise AssertionError(f"{cls.__name__} has no docstring")
    names = vars(sys.modules[cls.__module__]) if cls.__module__ in sys.modules else {}
    finder = doctest.DocTestFinder(recurse=False)
    tests = [test for test in finder.find(cls, cls.__name__, globs=dict(names)) if test.examples]
    if not tests:
        raise AssertionError(f"the docstring of {cls.__name__} has no example")
    said = io.StringIO()
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    for test in tests:
        runner.run(test, out=said.write)
    if runner.failures:
        raise AssertionError(said.getvalue())


def pickled_or_not(spec: DetectorSpec) -> None:
    """If it can be pickled, it goes on after unpickling as if nothing had happened."""
    for tiny in _tiny("pickled_or_not"):
        messages = tiny.messages()
        half = len(messages) // 2
        host = JobHost([spec])
        begun = [timed for message in messages[:half] for timed in host.feed(message)]
        try:
            host = pickle.loads(pickle.dumps(host))  # noqa: S301 - pickled on this very line
        except (pickle.PicklingError, AttributeError, TypeError):
            return
        rest = [timed for message in messages[half:] for timed in host.feed(message)]
        found = [(timed.at, timed.verdict) for timed in begun + rest]
        _require_equal(found, verdicts(spec, messages), f"{tiny.name}, pickled half-way")


def holds_no_truth(spec: DetectorSpec) -> None:
    """Nothing that can be reached from it knows who is to blame."""
    from replay.traces.model import TraceJob  # noqa: PLC0415 - imports Arrow, which is heavy

    for tiny in _tiny("holds_no_truth"):
        status = dict.fromkeys(tiny.job.nodes, TRUTH)
        secret = TraceJob(tiny.job.id, "", "", tiny.job.gpu_generation, status)
        built: list[Detector] = []
        host = JobHost([_Kept(spec.name, spec.cls, spec.options, built=built)])
        for message in stream(secret.public, tiny.alerts, end=tiny.end)[:-1]:
            host.feed(message)
        for thing in _reach(built):
            if isinstance(thing, TraceJob) or (isinstance(thing, str) and thing == TRUTH):
                raise AssertionError(f"{tiny.name}: it holds the truth, as {type(thing).__name__}")


TRUTH = "known to the scorer alone"


@dataclass(frozen=True, slots=True)
class _Kept(DetectorSpec):
    """Keeps hold of the detectors it builds."""

    built: list[Detector] = field(default_factory=list)

    def build(self, job: Job) -> Detector:
        detector = self.cls(job, **self.options)
        self.built.append(detector)
        return detector


def _reach(detectors: Iterable[Detector]) -> Iterator[Any]:
    """Everything that detectors can get at: their own, their classes', their modules' data."""
    todo: list[Any] = list(detectors)
    for cls in {cls for detector in detectors for cls in type(detector).__mro__}:
        if cls.__module__ not in {Detector.__module__, "abc", "builtins"}:
            module = vars(sys.modules[cls.__module__]) if cls.__module__ in sys.modules else {}
            own = (value for name, value in module.items() if not name.startswith("__"))
            todo += [*vars(cls).values(), *own]
    seen: set[int] = set()
    while todo:
        thing = todo.pop()
        if id(thing) not in seen and not isinstance(thing, _CODE):
            seen.add(id(thing))
            yield thing
            todo += gc.get_referents(thing)


_CODE = (
    type,
    types.BuiltinFunctionType,
    types.CodeType,
    types.FrameType,
    types.FunctionType,
    types.ModuleType,
)
"""What leads from data to all the rest of a program."""


CHECKS: tuple[Callable[[DetectorSpec], None], ...] = (
    survives,
    survives_silence,
    survives_empty_job,
    no_look_ahead,
    deterministic,
    same_in_every_process,
    same_at_any_watermark,
    ties_in_any_split,
    batch_equals_single,
    input_untouched,
    input_not_kept,
    jobs_kept_apart,
    blames_known_nodes,
    bounded_memory,
    options_flipped,
    documented,
    pickled_or_not,
    holds_no_truth,
)
