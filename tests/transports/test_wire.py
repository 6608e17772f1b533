"""The wire form: lossless, readable, unmoved by repeats, and clear about what it refuses."""

from __future__ import annotations

import json
import math
from zlib import crc32

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.api import AlertBatch, Job, Verdict
from replay.messages import AlertSlice, JobEnded, JobStarted, TimedVerdict, Watermark
from replay.transports.wire import (
    Counters,
    Decoder,
    Encoder,
    Judged,
    PoisonError,
    decode_verdict,
    encode_verdict,
    job_key,
    schema,
    verdict_id,
)

laws = settings(max_examples=60, deadline=None)
names = st.text(max_size=6)
walls = st.none() | st.floats(0, 2e9)
times = st.floats(-1e7, 1e7) | st.integers(-(10**16), 10**16).map(lambda ns: ns / 1e9)


def slice_of(job, at, seqs, nodes, kinds, *, run="r1", epoch=0, **more):
    """An alert slice with codes by first appearance."""
    node_names, kind_names = list(dict.fromkeys(nodes)), list(dict.fromkeys(kinds))
    return AlertSlice(
        run,
        epoch,
        AlertBatch(
            job,
            at,
            np.array(seqs, np.int64),
            np.array([node_names.index(node) for node in nodes], np.int32),
            np.array([kind_names.index(kind) for kind in kinds], np.int32),
            node_names,
            kind_names,
        ),
        **more,
    )


def plain(message):
    """A message as a value that can be compared."""
    if not isinstance(message, AlertSlice):
        return message
    batch = message.batch
    return (
        message.run,
        message.epoch,
        batch.alerts,
        message.scheduled_wall,
        message.published_wall,
        message.catch_up,
    )


@st.composite
def one_job(draw, job="Job1", run="r1"):
    """All messages of one job, whole."""
    epoch = draw(st.integers(0, 3))
    nodes = tuple(sorted(draw(st.sets(names, max_size=4))))
    start = draw(st.sampled_from(["1969-12-31 23:59:58", "2024-02-29T12:00:00.25", "", "noon"]))
    messages = [JobStarted(run, epoch, Job(job, nodes, draw(names)), start, draw(times))]
    seq = 0
    for at in sorted(draw(st.lists(times, max_size=6))):
        if draw(st.booleans()):
            if messages[-1] != Watermark(run, epoch, job, at):
                messages.append(Watermark(run, epoch, job, at))
            continue
        count = draw(st.integers(1, 4))
        who = draw(st.lists(names, min_size=count, max_size=count))
        what = draw(st.lists(names, min_size=count, max_size=count))
        messages.append(
            slice_of(
                job,
                at,
                range(seq, seq + count),
                who,
                what,
                run=run,
                epoch=epoch,
                scheduled_wall=draw(walls),
                published_wall=draw(walls),
                catch_up=draw(st.booleans()),
            )
        )
        seq += count
    ends = [m.batch.at if isinstance(m, AlertSlice) else m.at for m in messages[1:]]
    end = max(ends, default=0.0)
    messages.append(JobEnded(run, epoch, job, end, seq, draw(st.booleans())))
    return messages


def encode(messages):
    encoder = Encoder()
    return [value for message in messages for value in encoder.encode(message)]


def decode(values, **options):
    decoder = Decoder(**options)
    return [message for value in values for message in decoder.decode(value)], decoder.counters


SMALL = [
    JobStarted("r1", 0, Job("Job1", ("a", "b")), "1969-12-31 23:59:58"),
    slice_of("Job1", 1.0, [0, 1], ["b", "a"], ["x", "x"]),
    slice_of("Job1", 2.0, [2], ["c"], ["y"]),
    Watermark("r1", 0, "Job1", 5.0),
    slice_of("Job1", 6.0, [3], ["a"], ["x"]),
    JobEnded("r1", 0, "Job1", 9.0, 4),
]


@laws
@given(one_job())
def test_messages_come_back_as_they_were(messages):
    back, counters = decode(encode(messages))
    assert [plain(m) for m in back] == [plain(m) for m in messages]
    assert counters == Counters()


@laws
@given(one_job("Job1"), one_job("Job2"), st.randoms(use_true_random=False))
def test_jobs_may_be_interleaved(one, two, lots):
    encoder = Encoder()
    queues = [list(one), list(two)]
    values = []
    while any(queues):
        queue = lots.choice([queue for queue in queues if queue])
        values += encoder.encode(queue.pop(0))
    back, counters = decode(values)
    for job, messages in (("Job1", one), ("Job2", two)):
        assert [plain(m) for m in back if job_of(m) == job] == [plain(m) for m in messages]
    assert counters == Counters()


def job_of(message):
    if isinstance(message, JobStarted):
        return message.job.id
    return message.batch.job if isinstance(message, AlertSlice) else message.job


@laws
@given(one_job())
def test_every_record_fits_the_published_schema(messages):
    validator = jsonschema.Draft202012Validator(schema())
    for value in encode(messages):
        validator.validate(json.loads(value))


@laws
@given(one_job(), st.data())
def test_records_sent_again_change_nothing(messages, data):
    """A producer that resumes sends a tail again; any number of times."""
    values = encode(messages)
    low = data.draw(st.integers(0, len(values) - 1))
    cut = data.draw(st.integers(low, len(values)))
    again = values[low:cut] * data.draw(st.integers(1, 3))
    sent = values[:cut] + again + values[cut:]
    back, counters = decode(sent)
    assert [plain(m) for m in back] == [plain(m) for m in messages]
    assert (counters.gaps, counters.reorders, counters.corrupt) == (0, 0, 0)
    ticks = sum(b'"type":"tick"' in value for value in again)
    assert len(again) - ticks <= counters.duplicates <= len(again)


@laws
@given(one_job())
def test_codes_are_dense_and_by_first_appearance(messages):
    back, _ = decode(encode(messages))
    nodes, kinds = list(messages[0].job.nodes), []
    for message in back:
        if isinstance(message, AlertSlice):
            for alert in message.batch:
                nodes += [alert.node] if alert.node not in nodes else []
                kinds += [alert.kind] if alert.kind not in kinds else []
            assert list(message.batch.nodes) == nodes
            assert list(message.batch.kinds) == kinds


def other_spelling(value):
    """The same JSON object as another program would write it."""
    return json.dumps(json.loads(value), sort_keys=True).encode()


@laws
@given(one_job())
def test_the_spelling_does_not_matter(messages):
    """What we write is read in a shorter way than what others write, to the same end."""
    values = encode(messages)
    ours, theirs = decode(values)[0], decode(map(other_spelling, values))[0]
    assert [plain(m) for m in ours] == [plain(m) for m in theirs]
    for one, other in zip(ours, theirs, strict=True):
        if isinstance(one, AlertSlice):
            assert (one.batch.nodes, one.batch.kinds) == (other.batch.nodes, other.batch.kinds)
            assert one.batch.node.tolist() == other.batch.node.tolist()
            assert one.batch.kind.tolist() == other.batch.kind.tolist()


class Slow(Decoder):
    """Takes nothing for known."""

    def _known(self, value):
        return None


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_the_short_way_is_as_strict_as_the_long_one(data):
    values = encode(SMALL)
    place = data.draw(st.integers(1, len(values) - 1))
    bad = bytearray(values[place])
    for _ in range(data.draw(st.integers(1, 2))):
        bad[data.draw(st.integers(0, len(bad) - 1))] = data.draw(
            st.sampled_from(b'"\\\x00\n\x1f\x7f\x80\xc3\xff0123456789.-+eE,:{}[]tn A')
            | st.integers(0, 255)
        )
    values[place] = bytes(bad)
    told = []
    for decoder in (Decoder(), Slow()):
        came = []
        for value in values:
            try:
                came += [plain(message) for message in decoder.decode(value)]
            except PoisonError as error:
                came.append(error.args)
        told.append((came, decoder.counters))
    assert told[0] == told[1]


def test_names_seen_are_not_changed_by_what_comes_later():
    back, _ = decode(encode(SMALL))
    first = back[1].batch
    assert (list(first.nodes), list(first.kinds)) == (["a", "b"], ["x"])
    with pytest.raises(ValueError, match="read-only"):
        first.seq[0] = 7


def test_the_form_is_what_people_read():
    values = [value.decode() for value in encode(SMALL)]
    head = '"run":"r1","epoch":0,"job_id":"Job1"'
    assert values[:3] == [
        (
            f'{{"v":1,"type":"start",{head},"t":0.0,"start_time":"1969-12-31 23:59:58",'
            '"nodes":["a","b"],"gpu_generation":""}'
        ),
        (
            f'{{"v":1,"type":"alert",{head},"seq":0,"t":1.0,"event_time":"1969-12-31 23:59:59",'
            '"ip":"b","event":"x","more":true}'
        ),
        (
            f'{{"v":1,"type":"alert",{head},"seq":1,"t":1.0,"event_time":"1969-12-31 23:59:59",'
            '"ip":"a","event":"x"}'
        ),
    ]
    assert values[4] == (
        f'{{"v":1,"type":"tick",{head},"seq":3,"t":5.0,"event_time":"1970-01-01 00:00:03"}}'
    )


def test_the_checksum_is_the_crc_of_the_alert_values():
    values = encode(SMALL)
    crc = 0
    for value in values:
        if json.loads(value)["type"] == "alert":
            crc = crc32(value, crc)
    assert json.loads(values[-1])["checksum"] == f"{crc:08x}"


@pytest.mark.parametrize(
    ("start", "at", "text"),
    [
        ("1970-01-01 00:00:00", -1.0, "1969-12-31 23:59:59"),
        ("1969-10-15 13:49:24", 0.5, "1969-10-15 13:49:24.5"),
        ("2024-02-28T23:59:59.75", 0.25, "2024-02-29T00:00:00"),
        ("0001-01-01 00:00:00", -1.0, None),
        ("9999-12-31 23:59:59", 1.0, None),
        ("2024-02-30 00:00:00", 0.0, None),
        ("yesterday", 0.0, None),
    ],
)
def test_event_times_are_written_as_the_trace_writes_them(start, at, text):
    messages = [JobStarted("r1", 0, Job("Job1"), start), slice_of("Job1", at, [0], ["a"], ["x"])]
    assert json.loads(encode(messages)[1])["event_time"] == text


def test_odd_text_survives():
    odd = 'quote " newline \n surrogate \udc80 snowman ☃'
    messages = [
        JobStarted("r1", 0, Job(odd, (odd,), odd), odd),
        slice_of(odd, 0.0, [0], [odd], [odd]),
    ]
    back, _ = decode(encode(messages))
    assert [plain(m) for m in back] == [plain(m) for m in messages]
    assert job_key("☃") == "☃".encode()
    assert job_key(odd) == odd.encode("utf-8", "surrogatepass")


def edited(value, **changes):
    return json.dumps(json.loads(value) | changes).encode()


START, ALERT, _, _, TICK, _, END = encode(SMALL)


@pytest.mark.parametrize(
    ("value", "reason", "words"),
    [
        (None, "tombstone", "no value"),
        (b"\xff{}", "json", "not JSON"),
        (b"{", "json", "not JSON"),
        (b"[" * 100_000, "json", "not JSON"),
        (b"[1]", "json", "not an object but [1]"),
        (b"{}", "version", "v is None"),
        (edited(ALERT, v=2), "version", "v is 2, this reader knows 1"),
        (edited(ALERT, v=True), "version", "v is True"),
        (edited(ALERT, type="alarm"), "type", "type is 'alarm'"),
        (edited(ALERT, run=7), "field", "run is 7"),
        (edited(ALERT, job_id=None), "field", "job_id is None"),
        (edited(ALERT, seq="0"), "field", "seq is '0'"),
        (edited(ALERT, seq=-1), "field", "seq is -1, not a count"),
        (edited(ALERT, seq=10**30), "field", "not a count"),
        (edited(ALERT, seq=True), "field", "seq is True"),
        (edited(ALERT, t="1"), "field", "t is '1'"),
        (edited(ALERT, t=math.nan), "field", "t is nan"),
        (edited(ALERT, t=10**400), "field", "not a finite number"),
        (edited(ALERT, ip=None), "field", "ip is None"),
        (edited(ALERT, event=["x"]), "field", "event is ['x']"),
        (edited(ALERT, published_wall="now"), "field", "published_wall is 'now'"),
        (edited(ALERT, epoch=1), "no-start", "alert of 'Job1' in run 'r1', never started"),
        (edited(ALERT, job_id="Job2"), "no-start", "never started"),
        (edited(START, nodes="a"), "field", "nodes is 'a'"),
        (edited(START, nodes=[1], epoch=1), "field", "nodes holds"),
        (edited(END, count=0), "order", "more was read before"),
        (edited(END, complete=1), "field", "complete is 1"),
        (edited(ALERT, seq=2, t=-5.0), "order", "t goes back from 1.0 to -5.0"),
    ],
)
def test_a_poison_record_says_why_and_changes_nothing(value, reason, words):
    values = encode(SMALL)
    decoder = Decoder()
    back = [message for value in values[:3] for message in decoder.decode(value)]
    with pytest.raises(PoisonError) as caught:
        decoder.decode(value)
    assert caught.value.reason == reason
    assert words in str(caught.value)
    back += [message for value in values[3:] for message in decoder.decode(value)]
    assert [plain(m) for m in back] == [plain(m) for m in SMALL]
    assert decoder.counters == Counters()


@given(st.binary(max_size=40) | st.recursive(st.none() | st.integers() | st.text(), st.lists))
@laws
def test_anything_is_a_message_or_poison(thing):
    value = thing if isinstance(thing, bytes) else json.dumps(thing).encode()
    with pytest.raises(PoisonError):
        Decoder().decode(value)
    with pytest.raises(PoisonError):
        decode_verdict(value)


def test_unknown_fields_are_ignored():
    values = [edited(value, new={"a": 1}) for value in encode(SMALL)]
    back, counters = decode(values)
    assert [plain(m) for m in back] == [plain(m) for m in SMALL]
    assert counters == Counters(corrupt=1)  # the alerts are no longer the bytes that were summed


@pytest.mark.parametrize(
    ("order", "counters"),
    [
        ([0, 1, 2, 4, 5, 6], Counters(gaps=1)),  # one alert lost
        ([0, 1, 2, 3, 4, 6], Counters(gaps=1)),  # the last one lost: the end knows
        ([0, 2, 3, 4, 5, 6], Counters(gaps=1)),  # the first piece of a slice lost
        ([0, 1, 3, 2, 4, 5, 6], Counters(gaps=1, reorders=1)),
        ([0, 1, 2, 2, 3, 4, 5, 6, 6], Counters(duplicates=2)),
        ([0, 1, 2, 3, 4, 5, 6, 5, 4, 0], Counters(duplicates=3)),
        ([0, 4, 5, 6], Counters(gaps=3)),  # a tick knows what should have come
    ],
)
def test_losses_and_repeats_are_counted(order, counters):
    values = encode(SMALL)
    back, counted = decode([values[place] for place in order])
    assert counted == counters
    seqs = [alert.seq for m in back if isinstance(m, AlertSlice) for alert in m.batch]
    assert seqs == sorted(set(seqs))
    assert isinstance(back[-1], JobEnded)


def test_a_changed_alert_is_noticed_at_the_end():
    values = encode(SMALL)
    values[3] = edited(values[3], ip="z")
    assert decode(values)[1] == Counters(corrupt=1)


def test_a_new_epoch_begins_the_job_anew():
    again = [
        JobStarted("r1", 1, Job("Job1", ("a",)), "1969-12-31 23:59:58", 4.0),
        slice_of("Job1", 6.0, [0], ["a"], ["x"], epoch=1),
        JobEnded("r1", 1, "Job1", 9.0, 1),
    ]
    values = encode(SMALL[:3] + again)
    back, counters = decode([*values, values[1]])  # and a straggler of the old one
    assert [plain(m) for m in back] == [plain(m) for m in SMALL[:3] + again]
    assert counters == Counters(duplicates=1)


def test_one_run_can_be_read_alone():
    other = [JobStarted("r2", 0, Job("Job1"), ""), JobEnded("r2", 0, "Job1", 0.0, 0)]
    back, _ = decode(encode(SMALL) + encode(other), run="r2")
    assert back == other


def test_a_job_must_start_before_it_alerts():
    with pytest.raises(ValueError, match="'Job1' was never started"):
        Encoder().encode(SMALL[1])


verdicts = st.builds(
    TimedVerdict,
    names,
    st.integers(0, 9),
    names,
    names,
    st.integers(0, 99),
    times,
    st.builds(
        Verdict,
        st.none() | names,
        st.sampled_from(["raise", "retract"]),
        st.floats(allow_nan=False, allow_infinity=False),
        names,
        st.lists(st.integers(0, 99), max_size=3).map(tuple),
    ),
    st.none() | st.integers(0, 99),
    walls,
    walls,
    walls,
    st.booleans(),
)
closings = st.builds(
    Judged,
    names,
    st.integers(0, 9),
    names,
    times,
    st.integers(0, 99),
    st.integers(0, 99),
    st.booleans(),
    st.dictionaries(names, st.integers(0, 9), max_size=3),
    st.dictionaries(names, names, max_size=3),
)


@laws
@given(verdicts | closings)
def test_verdicts_come_back_as_they_were(said):
    value = encode_verdict(said)
    assert decode_verdict(value) == said
    jsonschema.validate(json.loads(value), schema())


VERDICT = encode_verdict(TimedVerdict("r1", 0, "burst", "Job1", 3, 2.0, Verdict("a")))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"type": "alert"}, "type is 'alert'"),
        ({"ip": 3}, "ip is 3"),
        ({"action": "shout"}, "action is 'shout'"),
        ({"score": math.inf}, "score is inf"),
        ({"evidence": ["a"]}, "evidence holds"),
        ({"evidence": None}, "evidence is None"),
        ({"number": -1}, "number is -1"),
    ],
)
def test_a_poison_verdict_says_why(changes, words):
    with pytest.raises(PoisonError) as caught:
        decode_verdict(edited(VERDICT, **changes))
    assert words in str(caught.value)


def test_a_verdict_has_one_id_for_ever():
    assert json.loads(VERDICT)["id"] == verdict_id("r1", 0, "burst", "Job1", 3)
    ids = {
        verdict_id("r1", 0, "burst", "Job1", 3),
        verdict_id("r1", 1, "burst", "Job1", 3),
        verdict_id("r", 10, "burst", "Job1", 3),
        verdict_id("r1", 0, "burst", "Job", 13),
    }
    assert len(ids) == 4
    assert verdict_id("r1", 0, "burst", "Job1", 0) == "a44eaa9f414e327b4922b354"
