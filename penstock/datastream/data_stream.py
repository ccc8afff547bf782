"""Defines DataStream and its kinds. Every method appends an operator to the environment's graph; `execute()` runs it.

The classes refer to each other, so they are in one file; most of their methods come from `_streams/`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Callable, NoReturn, Self, overload

from penstock.common.typeinfo import TypeInformation
from penstock.common.types import PICKLED
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream._streams import missing_methods
from penstock.datastream._streams.broadcast_streams import BroadcastConnectedStream, BroadcastStream
from penstock.datastream._streams.connected import Connected, Key
from penstock.datastream._streams.environment import Environment
from penstock.datastream._streams.function_wrappers import selector_of
from penstock.datastream._streams.keyed_columns import ColumnAggregates, ColumnWindowed, partitioner_by_columns
from penstock.datastream._streams.node_settings import check_key_type
from penstock.datastream._streams.partitioning import Partitioning
from penstock.datastream._streams.rolling_fields import RollingFields
from penstock.datastream._streams.row_operators import RowOperators
from penstock.datastream._streams.schemas import columns_of, unknown_column
from penstock.datastream._streams.side_outputs import side_output_type
from penstock.datastream._streams.strategy_checks import check_strategy
from penstock.datastream._streams.stream_ends import Ends
from penstock.datastream._streams.windowed import Windowed
from penstock.datastream.data_stream_sink import DataStreamSink
from penstock.datastream.functions import KeySelector
from penstock.datastream.output_tag import OutputTag
from penstock.datastream.window import WindowAssigner
from penstock.graph.logical import Input, Node, OperatorKind, Partitioner, PartitionerKind
from penstock.graph.timed_nodes import timed_rows, timed_union

__all__ = [
    "BroadcastConnectedStream", "BroadcastStream", "ColumnKeyedStream", "ColumnWindowedStream", "ConnectedStreams",
    "DataStream", "DataStreamSink", "KeyedStream", "SingleOutputStreamOperator", "WindowedStream",
]  # fmt: skip


class DataStream(
    RowOperators["SingleOutputStreamOperator"], Ends["SingleOutputStreamOperator"], Partitioning["DataStream"]
):
    """Represents a stream of rows.

    Streams are made by the sources of an environment and by the methods of other streams. A stream whose type was
    declared (`output_type`, made by `Types`) has columns, and all of its operators may be columnar; the rows of other
    streams are pickled between operators.
    """

    if not TYPE_CHECKING:  # a type checker knows the attributes without it

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
            raise missing_methods.of_stream(self, name)

    def _output_of(self, node: Node, output_type: TypeInformation | None) -> SingleOutputStreamOperator:
        return SingleOutputStreamOperator(self._environment, [Input(node)], output_type)

    def get_id(self) -> int:
        """Return the number of the operator that emits this stream, unique within the environment."""
        return self._node_for("get_id").id

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

        Returns:
            This stream.

        Raises:
            ValueError: `timeout_millis` is less than -1.
        """
        if timeout_millis < -1:
            raise ValueError(f"a buffer timeout is -1, 0 or more milliseconds, got {timeout_millis}")
        self._node_for("set_buffer_timeout").options["buffer_timeout_ms"] = timeout_millis
        return self

    def union(self, *streams: DataStream) -> DataStream:
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

    def _plain_inputs(self) -> list[Input]:
        return self._inputs

    @overload
    def connect(self, ds: DataStream) -> ConnectedStreams: ...

    @overload
    def connect(self, ds: BroadcastStream) -> BroadcastConnectedStream[SingleOutputStreamOperator]: ...

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
        return ds._connected_to(self) if isinstance(ds, BroadcastStream) else ConnectedStreams(self, ds)

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

    @overload
    def key_by(self, key_selector: str, *columns: str) -> ColumnKeyedStream: ...

    @overload
    def key_by(
        self, key_selector: KeySelector | Callable[[Any], Any], key_type: TypeInformation | None = None
    ) -> KeyedStream: ...

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

    def _partitioned(self, partitioner: Partitioner) -> DataStream:
        inputs = [replace(i, partitioner=partitioner) for i in self._inputs]
        return DataStream(self._environment, inputs, self._type)

    def assign_timestamps_and_watermarks(self, watermark_strategy: WatermarkStrategy) -> SingleOutputStreamOperator:
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


class SingleOutputStreamOperator(DataStream):
    """Represents the stream that an operator emits, whose name, uid and parallelism can be set."""


class KeyedStream(RollingFields["SingleOutputStreamOperator"], DataStream):  # type: ignore[misc]
    """Represents a stream keyed by `key_by`: its functions may use state and timers per key."""

    def __init__(self, environment: Environment, origin: DataStream, partitioner: Partitioner) -> None:
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

    def _plain_inputs(self) -> list[Input]:
        # As in Flink, a union forgets the key.
        return self._origin._inputs

    def _partitioned(self, partitioner: Partitioner) -> NoReturn:
        names = {PartitionerKind.GLOBAL: "global_", PartitionerKind.CUSTOM: "partition_custom"}
        method = names.get(partitioner.kind, partitioner.kind.name.lower())
        raise TypeError(f"{method}(): cannot override the partitioning of a keyed stream")

    def window(self, window_assigner: WindowAssigner) -> WindowedStream:
        """Group the rows of each key into windows.

        Example:
            minutes = TumblingEventTimeWindows.of(Duration.of_minutes(1))
            pairs.key_by(lambda pair: pair[0]).window(minutes).reduce(lambda a, b: (a[0], a[1] + b[1]))

        Args:
            window_assigner: `TumblingEventTimeWindows.of(size)`; the stream needs timestamps and watermarks.

        Returns:
            The windowed stream, for a function of its windows.

        Raises:
            TypeError: The argument is no window assigner.
        """
        return WindowedStream(self, window_assigner)


class ColumnKeyedStream(  # type: ignore[misc]
    ColumnAggregates["SingleOutputStreamOperator"], KeyedStream
):
    """Represents a stream keyed by columns, `key_by("user")`, which has built-in aggregates.

    The key that row functions get is the value of the column, or the tuple of the values of several columns.
    """

    def _rolling(self, method: str, function: Any) -> SingleOutputStreamOperator:
        schema = columns_of(self._type, f"{method}()")
        if isinstance(function.field, str) and function.field not in schema.names:
            raise unknown_column(f"{method}()", function.field, schema)
        return super()._rolling(method, function)

    def window(self, window_assigner: WindowAssigner) -> ColumnWindowedStream:
        """Group the rows of each key into windows.

        Example:
            minutes = TumblingEventTimeWindows.of(Duration.of_minutes(1))
            orders.key_by("user").window(minutes).aggregate(total=sum_("amount"), orders=count())

        Args:
            window_assigner: `TumblingEventTimeWindows.of(size)`; the stream needs timestamps and watermarks.

        Returns:
            The windowed stream, for built-in aggregates or a function of its windows.

        Raises:
            TypeError: The argument is no window assigner.
        """
        return ColumnWindowedStream(self, window_assigner)


class WindowedStream(Windowed["SingleOutputStreamOperator"]):
    """Represents the windows of a keyed stream, made by `keyed_stream.window(assigner)`.

    A window emits its result when the watermark passes its end, with its last millisecond as the timestamp.
    """


class ColumnWindowedStream(ColumnWindowed["SingleOutputStreamOperator"], WindowedStream):
    """Represents the windows of a stream keyed by columns, which has built-in aggregates."""


class ConnectedStreams(Connected["SingleOutputStreamOperator"]):
    """Represents two streams, made by `stream1.connect(stream2)`, as the inputs of one operator.

    If both are keyed, functions may use keyed state, which the rows of both share by key.
    """

    stream1: DataStream
    stream2: DataStream

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


def _keyed(stream: DataStream, key: Any, key_type: TypeInformation | None) -> KeyedStream:
    if not isinstance(key, (str, list, tuple)):
        return stream.key_by(key, key_type)
    if key_type is not None:
        raise TypeError(f"key_by({key!r}): the key has the type of its columns; leave key_type out")
    names: list[str] = [key] if isinstance(key, str) else list(key)
    if not names:
        raise ValueError("key_by(): a list of columns has at least one name")
    return stream.key_by(names[0], *names[1:])
