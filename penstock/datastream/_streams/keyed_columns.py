"""Aggregates streams keyed by columns, `key_by("user")`, so far and per window.

A row function's key is the value of the column, or the tuple of the values of several columns.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow.types as kinds

from penstock.common import scalar_types as scalar
from penstock.common.columns import ColumnType
from penstock.common.typeinfo import TypeInformation
from penstock.common.types import RowType
from penstock.datastream._streams.schemas import columns_of, field_type, unknown_column
from penstock.datastream._streams.stream import Stream
from penstock.datastream._streams.stream_classes import S
from penstock.datastream._streams.windowed import Windowed
from penstock.datastream.columnar import ColumnAggregate, count, max_, mean, min_, sum_
from penstock.graph.declared_columns import WINDOW_END, WINDOW_START, Aggregate, AggregateSpec, WindowAggregateSpec
from penstock.graph.logical import OperatorKind, Partitioner, PartitionerKind
from penstock.graph.two_phases import in_two_phases

_BIG = (scalar.BIG_INT, scalar.BIG_DEC)
_NO_KEYS = (scalar.BIG_DEC,)
"""Equal values of these have several representations."""


def partitioner_by_columns(stream: Stream[S], columns: tuple[Any, ...]) -> Partitioner:
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


class ColumnAggregates(Stream[S]):
    """Offers rolling built-in aggregates per key."""

    def aggregate(self, *unnamed: Any, **named: ColumnAggregate) -> S:
        """Emit for each row its key and the aggregates of all rows of the key so far, this row included.

        Example:
            stream.key_by("user").aggregate(total=sum_("amount"), orders=count())

        Args:
            unnamed: Not allowed: each aggregate needs a name.
            named: By the names of their columns, aggregates made by `sum_`, `count`, `min_`, `max_` and `mean` of
                `penstock.datastream.columnar`.

        Returns:
            A stream of rows with the columns of the key and those of the aggregates.

        Raises:
            TypeError: An aggregate has no name, or does not take columns of that type.
            ValueError: The stream has no such column, or the key has a column of that name.
        """
        _check_named(unnamed)
        keys = keys_of(self._partitioner)
        aggregates, types = _aggregates(self._type, "aggregate()", named, keys)
        output_type = _output_type(self._type, keys, [], aggregates, types)
        spec = AggregateSpec(keys, aggregates)
        return self._then(OperatorKind.AGGREGATE_COLUMNS, "Aggregate", spec, output_type)

    def _one(self, aggregate: ColumnAggregate) -> S:
        return self.aggregate(**{aggregate.default_name: aggregate})

    def sum(self, column: str) -> S:
        """Emit the sum of a column so far for each row: its key and the column `sum_<column>`.

        Args:
            column: The name of a column of numbers.

        Returns:
            The stream of sums: LONG for whole numbers, DOUBLE for floats.
        """
        return self._one(sum_(column))

    def count(self, column: str | None = None) -> S:
        """Emit the number of rows so far for each row: its key and the column `count`.

        Args:
            column: Count only rows in which this column is not null; the result's column is `count_<column>`.

        Returns:
            The stream of counts (LONG).
        """
        return self._one(count(column))

    def min(self, column: str) -> S:
        """Emit the minimum of a column so far for each row: its key and the column `min_<column>`.

        Args:
            column: The name of a column of numbers, dates, times or timestamps.

        Returns:
            The stream of minima, of the type of the column.
        """
        return self._one(min_(column))

    def max(self, column: str) -> S:
        """Emit the maximum of a column so far for each row: its key and the column `max_<column>`.

        Args:
            column: The name of a column of numbers, dates, times or timestamps.

        Returns:
            The stream of maxima, of the type of the column.
        """
        return self._one(max_(column))

    def mean(self, column: str) -> S:
        """Emit the mean of a column so far for each row: its key and the column `mean_<column>`.

        Args:
            column: The name of a column of numbers.

        Returns:
            The stream of means (DOUBLE).
        """
        return self._one(mean(column))


class ColumnWindowed(Windowed[S]):
    """Offers built-in aggregates per key and window."""

    def aggregate(self, *functions: Any, **named: Any) -> S:
        """Aggregate the rows of each key and window, by built-in aggregates or an `AggregateFunction`.

        Built-in aggregates emit a row per key and window: the key, `window_start` and `window_end` (LONG, ms since
        the epoch), the aggregates. A batch of late rows within the allowed lateness emits its windows' rows again.

        Example:
            stream.key_by("user").window(assigner).aggregate(total=sum_("amount"), orders=count())

        Args:
            functions: The arguments of `WindowedStream.aggregate`, beginning with an `AggregateFunction`.
            named: By the names of their columns, aggregates made by `sum_`, `count`, `min_`, `max_` and `mean` of
                `penstock.datastream.columnar`; or arguments of `WindowedStream.aggregate`.

        Returns:
            The stream of results. A result's timestamp is the last millisecond of its window.

        Raises:
            TypeError: An aggregate has no name, or does not take columns of that type.
            ValueError: The stream has no such column, or a name is taken by the key or the window.
        """
        if any(isinstance(given, ColumnAggregate) for given in functions):
            _check_named(functions)
        if functions or not named or not any(isinstance(given, ColumnAggregate) for given in named.values()):
            return super().aggregate(*functions, **named)
        stream = self._keyed_stream
        keys, rows = keys_of(stream._partitioner), stream._type
        aggregates, types = _aggregates(rows, "aggregate()", named, (*keys, WINDOW_START, WINDOW_END))
        for key in keys:
            if key in (WINDOW_START, WINDOW_END):
                raise ValueError(f"aggregate(): the key column {key!r} has the name of a column of windows; rename it")
        window: list[tuple[str, ColumnType]] = [(WINDOW_START, scalar.LONG), (WINDOW_END, scalar.LONG)]
        output_type = _output_type(rows, keys, window, aggregates, types)
        spec = WindowAggregateSpec(
            keys=keys,
            aggregates=aggregates,
            assigner=self._window_assigner._assigner(),
            allowed_lateness_ms=self._allowed_lateness_ms,
            late_tag=None if self._late_tag is None else self._late_tag.tag_id,
        )
        assert rows is not None  # a stream that is keyed by columns has columns
        inputs = stream._inputs
        phases = in_two_phases(spec, rows, [field_type(rows, key) for key in keys], types)
        if phases is not None:
            partial, spec = phases
            assert stream._partitioner is not None
            partitioner = replace(stream._partitioner, partial=partial)
            inputs = [replace(i, partitioner=partitioner) for i in inputs]
        made = stream._then(OperatorKind.WINDOW_COLUMNS, "Window Aggregate", spec, output_type, inputs)
        self._remember_late_type(made)
        return made

    def _one(self, aggregate: ColumnAggregate) -> S:
        return self.aggregate(**{aggregate.default_name: aggregate})

    def sum(self, column: str) -> S:
        """Emit the sum of a column per key and window, as column `sum_<column>`.

        Args:
            column: The name of a column of numbers.

        Returns:
            The stream of sums: LONG for whole numbers, DOUBLE for floats.
        """
        return self._one(sum_(column))

    def count(self, column: str | None = None) -> S:
        """Emit the number of rows per key and window, as column `count`.

        Args:
            column: Count only rows in which this column is not null; the result's column is `count_<column>`.

        Returns:
            The stream of counts (LONG).
        """
        return self._one(count(column))

    def min(self, column: str) -> S:
        """Emit the minimum of a column per key and window, as column `min_<column>`.

        Args:
            column: The name of a column of numbers, dates, times or timestamps.

        Returns:
            The stream of minima, of the type of the column.
        """
        return self._one(min_(column))

    def max(self, column: str) -> S:
        """Emit the maximum of a column per key and window, as column `max_<column>`.

        Args:
            column: The name of a column of numbers, dates, times or timestamps.

        Returns:
            The stream of maxima, of the type of the column.
        """
        return self._one(max_(column))

    def mean(self, column: str) -> S:
        """Emit the mean of a column per key and window, as column `mean_<column>`.

        Args:
            column: The name of a column of numbers.

        Returns:
            The stream of means (DOUBLE).
        """
        return self._one(mean(column))


def keys_of(partitioner: Partitioner | None) -> tuple[str, ...]:
    """Return the columns that a stream is keyed by."""
    assert partitioner is not None and partitioner.key_columns is not None
    return partitioner.key_columns


def _check_named(unnamed: tuple[Any, ...]) -> None:
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
