"""Implements the first phase of a window in two phases: rows become one for each key and window.

Slices are small, so a key hardly repeats in one; rows are held until there are enough of them. An event or a barrier
that follows them on the edge flushes them first (`ResultPartition.flush_held`). So they are in no state, and no
checkpoint includes them. If it would not pay, because rows are few or keys hardly repeat, each row becomes a row of its
own in the same form.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.limits import USUAL, Limits
from penstock.common.typeinfo import TIMESTAMP_COLUMN
from penstock.graph.declared_columns import Aggregate
from penstock.graph.two_phases import PartialAggregates
from penstock.operators.batches import TIMESTAMP_FIELD
from penstock.operators.windows.assigners.assigner import NoWindow

GROUPED_ROWS_MIN = 4096
"""A grouping costs as much as sending some thousand rows, however few it is given."""
REPEATS_MIN = 4
"""A grouping costs half of what a row costs on its way to the window, so keys have to repeat more often than that."""
HELD_ROWS_MAX = 65_536
"""The most rows that are held: they are grouped at once, which must not take longer than a slice does."""
_HELD_BYTES_MAX = 8 << 20
_PAUSE_BATCHES_MAX = 64


class PartialAggregator:
    """Aggregates the rows of one output edge before they leave."""

    def __init__(self, spec: PartialAggregates, limits: Limits = USUAL) -> None:
        self._held_rows_max = HELD_ROWS_MAX if limits.held_rows is None else limits.held_rows
        self._grouped_rows_min = GROUPED_ROWS_MIN if limits.grouped_rows is None else limits.grouped_rows
        self._repeats_min = REPEATS_MIN if limits.repeats is None else limits.repeats
        self._spec = spec
        self._untimed_schema = spec.row_type.schema
        self._schema = self._untimed_schema.append(TIMESTAMP_FIELD)
        # For these aggregates, a batch's sum may leave int64.
        self._wide_sums = [
            a.column
            for a in spec.aggregates
            if a.function == "sum" and spec.given_type.schema.field(a.column).type.bit_width == 64
        ]
        self._pause_batches = 1
        """The length of the next pause. It doubles each time, as long as keys hardly repeat."""
        self._paused_rows = 0
        """The number of rows that pass ungrouped before grouping is tried again."""
        used = [*spec.keys, *(a.column for a in spec.aggregates if a.column is not None), TIMESTAMP_COLUMN]
        self._used = list(dict.fromkeys(used))
        self._held: list[pa.RecordBatch] = []
        self._held_rows = self._held_bytes = 0

    @property
    def holds(self) -> bool:
        return bool(self._held)

    def add(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Return the batches that leave now, `batch` as the last unless it is held. A row without time or with a null
        key is never held.
        """
        if self._paused_rows or not self._is_complete(batch):
            return [*self.flush_held(), self.of(batch)]
        held = batch.select(self._used)
        self._held.append(held)
        self._held_rows += held.num_rows
        self._held_bytes += held.nbytes
        full = self._held_rows >= self._held_rows_max or self._held_bytes >= _HELD_BYTES_MAX
        return self.flush_held() if full else []

    def flush_held(self) -> list[pa.RecordBatch]:
        """Aggregate all held rows and return them to leave now. Nothing is held afterwards."""
        if not self._held:
            return []
        rows = self._held[0] if len(self._held) == 1 else pa.concat_batches(self._held)
        self._held.clear()
        self._held_rows = self._held_bytes = 0
        return [self.of(rows)]

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Aggregate `batch` if that pays, else convert it row for row. The result has the columns of the given type,
        and TIMESTAMP_COLUMN if the edge is timestamped.
        """
        if self._paused_rows:
            self._paused_rows = max(0, self._paused_rows - batch.num_rows)
            return self._each(batch)
        if batch.num_rows < self._grouped_rows_min or not self._can_group(batch):
            return self._each(batch)
        try:
            made = self._grouped(batch)
        except NoWindow:
            return self._each(batch)
        if self._repeats_min * made.num_rows > batch.num_rows:
            self._paused_rows = self._pause_batches * batch.num_rows
            self._pause_batches = min(2 * self._pause_batches, _PAUSE_BATCHES_MAX)
        else:
            self._pause_batches = 1
        return made

    def _can_group(self, batch: pa.RecordBatch) -> bool:
        """Return False if a row is invalid (the next operator reports it with the row), or if the batch's partial sum
        could leave int64 although the window's does not.
        """
        if not self._is_complete(batch):
            return False
        for column in self._wide_sums:
            ends = pc.min_max(batch.column(column)).as_py()
            if ends["min"] is not None and max(-ends["min"], ends["max"]) * batch.num_rows >= 2**63:
                return False
        return True

    def _is_complete(self, batch: pa.RecordBatch) -> bool:
        index = batch.schema.get_field_index(TIMESTAMP_COLUMN)
        if index < 0 or batch.column(index).null_count:
            return False
        return not any(batch.column(key).null_count for key in self._spec.keys)

    def _each(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        ones = pa.repeat(pa.scalar(1, pa.int64()), batch.num_rows)
        columns = [batch.column(key) for key in self._spec.keys]
        for aggregate in self._spec.aggregates:
            columns.append(ones if aggregate.column is None else _of_each(aggregate, batch.column(aggregate.column)))
        columns.append(ones)
        if TIMESTAMP_COLUMN not in batch.schema.names:
            return pa.RecordBatch.from_arrays(columns, schema=self._untimed_schema)
        return pa.RecordBatch.from_arrays([*columns, batch.column(TIMESTAMP_COLUMN)], schema=self._schema)

    def _grouped(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        spec = self._spec
        starts = spec.assigner.slices.starts_of(batch.column(TIMESTAMP_COLUMN).to_numpy())
        given = {f"key {n}": batch.column(key) for n, key in enumerate(spec.keys)}
        if not isinstance(starts, int):
            given["start"] = pa.array(starts)
        groups = list(given)
        calls: dict[str, tuple[str | list[str], str]] = {"count_all": ([], "count_all")}
        made_by = []
        for n, aggregate in enumerate(spec.aggregates):
            if aggregate.column is None:
                made_by.append("count_all")
                continue
            given[f"value {n}"] = batch.column(aggregate.column)
            made_by.append(f"value {n}_{aggregate.function}")
            calls[made_by[-1]] = (f"value {n}", aggregate.function)
        table = pa.table(given).group_by(groups, use_threads=False).aggregate(list(calls.values()))
        # Batches of a table share its chunks; the groups of one batch have one.
        made = table.combine_chunks().to_batches()[0]
        is_one = isinstance(starts, int)
        times = pa.repeat(pa.scalar(starts, pa.int64()), made.num_rows) if is_one else made.column("start")
        columns = [made.column(name) for name in (*groups[: len(spec.keys)], *made_by, "count_all")]
        return pa.RecordBatch.from_arrays([*columns, times], schema=self._schema)


def _of_each(aggregate: Aggregate, array: pa.Array) -> pa.Array:
    match aggregate.function:
        case "count":
            return array.is_valid().cast(pa.int64())
        case "sum":
            return array.cast(pa.int64())
        case _:
            return array
