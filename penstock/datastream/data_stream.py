"""Defines DataStream and its kinds. Every method appends an operator to the environment's graph; `execute()` runs it.

The classes return each other, so they are in one file, as in PyFlink: `DataStream`, `KeyedStream`, `WindowedStream`,
`ConnectedStreams`, `BroadcastStream` and `DataStreamSink`. `_streams/` checks arguments and makes the specs of columnar
operators.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Callable, Generic, Iterable, NoReturn, Self, Sequence, overload

import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.execution_config import ExecutionConfig
from penstock.common.options import CheckpointingOptions, DeploymentOptions
from penstock.common.time import Duration, Time
from penstock.common.typeinfo import TypeInformation
from penstock.common.types import PICKLED, Row, RowType, Types
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.memory.collect import CollectSink
from penstock.connectors.memory.print_sink import PrintSink
from penstock.datastream._streams import missing_methods
from penstock.datastream._streams.column_operators import (
    all_and_more,
    batch_function,
    column_filter,
    projected_tuple,
    projection,
    selected,
)
from penstock.datastream._streams.declared_inputs import (
    AnyAllWindowFunction,
    AnyWindowFunction,
    any_all_window_function,
    any_window_function,
    check_keys,
    checked_descriptors,
    endless_source,
)
from penstock.datastream._streams.environment import Environment
from penstock.datastream._streams.execution import find_data_frames
from penstock.datastream._streams.function_connectors import sink_of
from penstock.datastream._streams.function_wrappers import (
    AllWindows,
    CallableFilter,
    CallableFlatMap,
    CallableMap,
    CallableReduce,
    KeyedCoFlatMap,
    KeyedCoMap,
    KeyedFilter,
    KeyedFlatMap,
    KeyedMap,
    ProcessAllWindows,
    as_function,
    partitioner_of,
    refuse_callable,
    selector_of,
)
from penstock.datastream._streams.join_functions import checked_other
from penstock.datastream._streams.keyed_columns import (
    aggregates_so_far,
    check_built_in,
    check_named,
    partitioner_by_columns,
    window_aggregates,
)
from penstock.datastream._streams.rolling_fields import ChosenRow, Field, FieldReduce, ReplacedField, checked_field
from penstock.datastream._streams.schemas import columns_of, unknown_column
from penstock.datastream._streams.setting_checks import build_hint, check_key_type, check_type
from penstock.datastream._streams.side_outputs import check_tag, remember_type, side_output_type
from penstock.datastream._streams.strategy_checks import check_strategy
from penstock.datastream._streams.stream import Stream
from penstock.datastream._streams.type_variables import R, T
from penstock.datastream._streams.window_specs import WindowSettings, check_evictor, check_trigger, count_windows
from penstock.datastream.columnar import ColumnAggregate, count, max_, mean, min_, sum_
from penstock.datastream.functions import (
    AggregateFunction,
    AllWindowFunction,
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    FilterFunction,
    FlatMapFunction,
    Function,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    NullByteKeySelector,
    ProcessAllWindowFunction,
    ProcessFunction,
    ProcessWindowFunction,
    ReduceFunction,
    WindowFunction,
)
from penstock.datastream.joined_streams import CoGroupedStreams, IntervalJoin, JoinedStreams
from penstock.datastream.operator_settings import OperatorSettings
from penstock.datastream.output_tag import OutputTag
from penstock.datastream.state import MapStateDescriptor
from penstock.datastream.window import Evictor, Trigger, WindowAssigner
from penstock.graph.declared_functions import BroadcastSpec
from penstock.graph.logical import Input, OperatorKind, Partitioner, PartitionerKind
from penstock.graph.timed_nodes import timed_rows, timed_union

__all__ = [
    "AllWindowedStream", "BroadcastConnectedStream", "BroadcastStream", "ColumnKeyedStream", "ColumnWindowedStream",
    "ConnectedStreams", "DataStream", "DataStreamSink", "KeyedStream", "SingleOutputStreamOperator", "WindowedStream",
]  # fmt: skip

Key = KeySelector | Callable[[Any], Any] | str | list[str]
"""A selector, the name of a column, or a list of names."""

_NO_CALLABLE = "; for a plain function use flat_map()"


class DataStream(Stream, Generic[T]):
    """Represents a stream of rows.

    Streams are made by the sources of an environment and by the methods of other streams. A stream whose type was
    declared (`output_type`, made by `Types`) has columns, and all of its operators may be columnar; the rows of other
    streams are pickled between operators.
    """

    def get_id(self) -> int:
        """Return the number of the operator that emits this stream, unique within the environment."""
        return self._node_for("get_id").id

    def get_execution_environment(self) -> Any:
        """Return the `StreamExecutionEnvironment` that the stream was declared in."""
        return self._environment

    def get_execution_config(self) -> ExecutionConfig:
        """Return PyFlink's getters and setters of the job's options."""
        return ExecutionConfig(self._environment.get_configuration())

    def get_type(self) -> TypeInformation:
        """Return the type of the rows; `Types.PICKLED_BYTE_ARRAY()` if none was declared."""
        return self._type or PICKLED

    def get_parallelism(self) -> int:
        """Return the parallelism of the operator that emits this stream."""
        return self._node_for("get_parallelism").parallelism or self._environment.get_parallelism()

    def force_non_parallel(self) -> Self:
        """Run the operator in one subtask only; its parallelism cannot be set any more."""
        node = self._node_for("force_non_parallel")
        node.parallelism = node.max_parallelism = 1
        node.options["non_parallel"] = True
        return self

    def set_buffer_timeout(self, timeout_millis: int) -> Self:
        """Set the maximum wait of this operator's output rows for a fuller batch.

        Args:
            timeout_millis: Milliseconds. 0: they are sent at once; -1: they wait until the batch is full.

        Raises:
            ValueError: `timeout_millis` is less than -1.
        """
        if timeout_millis < -1:
            raise ValueError(f"a buffer timeout is -1, 0 or more milliseconds, got {timeout_millis}")
        self._node_for("set_buffer_timeout").options["buffer_timeout_ms"] = timeout_millis
        return self

    # ---- functions of one row ----------------------------------------------------------------------------------------

    @overload
    def map(
        self, func: MapFunction[T, Any] | Callable[[T], object], output_type: RowType
    ) -> SingleOutputStreamOperator[Row]: ...

    @overload
    def map(
        self, func: MapFunction[T, R] | Callable[[T], R], output_type: TypeInformation | None = None
    ) -> SingleOutputStreamOperator[R]: ...

    def map(self, func: Any, output_type: TypeInformation | None = None) -> Any:
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

    @overload
    def flat_map(
        self, func: FlatMapFunction[T, Any] | Callable[[T], Iterable[object] | None], output_type: RowType
    ) -> SingleOutputStreamOperator[Row]: ...

    @overload
    def flat_map(
        self,
        func: FlatMapFunction[T, R] | Callable[[T], Iterable[R] | None],
        output_type: TypeInformation | None = None,
    ) -> SingleOutputStreamOperator[R]: ...

    def flat_map(self, func: Any, output_type: TypeInformation | None = None) -> Any:
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

    def filter(self, func: FilterFunction[T] | Callable[[T], bool] | pc.Expression) -> SingleOutputStreamOperator[T]:
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
            return self._then(OperatorKind.FILTER_COLUMNS, "Filter", column_filter(self._type, func), self._type)
        function = as_function(func, FilterFunction, CallableFilter, "filter")
        return self._then(OperatorKind.FILTER, "Filter", function, self._type)

    def process(self, func: ProcessFunction, output_type: TypeInformation | None = None) -> SingleOutputStreamOperator:
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

    # ---- functions of columns ----------------------------------------------------------------------------------------

    def map_batches(
        self,
        func: Callable[[pa.RecordBatch], pa.RecordBatch],
        schema: pa.Schema | TypeInformation | None = None,
        batch_size: int | None = None,
        max_latency: Duration | None = None,
    ) -> SingleOutputStreamOperator:
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
        spec, output_type = batch_function(self._type, func, schema, batch_size, max_latency)
        return self._then(OperatorKind.MAP_BATCHES, "Map Batches", spec, output_type)

    def select(self, *columns: str | pc.Expression, **named: str | pc.Expression) -> SingleOutputStreamOperator[Row]:
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
        spec, output_type = projection(self._type, "select()", selected(self._type, columns, named))
        return self._then(OperatorKind.PROJECT, "Select", spec, output_type)

    def project(self, *field_indexes: int) -> SingleOutputStreamOperator:
        """Keep some fields of tuples, in this order.

        Example:
            pairs.project(1, 0)

        Args:
            field_indexes: The positions of the fields, from 0.

        Returns:
            The stream of tuples of these fields.

        Raises:
            TypeError: The rows are no tuples, or no position is given.
            ValueError: There is no field at a position.
        """
        spec, output_type = projected_tuple(self._type, field_indexes)
        return self._then(OperatorKind.PROJECT, "Projection", spec, output_type)

    def with_columns(self, **named: str | pc.Expression) -> SingleOutputStreamOperator[Row]:
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
        spec, output_type = projection(self._type, "with_columns()", all_and_more(self._type, named))
        return self._then(OperatorKind.PROJECT, "With Columns", spec, output_type)

    # ---- event time --------------------------------------------------------------------------------------------------

    def assign_timestamps_and_watermarks(self, watermark_strategy: WatermarkStrategy) -> SingleOutputStreamOperator[T]:
        """Give rows the timestamps and watermarks of a strategy. They replace those that the stream had before.

        Example:
            strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(5))
            orders.assign_timestamps_and_watermarks(strategy.with_timestamp_column("time"))

        Args:
            watermark_strategy: The strategy. It runs once per subtask; a strategy given to `from_source` runs once
                per split, which bears more disorder between splits.

        Returns:
            The stream with event time.

        Raises:
            TypeError: The argument is no strategy, or its timestamp column is of a type without time.
            ValueError: The stream has no column of the name that the strategy takes timestamps from.
        """
        name = "Timestamps/Watermarks"
        timed = timed_union(timed_rows(self._environment._graph_with(self._inputs)), self._inputs)
        check_strategy(watermark_strategy, self._type, "assign_timestamps_and_watermarks()", timed)
        if watermark_strategy.alignment is not None:
            raise ValueError(
                "assign_timestamps_and_watermarks(): only sources can be kept together in event time; give a strategy "
                "with_watermark_alignment() to env.from_source()"
            )
        return self._then(OperatorKind.TIMESTAMPS, name, watermark_strategy, self._type)

    # ---- keys and partitioning ---------------------------------------------------------------------------------------

    @overload
    def key_by(self, key_selector: str, *columns: str) -> ColumnKeyedStream[T]: ...

    @overload
    def key_by(
        self, key_selector: KeySelector[T, Any] | Callable[[T], Any], key_type: TypeInformation | None = None
    ) -> KeyedStream[T]: ...

    def key_by(self, key_selector: Any, key_type: Any = None, *columns: str) -> KeyedStream:
        """Send rows with equal keys to the same subtask, so that functions may use state per key.

        Example:
            orders.key_by("user").aggregate(total=sum_("amount"))         # a column
            orders.key_by("user", "day").process(Budget(), output_type)   # several; a function's key is the tuple
            orders.key_by(lambda order: order["user"], Types.STRING())    # a function of the row

        Keys by columns are computed without a Python call per row, and offer built-in aggregates.

        Args:
            key_selector: The name of a column; or a `KeySelector` or function row -> key. A key is never None.
            key_type: The type of the selector's keys. None: keys are of any type that has a canonical encoding, such
                as numbers, strings, bytes, dates and tuples of them. With columns: the name of the second column.
            columns: The names of more columns.

        Returns:
            The keyed stream.

        Raises:
            TypeError: The selector cannot be called with a row, or a column or type cannot be a key.
            ValueError: The stream has no such column, or a column is named twice.
        """
        if isinstance(key_selector, str):
            names = (key_selector, *([] if key_type is None else [key_type]), *columns)
            return ColumnKeyedStream(self._environment, self, partitioner_by_columns(self, names))
        selector = selector_of(key_selector, "key_by")
        check_key_type(key_type)
        return KeyedStream(self._environment, self, Partitioner(PartitionerKind.HASH, selector, key_type))

    def rebalance(self) -> DataStream[T]:
        """Send rows to all subtasks of the next operator in turn, so that each gets the same share."""
        return self._partitioned(Partitioner(PartitionerKind.REBALANCE))

    def forward(self) -> DataStream[T]:
        """Send rows to the subtask of the same index. Both operators must have the same parallelism."""
        return self._partitioned(Partitioner(PartitionerKind.FORWARD))

    def rescale(self) -> DataStream[T]:
        """Send rows in turn to a fixed share of the next operator's subtasks.

        Each subtask has fewer channels than with `rebalance()`. The shares are equal if one parallelism is a multiple
        of the other.
        """
        return self._partitioned(Partitioner(PartitionerKind.RESCALE))

    def shuffle(self) -> DataStream[T]:
        """Send each row to a subtask chosen at random."""
        return self._partitioned(Partitioner(PartitionerKind.SHUFFLE))

    def global_(self) -> DataStream[T]:
        """Send all rows to subtask 0 of the next operator."""
        return self._partitioned(Partitioner(PartitionerKind.GLOBAL))

    @overload
    def broadcast(self) -> DataStream[T]: ...

    @overload
    def broadcast(
        self, broadcast_state_descriptor: MapStateDescriptor, *other_broadcast_state_descriptors: MapStateDescriptor
    ) -> BroadcastStream: ...

    def broadcast(
        self,
        broadcast_state_descriptor: MapStateDescriptor | None = None,
        *other_broadcast_state_descriptors: MapStateDescriptor,
    ) -> Any:
        """Send every row to every subtask of the next operator.

        Example:
            limits = MapStateDescriptor("limits", Types.STRING(), Types.DOUBLE())
            orders.connect(rates.broadcast(limits)).process(Limit(), Types.STRING())

        Args:
            broadcast_state_descriptor: Names broadcast state, which the function of `stream.connect(...)` fills from
                the rows. None: the rows are broadcast, and there is no such state.
            other_broadcast_state_descriptors: Name more broadcast states.

        Returns:
            With descriptors a `BroadcastStream`, for `connect()`; without any a `DataStream`.

        Raises:
            TypeError: An argument is no `MapStateDescriptor`.
            ValueError: Two descriptors have one name.
        """
        partitioned = self._partitioned(Partitioner(PartitionerKind.BROADCAST))
        if broadcast_state_descriptor is None and not other_broadcast_state_descriptors:
            return partitioned
        descriptors = checked_descriptors((broadcast_state_descriptor, *other_broadcast_state_descriptors))
        return BroadcastStream(self, descriptors, partitioned)

    def partition_custom(
        self, partitioner: Callable[[Any, int], int] | Function, key_selector: KeySelector[T, Any] | Callable[[T], Any]
    ) -> DataStream[T]:
        """Send each row to the subtask that a function of its key chooses.

        Args:
            partitioner: A `Partitioner`, or a function (key, number of subtasks) -> index of a subtask, from 0. After
                a restore at another parallelism it is asked again about rows in flight.
            key_selector: A `KeySelector`, or a function row -> key.

        Returns:
            The partitioned stream. It is not keyed: its functions have no keyed state.

        Raises:
            TypeError: An argument cannot be called in that way.
        """
        return self._partitioned(
            Partitioner(
                PartitionerKind.CUSTOM,
                key_selector=selector_of(key_selector, "partition_custom"),
                custom=partitioner_of(partitioner),
            )
        )

    # ---- several streams ---------------------------------------------------------------------------------------------

    def join(self, other_stream: DataStream) -> JoinedStreams:
        """Join this stream with another one: each pair of rows with equal keys in the same window.

        Example:
            minutes = TumblingEventTimeWindows.of(Duration.of_minutes(1))
            joined = orders.join(visits).where("user").equal_to("user").window(minutes)
            joined.apply(lambda order, visit: (order["user"], visit["shop"]))

        Args:
            other_stream: The other stream.

        Returns:
            The two streams. Say their keys, windows and function next.

        Raises:
            TypeError: The argument is no stream.
            ValueError: It belongs to another environment.
        """
        return JoinedStreams(self, checked_other(self, other_stream, "join"))

    def co_group(self, other_stream: DataStream) -> CoGroupedStreams:
        """Group the rows of this stream and another one by keys and windows, for a function of both groups.

        Example:
            minutes = TumblingEventTimeWindows.of(Duration.of_minutes(1))
            grouped = orders.co_group(visits).where("user").equal_to("user").window(minutes)
            grouped.apply(lambda orders, visits: [(len(orders), len(visits))])

        Args:
            other_stream: The other stream.

        Returns:
            The two streams. Say their keys, windows and function next.

        Raises:
            TypeError: The argument is no stream.
            ValueError: It belongs to another environment.
        """
        return CoGroupedStreams(self, checked_other(self, other_stream, "co_group"))

    def window_all(self, window_assigner: WindowAssigner[Any, Any]) -> AllWindowedStream:
        """Group the rows of the whole stream into windows. One subtask has them all.

        Example:
            seconds = TumblingProcessingTimeWindows.of(Duration.of_seconds(1))
            numbers.window_all(seconds).reduce(lambda a, b: a + b)

        Args:
            window_assigner: An assigner of `penstock.datastream.window`, e.g. `TumblingEventTimeWindows.of(size)`. For
                event time the stream needs timestamps and watermarks.

        Returns:
            The windowed stream, for a function of its windows.

        Raises:
            TypeError: The argument is no window assigner.
        """
        return AllWindowedStream(self, window_assigner)

    def count_window_all(self, size: int, slide: int = 0) -> AllWindowedStream:
        """Group the rows of the whole stream into windows of a number of rows. One subtask has them all.

        Args:
            size: The number of rows of a window.
            slide: The number of rows from the start of a window to that of the next one. 0: `size`.

        Returns:
            The windowed stream, for a function of its windows.

        Raises:
            ValueError: A number is negative, no whole number, or `size` is 0.
        """
        return AllWindowedStream(self, count_windows(size, slide), "count_window_all")

    def union(self, *streams: DataStream[T]) -> DataStream[T]:
        """Merge streams of one type. Rows of different streams come in no particular order.

        A union of keyed streams is not keyed.

        Args:
            streams: At least one stream of this environment, with rows of the same type.

        Returns:
            The stream of all rows.

        Raises:
            TypeError: An argument is no stream, or has rows of another type.
            ValueError: There is no argument, or a stream of another environment.
        """
        if not streams:
            raise ValueError("union() takes at least one stream")
        for stream in streams:
            if not isinstance(stream, DataStream):
                raise TypeError(f"union() takes streams, got {stream!r}")
            if stream._environment is not self._environment:
                raise ValueError("union() takes streams of one environment")
            if (stream._type or PICKLED) != (self._type or PICKLED):
                raise TypeError(
                    f"union() takes streams of one type, got {self.get_type()} and {stream.get_type()}; "
                    "give both the same output_type"
                )
        inputs = [i for s in (self, *streams) for i in s._plain_inputs()]
        return DataStream(self._environment, inputs, self._type)

    @overload
    def connect(self, ds: DataStream) -> ConnectedStreams: ...

    @overload
    def connect(self, ds: BroadcastStream) -> BroadcastConnectedStream: ...

    def connect(self, ds: Any) -> Any:
        """Connect two streams of any types, for functions that have a method for the rows of each.

        Example:
            orders.connect(rates).key_by("currency", "currency").process(Convert(), output_type)

        Args:
            ds: The second stream, or a `BroadcastStream` of `broadcast(descriptor)`.

        Returns:
            Both streams. If both are keyed their functions share keyed state.

        Raises:
            TypeError: `ds` is no stream.
            ValueError: `ds` is a stream of another environment.
        """
        if isinstance(ds, BroadcastStream):
            return BroadcastConnectedStream(self, ds, ds.broadcast_state_descriptors)
        return ConnectedStreams(self, ds)

    def get_side_output(self, output_tag: OutputTag) -> DataStream:
        """Return the stream of the rows that the operator emits under a tag.

        Rows under tags that no stream reads are dropped.

        Example:
            rejected = OutputTag("rejected", Types.STRING())

            class Parse(ProcessFunction):
                def process_element(self, value, ctx):
                    if value.isdigit():
                        yield int(value)
                    else:
                        yield rejected, value

            numbers = lines.process(Parse(), Types.LONG())
            numbers.get_side_output(rejected).print()

        Args:
            output_tag: The tag that the function emits. The type of the rows is that of the tag.

        Returns:
            The stream of those rows.

        Raises:
            TypeError: The operator has no side output under this tag, or the tag was used with another type.
        """
        node = self._node_for("get_side_output")
        side_type = side_output_type(node, output_tag)
        side_input = Input(node, side_output=output_tag.tag_id, side_type=side_type)
        return DataStream(self._environment, [side_input], side_type)

    # ---- sinks and results -------------------------------------------------------------------------------------------

    def sink_to(self, sink: Any) -> DataStreamSink:
        """Write the rows to a sink.

        Example:
            stream.sink_to(FileSink.for_row_format(path, Encoder.simple_string_encoder()).build()).name("results")

        Args:
            sink: A `penstock.datastream.connectors.Sink`.

        Returns:
            The sink's operator, to set its name, uid or parallelism.

        Raises:
            TypeError: `sink` is no sink, or a builder on which `build()` was not called.
        """
        if isinstance(sink, type) or not callable(getattr(sink, "create_writer", None)):
            raise TypeError(
                f"sink_to() takes a Sink, e.g. FileSink.for_row_format(path, encoder).build(); got {sink!r}"
                f"{build_hint(sink)}"
            )
        node = self._environment._add_node(
            OperatorKind.SINK, f"Sink: {type(sink).__name__}", sink, list(self._inputs), self._type
        )
        return DataStreamSink(self._environment, node)

    def add_sink(self, sink_func: Any) -> DataStreamSink:
        """Give the rows to a function or a sink.

        Example:
            stream.add_sink(print)

        Args:
            sink_func: A `SinkFunction`, a function of a row, or a `penstock.datastream.connectors.Sink`.

        Returns:
            The sink's operator.

        Raises:
            TypeError: `sink_func` is none of these.
        """
        function = sink_of(sink_func)
        return self.sink_to(sink_func) if function is None else self.sink_to(function).name("Sink: Unnamed")

    def print(self, sink_identifier: str | None = None) -> DataStreamSink:
        """Print each row on the driver's terminal, as `identifier:subtask> row`.

        The subtask, counted from 1, is left out at parallelism 1. A restart prints some rows again.

        Args:
            sink_identifier: A text to print before each row, or None.

        Returns:
            The sink's operator.
        """
        return self.sink_to(PrintSink(sink_identifier)).name("Sink: Print to Std. Out")

    def execute_and_collect(self, job_execution_name: str | None = None, limit: int | None = None) -> Any:
        """Run the job and bring this stream's rows to the driver.

        Rows come when a checkpoint has completed, exactly once each; without checkpointing at the end of the job.

        Example:
            with stream.execute_and_collect() as rows:
                for row in rows:
                    print(row)

        Args:
            job_execution_name: The job's name.
            limit: The largest number of rows to return. None: all.

        Returns:
            An iterator over the rows, in the order in which one writer gets them. Close it, or use it in a `with`
            statement: that ends the job. With `limit`: a list.

        Raises:
            ValueError: `limit` is less than 1; or a source of the job has no end and no checkpoints are taken, so no
                row would ever come.
        """
        if limit is not None and limit <= 0:
            raise ValueError(f"limit is a whole number of at least 1, got {limit}")
        endless, interval = (
            endless_source(self._environment._graph_with(self._inputs)),
            CheckpointingOptions.CHECKPOINTING_INTERVAL,
        )
        if endless is not None and self._environment.get_configuration().get(interval) is None:
            raise ValueError(
                f"execute_and_collect() brings rows when a checkpoint has completed, or at the end of the job, and "
                f"{endless!r} has no end: take checkpoints (env.enable_checkpointing(1000) or {interval.key}), or make "
                "the source bounded"
            )
        sink = CollectSink()
        # One writer, as in Flink: rows of several would come a writer's checkpoint at a time.
        self.sink_to(sink).name("Sink: Collect").set_parallelism(1)
        client = self._environment.execute_async(job_execution_name)
        rows = sink.results(client)
        if limit is None:
            return rows
        with rows:
            return list(islice(rows, limit))

    def to_spark(self, spark: Any = None, path: str | None = None, job_execution_name: str | None = None) -> Any:
        """Run the job to its end and return this stream's rows as a Spark DataFrame.

        The rows are written to Parquet files, exactly once.

        Args:
            spark: The session of the DataFrame. None: the active one.
            path: An empty or missing directory for the files. None: a directory below the job's, or, if the job has
                none, a temporary directory that is removed when this program ends.
            job_execution_name: The job's name.

        Returns:
            A `pyspark.sql.DataFrame`.

        Raises:
            ValueError: A source of the job has no end.
            TypeError: Spark has no type for a column.
        """
        environment, endless = self._environment, endless_source(self._environment._graph_with(self._inputs))
        if endless is not None:
            raise ValueError(
                f"to_spark() runs the job to its end, and {endless!r} has none: write to a sink instead (sink_to), or "
                "make the source bounded"
            )
        frames = find_data_frames(environment.get_configuration().get(DeploymentOptions.TARGET))
        sink = frames.sink(path)
        self.sink_to(sink).name("Sink: DataFrame")
        environment.execute(job_execution_name)
        return frames.read(sink, spark)

    # ---- how operators are appended ----------------------------------------------------------------------------------

    def _then(
        self,
        kind: OperatorKind,
        name: str,
        function: Any,
        output_type: TypeInformation | None,
        inputs: list[Input] | None = None,
    ) -> SingleOutputStreamOperator:
        """Append an operator that reads this stream, or other inputs in its place."""
        check_type(output_type, name)
        node = self._environment._add_node(kind, name, function, list(inputs or self._inputs), output_type)
        return SingleOutputStreamOperator(self._environment, [Input(node)], output_type)

    def _partitioned(self, partitioner: Partitioner) -> DataStream:
        inputs = [replace(i, partitioner=partitioner) for i in self._inputs]
        return DataStream(self._environment, inputs, self._type)

    def _plain_inputs(self) -> list[Input]:
        return self._inputs

    if not TYPE_CHECKING:  # a type checker knows the attributes without it

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
            raise missing_methods.of_stream(self, name)


class SingleOutputStreamOperator(DataStream[T]):
    """Represents the stream that an operator emits, whose name, uid and parallelism can be set."""


class KeyedStream(DataStream[T]):
    """Represents a stream keyed by `key_by`: its functions may use state and timers per key."""

    def __init__(self, environment: Environment, origin: DataStream[T], partitioner: Partitioner) -> None:
        super().__init__(environment, [replace(i, partitioner=partitioner) for i in origin._inputs], origin._type)
        self._origin = origin
        self._partitioner: Partitioner = partitioner

    def get_key_type(self) -> TypeInformation:
        """Return the type of the keys; `Types.PICKLED_BYTE_ARRAY()` if none was declared."""
        return self._key_type

    def key_by(self, key_selector: Any, key_type: Any = None, *columns: str) -> Any:
        """Key the stream by another key, in place of this one.

        Args:
            key_selector: The name of a column; or a `KeySelector` or function row -> key.
            key_type: The type of the selector's keys. With columns: the name of the second column.
            columns: The names of more columns.

        Returns:
            The stream keyed by that key only.
        """
        return self._origin.key_by(key_selector, key_type, *columns)

    @overload
    def map(
        self, func: MapFunction[T, Any] | Callable[[T], object], output_type: RowType
    ) -> SingleOutputStreamOperator[Row]: ...

    @overload
    def map(
        self, func: MapFunction[T, R] | Callable[[T], R], output_type: TypeInformation | None = None
    ) -> SingleOutputStreamOperator[R]: ...

    def map(self, func: Any, output_type: TypeInformation | None = None) -> Any:
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

    @overload
    def flat_map(
        self, func: FlatMapFunction[T, Any] | Callable[[T], Iterable[object] | None], output_type: RowType
    ) -> SingleOutputStreamOperator[Row]: ...

    @overload
    def flat_map(
        self,
        func: FlatMapFunction[T, R] | Callable[[T], Iterable[R] | None],
        output_type: TypeInformation | None = None,
    ) -> SingleOutputStreamOperator[R]: ...

    def flat_map(self, func: Any, output_type: TypeInformation | None = None) -> Any:
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

    def filter(self, func: FilterFunction[T] | Callable[[T], bool] | pc.Expression) -> SingleOutputStreamOperator[T]:
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
            return self._then(OperatorKind.FILTER_COLUMNS, "Filter", column_filter(self._type, func), self._type)
        function = KeyedFilter(as_function(func, FilterFunction, CallableFilter, "filter"))
        return self._then(OperatorKind.KEYED_PROCESS, "Filter", function, self._type)

    def process(
        self,
        func: KeyedProcessFunction,  # type: ignore[override]
        output_type: TypeInformation | None = None,
    ) -> SingleOutputStreamOperator:
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

    def reduce(self, func: ReduceFunction[T] | Callable[[T, T], T]) -> SingleOutputStreamOperator[T]:
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

    def sum(self, position_to_sum: Field = 0) -> SingleOutputStreamOperator[T]:
        """Emit for each row the sum of a field of all rows of its key so far.

        Other fields are those of the key's first row.

        Args:
            position_to_sum: The position or name of the field.

        Returns:
            The stream of sums, of the type of the rows.
        """
        return self._rolling("sum", ReplacedField(position_to_sum, lambda kept, new: kept + new))

    def min(self, position_to_min: Field = 0) -> SingleOutputStreamOperator[T]:
        """Emit for each row the minimum of a field so far. Other fields are those of the key's first row.

        Args:
            position_to_min: The position or name of the field.

        Returns:
            The stream of minima, of the type of the rows.
        """
        return self._rolling("min", ReplacedField(position_to_min, lambda kept, new: new if new < kept else kept))

    def max(self, position_to_max: Field = 0) -> SingleOutputStreamOperator[T]:
        """Emit for each row the maximum of a field so far. Other fields are those of the key's first row.

        Args:
            position_to_max: The position or name of the field.

        Returns:
            The stream of maxima, of the type of the rows.
        """
        return self._rolling("max", ReplacedField(position_to_max, lambda kept, new: new if new > kept else kept))

    def min_by(self, position_to_min_by: Field = 0) -> SingleOutputStreamOperator[T]:
        """Emit for each row the row of its key with the least field so far; of equal ones the first.

        Args:
            position_to_min_by: The position or name of the field.

        Returns:
            The stream of these rows.
        """
        return self._rolling("min_by", ChosenRow(position_to_min_by, lambda kept, new: new < kept))

    def max_by(self, position_to_max_by: Field = 0) -> SingleOutputStreamOperator[T]:
        """Emit for each row the row of its key with the greatest field so far; of equal ones the first.

        Args:
            position_to_max_by: The position or name of the field.

        Returns:
            The stream of these rows.
        """
        return self._rolling("max_by", ChosenRow(position_to_max_by, lambda kept, new: new > kept))

    def window(self, window_assigner: WindowAssigner[Any, Any]) -> WindowedStream:
        """Group the rows of each key into windows.

        Example:
            minutes = TumblingEventTimeWindows.of(Duration.of_minutes(1))
            pairs.key_by(lambda pair: pair[0]).window(minutes).reduce(lambda a, b: (a[0], a[1] + b[1]))

        Args:
            window_assigner: An assigner of `penstock.datastream.window`, e.g. `TumblingEventTimeWindows.of(size)`. For
                event time the stream needs timestamps and watermarks.

        Returns:
            The windowed stream, for a function of its windows.

        Raises:
            TypeError: The argument is no window assigner.
        """
        return WindowedStream(self, window_assigner)

    def interval_join(self, other_stream: KeyedStream) -> IntervalJoin:
        """Join each row with those of another stream with the same key whose event time is near.

        Example:
            timed = [stream.assign_timestamps_and_watermarks(strategy) for stream in (orders, visits)]
            joined = timed[0].key_by("user").interval_join(timed[1].key_by("user"))
            near = joined.between(Time.minutes(-10), Time.minutes(0))
            near.process(lambda order, visit: (order["user"], visit["shop"]))

        Args:
            other_stream: The other stream, keyed by keys of the same type.

        Returns:
            The two streams. Say the interval and the function next.

        Raises:
            TypeError: The argument is no keyed stream, or its keys are of another type.
            ValueError: It belongs to another environment.
        """
        if not isinstance(other_stream, KeyedStream):
            raise TypeError(f"interval_join() takes a keyed stream, other.key_by(...); got {other_stream!r}")
        return IntervalJoin(ConnectedStreams(self, checked_other(self, other_stream, "interval_join")))

    def count_window(self, size: int, slide: int = 0) -> WindowedStream:
        """Group the rows of each key into windows of a number of rows.

        A window emits its result when it is full. As in PyFlink, there is no result for fewer rows.

        Example:
            pairs.key_by(lambda pair: pair[0]).count_window(10).reduce(lambda a, b: (a[0], a[1] + b[1]))

        Args:
            size: The number of rows of a window.
            slide: The number of rows from the start of a window to that of the next one. 0: `size`.

        Returns:
            The windowed stream, for a function of its windows.

        Raises:
            ValueError: A number is negative, no whole number, or `size` is 0.
        """
        return WindowedStream(self, count_windows(size, slide), "count_window")

    def _rolling(self, method: str, function: FieldReduce) -> SingleOutputStreamOperator:
        function.field = checked_field(self._type, method, function.field)
        return self.reduce(function)

    def _plain_inputs(self) -> list[Input]:
        # As in Flink, a union forgets the key.
        return self._origin._inputs

    def _partitioned(self, partitioner: Partitioner) -> NoReturn:
        names = {PartitionerKind.GLOBAL: "global_", PartitionerKind.CUSTOM: "partition_custom"}
        method = names.get(partitioner.kind, partitioner.kind.name.lower())
        raise TypeError(f"{method}(): cannot override the partitioning of a keyed stream")


class ColumnKeyedStream(KeyedStream[T]):
    """Represents a stream keyed by columns, `key_by("user")`, which has built-in aggregates.

    The key that row functions get is the value of the column, or the tuple of the values of several columns.
    """

    def aggregate(self, *unnamed: Any, **named: ColumnAggregate) -> SingleOutputStreamOperator:
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
        spec, output_type = aggregates_so_far(self, unnamed, named)
        return self._then(OperatorKind.AGGREGATE_COLUMNS, "Aggregate", spec, output_type)

    def sum(self, column: str) -> SingleOutputStreamOperator:  # type: ignore[override]
        """Emit the sum of a column so far for each row: its key and the column `sum_<column>`.

        Args:
            column: The name of a column of numbers.

        Returns:
            The stream of sums: LONG for whole numbers, DOUBLE for floats.
        """
        return self._one(sum_(column))

    def count(self, column: str | None = None) -> SingleOutputStreamOperator:
        """Emit the number of rows so far for each row: its key and the column `count`.

        Args:
            column: Count only rows in which this column is not null; the result's column is `count_<column>`.

        Returns:
            The stream of counts (LONG).
        """
        return self._one(count(column))

    def min(self, column: str) -> SingleOutputStreamOperator:  # type: ignore[override]
        """Emit the minimum of a column so far for each row: its key and the column `min_<column>`.

        Args:
            column: The name of a column of numbers, dates, times or timestamps.

        Returns:
            The stream of minima, of the type of the column.
        """
        return self._one(min_(column))

    def max(self, column: str) -> SingleOutputStreamOperator:  # type: ignore[override]
        """Emit the maximum of a column so far for each row: its key and the column `max_<column>`.

        Args:
            column: The name of a column of numbers, dates, times or timestamps.

        Returns:
            The stream of maxima, of the type of the column.
        """
        return self._one(max_(column))

    def mean(self, column: str) -> SingleOutputStreamOperator:
        """Emit the mean of a column so far for each row: its key and the column `mean_<column>`.

        Args:
            column: The name of a column of numbers.

        Returns:
            The stream of means (DOUBLE).
        """
        return self._one(mean(column))

    def window(self, window_assigner: WindowAssigner[Any, Any]) -> ColumnWindowedStream:
        """Group the rows of each key into windows.

        Example:
            minutes = TumblingEventTimeWindows.of(Duration.of_minutes(1))
            orders.key_by("user").window(minutes).aggregate(total=sum_("amount"), orders=count())

        Args:
            window_assigner: An assigner of `penstock.datastream.window`, e.g. `TumblingEventTimeWindows.of(size)`. For
                event time the stream needs timestamps and watermarks.

        Returns:
            The windowed stream, for built-in aggregates or a function of its windows.

        Raises:
            TypeError: The argument is no window assigner.
        """
        return ColumnWindowedStream(self, window_assigner)

    def _one(self, aggregate: ColumnAggregate) -> SingleOutputStreamOperator:
        return self.aggregate(**{aggregate.default_name: aggregate})

    def _rolling(self, method: str, function: FieldReduce) -> SingleOutputStreamOperator:
        schema = columns_of(self._type, f"{method}()")
        if isinstance(function.field, str) and function.field not in schema.names:
            raise unknown_column(f"{method}()", function.field, schema)
        return super()._rolling(method, function)


class _Windows:
    """Holds the settings of windows, whether they are of keys or of the whole stream."""

    def __init__(self, keyed_stream: KeyedStream, window_assigner: WindowAssigner[Any, Any], method: str) -> None:
        self._settings = WindowSettings(window_assigner, method)
        self._keyed_stream = keyed_stream

    def get_execution_environment(self) -> Any:
        """Return the `StreamExecutionEnvironment` that the stream was declared in."""
        return self._keyed_stream.get_execution_environment()

    def get_input_type(self) -> TypeInformation:
        """Return the type of the rows that the windows hold."""
        return self._keyed_stream.get_type()

    def trigger(self, trigger: Trigger[Any, Any]) -> Self:
        """Set the trigger, which decides when windows emit their results, in place of the default of their assigner.

        Example:
            by_user = orders.key_by(lambda order: order["user"])
            tens = by_user.window(GlobalWindows.create()).trigger(PurgingTrigger.of(CountTrigger.of(10)))
            tens.reduce(lambda a, b: b)

        Args:
            trigger: The trigger.

        Raises:
            TypeError: The argument is no trigger, or one that cannot merge, for windows that are merged.
        """
        check_trigger(trigger, self._settings.assigner)
        self._settings.trigger = trigger
        return self

    def evictor(self, evictor: Evictor[Any, Any]) -> Self:
        """Set an evictor, which removes rows of a window when it fires.

        PyFlink has none; Flink's Java API has them. The window keeps all its rows, also for `reduce` and `aggregate`.

        Example:
            from penstock.datastream.window import CountEvictor

            last_ten = orders.key_by(lambda order: order["user"]).window(GlobalWindows.create())
            last_ten.trigger(CountTrigger.of(1)).evictor(CountEvictor.of(10)).reduce(lambda a, b: b)

        Args:
            evictor: The evictor.

        Raises:
            TypeError: The argument is no evictor.
        """
        check_evictor(evictor)
        self._settings.evictor = evictor
        return self

    def allowed_lateness(self, time_ms: int | Duration | Time) -> Self:
        """Keep each window for some event time after its end; every late row for it emits its result again.

        Args:
            time_ms: How long, in milliseconds or as a `Duration`. Default: 0.

        Raises:
            ValueError: `time_ms` is negative, or no length of time.
        """
        try:
            self._settings.allowed_lateness_ms = Duration.of(time_ms).to_millis()
        except ValueError as error:
            raise ValueError(f"allowed_lateness() takes 0 or more milliseconds, got {time_ms!r}") from error
        return self

    def side_output_late_data(self, output_tag: OutputTag) -> Self:
        """Emit rows whose window has been discarded to a side output. Without it they are counted and dropped.

        Example:
            late = OutputTag("late")
            totals = keyed.window(assigner).side_output_late_data(late).reduce(add)
            totals.get_side_output(late).sink_to(sink)

        Args:
            output_tag: The tag of the side output. Its type is the type of the stream's rows.

        Raises:
            TypeError: `output_tag` is no tag, or has another type than the rows.
        """
        check_tag(output_tag, "side_output_late_data()")
        given, rows = output_tag.type_info, self._keyed_stream._type
        if given is not None and rows is not None and given != rows:
            raise TypeError(
                f"side_output_late_data({output_tag!r}): late rows have the type of the stream, {rows}; "
                "leave the tag's type out, or say that"
            )
        self._settings.late_tag = output_tag
        return self

    def _then(
        self,
        name: str,
        output_type: TypeInformation | None,
        element_type: TypeInformation | None,
        reduce: ReduceFunction | None = None,
        aggregate: AggregateFunction | None = None,
        process: AnyWindowFunction | None = None,
    ) -> SingleOutputStreamOperator:
        env, rows = self.get_execution_environment(), self._keyed_stream._type
        spec = self._settings.spec(env, rows, element_type, reduce, aggregate, process)
        stream = self._keyed_stream._then(OperatorKind.WINDOW, name, spec, output_type)
        self._remember_late_type(stream)
        return stream

    def _remember_late_type(self, stream: DataStream) -> None:
        tag = self._settings.late_tag
        if tag is not None:
            late = OutputTag(tag.tag_id, tag.type_info or self._keyed_stream._type)
            remember_type(stream._node_for("window"), late)

    if not TYPE_CHECKING:  # a type checker knows the attributes without it

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
            raise missing_methods.of_windows(self, self._keyed_stream, name)


class WindowedStream(_Windows):
    """Represents the windows of a keyed stream, made by `keyed_stream.window(assigner)`.

    A window emits its result when its trigger fires: in event time when the watermark passes its end. The result's
    timestamp is the last millisecond of the window.
    """

    def __init__(
        self, keyed_stream: KeyedStream, window_assigner: WindowAssigner[Any, Any], method: str = "window"
    ) -> None:
        super().__init__(keyed_stream, window_assigner, method)

    def reduce(
        self,
        reduce_function: ReduceFunction | Callable[[Any, Any], Any],
        window_function: AnyWindowFunction | None = None,
        output_type: TypeInformation | None = None,
    ) -> SingleOutputStreamOperator:
        """Combine the rows of each key and window as they come, and emit one result per window.

        Only the combined value is kept in state, not the rows.

        Args:
            reduce_function: A `ReduceFunction`, or a function (result so far, row) -> result.
            window_function: A `WindowFunction` or `ProcessWindowFunction`. It gets the result as its only element,
                and what it yields is emitted instead. None: the result is emitted.
            output_type: The type of the emitted rows. None: that of the stream's rows; with a `window_function`, they
                are pickled.

        Returns:
            The stream of results. A result's timestamp is the last millisecond of its window.

        Raises:
            TypeError: A function is of another kind.
        """
        reduce = as_function(reduce_function, ReduceFunction, CallableReduce, "reduce")
        rows = self._keyed_stream._type
        process = None if window_function is None else any_window_function(window_function, "reduce")
        if process is None and output_type is None:
            output_type = rows
        return self._then("Window Reduce", output_type, rows, reduce=reduce, process=process)

    def aggregate(
        self,
        aggregate_function: AggregateFunction | None = None,
        window_function: AnyWindowFunction | None = None,
        accumulator_type: TypeInformation | None = None,
        output_type: TypeInformation | None = None,
        **named: ColumnAggregate,
    ) -> SingleOutputStreamOperator:
        """Add the rows of each key and window to an accumulator as they come, and emit one result per window.

        Only the accumulator is kept in state, not the rows. For streams keyed by columns there are built-in
        aggregates instead: `stream.key_by("user").window(assigner).aggregate(total=sum_("amount"), orders=count())`.

        Args:
            aggregate_function: An `AggregateFunction`.
            window_function: A `WindowFunction` or `ProcessWindowFunction`. It gets the result as its only element,
                and what it yields is emitted instead. None: the result is emitted.
            accumulator_type: The type of the accumulator in state. None: it is pickled.
            output_type: The type of the emitted rows. None: they are pickled.
            named: Built-in aggregates, by the names of their columns. Only for streams keyed by columns.

        Returns:
            The stream of results. A result's timestamp is the last millisecond of its window.

        Raises:
            TypeError: A function is of another kind, or built-in aggregates were given and the stream is keyed by a
                selector.
        """
        check_built_in(named)
        if named or isinstance(aggregate_function, ColumnAggregate):
            raise TypeError(missing_methods.aggregate_of_windows(self._keyed_stream, "aggregate"))
        refuse = refuse_callable("aggregate() of a windowed stream", "AggregateFunction")
        aggregate = as_function(aggregate_function, AggregateFunction, refuse, "aggregate")
        check_type(accumulator_type, "Window Aggregate")
        process = None if window_function is None else any_window_function(window_function, "aggregate")
        return self._then("Window Aggregate", output_type, accumulator_type, aggregate=aggregate, process=process)

    def process(
        self,
        process_window_function: ProcessWindowFunction[Any, Any, Any, Any],
        output_type: TypeInformation | None = None,
    ) -> SingleOutputStreamOperator:
        """Apply a function to all rows of each key and window.

        The rows are kept in state until the window is discarded; `reduce` and `aggregate` keep one value instead.

        Args:
            process_window_function: A `ProcessWindowFunction`.
            output_type: The type of the emitted rows. None: they are pickled.

        Returns:
            The stream of the emitted rows. Their timestamp is the last millisecond of their window.

        Raises:
            TypeError: The function is of another kind.
        """
        refuse = refuse_callable("process() of a windowed stream", "ProcessWindowFunction")
        process = as_function(process_window_function, ProcessWindowFunction, refuse, "process")
        return self._then("Window Process", output_type, self._keyed_stream._type, process=process)

    def apply(
        self, window_function: WindowFunction[Any, Any, Any, Any], output_type: TypeInformation | None = None
    ) -> SingleOutputStreamOperator:
        """Apply a function to all rows of each key and window, like `process`, with the window as an argument.

        Args:
            window_function: A `WindowFunction`.
            output_type: The type of the emitted rows. None: they are pickled.

        Returns:
            The stream of the emitted rows. Their timestamp is the last millisecond of their window.

        Raises:
            TypeError: The function is of another kind.
        """
        refuse = refuse_callable("apply() of a windowed stream", "WindowFunction")
        process = as_function(window_function, WindowFunction, refuse, "apply")
        return self._then("Window Apply", output_type, self._keyed_stream._type, process=process)


class AllWindowedStream(_Windows):
    """Represents the windows of a whole stream, made by `stream.window_all(assigner)`.

    One subtask has all rows, so it is no faster with more slots. Where rows can be combined before they come together,
    window a keyed stream first, and its results then.
    """

    def __init__(
        self, data_stream: DataStream, window_assigner: WindowAssigner[Any, Any], method: str = "window_all"
    ) -> None:
        super().__init__(data_stream.key_by(NullByteKeySelector(), Types.BYTE()), window_assigner, method)

    def reduce(
        self,
        reduce_function: ReduceFunction | Callable[[Any, Any], Any],
        window_function: AnyAllWindowFunction | None = None,
        output_type: TypeInformation | None = None,
    ) -> SingleOutputStreamOperator:
        """Combine the rows of each window as they come, and emit one result per window.

        Args:
            reduce_function: A `ReduceFunction`, or a function (result so far, row) -> result.
            window_function: An `AllWindowFunction` or `ProcessAllWindowFunction`. It gets the result as its only
                element, and what it yields is emitted instead. None: the result is emitted.
            output_type: The type of the emitted rows. None: that of the stream's rows; with a `window_function`, they
                are pickled.

        Returns:
            The stream of results, of one subtask.

        Raises:
            TypeError: A function is of another kind.
        """
        reduce = as_function(reduce_function, ReduceFunction, CallableReduce, "reduce")
        rows = self._keyed_stream._type
        process = None if window_function is None else any_all_window_function(window_function, "reduce")
        if process is None and output_type is None:
            output_type = rows
        return self._then("Window Reduce", output_type, rows, reduce=reduce, process=process)

    def aggregate(
        self,
        aggregate_function: AggregateFunction,
        window_function: AnyAllWindowFunction | None = None,
        accumulator_type: TypeInformation | None = None,
        output_type: TypeInformation | None = None,
    ) -> SingleOutputStreamOperator:
        """Add the rows of each window to an accumulator as they come, and emit one result per window.

        Args:
            aggregate_function: An `AggregateFunction`.
            window_function: An `AllWindowFunction` or `ProcessAllWindowFunction`. It gets the result as its only
                element, and what it yields is emitted instead. None: the result is emitted.
            accumulator_type: The type of the accumulator in state. None: it is pickled.
            output_type: The type of the emitted rows. None: they are pickled.

        Returns:
            The stream of results, of one subtask.

        Raises:
            TypeError: A function is of another kind.
        """
        refuse = refuse_callable("aggregate() of windows over all rows", "AggregateFunction")
        aggregate = as_function(aggregate_function, AggregateFunction, refuse, "aggregate")
        check_type(accumulator_type, "Window Aggregate")
        process = None if window_function is None else any_all_window_function(window_function, "aggregate")
        return self._then("Window Aggregate", output_type, accumulator_type, aggregate=aggregate, process=process)

    def process(
        self,
        process_window_function: ProcessAllWindowFunction[Any, Any, Any],
        output_type: TypeInformation | None = None,
    ) -> SingleOutputStreamOperator:
        """Apply a function to all rows of each window, which are kept in state until then.

        Args:
            process_window_function: A `ProcessAllWindowFunction`.
            output_type: The type of the emitted rows. None: they are pickled.

        Returns:
            The stream of the emitted rows, of one subtask.

        Raises:
            TypeError: The function is of another kind.
        """
        refuse = refuse_callable("process() of windows over all rows", "ProcessAllWindowFunction")
        process = ProcessAllWindows(as_function(process_window_function, ProcessAllWindowFunction, refuse, "process"))
        return self._then("Window Process", output_type, self._keyed_stream._type, process=process)

    def apply(
        self, window_function: AllWindowFunction[Any, Any, Any], output_type: TypeInformation | None = None
    ) -> SingleOutputStreamOperator:
        """Apply a function to all rows of each window, which are kept in state until then.

        Args:
            window_function: An `AllWindowFunction`.
            output_type: The type of the emitted rows. None: they are pickled.

        Returns:
            The stream of the emitted rows, of one subtask.

        Raises:
            TypeError: The function is of another kind.
        """
        refuse = refuse_callable("apply() of windows over all rows", "AllWindowFunction")
        process = AllWindows(as_function(window_function, AllWindowFunction, refuse, "apply"))
        return self._then("Window Apply", output_type, self._keyed_stream._type, process=process)

    def _then(self, *args: Any, **functions: Any) -> SingleOutputStreamOperator:
        return super()._then(*args, **functions).force_non_parallel()


class ColumnWindowedStream(WindowedStream):
    """Represents the windows of a stream keyed by columns, which has built-in aggregates."""

    def aggregate(self, *functions: Any, **named: Any) -> SingleOutputStreamOperator:
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
            check_named(functions)
        if functions or not named or not any(isinstance(given, ColumnAggregate) for given in named.values()):
            return super().aggregate(*functions, **named)
        spec, output_type, inputs = window_aggregates(
            self._keyed_stream,
            named,
            rule=self._settings.rule,
            allowed_lateness_ms=self._settings.allowed_lateness_ms,
            late_tag=self._settings.late_tag_id,
        )
        stream = self._keyed_stream._then(OperatorKind.WINDOW_COLUMNS, "Window Aggregate", spec, output_type, inputs)
        self._remember_late_type(stream)
        return stream

    def sum(self, column: str) -> SingleOutputStreamOperator:
        """Emit the sum of a column per key and window, as column `sum_<column>`.

        Args:
            column: The name of a column of numbers.

        Returns:
            The stream of sums: LONG for whole numbers, DOUBLE for floats.
        """
        return self._one(sum_(column))

    def count(self, column: str | None = None) -> SingleOutputStreamOperator:
        """Emit the number of rows per key and window, as column `count`.

        Args:
            column: Count only rows in which this column is not null; the result's column is `count_<column>`.

        Returns:
            The stream of counts (LONG).
        """
        return self._one(count(column))

    def min(self, column: str) -> SingleOutputStreamOperator:
        """Emit the minimum of a column per key and window, as column `min_<column>`.

        Args:
            column: The name of a column of numbers, dates, times or timestamps.

        Returns:
            The stream of minima, of the type of the column.
        """
        return self._one(min_(column))

    def max(self, column: str) -> SingleOutputStreamOperator:
        """Emit the maximum of a column per key and window, as column `max_<column>`.

        Args:
            column: The name of a column of numbers, dates, times or timestamps.

        Returns:
            The stream of maxima, of the type of the column.
        """
        return self._one(max_(column))

    def mean(self, column: str) -> SingleOutputStreamOperator:
        """Emit the mean of a column per key and window, as column `mean_<column>`.

        Args:
            column: The name of a column of numbers.

        Returns:
            The stream of means (DOUBLE).
        """
        return self._one(mean(column))

    def _one(self, aggregate: ColumnAggregate) -> SingleOutputStreamOperator:
        return self.aggregate(**{aggregate.default_name: aggregate})


class ConnectedStreams:
    """Represents two streams, made by `stream1.connect(stream2)`, as the inputs of one operator.

    If both are keyed, functions may use keyed state, which the rows of both share by key.
    """

    def __init__(self, stream1: DataStream, stream2: DataStream) -> None:
        if not isinstance(stream2, DataStream):
            raise TypeError(f"connect() takes a stream, got {stream2!r}")
        if stream1._environment is not stream2._environment:
            raise ValueError("connect() takes streams of one environment")
        self.stream1 = stream1
        self.stream2 = stream2

    def get_execution_environment(self) -> Any:
        """Return the `StreamExecutionEnvironment` that the streams were declared in."""
        return self.stream1.get_execution_environment()

    def get_type1(self) -> TypeInformation:
        """Return the type of the first stream's rows."""
        return self.stream1.get_type()

    def get_type2(self) -> TypeInformation:
        """Return the type of the second stream's rows."""
        return self.stream2.get_type()

    def key_by(
        self, key_selector1: Key, key_selector2: Key, key_type: TypeInformation | None = None
    ) -> ConnectedStreams:
        """Send rows of both streams with equal keys to the same subtask.

        Example:
            orders.connect(rates).key_by("currency", "currency")
            orders.connect(visits).key_by(["shop", "user"], ["shop", "customer"])
            orders.connect(visits).key_by(lambda o: o["user"], lambda v: v["customer"], Types.STRING())

        Args:
            key_selector1: The key of the first stream: a `KeySelector`, a function row -> key, the name of a column,
                or a list of names.
            key_selector2: The key of the second stream.
            key_type: The type of both keys. Keys that are columns have the type of the columns.

        Returns:
            The keyed streams, connected.

        Raises:
            TypeError: A key cannot be a key, or `key_type` was given for columns.
            ValueError: A stream has no such column, or a list of columns is empty.
        """
        first = _keyed(self.stream1, key_selector1, key_type)
        return ConnectedStreams(first, _keyed(self.stream2, key_selector2, key_type))

    def map(self, func: CoMapFunction, output_type: TypeInformation | None = None) -> SingleOutputStreamOperator:
        """Apply `map1` to each row of the first stream and `map2` to each row of the second.

        Args:
            func: A `CoMapFunction`. If both streams are keyed it may use keyed state. None is not emitted.
            output_type: The type of the returned rows, made by `Types`. None: they are pickled.

        Returns:
            The stream of the returned rows.

        Raises:
            TypeError: `func` is of another kind, or both streams are keyed, by keys of different types.
        """
        function = as_function(
            func, CoMapFunction, refuse_callable("map() of connected streams", "CoMapFunction"), "map"
        )
        if self._keyed:
            return self._then(OperatorKind.KEYED_CO_PROCESS, "Co-Map", KeyedCoMap(function), output_type)
        return self._then(OperatorKind.CO_MAP, "Co-Map", function, output_type)

    def flat_map(
        self, func: CoFlatMapFunction, output_type: TypeInformation | None = None
    ) -> SingleOutputStreamOperator:
        """Apply `flat_map1` to each row of the first stream and `flat_map2` to each row of the second.

        Args:
            func: A `CoFlatMapFunction`. If both streams are keyed it may use keyed state.
            output_type: The type of the emitted rows, made by `Types`. None: they are pickled.

        Returns:
            The stream of the emitted rows.

        Raises:
            TypeError: `func` is of another kind, or both streams are keyed, by keys of different types.
        """
        refuse = refuse_callable("flat_map() of connected streams", "CoFlatMapFunction")
        function = as_function(func, CoFlatMapFunction, refuse, "flat_map")
        if self._keyed:
            return self._then(OperatorKind.KEYED_CO_PROCESS, "Co-Flat Map", KeyedCoFlatMap(function), output_type)
        return self._then(OperatorKind.CO_FLAT_MAP, "Co-Flat Map", function, output_type)

    def process(
        self, func: CoProcessFunction | KeyedCoProcessFunction, output_type: TypeInformation | None = None
    ) -> SingleOutputStreamOperator:
        """Apply a function that sees timestamps and watermarks and may emit rows to side outputs.

        Args:
            func: A `KeyedCoProcessFunction` if both streams are keyed, otherwise a `CoProcessFunction`.
            output_type: The type of the rows of the main output, made by `Types`. None: they are pickled.

        Returns:
            The stream of the main output. `get_side_output(tag)` on it returns the others.

        Raises:
            TypeError: `func` is of another kind, or both streams are keyed, by keys of different types.
        """
        if isinstance(func, KeyedCoProcessFunction) and not self._keyed:
            raise TypeError(
                "process() was given a KeyedCoProcessFunction, but the streams are not both keyed: call "
                "key_by(key_selector1, key_selector2) after connect()"
            )
        if isinstance(func, CoProcessFunction) or not self._keyed:
            refuse = refuse_callable("process() of connected streams", "CoProcessFunction")
            function = as_function(func, CoProcessFunction, refuse, "process")
            return self._then(OperatorKind.CO_PROCESS, "Co-Process", function, output_type)
        refuse = refuse_callable("process() of connected streams", "KeyedCoProcessFunction")
        function = as_function(func, KeyedCoProcessFunction, refuse, "process")
        return self._then(OperatorKind.KEYED_CO_PROCESS, "Keyed Co-Process", function, output_type)

    @property
    def _keyed(self) -> bool:
        return self.stream1._partitioner is not None and self.stream2._partitioner is not None

    def _then(
        self, kind: OperatorKind, name: str, function: Any, output_type: TypeInformation | None
    ) -> SingleOutputStreamOperator:
        if kind.keyed:
            check_keys(self.stream1, self.stream2, name)
        inputs = [*self.stream1._inputs, *(replace(i, index=1) for i in self.stream2._inputs)]
        return self.stream1._then(kind, name, function, output_type, inputs)

    if not TYPE_CHECKING:  # a type checker knows the attributes without it

        def __getattr__(self, name: str) -> Any:
            raise missing_methods.of_connected(self, name)


class BroadcastStream:
    """Represents a stream that is broadcast to fill state, made by `stream.broadcast(descriptor)`, for `connect()`."""

    def __init__(
        self, input_stream: DataStream, broadcast_state_descriptors: Sequence[MapStateDescriptor], rows: DataStream
    ) -> None:
        self.input_stream = input_stream
        self.broadcast_state_descriptors = list(broadcast_state_descriptors)
        self._rows = rows

    if not TYPE_CHECKING:  # a type checker knows the attributes without it

        def __getattr__(self, name: str) -> Any:
            raise missing_methods.of_broadcast(self, name)


class BroadcastConnectedStream:
    """Represents a stream and a broadcast stream, made by `stream.connect(broadcast_stream)`."""

    def __init__(
        self,
        non_broadcast_stream: DataStream,
        broadcast_stream: BroadcastStream,
        broadcast_state_descriptors: Sequence[MapStateDescriptor],
    ) -> None:
        if non_broadcast_stream._environment is not broadcast_stream.input_stream._environment:
            raise ValueError("connect() takes streams of one environment")
        self.non_broadcast_stream = non_broadcast_stream
        self.broadcast_stream = broadcast_stream
        self.broadcast_state_descriptors = checked_descriptors(broadcast_state_descriptors)

    def get_execution_environment(self) -> Any:
        """Return the `StreamExecutionEnvironment` that the streams were declared in."""
        return self.non_broadcast_stream.get_execution_environment()

    def process(
        self, func: BroadcastProcessFunction | KeyedBroadcastProcessFunction, output_type: TypeInformation | None = None
    ) -> SingleOutputStreamOperator:
        """Apply a function that keeps broadcast state, which the rows of the broadcast stream change.

        Args:
            func: A `KeyedBroadcastProcessFunction` if the stream that is not broadcast is keyed, otherwise a
                `BroadcastProcessFunction`.
            output_type: The type of the rows of the main output, made by `Types`. None: they are pickled.

        Returns:
            The stream of the main output. `get_side_output(tag)` on it returns the others.

        Raises:
            TypeError: `func` is of another kind.
        """
        stream = self.non_broadcast_stream
        keyed = stream._partitioner is not None
        if isinstance(func, BroadcastProcessFunction) and keyed:
            raise TypeError(
                "process() was given a BroadcastProcessFunction, but the stream is keyed: give it a "
                "KeyedBroadcastProcessFunction, or leave out key_by()"
            )
        if isinstance(func, KeyedBroadcastProcessFunction) and not keyed:
            raise TypeError(
                "process() was given a KeyedBroadcastProcessFunction, but the stream is not keyed: call key_by() "
                "on it before connect()"
            )
        base = KeyedBroadcastProcessFunction if keyed else BroadcastProcessFunction
        refuse = refuse_callable("process() of a stream and a broadcast stream", base.__name__)
        function = as_function(func, base, refuse, "process")
        inputs = [*stream._inputs, *(replace(i, index=1) for i in self.broadcast_stream._rows._inputs)]
        kind = OperatorKind.KEYED_BROADCAST_PROCESS if keyed else OperatorKind.BROADCAST_PROCESS
        name = "Co-Process-Broadcast-Keyed" if keyed else "Co-Process-Broadcast"
        return stream._then(kind, name, BroadcastSpec(function, self.broadcast_state_descriptors), output_type, inputs)

    if not TYPE_CHECKING:  # a type checker knows the attributes without it

        def __getattr__(self, name: str) -> Any:
            raise missing_methods.of_connected(self, name)


class DataStreamSink(OperatorSettings):
    """Represents the sink at the end of a stream, whose name, uid and parallelism can be set."""


def _keyed(stream: DataStream, key: Any, key_type: TypeInformation | None) -> KeyedStream:
    if not isinstance(key, (str, list, tuple)):
        return stream.key_by(key, key_type)
    if key_type is not None:
        raise TypeError(f"key_by({key!r}): the key has the type of its columns; leave key_type out")
    names: list[str] = [key] if isinstance(key, str) else list(key)
    if not names:
        raise ValueError("key_by(): a list of columns has at least one name")
    return stream.key_by(names[0], *names[1:])
