"""DataStream, KeyedStream and DataStreamSink: every call appends a node to the environment's graph, nothing runs."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Callable, NoReturn

from penstock.common.options.job import MAX_PARALLELISM_LIMIT
from penstock.common.typeinfo import TypeInformation
from penstock.common.types import PICKLED, ListType, MapType
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream.function_wrappers import (
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
from penstock.graph.logical import ChainingStrategy, Input, Node, OperatorKind, Partitioner, PartitionerKind

if TYPE_CHECKING:
    from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment


class _NodeSettings:
    """What can be set for the operator that made a stream."""

    def __init__(self, environment: StreamExecutionEnvironment, node: Node | None) -> None:
        self._environment = environment
        self._node_or_none = node

    def _node_for(self, method: str) -> Node:
        if self._node_or_none is None:
            raise TypeError(f"{method}() belongs to an operator; this stream is a union or a partitioning of others: "
                            f"call {method}() before it, or after the next operator")
        return self._node_or_none

    def get_name(self) -> str:
        return self._node_for("get_name").name

    def name(self, name: str) -> Any:
        """How the operator is called in reports and errors."""
        if not isinstance(name, str) or not name:
            raise TypeError(f"an operator's name is a non-empty string, got {name!r}")
        self._node_for("name").name = name
        return self

    def uid(self, uid: str) -> Any:
        """The operator's id for ever: what its state is found by when the program has changed."""
        if not isinstance(uid, str) or not uid:
            raise TypeError(f"a uid is a non-empty string, got {uid!r}")
        node = self._node_for("uid")
        for other in self._environment._graph.nodes:
            if other is not node and other.uid == uid:
                raise ValueError(f"the uid {uid!r} of operator {node.name!r} is taken by operator {other.name!r}; "
                                 "each operator needs one of its own")
        node.uid = uid
        return self

    def set_uid_hash(self, uid_hash: str) -> Any:
        """The operator id itself, 32 hex digits as they stand in a checkpoint."""
        if len(uid_hash) != 32 or set(uid_hash) - set("0123456789abcdef"):
            raise ValueError(f"a uid hash is 32 hex digits (0-9, a-f), got {uid_hash!r}")
        self._node_for("set_uid_hash").options["uid_hash"] = uid_hash
        return self

    def set_parallelism(self, parallelism: int) -> Any:
        node = self._node_for("set_parallelism")
        check_parallelism(parallelism, node.name)
        if node.options.get("non_parallel") and parallelism != 1:
            raise ValueError(
                f"operator {node.name!r} runs in one subtask only; it cannot have parallelism {parallelism}"
            )
        if node.max_parallelism is not None and parallelism > node.max_parallelism:
            raise ValueError(f"operator {node.name!r}: parallelism {parallelism} is more than its max parallelism "
                             f"{node.max_parallelism}")
        node.parallelism = parallelism
        return self

    def set_max_parallelism(self, max_parallelism: int) -> Any:
        node = self._node_for("set_max_parallelism")
        check_max_parallelism(max_parallelism, node.name)
        if node.parallelism is not None and max_parallelism < node.parallelism:
            raise ValueError(f"operator {node.name!r}: max parallelism {max_parallelism} is less than its parallelism "
                             f"{node.parallelism}")
        node.max_parallelism = max_parallelism
        return self

    def start_new_chain(self) -> Any:
        """The operator begins a chain: it is not chained to the one before it."""
        self._node_for("start_new_chain").chaining = ChainingStrategy.HEAD
        return self

    def disable_chaining(self) -> Any:
        """The operator is chained to none."""
        self._node_for("disable_chaining").chaining = ChainingStrategy.NEVER
        return self

    def slot_sharing_group(self, slot_sharing_group: str) -> Any:
        """Only "default": one subtask of every operator shares a slot."""
        if slot_sharing_group != "default":
            operator = self._node_for("slot_sharing_group").name
            raise NotImplementedError(
                f"slot_sharing_group({slot_sharing_group!r}) of operator {operator!r}: "
                "all operators share their slots (one subtask of each); leave it out, or say 'default'"
            )
        return self

    def set_description(self, description: str) -> Any:
        self._node_for("set_description").options["description"] = description
        return self


def check_parallelism(parallelism: int, operator: str) -> None:
    if not isinstance(parallelism, int) or isinstance(parallelism, bool) or parallelism <= 0:
        raise ValueError(f"operator {operator!r}: parallelism is a whole number of at least 1, got {parallelism!r}")


def check_max_parallelism(max_parallelism: int, operator: str) -> None:
    if not isinstance(max_parallelism, int) or not 0 < max_parallelism <= MAX_PARALLELISM_LIMIT:
        raise ValueError(f"operator {operator!r}: max parallelism lies between 1 and {MAX_PARALLELISM_LIMIT}, "
                         f"got {max_parallelism!r}")


class DataStream(_NodeSettings):
    """A stream of rows. `output_type` arguments are types made by `Types`; without one, rows are pickles."""

    def __init__(
        self, environment: StreamExecutionEnvironment, inputs: list[Input], type_info: TypeInformation | None
    ) -> None:
        whole = len(inputs) == 1 and inputs[0].partitioner is None
        super().__init__(environment, inputs[0].node if whole else None)
        self._inputs = inputs
        self._type = type_info

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

    def filter(self, func: FilterFunction | Callable[[Any], bool]) -> SingleOutputStreamOperator:
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

    # ---- partitioning --------------------------------------------------------------------------------------------

    def key_by(
        self, key_selector: KeySelector | Callable[[Any], Any], key_type: TypeInformation | None = None
    ) -> KeyedStream:
        """Rows of equal keys go to one subtask. A key is never None."""
        selector = selector_of(key_selector, "key_by")
        check_key_type(key_type)
        partitioner = Partitioner(PartitionerKind.HASH, selector, key_type)
        return KeyedStream(self._environment, self, partitioner)

    def _partitioned(self, partitioner: Partitioner) -> DataStream:
        inputs = [Input(i.node, partitioner) for i in self._inputs]
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
        """Runs the job and iterates over this stream's rows; with `limit`, returns a list of at most so many.

        The iterator is closed with the job (`with stream.execute_and_collect() as rows:`)."""
        from penstock.datastream.connectors.collect import CollectSink

        if limit is not None and limit <= 0:
            raise ValueError(f"limit is a whole number of at least 1, got {limit}")
        sink = CollectSink()
        self.sink_to(sink).name("Sink: Collect")
        client = self._environment.execute_async(job_execution_name)
        rows = sink.results(client)
        if limit is None:
            return rows
        with rows:
            return list(islice(rows, limit))

    def assign_timestamps_and_watermarks(self, watermark_strategy: WatermarkStrategy) -> SingleOutputStreamOperator:
        return self._then(OperatorKind.TIMESTAMPS, "Timestamps/Watermarks", watermark_strategy, self._type)


class SingleOutputStreamOperator(DataStream):
    """A stream that an operator made, so that the operator can be named and set."""


class KeyedStream(DataStream):
    """A stream partitioned by key: its functions may use keyed state."""

    def __init__(self, environment: StreamExecutionEnvironment, origin: DataStream, partitioner: Partitioner) -> None:
        super().__init__(environment, [Input(i.node, partitioner) for i in origin._inputs], origin._type)
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

    def filter(self, func: FilterFunction | Callable[[Any], bool]) -> SingleOutputStreamOperator:
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

    def key_by(
        self, key_selector: KeySelector | Callable[[Any], Any], key_type: TypeInformation | None = None
    ) -> KeyedStream:
        return self._origin.key_by(key_selector, key_type)

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

    def window(self, window_assigner: Any) -> NoReturn:
        raise NotImplementedError("window(): windows come with a later release")


class DataStreamSink(_NodeSettings):
    """The end of a stream. Its operator can be named and set."""

    def __init__(self, environment: StreamExecutionEnvironment, node: Node) -> None:
        super().__init__(environment, node)


def check_type(type_info: Any, operator: str) -> None:
    if type_info is not None and not isinstance(type_info, TypeInformation):
        hint = f"; write Types.{_SIMILAR[type_info]}" if type_info in _SIMILAR else ""
        raise TypeError(f"operator {operator!r}: a stream's type is made by Types, e.g. Types.LONG(); got "
                        f"{type_info!r}{hint}")


_SIMILAR: dict[Any, str] = {int: "LONG()", str: "STRING()", float: "DOUBLE()", bool: "BOOLEAN()",
                            bytes: "PRIMITIVE_ARRAY(Types.BYTE())"}


def check_key_type(key_type: Any) -> None:
    check_type(key_type, "key_by")
    if isinstance(key_type, (ListType, MapType)):
        raise TypeError(f"key_by(): {key_type} cannot be the type of a key; use a tuple of its parts")


def _no_callable(method: str, kind: str) -> Callable[[Any], Any]:
    def refuse(given: Any) -> Any:
        raise TypeError(f"{method}() takes a {kind}, got the callable {given!r}; for a plain function use flat_map()")

    return refuse
