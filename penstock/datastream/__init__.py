"""What programs import as they would from `pyflink.datastream`."""

from penstock.common.checkpointing import (
    CheckpointingMode,
    ExternalizedCheckpointRetention,
    RuntimeExecutionMode,
)
from penstock.datastream.checkpoint_config import CheckpointConfig, ExternalizedCheckpointCleanup
from penstock.datastream.checkpoint_storage import (
    CheckpointStorage,
    FileSystemCheckpointStorage,
    JobManagerCheckpointStorage,
)
from penstock.datastream.data_stream import DataStream, DataStreamSink, KeyedStream, SingleOutputStreamOperator
from penstock.datastream.execution import Executor, register_executor
from penstock.datastream.functions import (
    AggregateFunction,
    FilterFunction,
    FlatMapFunction,
    Function,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    Partitioner,
    ProcessFunction,
    ReduceFunction,
    RuntimeContext,
)
from penstock.datastream.job_client import JobClient
from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from penstock.datastream.state_backend import EmbeddedRocksDBStateBackend, HashMapStateBackend, StateBackend
from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment

__all__ = [
    "AggregateFunction",
    "AggregatingStateDescriptor",
    "CheckpointConfig",
    "CheckpointStorage",
    "CheckpointingMode",
    "DataStream",
    "DataStreamSink",
    "EmbeddedRocksDBStateBackend",
    "Executor",
    "ExternalizedCheckpointCleanup",
    "ExternalizedCheckpointRetention",
    "FileSystemCheckpointStorage",
    "FilterFunction",
    "FlatMapFunction",
    "Function",
    "HashMapStateBackend",
    "JobClient",
    "JobManagerCheckpointStorage",
    "KeySelector",
    "KeyedProcessFunction",
    "KeyedStream",
    "ListStateDescriptor",
    "MapFunction",
    "MapStateDescriptor",
    "Partitioner",
    "ProcessFunction",
    "ReduceFunction",
    "ReducingStateDescriptor",
    "RuntimeContext",
    "RuntimeExecutionMode",
    "SingleOutputStreamOperator",
    "StateBackend",
    "StreamExecutionEnvironment",
    "ValueStateDescriptor",
    "register_executor",
]
