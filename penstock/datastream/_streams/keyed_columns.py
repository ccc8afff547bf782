"""Streams that are partitioned by columns: `key_by("user")`. Row functions work on them as on any keyed stream, their
key being the column's value (of several columns the tuple); and built-in aggregates work without any."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow.types as kinds

from penstock.common import scalar_types as scalar
from penstock.common.columns import ColumnType
from penstock.common.typeinfo import TypeInformation
from penstock.common.types import RowType, TupleType
from penstock.datastream._streams.side_outputs import remember_type
from penstock.datastream.columnar import (
    ColumnAggregate,
    columns_of,
    count,
    field_type,
    max_,
    mean,
    min_,
    sum_,
    unknown_column,
)
from penstock.datastream.data_stream import DataStream, KeyedStream, SingleOutputStreamOperator
from penstock.datastream.output_tag import OutputTag
from penstock.datastream.windowed_stream import WindowedStream
from penstock.graph.columns import WINDOW_END, WINDOW_START, Aggregate, AggregateSpec, WindowAggregateSpec
from penstock.graph.logical import OperatorKind, Partitioner, PartitionerKind
from penstock.graph.two_phases import in_two_phases

if TYPE_CHECKING:
    from penstock.datastream.window import WindowAssigner

_NO_KEYS = (scalar.BIG_DEC,)
"""Equal values of these have several representations."""


def key_by_columns(stream: DataStream, columns: tuple[Any, ...]) -> ColumnKeyedStream:
    """Raises where a column is not there, or of a type that keys cannot have."""
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
    return ColumnKeyedStream(stream._environment, stream, Partitioner(PartitionerKind.HASH, key_columns=columns))


class ColumnKeyedStream(KeyedStream):
    @property
    def _keys(self) -> tuple[str, ...]:
        keys = self._partitioner.key_columns
        assert keys is not None
        return keys

    def get_key_type(self) -> TypeInformation:
        types = tuple(field_type(self._type, key) for key in self._keys)
        return types[0] if len(types) == 1 else TupleType(types)

    def aggregate(self, *unnamed: Any, **named: ColumnAggregate) -> SingleOutputStreamOperator:
        """Rolling aggregates: for each row its key, and the aggregates of all rows of the key so far, this one
        included. `aggregate(total=sum_("amount"), orders=count())`; the functions are in
        `penstock.datastream.columnar`."""
        _check_named(unnamed)
        aggregates, types = _aggregates(self._type, "aggregate()", named, self._keys)
        output_type = _output_type(self._type, self._keys, [], aggregates, types)
        spec = AggregateSpec(self._keys, aggregates)
        return self._then(OperatorKind.AGGREGATE_COLUMNS, "Aggregate", spec, output_type)

    def _one(self, aggregate: ColumnAggregate) -> SingleOutputStreamOperator:
        return self.aggregate(**{aggregate.default_name: aggregate})

    def sum(self, column: str) -> SingleOutputStreamOperator:  # type: ignore[override]
        """The rolling sum of a column, as column "sum_<column>"."""
        return self._one(sum_(column))

    def count(self, column: str | None = None) -> SingleOutputStreamOperator:
        """The rolling count of rows, as column "count"; with a column, of those in which it is not null."""
        return self._one(count(column))

    def min(self, column: str) -> SingleOutputStreamOperator:  # type: ignore[override]
        return self._one(min_(column))

    def max(self, column: str) -> SingleOutputStreamOperator:  # type: ignore[override]
        return self._one(max_(column))

    def mean(self, column: str) -> SingleOutputStreamOperator:
        return self._one(mean(column))

    def _rolling(self, method: str, function: Any) -> SingleOutputStreamOperator:
        if isinstance(function.field, str) and function.field not in columns_of(self._type, f"{method}()").names:
            raise unknown_column(f"{method}()", function.field, columns_of(self._type, method))
        return super()._rolling(method, function)

    def window(self, window_assigner: WindowAssigner) -> ColumnWindowedStream:
        return ColumnWindowedStream(self, window_assigner)


class ColumnWindowedStream(WindowedStream):
    """A row for each key and window: the key, `window_start` and `window_end` (ms), the aggregates. Late rows within
    the allowed lateness put their key's window out again, once for each batch of them."""

    _keyed_stream: ColumnKeyedStream

    def aggregate(self, *functions: Any, **named: Any) -> SingleOutputStreamOperator:
        """`aggregate(total=sum_("amount"), orders=count())`, or an AggregateFunction as on any windowed stream."""
        if any(isinstance(given, ColumnAggregate) for given in functions):
            _check_named(functions)
        if functions or not named or not any(isinstance(given, ColumnAggregate) for given in named.values()):
            return super().aggregate(*functions, **named)
        stream = self._keyed_stream
        keys, rows = stream._keys, stream._type
        aggregates, types = _aggregates(rows, "aggregate()", named, (*keys, WINDOW_START, WINDOW_END))
        for key in keys:
            if key in (WINDOW_START, WINDOW_END):
                raise ValueError(f"aggregate(): the key column {key!r} has the name of a column of windows; rename it")
        window: list[tuple[str, ColumnType]] = [(WINDOW_START, scalar.LONG), (WINDOW_END, scalar.LONG)]
        output_type = _output_type(rows, keys, window, aggregates, types)
        spec = WindowAggregateSpec(
            keys=keys,
            aggregates=aggregates,
            size_ms=self._window_assigner.size_ms,
            offset_ms=self._window_assigner.offset_ms,
            allowed_lateness_ms=self._allowed_lateness_ms,
            late_tag=None if self._late_tag is None else self._late_tag.tag_id,
        )
        assert rows is not None  # it has columns
        phases = in_two_phases(spec, rows, [field_type(rows, key) for key in keys], types)
        if phases is not None:
            partial, spec = phases
            partitioner = replace(stream._partitioner, partial=partial)
            stream = ColumnKeyedStream(stream._environment, stream._origin, partitioner)
        made = stream._then(OperatorKind.WINDOW_COLUMNS, "Window Aggregate", spec, output_type)
        if self._late_tag is not None:
            remember_type(made._node_for("window"), OutputTag(self._late_tag.tag_id, self._late_tag.type_info or rows))
        return made

    def _one(self, aggregate: ColumnAggregate) -> SingleOutputStreamOperator:
        return self.aggregate(**{aggregate.default_name: aggregate})

    def sum(self, column: str) -> SingleOutputStreamOperator:
        """The sum of a column, as column "sum_<column>"."""
        return self._one(sum_(column))

    def count(self, column: str | None = None) -> SingleOutputStreamOperator:
        """How many rows, as column "count"; with a column, in how many it is not null."""
        return self._one(count(column))

    def min(self, column: str) -> SingleOutputStreamOperator:
        return self._one(min_(column))

    def max(self, column: str) -> SingleOutputStreamOperator:
        return self._one(max_(column))

    def mean(self, column: str) -> SingleOutputStreamOperator:
        return self._one(mean(column))


def _check_named(unnamed: tuple[Any, ...]) -> None:
    for given in unnamed:
        if isinstance(given, ColumnAggregate):
            column = "" if given.column is None else repr(given.column)
            function = given.function + ("_" if given.function in ("sum", "min", "max") else "")
            raise TypeError(f"aggregate(): each aggregate needs a name for its column: "
                            f"aggregate({given.default_name}={function}({column}))")
        raise TypeError(f"aggregate() of rows so far takes name=aggregate, e.g. total=sum_('amount'); got {given!r}. A "
                        "function of rows goes to reduce(), or to the aggregate() of a window")


def _aggregates(
    rows: TypeInformation | None, method: str, named: dict[str, ColumnAggregate], taken: tuple[str, ...]
) -> tuple[tuple[Aggregate, ...], list[ColumnType]]:
    """Checked, with the types of their results. `taken`: names that the output has already."""
    schema = columns_of(rows, method)
    if not named:
        raise TypeError(f"{method} takes at least one name=aggregate, e.g. total=sum_('amount')")
    made, types = [], []
    for name, given in named.items():
        if not isinstance(given, ColumnAggregate):
            raise TypeError(
                f"{method}: {name!r} is an aggregate of penstock.datastream.columnar (sum_, count, min_, max_, mean), "
                f"got {given!r}"
            )
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
    number = kinds.is_integer(arrow) or kinds.is_floating(arrow)
    ordered = number or kinds.is_temporal(arrow)
    if not (number if given.function in ("sum", "mean") else ordered):
        takes = "numbers" if given.function in ("sum", "mean") else "numbers, dates, times and timestamps"
        raise TypeError(f"{method}: {given.function} takes columns of {takes}; {given.column!r} is {type_info}")
    if given.function == "mean":
        return scalar.DOUBLE
    if given.function == "sum":
        return scalar.LONG if kinds.is_integer(arrow) else scalar.DOUBLE
    return type_info


def _output_type(
    rows: TypeInformation | None, keys: tuple[str, ...], more: list[tuple[str, ColumnType]],
    aggregates: tuple[Aggregate, ...], types: list[ColumnType],
) -> RowType:  # fmt: skip
    names = [*keys, *(name for name, _ in more), *(a.name for a in aggregates)]
    return RowType((*(field_type(rows, key) for key in keys), *(t for _, t in more), *types), tuple(names))
