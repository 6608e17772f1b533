"""The many ways in which Arrow may hold text, and times that could be text, made one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["NAMES", "Column", "as_list", "as_names", "as_text", "misfit", "utf8_faults"]

Column = Any
"""An Arrow array; of what type is known only at run time, so the type checker is told nothing."""

NAMES = pa.dictionary(pa.int32(), pa.string())
"""The type that columns of few words and many rows have in memory."""

_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BYTES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)


def misfit(kind: pa.DataType, *, time: bool = False) -> str | None:
    """Why a column of this type cannot be one of a trace's texts; None when it can.

    Args:
        kind: The column's type.
        time: Whether it holds times, which may also be timestamps without a zone.
    """
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if any(fits(kind) for fits in (*_TEXTS, *_BYTES)):
        return None
    if time and pa.types.is_timestamp(kind):
        zoned = f"timestamps of zone {kind.tz}, where the trace's clock has none"
        return zoned if kind.tz is not None else None
    return f"{kind} in place of text"


def as_text(column: Column) -> Column:
    """The column as ``string``, or as ``dictionary<int32, string>`` where it was a dictionary.

    Bytes are taken for UTF-8 unseen, so :func:`utf8_faults` comes next.

    Examples:
        >>> as_text(pa.array([0, 1_500], pa.timestamp("ms"))).to_pylist()
        ['1970-01-01 00:00:00', '1970-01-01 00:00:01.5']

    """
    kind = column.type
    if kind in {pa.string(), NAMES}:
        return column
    if pa.types.is_dictionary(kind):
        indices, words = column.indices.cast(pa.int32()), as_text(column.dictionary)
        return pa.DictionaryArray.from_arrays(indices, words)
    if any(fits(kind) for fits in _BYTES):
        return column.cast(pa.binary()).view(pa.string())
    text = column.cast(pa.string())
    if pa.types.is_timestamp(kind) and kind.unit != "s":
        text = pc.replace_substring_regex(text, r"(\.[0-9]*[1-9])0+$", r"\1")
        text = pc.replace_substring_regex(text, r"\.0+$", "")
    return text


def as_names(column: Column) -> Column:
    """Any text column as ``dictionary<int32, string>``, with no null among its words."""
    text = as_text(column)
    if not pa.types.is_dictionary(text.type):
        return text.dictionary_encode()
    return text.dictionary_decode().dictionary_encode() if text.dictionary.null_count else text


def as_list(column: Column) -> list[str]:
    """A column of text as strings; spelt out first, since Arrow lists dictionaries slowly."""
    texts: list[str] = column.cast(pa.string()).to_pylist()
    return texts


def utf8_faults(text: Column) -> NDArray[np.bool_] | None:
    """Which rows of a text column are not UTF-8, bool[n]; None when all are.

    Raises:
        pa.ArrowInvalid: The column is broken in some other way.
    """
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        if not pa.types.is_dictionary(text.type):
            return _undecodable(text)
        text.indices.validate(full=True)
        codes: NDArray[np.int32] = text.indices.fill_null(0).to_numpy()
        return _undecodable(text.dictionary)[codes]
    return None


def _undecodable(text: Column) -> NDArray[np.bool_]:
    faulty: NDArray[np.bool_] = np.zeros(len(text), bool)
    for i, raw in enumerate(text.view(pa.binary()).to_pylist()):
        try:
            (raw or b"").decode()
        except UnicodeDecodeError:
            faulty[i] = True
    return faulty
