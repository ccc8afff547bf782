"""Runs the operators of a columnar vertex: batches in, batches out, no Python object per row.

The outside, as a subtask uses it:

- `open()`, then, where it was restored, `set_time(current_ms, floors)`; `close()` at the end of data or of the
  generation.
- `run(batch)` pushes a slice through and returns its output, a list of (side output's tag or None, batch). The
  batch has the columns of the head's input type, TIMESTAMP_COLUMN where the input is timestamped, and, behind a
  keyed edge, KEY_GROUP_COLUMN (KEY_COLUMN is ignored). The output has the columns of the last operator's output
  type, and TIMESTAMP_COLUMN where that is timestamped. A slice is never left in the middle: `unfinished` is False.
- `on_watermark(ms)` returns an iterator over the outputs of windows that fire, in groups of at most
  `ROWS_PER_FIRED_GROUP` rows. Between two of them the state may be snapshot: what has been emitted has left it. No
  `run` before it is exhausted. A group may be empty: then only state was dropped.
- Rows may be held until a batch of the size that the user wants is complete: then `holds` is True, `slice_rows()`
  says how many rows the next `run` should bring, and `due_in_ms` when `flush_held()` must be called at the latest. Its
  result has to be emitted before the event or barrier that follows the rows, so held rows are in no state.
- `late_rows` counts rows that were dropped because they were late.

Without operators (a bare source, sink, or both) batches pass as they are, except for the columns of their edge.
"""

from __future__ import annotations

from typing import Callable, Iterator, Sequence

import pyarrow as pa

from penstock.common.program.failures import OperatorFailure
from penstock.common.typeinfo import TIMESTAMP_COLUMN
from penstock.graph.job_graph import Vertex
from penstock.operators.batches import row_type
from penstock.operators.columns.columnar_operator import ROWS_PER_FIRED_GROUP, ColumnarOperator, Output
from penstock.protocol.values.metadata import GroupFloor

__all__ = ["ROWS_PER_FIRED_GROUP", "ColumnarChain", "Output"]

_REMEMBERED_ROWS = 100_000


class ColumnarChain:
    unfinished = False
    timers = None
    """No timers: they are for rows; a columnar operator has windows instead."""

    def __init__(self, vertex: Vertex, operators: Sequence[ColumnarOperator], clock_ms: Callable[[], float]) -> None:
        """Connect the vertex's columnar `operators`, head first, as `columnar_operators` makes them."""
        self._operators = list(operators)
        self._clock_ms = clock_ms
        self._batching = [o for o in operators if o.lacking_rows is not None]
        self._rows_in = self._rows_reached = 0
        """The rows that entered the chain, and those that reached the first operator that waits for batches: their
        ratio is the share that gets so far. Old rows fade."""
        self._due_ms: dict[ColumnarOperator, float] = {}
        """The time by which each operator that holds rows must flush them."""
        self.keyed = bool(operators) and operators[0].operator.kind.keyed
        head = vertex.operators[0]
        self._own_columns = len(row_type(head.output_type if vertex.is_source else head.input_type).schema)

    @property
    def late_rows(self) -> int:
        return sum(o.late_rows for o in self._operators)

    def open(self) -> None:
        for operator in self._operators:
            operator.open()

    def close(self) -> None:
        """Close every operator, even if others raise; the first error is raised at the end."""
        first: OperatorFailure | None = None
        for operator in self._operators:
            try:
                operator.close()
            except OperatorFailure as error:
                first = first or error
        if first is not None:
            raise first

    def set_time(self, current_ms: int, floors: Sequence[GroupFloor]) -> None:
        for operator in self._operators:
            operator.set_time(current_ms, floors)

    def run(self, batch: pa.RecordBatch, input_index: int = 0) -> list[Output]:
        if not self.keyed and batch.num_columns != self._own_columns:
            batch = self._without_keys(batch)
        if not self._batching:
            return list(self._push(0, batch))
        for operator in self._batching:
            operator.began = False
        self._batching[0].taken_rows = 0
        made = list(self._push(0, batch))
        self._note_reached(batch.num_rows, self._batching[0].taken_rows)
        self._note_held()
        return made

    @property
    def holds(self) -> bool:
        return any(o.holds for o in self._batching)

    @property
    def lacking_rows(self) -> int | None:
        return self._batching[0].lacking_rows if self._batching else None

    def slice_rows(self, budget_rows: int) -> int:
        """Return the number of rows for the next `run`: enough to complete the user's batch, as far as operators in
        front of it let them through; and not more than `budget_rows`, unless the batch alone is larger."""
        lacking = self.lacking_rows
        if lacking is None:
            return budget_rows
        wanted = lacking * self._rows_in // max(self._rows_reached, 1) if self._rows_in else lacking
        return max(1, wanted) if wanted <= lacking else max(lacking, min(wanted, budget_rows))

    def _note_reached(self, rows: int, reached: int) -> None:
        if self._rows_in > _REMEMBERED_ROWS:
            self._rows_in //= 2
            self._rows_reached //= 2
        self._rows_in += rows
        self._rows_reached += reached

    @property
    def due_in_ms(self) -> float | None:
        if not self._due_ms:
            return None
        return max(0.0, min(self._due_ms.values()) - self._clock_ms())

    def flush_held(self) -> list[Output]:
        """Process all rows that are held, head first."""
        made: list[Output] = []
        for index, operator in enumerate(self._operators):
            for tag, batch in operator.flush_held():
                made += [(tag, batch)] if tag is not None else self._push(index + 1, batch)
        self._due_ms.clear()
        return made

    def _note_held(self) -> None:
        """Set the deadline of batches started in this call; waiting batches keep theirs."""
        for operator in self._batching:
            if not operator.holds:
                self._due_ms.pop(operator, None)
            elif operator.began or operator not in self._due_ms:
                self._due_ms[operator] = self._clock_ms() + operator.max_latency_ms

    def on_watermark(self, watermark_ms: int) -> Iterator[Output]:
        if self._operators:
            for fired in self._operators[0].on_watermark(watermark_ms):
                if fired.num_rows:
                    yield from self._push(1, fired)
                else:
                    yield None, fired

    def _push(self, index: int, batch: pa.RecordBatch) -> Iterator[Output]:
        if not batch.num_rows:
            return
        if index == len(self._operators):
            yield None, batch
            return
        for tag, made in self._operators[index].process(batch):
            if tag is None:
                yield from self._push(index + 1, made)
            else:
                yield tag, made

    def _without_keys(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the row's columns and its event time, without the key columns that a partitioning by key added for
        nobody here.
        """
        own = self._own_columns
        if batch.schema.field(own).name == TIMESTAMP_COLUMN:
            own += 1
        return batch if batch.num_columns == own else batch.select(list(range(own)))
