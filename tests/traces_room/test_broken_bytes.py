"""Bytes broken at random give a trace or one of our errors: no crash, no hang, nothing else."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.errors import TraceError, UsageError
from replay.traces import Findings, write
from replay.traces import open as open_trace
from replay.traces.reading import read

FIXTURES = Path(__file__).parent.parent / "traces"
TOKENS = [b'"', b",", b"\n", b"\r", b"{", b"}", b"[", b"]", b"\0", b"\xff", b"\\u", b"\xed\xa0\x80"]
TOKENS += [b"NaN", b"null", b"-", b"9" * 30, b"\xef\xbb\xbf", b"1969-10-15 13:49:13", b"PAR1", b" "]


@st.composite
def edits(draw):
    """A few changes: where (as a share of the length), how many bytes go, and what comes."""
    return draw(
        st.lists(
            st.tuples(
                st.floats(0, 1),
                st.integers(0, 40),
                st.one_of(st.binary(max_size=8), st.sampled_from(TOKENS)),
            ),
            min_size=1,
            max_size=4,
        )
    )


def attempt(reading):
    """What was read, or None where it was refused; any other error goes on."""
    try:
        return reading()
    except (TraceError, UsageError):
        return None


def broken(raw, changes):
    for share, gone, new in changes:
        at = int(share * len(raw))
        raw = raw[:at] + new + raw[at + gone :]
    return raw


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """One trace in every form, as file name → bytes."""
    trace = open_trace(FIXTURES / "good" / "unsorted")
    root = tmp_path_factory.mktemp("whole")
    lines = write(trace, root / "a.jsonl").read_bytes()
    folders = write(trace, root / "folders", "folders") / "Job1"
    tables = write(trace, root / "tables", "parquet")
    return {
        "lines": {"a.jsonl": lines},
        "gzip": {"a.jsonl.gz": gzip.compress(lines, mtime=0)},
        "zstd": {"a.jsonl.zst": pa.compress(lines, "zstd", asbytes=True)},
        "folder": {f"Job1/{path.name}": path.read_bytes() for path in folders.iterdir()},
        "tables": {path.name: path.read_bytes() for path in tables.glob("*.parquet")},
    }


@pytest.mark.parametrize("form", ["lines", "gzip", "zstd", "folder", "tables"])
def test_broken_bytes(whole, tmp_path_factory, form):
    root = tmp_path_factory.mktemp(form)
    files = whole[form]

    @settings(max_examples=80)
    @given(name=st.sampled_from(sorted(files)), changes=edits())
    def check(name, changes):
        for each, raw in files.items():
            path = root / each
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(broken(raw, changes) if each == name else raw)
        findings = Findings(strict=False)
        left = attempt(lambda: read(root, findings))
        strict = attempt(lambda: open_trace(root))
        assert strict is None or strict == left
        assert (strict is None) == (left is None or bool(findings.errors))
        assert all(str(finding) for finding in findings.shown)

    check()


@settings(max_examples=60)
@given(raw=st.one_of(st.binary(max_size=200), st.lists(st.sampled_from(TOKENS)).map(b"".join)))
def test_any_bytes_at_all(raw, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    path.write_bytes(raw)
    with pytest.raises((TraceError, UsageError)):
        open_trace(path)
