"""Aggregates columns per key and window in event time, whatever kind of window the assigner makes.

The window is one more column of the key. When the watermark has passed it, its rows are emitted in bounded groups and
leave the state with them. With an allowed lateness they stay, marked as fired, until that has passed, too; a late row
then fires its key's window again, once for each slice of rows.
"""

from __future__ import annotations

from typing import Any, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.common.program.failures import OperatorFailure
from penstock.common.typeinfo import TIMESTAMP_COLUMN
from penstock.graph.declared_columns import WINDOW_START, WindowAggregateSpec
from penstock.graph.job_graph import Operator
from penstock.operators.columns.columnar_aggregates import SumOverflow
from penstock.operators.columns.columnar_keyed import KeyedAggregates
from penstock.operators.columns.columnar_operator import ROWS_PER_FIRED_GROUP, Output
from penstock.operators.windows.assigners.assigner import Milliseconds, NoWindow
from penstock.operators.windows.window_slots import SlotsInMemory, SlotsOnDisk, WindowSlots
from penstock.protocol.channel.watermark_valve import WATERMARK_MIN_MS
from penstock.protocol.values.elements import WATERMARK_MAX_MS
from penstock.protocol.values.metadata import GroupFloor
from penstock.state.columnar.column_table import ColumnTable, ValueColumn
from penstock.state.columnar.columnar_backend import ColumnarBackend
from penstock.state.columnar.slot_arrays import Slots

_PAIRS_MAX = 131_072
"""The most pairs of a row and a window that are aggregated at once, where windows overlap."""


class WindowAggregates(KeyedAggregates):
    def __init__(self, operator: Operator, backend: ColumnarBackend[Any], fired_at_once: int | None = None) -> None:
        self._fired_at_once = ROWS_PER_FIRED_GROUP if fired_at_once is None else fired_at_once
        spec: WindowAggregateSpec = operator.function
        self._spec = spec
        self._assigner = spec.assigner
        self._windows_per_row = self._assigner.windows_per_row_max
        self._lateness_ms = min(spec.allowed_lateness_ms, WATERMARK_MAX_MS)
        self._stays = spec.allowed_lateness_ms > 0
        fired = [ValueColumn("fired", np.bool_, False)] if self._stays else []
        start = pa.field(WINDOW_START, pa.int64())
        super().__init__(operator, backend, spec.keys, spec.aggregates, [start], fired)
        self._fired = len(self._values) - 1
        self._watermark_ms = WATERMARK_MIN_MS
        self._floors: Milliseconds | None = None
        self._windows: WindowSlots
        self._all_fired: set[int] = set()
        """Windows that stay, and have fired for all their keys."""

    def open(self) -> None:
        super().open()
        table: Any = self.table
        if isinstance(table, ColumnTable):
            self._windows = SlotsInMemory(self._fired_at_once)
            slots = table.live_slots()
            self._windows.add(slots, self._starts_of(slots))
        else:
            self._windows = SlotsOnDisk(table, self._fired_at_once)

    def set_time(self, current_ms: int, floors: Sequence[GroupFloor]) -> None:
        self._watermark_ms = current_ms
        if floors:
            self._floors = np.full(max(f.end for f in floors), WATERMARK_MIN_MS, np.int64)
            for floor in floors:
                self._floors[floor.first : floor.end] = floor.watermark_ms

    # ---- rows ----------------------------------------------------------------------------------------------------

    def process(self, batch: pa.RecordBatch) -> Iterator[Output]:
        if self._windows_per_row == 1:
            yield from self._aggregate(batch, *self._starts(self._timestamps(batch)))
            return
        step = max(1, _PAIRS_MAX // self._windows_per_row)
        for at in range(0, batch.num_rows, step):
            rows = batch.slice(at, step)
            made, late, starts = self._in_each_window(rows)
            if late.any():
                yield from self._late(rows.filter(pa.array(late)))
            if made.num_rows:
                yield from self._aggregate(made, starts, int(starts.min()))

    def _in_each_window(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, npt.NDArray[np.bool_], Milliseconds]:
        """Return a row for each window that a row belongs to and that is not over, the mask of rows that are late, and
        the window of each row of the first.
        """
        timestamps = self._timestamps(batch)
        try:
            rows, starts = self._assigner.windows_of(timestamps)
        except NoWindow as error:
            raise OperatorFailure(self.operator.name, error, ours=True) from None
        reached_ms = self._reached(self._key_groups(batch))
        discarded_ms = np.broadcast_to(np.asarray(self._discarded_ms(reached_ms)), len(timestamps))
        open_ = self._assigner.end_of(starts) - 1 > discarded_ms[rows]
        rows, starts = rows[open_], starts[open_]
        late = timestamps <= discarded_ms
        late[rows] = False
        return batch.take(pa.array(rows)), late, starts

    def _aggregate(self, batch: pa.RecordBatch, starts: Milliseconds, earliest: int) -> Iterator[Output]:
        key_groups = self._key_groups(batch)
        reached_ms = self._reached(key_groups)
        if self._assigner.end_of(earliest) - 1 + self._lateness_ms <= self._latest(reached_ms):
            late = self._assigner.end_of(starts) - 1 <= self._discarded_ms(reached_ms)
            if late.any():
                yield from self._late(batch.filter(pa.array(late)))
                kept = ~late
                batch, starts, key_groups = batch.filter(pa.array(kept)), starts[kept], key_groups[kept]
                if not batch.num_rows:
                    return
                reached_ms, earliest = self._reached(key_groups), int(starts.min())
        given = self._take(batch)
        found = self._find([*(batch.column(k) for k in self._keys), pa.array(starts)], key_groups)
        slots = found.slots
        self._all_fired.difference_update(self._windows.add(found.new_slots, starts[found.new_rows]))
        for accumulator, values in zip(self._accumulators, given):
            try:
                accumulator.fold(self.table, slots, values)
            except SumOverflow as error:
                raise self._overflow(accumulator.aggregate, error.slot) from None
            self.table.after_write(slots, accumulator.written)
        self.table.settle()
        if self._stays and self._assigner.end_of(int(starts.max())) > WATERMARK_MAX_MS - self._lateness_ms:
            # A drain has fired what is kept for ever, and time begins again behind it.
            self._mark(np.unique(slots[self._assigner.end_of(starts) - 1 > reached_ms]), False)
        if self._stays and self._assigner.end_of(earliest) - 1 <= self._latest(reached_ms):
            again = np.unique(slots[self._assigner.end_of(starts) - 1 <= reached_ms])
            for at in range(0, len(again), self._fired_at_once):
                yield None, self._fire(again[at : at + self._fired_at_once])

    def _timestamps(self, batch: pa.RecordBatch) -> Milliseconds:
        index = batch.schema.get_field_index(TIMESTAMP_COLUMN)
        if index < 0 or batch.column(index).null_count:
            told = (
                "a row has no timestamp, so it belongs to no window: give the stream event time before, by "
                "assign_timestamps_and_watermarks(...) or the source's WatermarkStrategy"
            )
            raise OperatorFailure(self.operator.name, ValueError(told), ours=True)
        timestamps: Milliseconds = batch.column(index).to_numpy()
        return timestamps

    def _starts(self, timestamps: Milliseconds) -> tuple[Milliseconds, int]:
        """Return the start of each row's window, and the earliest of them."""
        try:
            starts = self._assigner.starts_of(timestamps)
        except NoWindow as error:
            raise OperatorFailure(self.operator.name, error, ours=True) from None
        if isinstance(starts, int):
            return np.full(len(timestamps), starts, np.int64), starts
        return starts, int(starts.min())

    def _reached(self, key_groups: npt.NDArray[np.uint16]) -> int | Milliseconds:
        """Return the event time that each row's key has reached: no key sees it run backwards."""
        floors = self._floors
        if floors is None:
            return self._watermark_ms
        reached: Milliseconds = np.maximum(floors[np.minimum(key_groups, len(floors) - 1)], self._watermark_ms)
        reached[key_groups >= len(floors)] = self._watermark_ms
        return reached

    def _discarded_ms(self, reached_ms: int | Milliseconds) -> int | Milliseconds:
        """Return the time up to which windows are discarded for keys that have reached `reached_ms`. The result never
        falls below the least watermark, which is before all windows, so the subtraction cannot overflow int64.
        """
        if isinstance(reached_ms, int):
            return max(reached_ms - self._lateness_ms, WATERMARK_MIN_MS)
        return np.maximum(reached_ms, WATERMARK_MIN_MS + self._lateness_ms) - self._lateness_ms

    @staticmethod
    def _latest(reached_ms: int | Milliseconds) -> int:
        return reached_ms if isinstance(reached_ms, int) else int(reached_ms.max())

    def _late(self, batch: pa.RecordBatch) -> Iterator[Output]:
        if self._spec.late_tag is None:
            self.late_rows += batch.num_rows if self._spec.rows_column is None else _sum(batch, self._spec.rows_column)
        else:
            # The row's own columns and its event time come first.
            yield self._spec.late_tag, batch.select(list(range(len(self._input_schema) + 1)))

    # ---- watermarks ----------------------------------------------------------------------------------------------

    def on_watermark(self, watermark_ms: int) -> Iterator[pa.RecordBatch]:
        self._watermark_ms = max(self._watermark_ms, watermark_ms)
        if self._floors is not None and int(self._floors.max()) <= self._watermark_ms:
            self._floors = None
        due = self._assigner.ended(self._windows.starts, self._watermark_ms)
        if not self._stays:
            for slots in self._windows.taken(due):
                made = self._result(slots)
                self.table.remove(slots)
                yield made
            return
        for start in due:
            if start not in self._all_fired:
                yield from self._fire_window(start)
        past = self._assigner.ended(self._windows.starts, self._watermark_ms - self._lateness_ms)
        self._all_fired.difference_update(past)
        for slots in self._windows.taken(past):
            self.table.remove(slots)
            yield pa.RecordBatch.from_pylist([], schema=self._output_schema)

    def _fire_window(self, start: int) -> Iterator[pa.RecordBatch]:
        for group in self._windows.of(start):
            slots = group[~self.table.values[self._fired][group]]
            if len(slots):
                yield self._fire(slots)
        self._all_fired.add(start)

    def _fire(self, slots: Slots) -> pa.RecordBatch:
        self._mark(slots, True)
        return self._result(slots)

    def _mark(self, slots: Slots, fired: bool) -> None:
        """Mark slots as fired, or as still to fire."""
        self.table.touch(slots)
        self.table.values[self._fired][slots] = fired
        self.table.after_write(slots, [self._fired])
        self.table.settle()

    def _result(self, slots: Slots) -> pa.RecordBatch:
        keys = self.table.keys_of(slots)
        ends = self._assigner.end_of(keys[-1].to_numpy())
        columns = [*keys, pa.array(ends), *(a.result(self.table, slots) for a in self._accumulators)]
        columns.append(pa.array(ends - 1))
        return pa.RecordBatch.from_arrays(columns, schema=self._output_schema)

    def _starts_of(self, slots: Slots) -> Milliseconds:
        starts: Milliseconds = self.table.keys_of(slots)[-1].to_numpy()
        return starts


def _sum(batch: pa.RecordBatch, column: str) -> int:
    return int(batch.column(column).to_numpy().sum())
