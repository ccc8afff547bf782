"""Implements columnar operators without state: the user's function over batches, projections, filters."""

from __future__ import annotations

from typing import Any, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.limits import USUAL, Limits
from penstock.common.program.failures import USER_ERRORS, OperatorFailure
from penstock.common.row_types.arrow_types import UnsupportedColumn, conform
from penstock.common.row_types.user_batches import independent
from penstock.common.typeinfo import TIMESTAMP_COLUMN
from penstock.graph.declared_columns import FilterSpec, MapBatchesSpec, ProjectSpec, schema_difference
from penstock.graph.job_graph import Operator, Vertex
from penstock.graph.logical import OperatorKind
from penstock.operators.batches import TIMESTAMP_FIELD, joined, row_type
from penstock.operators.columns.columnar_keyed import FinalAggregates, RollingAggregates
from penstock.operators.columns.columnar_operator import ColumnarOperator, Output
from penstock.operators.windows.column_windows import WindowAggregates
from penstock.state.columnar.columnar_backend import ColumnarBackend

_NODE_BATCH_ROWS_MAX = 32_768
"""Acero cuts what it is given into batches of as many rows."""


class _Stateless(ColumnarOperator):
    def __init__(self, operator: Operator) -> None:
        super().__init__(operator)
        self._input_schema = row_type(operator.input_type).schema
        self._output_schema = row_type(operator.output_type).schema
        if operator.timestamped:
            self._output_schema = self._output_schema.append(TIMESTAMP_FIELD)

    def _failure(self, told: str) -> OperatorFailure:
        return OperatorFailure(self.operator.name, TypeError(told), ours=True)


class MapBatches(_Stateless):
    """Calls the user's function with the columns of the type, and, on a stream with event time, TIMESTAMP_COLUMN after
    them. With a batch size, rows are held until there are as many.
    """

    def __init__(self, operator: Operator) -> None:
        super().__init__(operator)
        spec: MapBatchesSpec = operator.function
        self._call = spec.wrapped
        self._declared = spec.schema
        self._batch_rows = spec.batch_size
        self.max_latency_ms = float(spec.max_latency_ms)
        self.lacking_rows = spec.batch_size
        self._held: list[pa.RecordBatch] = []
        self._held_rows = 0

    @property
    def holds(self) -> bool:
        return bool(self._held)

    def process(self, batch: pa.RecordBatch) -> Iterator[Output]:
        if self._batch_rows is None:
            yield self._mapped(batch)
            return
        self.taken_rows += batch.num_rows
        self.began = self.began or not self._held
        start = 0
        while batch.num_rows - start >= self._batch_rows - self._held_rows:
            lacking = self._batch_rows - self._held_rows
            self._hold(batch.slice(start, lacking))
            start += lacking
            self.began = True
            yield from self.flush_held()
        if start < batch.num_rows:
            self._hold(batch.slice(start))

    def flush_held(self) -> Iterator[Output]:
        if self._held:
            rows = joined(self._held)
            self._held, self._held_rows, self.lacking_rows = [], 0, self._batch_rows
            yield self._mapped(rows)

    def _hold(self, rows: pa.RecordBatch) -> None:
        assert self._batch_rows is not None
        self._held.append(rows)
        self._held_rows += rows.num_rows
        self.lacking_rows = max(1, self._batch_rows - self._held_rows)

    def _mapped(self, batch: pa.RecordBatch) -> Output:
        try:
            made = self._call(batch)
        except USER_ERRORS as error:
            raise OperatorFailure(self.operator.name, error) from error
        problem = schema_difference(made, self._declared, timestamped=self.operator.timestamped)
        if problem is not None:
            raise self._failure(f"map_batches: {problem}")
        columns = [made.column(name) for name in self._declared.names]
        try:
            rows = pa.RecordBatch.from_arrays(columns, schema=self._declared)
            rows = conform(rows, row_type(self.operator.output_type).schema)
        except UnsupportedColumn as error:
            raise self._failure(f"map_batches: {error}") from error
        if self.operator.timestamped:
            arrays = [*rows.columns, self._timestamps(batch, made)]
            rows = pa.RecordBatch.from_arrays(arrays, schema=self._output_schema)
        return None, independent(rows, batch)

    def _timestamps(self, given: pa.RecordBatch, made: pa.RecordBatch) -> pa.Array:
        index = made.schema.get_field_index(TIMESTAMP_COLUMN)
        if index >= 0:
            return made.column(index)
        if made.num_rows == given.num_rows:
            return given.column(TIMESTAMP_COLUMN)
        raise self._failure(
            f"map_batches: {made.num_rows} rows were returned for {given.num_rows}, so which has which event time "
            f"cannot be told: keep the column {TIMESTAMP_COLUMN!r}, which is behind the others, in the returned batch"
        )


class Project(_Stateless):
    def __init__(self, operator: Operator) -> None:
        super().__init__(operator)
        spec: ProjectSpec = operator.function
        self._columns: list[tuple[str, str | pc.Expression]] = [*spec.columns]
        if operator.timestamped:
            self._columns.append((TIMESTAMP_COLUMN, TIMESTAMP_COLUMN))
        self._computed = [(i, e) for i, (_, e) in enumerate(self._columns) if not isinstance(e, str)]
        if self._computed:
            self._node = _projection([e for _, e in self._computed], [str(i) for i, _ in self._computed])

    def process(self, batch: pa.RecordBatch) -> Iterator[Output]:
        arrays = [batch.column(e) if isinstance(e, str) else None for _, e in self._columns]
        if self._computed:
            computed = _projected(self.operator, self._node, batch)
            for (index, _), array in zip(self._computed, computed.columns):
                arrays[index] = array
        try:
            made = pa.RecordBatch.from_arrays(arrays, names=self._output_schema.names)
            yield None, conform(made, self._output_schema)
        except UnsupportedColumn as error:
            raise self._failure(str(error)) from error


class Filter(_Stateless):
    def __init__(self, operator: Operator) -> None:
        super().__init__(operator)
        spec: FilterSpec = operator.function
        self._node = _projection([spec.predicate], ["kept"])

    def process(self, batch: pa.RecordBatch) -> Iterator[Output]:
        mask = _projected(self.operator, self._node, batch).column(0)
        yield None, batch.filter(mask)


def _projection(expressions: list[pc.Expression], names: list[str]) -> Any:
    # Slots without expressions do not pay for Acero: it brings pandas with it, 0.3 s and 50 MB.
    from pyarrow import acero

    return acero.ProjectNodeOptions(expressions, names)


def _projected(operator: Operator, node: Any, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Run a batch through a node made by `_projection`, on this thread, in order. Raises `OperatorFailure`."""
    from pyarrow import acero

    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(pa.Table.from_batches([batch])))
    try:
        made = acero.Declaration("project", node, [source]).to_table(use_threads=False)
    except (pa.ArrowException, ValueError) as error:
        told = (
            f"an expression failed: {error} (whole numbers beside a literal with a point are computed in 32 bits where "
            "that can hold the literal: cast the column first, pc.field(...).cast('float64'))"
            if "not in range" in str(error)
            else f"an expression failed: {error}"
        )
        raise OperatorFailure(operator.name, ValueError(told), ours=True) from error
    if batch.num_rows > _NODE_BATCH_ROWS_MAX:
        made = made.combine_chunks()
    batches = made.to_batches()
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def columnar_operators(
    vertex: Vertex, backend: ColumnarBackend[Any] | None, limits: Limits = USUAL, is_batch: bool = False
) -> list[ColumnarOperator]:
    """Build the columnar operators of a vertex, head first. `backend` is needed if one of them is keyed. `is_batch`:
    aggregates per key come once, at the end.
    """
    return [_create(o, backend, limits, is_batch) for o in vertex.operators if o.kind.columnar]


def _create(
    operator: Operator, backend: ColumnarBackend[Any] | None, limits: Limits, is_batch: bool
) -> ColumnarOperator:
    match operator.kind:
        case OperatorKind.MAP_BATCHES:
            return MapBatches(operator)
        case OperatorKind.PROJECT:
            return Project(operator)
        case OperatorKind.FILTER_COLUMNS:
            return Filter(operator)
        case OperatorKind.AGGREGATE_COLUMNS if backend is not None:
            return FinalAggregates(operator, backend) if is_batch else RollingAggregates(operator, backend)
        case OperatorKind.WINDOW_COLUMNS if backend is not None:
            return WindowAggregates(operator, backend, limits.fired_at_once)
        case kind:
            raise ValueError(f"operator '{operator.name}' is not columnar, or has no state backend: {kind}")
