"""DataStream, KeyedStream and DataStreamSink: every call appends a node to the environment's graph, nothing runs."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Callable, NoReturn, overload

import pyarrow.compute as pc

from penstock.common.options import CheckpointingOptions, DeploymentOptions
from penstock.common.typeinfo import TypeInformation
from penstock.common.types import PICKLED
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream._streams import not_here
from penstock.datastream._streams.event_time import check_strategy
from penstock.datastream._streams.execution import find_data_frames
from penstock.datastream._streams.function_wrappers import (
    CallableFilter,
    CallableFlatMap,
    CallableMap,
    CallableReduce,
    KeyedFilter,
    KeyedFlatMap,
    KeyedMap,
    as_function,
    partitioner_of,
    selector_of,
)
from penstock.datastream._streams.node_settings import NodeSettings, build_hint, check_key_type, check_type
from penstock.datastream._streams.rolling_fields import RollingFields
from penstock.datastream._streams.side_outputs import side_output_type
from penstock.datastream.columnar import ColumnarStream
from penstock.datastream.functions import (
    FilterFunction,
    FlatMapFunction,
    Function,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    ProcessFunction,
    ReduceFunction,
)
from penstock.datastream.output_tag import OutputTag
from penstock.graph.event_time import timed_rows, timed_union
from penstock.graph.logical import Input, Node, OperatorKind, Partitioner, PartitionerKind

if TYPE_CHECKING:
    from penstock.datastream._streams.keyed_columns import ColumnKeyedStream
    from penstock.datastream.connected_streams import ConnectedStreams
    from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
    from penstock.datastream.window import WindowAssigner
    from penstock.datastream.windowed_stream import WindowedStream


def __getattr__(name: str) -> Any:
    """PyFlink has these in this module; ours are built on it, so they are found when they are asked for."""
    if name == "ConnectedStreams":
        from penstock.datastream.connected_streams import ConnectedStreams

        return ConnectedStreams
    if name == "WindowedStream":
        from penstock.datastream.windowed_stream import WindowedStream

        return WindowedStream
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class DataStream(ColumnarStream, NodeSettings):
    """A stream of rows. `output_type` arguments are types made by `Types`; without one, rows are pickles."""

    def __init__(
        self, environment: StreamExecutionEnvironment, inputs: list[Input], type_info: TypeInformation | None
    ) -> None:
        whole = len(inputs) == 1 and inputs[0].partitioner is None and inputs[0].side_output is None
        super().__init__(environment, inputs[0].node if whole else None)
        self._inputs = inputs
        self._type = type_info

    if not TYPE_CHECKING:  # for a type checker, a stream has what it has

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
            raise not_here.of_stream(self, name)

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        return self._environment

    def get_type(self) -> TypeInformation:
        return self._type or PICKLED

    def get_id(self) -> int:
        return self._node_for("get_id").id

    def get_parallelism(self) -> int:
        return self._node_for("get_parallelism").parallelism or self._environment.get_parallelism()

    def force_non_parallel(self) -> Any:
        """The operator runs in one subtask, for ever."""
        node = self._node_for("force_non_parallel")
        node.parallelism = node.max_parallelism = 1
        node.options["non_parallel"] = True
        return self

    def set_buffer_timeout(self, timeout_millis: int) -> Any:
        """How long this operator's output waits for a fuller batch; 0: not at all, -1: until it is full."""
        if timeout_millis < -1:
            raise ValueError(f"a buffer timeout is -1, 0 or more milliseconds, got {timeout_millis}")
        self._node_for("set_buffer_timeout").options["buffer_timeout_ms"] = timeout_millis
        return self

    # ---- operators -----------------------------------------------------------------------------------------------

    def _then(
        self, kind: OperatorKind, name: str, function: Any, output_type: TypeInformation | None
    ) -> SingleOutputStreamOperator:
        check_type(output_type, name)
        node = self._environment._add_node(kind, name, function, list(self._inputs), output_type)
        return SingleOutputStreamOperator(self._environment, [Input(node)], output_type)

    def map(
        self, func: MapFunction | Callable[[Any], Any], output_type: TypeInformation | None = None
    ) -> SingleOutputStreamOperator:
        return self._then(OperatorKind.MAP, "Map", as_function(func, MapFunction, CallableMap, "map"), output_type)

    def flat_map(
        self, func: FlatMapFunction | Callable[[Any], Any], output_type: TypeInformation | None = None
    ) -> SingleOutputStreamOperator:
        """`func` returns a generator, any other iterable, or None for no rows."""
        function = as_function(func, FlatMapFunction, CallableFlatMap, "flat_map")
        return self._then(OperatorKind.FLAT_MAP, "Flat Map", function, output_type)

    def filter(self, func: FilterFunction | Callable[[Any], bool] | pc.Expression) -> SingleOutputStreamOperator:
        """A function of a row, or a `pyarrow.compute` expression of its columns."""
        if isinstance(func, pc.Expression):
            return self._filter_columns(func)
        function = as_function(func, FilterFunction, CallableFilter, "filter")
        return self._then(OperatorKind.FILTER, "Filter", function, self._type)

    def process(self, func: ProcessFunction, output_type: TypeInformation | None = None) -> SingleOutputStreamOperator:
        function = as_function(func, ProcessFunction, _no_callable("process", "ProcessFunction"), "process")
        return self._then(OperatorKind.PROCESS, "Process", function, output_type)

    def union(self, *streams: DataStream) -> DataStream:
        """All rows of all streams, in no order among them. Their types must be the same."""
        if not streams:
            raise ValueError("union() takes at least one stream")
        for stream in streams:
            if not isinstance(stream, DataStream):
                raise TypeError(f"union() takes streams, got {stream!r}")
            if stream._environment is not self._environment:
                raise ValueError("union() takes streams of one environment")
            if (stream._type or PICKLED) != (self._type or PICKLED):
                raise TypeError(f"union() takes streams of one type, got {self.get_type()} and {stream.get_type()}; "
                                "give both the same output_type")
        inputs = [i for s in (self, *streams) for i in s._plain_inputs()]
        return DataStream(self._environment, inputs, self._type)

    def _plain_inputs(self) -> list[Input]:
        return self._inputs

    def connect(self, ds: DataStream) -> ConnectedStreams:
        """Both streams, for functions that have a method for the rows of each and state that both share."""
        from penstock.datastream.connected_streams import ConnectedStreams

        return ConnectedStreams(self, ds)

    def get_side_output(self, output_tag: OutputTag) -> DataStream:
        """The rows that this stream's operator puts out under the tag. Rows under tags that nobody reads are
        dropped."""
        node = self._node_for("get_side_output")
        side_type = side_output_type(node, output_tag)
        side_input = Input(node, side_output=output_tag.tag_id, side_type=side_type)
        return DataStream(self._environment, [side_input], side_type)

    # ---- partitioning --------------------------------------------------------------------------------------------

    @overload
    def key_by(self, key_selector: str, *columns: str) -> ColumnKeyedStream: ...

    @overload
    def key_by(
        self, key_selector: KeySelector | Callable[[Any], Any], key_type: TypeInformation | None = None
    ) -> KeyedStream: ...

    def key_by(self, key_selector: Any, key_type: Any = None, *columns: str) -> KeyedStream:
        """Rows of equal keys go to one subtask. A key is never None. `key_by("user", "day")`: the key is made of
        columns, for built-in aggregates and row functions alike."""
        if isinstance(key_selector, str):
            from penstock.datastream._streams.keyed_columns import key_by_columns

            return key_by_columns(self, (key_selector, *([] if key_type is None else [key_type]), *columns))
        selector = selector_of(key_selector, "key_by")
        check_key_type(key_type)
        partitioner = Partitioner(PartitionerKind.HASH, selector, key_type)
        return KeyedStream(self._environment, self, partitioner)

    def _partitioned(self, partitioner: Partitioner) -> DataStream:
        inputs = [replace(i, partitioner=partitioner) for i in self._inputs]
        return DataStream(self._environment, inputs, self._type)

    def rebalance(self) -> DataStream:
        """Rows go to all subtasks of the next operator in turns."""
        return self._partitioned(Partitioner(PartitionerKind.REBALANCE))

    def forward(self) -> DataStream:
        """Rows go to the next operator's subtask of the same number; the parallelism must be equal."""
        return self._partitioned(Partitioner(PartitionerKind.FORWARD))

    def rescale(self) -> DataStream:
        """Rows go in turns to a share of the next operator's subtasks."""
        return self._partitioned(Partitioner(PartitionerKind.RESCALE))

    def shuffle(self) -> DataStream:
        """Rows go to subtasks at random."""
        return self._partitioned(Partitioner(PartitionerKind.SHUFFLE))

    def global_(self) -> DataStream:
        """All rows go to subtask 0."""
        return self._partitioned(Partitioner(PartitionerKind.GLOBAL))

    def broadcast(self, *broadcast_state_descriptors: Any) -> DataStream:
        """Every row goes to every subtask of the next operator."""
        if broadcast_state_descriptors:
            raise NotImplementedError("broadcast(state_descriptor): broadcast state comes with a later release; "
                                      "broadcast() without one sends every row to every subtask")
        return self._partitioned(Partitioner(PartitionerKind.BROADCAST))

    def partition_custom(
        self, partitioner: Callable[[Any, int], int] | Function, key_selector: KeySelector | Callable[[Any], Any]
    ) -> DataStream:
        """Rows go to the subtask that `partitioner(key, number of subtasks)` says."""
        return self._partitioned(
            Partitioner(
                PartitionerKind.CUSTOM,
                key_selector=selector_of(key_selector, "partition_custom"),
                custom=partitioner_of(partitioner),
            )
        )

    # ---- ends ----------------------------------------------------------------------------------------------------

    def sink_to(self, sink: Any) -> DataStreamSink:
        """`sink`: a `penstock.datastream.connectors.Sink`."""
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
        """PyFlink's older name of `sink_to`."""
        return self.sink_to(sink_func)

    def print(self, sink_identifier: str | None = None) -> DataStreamSink:
        """Rows appear on the driver's terminal, with the subtask's number before them."""
        from penstock.datastream.connectors.print import PrintSink

        return self.sink_to(PrintSink(sink_identifier)).name("Sink: Print to Std. Out")  # type: ignore[no-any-return]

    def execute_and_collect(self, job_execution_name: str | None = None, limit: int | None = None) -> Any:
        """Run the job and bring this stream's rows to the driver.

        Args:
            job_execution_name: The job's name.
            limit: The largest number of rows to return. None: all.

        Returns:
            An iterator over the rows, in the order in which one writer gets them. Close it, or use it in a `with`
            statement: that ends the job. With `limit`: a list.

        Raises:
            ValueError: A source of the job has no end, and no checkpoints are taken: no row would ever come.
        """
        from penstock.datastream.connectors.memory.collect import CollectSink

        if limit is not None and limit <= 0:
            raise ValueError(f"limit is a whole number of at least 1, got {limit}")
        endless, interval = self._endless_source(), CheckpointingOptions.CHECKPOINTING_INTERVAL
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
        """Runs the job to its end and returns this stream's rows as a Spark DataFrame: Parquet, written exactly once.

        :param spark: the session of the DataFrame; None takes the active one.
        :param path: an empty or missing directory to write to; None writes below the job's directory (or, where it has
            none, to a temporary directory that goes with this program).

        Raises `ValueError` where a source of the job has no end, `TypeError` for a type that Spark does not have.
        """
        environment, endless = self._environment, self._endless_source()
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

    def _endless_source(self) -> str | None:
        """Return the name of a source of the job, this stream's included, that has no end."""
        nodes = self._environment._graph_with(self._inputs).nodes
        sources = [node for node in nodes if node.kind is OperatorKind.SOURCE]
        return next((node.name for node in sources if not node.function.bounded), None)

    def assign_timestamps_and_watermarks(self, watermark_strategy: WatermarkStrategy) -> SingleOutputStreamOperator:
        """From here on, rows have the timestamps and watermarks that the strategy gives them, and no others."""
        name = "Timestamps/Watermarks"
        timed = timed_union(timed_rows(self._environment._graph_with(self._inputs)), self._inputs)
        check_strategy(watermark_strategy, self._type, "assign_timestamps_and_watermarks()", timed)
        return self._then(OperatorKind.TIMESTAMPS, name, watermark_strategy, self._type)


class SingleOutputStreamOperator(DataStream):
    """A stream that an operator made, so that the operator can be named and set."""


class KeyedStream(RollingFields, DataStream):
    """A stream partitioned by key: its functions may use keyed state."""

    def __init__(self, environment: StreamExecutionEnvironment, origin: DataStream, partitioner: Partitioner) -> None:
        super().__init__(environment, [replace(i, partitioner=partitioner) for i in origin._inputs], origin._type)
        self._origin = origin
        self._partitioner = partitioner

    def get_key_type(self) -> TypeInformation:
        return self._partitioner.key_type or PICKLED

    def map(
        self, func: MapFunction | Callable[[Any], Any], output_type: TypeInformation | None = None
    ) -> SingleOutputStreamOperator:
        function = KeyedMap(as_function(func, MapFunction, CallableMap, "map"))
        return self._then(OperatorKind.KEYED_PROCESS, "Map", function, output_type)

    def flat_map(
        self, func: FlatMapFunction | Callable[[Any], Any], output_type: TypeInformation | None = None
    ) -> SingleOutputStreamOperator:
        function = KeyedFlatMap(as_function(func, FlatMapFunction, CallableFlatMap, "flat_map"))
        return self._then(OperatorKind.KEYED_PROCESS, "Flat Map", function, output_type)

    def filter(self, func: FilterFunction | Callable[[Any], bool] | pc.Expression) -> SingleOutputStreamOperator:
        if isinstance(func, pc.Expression):
            return self._filter_columns(func)
        function = KeyedFilter(as_function(func, FilterFunction, CallableFilter, "filter"))
        return self._then(OperatorKind.KEYED_PROCESS, "Filter", function, self._type)

    def process(  # type: ignore[override]
        self, func: KeyedProcessFunction, output_type: TypeInformation | None = None
    ) -> SingleOutputStreamOperator:
        wrap = _no_callable("process", "KeyedProcessFunction")
        function = as_function(func, KeyedProcessFunction, wrap, "process")
        return self._then(OperatorKind.KEYED_PROCESS, "Keyed Process", function, output_type)

    def reduce(self, func: ReduceFunction | Callable[[Any, Any], Any]) -> SingleOutputStreamOperator:
        """A rolling reduce per key: one row out for each one in, of the same type."""
        function = as_function(func, ReduceFunction, CallableReduce, "reduce")
        return self._then(OperatorKind.REDUCE, "Keyed Reduce", function, self._type)

    def key_by(self, key_selector: Any, key_type: Any = None, *columns: str) -> Any:
        return self._origin.key_by(key_selector, key_type, *columns)

    def _plain_inputs(self) -> list[Input]:
        # As in Flink, a union forgets the key.
        return self._origin._inputs

    def _refused(self, method: str) -> NoReturn:
        raise TypeError(f"{method}(): cannot override the partitioning of a keyed stream")

    def rebalance(self) -> DataStream:
        self._refused("rebalance")

    def forward(self) -> DataStream:
        self._refused("forward")

    def rescale(self) -> DataStream:
        self._refused("rescale")

    def shuffle(self) -> DataStream:
        self._refused("shuffle")

    def global_(self) -> DataStream:
        self._refused("global_")

    def broadcast(self, *broadcast_state_descriptors: Any) -> DataStream:
        self._refused("broadcast")

    def partition_custom(self, partitioner: Any, key_selector: Any) -> DataStream:
        self._refused("partition_custom")

    def window(self, window_assigner: WindowAssigner) -> WindowedStream:
        """The rows of each key in windows of event time, for functions that make something of a whole window."""
        from penstock.datastream.windowed_stream import WindowedStream

        return WindowedStream(self, window_assigner)


class DataStreamSink(NodeSettings):
    """The end of a stream. Its operator can be named and set."""

    def __init__(self, environment: StreamExecutionEnvironment, node: Node) -> None:
        super().__init__(environment, node)


def _no_callable(method: str, kind: str) -> Callable[[Any], Any]:
    def refuse(given: Any) -> Any:
        raise TypeError(f"{method}() takes a {kind}, got the callable {given!r}; for a plain function use flat_map()")

    return refuse
