"""Checks keys and aggregates of streams keyed by columns, `key_by("user")`, and makes the specs of their nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow.types as kinds

from penstock.common.row_types import scalar_types as scalar
from penstock.common.row_types.columns import ColumnType
from penstock.common.typeinfo import TypeInformation
from penstock.common.types import RowType
from penstock.datastream._streams.schemas import columns_of, field_type, unknown_column
from penstock.datastream._streams.stream import Stream
from penstock.datastream.columnar import ColumnAggregate
from penstock.graph.declared_columns import WINDOW_END, WINDOW_START, Aggregate, AggregateSpec, WindowAggregateSpec
from penstock.graph.logical import Input, Partitioner, PartitionerKind
from penstock.graph.two_phases import in_two_phases
from penstock.operators.windows.assigners.assigner import Assigner, MergingAssigner

_BIG = (scalar.BIG_INT, scalar.BIG_DEC)
_NO_KEYS = (scalar.BIG_DEC,)
"""Equal values of these have several representations."""


def partitioner_by_columns(stream: Stream, columns: tuple[Any, ...]) -> Partitioner:
    """Return the partitioner by these columns. Raises ValueError or TypeError for columns that cannot be keys."""
    schema = columns_of(stream._type, "key_by()")
    for column in columns:
        if not isinstance(column, str):
            raise TypeError(f"key_by() takes a key selector, or names of columns; got {column!r} among names")
        if column not in schema.names:
            raise unknown_column("key_by()", column, schema)
        if columns.count(column) > 1:
            raise ValueError(f"key_by(): the column {column!r} is there twice")
        type_info = field_type(stream._type, column)
        type = schema.field(column).type
        scalar_type = kinds.is_primitive(type) or kinds.is_string(type) or kinds.is_binary(type)
        if not scalar_type or type_info == scalar.PICKLED or type_info in _NO_KEYS:
            raise TypeError(
                f"key_by(): column {column!r} of type {type_info} cannot be a key; key by columns of numbers, strings, "
                "bytes, dates or times, or give a key selector"
            )
    return Partitioner(PartitionerKind.HASH, key_columns=columns)


def aggregates_so_far(
    stream: Stream, unnamed: tuple[Any, ...], named: dict[str, ColumnAggregate]
) -> tuple[AggregateSpec, RowType]:
    """Return the spec of rolling aggregates per key, and the type of its rows."""
    check_named(unnamed)
    keys = _keys_of(stream._partitioner)
    aggregates, types = _aggregates(stream._type, "aggregate()", named, keys)
    return AggregateSpec(keys, aggregates), _output_type(stream._type, keys, [], aggregates, types)


def window_aggregates(
    stream: Stream,
    named: dict[str, ColumnAggregate],
    rule: Assigner | MergingAssigner | None,
    allowed_lateness_ms: int,
    late_tag: str | None,
) -> tuple[WindowAggregateSpec, RowType, list[Input]]:
    """Return the spec of aggregates per key and window, the type of its rows, and its inputs.

    The inputs are partitioned with partial aggregates where the windows are aggregated in two phases.
    """
    if not isinstance(rule, Assigner):
        kind = "windows with a trigger of their own, of the clock, or of counts" if rule is None else "sessions"
        raise TypeError(
            f"aggregate(): built-in aggregates have no {kind} yet: use an AggregateFunction, a ReduceFunction or a "
            "ProcessWindowFunction, which the same stream takes"
        )
    keys, rows = _keys_of(stream._partitioner), stream._type
    aggregates, types = _aggregates(rows, "aggregate()", named, (*keys, WINDOW_START, WINDOW_END))
    for key in keys:
        if key in (WINDOW_START, WINDOW_END):
            raise ValueError(f"aggregate(): the key column {key!r} has the name of a column of windows; rename it")
    window: list[tuple[str, ColumnType]] = [(WINDOW_START, scalar.LONG), (WINDOW_END, scalar.LONG)]
    output_type = _output_type(rows, keys, window, aggregates, types)
    spec = WindowAggregateSpec(
        keys=keys, aggregates=aggregates, assigner=rule, allowed_lateness_ms=allowed_lateness_ms, late_tag=late_tag
    )
    assert rows is not None  # a stream that is keyed by columns has columns
    inputs = stream._inputs
    phases = in_two_phases(spec, rows, [field_type(rows, key) for key in keys], types)
    if phases is not None:
        partial, spec = phases
        assert stream._partitioner is not None
        partitioner = replace(stream._partitioner, partial=partial)
        inputs = [replace(i, partitioner=partitioner) for i in inputs]
    return spec, output_type, inputs


def _keys_of(partitioner: Partitioner | None) -> tuple[str, ...]:
    """Return the columns that a stream is keyed by."""
    assert partitioner is not None and partitioner.key_columns is not None
    return partitioner.key_columns


def check_named(unnamed: tuple[Any, ...]) -> None:
    for given in unnamed:
        if isinstance(given, ColumnAggregate):
            column = "" if given.column is None else repr(given.column)
            function = given.function + ("_" if given.function in ("sum", "min", "max") else "")
            raise TypeError(
                f"aggregate(): each aggregate needs a name for its column: "
                f"aggregate({given.default_name}={function}({column}))"
            )
        raise TypeError(
            f"aggregate() of rows so far takes name=aggregate, e.g. total=sum_('amount'); got {given!r}. A "
            "function of rows goes to reduce(), or to the aggregate() of a window"
        )


def check_built_in(named: dict[str, Any]) -> None:
    """Check that the arguments that `aggregate()` of windows does not know are aggregates. Raises TypeError."""
    for name, given in named.items():
        if not isinstance(given, ColumnAggregate):
            raise _no_aggregate("aggregate()", name, given)


def _no_aggregate(method: str, name: str, given: Any) -> TypeError:
    return TypeError(
        f"{method}: {name!r} is neither one of its arguments nor an aggregate that is made by sum_(), count(), min_(), "
        f"max_() or mean() of penstock.datastream.columnar, e.g. total=sum_('amount'); got {given!r}"
    )


def _aggregates(
    rows: TypeInformation | None, method: str, named: dict[str, ColumnAggregate], taken: tuple[str, ...]
) -> tuple[tuple[Aggregate, ...], list[ColumnType]]:
    """Check the aggregates, and return them with the types of their results. `taken`: names of other columns."""
    schema = columns_of(rows, method)
    if not named:
        raise TypeError(f"{method} takes at least one name=aggregate, e.g. total=sum_('amount')")
    made, types = [], []
    for name, given in named.items():
        if not isinstance(given, ColumnAggregate):
            raise _no_aggregate(method, name, given)
        if name in taken:
            raise ValueError(f"{method}: the name {name!r} is that of a column of the key or window; choose another")
        if given.column is not None and given.column not in schema.names:
            raise unknown_column(method, given.column, schema)
        made.append(Aggregate(name, given.function, given.column))
        types.append(_result_type(rows, method, given))
    return tuple(made), types


def _result_type(rows: TypeInformation | None, method: str, given: ColumnAggregate) -> ColumnType:
    if given.function == "count" or given.column is None:
        return scalar.LONG
    type_info = field_type(rows, given.column)
    arrow = type_info.arrow_type
    number = kinds.is_integer(arrow) or kinds.is_floating(arrow) or kinds.is_decimal(arrow)
    ordered = number or kinds.is_temporal(arrow)
    if not (number if given.function in ("sum", "mean") else ordered):
        takes = "numbers" if given.function in ("sum", "mean") else "numbers, dates, times and timestamps"
        hint = ", of any number of digits: declare Types.DECIMAL(precision, scale)" if type_info in _BIG else ""
        raise TypeError(f"{method}: {given.function} takes columns of {takes}; {given.column!r} is {type_info}{hint}")
    if given.function == "mean":
        return scalar.DOUBLE
    if given.function == "sum":
        if isinstance(type_info, scalar.DecimalType):
            return scalar.decimal_type(scalar.DECIMAL_DIGITS_MAX, type_info.scale)
        return scalar.LONG if kinds.is_integer(arrow) else scalar.DOUBLE
    return type_info


def _output_type(
    rows: TypeInformation | None,
    keys: tuple[str, ...],
    more: list[tuple[str, ColumnType]],
    aggregates: tuple[Aggregate, ...],
    types: list[ColumnType],
) -> RowType:
    names = [*keys, *(name for name, _ in more), *(a.name for a in aggregates)]
    return RowType((*(field_type(rows, key) for key in keys), *(t for _, t in more), *types), tuple(names))
