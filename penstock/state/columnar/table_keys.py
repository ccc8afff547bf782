"""Stores key columns of a table: numbers as 64-bit words, strings and bytes consecutively in a heap.

Both are hashed and compared by whole arrays, and exactly: two keys are one only if all their bits are equal. Before
that, values that are equal get the same bits: -0.0 becomes 0.0, and all NaNs become one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as kinds

from penstock.state.columnar.slot_arrays import Array, Slots
from penstock.state.columnar.slot_index import Hashes, Rows

_MULTIPLIER = np.uint64(0x9E37_79B9_7F4A_7C15)
_SECOND_MULTIPLIER = np.uint64(0xBF58_476D_1CE4_E5B9)
_PADDING = 16
"""The bytes behind the last string, so that words can be read there; and all lengths of data are multiples of 8."""
_HEAP_COMPACTED_FROM_BYTES = 1 << 20
_GATHERED_BYTES = 256 * 1024
"""About the number of bytes of strings to gather at once. Each byte needs an index of 8 bytes."""


def mixed(hashes: Hashes | None, words: npt.NDArray[Any]) -> Hashes:
    """Mix a 64-bit word of each row into its hash; None: there is no hash yet. It multiplies twice, with shifts down
    between, so that words which differ in their highest bits only also differ in the lowest, which choose places.
    """
    h = words.view(np.uint64)
    h = h * _MULTIPLIER if hashes is None else (hashes ^ h) * _MULTIPLIER
    h ^= h >> np.uint64(32)
    h *= _SECOND_MULTIPLIER
    h ^= h >> np.uint64(29)
    return h


class KeyRows(ABC):
    """Holds one key column of the rows of a batch."""

    @abstractmethod
    def hashed(self, hashes: Hashes | None, rows: Rows | None = None) -> Hashes: ...

    @abstractmethod
    def same(self, rows: Rows, others: Rows) -> npt.NDArray[np.bool_]:
        """Return whether the keys of `rows` and `others` are equal, pair by pair."""


class KeyColumn(ABC):
    """Handles one key column of a table. `dtypes`: the arrays that it needs; each call gets them as an argument."""

    dtypes: tuple[npt.DTypeLike, ...]
    garbage_bytes = 0

    def __init__(self, type: pa.DataType) -> None:
        self.type = type

    @property
    def heap_bytes(self) -> int:
        """Return the number of bytes that the keys use besides the arrays."""
        return 0

    def bytes_outside(self, arrays: Sequence[Array]) -> Array | int:
        """Return the number of bytes of each key outside its arrays."""
        return 0

    @abstractmethod
    def rows(self, array: pa.Array) -> KeyRows:
        """Convert a column; `array` has no nulls."""

    @abstractmethod
    def matches(self, arrays: Sequence[Array], slots: Slots, given: Any, rows: Rows | None) -> npt.NDArray[np.bool_]:
        """Return whether the key of each slot, which has one, equals the key of its row. `given` is the result of
        `rows` for the batch.
        """

    @abstractmethod
    def store(self, arrays: Sequence[Array], slots: Slots, given: Any, rows: Rows) -> None: ...

    @abstractmethod
    def stored(self, arrays: Sequence[Array], slots: Slots | slice) -> KeyRows:
        """Return the keys of slots, as rows."""

    @abstractmethod
    def to_arrow(self, arrays: Sequence[Array]) -> pa.Array:
        """Convert whole arrays to a column."""

    def removed(self, arrays: Sequence[Array], slots: Slots) -> None:
        """Note that these slots have no key any more."""

    def frozen(self) -> KeyColumn:
        """Return a copy with which a snapshot reads keys in another thread."""
        return self


class WordRows(KeyRows):
    def __init__(self, words: npt.NDArray[np.int64]) -> None:
        self.words = words

    def hashed(self, hashes: Hashes | None, rows: Rows | None = None) -> Hashes:
        return mixed(hashes, self.words if rows is None else self.words[rows])

    def same(self, rows: Rows, others: Rows) -> npt.NDArray[np.bool_]:
        equal: npt.NDArray[np.bool_] = self.words[rows] == self.words[others]
        return equal


class WordKeys(KeyColumn):
    """Stores numbers, booleans, dates, times and timestamps."""

    dtypes = (np.int64,)

    def __init__(self, type: pa.DataType) -> None:
        super().__init__(type)
        self._floating = kinds.is_floating(type)
        width = 8 if kinds.is_boolean(type) else type.bit_width
        self._dtype = np.dtype({32: np.float32, 64: np.float64}[width] if self._floating else f"int{width}")
        self._physical = pa.from_numpy_dtype(self._dtype)

    def rows(self, array: pa.Array) -> WordRows:
        if kinds.is_boolean(self.type):
            return WordRows(array.cast(pa.int8()).to_numpy().astype(np.int64))
        values = (array if array.type == self._physical else array.view(self._physical)).to_numpy()
        if self._floating:
            values = values.astype(np.float64) + 0.0
            nans = np.isnan(values)
            if nans.any():
                values[nans] = np.nan
            return WordRows(values.view(np.int64))
        return WordRows(np.ascontiguousarray(values, np.int64))

    def matches(self, arrays: Sequence[Array], slots: Slots, given: Any, rows: Rows | None) -> npt.NDArray[np.bool_]:
        words = given.words if rows is None else given.words[rows]
        found: npt.NDArray[np.bool_] = arrays[0].take(slots) == words
        return found

    def store(self, arrays: Sequence[Array], slots: Slots, given: Any, rows: Rows) -> None:
        arrays[0][slots] = given.words[rows]

    def stored(self, arrays: Sequence[Array], slots: Slots | slice) -> WordRows:
        return WordRows(arrays[0][slots])

    def to_arrow(self, arrays: Sequence[Array]) -> pa.Array:
        words = arrays[0]
        if kinds.is_boolean(self.type):
            return pa.array(words.astype(bool))
        if self._floating:
            return pa.array(words.view(np.float64).astype(self._dtype, copy=False))
        values = pa.array(words.astype(self._dtype, copy=False))
        return values if values.type == self.type else values.view(self.type)


class BytesRows(KeyRows):
    """Locates byte strings in `data` (followed by padding), by their starts and lengths."""

    def __init__(self, data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], lengths: Array) -> None:
        self.data = data
        self.starts = starts
        self.lengths = lengths

    def hashed(self, hashes: Hashes | None, rows: Rows | None = None) -> Hashes:
        starts, lengths = (self.starts, self.lengths) if rows is None else (self.starts[rows], self.lengths[rows])
        h = mixed(hashes, lengths.astype(np.int64))
        length = common_length(lengths)
        if length > _ALL_AT_ONCE_BYTES:
            words = _words(self.data, starts, length)
            for first in range(_FIRST_WORDS):
                h = mixed(h, words[:, first])
            return mixed(h, words[:, _FIRST_WORDS:] @ _multipliers(words.shape[1] - _FIRST_WORDS))
        # A string's hash must not depend on its neighbours: the first words are always mixed in, as zeros if need be.
        for at in range(0, _ALL_AT_ONCE_BYTES, 8):
            h = mixed(h, words_at(self.data, starts, at) << _beyond(lengths, at))
        longer = np.flatnonzero(lengths > _ALL_AT_ONCE_BYTES)
        if len(longer):
            h[longer] = mixed(h[longer], _sums(self.data, starts[longer], lengths[longer]))
        return h

    def same(self, rows: Rows, others: Rows) -> npt.NDArray[np.bool_]:
        return _equal(
            self.data, self.starts[rows], self.lengths[rows], self.data, self.starts[others], self.lengths[others]
        )


_FIRST_WORDS = 2
_ALL_AT_ONCE_BYTES = 8 * _FIRST_WORDS
"""Longer strings are handled separately. Without this: one long string makes all others as slow."""


def common_length(lengths: Array) -> int:
    """Return the length that all strings have; 0 if they differ, are empty, or there are none."""
    length = int(lengths[0]) if len(lengths) else 0
    return length if (lengths == length).all() else 0


def strings_at(data: npt.NDArray[np.uint8], starts: Array, length: int) -> npt.NDArray[np.uint8]:
    """Copy strings of one length, which is not 0: a row of bytes for each."""
    # All stretches of the data that are as long, so that a start is an index, and each row is copied whole.
    stretches = np.ndarray((len(data) - length + 1, length), np.uint8, data, strides=(1, 1))
    rows: npt.NDArray[np.uint8] = stretches[starts]
    return rows


def _words(data: npt.NDArray[np.uint8], starts: Array, length: int) -> npt.NDArray[np.uint64]:
    """Return strings of one length as words, a row for each: the last one without what is after the string."""
    count = -(-length // 8)
    words = strings_at(data, starts, 8 * count).view("<u8")
    words[:, -1] <<= np.uint64(8 * (8 * count - length))
    return words


def _sums(data: npt.NDArray[np.uint8], starts: Array, lengths: Array) -> npt.NDArray[np.uint64]:
    """Return the sum of each string's words behind the first ones, times their multipliers."""
    sums = np.zeros(len(starts), np.uint64)
    multipliers = _multipliers(-(-int(lengths.max()) // 8) - _FIRST_WORDS)
    for multiplier, at in zip(multipliers, range(_ALL_AT_ONCE_BYTES, int(lengths.max()), 8), strict=True):
        left = np.flatnonzero(lengths > at)
        sums[left] += (words_at(data, starts[left], at) << _beyond(lengths[left], at)) * multiplier
    return sums


def _multipliers(count: int) -> npt.NDArray[np.uint64]:
    """Return odd numbers, for multilinear hashing (Lemire, Kaser: Strongly universal string hashing is fast, 2014)."""
    return mixed(None, np.arange(1, count + 1)) | np.uint64(1)


def words_at(data: npt.NDArray[np.uint8], starts: Array, at: int) -> npt.NDArray[np.uint64]:
    """Return bytes [at, at + 8) of each string as a word, with what follows the string if it is shorter."""
    aligned = data.view("<u8")
    places = np.minimum(starts + at, len(data) - _PADDING)
    index = places >> 3
    shift = ((places & 7) << 3).view(np.uint64)
    # Two reads at places that are multiples of 8 are several times as fast as one at any place.
    words: npt.NDArray[np.uint64] = aligned.take(index) >> shift
    words |= aligned.take(index + 1) << (np.uint64(64) - shift)
    return words


def _padded(length: int) -> int:
    return (length + 7) // 8 * 8 + _PADDING


def _beyond(lengths: Array, at: int) -> npt.NDArray[np.uint64]:
    """Return the bits to shift out of a word at `at`, so that only the string's bytes remain (64 or more: all)."""
    return np.maximum(64 + 8 * at - 8 * lengths.astype(np.int64), 0).view(np.uint64)


def _equal(data: Array, starts: Array, lengths: Array, data2: Array, starts2: Array, lengths2: Array) -> Array:
    equal: Array = lengths == lengths2
    length = common_length(lengths)
    if length > _ALL_AT_ONCE_BYTES and equal.all():
        # NumPy ignores zeros at the end of a string, which cannot make strings of one length equal that are not.
        pair = (strings_at(d, s, length).view(f"S{length}").ravel() for d, s in ((data, starts), (data2, starts2)))
        same: Array = next(pair) == next(pair)
        return same
    for at in range(0, int(lengths.max(initial=0)), 8):
        if at < _ALL_AT_ONCE_BYTES:
            differ = (words_at(data, starts, at) ^ words_at(data2, starts2, at)) << _beyond(lengths, at)
            equal &= differ == 0
        else:
            left = np.flatnonzero(equal & (lengths > at))
            if not len(left):
                break
            differ = words_at(data, starts[left], at) ^ words_at(data2, starts2[left], at)
            equal[left] = differ << _beyond(lengths[left], at) == 0
    return equal


class BytesKeys(KeyColumn):
    """Stores strings and bytes. The heap is compacted when removed keys take more than half of it."""

    dtypes = (np.int64, np.int32)

    def __init__(self, type: pa.DataType) -> None:
        super().__init__(type)
        self._heap: npt.NDArray[np.uint8] = np.zeros(1024, np.uint8)
        self._end = 0

    @property
    def heap_bytes(self) -> int:
        return self._end

    def bytes_outside(self, arrays: Sequence[Array]) -> Array | int:
        return arrays[1]

    @property
    def needs_compaction(self) -> bool:
        return self.garbage_bytes > max(_HEAP_COMPACTED_FROM_BYTES, self._end // 2)

    def rows(self, array: pa.Array) -> BytesRows:
        buffers = array.buffers()
        offsets = np.frombuffer(buffers[1], np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
        first, last = int(offsets[0]), int(offsets[-1])
        data = np.zeros(_padded(last - first), np.uint8)
        if last > first:
            data[: last - first] = np.frombuffer(buffers[2], np.uint8)[first:last]
        return BytesRows(data, offsets[:-1] - first, np.diff(offsets).astype(np.int32))

    def matches(self, arrays: Sequence[Array], slots: Slots, given: Any, rows: Rows | None) -> npt.NDArray[np.bool_]:
        starts, lengths = (given.starts, given.lengths) if rows is None else (given.starts[rows], given.lengths[rows])
        return _equal(given.data, starts, lengths, self._heap, arrays[0].take(slots), arrays[1].take(slots))

    def store(self, arrays: Sequence[Array], slots: Slots, given: Any, rows: Rows) -> None:
        lengths = given.lengths[rows].astype(np.int64)
        ends = np.cumsum(lengths)
        total = int(ends[-1]) if len(ends) else 0
        if self._end + total + _PADDING > len(self._heap):
            heap = np.empty(_padded(2 * (self._end + total)), np.uint8)
            heap[: self._end] = self._heap[: self._end]
            self._heap = heap
        begins = ends - lengths
        if length := common_length(lengths):
            self._heap[self._end : self._end + total] = strings_at(given.data, given.starts[rows], length).ravel()
        else:
            # The place of each byte: its string's start in the batch, and how far it is from the string's first.
            places = np.repeat(given.starts[rows] - begins, lengths) + np.arange(total)
            self._heap[self._end : self._end + total] = given.data[places]
        self._heap[self._end + total : self._end + total + _PADDING] = 0
        arrays[0][slots] = self._end + begins
        arrays[1][slots] = lengths
        self._end += total

    def stored(self, arrays: Sequence[Array], slots: Slots | slice) -> BytesRows:
        return BytesRows(self._heap, arrays[0][slots], arrays[1][slots])

    def removed(self, arrays: Sequence[Array], slots: Slots) -> None:
        self.garbage_bytes += int(arrays[1][slots].sum(dtype=np.int64))

    def to_arrow(self, arrays: Sequence[Array]) -> pa.Array:
        starts, lengths = arrays[0], arrays[1].astype(np.int64)
        offsets = np.zeros(len(starts) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        if length := common_length(lengths):
            data = strings_at(self._heap, starts, length).ravel()
        else:
            data = self._gathered(starts, lengths, offsets)
        buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
        return pa.Array.from_buffers(self.type, len(starts), buffers)

    def _gathered(self, starts: Array, lengths: Array, offsets: Array) -> npt.NDArray[np.uint8]:
        """Copy strings of the heap one after the other, to `offsets`."""
        data = np.empty(offsets[-1], np.uint8)
        cuts = np.searchsorted(offsets, np.arange(0, len(data), _GATHERED_BYTES)).tolist()
        for first, last in zip(cuts, [*cuts[1:], len(starts)]):
            begin, end = offsets[first], offsets[last]
            places = np.repeat(starts[first:last] - offsets[first:last], lengths[first:last])
            places += np.arange(begin, end)
            data[begin:end] = self._heap[places]
        return data

    def frozen(self) -> BytesKeys:
        copy = BytesKeys(self.type)
        copy._heap, copy._end = self._heap, self._end
        return copy

    def compacted(self, starts: Array, lengths: Array, live: Slots) -> Array:
        """Move the keys of live slots together, into a new heap. Returns the new array of starts."""
        sizes = lengths[live].astype(np.int64)
        ends = np.cumsum(sizes)
        total = int(ends[-1]) if len(ends) else 0
        begins = ends - sizes
        heap = np.zeros(max(1024, _padded(2 * total)), np.uint8)
        heap[:total] = self._heap[np.repeat(starts[live] - begins, sizes) + np.arange(total)]
        moved = np.zeros_like(starts)
        moved[live] = begins
        self._heap, self._end, self.garbage_bytes = heap, total, 0
        return moved


def key_column(type: pa.DataType) -> KeyColumn:
    """Return the column for a type. Raises TypeError for a type whose equal values can have different bits."""
    if kinds.is_string(type) or kinds.is_binary(type):
        return BytesKeys(type)
    if kinds.is_boolean(type) or kinds.is_integer(type) or kinds.is_floating(type) or kinds.is_temporal(type):
        return WordKeys(type)
    raise TypeError(f"Arrow's {type}")
