"""Alerts of a Prometheus become verdicts, each once, at the right time and in the right run."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from types import SimpleNamespace

import numpy as np
import pytest

from replay.api import AlertBatch, Job
from replay.cli.serving import Inbox, served
from replay.errors import TransportError
from replay.live import LiveRules
from replay.messages import AlertSlice, JobStarted
from replay.metrics import Metrics
from replay.timeline.tape import Slot
from replay.web import Notice

SECOND = 10**9
WALL = 1_000 * SECOND  # when the replay begins
SPEED = 10.0


class World:
    """A wall clock, and a player that keeps to it."""

    def __init__(self):
        self.now_s = 0.0
        self.status = "playing"
        self.epoch = 0
        self.stopping = False

    def unix_ns(self):
        return WALL + round(self.now_s * SECOND)

    def state(self):
        position = min(self.now_s * SPEED, 600.0) if self.status != "ready" else 0.0
        return SimpleNamespace(
            position_s=position, status=self.status, epoch=self.epoch, speed=SPEED
        )


def slot(name, end_s=600.0):
    job = Job(name, ("a", "b"), "A100")
    return Slot(job, "1970-01-01 00:00:00", 0, 0, round(end_s * SECOND), ("a", "b"), (), 0, 0)


@pytest.fixture
def world():
    return World()


@pytest.fixture
def said():
    return []


@pytest.fixture
def live(world, said):
    rules = LiveRules(["Hang", "Slow"], "r1", unix_ns=world.unix_ns, patience_s=0.0)
    timeline = SimpleNamespace(slots=(slot("Job1"), slot("Job2", 300.0)))
    rules.watch(timeline, world, said.append)
    return rules


def notice(starts_s, ends_s=None, *, alert="Hang", status="", **labels):
    labels = {"alertname": alert, "job_id": "Job1", "ip": "a", "replay": "r1"} | labels
    pairs = tuple(sorted((name, text) for name, text in labels.items() if text))
    ends = None if ends_s is None else WALL + round(ends_s * SECOND)
    return Notice(pairs, WALL + round(starts_s * SECOND), ends, status, "words")


def told(said, detector="prometheus:Hang"):
    return [
        (round(v.at, 6), v.job, v.verdict.node, v.verdict.action)
        for v in said
        if v.detector == detector
    ]


def test_firing_and_resolved(live, world, said):
    world.now_s = 10.2
    live.take([notice(10.0, 250.0)])
    world.now_s = 20.1
    live.take([notice(10.0, 20.0)])
    expected = [(102.0, "Job1", "a", "raise"), (201.0, "Job1", "a", "retract")]
    assert told(said) == told(said, "prometheus") == expected
    first = said[0]
    assert (first.run, first.number, first.verdict.reason) == ("r1", 0, "words")
    assert first.scheduled_wall == pytest.approx(1010.0)
    assert first.emitted_wall == pytest.approx(1010.2)
    assert live.document()["notices"] == {"taken": 2}


def test_told_again_and_again(live, world, said):
    world.now_s = 10.2
    for _ in range(3):
        live.take([notice(10.0, 250.0)])
    for _ in range(3):
        live.take([notice(10.0, 10.1)])
    assert len(told(said)) == 2
    assert live.document()["notices"] == {"again": 4, "taken": 2}


def test_both_roads_are_one(live, world, said):
    """The same alert, from the Prometheus itself and through an Alertmanager."""
    world.now_s = 10.2
    live.take([notice(10.0, 250.0)])
    live.take([notice(10.0, status="firing")])
    live.take([notice(10.0, 10.1, status="resolved")])
    live.take([notice(10.0, 10.1)])
    assert [action for *_, action in told(said)] == ["raise", "retract"]


def test_fired_again(live, world, said):
    for now in (10.0, 30.0):
        world.now_s = now + 1
        live.take([notice(now, 250.0)])
        live.take([notice(now, now + 0.5)])
    assert [action for *_, action in told(said)] == ["raise", "retract"] * 2


def test_an_end_that_got_lost(live, world, said):
    world.now_s = 11.0
    live.take([notice(10.0, 250.0)])
    world.now_s = 31.0
    live.take([notice(30.0, 270.0)])
    assert [action for *_, action in told(said)] == ["raise"]
    live.take([notice(30.0, 30.5)])
    assert [action for *_, action in told(said)] == ["raise", "retract"]


def test_the_first_blames_and_the_last_clears(live, world, said):
    world.now_s = 11.0
    live.take([notice(10.0, 250.0, event="x"), notice(10.0, 250.0, event="y")])
    live.take([notice(10.0, 250.0, alert="Slow")])
    live.take([notice(10.0, 10.5, event="x")])
    assert [action for *_, action in told(said)] == ["raise"]
    live.take([notice(10.0, 10.6, event="y")])
    assert [action for *_, action in told(said)] == ["raise", "retract"]
    assert [action for *_, action in told(said, "prometheus")] == ["raise"]
    live.take([notice(10.0, 10.7, alert="Slow")])
    assert [action for *_, action in told(said, "prometheus")] == ["raise", "retract"]


def test_over_before_it_was_heard_of(live, world, said):
    world.now_s = 11.0
    live.take([notice(10.0, 10.5, status="resolved")])
    assert [(at, action) for at, _, _, action in told(said)] == [
        (110.0, "raise"),
        (110.0, "retract"),
    ]


def test_without_a_node_the_job_is_blamed(live, world, said):
    world.now_s = 11.0
    live.take([notice(10.0, 250.0, ip="")])
    assert told(said) == [(110.0, "Job1", None, "raise")]


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (notice(10.0, replay="r0"), "another run"),
        (notice(10.0, alert="Other"), "unknown alert"),
        (notice(10.0, job_id="Job9"), "unknown job"),
        (notice(10.0, job_id=""), "unknown job"),
        (notice(-5.0), "before the start"),
        (notice(-5.0, replay=""), "before the start"),
        (notice(31.0, job_id="Job2"), "after the end"),
    ],
)
def test_strays(live, world, said, bad, why):
    world.now_s = 32.0
    live.take([bad])
    assert said == []
    assert live.document()["notices"] == {why: 1}


def test_one_job_needs_no_label(world, said):
    live = LiveRules(["Hang"], "r1", unix_ns=world.unix_ns)
    live.watch(SimpleNamespace(slots=(slot("Job1"),)), world, said.append)
    world.now_s = 11.0
    live.take([notice(10.0, job_id="")])
    assert told(said) == [(110.0, "Job1", "a", "raise")]


def test_what_comes_after_the_end(live, world, said):
    world.now_s = 59.9
    live.scraped()
    world.now_s, world.status = 60.5, "ended"
    live.take([notice(59.95, 250.0), notice(60.2, 250.0, ip="b")])
    assert told(said) == [(605.0, "Job1", "a", "raise")]
    assert live.document()["notices"] == {"after the end": 1, "taken": 1}


def test_a_jump_back_begins_anew(live, world, said):
    world.now_s = 11.0
    live.take([notice(10.0, 250.0)])
    world.epoch = 1
    live.published(JobStarted("r1", 1, Job("Job1", ("a",), ""), "1970-01-01 00:00:00"))
    world.now_s = 13.0
    live.take([notice(12.0, 250.0)])
    assert [(v.epoch, v.number) for v in said if v.detector == "prometheus"] == [(0, 0), (1, 0)]


def test_delays(live, world, said):
    def alerted(at, node):
        codes = np.array([node], np.int32)
        batch = AlertBatch("Job1", at, np.array([0]), codes, codes * 0, ("a", "b"), ("k",))
        live.published(AlertSlice("r1", 0, batch))

    alerted(20.0, 0)
    alerted(85.0, 0)
    alerted(95.0, 0)
    for scrape in (8.0, 9.0, 10.0):
        world.now_s = scrape
        live.scraped()
    world.now_s = 10.7
    live.take([notice(10.5, 250.0)])
    delays = live.document()["delays"]
    # first alert at 20, the one that decided at 95, seen at 100, evaluated at 105, told 0.2 s later
    assert delays["rule_s"]["p50"] == pytest.approx(75.0)
    assert delays["grid_s"]["p50"] == pytest.approx(10.0)
    assert delays["delivery_wall_s"]["p50"] == pytest.approx(0.2)


def test_nobody_scrapes(live):
    with pytest.raises(TransportError, match="No Prometheus has read the metrics twice"):
        live.begin()


def test_giving_up_is_no_failure(live):
    live.patience_s = 60.0
    live.begin(lambda: True)


def test_two_scrapes_begin_it(live):
    live.patience_s = 60.0
    waiting = threading.Thread(target=live.begin)
    waiting.start()
    while waiting.is_alive():
        live.scraped()
    waiting.join()


@pytest.fixture
def server(live):
    inbox = Inbox()
    inbox.live = live
    with served(":0", Metrics(), inbox) as running:
        yield running


def post(server, path, document):
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    request = urllib.request.Request(server.url + path, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def test_over_http(server, live, world, said):
    world.now_s = 11.0
    alert = {
        "labels": {"alertname": "Hang", "job_id": "Job1", "ip": "a"},
        "startsAt": "1970-01-01T00:16:50Z",
    }
    assert post(server, "/api/v2/alerts", [alert | {"endsAt": "1970-01-01T00:20:50Z"}])[0] == 200
    over = alert | {"status": "resolved", "endsAt": "1970-01-01T00:16:51Z"}
    hook = {"version": "4", "alerts": [over]}
    assert post(server, "/api/v1/webhook/alertmanager", hook)[0] == 200
    assert [action for *_, action in told(said)] == ["raise", "retract"]


@pytest.mark.parametrize("path", ["/api/v2/alerts", "/api/v1/webhook/alertmanager"])
@pytest.mark.parametrize("body", [b"", b"[", b"[[1]]", b'{"alerts": [{"labels": 1}]}', b"\xff"])
def test_bad_bodies_over_http(server, said, path, body):
    status, answer = post(server, path, body)
    assert status == 400
    assert answer
    assert b"Traceback" not in answer
    assert said == []
