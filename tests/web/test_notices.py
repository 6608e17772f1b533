"""What strangers post: read as it is meant, or refused with a reason."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay.web import BadNotices, Notice, of_alerts, of_webhook

LABELS = {"alertname": "Hang", "ip": "10.0.0.1"}
SECOND = 10**9
PROMETHEUS = [
    {
        "annotations": {"summary": "node hangs", "runbook": "x"},
        "endsAt": "1970-01-01T00:04:01.5Z",
        "startsAt": "1970-01-01T00:00:01.5Z",
        "generatorURL": "http://host/graph",
        "labels": LABELS,
    }
]
ALERTMANAGER = {
    "receiver": "alert-replay",
    "status": "firing",
    "alerts": [
        {
            "status": "firing",
            "labels": LABELS,
            "annotations": {"description": "told"},
            "startsAt": "1970-01-01T01:00:01.123456789+01:00",
            "endsAt": "0001-01-01T00:00:00Z",
            "fingerprint": "abc",
        },
        {
            "status": "resolved",
            "labels": LABELS,
            "annotations": {},
            "startsAt": "1969-12-31T23:59:59Z",
            "endsAt": "1970-01-01T00:00:00Z",
        },
    ],
    "version": "4",
    "truncatedAlerts": 0,
}


def body(document):
    return json.dumps(document).encode()


def test_of_a_prometheus():
    pairs = (("alertname", "Hang"), ("ip", "10.0.0.1"))
    (notice,) = of_alerts(body(PROMETHEUS))
    assert notice == Notice(pairs, 15 * SECOND // 10, 2415 * SECOND // 10, "", "node hangs")
    assert notice.alert == "Hang"
    assert not notice.resolved(2 * SECOND)
    assert notice.resolved(300 * SECOND)


def test_of_an_alertmanager():
    firing, resolved = of_webhook(body(ALERTMANAGER))
    assert (firing.starts_ns, firing.ends_ns, firing.words) == (1_123_456_789, None, "told")
    assert not firing.resolved(10**20)
    assert (resolved.starts_ns, resolved.ends_ns) == (-SECOND, 0)
    assert resolved.resolved(-(10**20))


def test_labels_without_a_value_are_none():
    (notice,) = of_alerts(body([{"labels": {**LABELS, "zone": ""}}]))
    assert dict(notice.labels) == LABELS
    assert notice.starts_ns is None


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "not JSON"),
        (b"[", "not JSON"),
        (b"\xff", "not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b"1" * 10_000, "not"),
        (b"{}", "not a list"),
        (b"[1]", "alert 0: it is not an object"),
        (b'[{"labels": {"alertname": "a"}}, {}]', "alert 1: labels is not an object"),
        (b'[{"labels": {"alertname": 1}}]', "alert 0: labels is not an object of texts"),
        (b'[{"labels": {"ip": "a"}}]', "alert 0: labels has no alertname"),
        (b'[{"labels": {"alertname": "\\ud800"}}]', "half a character"),
        (b'[{"labels": {"alertname": "a"}, "annotations": []}]', None),
        (b'[{"labels": {"alertname": "a"}, "annotations": [1]}]', "annotations is not"),
        (b'[{"labels": {"alertname": "a"}, "startsAt": "noon"}]', "startsAt is not a time"),
        (b'[{"labels": {"alertname": "a"}, "startsAt": 5}]', "startsAt is not a time"),
        (b'[{"labels": {"alertname": "a"}, "endsAt": "2026-02-30T00:00:00Z"}]', "endsAt is not"),
        (b'[{"labels": {"alertname": "a"}, "endsAt": "2026-01-01T00:00:00+99:00"}]', "endsAt"),
        (b'[{"labels": {"alertname": "a"}, "status": "odd"}]', "status is neither"),
        (b'[{"labels": {"alertname": "a"}, "status": []}]', "status is neither"),
    ],
)
def test_bad_lists(raw, words):
    if words is None:
        assert of_alerts(raw)
        return
    with pytest.raises(BadNotices, match=words):
        of_alerts(raw)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"[]", "not an object"),
        (b"{}", "alerts is not a list"),
        (b'{"version": "5", "alerts": []}', "version is not 4"),
    ],
)
def test_bad_documents(raw, words):
    with pytest.raises(BadNotices, match=words):
        of_webhook(raw)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["labels", "alerts", "startsAt", "endsAt", "status", "annotations", "alertname"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.binary(max_size=60) | values.map(body))
def test_anything_is_read_or_refused(raw):
    for read in (of_alerts, of_webhook):
        try:
            found = read(raw)
        except BadNotices as bad:
            assert bad.what  # noqa: PT017 - either way is fine, a traceback is not
        else:
            assert all(isinstance(notice, Notice) for notice in found)
