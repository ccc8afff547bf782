"""StreamExecutionEnvironment: where a program starts, and where it is handed over for execution."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Iterable

from penstock.common.checkpointing import CheckpointingMode, RuntimeExecutionMode
from penstock.common.configuration import Configuration
from penstock.common.configuration_sources import load_configuration
from penstock.common.execution_config import ExecutionConfig
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
from penstock.datastream._streams.environment import DEFAULT_JOB_NAME, Environment, validate
from penstock.datastream._streams.event_time import check_strategy
from penstock.datastream._streams.execution import find_data_frames
from penstock.datastream._streams.node_settings import build_hint, check_max_parallelism, check_parallelism, check_type
from penstock.datastream.checkpoint_config import CheckpointConfig
from penstock.datastream.connectors.memory.collection import CollectionSource
from penstock.datastream.data_stream import DataStream, SingleOutputStreamOperator
from penstock.datastream.state_backend import StateBackend
from penstock.graph.event_time import Timed
from penstock.graph.logical import Input, OperatorKind


class StreamExecutionEnvironment(Environment):
    """Collects what a program declares; `execute()` runs it.

    Settings made here count before `-D` of the command line, and those before the configuration file.
    """

    @staticmethod
    def get_execution_environment(configuration: Configuration | None = None) -> StreamExecutionEnvironment:
        """Raises `OptionError` for options that cannot be used, naming where they stand."""
        install_last_words()
        merged = load_configuration()
        if configuration is not None:
            merged.add_all(configuration)
        validate(merged)
        return StreamExecutionEnvironment(merged)

    # ---- settings ------------------------------------------------------------------------------------------------

    def get_config(self) -> ExecutionConfig:
        return ExecutionConfig(self._configuration)

    def get_checkpoint_config(self) -> CheckpointConfig:
        return CheckpointConfig(self._configuration)

    def configure(self, configuration: Configuration, *_: Any) -> None:
        """Takes over all options of `configuration`."""
        validate(configuration)
        self._configuration.add_all(configuration)

    def set_parallelism(self, parallelism: int) -> StreamExecutionEnvironment:
        check_parallelism(parallelism, "(all)")
        self._configuration.set(ParallelismOptions.DEFAULT_PARALLELISM, parallelism)
        return self

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


__all__ = ["DEFAULT_JOB_NAME", "DataStream", "StreamExecutionEnvironment"]
