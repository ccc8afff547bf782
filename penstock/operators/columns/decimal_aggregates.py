"""Implements the built-in aggregates of decimals: exact, whatever their precision, and without an object per row.

A decimal of Arrow is a whole number of 128 bits. A sum keeps four parts of 32 bits, each in an int64, so that the parts
of many rows can be added before the carries are passed on. A minimum or maximum keeps the upper and the lower half.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.operators.columns.columnar_aggregates import Given, Nullable, SumOverflow, validity
from penstock.operators.columns.columnar_slots import Scratch, SlotRuns
from penstock.state.columnar.column_table import ValueColumn
from penstock.state.columnar.keyed_table import KeyedTable
from penstock.state.columnar.slot_arrays import Array, Slots

_LOW = 0xFFFF_FFFF
_END_HIGH, _END_LOW = divmod(10**38, 1 << 64)
_START_HIGH, _START_LOW = divmod(-(10**38), 1 << 64)
_LOW_SIGN = np.int64(-(2**63))
_INT64_MAX = 2**63 - 1


class _Decimals(Nullable):
    """Implements the common part of decimal aggregates. The state is a part, whether there was a value, and further
    parts."""

    _parts: int

    def _columns(self, type: pa.DataType | None) -> list[ValueColumn]:
        columns = super()._columns(type)
        return [*columns, *(self._part(number) for number in range(1, self._parts))]

    def _part(self, number: int) -> ValueColumn:
        raise NotImplementedError

    def _value_column(self, type: pa.DataType) -> ValueColumn:
        return self._part(0)

    def take(self, batch: pa.RecordBatch) -> Given:
        array = batch.column(self.aggregate.column)
        if not array.null_count:
            return Given(_halves(array), None)
        self._seen.initial = False
        return Given(_halves(array), validity(array))

    def _state(self, table: KeyedTable) -> list[Array]:
        values = table.values
        return [values[self.first], *values[self.first + 2 : self.first + 1 + self._parts]]

    def _made(self, high: Array, low: Array, type: pa.DataType, nulls: Array | None) -> pa.Array:
        data = np.empty((len(high), 2), np.int64)
        data[:, 0], data[:, 1] = low, high
        made = pa.Array.from_buffers(type, len(high), [None, pa.py_buffer(data)])
        if nulls is None or not nulls.any():
            return made
        return made.take(pa.array(np.arange(len(high)), mask=nulls))


class DecimalSum(_Decimals):
    """Adds decimals up. The sum has 38 digits; one that needs more fails the job."""

    _parts = 4

    def _part(self, number: int) -> ValueColumn:
        return self._column(f"sum{number}", np.int64, 0)

    def fold(self, table: KeyedTable, slots: Slots, given: Given) -> None:
        state = self._state(table)
        for part, values in zip(state, _summands(given)):
            np.add.at(part, slots, values)
        touched = np.unique(slots)
        _carried(state, touched)
        self._check([part[touched] for part in state], touched)
        self._mark_seen(table, slots, given.valid)

    def scan(self, table: KeyedTable, runs: SlotRuns, given: Given) -> pa.Array:
        state = self._state(table)
        sums = [runs.sums(part, values) for part, values in zip(state, _summands(given))]
        _carried(state, np.unique(runs.slots))
        _carried(sums, slice(None))
        self._check(sums, runs.slots)
        return self._output(sums, self._scan_seen(table, runs, given))

    def result(self, table: KeyedTable, slots: Slots) -> pa.Array:
        seen = table.values[self.first + 1]
        nulls = ~seen[slots] if self._nulls_possible else None
        return self._output([part[slots] for part in self._state(table)], nulls)

    def _output(self, parts: list[Array], nulls: Array | None) -> pa.Array:
        high, low = parts[2] | (parts[3] << 32), parts[0] | (parts[1] << 32)
        return self._made(high, low, pa.decimal128(38, self._type.scale), nulls)

    def _check(self, parts: list[Array], slots: Slots) -> None:
        top = parts[3]
        wide = (top < -(2**31)) | (top >= 2**31)
        high, low = parts[2] | (top << 32), (parts[0] | (parts[1] << 32)).view(np.uint64)
        above = (high > _END_HIGH) | ((high == _END_HIGH) & (low >= np.uint64(_END_LOW)))
        below = (high < _START_HIGH) | ((high == _START_HIGH) & (low <= np.uint64(_START_LOW)))
        outside = wide | above | below
        if outside.any():
            raise SumOverflow(int(slots[outside.argmax()]))


class DecimalExtreme(_Decimals):
    """Keeps the least or greatest decimal."""

    _parts = 2

    @property
    def _is_least(self) -> bool:
        return bool(self.aggregate.function == "min")

    def _part(self, number: int) -> ValueColumn:
        furthest = _INT64_MAX if self._is_least else -_INT64_MAX - 1
        return self._column(f"{self.aggregate.function}{number}", np.int64, furthest)

    def fold(self, table: KeyedTable, slots: Slots, given: Given) -> None:
        high, low = self._compared(given)
        state = self._state(table)
        touched, place = np.unique(slots, return_inverse=True)
        highs, lows = np.concatenate((state[0][touched], high)), np.concatenate((state[1][touched], low))
        places = np.concatenate((np.arange(len(touched)), place))
        order = np.lexsort((lows, highs, places))
        counts = np.bincount(places, minlength=len(touched))
        ends = np.cumsum(counts)
        chosen = order[ends - counts if self._is_least else ends - 1]
        state[0][touched], state[1][touched] = highs[chosen], lows[chosen]
        self._mark_seen(table, slots, given.valid)

    def scan(self, table: KeyedTable, runs: SlotRuns, given: Given) -> pa.Array:
        high, low = self._compared(given)
        state = self._state(table)
        touched, place = np.unique(runs.slots, return_inverse=True)
        highs, lows = np.concatenate((state[0][touched], high)), np.concatenate((state[1][touched], low))
        order = np.lexsort((lows, highs))
        # Ranks are plain numbers, whose running minimum is known already.
        ranks = np.empty(len(order), np.int64)
        is_other = (highs[order][1:] != highs[order][:-1]) | (lows[order][1:] != lows[order][:-1])
        ranks[order] = np.concatenate(([0], np.cumsum(is_other)))
        first_of_rank = order[np.concatenate(([True], is_other))]
        kept = ranks[: len(touched)].copy()
        compact = SlotRuns(place.astype(runs.slots.dtype), len(touched), Scratch())
        ufunc = np.minimum if self._is_least else np.maximum
        found = first_of_rank[compact.folded(ufunc, kept, ranks[len(touched) :])]
        state[0][touched], state[1][touched] = highs[first_of_rank[kept]], lows[first_of_rank[kept]]
        nulls = self._scan_seen(table, runs, given)
        return self._made(highs[found], lows[found] ^ _LOW_SIGN, self._type, nulls)

    def result(self, table: KeyedTable, slots: Slots) -> pa.Array:
        high, low = (part[slots] for part in self._state(table))
        nulls = ~table.values[self.first + 1][slots] if self._nulls_possible else None
        return self._made(high, low ^ _LOW_SIGN, self._type, nulls)

    def _compared(self, given: Given) -> tuple[Array, Array]:
        """Return the halves, each of which is compared as an int64; of nulls, such as change nothing."""
        high, low = given.values[:, 1], given.values[:, 0] ^ _LOW_SIGN
        if given.valid is None:
            return high, low
        furthest = np.int64(self._value.initial)
        return np.where(given.valid, high, furthest), np.where(given.valid, low, furthest)


def _halves(array: pa.Array) -> npt.NDArray[np.int64]:
    """Return the lower and the upper half of each decimal."""
    data = np.frombuffer(array.buffers()[1], np.int64).reshape(-1, 2)
    halves: npt.NDArray[np.int64] = data[array.offset : array.offset + len(array)]
    return halves


def _summands(given: Given) -> list[Array]:
    low, high = given.values[:, 0], given.values[:, 1]
    parts = [low & _LOW, (low >> 32) & _LOW, high & _LOW, high >> 32]
    return parts if given.valid is None else [np.where(given.valid, part, 0) for part in parts]


def _carried(parts: list[Array], at: Any) -> None:
    """Carry the bits above 32 from each part but the last to the next. `at`: the places, each once."""
    carry: Any = 0
    for number, part in enumerate(parts):
        sums = part[at] + carry
        if number == len(parts) - 1:
            part[at] = sums
            return
        part[at], carry = sums & _LOW, sums >> 32
