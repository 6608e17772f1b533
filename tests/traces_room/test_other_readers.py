"""Others read what we write: the ``datasets`` library as the card shows, Polars, DuckDB."""

from __future__ import annotations

import json

import duckdb
import polars as pl
import pytest

from replay.traces import open as open_trace
from replay.traces import write

JOB_COLUMNS = ["job_id", "start_time", "end_time", "gpu_generation", "ip_status"]
EVENT_COLUMNS = ["job_id", "ip", "event_time", "event"]


@pytest.fixture
def trace(good):
    return open_trace("texts.jsonl")


@pytest.fixture
def tables(trace, tmp_path):
    return write(trace, tmp_path / "tables", "parquet")


@pytest.fixture
def load_dataset(tmp_path, monkeypatch):
    """The real one, offline, with its cache in a folder of the test."""
    import datasets  # noqa: PLC0415 - slow to import, and only needed here

    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)

    def load(path, *names, **options):
        return datasets.load_dataset(
            str(path), *names, split="train", cache_dir=str(tmp_path / "cache"), **options
        )

    return load


def test_two_configurations_as_the_card_shows(trace, tables, load_dataset):
    (job,) = load_dataset(tables, "jobs")
    assert list(job) == JOB_COLUMNS
    assert list(json.loads(job["ip_status"]).items()) == list(trace.jobs[0].ip_status.items())
    assert load_dataset(tables).column_names == JOB_COLUMNS
    events = load_dataset(tables, "events")
    assert events.column_names == EVENT_COLUMNS
    assert events["event"][:] == trace.events.column("event").to_pylist()
    assert {str(feature.dtype) for feature in events.features.values()} == {"string"}


def test_lines_as_json(trace, tmp_path, load_dataset):
    path = write(trace, tmp_path / "trace.jsonl")
    (job,) = load_dataset("json", data_files=str(path))
    assert [event["ip"] for event in job["events"]] == trace.events.column("ip").to_pylist()


def test_what_datasets_writes_is_read_again(trace, tables, tmp_path, load_dataset):
    again = tmp_path / "again"
    again.mkdir()
    for name in ("jobs", "events"):
        load_dataset(tables, name).to_parquet(again / f"{name}.parquet", batch_size=3)
    assert open_trace(again) == trace


def test_polars_and_duckdb(trace, tables):
    kinds = trace.events.column("event").to_pylist()
    assert pl.read_parquet(tables / "events.parquet")["event"].to_list() == kinds
    with duckdb.connect() as database:
        found = database.sql(f"select event from read_parquet('{tables}/events.parquet')")
        rows = found.fetchall()
    assert [row[0] for row in rows] == kinds
    frame = pl.from_arrow(trace.events)
    assert frame["ip"].cast(pl.String).to_list() == trace.events.column("ip").to_pylist()
