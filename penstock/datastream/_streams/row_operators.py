"""Applies functions to each row of a stream."""

from __future__ import annotations

from typing import Any, Callable

import pyarrow.compute as pc

from penstock.common.typeinfo import TypeInformation
from penstock.datastream._streams.function_wrappers import (
    CallableFilter,
    CallableFlatMap,
    CallableMap,
    CallableReduce,
    KeyedFilter,
    KeyedFlatMap,
    KeyedMap,
    as_function,
    refuse_callable,
)
from penstock.datastream._streams.stream_classes import S
from penstock.datastream.columnar import ColumnarStream
from penstock.datastream.functions import (
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessFunction,
    ReduceFunction,
)
from penstock.graph.logical import OperatorKind

_NO_CALLABLE = "; for a plain function use flat_map()"


class RowOperators(ColumnarStream[S]):
    """Offers functions of one row."""

    def map(self, func: MapFunction | Callable[[Any], Any], output_type: TypeInformation | None = None) -> S:
        """Apply a function to each row and emit what it returns.

        Args:
            func: A `MapFunction`, or a function row -> row.
            output_type: The type of the returned rows, made by `Types`. None: they are pickled, and the stream has
                no columns.

        Returns:
            The stream of the returned rows.

        Raises:
            TypeError: `func` cannot be called with one row, or `output_type` was not made by `Types`.
        """
        return self._then(OperatorKind.MAP, "Map", as_function(func, MapFunction, CallableMap, "map"), output_type)

    def flat_map(self, func: FlatMapFunction | Callable[[Any], Any], output_type: TypeInformation | None = None) -> S:
        """Apply a function to each row and emit every row of what it returns.

        Args:
            func: A `FlatMapFunction`, or a function of a row that yields rows, returns an iterable of them, or
                returns None for no rows.
            output_type: The type of the emitted rows, made by `Types`. None: they are pickled, and the stream has no
                columns.

        Returns:
            The stream of the emitted rows.

        Raises:
            TypeError: `func` cannot be called with one row, or `output_type` was not made by `Types`.
        """
        function = as_function(func, FlatMapFunction, CallableFlatMap, "flat_map")
        return self._then(OperatorKind.FLAT_MAP, "Flat Map", function, output_type)

    def filter(self, func: FilterFunction | Callable[[Any], bool] | pc.Expression) -> S:
        """Keep the rows that fulfil a condition.

        Example:
            stream.filter(lambda row: row["amount"] > 0)
            stream.filter(pc.field("amount") > 0)  # computed over columns, without a Python call per row

        Args:
            func: A `FilterFunction`, a function row -> bool, or a `pyarrow.compute` expression of type bool. Rows for
                which the expression is null are dropped.

        Returns:
            The stream of the kept rows, of the same type.

        Raises:
            TypeError: `func` cannot be called with one row; or, given an expression, the stream has no columns or the
                expression is no condition.
            ValueError: The expression names a column that the stream does not have.
        """
        if isinstance(func, pc.Expression):
            return self._filter_columns(func)
        function = as_function(func, FilterFunction, CallableFilter, "filter")
        return self._then(OperatorKind.FILTER, "Filter", function, self._type)

    def process(self, func: ProcessFunction, output_type: TypeInformation | None = None) -> S:
        """Apply a function that sees timestamps and watermarks and may emit rows to side outputs.

        Args:
            func: A `ProcessFunction`; a `KeyedProcessFunction` if the stream is keyed.
            output_type: The type of the rows of the main output, made by `Types`. None: they are pickled.

        Returns:
            The stream of the main output. `get_side_output(tag)` on it returns the others.

        Raises:
            TypeError: `func` is of another kind, or `output_type` was not made by `Types`.
        """
        refuse = refuse_callable("process()", "ProcessFunction", _NO_CALLABLE)
        function = as_function(func, ProcessFunction, refuse, "process")
        return self._then(OperatorKind.PROCESS, "Process", function, output_type)


class KeyedRowOperators(ColumnarStream[S]):
    """Offers functions of one row that may use keyed state."""

    def map(self, func: MapFunction | Callable[[Any], Any], output_type: TypeInformation | None = None) -> S:
        """Apply a function to each row and emit what it returns.

        Args:
            func: A `MapFunction`, which may use the keyed state of the row's key, or a function row -> row.
            output_type: The type of the returned rows, made by `Types`. None: they are pickled.

        Returns:
            The stream of the returned rows. It is not keyed any more.

        Raises:
            TypeError: `func` cannot be called with one row, or `output_type` was not made by `Types`.
        """
        function = KeyedMap(as_function(func, MapFunction, CallableMap, "map"))
        return self._then(OperatorKind.KEYED_PROCESS, "Map", function, output_type)

    def flat_map(self, func: FlatMapFunction | Callable[[Any], Any], output_type: TypeInformation | None = None) -> S:
        """Apply a function to each row and emit every row of what it returns.

        Args:
            func: A `FlatMapFunction`, which may use the keyed state of the row's key, or a function of a row. It
                yields rows, returns an iterable of them, or returns None for no rows.
            output_type: The type of the emitted rows, made by `Types`. None: they are pickled.

        Returns:
            The stream of the emitted rows. It is not keyed any more.

        Raises:
            TypeError: `func` cannot be called with one row, or `output_type` was not made by `Types`.
        """
        function = KeyedFlatMap(as_function(func, FlatMapFunction, CallableFlatMap, "flat_map"))
        return self._then(OperatorKind.KEYED_PROCESS, "Flat Map", function, output_type)

    def filter(self, func: FilterFunction | Callable[[Any], bool] | pc.Expression) -> S:
        """Keep the rows that fulfil a condition.

        Args:
            func: A `FilterFunction`, which may use the keyed state of the row's key, a function row -> bool, or a
                `pyarrow.compute` expression of type bool.

        Returns:
            The stream of the kept rows, of the same type. It is not keyed any more.

        Raises:
            TypeError: `func` cannot be called with one row; or, given an expression, the stream has no columns or the
                expression is no condition.
            ValueError: The expression names a column that the stream does not have.
        """
        if isinstance(func, pc.Expression):
            return self._filter_columns(func)
        function = KeyedFilter(as_function(func, FilterFunction, CallableFilter, "filter"))
        return self._then(OperatorKind.KEYED_PROCESS, "Filter", function, self._type)

    def process(self, func: KeyedProcessFunction, output_type: TypeInformation | None = None) -> S:
        """Apply a function that may use keyed state, timers and side outputs.

        Args:
            func: A `KeyedProcessFunction`.
            output_type: The type of the rows of the main output, made by `Types`. None: they are pickled.

        Returns:
            The stream of the main output. `get_side_output(tag)` on it returns the others.

        Raises:
            TypeError: `func` is of another kind, or `output_type` was not made by `Types`.
        """
        refuse = refuse_callable("process()", "KeyedProcessFunction", _NO_CALLABLE)
        function = as_function(func, KeyedProcessFunction, refuse, "process")
        return self._then(OperatorKind.KEYED_PROCESS, "Keyed Process", function, output_type)

    def reduce(self, func: ReduceFunction | Callable[[Any, Any], Any]) -> S:
        """Combine the rows of each key, and emit the result so far for every row.

        Example:
            pairs.key_by(lambda pair: pair[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))

        Args:
            func: A `ReduceFunction`, or a function (result so far, row) -> result. The first row of a key is its
                first result.

        Returns:
            The stream of results, of the type of the rows.

        Raises:
            TypeError: `func` cannot be called with two rows.
        """
        function = as_function(func, ReduceFunction, CallableReduce, "reduce")
        return self._then(OperatorKind.REDUCE, "Keyed Reduce", function, self._type)
