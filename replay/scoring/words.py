"""A column of words as numbers: what both the truth and the log are joined by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["coded"]


def coded(column: pa.ChunkedArray[Any]) -> tuple[NDArray[np.int64], list[str]]:
    """Codes of a dictionary column, -1 where it is null, and the words they stand for.

    Examples:
        >>> import pyarrow as pa
        >>> column = pa.chunked_array([["b", None, "a"], ["b"]]).dictionary_encode()
        >>> coded(column)
        (array([ 0, -1,  1,  0]), ['b', 'a'])

    """
    whole = cast("pa.DictionaryArray[Any, Any]", column.unify_dictionaries().combine_chunks())
    codes = np.asarray(whole.indices.fill_null(-1).to_numpy(zero_copy_only=False), np.int64)
    return codes, [str(word) for word in whole.dictionary.to_pylist()]
