"""Names stand where a PyFlink program imports them from."""

from __future__ import annotations

import importlib

import pytest

PYFLINK = {
    "common": "CompletableFuture Configuration Duration Encoder ExecutionConfig JobExecutionResult JobID JobStatus "
    "RestartStrategies Row RowKind SimpleStringSchema Time TypeInformation Types WatermarkStrategy",
    "common.typeinfo": "Types TypeInformation",
    "common.types": "Row RowKind Types",
    "common.job_client": "JobClient",
    "common.job_status": "JobStatus",
    "common.job_execution_result": "JobExecutionResult",
    "common.watermark_strategy": "WatermarkStrategy TimestampAssigner",
    "common.serialization": "Encoder SimpleStringSchema SerializationSchema DeserializationSchema",
    "common.configuration": "Configuration",
    "common.time": "Duration Time",
    "common.restart_strategy": "RestartStrategies",
    "common.job_id": "JobID",
    "datastream": "AggregateFunction CheckpointConfig CheckpointingMode DataStream DataStreamSink "
    "ExternalizedCheckpointRetention FilterFunction FlatMapFunction Function HashMapStateBackend KeyedProcessFunction "
    "KeyedStream KeySelector MapFunction Partitioner ProcessFunction ReduceFunction RuntimeContext "
    "RuntimeExecutionMode StreamExecutionEnvironment FileSystemCheckpointStorage JobManagerCheckpointStorage "
    "CoFlatMapFunction CoMapFunction CoProcessFunction ConnectedStreams KeyedCoProcessFunction OutputTag "
    "ProcessWindowFunction TimeDomain TimerService Window WindowAssigner WindowFunction WindowedStream",
    "datastream.execution_mode": "RuntimeExecutionMode",
    "datastream.connectors": "BucketAssigner FileEnumeratorProvider FileSink FileSource FileSourceBuilder "
    "NumberSequenceSource OutputFileConfig RollingPolicy Sink Source StreamFormat",
    "datastream.functions": "MapFunction FlatMapFunction FilterFunction KeyedProcessFunction ProcessFunction "
    "ReduceFunction AggregateFunction KeySelector Partitioner RuntimeContext NullByteKeySelector CoMapFunction "
    "CoFlatMapFunction CoProcessFunction KeyedCoProcessFunction ProcessWindowFunction WindowFunction",
    "datastream.output_tag": "OutputTag",
    "datastream.time_domain": "TimeDomain",
    "datastream.timerservice": "TimerService",
    "datastream.window": "TimeWindow TumblingEventTimeWindows Window WindowAssigner",
    "datastream.data_stream": "DataStream DataStreamSink KeyedStream ConnectedStreams WindowedStream",
    "datastream.state": "ValueState ValueStateDescriptor ListState ListStateDescriptor MapState MapStateDescriptor "
    "ReducingState ReducingStateDescriptor AggregatingState AggregatingStateDescriptor",
    "datastream.checkpoint_config": "CheckpointConfig ExternalizedCheckpointCleanup",
    "datastream.checkpointing_mode": "CheckpointingMode",
    "datastream.externalized_checkpoint_retention": "ExternalizedCheckpointRetention",
    "datastream.state_backend": "HashMapStateBackend StateBackend",
    "datastream.checkpoint_storage": "FileSystemCheckpointStorage JobManagerCheckpointStorage",
}


@pytest.mark.parametrize("module", PYFLINK)
def test_names_are_found(module: str) -> None:
    found = importlib.import_module(f"penstock.{module}")
    assert [name for name in PYFLINK[module].split() if not hasattr(found, name)] == []


def test_an_unknown_name_is_an_error_as_ever() -> None:
    with pytest.raises(ImportError, match="cannot import name 'Type'"):
        from penstock.common.typeinfo import Type  # type: ignore[attr-defined]  # noqa: F401
