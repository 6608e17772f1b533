"""When detectors are woken, and how their verdicts are dated."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay.api import AlertBatch, Detector, Job, Verdict
from replay.errors import TransportError
from replay.host import JobHost
from replay.messages import AlertSlice, JobEnded, JobStarted, Watermark
from replay.plugins import DetectorSpec
from replay.testing import stream


def mark(at, epoch=0):
    return Watermark("hand-made", epoch, "Job1", at)


def told(said):
    return [(timed.at, timed.verdict.reason) for timed in said]


# --- the tie rule -----------------------------------------------------------------------------


def test_alerts_of_an_instant_come_before_its_wake_up(job, echo, feed):
    spec = DetectorSpec.of(echo, ahead=5.0, again=0)
    said = feed([spec], stream(job, [(0.0, "a", "x"), (5.0, "b", "y")], end=9.0))
    assert told(said) == [
        (0.0, "saw x"),
        (5.0, "saw y"),  # and the alarm moves on
        (9.0, "over"),
    ]


def test_wake_up_before_a_later_alert_has_its_own_time(job, echo, feed):
    spec = DetectorSpec.of(echo, ahead=5.0, again=1, step=3.0)
    said = feed([spec], stream(job, [(0.0, "a", "x"), (100.0, "b", "y")], end=101.0))
    assert told(said) == [
        (0.0, "saw x"),
        (5.0, "woken at 5.0"),
        (8.0, "woken at 8.0"),
        (100.0, "saw y"),
        (101.0, "over"),
    ]


def test_an_instant_in_pieces_is_complete_before_its_wake_up(job, feed):
    class AtOnce(Detector):
        """Decides when the instant is over."""

        def observe(self, alert):
            self.wake_at = alert.at
            self.nodes = [*getattr(self, "nodes", []), alert.node]
            return ()

        def advance(self, now):
            self.wake_at = None
            return [Verdict(None, reason="".join(self.nodes))]

    whole = stream(job, [(1.0, node, "x") for node in "abc"], end=9.0)
    batch = whole[1].batch
    pieces = [
        replace(
            whole[1],
            batch=AlertBatch(
                batch.job,
                batch.at,
                batch.seq[n : n + 1],
                batch.node[n : n + 1],
                batch.kind[n : n + 1],
                batch.nodes,
                batch.kinds,
            ),
        )
        for n in range(3)
    ]
    for messages in (whole, [whole[0], *pieces, whole[-1]], [whole[0], *pieces, mark(1.0)]):
        said = feed([AtOnce], messages)
        assert told(said) == [(1.0, "abc")]
        assert said[0].trigger_seq == 2


def test_alarm_in_the_past_rings_at_the_newest_alert(job, feed):
    class Late(Detector):
        """Asks for yesterday."""

        def observe(self, alert):
            self.wake_at = alert.at - 100
            return ()

        def advance(self, now):
            self.wake_at = None
            return [Verdict(None, reason=str(now))]

    said = feed([Late], stream(job, [(3.0, "a", "x"), (7.0, "a", "x")], end=9.0))
    assert told(said) == [(3.0, "3.0"), (7.0, "7.0")]


def test_watermark_wakes_up_to_and_including_its_time(job, echo):
    host = JobHost([DetectorSpec.of(echo, ahead=5.0, again=1, step=3.0)])
    host.feed(stream(job, [])[0])
    host.feed(stream(job, [(0.0, "a", "x")])[1])
    assert told(host.feed(mark(4.9))) == []
    assert told(host.feed(mark(5.0))) == [(5.0, "woken at 5.0")]
    assert told(host.feed(mark(5.0))) == []
    assert told(host.feed(mark(3.0))) == []
    assert told(host.feed(JobEnded("hand-made", 0, "Job1", 8.0, 1))) == [
        (8.0, "woken at 8.0"),
        (8.0, "over"),
    ]


def test_alarm_set_at_construction_waits_for_the_alerts_of_its_instant(job, feed):
    class FromStart(Detector):
        """Is woken at 0."""

        wake_at = 0.0

        def observe(self, alert):
            return [Verdict(None, reason="alert")]

        def advance(self, now):
            self.wake_at = None
            return [Verdict(None, reason="alarm")]

    said = feed([FromStart], stream(job, [(-5.0, "a", "x"), (0.0, "a", "x"), (1.0, "a", "x")]))
    assert told(said) == [(-5.0, "alert"), (0.0, "alert"), (0.0, "alarm"), (1.0, "alert")]


def test_job_entered_late_rings_old_alarms_at_the_entry(job, feed):
    class FromStart(Detector):
        """Is woken at 0."""

        wake_at = 0.0

        def observe(self, alert):
            return ()

        def advance(self, now):
            self.wake_at = None
            return [Verdict(None, reason="alarm")]

    messages = [JobStarted("r", 0, job, "", 50.0), JobEnded("r", 0, "Job1", 60.0, 0)]
    assert told(feed([FromStart], messages)) == [(50.0, "alarm")]


def test_infinity_never_rings(job, feed):
    class Never(Detector):
        """Is never woken."""

        wake_at = float("inf")

        def observe(self, alert):
            return ()

        def advance(self, now):
            raise AssertionError(now)

    assert feed([Never], [*stream(job, [(0.0, "a", "x")])[:-1], mark(float("inf"))]) == []


def test_wake_ups_of_several_detectors_are_told_in_order_of_time(job, echo, feed):
    specs = [
        DetectorSpec.of(echo, "slow", ahead=5.0, again=1, step=5.0),
        DetectorSpec.of(echo, "fast", ahead=2.0, again=3, step=2.0),
    ]
    said = feed(specs, stream(job, [(0.0, "a", "x"), (50.0, "a", "x")]))
    between = [(timed.at, timed.detector) for timed in said if 0 < timed.at < 50]
    assert between == [
        (2.0, "fast"), (4.0, "fast"), (5.0, "slow"), (6.0, "fast"), (8.0, "fast"), (10.0, "slow"),
    ]  # fmt: skip


# --- what is stamped ---------------------------------------------------------------------------


def test_stamps(job, echo, diary):
    host = JobHost([DetectorSpec.of(echo, ahead=5.0, again=0)], diary, wall=iter(range(9)).__next__)
    start, one, end = stream(job, [(2.0, "b", "x")], end=10.0, run="r7", epoch=3)
    one = replace(one, scheduled_wall=100.0, published_wall=100.5, catch_up=True)
    assert host.feed(start) == []
    alert, wake, last = host.feed(one) + host.feed(end)
    for number, timed in enumerate((alert, wake, last)):
        assert (timed.run, timed.epoch, timed.job) == ("r7", 3, "Job1")
        assert (timed.detector, timed.number) == ("Echo", number)
        assert timed.trigger_seq == 0
        assert timed.emitted_wall == number
        assert timed.catch_up
    assert [timed.at for timed in (alert, wake, last)] == [2.0, 7.0, 10.0]
    assert (alert.scheduled_wall, alert.published_wall) == (100.0, 100.5)
    assert (wake.scheduled_wall, wake.published_wall) == (None, None)
    assert (last.scheduled_wall, last.published_wall) == (None, None)
    assert diary.said == [alert, wake, last]


def test_virtual_time_has_no_wall_time(job, echo, feed):
    for timed in feed([echo], stream(job, [(2.0, "b", "x")], end=99.0)):
        assert (timed.scheduled_wall, timed.published_wall, timed.emitted_wall) == (None,) * 3
        assert not timed.catch_up


def test_no_alert_no_trigger(job, echo, feed):
    (last,) = feed([echo], stream(job, [], end=4.0))
    assert last.trigger_seq is None
    assert last.at == 4.0


# --- laws --------------------------------------------------------------------------------------

ALERTS = st.lists(
    st.tuples(st.integers(-20, 60).map(lambda n: n / 2), st.sampled_from("abc"), st.just("x")),
    max_size=12,
)
ECHO = st.fixed_dictionaries(
    {
        "ahead": st.sampled_from([-1.0, 0.0, 0.5, 3.0, 40.0]),
        "again": st.integers(0, 3),
        "step": st.sampled_from([0.25, 0.5, 2.0]),
    }
)


def reference(detector, messages):
    """The rule in its shortest form, for a stream without watermarks."""
    said, newest = [], 0.0

    def wake(before, last):
        nonlocal newest
        while detector.wake_at is not None:
            due = max(detector.wake_at, newest)
            if due > before or (due == before and not last):
                return
            said.extend((due, v.reason) for v in detector.advance(due))
            newest = due

    for message in messages[1:-1]:
        wake(message.batch.at, last=False)
        newest = message.batch.at
        said.extend((newest, v.reason) for v in detector.observe_batch(message.batch))
    end = messages[-1].at
    wake(end, last=True)
    return said + [(end, v.reason) for v in detector.finish()]


@given(alerts=ALERTS, options=ECHO, end=st.integers(0, 40))
def test_host_keeps_the_rule(echo, alerts, options, end):
    job = Job("Job1", ("a", "b", "c"))
    messages = stream(job, alerts, end=float(end))
    host = JobHost([DetectorSpec.of(echo, **options)])
    said = told(timed for message in messages for timed in host.feed(message))
    assert said == reference(echo(job, **options), messages)


@given(alerts=ALERTS, options=ECHO, data=st.data())
def test_watermarks_and_pieces_change_nothing(echo, alerts, options, data):
    job = Job("Job1", ("a", "b", "c"))
    messages = stream(job, alerts, end=30.0)
    plain = JobHost([DetectorSpec.of(echo, **options)])
    wanted = told(timed for message in messages for timed in plain.feed(message))

    host = JobHost([DetectorSpec.of(echo, **options)])
    said, passed = [], -10.0
    for message in messages:
        at = message.batch.at if isinstance(message, AlertSlice) else message.at
        if not isinstance(message, JobStarted):
            for step in data.draw(st.lists(st.floats(0, 1, exclude_max=True), max_size=3)):
                passed += (at - passed) * step if at > passed else 0.0
                if passed < at:
                    said += host.feed(mark(passed))
        if isinstance(message, AlertSlice) and len(message.batch) > 1:
            batch, cut = message.batch, data.draw(st.integers(1, len(message.batch) - 1))
            for part in (slice(None, cut), slice(cut, None)):
                columns = batch.seq[part], batch.node[part], batch.kind[part]
                piece = AlertBatch(batch.job, at, *columns, batch.nodes, batch.kinds)
                said += host.feed(replace(message, batch=piece))
        else:
            said += host.feed(message)
        if data.draw(st.booleans()) and not isinstance(message, JobStarted | JobEnded):
            said += host.feed(mark(at))
            passed = max(passed, at)
    assert told(said) == wanted
    assert [timed.number for timed in said] == list(range(len(said)))


def test_goes_on_after_pickling(job, feed):
    messages = stream(job, [(float(n), "abc"[n % 2], f"x{n}") for n in range(0, 40, 7)], end=60.0)
    # a detector of this test's own cannot be found by pickle; an installed one can
    spec = DetectorSpec.parse("first-alert")
    whole = feed([spec], messages)
    for cut in range(len(messages)):
        host = JobHost([spec])
        said = [timed for message in messages[:cut] for timed in host.feed(message)]
        host = pickle.loads(pickle.dumps(host))
        said += [timed for message in messages[cut:] for timed in host.feed(message)]
        assert said == whole
    assert whole


@pytest.mark.parametrize(
    ("before", "at"),
    [
        ([(10.0, "a", "x")], 9.0),  # behind another alert
        ([(10.0, "a", "x"), 12.0], 11.0),  # behind a watermark
        ([(10.0, "a", "x"), 12.0], 12.0),  # a watermark says its own instant is complete
        ([12.0], -5.0),
    ],
)
def test_alerts_after_their_time_are_refused(job, echo, before, at):
    host = JobHost([DetectorSpec.of(echo)])
    host.feed(stream(job, [])[0])
    for item in before:
        host.feed(mark(item) if isinstance(item, float) else stream(job, [item])[1])
    late = stream(job, [(at, "b", "y")])[1]
    late.batch.seq = late.batch.seq + len(before)
    with pytest.raises(TransportError, match=rf"Job1 at {at} s came too late"):
        host.feed(late)
