"""The one job that the data set's card prints, as we keep it and as the card writes it."""

from __future__ import annotations

import json
from pathlib import Path

from replay.traces import open as open_trace
from replay.traces import write

EXAMPLE = Path(__file__).parent.parent.parent / "data" / "card-example"

CARD = {
    "job_id": "Job1",
    "start_time": "1969-10-15 13:49:13",
    "end_time": "1969-10-15 14:11:55",
    "gpu_generation": "Hopper",
    "ip_status": {"47d7:25d3:c729:ae5a:d0c8:a53:1a9:ca8f": "normal"},
    "events": [
        {
            "ip": "ee23:95e7:f4cb:bed:e641:52f6:5c1:4823",
            "event_time": "1969-10-15 13:49:24",
            "event": "failed_to_forward",
        }
    ],
}


def test_the_example_is_the_cards(tmp_path):
    path = write(open_trace(EXAMPLE), tmp_path / "card.jsonl")
    assert json.loads(path.read_text()) == CARD
    assert list(json.loads(path.read_text())) == list(CARD)


def test_what_is_odd_about_it_is_said():
    trace = open_trace(EXAMPLE)
    assert trace.events.column("at").to_pylist() == [11_000_000_000]
    assert [finding.kind for finding in trace.findings.shown] == ["no-fault", "unlisted"]


def test_the_folders_come_back_as_they_are(tmp_path):
    copy = write(open_trace(EXAMPLE), tmp_path / "copy", "folders")
    for name in ("meta.json", "event_report.csv"):
        assert (copy / "Job1" / name).read_bytes() == (EXAMPLE / "Job1" / name).read_bytes()
