"""Implements the built-in aggregates over columns: what each keeps for a key, and how it folds a slice of rows into it.

Nulls are ignored, as in SQL: `count("x")` counts what is not null, and the sum, minimum, maximum or mean of nothing but
nulls is null. Sums of whole numbers are exact: one that leaves 64 bits fails the job instead of wrapping. Sums of
floats are added in the order of the rows. A minimum or maximum of floats ignores NaN, unless there is nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as kinds

from penstock.graph.declared_columns import Aggregate
from penstock.operators.columns.columnar_slots import Scratch, SlotRuns
from penstock.state.columnar.column_table import ValueColumn, largest_of
from penstock.state.columnar.keyed_table import KeyedTable
from penstock.state.columnar.slot_arrays import Array, Slots

INT64_END = 2**63


class SumOverflow(ArithmeticError):
    """Signals that the sum of the key in `slot` does not fit into int64."""

    def __init__(self, slot: int) -> None:
        super().__init__()
        self.slot = slot


@dataclass(frozen=True)
class Given:
    """Holds the aggregated column of a slice. `valid` None: it has no nulls; else `values` of invalid rows are
    meaningless.
    """

    values: Array
    valid: npt.NDArray[np.bool_] | None


class Accumulator:
    """Defines one aggregate of one operator. Call `take` before rows become slots, `fold` or `scan` after; `first` is
    the place of its columns among the table's values.
    """

    def __init__(self, aggregate: Aggregate, type: pa.DataType | None, first: int) -> None:
        self.aggregate = aggregate
        self.first = first
        self.columns = self._columns(type)

    def _columns(self, type: pa.DataType | None) -> list[ValueColumn]:
        raise NotImplementedError

    @property
    def written(self) -> range:
        return range(self.first, self.first + len(self.columns))

    def restored(self, table: KeyedTable) -> None:
        """Inspect the restored table."""

    def take(self, batch: pa.RecordBatch) -> Given:
        raise NotImplementedError

    def fold(self, table: KeyedTable, slots: Slots, given: Given) -> None:
        """Fold rows into the state of their slots. Raises `SumOverflow`."""
        raise NotImplementedError

    def scan(self, table: KeyedTable, runs: SlotRuns, given: Given) -> pa.Array:
        """Fold rows into the state of their slots, one after the other; return the aggregate after each row. Raises
        `SumOverflow`.
        """
        raise NotImplementedError

    def result(self, table: KeyedTable, slots: Slots) -> pa.Array:
        raise NotImplementedError

    def _column(self, name: str, dtype: npt.DTypeLike, initial: Any) -> ValueColumn:
        return ValueColumn(f"{self.aggregate.name}.{name}", dtype, initial)


class Count(Accumulator):
    def _columns(self, type: pa.DataType | None) -> list[ValueColumn]:
        return [self._column("count", np.int64, 0)]

    def take(self, batch: pa.RecordBatch) -> Given:
        column = self.aggregate.column
        if self.aggregate.merges_counts:
            return Given(numbers(batch.column(column)), None)
        if column is None or not (array := batch.column(column)).null_count:
            return Given(np.ones(batch.num_rows, np.int64), None)
        return Given(validity(array).astype(np.int64), None)

    def fold(self, table: KeyedTable, slots: Slots, given: Given) -> None:
        np.add.at(table.values[self.first], slots, given.values)

    def scan(self, table: KeyedTable, runs: SlotRuns, given: Given) -> pa.Array:
        return pa.array(runs.sums(table.values[self.first], given.values))

    def result(self, table: KeyedTable, slots: Slots) -> pa.Array:
        return pa.array(table.values[self.first][slots])


class Nullable(Accumulator):
    """Keeps a value, and whether there has been one. The latter is written only after the first null."""

    _value: ValueColumn

    def _columns(self, type: pa.DataType | None) -> list[ValueColumn]:
        assert type is not None
        self._type = type
        self._value = self._value_column(type)
        self._seen = self._column("seen", np.bool_, True)
        self._seen.initial_of_restored = False
        return [self._value, self._seen]

    def _value_column(self, type: pa.DataType) -> ValueColumn:
        raise NotImplementedError

    @property
    def _nulls_possible(self) -> bool:
        return self._seen.initial is False

    def restored(self, table: KeyedTable) -> None:
        if not table.all_true(self.first + 1):
            self._seen.initial = False

    def take(self, batch: pa.RecordBatch) -> Given:
        array = batch.column(self.aggregate.column)
        if not array.null_count:
            return Given(numbers(array), None)
        self._seen.initial = False
        return Given(numbers(array), validity(array))

    def _mark_seen(self, table: KeyedTable, slots: Slots, valid: npt.NDArray[np.bool_] | None) -> None:
        if self._nulls_possible:
            table.values[self.first + 1][slots if valid is None else slots[valid]] = True

    def _identity_for_nulls(self, given: Given) -> Array:
        if given.valid is None:
            return given.values
        return np.where(given.valid, given.values, np.asarray(self._value.initial, given.values.dtype))

    def _scan_seen(self, table: KeyedTable, runs: SlotRuns, given: Given) -> Array | None:
        """Return the mask of rows after which the aggregate is null (None: nowhere), and mark what has been seen."""
        if not self._nulls_possible:
            return None
        if given.valid is None:
            self._mark_seen(table, runs.slots, None)
            return None
        seen = runs.folded(np.logical_or, table.values[self.first + 1], given.valid)
        return ~seen

    def _as_output(self, values: Array, nulls: Array | None) -> pa.Array:
        raise NotImplementedError

    def result(self, table: KeyedTable, slots: Slots) -> pa.Array:
        value, seen = table.values[self.first : self.first + 2]
        return self._as_output(value[slots], ~seen[slots] if self._nulls_possible else None)


class IntegerSum(Nullable):
    def _value_column(self, type: pa.DataType) -> ValueColumn:
        self._largest = 0
        """A bound that grows with each slice: no sum is further from 0. Once it leaves int64, slices are checked."""
        self._exactly = False
        return self._column("sum", np.int64, 0)

    def restored(self, table: KeyedTable) -> None:
        super().restored(table)
        self._largest = table.largest(self.first)

    def _fits(self, table: KeyedTable, values: Array) -> bool:
        """Return True if the bound shows that no sum leaves int64 by these values. It is computed without looking at
        each value, so False means that they have to be checked.
        """
        if self._exactly:
            return False
        added = largest_of(values) * len(values)
        self._largest += added
        if self._largest >= INT64_END:
            self._largest = table.largest(self.first) + added
            self._exactly = self._largest >= INT64_END
        return not self._exactly

    def _check(self, table: KeyedTable, runs: SlotRuns, values: Array, only_at_the_end: bool) -> None:
        slot = runs.leaves_int64(table.values[self.first], values, only_at_the_end)
        if slot is not None:
            raise SumOverflow(slot)

    def fold(self, table: KeyedTable, slots: Slots, given: Given) -> None:
        values = self._identity_for_nulls(given)
        if not self._fits(table, values):
            self._check(table, SlotRuns(slots, table.slots_end, Scratch()), values, only_at_the_end=True)
        np.add.at(table.values[self.first], slots, values)
        self._mark_seen(table, slots, given.valid)

    def scan(self, table: KeyedTable, runs: SlotRuns, given: Given) -> pa.Array:
        values = self._identity_for_nulls(given)
        if not self._fits(table, values):
            self._check(table, runs, values, only_at_the_end=False)
        sums = runs.sums(table.values[self.first], values)
        return self._as_output(sums, self._scan_seen(table, runs, given))

    def _as_output(self, values: Array, nulls: Array | None) -> pa.Array:
        return pa.array(values, mask=nulls)


class FloatSum(Nullable):
    def _value_column(self, type: pa.DataType) -> ValueColumn:
        # Adding -0.0 changes no number, not even -0.0; adding 0.0 would make that 0.0.
        return self._column("sum", np.float64, -0.0)

    def fold(self, table: KeyedTable, slots: Slots, given: Given) -> None:
        with np.errstate(invalid="ignore", over="ignore"):
            np.add.at(table.values[self.first], slots, self._identity_for_nulls(given))
        self._mark_seen(table, slots, given.valid)

    def scan(self, table: KeyedTable, runs: SlotRuns, given: Given) -> pa.Array:
        sums = runs.folded(np.add, table.values[self.first], self._identity_for_nulls(given))
        return self._as_output(sums, self._scan_seen(table, runs, given))

    def _as_output(self, values: Array, nulls: Array | None) -> pa.Array:
        return pa.array(values, mask=nulls)


class Extreme(Nullable):
    """Keeps the least or greatest value: numbers, dates, times and timestamps."""

    def _value_column(self, type: pa.DataType) -> ValueColumn:
        least = self.aggregate.function == "min"
        self._ufunc: np.ufunc
        if kinds.is_floating(type):
            self._ufunc = np.fmin if least else np.fmax
            return self._column(self.aggregate.function, np.float64, np.nan)
        self._ufunc = np.minimum if least else np.maximum
        return self._column(self.aggregate.function, np.int64, INT64_END - 1 if least else -INT64_END)

    def fold(self, table: KeyedTable, slots: Slots, given: Given) -> None:
        self._ufunc.at(table.values[self.first], slots, self._identity_for_nulls(given))
        self._mark_seen(table, slots, given.valid)

    def scan(self, table: KeyedTable, runs: SlotRuns, given: Given) -> pa.Array:
        found = runs.folded(self._ufunc, table.values[self.first], self._identity_for_nulls(given))
        return self._as_output(found, self._scan_seen(table, runs, given))

    def _as_output(self, values: Array, nulls: Array | None) -> pa.Array:
        if kinds.is_temporal(self._type):
            width = np.dtype(f"int{self._type.bit_width}")
            return pa.array(values.astype(width, copy=False), mask=nulls).view(self._type)
        if nulls is not None:
            values = np.where(nulls, values.dtype.type(0), values)  # the filler of a null may not fit the type
        return pa.array(values, mask=nulls).cast(self._type)


class Mean(Accumulator):
    """Computes the mean in double precision; the sum is added in the order of the rows."""

    def _columns(self, type: pa.DataType | None) -> list[ValueColumn]:
        return [self._column("sum", np.float64, 0.0), self._column("count", np.int64, 0)]

    def take(self, batch: pa.RecordBatch) -> Given:
        array = batch.column(self.aggregate.column)
        if not array.null_count:
            return Given(numbers(array).astype(np.float64, copy=False), None)
        return Given(numbers(array).astype(np.float64, copy=False), validity(array))

    def _parts(self, given: Given) -> tuple[Array, Array]:
        if given.valid is None:
            return given.values, np.ones(len(given.values), np.int64)
        return np.where(given.valid, given.values, 0.0), given.valid.astype(np.int64)

    def fold(self, table: KeyedTable, slots: Slots, given: Given) -> None:
        values, counts = self._parts(given)
        with np.errstate(invalid="ignore", over="ignore"):
            np.add.at(table.values[self.first], slots, values)
        np.add.at(table.values[self.first + 1], slots, counts)

    def scan(self, table: KeyedTable, runs: SlotRuns, given: Given) -> pa.Array:
        values, counts = self._parts(given)
        sums = runs.folded(np.add, table.values[self.first], values)
        return _quotient(sums, runs.sums(table.values[self.first + 1], counts))

    def result(self, table: KeyedTable, slots: Slots) -> pa.Array:
        sums, counts = table.values[self.first : self.first + 2]
        return _quotient(sums[slots], counts[slots])


def _quotient(sums: Array, counts: Array) -> pa.Array:
    nothing = counts == 0
    return pa.array(sums / np.maximum(counts, 1), mask=nothing if nothing.any() else None)


def validity(array: pa.Array) -> npt.NDArray[np.bool_]:
    """Return the mask of a column's values that are not null."""
    valid: npt.NDArray[np.bool_] = array.is_valid().to_numpy(zero_copy_only=False)
    return valid


def numbers(array: pa.Array) -> Array:
    """Return a column as int64 or float64, with 0 in place of nulls."""
    if kinds.is_decimal(array.type):
        array = array.cast(pa.float64())
    type = array.type
    if kinds.is_temporal(type):
        array = array.view(pa.int64() if type.bit_width == 64 else pa.int32())
    if array.null_count:
        array = array.fill_null(pa.scalar(0, array.type))
    made: Array = array.to_numpy().astype(np.float64 if kinds.is_floating(type) else np.int64, copy=False)
    return made
