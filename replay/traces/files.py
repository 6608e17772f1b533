"""Files as bytes and lines: regular ones only, unpacked, and known not to be something else."""

from __future__ import annotations

import io
import stat
from typing import IO, TYPE_CHECKING, Any, Literal

import pyarrow as pa

from replay.errors import TraceError
from replay.traces.findings import Place, shown

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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

_BOM = b"\xef\xbb\xbf"
_PACKED: dict[bytes, Literal["gzip", "zstd"]] = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
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


def require_file(path: Path) -> None:
    """Make sure that a path names a regular file, without opening it.

    Raises:
        TraceError: It does not; a named pipe, for one, would never end.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        if path.is_symlink():
            target = shown(str(path.readlink()))
            raise TraceError("a link to what is not there", str(path), value=target) from None
        raise TraceError("there is no such file", str(path)) from None
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "something else")
        raise TraceError(f"{kind} in place of a file", str(path), remedy="name a regular file")


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file; gzip and zstd are unpacked, by content and not by name.

    Raises:
        TraceError: It is no regular file, cannot be opened, or plainly is something else.
    """
    require_file(path)
    try:
        stream = path.open("rb")
        start = stream.peek(512)
    except OSError as error:
        raise unreadable(path, error) from None
    for magic, codec in _PACKED.items():
        if start.startswith(magic):
            unpacked: Any = pa.CompressedInputStream(pa.PythonFile(stream), codec)
            return io.BufferedReader(unpacked, 1 << 20)
    begin = start.lstrip().lower()
    for magic, what, remedy in _IMPOSTORS:
        if begin.startswith(magic):
            stream.close()
            raise TraceError(what, str(path), 1, remedy=remedy)
    return stream


def head(path: Path, size: int = 64) -> bytes:
    """The first bytes of a file, unpacked.

    Raises:
        TraceError: It cannot be read.
    """
    with open_bytes(path) as stream:
        try:
            return stream.read(size)
        except (OSError, pa.ArrowException) as error:
            what = f"cannot be unpacked: {str(error).lower()}"
            raise TraceError(what, str(path), remedy="fetch the file again") from None


def read_text(path: Path, findings: Findings) -> str | None:
    """A whole text file; None when something in it was refused.

    Raises:
        TraceError: It cannot be read, or something in it is wrong and ``findings`` are strict.
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

    def __init__(self, path: Path, findings: Findings) -> None:
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
        return Place(str(self.path), self.number)

    def _next(self, stream: IO[bytes]) -> bytes:
        try:
            raw = stream.readline(_LONGEST_LINE)
        except (OSError, pa.ArrowException) as error:
            what = f"cannot be unpacked further: {str(error).lower()}"
            return self._end("truncated", what, "fetch the file again")
        if len(raw) == _LONGEST_LINE:
            return self._end(
                "too-long", f"a line of {_LONGEST_LINE} bytes or more", "check the file"
            )
        return raw

    def _end(self, kind: str, what: str, remedy: str) -> bytes:
        self.findings.error(kind, what, Place(str(self.path), self.number + 1), remedy=remedy)
        return b""

    def _decode(self, raw: bytes) -> str | None:
        if self.number == 1 and raw.startswith(_BOM):
            self.findings.warn("bom", "a byte order mark, skipped", self.place)
            raw = raw.removeprefix(_BOM)
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            value = raw[error.start : error.end].decode("ascii", "backslashreplace")
            what = f"not UTF-8, at byte {error.start + 1} of the line"
            self.findings.error("not-text", what, self.place, "", value, "save it as UTF-8")
            return None
        if "\0" in text:
            self.findings.error("not-text", "a NUL character", self.place, remedy="remove it")
            return None
        return text


def unreadable(path: Path, error: Exception) -> TraceError:
    """What the system says about a path, as our error."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return TraceError(f"cannot be read: {reason[:1].lower()}{reason[1:]}", str(path))
