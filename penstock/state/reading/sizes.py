"""Measures and compares the values of a column, whatever its type, without a Python object per value."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Sizes = npt.NDArray[np.int64]
_OFFSET_BYTES = 4


def value_bytes(array: pa.Array) -> Sizes:
    """Return the size of each value in bytes, offsets of variable-size values included."""
    kind = array.type
    if pa.types.is_struct(kind):
        return sum((value_bytes(child) for child in array.flatten()), np.zeros(len(array), np.int64))
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        offsets = array.offsets.to_numpy().astype(np.int64)
        sizes = value_bytes(_children(array, offsets))
        ends = np.concatenate([[0], np.cumsum(sizes)])
        starts = offsets - offsets[0]
        return np.asarray(ends[starts[1:]] - ends[starts[:-1]] + _OFFSET_BYTES)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        lengths = pc.binary_length(array).fill_null(0).to_numpy()
        return np.asarray(lengths.astype(np.int64) + _OFFSET_BYTES)
    return np.full(len(array), max(1, kind.bit_width // 8), np.int64)


def _children(array: pa.Array, offsets: Sizes) -> pa.Array:
    """Return the elements of a list column; of a map column, its entries."""
    start, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    if pa.types.is_map(array.type):
        columns = [array.keys.slice(start, count), array.items.slice(start, count)]
        return pa.StructArray.from_arrays(columns, names=["key", "value"])
    return array.values.slice(start, count)


def equal_values(one: pa.Array, other: pa.Array) -> npt.NDArray[np.bool_]:
    """Return which values of two columns of one type and length are equal. NaN equals NaN; maps are equal if their
    entries are so in their order.
    """
    kind = one.type
    nulls = np.asarray(one.is_null()), np.asarray(other.is_null())
    both, same_nulls = nulls[0] & nulls[1], nulls[0] == nulls[1]
    if pa.types.is_struct(kind):
        found = np.ones(len(one), np.bool_)
        for mine, theirs in zip(one.flatten(), other.flatten()):
            found &= equal_values(mine, theirs)
    elif pa.types.is_list(kind) or pa.types.is_map(kind):
        found = _equal_lists(one, other)
    elif pa.types.is_floating(kind):
        mine, theirs = (np.asarray(a.fill_null(0)) for a in (one, other))
        found = (mine == theirs) | (np.isnan(mine) & np.isnan(theirs))
    elif pa.types.is_null(kind):
        return np.ones(len(one), np.bool_)
    else:
        found = np.asarray(pc.equal(one, other).fill_null(False))
    return np.asarray(both | (found & same_nulls))


def _equal_lists(one: pa.Array, other: pa.Array) -> npt.NDArray[np.bool_]:
    offsets = [a.offsets.to_numpy().astype(np.int64) for a in (one, other)]
    lengths = [np.diff(o) for o in offsets]
    found: npt.NDArray[np.bool_] = lengths[0] == lengths[1]
    children = [_children(a, o) for a, o in zip((one, other), offsets)]
    wanted = [
        children[i].take(pa.array(_elements_of(np.flatnonzero(found), offsets[i] - offsets[i][0]))) for i in (0, 1)
    ]
    differing = ~equal_values(wanted[0], wanted[1])
    if differing.any():
        rows: npt.NDArray[Any] = np.repeat(np.flatnonzero(found), lengths[0][found])
        found[rows[differing]] = False
    return found


def _elements_of(rows: npt.NDArray[np.intp], offsets: Sizes) -> Sizes:
    """Return the indexes of the elements of these lists, in order."""
    lengths = offsets[rows + 1] - offsets[rows]
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.asarray(np.arange(total) + np.repeat(offsets[rows] - (ends - lengths), lengths))
