"""Turns canonical keys into Arrow columns of the keys' own type, without a Python object per key where it is simple.

Checkpoints store keys in their canonical encoding: a tag byte, and a payload (`penstock.protocol.values.key_encoding`).
What the program has declared decides the column's type, as far as metadata know it; else the first range of keys does.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.common.row_types import scalar_types as scalars
from penstock.common.row_types.columns import ENCODING_ERRORS
from penstock.protocol.values.key_encoding import decode, encode
from penstock.state.backend import StateError
from penstock.state.codecs import encode_keys
from penstock.state.reading import key_forms as forms
from penstock.state.reading.key_forms import DeclaredForm, KeyForm, ScalarForm, UnfitKeys, form_of_keys

_INT64_BYTES = 9
_LENGTH_BYTES = 5
_EPOCH_ORDINAL = 719_163
_OF_INT64 = b"idwacf"
_FORM_OF_TAG: dict[int, KeyForm] = {
    ord("i"): forms.INT,
    ord("f"): forms.FLOAT,
    ord("s"): forms.STRING,
    ord("b"): forms.BYTES,
    ord("d"): forms.DATE,
    ord("w"): forms.DATETIME,
    ord("a"): forms.INSTANT,
    ord("c"): forms.TIME,
    ord("u"): forms.UUIDS,
    ord("e"): forms.DURATION,
}
_INFERRED_FROM_MAX = 10_000
"""The most keys that are decoded to find out how keys without a declared type are shown."""
_FLOAT_EXACT_MAX = 2**53
WAY_OUT = (
    "give the type that all keys have (key_type=Types....), or leave it out if one was given; Types.DOUBLE() and "
    "Types.BIG_DEC() show all numbers, Types.PICKLED_BYTE_ARRAY() shows keys of any kinds as pickles"
)
_WINDOW_START = struct.Struct("<cI")
"""The head of a pair: its tag and how many values it has."""


class KeyReader:
    """Decodes the keys of one state. `form`: how a column shows them; `described`: the state, for messages."""

    def __init__(self, described: str, form: KeyForm) -> None:
        self._described = described
        self._form = form
        self._is_plain = is_plain(form)

    def decoded(self, keys: pa.Array) -> pa.Array:
        """Return the column of these canonical keys. Raises `StateError` for a key that it cannot show exactly."""
        wanted = self._form.arrow_type
        if not len(keys):
            return pa.array([], wanted)
        if self._is_plain and (column := _fast(keys, _kinds(keys), wanted)) is not None:
            return column
        values = [decode(data) for data in keys.to_pylist()]
        try:
            column = self._form.column(values)
            # Arrow cuts 0.5 to 0 for an int64 column without a word: only what reads back the same is shown.
            if encode_keys(self._form.keys(column)).equals(keys):
                return column
        except ENCODING_ERRORS as error:
            raise self._refused(values, error) from None
        raise self._refused(values, None)

    def _refused(self, values: list[Any], error: BaseException | None) -> StateError:
        for value in values:
            try:
                if encode_keys(self._form.keys(self._form.column([value]))).to_pylist() == [encode(value)]:
                    continue
            except ENCODING_ERRORS:
                pass
            return StateError(
                f"{self._described}: the key {value!r:.80} ({type(value).__name__}) is no {_told(self._form)}; "
                f"{WAY_OUT}"
            )
        return StateError(f"{self._described}: its keys are not all {_told(self._form)}: {error}; {WAY_OUT}")


def form_of_stored(keys: pa.Array, described: str) -> KeyForm:
    """Return the form of keys without a declared type. Raises `StateError` if no column can show them."""
    kinds = _kinds(keys)
    if len(kinds) == 1 and (form := _FORM_OF_TAG.get(next(iter(kinds)))) is not None:
        return form
    if kinds == {ord("i"), ord("f")}:
        return forms.FLOAT
    try:
        some = pa.array(np.arange(0, len(keys), -(-len(keys) // _INFERRED_FROM_MAX)))
        return form_of_keys([decode(data) for data in keys.take(some).to_pylist()])
    except UnfitKeys as error:
        raise StateError(f"{described}: no column can show its keys: {error}; {WAY_OUT}") from None


def is_plain(form: KeyForm) -> bool:
    """Return whether the column has the keys themselves, not texts or pickles that represent them."""
    if isinstance(form, ScalarForm):
        return form.to_cell is None
    return isinstance(form, DeclaredForm) and not isinstance(form.type, scalars.BigType)


def _told(form: KeyForm) -> str:
    if isinstance(form, DeclaredForm):
        return form.type.text
    return form.name if isinstance(form, ScalarForm) else str(form.arrow_type)


def window_keys(keys: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Split canonical pairs (key, window) into canonical keys and the windows' starts, or what else names them."""
    if len(keys) and not isinstance(decode(keys[0].as_py())[1], int):
        pairs = [decode(data) for data in keys.to_pylist()]
        windows = [window[0] if isinstance(window, tuple) else window for _, window in pairs]
        return pa.array([encode(key) for key, _ in pairs], pa.binary()), pa.array(windows)
    offsets, data = _buffers(keys)
    ends = offsets[1:]
    starts = np.empty((len(keys), 8), np.uint8)
    for at in range(8):
        starts[:, at] = data[ends - 8 + at]
    return _payloads(keys, _WINDOW_START.size, _INT64_BYTES), pa.array(starts.view("<i8").reshape(-1))


def _buffers(keys: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    _, offsets, data = keys.buffers()
    all_offsets = np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    return all_offsets, np.frombuffer(data, np.uint8)


def _payloads(keys: pa.Array, head: int, tail: int = 0) -> pa.Array:
    """Return the keys without `head` bytes at the beginning and `tail` at the end. Arrow's `binary_slice` fails for
    short ones."""
    offsets, data = _buffers(keys)
    starts, ends = offsets[:-1] - offsets[0], offsets[1:] - offsets[0]
    is_payload = np.ones(offsets[-1] - offsets[0], np.bool_)
    for at in range(head):
        is_payload[starts + at] = False
    for at in range(tail):
        is_payload[ends - 1 - at] = False
    lengths = np.arange(len(offsets)) * (head + tail)
    of_payloads = (offsets - offsets[0] - lengths).astype(np.int32)
    payload = data[offsets[0] : offsets[-1]][is_payload]
    return pa.Array.from_buffers(pa.binary(), len(keys), [None, pa.py_buffer(of_payloads), pa.py_buffer(payload)])


def _kinds(keys: pa.Array) -> set[int]:
    """Return the tags that the keys begin with."""
    offsets, data = _buffers(keys)
    return set(np.flatnonzero(np.bincount(data[offsets[:-1]], minlength=1)).tolist())


def _fast(keys: pa.Array, kinds: set[int], wanted: pa.DataType) -> pa.Array | None:
    """Return the column; None if that takes a look at each key."""
    if pa.types.is_string(wanted) and kinds == {ord("s")}:
        try:
            return _payloads(keys, _LENGTH_BYTES).cast(pa.string())
        except pa.ArrowInvalid:
            return None  # a lone surrogate, which UTF-8 has no place for
    if pa.types.is_binary(wanted) and kinds == {ord("b")}:
        return _payloads(keys, _LENGTH_BYTES)
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
    if kinds <= {ord("i"), ord("f")}:
        is_float = tags == ord("f")
        is_exact = is_float | ((numbers <= _FLOAT_EXACT_MAX) & (numbers >= -_FLOAT_EXACT_MAX))
        if not pa.types.is_float64(wanted) or not is_exact.all():
            return None
        return pa.array(np.where(is_float, payload.view("<f8"), numbers))
    if kinds == {ord("d")} and pa.types.is_date32(wanted):
        return pa.array((numbers - _EPOCH_ORDINAL).astype(np.int32)).view(pa.date32())
    of_microseconds = {ord("w"): pa.timestamp("us"), ord("a"): pa.timestamp("us", "UTC"), ord("c"): pa.time64("us")}
    if len(kinds) == 1 and of_microseconds.get(next(iter(kinds))) == wanted:
        return pa.array(numbers).view(wanted)
    return None
