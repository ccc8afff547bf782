"""Offers the names that programs import from `pyflink.datastream`."""

from typing import TYPE_CHECKING

from penstock.common.job_client import JobClient
from penstock.common.missing_names import advising_getattr
from penstock.common.options.modes import CheckpointingMode, ExternalizedCheckpointRetention, RuntimeExecutionMode
from penstock.datastream._streams.execution import Executor, register_executor
from penstock.datastream.async_data_stream import AsyncDataStream
from penstock.datastream.checkpoint_config import CheckpointConfig, ExternalizedCheckpointCleanup
from penstock.datastream.checkpoint_storage import (
    CheckpointStorage,
    CustomCheckpointStorage,
    FileSystemCheckpointStorage,
    JobManagerCheckpointStorage,
)
from penstock.datastream.data_stream import (
    AllWindowedStream,
    BroadcastConnectedStream,
    BroadcastStream,
    ConnectedStreams,
    DataStream,
    DataStreamSink,
    KeyedStream,
    SingleOutputStreamOperator,
    WindowedStream,
)
from penstock.datastream.functions import (
    AggregateFunction,
    AsyncFunction,
    AsyncRetryPredicate,
    AsyncRetryStrategy,
    BlockingFunction,
    BroadcastProcessFunction,
    CheckpointedFunction,
    CoFlatMapFunction,
    CoGroupFunction,
    CoMapFunction,
    CoProcessFunction,
    FilterFunction,
    FlatJoinFunction,
    FlatMapFunction,
    Function,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    JoinFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    Partitioner,
    ProcessFunction,
    ProcessJoinFunction,
    ProcessWindowFunction,
    ReduceFunction,
    RuntimeContext,
    SinkFunction,
    SourceFunction,
    WindowFunction,
)
from penstock.datastream.joined_streams import CoGroupedStreams, IntervalJoin, JoinedStreams
from penstock.datastream.output_tag import OutputTag
from penstock.datastream.slot_sharing_group import MemorySize, SlotSharingGroup
from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from penstock.datastream.state_backend import (
    CustomStateBackend,
    EmbeddedRocksDBStateBackend,
    FsStateBackend,
    HashMapStateBackend,
    MemoryStateBackend,
    PredefinedOptions,
    RocksDBStateBackend,
    StateBackend,
)
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
from penstock.datastream.time_domain import TimeDomain
from penstock.datastream.timerservice import TimerService
from penstock.datastream.window import (
    CountWindow,
    DynamicEventTimeSessionWindows,
    EventTimeSessionWindows,
    GlobalWindow,
    MergingWindowAssigner,
    SessionWindowTimeGapExtractor,
    SlidingEventTimeWindows,
    TimeWindow,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
    Window,
    WindowAssigner,
)

__all__ = [
    "CoGroupFunction", "CoGroupedStreams", "FlatJoinFunction", "IntervalJoin", "JoinFunction", "JoinedStreams",
    "ProcessJoinFunction", "AggregateFunction", "AggregatingStateDescriptor", "AllWindowedStream", "AsyncDataStream",
    "AsyncFunction", "AsyncRetryPredicate", "AsyncRetryStrategy", "BlockingFunction", "BroadcastConnectedStream",
    "BroadcastProcessFunction", "BroadcastStream", "CheckpointConfig", "CheckpointStorage", "CheckpointedFunction",
    "CheckpointingMode", "CoFlatMapFunction", "CoMapFunction", "CoProcessFunction", "ConnectedStreams", "CountWindow",
    "CustomCheckpointStorage", "CustomStateBackend", "DataStream", "DataStreamSink", "DynamicEventTimeSessionWindows",
    "EmbeddedRocksDBStateBackend", "EventTimeSessionWindows", "Executor", "ExternalizedCheckpointCleanup",
    "ExternalizedCheckpointRetention", "FileSystemCheckpointStorage", "FilterFunction", "FlatMapFunction",
    "FsStateBackend", "Function", "FunctionInitializationContext", "FunctionSnapshotContext", "GlobalWindow",
    "HashMapStateBackend", "JobClient", "JobManagerCheckpointStorage", "KeySelector", "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction", "KeyedProcessFunction", "KeyedStream", "ListStateDescriptor", "MapFunction",
    "MapStateDescriptor", "MemorySize", "MemoryStateBackend", "MergingWindowAssigner", "OutputTag", "Partitioner",
    "PredefinedOptions", "ProcessFunction", "ProcessWindowFunction", "ReduceFunction", "ReducingStateDescriptor",
    "RocksDBStateBackend", "RuntimeContext", "RuntimeExecutionMode", "SessionWindowTimeGapExtractor",
    "SingleOutputStreamOperator", "SinkFunction", "SlidingEventTimeWindows", "SlotSharingGroup", "SourceFunction",
    "StateBackend", "StreamExecutionEnvironment", "TimeDomain", "TimeWindow", "TimerService", "Trigger",
    "TriggerResult", "TumblingEventTimeWindows", "ValueStateDescriptor", "Window", "WindowAssigner", "WindowFunction",
    "WindowedStream", "register_executor",
]  # fmt: skip

if not TYPE_CHECKING:  # a type checker knows the names without it
    __getattr__ = advising_getattr(__name__)
