"""Offers operators over whole Arrow batches, on the same streams as row functions.

    stream.filter(pc.field("amount") > 0) \\
        .with_columns(euros=pc.field("amount") * pc.field("rate")) \\
        .key_by("user") \\
        .aggregate(total=sum_("euros"), orders=count())

A stream has columns if it has a type: `Types.ROW_NAMED([...], [...])`, a tuple (f0, f1, ...), or one value (one column,
"value"). All columns and types are known, and checked, when an operator is declared. Expressions are those of
`pyarrow.compute`: `pc.field("name")`, operators, functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Callable

import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.arrow_types import UnsupportedColumn, column_type_of, row_type_of
from penstock.common.columns import ColumnType
from penstock.common.time import Duration
from penstock.common.typeinfo import RESERVED_COLUMNS, TypeInformation
from penstock.common.types import RowType
from penstock.datastream._streams.schemas import bound, columns_of, field_type, name_of_number, unknown_column
from penstock.datastream._streams.stream import Stream
from penstock.datastream._streams.stream_classes import S
from penstock.graph.declared_columns import (
    AggregateFunctionName,
    FilterSpec,
    MapBatchesSpec,
    ProjectSpec,
    schema_difference,
)
from penstock.graph.logical import OperatorKind

__all__ = ["ColumnAggregate", "ColumnarStream", "count", "max_", "mean", "min_", "sum_"]

BatchFunction = Callable[[pa.RecordBatch], pa.RecordBatch]

_MAX_LATENCY_MS = 100
"""The default of `execution.buffer-timeout.interval`, which bounds how long a row waits."""


@dataclass(frozen=True)
class ColumnAggregate:
    """Describes an aggregate of a column. `sum_`, `count`, `min_`, `max_` and `mean` make them."""

    function: AggregateFunctionName
    column: str | None

    @property
    def default_name(self) -> str:
        """Return the name of the result's column if none is given: "count", "sum_amount"."""
        return self.function if self.column is None else f"{self.function}_{self.column}"


def sum_(column: str) -> ColumnAggregate:
    """Sum a column of numbers.

    The sum of whole numbers is a LONG, that of decimals a DECIMAL of 38 digits, and the job fails if it does not fit;
    the sum of floats is a DOUBLE. Nulls are skipped; the sum of nothing but nulls is null.

    Args:
        column: The name of the column.

    Returns:
        The aggregate.
    """
    return ColumnAggregate("sum", column)


def count(column: str | None = None) -> ColumnAggregate:
    """Count rows, as a LONG.

    Args:
        column: Count only rows in which this column is not null. None: all rows.

    Returns:
        The aggregate.
    """
    return ColumnAggregate("count", column)


def min_(column: str) -> ColumnAggregate:
    """Find the minimum of a column of numbers, dates, times or timestamps. Nulls are skipped.

    Args:
        column: The name of the column.

    Returns:
        The aggregate, of the type of the column.
    """
    return ColumnAggregate("min", column)


def max_(column: str) -> ColumnAggregate:
    """Find the maximum of a column of numbers, dates, times or timestamps. Nulls are skipped.

    Args:
        column: The name of the column.

    Returns:
        The aggregate, of the type of the column.
    """
    return ColumnAggregate("max", column)


def mean(column: str) -> ColumnAggregate:
    """Compute the mean of a column of numbers, as a DOUBLE. Nulls are skipped.

    Args:
        column: The name of the column.

    Returns:
        The aggregate.
    """
    return ColumnAggregate("mean", column)


class ColumnarStream(Stream[S]):
    """Offers operators over whole Arrow batches."""

    def map_batches(
        self,
        func: BatchFunction,
        schema: pa.Schema | TypeInformation | None = None,
        batch_size: int | None = None,
        max_latency: Duration | None = None,
    ) -> S:
        """Apply a function to Arrow batches.

        A batch has as many rows as are there, up to what the function handles in a few milliseconds; if each call has a
        fixed cost (a model, a request), batches grow until the rows cost as much as the call. With `batch_size` rows
        wait for each other. A watermark or a checkpoint's barrier behind them ends the wait, so a checkpoint waits for
        one call.

        On a stream with event time the batch has one more column, `__timestamp__` (int64, ms), behind the others. If
        `func` returns it, those are the rows' times; else the n-th row has the time of the n-th row, and there must be
        as many.

        Example:
            def score(batch: pa.RecordBatch) -> pa.RecordBatch:
                return batch.append_column("score", pa.array(model.predict(batch["features"])))

            stream.map_batches(score, batch_size=256, max_latency=Duration.of_millis(50))

        Args:
            func: `pa.RecordBatch` -> `pa.RecordBatch`, of any number of rows. It must not depend on where a batch ends.
            schema: What `func` returns: an Arrow schema, or a type made by `Types`. None: found by calling `func` with
                an empty batch, now.
            batch_size: How many rows a call gets; fewer if the wait ends before. None: as many as are there.
            max_latency: How long a row waits for others at most, with `batch_size` only. Default: 100 ms.

        Returns:
            The stream of what `func` returns.

        Raises:
            TypeError: The stream has no columns, or `func` cannot be called with an empty batch.
            ValueError: `batch_size` or `max_latency` is not positive, or `max_latency` comes without `batch_size`.
        """
        max_latency_ms = _checked_batching(batch_size, max_latency)
        columns = columns_of(self._type, "map_batches()")
        if not callable(func):
            raise TypeError(f"map_batches() takes a function of a pyarrow.RecordBatch, got {func!r}")
        if isinstance(schema, TypeInformation):
            output_type, declared = schema, columns_of(schema, "map_batches(schema=...)")
        else:
            declared = _found_schema(func, columns) if schema is None else schema
            if not isinstance(declared, pa.Schema):
                raise TypeError(
                    f"map_batches(): schema is a pyarrow.Schema or a type made by Types.ROW_NAMED, got {declared!r}"
                )
            output_type = _row_type("map_batches()", declared)
        spec = MapBatchesSpec(func, declared, batch_size, max_latency_ms)
        return self._then(OperatorKind.MAP_BATCHES, "Map Batches", spec, output_type)

    def select(self, *columns: str | pc.Expression, **named: str | pc.Expression) -> S:
        """Keep some columns, and compute others, in this order.

        Example:
            stream.select("user", total=pc.field("amount") * pc.field("rate"), when="time")

        Args:
            columns: Names of columns.
            named: New names, each with the name of a column or a `pyarrow.compute` expression.

        Returns:
            The stream of these columns.

        Raises:
            TypeError: An argument is neither a name nor an expression, an expression has no name, or the stream has no
                columns.
            ValueError: The stream has no such column, or a name occurs twice.
        """
        chosen: list[tuple[str, str | pc.Expression]] = []
        schema = columns_of(self._type, "select()")
        known = schema.names
        for given in columns:
            if isinstance(given, (list, tuple)):
                raise TypeError(f"select() takes columns one by one, not as a list: {_call('select', given)}")
            if not isinstance(given, (str, pc.Expression)):
                raise TypeError(f"select() takes names of columns and expressions, got {given!r}")
            name = given if isinstance(given, str) else str(given)
            if not isinstance(given, str) and name not in known:
                raise TypeError(
                    f"select(): the column that the expression {name} makes needs a name: write select(..., "
                    f"more={name_of_number(schema)} + 1), or with_columns(more=...) to keep all other columns"
                )
            chosen.append((name, name))
        chosen += list(named.items())
        if not chosen:
            raise TypeError("select() takes at least one column")
        return self._project("Select", "select()", chosen)

    def with_columns(self, **named: str | pc.Expression) -> S:
        """Keep all columns and compute others, which replace columns of the same name or follow the others.

        Example:
            stream.with_columns(euros=pc.field("amount") * pc.field("rate"))

        Args:
            named: Names, each with a `pyarrow.compute` expression or the name of a column.

        Returns:
            The stream of all columns.

        Raises:
            TypeError: An argument is neither an expression nor a name, or the stream has no columns.
            ValueError: The stream has no such column.
        """
        known = columns_of(self._type, "with_columns()").names
        if not named:
            raise TypeError("with_columns() takes at least one name=expression")
        chosen: list[tuple[str, str | pc.Expression]] = [(name, named.get(name, name)) for name in known]
        chosen += [(name, given) for name, given in named.items() if name not in known]
        return self._project("With Columns", "with_columns()", chosen)

    def _project(self, operator: str, method: str, chosen: list[tuple[str, str | pc.Expression]]) -> S:
        schema = columns_of(self._type, method)
        types: list[ColumnType] = []
        names = [name for name, _ in chosen]
        columns: list[tuple[str, str | pc.Expression]] = []
        for name, given in chosen:
            if name in RESERVED_COLUMNS or names.count(name) > 1:
                why = "is reserved for Penstock's own columns" if name in RESERVED_COLUMNS else "is there twice"
                raise ValueError(f"{method}: the column name {name!r} {why}")
            if not isinstance(given, (str, pc.Expression)):
                hint = "; a function of a row goes to map(), one of a batch to map_batches()" if callable(given) else ""
                raise TypeError(
                    f"{method}: column {name!r} is a column's name or an expression (a constant: pc.scalar(...)), got "
                    f"{given!r}{hint}"
                )
            source = given if isinstance(given, str) else str(given)
            if source in schema.names:
                types.append(field_type(self._type, source))
                columns.append((name, source))
                continue
            if isinstance(given, str):
                raise unknown_column(method, given, schema)
            try:
                typed, type = bound(given, schema, method)
                types.append(column_type_of(type, name))
            except UnsupportedColumn as error:
                raise TypeError(f"{method}: {error}") from error
            columns.append((name, typed))
        output_type = RowType(tuple(types), tuple(names))
        return self._then(OperatorKind.PROJECT, operator, ProjectSpec(tuple(columns)), output_type)

    def _filter_columns(self, predicate: pc.Expression) -> S:
        typed, type = bound(predicate, columns_of(self._type, "filter()"), "filter()")
        if type != pa.bool_():
            raise TypeError(f"filter(): the expression {predicate} is a condition, of type bool; it is {type}")
        return self._then(OperatorKind.FILTER_COLUMNS, "Filter", FilterSpec(typed), self._type)


def _call(method: str, names: Sequence[Any]) -> str:
    return f"{method}({', '.join(repr(name) for name in names)})"


def _checked_batching(batch_size: int | None, max_latency: Duration | None) -> int:
    """Return the maximum wait of a row for its batch, in ms."""
    if batch_size is None:
        if max_latency is not None:
            raise ValueError("map_batches(): max_latency bounds the wait for a batch of batch_size rows: give both")
        return 0
    if isinstance(batch_size, bool) or not isinstance(batch_size, int):
        raise TypeError(f"map_batches(): batch_size is a number of rows, got {batch_size!r}")
    if batch_size < 1:
        raise ValueError(f"map_batches(): batch_size is a positive number of rows, got {batch_size}")
    if max_latency is None:
        return _MAX_LATENCY_MS
    if not isinstance(max_latency, Duration):
        raise TypeError(f"map_batches(): max_latency is a Duration, got {max_latency!r}")
    if max_latency.to_millis() < 1:
        raise ValueError(f"map_batches(): max_latency is at least 1 ms, got {max_latency}")
    return max_latency.to_millis()


def _found_schema(func: BatchFunction, columns: pa.Schema) -> pa.Schema:
    empty = pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in columns], schema=columns)
    try:
        made = func(empty)
    except Exception as error:
        raise TypeError(
            f"map_batches(): the function was called with an empty batch, to see what it returns, and raised "
            f"{type(error).__name__}: {error}; make it work with no rows, or say schema=pa.schema([...])"
        ) from error
    problem = schema_difference(made, made.schema if isinstance(made, pa.RecordBatch) else columns, timestamped=False)
    if problem is not None:
        raise TypeError(f"map_batches(): {problem}")
    return made.schema


def _row_type(method: str, schema: pa.Schema) -> TypeInformation:
    if not len(schema):
        raise TypeError(f"{method}: a batch needs at least one column")
    try:
        return row_type_of(schema)
    except UnsupportedColumn as error:
        raise TypeError(f"{method}: {error}") from error
