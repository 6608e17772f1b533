"""The three forms hold the same trace, byte for byte in every text, in every direction."""

from __future__ import annotations

import gzip
import json
import resource
from datetime import datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.errors import ReplayError, TraceError, UsageError
from replay.traces import FORMS, natural_key, write
from replay.traces import open as open_trace
from replay.traces.times import parse_one


def texts():
    """Any text that a trace may hold."""
    characters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
    return st.text(characters, min_size=1, max_size=8)


def times():
    """Times as a trace may write them."""
    moments = st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1))  # noqa: DTZ001 - no zone
    fractions = st.one_of(st.just(""), st.from_regex(r"\.[0-9]{1,9}", fullmatch=True))
    return st.builds(
        lambda moment, separator, fraction: (
            f"{moment:%Y-%m-%d}{separator}{moment:%H:%M:%S}{fraction}"
        ),
        moments,
        st.sampled_from([" ", "T"]),
        fractions,
    )


@st.composite
def job_records(draw, ids):
    """One job as JSONL has it."""
    start, end = sorted([draw(times()), draw(times())], key=parse_one)
    nodes = draw(st.dictionaries(texts(), texts(), max_size=3))
    names = st.one_of(texts(), st.sampled_from(list(nodes))) if nodes else texts()
    events = st.fixed_dictionaries({"ip": names, "event_time": times(), "event": texts()})
    return {
        "job_id": draw(ids),
        "start_time": start,
        "end_time": end,
        "gpu_generation": draw(st.one_of(st.just(""), texts())),
        "ip_status": nodes,
        "events": draw(st.lists(events, max_size=5)),
    }


def job_lists():
    """The jobs of a trace as JSONL has them."""
    odd = ["Job1", "job1", "Job10", "CON", "../x", "a/b", "..", "/", "x" * 300]
    ids = st.one_of(texts(), st.sampled_from(odd))
    return st.lists(job_records(ids), min_size=1, max_size=3, unique_by=lambda job: job["job_id"])


def as_records(trace):
    """A trace as JSONL has it, spelt out without the writer under test."""
    bounds = trace.bounds
    return [
        {
            "job_id": job.id,
            "start_time": job.start_time,
            "end_time": job.end_time,
            "gpu_generation": job.gpu_generation,
            "ip_status": dict(job.ip_status),
            "events": trace.events.slice(bounds[i], bounds[i + 1] - bounds[i])
            .select(["ip", "event_time", "event"])
            .to_pylist(),
        }
        for i, job in enumerate(trace.jobs)
    ]


def write_lines(path, records):
    lines = [json.dumps(record, ensure_ascii=False) + "\n" for record in records]
    path.write_bytes("".join(lines).encode())
    return path


def in_order(records):
    return sorted(records, key=lambda record: natural_key(record["job_id"]))


@settings(max_examples=25)
@given(records=job_lists())
def test_every_form_gives_back_what_was_written(records, tmp_path_factory):
    folder = tmp_path_factory.mktemp("forms")
    trace = open_trace(write_lines(folder / "a.jsonl", records))
    assert as_records(trace) == in_order(records)
    for first in FORMS:
        once = open_trace(write(trace, folder / first, first))
        assert once.form == first
        assert once == trace
        assert as_records(once) == in_order(records)
        assert [list(job.ip_status) for job in once] == [list(job.ip_status) for job in trace]
        for second in FORMS:
            assert open_trace(write(once, folder / f"{first}-{second}", second)) == trace
    everything = sorted(path for path in folder.rglob("*") if path.is_file())
    named = [folder / "a.jsonl", *(folder / form for form in FORMS)]
    named += [folder / f"{first}-{second}" for first in FORMS for second in FORMS]
    assert all(any(path == root or root in path.parents for root in named) for path in everything)


JOB = {
    "job_id": "Job1",
    "start_time": "1969-10-15 13:49:13",
    "end_time": "1969-10-15 14:11:55",
    "gpu_generation": "Hopper",
    "ip_status": {"n1": "normal", "n2": "faulty"},
    "events": [
        {"ip": "n1", "event_time": "1969-10-15 13:49:24", "event": "nic_down"},
        {"ip": "n2", "event_time": "1969-10-15 13:49:25", "event": "gpu_lost"},
    ],
}


def jobs(*ids):
    return [{**JOB, "job_id": job_id} for job_id in ids]


@pytest.fixture
def trace(tmp_path):
    return open_trace(write_lines(tmp_path / "source.jsonl", jobs("Job1", "Job2", "Job10")))


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.gz", "t.jsonl.zst", "t.ndjson"])
def test_lines_may_be_packed(trace, tmp_path, name):
    assert open_trace(write(trace, tmp_path / name)) == trace


def test_packing_leaves_no_trace_of_the_clock(trace, tmp_path):
    first = write(trace, tmp_path / "a.jsonl.gz").read_bytes()
    assert write(trace, tmp_path / "b.jsonl.gz").read_bytes() == first


@pytest.mark.parametrize(
    "pack", [gzip.compress, lambda raw: pa.compress(raw, "zstd", asbytes=True)]
)
@pytest.mark.parametrize("ending", [".gz", ".zst", ""])
def test_packing_is_found_by_content(trace, tmp_path, pack, ending):
    folder = write(trace, tmp_path / "folders", "folders")
    for path in list(folder.rglob("*.*")):
        path.with_name(path.name + ending + "x").write_bytes(pack(path.read_bytes()))
        path.unlink()
        path.with_name(path.name + ending + "x").rename(path.with_name(path.name + ending))
    assert open_trace(folder) == trace


def test_a_path_may_be_many_things(trace, tmp_path):
    folders = write(trace, tmp_path / "up" / "folders", "folders")
    tables = write(trace, tmp_path / "tables", "parquet")
    for path in (folders, folders.parent, f"{folders}/Job*", f"{folders}/*/meta.json"):
        assert open_trace(path) == trace
    for path in (
        folders / "Job2",
        folders / "Job2" / "meta.json",
        folders / "Job2/event_report.csv",
    ):
        assert open_trace(path) == trace.job("Job2")
    for path in (tables, tables / "jobs.parquet", tables / "events.parquet", f"{tables}/*.parquet"):
        assert open_trace(path) == trace
    assert open_trace(str(write(trace, tmp_path / "folder-of-lines", "jsonl"))) == trace


def test_the_layout_of_a_hub(trace, tmp_path):
    root = tmp_path / "hub"
    write(trace.job("Job1"), root / "original", "folders")
    tables = write(trace, root / "data", "parquet")
    (tables / "README.md").rename(root / "README.md")
    write(trace, tmp_path / "trace.jsonl").rename(tables / "llm_alert_trace.jsonl")
    with pytest.raises(TraceError) as caught:
        open_trace(root)
    assert str(caught.value) == (
        f"{root}: several forms side by side: folders ({root}/original/Job1) and "
        f"jsonl ({root}/data/llm_alert_trace.jsonl) and parquet ({root}/data/events.parquet).  "
        "Try: --format parquet"
    )
    assert open_trace(root, form="folders") == trace.job("Job1")
    assert open_trace(root, form="jsonl") == trace
    assert open_trace(root, form="parquet") == trace


def test_shards_and_split_folders(trace, tmp_path):
    tables = write(trace, tmp_path / "tables", "parquet")
    events, listed = (pq.read_table(tables / f"{name}.parquet") for name in ("events", "jobs"))
    split = tmp_path / "split"
    for name, table in (("events", events), ("jobs", listed)):
        (split / name).mkdir(parents=True)
        for i, half in enumerate((table.slice(0, 2), table.slice(2))):
            pq.write_table(half, split / name / f"train-{i:05}-of-00002.parquet")
    assert open_trace(split) == trace
    flat = tmp_path / "flat"
    flat.mkdir()
    for i, half in enumerate((events.slice(0, 1), events.slice(1))):
        pq.write_table(half, flat / f"events-{i:05}-of-00002.parquet")
    pq.write_table(listed, flat / "jobs-00000-of-00001.parquet")
    assert open_trace(flat) == trace
    lines = tmp_path / "lines"
    lines.mkdir()
    write_lines(lines / "train-00000-of-00002.jsonl", jobs("Job10"))
    write_lines(lines / "train-00001-of-00002.jsonl", jobs("Job2", "Job1"))
    assert open_trace(lines) == trace


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "brotli", "zstd", "lz4"])
def test_every_codec_of_parquet(trace, tmp_path, compression):
    tables = write(trace, tmp_path / "tables", "parquet")
    for path in tables.glob("*.parquet"):
        pq.write_table(pq.read_table(path), path, compression=compression)
    assert open_trace(tables) == trace


TEXT_TYPES = [
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.binary(),
    pa.large_binary(),
    pa.dictionary(pa.int8(), pa.string()),
    pa.dictionary(pa.int64(), pa.large_string()),
]


@pytest.mark.parametrize("kind", TEXT_TYPES, ids=str)
@pytest.mark.parametrize("stored", [True, False], ids=["typed", "untyped"])
def test_every_sort_of_text_in_parquet(trace, tmp_path, kind, stored):
    tables = write(trace, tmp_path / "tables", "parquet")
    for path in tables.glob("*.parquet"):
        table = pq.read_table(path)
        columns = [as_type(column.combine_chunks(), kind) for column in table.columns]
        typed = pa.table(columns, table.column_names)
        pq.write_table(typed, path, store_schema=stored)
    assert open_trace(tables) == trace


def as_type(column, kind):
    if not pa.types.is_dictionary(kind):
        return column.cast(kind)
    codes = column.dictionary_encode()
    return pa.DictionaryArray.from_arrays(
        codes.indices.cast(kind.index_type), codes.dictionary.cast(kind.value_type)
    )


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("int96", [False, True], ids=["int64", "int96"])
def test_timestamps_without_a_zone(tmp_path, unit, int96):
    at = [
        "1969-10-15 13:49:24",
        "1969-12-31 23:59:59",
        "1970-01-01 00:00:00",
        "2001-09-09 01:46:40",
    ]
    if unit != "s":
        at[1] += {"ms": ".5", "us": ".000001", "ns": ".123456789"}[unit]
    events = [{"ip": "n1", "event_time": time, "event": "x"} for time in at]
    trace = open_trace(write_lines(tmp_path / "a.jsonl", [{**JOB, "events": events}]))
    tables = write(trace, tmp_path / "tables", "parquet")
    for path in tables.glob("*.parquet"):
        table = pq.read_table(path)
        for i, name in enumerate(table.column_names):
            if name.endswith("_time"):
                table = table.set_column(i, name, table.column(name).cast(pa.timestamp(unit)))
        pq.write_table(table, path, use_deprecated_int96_timestamps=int96)
    assert open_trace(tables) == trace


def test_rows_of_jobs_may_be_mixed_and_in_small_groups(tmp_path):
    ids = [f"Job{i}" for i in range(1, 13)]
    records = [{**JOB, "job_id": job_id, "events": JOB["events"] * 20} for job_id in ids]
    trace = open_trace(write_lines(tmp_path / "a.jsonl", records))
    tables = write(trace, tmp_path / "tables", "parquet")
    events = pq.read_table(tables / "events.parquet")
    mixed = events.take([i * 40 + k for k in range(40) for i in range(12)])
    pq.write_table(mixed, tables / "events.parquet", row_group_size=7)
    assert open_trace(tables) == trace
    by_name = events.sort_by("job_id")
    pq.write_table(by_name, tables / "events.parquet", row_group_size=50)
    assert open_trace(tables) == trace


def test_files_are_open_one_at_a_time(tmp_path):
    records = [{**JOB, "job_id": f"Job{i}"} for i in range(1, 151)]
    trace = open_trace(write_lines(tmp_path / "a.jsonl", records))
    tables = write(trace, tmp_path / "tables", "parquet")
    events = pq.read_table(tables / "events.parquet")
    (tables / "events.parquet").unlink()
    for i in range(150):
        shard = tables / f"events-{i:05}-of-00150.parquet"
        pq.write_table(events.slice(2 * i, 2), shard, row_group_size=1)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, most))
    try:
        assert open_trace(tables) == trace
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_very_many_jobs_may_be_mixed(tmp_path):
    records = [{**JOB, "job_id": f"Job{i}"} for i in range(1, 1102)]
    trace = open_trace(write_lines(tmp_path / "a.jsonl", records))
    tables = write(trace, tmp_path / "tables", "parquet")
    events = pq.read_table(tables / "events.parquet")
    mixed = events.take([i * 2 + k for k in range(2) for i in reversed(range(1101))])
    pq.write_table(mixed, tables / "events.parquet")
    assert open_trace(tables) == trace


def test_columns_stay_encoded_and_share_their_words(tmp_path):
    records = [{**JOB, "job_id": f"Job{i}"} for i in range(20)]
    trace = open_trace(write_lines(tmp_path / "a.jsonl", records))
    for form in FORMS:
        events = open_trace(write(trace, tmp_path / form, form)).events
        for name in ("ip", "event"):
            words = [chunk.dictionary.to_pylist() for chunk in events.column(name).chunks]
            assert all(each == words[0] for each in words)
            assert len(words[0]) == 2


def test_tables_are_small_words_in_plain_columns(trace, tmp_path):
    tables = write(trace, tmp_path / "tables", "parquet")
    for name in ("jobs", "events"):
        schema = pq.read_schema(tables / f"{name}.parquet")
        assert set(schema.types) == {pa.string()}


def test_nothing_is_overwritten(trace, tmp_path):
    for form in FORMS:
        target = write(trace, tmp_path / form, form)
        with pytest.raises(UsageError) as caught:
            write(trace, target, form)
        assert str(caught.value) == (
            f"{target} is there already.  Try: another name, or remove it first"
        )
    (tmp_path / "empty").mkdir()
    assert open_trace(write(trace, tmp_path / "empty", "folders")) == trace
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="is there already"):
        write(trace, tmp_path / "link", "jsonl")


@pytest.mark.parametrize(
    ("name", "form", "message"),
    [
        ("out", None, "In which form should {} be?  Try: --to folders|jsonl|parquet"),
        ("out", "csv", "There is no form 'csv'.  Try: one of folders, jsonl, parquet"),
        (
            "a.jsonl",
            "parquet",
            "{} is named as JSONL, but parquet is asked for.  Try: name a folder",
        ),
    ],
)
def test_the_form_must_fit_the_target(trace, tmp_path, name, form, message):
    with pytest.raises(UsageError) as caught:
        write(trace, tmp_path / name, form)
    assert str(caught.value) == message.format(tmp_path / name)


def test_a_failed_write_leaves_nothing(trace, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ReplayError, match="cannot be written"):
        write(trace, tmp_path / "file" / "out", "folders")
    (tmp_path / "out.partial").mkdir()
    with pytest.raises(UsageError, match="is left from an earlier try"):
        write(trace, tmp_path / "out", "folders")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "file",
        "out.partial",
        "source.jsonl",
    ]
