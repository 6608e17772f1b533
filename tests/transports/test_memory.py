"""The pipe within one process: bounds, dropping, closing, and errors that cross it."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay.api import Job
from replay.errors import TransportError, UsageError
from replay.messages import AlertSlice, JobEnded, JobStarted, Watermark
from replay.testing import TINY_TRACES, stream
from replay.transports import open_sink, open_source
from replay.transports.memory import Channel

JOB = Job("Job1", ("a", "b"))


def alerts(at, count, kind="x"):
    return stream(JOB, [(at, "ab"[n % 2], kind) for n in range(count)])[1]


def mark(at):
    return Watermark("hand-made", 0, "Job1", at)


START, END = stream(JOB, [])


def in_thread(work):
    """Start it; give a function that waits for its end and re-raises."""
    outcome = []

    def run():
        try:
            outcome.append((work(), None))
        except BaseException as error:  # noqa: BLE001 - handed to the caller
            outcome.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def finish():
        thread.join(30)
        assert outcome, "it still hangs"
        value, error = outcome[0]
        if error is not None:
            raise error
        return value

    return finish


def until(condition):
    """Spin until another thread has got so far."""
    give_up = threading.Event()
    threading.Timer(30, give_up.set).start()
    while not condition():
        assert not give_up.is_set()
        give_up.wait(0.001)


# --- order and ends --------------------------------------------------------------------------------


def test_what_goes_in_comes_out():
    channel = Channel("pipe")
    messages = [START, alerts(0.0, 3), mark(5.0), END]
    channel.sink.publish(messages[:1])
    channel.sink.publish(messages[1:])
    assert channel.waiting == (4, 3)
    assert channel.source.poll(0) == messages
    assert channel.source.poll(0) == []
    channel.sink.close()
    assert channel.source.poll(0) is None
    assert channel.source.poll(5) is None
    assert (channel.counts.messages, channel.counts.alerts) == (4, 3)
    assert channel.waiting == (0, 0)


def test_what_is_left_comes_before_the_end():
    channel = Channel()
    with channel.sink as sink:
        sink.publish([START])
    assert channel.source.poll(0) == [START]
    assert channel.source.poll(0) is None


@pytest.mark.parametrize("timeout", [-1.0, 0.0, 1e-9, 1e300])
def test_any_timeout_will_do(timeout):
    channel = Channel()
    channel.sink.publish([START])
    assert channel.source.poll(timeout) == [START]


def test_poll_waits_for_a_message():
    channel = Channel()
    came = in_thread(lambda: channel.source.poll(1e6))
    channel.sink.publish([START])
    assert came() == [START]


def test_close_wakes_a_waiting_reader():
    channel = Channel()
    came = in_thread(lambda: channel.source.poll(1e6))
    channel.sink.close()
    assert came() is None


def test_closing_the_source_wakes_a_waiting_reader():
    channel = Channel("pipe")
    came = in_thread(lambda: channel.source.poll(1e6))
    channel.source.close()
    with pytest.raises(TransportError, match="memory:pipe was closed for reading"):
        came()


# --- bounds ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bounds", "fits", "too_much"),
    [
        ({"max_alerts": 5}, [alerts(0.0, 3), alerts(1.0, 2)], alerts(2.0, 1)),
        ({"max_messages": 2}, [alerts(0.0, 3), mark(0.0)], mark(1.0)),
        ({"max_alerts": 5}, [alerts(0.0, 500)], alerts(1.0, 1)),  # one of any size passes
        ({"max_alerts": 5}, [START, alerts(0.0, 5), mark(1.0)], alerts(1.0, 1)),
    ],
)
def test_a_full_channel_blocks_until_it_is_read(bounds, fits, too_much):
    ticks = itertools.count()
    channel = Channel(**bounds, perf=lambda: next(ticks))
    channel.sink.publish(fits)
    assert channel.counts.blocked_seconds == 0
    done = in_thread(lambda: channel.sink.publish([too_much]))
    until(lambda: next(ticks) > 0)  # the clock was read: it waits
    assert channel.waiting[0] == len(fits)
    assert channel.source.poll(0) == fits
    done()
    assert channel.source.poll(0) == [too_much]
    assert channel.counts.blocked_seconds > 0
    assert channel.counts.dropped_slices == 0


def test_the_beginning_of_a_publishing_can_be_read_while_its_rest_waits():
    channel = Channel(max_messages=1)
    messages = [START, *(mark(float(n)) for n in range(50)), END]
    done = in_thread(lambda: channel.sink.publish(messages))
    came = []
    while len(came) < len(messages):
        came += channel.source.poll(30)
    done()
    assert came == messages


@pytest.mark.parametrize("full", ["drop-new", "drop-old"])
def test_only_alerts_are_dropped(full):
    channel = Channel(max_alerts=4, full=full)
    slices = [alerts(float(n), 2, f"kind-{n}") for n in range(5)]
    rest = [START, mark(0.0), mark(1.0), END]
    channel.sink.publish([rest[0], slices[0], rest[1], *slices[1:], *rest[2:]])
    came = channel.source.poll(0)
    kept = slices[:2] if full == "drop-new" else slices[3:]
    assert [m for m in came if isinstance(m, AlertSlice)] == kept
    assert [m for m in came if not isinstance(m, AlertSlice)] == rest
    lost = [s for s in slices if s not in kept]
    assert channel.counts.dropped_slices == 3
    assert channel.counts.dropped == Counter({s.batch.kinds[0]: 2 for s in lost})
    assert channel.counts.blocked_seconds == 0


@pytest.mark.parametrize("full", ["drop-new", "drop-old"])
def test_a_channel_that_drops_takes_any_number_of_other_messages(full):
    channel = Channel(max_messages=2, full=full)
    marks = [mark(float(n)) for n in range(100)]
    channel.sink.publish(marks)
    slices = [alerts(float(n), 1) for n in range(4)]
    channel.sink.publish(slices)
    kept = slices[:2] if full == "drop-new" else slices[2:]
    assert channel.source.poll(0) == [*marks, *kept]


def test_a_slice_larger_than_the_channel_replaces_all_old_ones():
    channel = Channel(max_alerts=4, full="drop-old")
    channel.sink.publish([alerts(0.0, 2), alerts(1.0, 2), big := alerts(2.0, 9)])
    assert channel.source.poll(0) == [big]
    assert channel.waiting == (0, 0)


@given(
    sizes=st.lists(st.integers(0, 6), max_size=20),  # 0 is a watermark
    bound=st.integers(1, 8),
    full=st.sampled_from(["drop-new", "drop-old"]),
    reads=st.sets(st.integers(0, 20)),
)
def test_nothing_is_lost_uncounted(sizes, bound, full, reads):
    channel = Channel(max_alerts=bound, full=full)
    came = []
    sent = [alerts(float(n), size) if size else mark(float(n)) for n, size in enumerate(sizes)]
    for number, message in enumerate(sent):
        channel.sink.publish([message])
        assert channel.waiting[1] <= max(bound, *sizes)
        if number in reads:
            came += channel.source.poll(0)
    came += channel.source.poll(0)
    assert [m for m in sent if m in came] == came  # in order, none twice
    assert [m for m in sent if m not in came] == [
        m for m in sent if isinstance(m, AlertSlice) and m not in came
    ]
    got = sum(len(m.batch) for m in came if isinstance(m, AlertSlice))
    assert got + channel.counts.dropped.total() == sum(sizes)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_alerts": 0}, "max_alerts=0"),
        ({"max_messages": 0}, "max_messages=0"),
        ({"full": "wait"}, "full must be one of block, drop-new, drop-old, not 'wait'"),
    ],
)
def test_senseless_channels(options, words):
    with pytest.raises(ValueError, match=words):
        Channel(**options)


# --- errors ----------------------------------------------------------------------------------------


def test_a_dead_reader_fails_the_writer():
    channel = Channel("pipe")
    with suppress(ZeroDivisionError), channel.source as source:
        source.poll(0)
        raise ZeroDivisionError("a bug")
    words = "Nobody reads memory:pipe any more: its reader failed: a bug"
    with pytest.raises(TransportError, match=words) as caught:
        channel.sink.publish([START])
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert caught.value.exit_code == 5


def test_a_dead_reader_wakes_a_blocked_writer():
    channel = Channel(max_messages=1)
    channel.sink.publish([START])
    done = in_thread(lambda: channel.sink.publish([mark(0.0)]))
    channel.source.close()
    with pytest.raises(TransportError, match=r"Nobody reads memory: any more"):
        done()
    assert channel.waiting == (0, 0)


def test_closing_the_sink_wakes_its_own_blocked_writer():
    channel = Channel(max_messages=1)
    channel.sink.publish([START])
    done = in_thread(lambda: channel.sink.publish([mark(0.0)]))
    channel.sink.close()
    with pytest.raises(TransportError, match="closed for writing"):
        done()
    assert channel.source.poll(0) == [START]


def test_a_dead_writer_fails_the_reader_after_what_it_left():
    channel = Channel("pipe")
    with suppress(OSError), channel.sink as sink:
        sink.publish([START])
        raise OSError("disk")
    assert channel.source.poll(0) == [START]
    with pytest.raises(TransportError, match="The writer of memory:pipe failed: disk") as caught:
        channel.source.poll(0)
    assert isinstance(caught.value.__cause__, OSError)


def test_an_interrupted_writer_ends_the_stream():
    channel = Channel()
    with suppress(KeyboardInterrupt), channel.sink as sink:
        sink.publish([START])
        raise KeyboardInterrupt
    assert channel.source.poll(0) == [START]
    assert channel.source.poll(0) is None


# --- by URL ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [open_sink, open_source])
def test_ends_of_one_name_meet(first):
    then = open_source if first is open_sink else open_sink
    one = first("memory:meeting?max_alerts=7&max_messages=3&full=drop-old")
    other = then("memory:meeting")
    assert one.channel is other.channel
    channel = one.channel
    assert (channel.max_alerts, channel.max_messages, channel.full) == (7, 3, "drop-old")
    assert str(channel) == "memory:meeting"


def test_the_next_pair_meets_anew():
    for _ in range(2):
        sink, source = open_sink("memory:"), open_source("memory:")
        sink.publish([START])
        assert source.poll(0) == [START]


def test_names_are_kept_apart():
    ends = {
        name: (open_sink(name), open_source(name)) for name in ("memory:", "memory:1", "memory:2")
    }
    for name, (sink, _) in ends.items():
        sink.publish([replace(START, run=name)])
    for name, (_, source) in ends.items():
        assert source.poll(0)[0].run == name


@pytest.mark.parametrize(
    ("url", "words"),
    [
        (
            "memory:?max_alert=3",
            r"there is no option 'max_alert'; did you mean 'max_alerts'\?",
        ),
        ("memory:?zzz=3", r"there is no option 'zzz'\.  Try: max_alerts, max_messages or full"),
        ("memory:?max_alerts=0", r"max_alerts='0' is not a whole number above 0"),
        ("memory:?max_alerts=", r"max_alerts='' is not a whole number above 0"),
        ("memory:?max_messages=many", r"max_messages='many' is not a whole number"),
        ("memory:?full=never", r"full='never' is none of block, drop-new, drop-old"),
    ],
)
def test_urls_that_do_not_fit(url, words):
    for opening in (open_sink, open_source):
        with pytest.raises(UsageError, match=words):
            opening(url)


def test_two_writers_do_not_share_a_name():
    sink = open_sink("memory:crowd?full=drop-new")
    with pytest.raises(
        UsageError, match="memory:crowd is open already, and nobody is at its other"
    ):
        open_sink("memory:crowd")
    with pytest.raises(UsageError, match=r"memory:crowd is open with full=drop-new"):
        open_source("memory:crowd?full=block")
    assert open_source("memory:crowd").channel is sink.channel


def test_every_kind_of_message_is_known():
    kinds = {type(message) for tiny in TINY_TRACES for message in tiny.messages()}
    assert kinds == {JobStarted, AlertSlice, JobEnded}
