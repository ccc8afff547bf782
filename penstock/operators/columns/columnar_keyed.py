"""Implements aggregates per key: rolling ones, with an output row for each input row, and the parts that they share
with windows.
"""

from __future__ import annotations

from typing import Any, Iterator, Sequence

import numpy as np
import pyarrow as pa

from penstock.common.program.failures import OperatorFailure
from penstock.common.typeinfo import KEY_GROUP_COLUMN, TIMESTAMP_COLUMN
from penstock.graph.declared_columns import Aggregate, AggregateSpec
from penstock.graph.job_graph import Operator
from penstock.operators.batches import TIMESTAMP_FIELD, row_type
from penstock.operators.columns.accumulators import accumulators
from penstock.operators.columns.columnar_aggregates import Given, SumOverflow
from penstock.operators.columns.columnar_operator import ROWS_PER_FIRED_GROUP, ColumnarOperator, Output
from penstock.operators.columns.columnar_slots import Scratch, SlotRuns
from penstock.protocol.values.elements import WATERMARK_MAX_MS
from penstock.state.columnar.column_table import Found, ValueColumn
from penstock.state.columnar.columnar_backend import ColumnarBackend
from penstock.state.columnar.keyed_table import KeyedTable

STATE_NAME = "_aggregates"
_NO_TIME = -(2**63)


class KeyedAggregates(ColumnarOperator):
    """Aggregates columns per key. `further_keys`, of which the last is a window's start, are added to the
    key's columns, `further_values` to what is kept for it.
    """

    def __init__(
        self,
        operator: Operator,
        backend: ColumnarBackend[Any],
        keys: Sequence[str],
        aggregates: Sequence[Aggregate],
        further_keys: Sequence[pa.Field] = (),
        further_values: Sequence[ValueColumn] = (),
    ) -> None:
        super().__init__(operator)
        self._backend = backend
        self._keys = list(keys)
        self._input_schema = row_type(operator.input_type).schema
        self._output_schema = row_type(operator.output_type).schema
        if operator.timestamped:
            self._output_schema = self._output_schema.append(TIMESTAMP_FIELD)
        self._accumulators = accumulators(aggregates, self._input_schema)
        self._key_schema = pa.schema([self._input_schema.field(k) for k in keys] + list(further_keys))
        self._values = [c for a in self._accumulators for c in a.columns] + list(further_values)
        self._windowed = bool(further_keys)
        self.table: KeyedTable

    def open(self) -> None:
        self.table = self._backend.table(self.operator.uid, STATE_NAME, self._key_schema, self._values, self._windowed)
        for accumulator in self._accumulators:
            accumulator.restored(self.table)

    def _take(self, batch: pa.RecordBatch) -> list[Given]:
        """Take the aggregated columns. Call it before `_find`: after a null, new keys may start with other values."""
        return [a.take(batch) for a in self._accumulators]

    def _find(self, keys: list[pa.Array], key_groups: np.ndarray) -> Found:
        found = self.table.find_or_insert(self.table.rows(keys), key_groups)
        self.table.touch(found.slots)
        return found

    def _key_groups(self, batch: pa.RecordBatch) -> np.ndarray:
        groups: np.ndarray = batch.column(KEY_GROUP_COLUMN).to_numpy()
        return groups

    def _overflow(self, aggregate: Aggregate, slot: int) -> OperatorFailure:
        key = ", ".join(
            f"{name} = {array[0].as_py()!r:.80}"
            for name, array in zip(self._keys, self.table.keys_of(np.array([slot])))
        )
        column = aggregate.declared_column or aggregate.column
        given = self._input_schema.field(aggregate.column).type
        most = "38 digits" if pa.types.is_decimal(given) else "64 bits"
        told = (
            f"sum({column!r}) of the key {key} does not fit in {most}: cast the column to a DOUBLE before it is "
            "summed, or use mean"
        )
        return OperatorFailure(self.operator.name, ArithmeticError(told), ours=True)


class RollingAggregates(KeyedAggregates):
    def __init__(self, operator: Operator, backend: ColumnarBackend[Any]) -> None:
        spec: AggregateSpec = operator.function
        super().__init__(operator, backend, spec.keys, spec.aggregates)
        self._scratch = Scratch()

    def process(self, batch: pa.RecordBatch) -> Iterator[Output]:
        given = self._take(batch)
        keys = [batch.column(k) for k in self._keys]
        slots = self._find(keys, self._key_groups(batch)).slots
        runs = SlotRuns(slots, self.table.slots_end, self._scratch)
        columns = keys
        for accumulator, values in zip(self._accumulators, given):
            try:
                columns.append(accumulator.scan(self.table, runs, values))
            except SumOverflow as error:
                raise self._overflow(accumulator.aggregate, error.slot) from None
            self.table.after_write(slots, accumulator.written)
        self.table.settle()
        if self.operator.timestamped:
            columns.append(batch.column(TIMESTAMP_COLUMN))
        yield None, pa.RecordBatch.from_arrays(columns, schema=self._output_schema)


class FinalAggregates(KeyedAggregates):
    """Aggregates per key, and emits one row for each key when the input has ended. Its state is in memory.

    A row has the time of its key's latest one.
    """

    def __init__(self, operator: Operator, backend: ColumnarBackend[Any]) -> None:
        spec: AggregateSpec = operator.function
        super().__init__(operator, backend, spec.keys, spec.aggregates)
        self._times = np.empty(0, np.int64)
        self._emitted = 0

    def process(self, batch: pa.RecordBatch) -> Iterator[Output]:
        given = self._take(batch)
        slots = self._find([batch.column(k) for k in self._keys], self._key_groups(batch)).slots
        for accumulator, values in zip(self._accumulators, given):
            try:
                accumulator.fold(self.table, slots, values)
            except SumOverflow as error:
                raise self._overflow(accumulator.aggregate, error.slot) from None
            self.table.after_write(slots, accumulator.written)
        self.table.settle()
        if self.operator.timestamped:
            if self.table.slots_end > len(self._times):
                more = np.full(2 * self.table.slots_end - len(self._times), _NO_TIME)
                self._times = np.concatenate((self._times, more))
            np.maximum.at(self._times, slots, batch.column(TIMESTAMP_COLUMN).fill_null(_NO_TIME).to_numpy())
        return iter(())

    def on_watermark(self, watermark_ms: int) -> Iterator[pa.RecordBatch]:
        """Yield the results at the end of time, in groups."""
        while watermark_ms == WATERMARK_MAX_MS and self._emitted < self.table.slots_end:
            end = min(self._emitted + ROWS_PER_FIRED_GROUP, self.table.slots_end)
            slots = np.arange(self._emitted, end)
            self._emitted = end
            columns = [*self.table.keys_of(slots), *(a.result(self.table, slots) for a in self._accumulators)]
            if self.operator.timestamped:
                times = self._times[slots]
                columns.append(pa.array(times, mask=times == _NO_TIME))
            yield pa.RecordBatch.from_arrays(columns, schema=self._output_schema)
