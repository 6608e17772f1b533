"""The many ways in which Arrow may hold text, and times that could be text, made one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from numpy.typing import NDArray

Number = TypeVar("Number", bound=np.generic)

__all__ = ["NAMES", "Column", "as_list", "as_names", "as_text", "misfit", "picked", "utf8_faults"]

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


def picked(values: NDArray[Number], codes: Column) -> NDArray[Number]:
    """The values that codes stand for; Arrow follows int32 several times faster than numpy.

    Args:
        values: What to pick from.
        codes: An Arrow array of places in ``values``, none null.

    Examples:
        >>> picked(np.array([7, 8]), pa.array([1, 0, 1], pa.int32()))
        array([8, 7, 8])

    """
    found: NDArray[Number] = pa.array(values).take(codes).to_numpy()
    return found


def utf8_faults(text: Column) -> NDArray[np.bool_] | None:
    """Which rows of a text column are not UTF-8, bool[n]; None when all are.

    Raises:
        pa.ArrowInvalid: The column is broken in some other way.
    """
    coded = pa.types.is_dictionary(text.type)
    words = text.dictionary if coded else text
    if coded:
        _check_codes(text.indices, len(words))
    try:
        words.validate(full=True)
    except pa.ArrowInvalid:
        faulty = _undecodable(words)
        return faulty[text.indices.fill_null(0).to_numpy()] if coded else faulty
    return None


def _check_codes(codes: Column, words: int) -> None:
    """What a whole validation of a dictionary array also looks at, in a fraction of the time."""
    codes.validate()
    ends = pc.min_max(codes)
    lowest, highest = ends["min"].as_py(), ends["max"].as_py()
    if lowest is not None and not 0 <= lowest <= highest < words:
        raise pa.ArrowInvalid(f"a code outside the dictionary: {lowest} to {highest} of {words}")


def _undecodable(text: Column) -> NDArray[np.bool_]:
    faulty: NDArray[np.bool_] = np.zeros(len(text), bool)
    for i, raw in enumerate(text.view(pa.binary()).to_pylist()):
        try:
            (raw or b"").decode()
        except UnicodeDecodeError:
            faulty[i] = True
    return faulty
