"""Turns canonical keys into Arrow columns of the keys' own type, without a Python object per key where it is simple.

Checkpoints store keys in their canonical encoding: a tag byte, and a payload (`penstock.protocol.values.key_encoding`).
What the program has declared decides the type, as far as metadata know it; else the first key does.
"""

from __future__ import annotations

import struct
from typing import Any, Callable
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.common import scalar_types as scalars
from penstock.common.columns import ENCODING_ERRORS, ColumnType, whole
from penstock.protocol.values.key_encoding import decode
from penstock.state.backend import StateError

_INT64_BYTES = 9
_LENGTH_BYTES = 5
_EPOCH_ORDINAL = 719_163
_OF_INT64 = b"idwacf"
_ARROW_OF_TAG: dict[int, pa.DataType] = {
    ord("i"): pa.int64(),
    ord("f"): pa.float64(),
    ord("s"): pa.string(),
    ord("b"): pa.binary(),
    ord("d"): pa.date32(),
    ord("w"): pa.timestamp("us"),
    ord("a"): pa.timestamp("us", "UTC"),
    ord("c"): pa.time64("us"),
    ord("u"): pa.string(),
    ord("I"): pa.string(),
    ord("m"): pa.string(),
    ord("e"): pa.duration("us"),
}
_WINDOW_START = struct.Struct("<cI")
"""The head of a pair: its tag and how many values it has."""


class KeyReader:
    """Decodes the keys of one state. `declared`: their type; None: what the first key has. `described`: the state, for
    messages.
    """

    def __init__(self, described: str, declared: ColumnType | None = None) -> None:
        self._described = described
        self._declared = declared
        self._found: pa.DataType | None = None

    @property
    def arrow_type(self) -> pa.DataType | None:
        """Return the type of the column; None before the first key if nothing is declared."""
        return self._declared.arrow_type if self._declared is not None else self._found

    def decoded(self, keys: pa.Array) -> pa.Array:
        """Return the column of these canonical keys. Raises `StateError` for a key of another type."""
        if not len(keys):
            return pa.array([], self.arrow_type or pa.null())
        wanted = self.arrow_type
        tags = _tags(keys)
        kinds = set(np.flatnonzero(np.bincount(tags, minlength=1)).tolist())
        if wanted is None:
            wanted = _ARROW_OF_TAG.get(int(tags[0]))
        if wanted is not None and (columns := _fast(keys, kinds, wanted)) is not None:
            self._found = wanted
            return columns
        column = self._decoded_one_by_one(keys, wanted)
        self._found = column.type
        return column

    def _decoded_one_by_one(self, keys: pa.Array, wanted: pa.DataType | None) -> pa.Array:
        values = [decode(data) for data in keys.to_pylist()]
        make = self._encoder(wanted)
        try:
            return make(values)
        except ENCODING_ERRORS as error:
            raise self._refused(values, wanted, make, error) from None

    def _encoder(self, wanted: pa.DataType | None) -> Callable[[list[Any]], pa.Array]:
        declared = self._declared
        if declared is not None:
            return lambda values: whole(declared.encode_column(_as_declared(values, declared)))
        if wanted == pa.string():
            return lambda values: pa.array([v if isinstance(v, str) else _text(v) for v in values], pa.string())
        return lambda values: pa.array([_structure(v) for v in values], wanted)

    def _refused(
        self, values: list[Any], wanted: pa.DataType | None, make: Callable[[list[Any]], pa.Array], error: BaseException
    ) -> StateError:
        told = str(self._declared or wanted)
        way_out = "give the type that all keys have (key_type=Types....), or leave it out if one was given"
        for value in values:
            try:
                make([value])
            except ENCODING_ERRORS:
                return StateError(
                    f"{self._described}: the key {value!r:.80} ({type(value).__name__}) is no {told}; {way_out}"
                )
        return StateError(f"{self._described}: its keys are not all {told}: {error}; {way_out}")


def window_keys(keys: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Split canonical pairs (key, start of a window) into canonical keys and starts."""
    offsets, data = _buffers(keys)
    ends = offsets[1:]
    starts = np.empty((len(keys), 8), np.uint8)
    for at in range(8):
        starts[:, at] = data[ends - 8 + at]
    inner = pc.binary_slice(keys, _WINDOW_START.size, -_INT64_BYTES)
    return inner, pa.array(starts.view("<i8").reshape(-1))


def _buffers(keys: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    _, offsets, data = keys.buffers()
    all_offsets = np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    return all_offsets, np.frombuffer(data, np.uint8)


def _tags(keys: pa.Array) -> npt.NDArray[np.uint8]:
    offsets, data = _buffers(keys)
    tags: npt.NDArray[np.uint8] = data[offsets[:-1]]
    return tags


def _fast(keys: pa.Array, kinds: set[int], wanted: pa.DataType) -> pa.Array | None:
    """Return the column; None if that takes a look at each key."""
    if pa.types.is_string(wanted) and kinds == {ord("s")}:
        try:
            return pc.binary_slice(keys, _LENGTH_BYTES).cast(pa.string())
        except pa.ArrowInvalid:
            return None  # a lone surrogate, which UTF-8 has no place for
    if pa.types.is_binary(wanted) and kinds == {ord("b")}:
        return pc.binary_slice(keys, _LENGTH_BYTES)
    if not kinds <= set(_OF_INT64):
        return None
    offsets, data = _buffers(keys)
    rows = data[offsets[0] : offsets[-1]].reshape(-1, _INT64_BYTES)
    payload = np.ascontiguousarray(rows[:, 1:]).reshape(-1)
    return _of_payload(payload, rows[:, 0], kinds, wanted)


def _of_payload(
    payload: npt.NDArray[np.uint8], tags: npt.NDArray[np.uint8], kinds: set[int], wanted: pa.DataType
) -> pa.Array | None:
    numbers = payload.view("<i8")
    if kinds == {ord("i")}:
        if pa.types.is_integer(wanted):
            try:
                return pa.array(numbers).cast(wanted)
            except pa.ArrowInvalid:
                return None
        return pa.array(numbers.astype(np.float64)) if pa.types.is_float64(wanted) else None
    if kinds <= {ord("i"), ord("f")}:
        is_float = tags == ord("f")
        return pa.array(np.where(is_float, payload.view("<f8"), numbers)) if pa.types.is_float64(wanted) else None
    if kinds == {ord("d")} and pa.types.is_date32(wanted):
        return pa.array((numbers - _EPOCH_ORDINAL).astype(np.int32)).view(pa.date32())
    of_microseconds = {ord("w"): pa.timestamp("us"), ord("a"): pa.timestamp("us", "UTC"), ord("c"): pa.time64("us")}
    if len(kinds) == 1 and of_microseconds.get(next(iter(kinds))) == wanted:
        return pa.array(numbers).view(wanted)
    return None


def _as_declared(values: list[Any], declared: ColumnType) -> list[Any]:
    """Return keys as the declared type takes them: where several types share an encoding, the plainest came back."""
    if declared == scalars.BOOLEAN:
        return [bool(v) if v in (0, 1) else v for v in values]
    if declared == scalars.DOUBLE or declared == scalars.FLOAT:
        return [float(v) if isinstance(v, int) else v for v in values]
    return values


def _structure(value: Any) -> Any:
    """Return a key as Arrow infers a type from it: tuples with a field for each item."""
    if isinstance(value, tuple):
        return {f"f{i}": _structure(item) for i, item in enumerate(value)}
    if isinstance(value, frozenset):
        return sorted(map(_structure, value), key=repr)
    return str(value) if isinstance(value, UUID) else value


def _text(value: Any) -> str:
    """Return a number of any size, or a UUID, as text."""
    if isinstance(value, (bytes, tuple, frozenset)):
        raise TypeError(f"{value!r:.80} is no text")
    return str(value)
