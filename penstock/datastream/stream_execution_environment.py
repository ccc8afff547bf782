"""StreamExecutionEnvironment: where a program starts, and where it is handed over for execution."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, Iterable

from penstock.common.checkpointing import CheckpointingMode, RuntimeExecutionMode
from penstock.common.configuration import Configuration, OptionWarning
from penstock.common.configuration_sources import load_configuration
from penstock.common.execution_config import ExecutionConfig
from penstock.common.job_client import JobClient
from penstock.common.job_execution import JobExecutionResult
from penstock.common.last_words import install_last_words
from penstock.common.options import (
    DeploymentOptions,
    ExecutionOptions,
    ParallelismOptions,
    PipelineOptions,
    PythonOptions,
)
from penstock.common.restart_strategy import RestartStrategyConfiguration
from penstock.common.time import Duration
from penstock.common.typeinfo import TypeInformation
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream._streams.event_time import check_strategy, warn_of_silence
from penstock.datastream._streams.execution import check_connectors, find_data_frames, find_executor
from penstock.datastream._streams.node_settings import build_hint, check_max_parallelism, check_parallelism, check_type
from penstock.datastream.checkpoint_config import CheckpointConfig
from penstock.datastream.data_stream import DataStream, SingleOutputStreamOperator
from penstock.datastream.state_backend import StateBackend
from penstock.graph import pickling
from penstock.graph.builder import build_job_graph
from penstock.graph.describe import execution_plan
from penstock.graph.event_time import Timed
from penstock.graph.job_graph import JobGraph
from penstock.graph.logical import Input, LogicalGraph, Node, OperatorKind

DEFAULT_JOB_NAME = "Penstock Streaming Job"


class StreamExecutionEnvironment:
    """Collects what a program declares; `execute()` runs it.

    Settings made here count before `-D` of the command line, and those before the configuration file.
    """

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._graph = LogicalGraph()
        self._ids = 0
        self._default_parallelism = self.get_parallelism()

    @staticmethod
    def get_execution_environment(configuration: Configuration | None = None) -> StreamExecutionEnvironment:
        """Raises `OptionError` for options that cannot be used, naming where they stand."""
        install_last_words()
        merged = load_configuration()
        if configuration is not None:
            merged.add_all(configuration)
        _validate(merged)
        return StreamExecutionEnvironment(merged)

    # ---- settings ------------------------------------------------------------------------------------------------

    def get_configuration(self) -> Configuration:
        """The job's options; changes to them count."""
        return self._configuration

    def get_config(self) -> ExecutionConfig:
        return ExecutionConfig(self._configuration)

    def get_checkpoint_config(self) -> CheckpointConfig:
        return CheckpointConfig(self._configuration)

    def configure(self, configuration: Configuration, *_: Any) -> None:
        """Takes over all options of `configuration`."""
        _validate(configuration)
        self._configuration.add_all(configuration)

    def set_parallelism(self, parallelism: int) -> StreamExecutionEnvironment:
        check_parallelism(parallelism, "(all)")
        self._configuration.set(ParallelismOptions.DEFAULT_PARALLELISM, parallelism)
        return self

    def get_parallelism(self) -> int:
        return self._configuration.get(ParallelismOptions.DEFAULT_PARALLELISM)

    def set_max_parallelism(self, max_parallelism: int) -> StreamExecutionEnvironment:
        check_max_parallelism(max_parallelism, "(all)")
        self._configuration.set(PipelineOptions.MAX_PARALLELISM, max_parallelism)
        return self

    def get_max_parallelism(self) -> int:
        """-1: derived from the parallelism."""
        return self._configuration.get(PipelineOptions.MAX_PARALLELISM)

    def set_runtime_mode(self, execution_mode: RuntimeExecutionMode) -> StreamExecutionEnvironment:
        self._configuration.set(ExecutionOptions.RUNTIME_MODE, execution_mode)
        return self

    def set_buffer_timeout(self, timeout_millis: int) -> StreamExecutionEnvironment:
        """0: a batch leaves after every slice; -1: only when it is full."""
        if timeout_millis < -1:
            raise ValueError(f"a buffer timeout is -1, 0 or more milliseconds, got {timeout_millis}")
        self._configuration.set(ExecutionOptions.BUFFER_TIMEOUT_ENABLED, timeout_millis >= 0)
        if timeout_millis >= 0:
            self._configuration.set(ExecutionOptions.BUFFER_TIMEOUT, Duration.of_millis(timeout_millis))
        return self

    def get_buffer_timeout(self) -> int:
        if not self._configuration.get(ExecutionOptions.BUFFER_TIMEOUT_ENABLED):
            return -1
        return self._configuration.get(ExecutionOptions.BUFFER_TIMEOUT).to_millis()

    def disable_operator_chaining(self) -> StreamExecutionEnvironment:
        self._configuration.set(PipelineOptions.OPERATOR_CHAINING, False)
        return self

    def is_chaining_enabled(self) -> bool:
        return self._configuration.get(PipelineOptions.OPERATOR_CHAINING)

    def enable_checkpointing(
        self, interval: int, mode: CheckpointingMode | None = None
    ) -> StreamExecutionEnvironment:
        """`interval` in milliseconds."""
        config = self.get_checkpoint_config().set_checkpoint_interval(interval)
        if mode is not None:
            config.set_checkpointing_mode(mode)
        return self

    def get_checkpoint_interval(self) -> int:
        """In milliseconds; -1: no checkpoints."""
        return self.get_checkpoint_config().get_checkpoint_interval()

    def get_checkpointing_mode(self) -> CheckpointingMode:
        return self.get_checkpoint_config().get_checkpointing_mode()

    def set_state_backend(self, state_backend: StateBackend) -> StreamExecutionEnvironment:
        state_backend.apply_to(self._configuration)
        return self

    def set_restart_strategy(self, restart_strategy_configuration: RestartStrategyConfiguration) -> None:
        restart_strategy_configuration.apply_to(self._configuration)

    def set_default_local_parallelism(self, parallelism: int) -> None:
        self.set_parallelism(parallelism)

    def add_python_file(self, file_path: str) -> None:
        """A Python file, a package's directory or a zip file that functions import in the slots."""
        path = Path(file_path)
        if not path.exists():
            raise FileNotFoundError(f"add_python_file: there is no {path}")
        files = self._configuration.get(PythonOptions.PYTHON_FILES)
        self._configuration.set(PythonOptions.PYTHON_FILES, (*files, str(path.resolve())))

    # ---- sources -------------------------------------------------------------------------------------------------

    def from_collection(
        self, collection: Iterable[Any], type_info: TypeInformation | None = None
    ) -> SingleOutputStreamOperator:
        """The rows of a collection in their order, read by one subtask. Raises where a row does not fit."""
        from penstock.datastream.connectors.memory.collection import CollectionSource

        check_type(type_info, "from_collection")
        source = CollectionSource(list(collection), type_info)
        source.validate()
        stream = self._source(source, "Source: Collection Source", type_info)
        stream._node_for("from_collection").options["non_parallel"] = True
        return stream.set_parallelism(1)  # type: ignore[no-any-return]

    def from_source(
        self, source: Any, watermark_strategy: WatermarkStrategy, source_name: str,
        type_info: TypeInformation | None = None,
    ) -> SingleOutputStreamOperator:  # fmt: skip
        """`type_info` only where the source does not know its type."""
        if isinstance(source, type) or not callable(getattr(source, "create_reader", None)):
            raise TypeError(f"from_source() takes a Source, got {source!r}{build_hint(source)}")
        check_type(type_info, source_name)
        produced = source.produced_type
        if type_info is not None and produced is not None and produced != type_info:
            raise TypeError(f"source {source_name!r} produces {produced}, type_info says {type_info}; leave it out")
        check_strategy(watermark_strategy, produced or type_info, f"source {source_name!r}", Timed.NONE)
        stream = self._source(source, f"Source: {source_name}", produced or type_info)
        stream._node_for("from_source").watermark_strategy = watermark_strategy
        return stream

    def from_spark(
        self, df: Any, watermark_strategy: WatermarkStrategy | None = None, name: str | None = None
    ) -> SingleOutputStreamOperator:
        """The rows of a Spark DataFrame, with a field per column. Spark computes it once, when the job starts, and
        writes it below the job's directory; a restart and a job that is resumed read it there.

        Raises `TypeError`, which names the column whose type has no twin here.
        """
        frames = find_data_frames(self._configuration.get(DeploymentOptions.TARGET))
        name = name or "DataFrame"
        return self.from_source(
            frames.source(df, name), watermark_strategy or WatermarkStrategy.no_watermarks(), name
        )

    def _source(self, source: Any, name: str, type_info: TypeInformation | None) -> SingleOutputStreamOperator:
        node = self._add_node(OperatorKind.SOURCE, name, source, [], type_info)
        return SingleOutputStreamOperator(self, [Input(node)], type_info)

    def _graph_with(self, inputs: list[Input]) -> LogicalGraph:
        """Return the graph, with the operators of `inputs` in it: they may have been declared for an earlier job."""
        for given in inputs:
            self._graph.include(given.node)
        return self._graph

    def _add_node(
        self, kind: OperatorKind, name: str, function: Any, inputs: list[Input], output_type: TypeInformation | None
    ) -> Node:
        self._keep_parallelism()
        node = self._graph.add(Node(self._ids, kind, name, function, inputs, output_type))
        self._ids += 1
        return node

    # ---- execution -----------------------------------------------------------------------------------------------

    def _keep_parallelism(self) -> None:
        """Give the operators that were declared before a change of the default parallelism the one of before."""
        default = self.get_parallelism()
        if default != self._default_parallelism:
            for node in self._graph.nodes:
                if node.parallelism is None:
                    node.parallelism = self._default_parallelism
            self._default_parallelism = default

    def get_job_graph(self, job_name: str | None = None) -> JobGraph:
        """What would run now. Raises where the program makes no sense; warns where its event time will stand still."""
        self._keep_parallelism()
        job_graph = build_job_graph(self._graph, self._configuration, self._job_name(job_name))
        warn_of_silence(self._graph)
        return job_graph

    def get_execution_plan(self) -> str:
        """The job graph as JSON."""
        return execution_plan(self.get_job_graph())

    def execute(self, job_name: str | None = None) -> JobExecutionResult:
        """Runs the job to its end. Raises `JobExecutionError`, with the user's traceback first, where it fails."""
        return self.execute_async(job_name).wait()

    def execute_async(self, job_name: str | None = None) -> JobClient:
        """Starts the job. What can be known before it starts is raised here."""
        _validate(self._configuration)
        graph = self.get_job_graph(job_name)
        check_connectors(graph)
        pickling.dumps(graph)
        executor = find_executor(self._configuration.get(DeploymentOptions.TARGET))
        client = executor.submit(graph, self._configuration.copy())
        self._graph = LogicalGraph()
        return client

    def _job_name(self, job_name: str | None) -> str:
        return job_name or self._configuration.get(PipelineOptions.NAME) or DEFAULT_JOB_NAME

    def close(self) -> None:
        """Forgets what was declared and not executed."""
        self._graph = LogicalGraph()


def _validate(configuration: Configuration) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always", OptionWarning)
        configuration.validate()


__all__ = ["DEFAULT_JOB_NAME", "DataStream", "StreamExecutionEnvironment"]
