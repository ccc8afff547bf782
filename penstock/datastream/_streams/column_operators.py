"""Checks the arguments of columnar operators, and makes the specs of their nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable

import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.row_types.arrow_types import UnsupportedColumn, column_type_of, row_type_of
from penstock.common.row_types.columns import ColumnType
from penstock.common.time import Duration
from penstock.common.typeinfo import RESERVED_COLUMNS, TypeInformation
from penstock.common.types import RowType, TupleType
from penstock.datastream._streams.schemas import bound, columns_of, field_type, name_of_number, unknown_column
from penstock.graph.declared_columns import FilterSpec, MapBatchesSpec, ProjectSpec, schema_difference

BatchFunction = Callable[[pa.RecordBatch], pa.RecordBatch]
Chosen = list[tuple[str, str | pc.Expression]]
"""Columns of a projection: name, and the column or expression that it is made of."""

_MAX_LATENCY_MS = 100
"""The default of `execution.buffer-timeout.interval`, which bounds how long a row waits."""


def batch_function(
    type_info: TypeInformation | None,
    func: BatchFunction,
    schema: pa.Schema | TypeInformation | None,
    batch_size: int | None,
    max_latency: Duration | None,
) -> tuple[MapBatchesSpec, TypeInformation]:
    """Return the spec of `map_batches()` on a stream of this type, and the type of its rows."""
    max_latency_ms = _checked_batching(batch_size, max_latency)
    columns = columns_of(type_info, "map_batches()")
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
    return MapBatchesSpec(func, declared, batch_size, max_latency_ms), output_type


def selected(
    type_info: TypeInformation | None, columns: tuple[str | pc.Expression, ...], named: dict[str, str | pc.Expression]
) -> Chosen:
    """Return the columns that `select()` keeps and computes."""
    chosen: Chosen = []
    schema = columns_of(type_info, "select()")
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
    return chosen


def all_and_more(type_info: TypeInformation | None, named: dict[str, str | pc.Expression]) -> Chosen:
    """Return all columns and those that `with_columns()` computes."""
    known = columns_of(type_info, "with_columns()").names
    if not named:
        raise TypeError("with_columns() takes at least one name=expression")
    chosen: Chosen = [(name, named.get(name, name)) for name in known]
    chosen += [(name, given) for name, given in named.items() if name not in known]
    return chosen


def projected_tuple(
    type_info: TypeInformation | None, field_indexes: tuple[int, ...]
) -> tuple[ProjectSpec, TypeInformation]:
    """Return the spec of `project()` on a stream of tuples, and the type of its rows."""
    if not isinstance(type_info, TupleType):
        declared = "of no declared type" if type_info is None else f"{type_info}"
        raise TypeError(
            f"project() keeps fields of tuples, and the rows of this stream are {declared}: declare Types.TUPLE([...]) "
            "as the output_type of the operator before it, or use select('a', 'b')"
        )
    if not field_indexes:
        raise TypeError("project() takes at least one position")
    fields = len(type_info.field_types)
    for index in field_indexes:
        if not isinstance(index, int) or not 0 <= index < fields:
            raise ValueError(f"project(): there is no field {index!r}; the fields of {type_info} are 0 to {fields - 1}")
    chosen: Chosen = [(f"f{place}", f"f{index}") for place, index in enumerate(field_indexes)]
    spec, _ = projection(type_info, "project()", chosen)
    return spec, TupleType(tuple(type_info.field_types[index] for index in field_indexes))


def projection(type_info: TypeInformation | None, method: str, chosen: Chosen) -> tuple[ProjectSpec, RowType]:
    """Return the spec of a projection, and the type of its rows. `method`: the user's call, for messages."""
    schema = columns_of(type_info, method)
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
            types.append(field_type(type_info, source))
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
    return ProjectSpec(tuple(columns)), RowType(tuple(types), tuple(names))


def column_filter(type_info: TypeInformation | None, predicate: pc.Expression) -> FilterSpec:
    """Return the spec of a filter by an expression."""
    typed, type = bound(predicate, columns_of(type_info, "filter()"), "filter()")
    if type != pa.bool_():
        raise TypeError(f"filter(): the expression {predicate} is a condition, of type bool; it is {type}")
    return FilterSpec(typed)


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
