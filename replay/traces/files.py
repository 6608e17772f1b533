"""Files as bytes and lines: regular ones only, unpacked, and known not to be something else."""

from __future__ import annotations

import io
import os
import stat
from typing import IO, TYPE_CHECKING

import pyarrow as pa

from replay.errors import TraceError
from replay.traces.findings import Place, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replay.traces.findings import Findings

__all__ = [
    "PARQUET_MAGIC",
    "Lines",
    "head",
    "open_bytes",
    "read_text",
    "require_file",
    "unreadable",
]

PARQUET_MAGIC = b"PAR1"

_PACKED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_LONGEST_LINE = 1 << 30
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_IMPOSTORS = (
    (b"version https://git-lfs", "a Git LFS pointer in place of the data", "git lfs pull"),
    (b"<!doctype html", "a web page in place of the data", "download the file itself"),
    (b"<html", "a web page in place of the data", "download the file itself"),
    (b"<?xml", "an XML document in place of the data", "download the file itself"),
    (b"pk\x03\x04", "a zip archive in place of the data", "unpack it"),
)


def require_file(path: str) -> None:
    """Make sure that a path names a regular file, without opening it.

    Raises:
        TraceError: It does not; a named pipe, for one, would never end.
    """
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        if os.path.islink(path):
            target = shown(os.readlink(path))
            raise TraceError("a link to what is not there", path, value=target) from None
        raise TraceError("there is no such file", path) from None
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "something else")
        raise TraceError(f"{kind} in place of a file", path, remedy="name a regular file")


def open_bytes(path: str) -> IO[bytes]:
    """Open a file; gzip and zstd are unpacked, by content and not by name.

    Raises:
        TraceError: It is no regular file, cannot be opened, or plainly is something else.
    """
    require_file(path)
    try:
        stream = open(path, "rb")  # noqa: SIM115 - handed on; the caller closes it
        start = stream.peek(512)
    except OSError as error:
        raise unreadable(path, error) from None
    for magic, codec in _PACKED.items():
        if start.startswith(magic):
            unpacked = pa.CompressedInputStream(pa.PythonFile(stream), codec)
            return io.BufferedReader(unpacked, 1 << 20)
    begin = start.lstrip().lower()
    for magic, what, remedy in _IMPOSTORS:
        if begin.startswith(magic):
            stream.close()
            raise TraceError(what, path, 1, remedy=remedy)
    return stream


def head(path: str, size: int = 64) -> bytes:
    """The first bytes of a file, unpacked.

    Raises:
        TraceError: It cannot be read.
    """
    with open_bytes(path) as stream:
        try:
            return stream.read(size)
        except OSError as error:
            raise unreadable(path, error) from None


def read_text(path: str, findings: Findings) -> str | None:
    """A whole text file; None when something in it was refused.

    Raises:
        TraceError: It cannot be read, or something is wrong in it and ``findings`` are strict.
    """
    before = findings.errors
    text = "".join(Lines(path, findings))
    return text if findings.errors == before else None


class Lines:
    """The lines of a text file, each with its end; a faulty one is reported and left out.

    Args:
        path: The file, packed or not.
        findings: Takes what is wrong.

    Attributes:
        number: Number of the newest line, from 1.
    """

    def __init__(self, path: str, findings: Findings) -> None:
        self.path = path
        self.findings = findings
        self.number = 0

    def __iter__(self) -> Iterator[str]:
        with open_bytes(self.path) as stream:
            while raw := self._next(stream):
                self.number += 1
                text = self._decode(raw)
                if text is not None:
                    yield text

    @property
    def place(self) -> Place:
        """Where the newest line stands."""
        return Place(self.path, self.number)

    def _next(self, stream: IO[bytes]) -> bytes:
        try:
            raw = stream.readline(_LONGEST_LINE)
        except OSError as error:
            what, remedy = f"cannot be unpacked: {error}", "was the file cut off?"
            self.findings.error("truncated", what, Place(self.path, self.number + 1), remedy=remedy)
            return b""
        if len(raw) == _LONGEST_LINE:
            what = f"a line of more than {_LONGEST_LINE} bytes"
            self.findings.error("too-long", what, Place(self.path, self.number + 1))
            return b""
        return raw

    def _decode(self, raw: bytes) -> str | None:
        if self.number == 1 and raw.startswith(b"\xef\xbb\xbf"):
            self.findings.warn("bom", "a byte order mark, skipped", self.place)
            raw = raw[3:]
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            value = raw[error.start : error.end].decode("ascii", "backslashreplace")
            what = f"not UTF-8, at byte {error.start + 1} of the line"
            self.findings.error("not-text", what, self.place, value=value, remedy="save as UTF-8")
            return None
        if "\0" in text:
            self.findings.error("not-text", "a NUL character", self.place, remedy="remove it")
            return None
        return text


def unreadable(path: str, error: Exception) -> TraceError:
    """What the system says about a path, as our error."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return TraceError(f"cannot be read: {reason[:1].lower()}{reason[1:]}", path)
