"""Defines StreamExecutionEnvironment, with which a program begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Iterable, overload

from penstock.common.cached_files import CachedFile
from penstock.common.configuration import Configuration
from penstock.common.execution_config import ExecutionConfig
from penstock.common.job_client import JobClient
from penstock.common.job_execution_result import JobExecutionResult
from penstock.common.missing_names import AdvisesOnMissing
from penstock.common.options import (
    CheckpointingOptions,
    DeploymentOptions,
    ExecutionOptions,
    ParallelismOptions,
    PipelineOptions,
    PythonOptions,
)
from penstock.common.options.modes import CheckpointingMode, RuntimeExecutionMode
from penstock.common.program.excepthook import install_excepthook
from penstock.common.program.program_classes import remember_main
from penstock.common.restart_strategy import RestartStrategyConfiguration
from penstock.common.settings.configuration_sources import load_configuration
from penstock.common.time import Duration
from penstock.common.typeinfo import TypeInformation
from penstock.common.types import Row, RowType
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.files.file_source import FileSource
from penstock.connectors.formats.text.text_lines import StreamFormat
from penstock.connectors.memory.collection import CollectionSource
from penstock.datastream._streams.environment import (
    DEFAULT_JOB_NAME,
    check_configuration,
    check_state_backend,
    validate,
    warn_of_unused_directory,
)
from penstock.datastream._streams.execution import (
    check_connectors,
    client_of_ended_job,
    configure_connector,
    configure_connectors,
    find_data_frames,
    find_executor,
)
from penstock.datastream._streams.forgotten_execution import follow_environment
from penstock.datastream._streams.function_connectors import source_of
from penstock.datastream._streams.given_rows import as_rows
from penstock.datastream._streams.java_settings import warn_of_groups, warn_of_jars
from penstock.datastream._streams.runtime_modes import options_of, runtime_mode
from penstock.datastream._streams.setting_checks import build_hint, check_max_parallelism, check_parallelism, check_type
from penstock.datastream._streams.strategy_checks import check_source_name, check_strategy, warn_of_silence
from penstock.datastream._streams.type_variables import T
from penstock.datastream.checkpoint_config import CheckpointConfig
from penstock.datastream.data_stream import DataStream, SingleOutputStreamOperator
from penstock.datastream.slot_sharing_group import SlotSharingGroup
from penstock.datastream.state_backend import StateBackend
from penstock.graph import pickling
from penstock.graph.builder import build_job_graph
from penstock.graph.describe import execution_plan
from penstock.graph.job_graph import JobGraph
from penstock.graph.logical import Input, LogicalGraph, Node, OperatorKind
from penstock.graph.timed_nodes import Timed

_CHANGELOG = "state.changelog.enabled"


def _existing(method: str, file_path: str) -> Path:
    path = Path(file_path)
    if not path.exists():
        raise FileNotFoundError(f"{method}: there is no {path}")
    return path.resolve()


class StreamExecutionEnvironment(AdvisesOnMissing):
    """Collects the operators that a program declares; `execute()` runs them.

    Settings made here override `-D` of the command line, and those override the configuration file.

    Example:
        env = StreamExecutionEnvironment.get_execution_environment()
        env.enable_checkpointing(10_000)
        env.from_collection([1, 2, 3], Types.LONG()).map(lambda n: n * n, Types.LONG()).print()
        env.execute("squares")
    """

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._graph = LogicalGraph()
        self._ids = 0
        self._declared = follow_environment()
        self._default_parallelism = self.get_parallelism()

    @staticmethod
    def get_execution_environment(configuration: Configuration | None = None) -> StreamExecutionEnvironment:
        """Make an environment with the options of the configuration file and of the command line.

        Raises `OptionError` for options that cannot be used; the message says where they come from.

        Args:
            configuration: Options that override those.

        Returns:
            The environment.
        """
        install_excepthook()
        merged = load_configuration()
        if configuration is not None:
            check_configuration(configuration, "get_execution_environment()")
            merged.add_all(configuration)
        validate(merged)
        return StreamExecutionEnvironment(merged)

    # ---- settings ------------------------------------------------------------------------------------------------

    def get_configuration(self) -> Configuration:
        """Return the options of the job; changes to the returned object take effect."""
        return self._configuration

    def get_parallelism(self) -> int:
        """Return the parallelism of operators that have none of their own (`parallelism.default`)."""
        return self._configuration.get(ParallelismOptions.DEFAULT_PARALLELISM)

    def get_config(self) -> ExecutionConfig:
        """Return PyFlink's getters and setters of the job's options."""
        return ExecutionConfig(self._configuration)

    def get_checkpoint_config(self) -> CheckpointConfig:
        """Return PyFlink's getters and setters of the options of checkpoints."""
        return CheckpointConfig(self._configuration)

    def configure(self, configuration: Configuration, *_: Any) -> None:
        """Set all options of a configuration. Raises `OptionError` for options that cannot be used.

        Args:
            configuration: The options.
        """
        check_configuration(configuration, "configure()")
        validate(configuration)
        self._configuration.add_all(configuration)

    def set_parallelism(self, parallelism: int) -> StreamExecutionEnvironment:
        """Set the parallelism of operators that are declared from now on and have none of their own.

        Args:
            parallelism: The number of subtasks, at least 1.

        Returns:
            This environment. Raises ValueError for another value.
        """
        check_parallelism(parallelism, "(all)")
        self._configuration.set(ParallelismOptions.DEFAULT_PARALLELISM, parallelism)
        return self

    def set_max_parallelism(self, max_parallelism: int) -> StreamExecutionEnvironment:
        """Set the max parallelism, the number of key groups, of operators that have none of their own.

        Args:
            max_parallelism: The number of key groups. It cannot change in a restore.

        Returns:
            This environment. Raises ValueError for a value out of range.
        """
        check_max_parallelism(max_parallelism, "(all)")
        self._configuration.set(PipelineOptions.MAX_PARALLELISM, max_parallelism)
        return self

    def get_max_parallelism(self) -> int:
        """Return the max parallelism, the number of key groups; -1 if it is derived from the parallelism."""
        return self._configuration.get(PipelineOptions.MAX_PARALLELISM)

    def set_runtime_mode(self, execution_mode: RuntimeExecutionMode) -> StreamExecutionEnvironment:
        """Set the execution mode (`execution.runtime-mode`).

        Args:
            execution_mode: STREAMING; BATCH, for bounded sources: rows are processed key by key when their input has
                ended, and no checkpoints are taken; AUTOMATIC: BATCH if all sources are bounded.

        Returns:
            This environment.
        """
        self._configuration.set(ExecutionOptions.RUNTIME_MODE, execution_mode)
        return self

    def set_buffer_timeout(self, timeout_millis: int) -> StreamExecutionEnvironment:
        """Set the maximum wait of rows for a fuller batch, for all operators that do not set it.

        Args:
            timeout_millis: Milliseconds. 0: a batch is sent after every slice of work; -1: when it is full.

        Raises:
            ValueError: `timeout_millis` is less than -1.
        """
        if timeout_millis < -1:
            raise ValueError(f"a buffer timeout is -1, 0 or more milliseconds, got {timeout_millis}")
        self._configuration.set(ExecutionOptions.BUFFER_TIMEOUT_ENABLED, timeout_millis >= 0)
        if timeout_millis >= 0:
            self._configuration.set(ExecutionOptions.BUFFER_TIMEOUT, Duration.of_millis(timeout_millis))
        return self

    def get_buffer_timeout(self) -> int:
        """Return the maximum wait of rows for a fuller batch, in milliseconds; -1 for until it is full."""
        if not self._configuration.get(ExecutionOptions.BUFFER_TIMEOUT_ENABLED):
            return -1
        return self._configuration.get(ExecutionOptions.BUFFER_TIMEOUT).to_millis()

    def disable_operator_chaining(self) -> StreamExecutionEnvironment:
        """Run every operator in a vertex of its own."""
        self._configuration.set(PipelineOptions.OPERATOR_CHAINING, False)
        return self

    def is_chaining_enabled(self) -> bool:
        """Return True if operators may be chained."""
        return self._configuration.get(PipelineOptions.OPERATOR_CHAINING)

    def enable_checkpointing(self, interval: int, mode: CheckpointingMode | None = None) -> StreamExecutionEnvironment:
        """Take checkpoints, from which the job restarts after a failure.

        Args:
            interval: Milliseconds between the triggers of two checkpoints, at least 10.
            mode: The guarantee. AT_LEAST_ONCE runs as EXACTLY_ONCE.
        """
        config = self.get_checkpoint_config().set_checkpoint_interval(interval)
        if mode is not None:
            config.set_checkpointing_mode(mode)
        return self

    def get_checkpoint_interval(self) -> int:
        """Return the interval of checkpoints in milliseconds; -1 if none are taken."""
        return self.get_checkpoint_config().get_checkpoint_interval()

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """Return the guarantee of checkpoints."""
        return self.get_checkpoint_config().get_checkpointing_mode()

    def set_state_backend(self, state_backend: StateBackend) -> StreamExecutionEnvironment:
        """Set the backend that keeps keyed state while the job runs.

        Args:
            state_backend: `HashMapStateBackend()` or `EmbeddedRocksDBStateBackend()`.
        """
        state_backend.apply_to(self._configuration)
        return self

    def set_restart_strategy(self, restart_strategy_configuration: RestartStrategyConfiguration) -> None:
        """Set the restart strategy.

        Args:
            restart_strategy_configuration: Made by `RestartStrategies`.
        """
        restart_strategy_configuration.apply_to(self._configuration)

    def get_default_local_parallelism(self) -> int:
        """Return the default parallelism, as `get_parallelism` does."""
        return self.get_parallelism()

    def set_default_local_parallelism(self, parallelism: int) -> None:
        """Set the default parallelism, as `set_parallelism` does.

        Args:
            parallelism: The number of subtasks, at least 1.
        """
        self.set_parallelism(parallelism)

    def set_default_savepoint_directory(self, directory: str) -> StreamExecutionEnvironment:
        """Set the directory of savepoints for which none is named (`execution.checkpointing.savepoint-dir`).

        Args:
            directory: A path, or a store's URI.
        """
        self._configuration.set(CheckpointingOptions.SAVEPOINT_DIRECTORY, str(directory))
        return self

    def get_default_savepoint_directory(self) -> str | None:
        """Return the directory of savepoints for which none is named; None if there is none."""
        return self._configuration.get(CheckpointingOptions.SAVEPOINT_DIRECTORY)

    def get_checkpointing_consistency_mode(self) -> CheckpointingMode:
        """Return the guarantee of checkpoints, as `get_checkpointing_mode` does."""
        return self.get_checkpointing_mode()

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """Return True if checkpoints may be unaligned."""
        return self.get_checkpoint_config().is_unaligned_checkpoints_enabled()

    def is_force_unaligned_checkpoints(self) -> bool:
        """Return the value of `CheckpointConfig.set_force_unaligned_checkpoints`."""
        return self.get_checkpoint_config().is_force_unaligned_checkpoints()

    def is_chaining_of_operators_with_different_max_parallelism_enabled(self) -> bool:
        """Return False: operators of different max parallelism are not chained."""
        return False

    def enable_changelog_state_backend(self, enabled: bool) -> StreamExecutionEnvironment:
        """Accept Flink's setting, which has no effect. The job's start warns of it.

        Checkpoints are small without a log of changes: `execution.checkpointing.incremental`.

        Args:
            enabled: The value.
        """
        self._configuration.set(_CHANGELOG, bool(enabled))
        return self

    def is_changelog_state_backend_enabled(self) -> bool | None:
        """Return the value of `enable_changelog_state_backend`; None if it was not called."""
        return (
            self._configuration.get_boolean(_CHANGELOG, False) if self._configuration.contains_key(_CHANGELOG) else None
        )

    def register_slot_sharing_group(self, slot_sharing_group: SlotSharingGroup) -> StreamExecutionEnvironment:
        """Accept a group of operators with resources, which has no effect. A warning says so.

        Args:
            slot_sharing_group: The group.

        Raises:
            TypeError: The argument is no group.
        """
        if not isinstance(slot_sharing_group, SlotSharingGroup):
            raise TypeError(f"register_slot_sharing_group() takes a SlotSharingGroup, got {slot_sharing_group!r}")
        warn_of_groups(slot_sharing_group.get_name())
        return self

    # ---- files and libraries ----------------------------------------------------------------------------------------

    def add_jars(self, *jars_path: str) -> None:
        """Accept Java libraries, which are not needed. A warning says what replaces them.

        Args:
            jars_path: Their URLs.
        """
        warn_of_jars("add_jars", jars_path)

    def add_classpaths(self, *classpaths: str) -> None:
        """Accept paths of Java classes, which are not needed. A warning says what replaces them.

        Args:
            classpaths: Their URLs.
        """
        warn_of_jars("add_classpaths", classpaths)

    def add_python_file(self, file_path: str) -> None:
        """Ship a Python file to the slots, so that functions can import it there.

        Args:
            file_path: A Python file, the directory of a package, or a zip file.

        Raises:
            FileNotFoundError: There is no such file.
        """
        path = _existing("add_python_file", file_path)
        files = self._configuration.get(PythonOptions.PYTHON_FILES)
        self._configuration.set(PythonOptions.PYTHON_FILES, (*files, str(path)))

    def set_python_requirements(self, requirements_file_path: str, requirements_cache_dir: str | None = None) -> None:
        """Have pip install packages where the slots run (`python.requirements`), once per machine.

        Args:
            requirements_file_path: A requirements.txt.
            requirements_cache_dir: A directory with the packages, made by `pip download -d`. None: pip fetches them.

        Raises:
            FileNotFoundError: There is no such file or directory.
        """
        text = str(_existing("set_python_requirements", requirements_file_path))
        if requirements_cache_dir is not None:
            text += f"#{_existing('set_python_requirements', requirements_cache_dir)}"
        self._configuration.set(PythonOptions.PYTHON_REQUIREMENTS, text)

    def add_python_archive(self, archive_path: str, target_dir: str | None = None) -> None:
        """Unpack a zip file in the working directory of slots (`python.archives`): functions find it by relative paths.

        Example:
            env.add_python_archive("/data/models.zip", "models")  # then open("models/prices.bin") in open()

        Args:
            archive_path: The zip file, or a directory.
            target_dir: The directory that it becomes. None: one of its own name.

        Raises:
            FileNotFoundError: There is no such file.
        """
        text = str(_existing("add_python_archive", archive_path)) + (f"#{target_dir}" if target_dir else "")
        archives = self._configuration.get(PythonOptions.PYTHON_ARCHIVES)
        self._configuration.set(PythonOptions.PYTHON_ARCHIVES, (*archives, text))

    def set_python_executable(self, python_exec: str) -> None:
        """Set the Python that slots run (`python.executable`).

        Args:
            python_exec: A path on their machines, or one in an archive, such as "environment/bin/python". It needs
                penstock and pyspark.
        """
        self._configuration.set(PythonOptions.PYTHON_EXECUTABLE, python_exec)

    def register_cached_file(self, file_path: str, name: str, executable: bool = False) -> None:
        """Copy a file to where the slots run; functions find it by `RuntimeContext.get_distributed_cache()`.

        Args:
            file_path: A file or directory here, or the URI of one that Spark can read.
            name: The name by which functions ask for it.
            executable: True: the copies may be run as programs.

        Raises:
            FileNotFoundError: There is no such file here.
            ValueError: The name is taken.
        """
        files = self._configuration.get(PipelineOptions.CACHED_FILES)
        if any(file.name == name for file in files):
            raise ValueError(f"register_cached_file: the name {name!r} is taken")
        is_here = "://" not in file_path or file_path.startswith("file://")
        path = str(_existing("register_cached_file", file_path.removeprefix("file://"))) if is_here else file_path
        self._configuration.set(PipelineOptions.CACHED_FILES, (*files, CachedFile(name, path, executable)))

    # ---- sources -------------------------------------------------------------------------------------------------

    @overload
    def from_collection(self, collection: Iterable[Any], type_info: RowType) -> SingleOutputStreamOperator[Row]: ...

    @overload
    def from_collection(
        self, collection: Iterable[T], type_info: TypeInformation | None = None
    ) -> SingleOutputStreamOperator[T]: ...

    def from_collection(self, collection: Iterable[Any], type_info: TypeInformation | None = None) -> Any:
        """Make a stream of the rows of a collection, in their order. One subtask reads them.

        Example:
            env.from_collection([("a", 1), ("b", 2)], Types.TUPLE([Types.STRING(), Types.LONG()]))

        Args:
            collection: The rows: a list, a set, a generator. They are pickled with the job. For a type of named fields
                they may be dicts, or objects whose attributes are the fields.
            type_info: The type of the rows, made by `Types`. None: they are pickled.

        Returns:
            The stream. Raises `SourceError` now if a row does not fit its type; the message names it.

        Raises:
            TypeError: `collection` cannot be iterated over, or is a text.
        """
        check_type(type_info, "from_collection")
        if isinstance(collection, (str, bytes)) or not isinstance(collection, Iterable):
            raise TypeError(f"from_collection() takes a list or another iterable of rows, got {collection!r:.80}")
        source = CollectionSource(as_rows(collection, type_info), type_info)
        source.validate()
        stream = self._source(source, "Source: Collection Source", type_info)
        stream._node_for("from_collection").options["non_parallel"] = True
        return stream.set_parallelism(1)

    def from_source(
        self,
        source: Any,
        watermark_strategy: WatermarkStrategy,
        source_name: str,
        type_info: TypeInformation | None = None,
    ) -> SingleOutputStreamOperator:
        """Make a stream of the rows of a source.

        Example:
            strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("time")
            env.from_source(FileSource.for_parquet("/data/orders"), strategy, "orders")

        Args:
            source: A `penstock.datastream.connectors.Source`.
            watermark_strategy: How rows get event time, per split; `WatermarkStrategy.no_watermarks()` for none.
            source_name: The name of the operator.
            type_info: The type of the rows, only if the source does not know it.

        Returns:
            The stream.

        Raises:
            TypeError: `source` is no source or not built yet, or `type_info` is not the type that it produces.
        """
        if isinstance(source, type) or not callable(getattr(source, "create_reader", None)):
            raise TypeError(f"from_source() takes a Source, got {source!r}{build_hint(source)}")
        check_source_name(source_name)
        check_type(type_info, source_name)
        configure_connector(source, self._configuration)
        produced = source.produced_type
        if type_info is not None and produced is not None and produced != type_info:
            raise TypeError(f"source {source_name!r} produces {produced}, type_info says {type_info}; leave it out")
        timed = Timed.ALL if getattr(source, "has_timestamps", False) else Timed.NONE
        check_strategy(watermark_strategy, produced or type_info, f"source {source_name!r}", timed)
        stream = self._source(source, f"Source: {source_name}", produced or type_info)
        stream._node_for("from_source").watermark_strategy = watermark_strategy
        return stream

    def add_source(
        self, source_func: Any, source_name: str = "Custom Source", type_info: TypeInformation | None = None
    ) -> SingleOutputStreamOperator:
        """Make a stream of the rows of a function or a source, without event time.

        Example:
            env.add_source(lambda: range(10), "numbers", Types.LONG())

        Args:
            source_func: A `SourceFunction`; a function without parameters that returns rows, such as a generator
                function; or a `penstock.datastream.connectors.Source`. One subtask runs a function.
            source_name: The name of the operator.
            type_info: The type of the rows, if the source does not know it. None: they are pickled.

        Returns:
            The stream.

        Raises:
            TypeError: `source_func` is none of these.
        """
        check_type(type_info, source_name)
        function = source_of(source_func, type_info)
        stream = self.from_source(
            source_func if function is None else function, WatermarkStrategy.no_watermarks(), source_name, type_info
        )
        return stream if function is None else stream.force_non_parallel()

    def read_text_file(self, file_path: str, charset_name: str = "UTF-8") -> SingleOutputStreamOperator[str]:
        """Make a stream of the lines of text files, of type STRING. PyFlink 1's name of `FileSource`.

        Args:
            file_path: A file, a directory, or a pattern.
            charset_name: The encoding of the text.

        Returns:
            The stream.
        """
        source = FileSource.for_record_stream_format(StreamFormat.text_line_format(charset_name), file_path).build()
        return self.from_source(source, WatermarkStrategy.no_watermarks(), "read_text_file")

    def from_spark(
        self, df: Any, watermark_strategy: WatermarkStrategy | None = None, name: str | None = None
    ) -> SingleOutputStreamOperator:
        """Make a stream of the rows of a Spark DataFrame, with a field per column.

        Spark computes the DataFrame once, when the job starts, and writes it below the job's directory. A restart, and
        a job that is resumed, read the rows there. Raises TypeError, which names the column, if a type of Spark has no
        counterpart.

        Args:
            df: The `pyspark.sql.DataFrame`.
            watermark_strategy: How rows get event time. None: they have none.
            name: The name of the operator.

        Returns:
            The stream.
        """
        frames = find_data_frames(self._configuration.get(DeploymentOptions.TARGET))
        name = name or "DataFrame"
        return self.from_source(frames.source(df, name), watermark_strategy or WatermarkStrategy.no_watermarks(), name)

    def _source(self, source: Any, name: str, type_info: TypeInformation | None) -> SingleOutputStreamOperator:
        node = self._add_node(OperatorKind.SOURCE, name, source, [], type_info)
        return SingleOutputStreamOperator(self, [Input(node)], type_info)

    # ---- execution -----------------------------------------------------------------------------------------------

    def get_job_graph(self, job_name: str | None = None) -> JobGraph:
        """Build the graph of chained operators that `execute()` would run now.

        Warns (`EventTimeWarning`) of windows and event-time timers that would wait for watermarks forever.

        Args:
            job_name: The name of the job. None: the option `pipeline.name`, or a default name.

        Returns:
            The job graph.
        """
        self._declared.is_used = True
        self._keep_parallelism()
        runtime_mode(self._graph, self._configuration)
        job_graph = build_job_graph(self._graph, self._configuration, self._job_name(job_name))
        warn_of_silence(self._graph)
        return job_graph

    def get_execution_plan(self) -> str:
        """Return the operators as JSON, in the form of Flink's plans."""
        return execution_plan(self.get_job_graph())

    def execute(self, job_name: str | None = None) -> JobExecutionResult:
        """Run the declared operators as a job and wait until it ends.

        Args:
            job_name: The name of the job. None: the option `pipeline.name`, or a default name.

        Returns:
            The result of the finished job.

        Raises:
            JobExecutionError: The job failed or was cancelled. The message begins with the traceback of the user's
                function.
        """
        return self.execute_async(job_name).wait()

    def execute_async(self, job_name: str | None = None) -> JobClient:
        """Submit the declared operators as a job and return at once.

        Raises every error that can be found before the job starts: options, types, functions that cannot be
        pickled, missing input files.

        Args:
            job_name: The name of the job. None: the option `pipeline.name`, or a default name.

        Returns:
            A client, to observe, cancel or wait for the job.
        """
        self._declared.is_used = True
        validate(self._configuration)
        check_state_backend(self._configuration)
        graph = self.get_job_graph(job_name)
        configure_connectors(graph, self._configuration)
        executor = find_executor(self._configuration.get(DeploymentOptions.TARGET))
        mode = runtime_mode(self._graph, self._configuration)
        if mode is RuntimeExecutionMode.STREAMING:
            warn_of_unused_directory(self._configuration)
        options = options_of(mode, self._configuration)
        client = client_of_ended_job(executor, graph, options.copy())
        if client is None:
            check_connectors(graph, self._configuration)
            remember_main()
            pickling.dumps(graph)
            client = executor.submit(graph, options)
        self._graph = LogicalGraph()
        return client

    def close(self) -> None:
        """Discard the operators that were declared and not executed. Running jobs are not affected."""
        self._declared.is_used = True
        self._graph = LogicalGraph()

    # ---- the graph -----------------------------------------------------------------------------------------------

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
        self._declared.operators += 1
        return node

    def _keep_parallelism(self) -> None:
        """Set the previous default parallelism, if it has changed, on the operators declared before the change."""
        default = self.get_parallelism()
        if default != self._default_parallelism:
            for node in self._graph.nodes:
                if node.parallelism is None:
                    node.parallelism = self._default_parallelism
            self._default_parallelism = default

    def _job_name(self, job_name: str | None) -> str:
        return job_name or self._configuration.get(PipelineOptions.NAME) or DEFAULT_JOB_NAME


__all__ = ["DEFAULT_JOB_NAME", "DataStream", "StreamExecutionEnvironment"]
