"""Checks what an environment makes of options, files and command line, and what `execute` hands on."""

from __future__ import annotations

import json
import re
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.common import (
    Configuration,
    JobExecutionError,
    OptionError,
    OptionWarning,
    RestartStrategies,
    RuntimeExecutionMode,
    Types,
)
from penstock.common.options import CheckpointingOptions, ExecutionOptions, PythonOptions, RestartStrategyOptions
from penstock.common.row_types.type_information import TypeInformation
from penstock.connectors.memory.discard import DiscardingSink
from penstock.datastream import (
    CheckpointingMode,
    EmbeddedRocksDBStateBackend,
    ExternalizedCheckpointRetention,
    FileSystemCheckpointStorage,
    FsStateBackend,
    HashMapStateBackend,
    JobManagerCheckpointStorage,
    MemoryStateBackend,
    PredefinedOptions,
    RocksDBStateBackend,
    StateBackend,
    StreamExecutionEnvironment,
)
from penstock.datastream.connectors.base import SinkError
from penstock.graph.pickling import UnpicklableFunction
from tests.unit.datastream.conftest import InstantExecutor

get_env = StreamExecutionEnvironment.get_execution_environment


def test_the_program_counts_before_the_command_line_and_that_before_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "config.yaml").write_text(
        "parallelism.default: 2\nexecution.checkpointing.num-retained: 2\nexecution.checkpointing.interval: 2 s\n"
        "pipeline.name: from file\n"
    )
    monkeypatch.setenv("PENSTOCK_CONF_DIR", str(tmp_path))
    dynamic = {
        "parallelism.default": "3", "state.checkpoints.num-retained": "3", "execution.checkpointing.interval": "3 s",
    }  # fmt: skip
    monkeypatch.setenv("PENSTOCK_DYNAMIC_OPTIONS", json.dumps(dynamic))
    with pytest.warns(OptionWarning, match="state.checkpoints.num-retained is now called"):
        env = get_env(Configuration({"parallelism.default": 4}))
    assert env.get_parallelism() == 4
    assert env.get_configuration().get(CheckpointingOptions.MAX_RETAINED_CHECKPOINTS) == 3
    assert env.get_checkpoint_interval() == 3000
    env.enable_checkpointing(5000)
    assert env.get_checkpoint_interval() == 5000
    env.from_collection([1]).sink_to(DiscardingSink())
    assert env.get_job_graph().name == "from file" and env.get_job_graph("mine").name == "mine"


def test_an_unknown_option_stops_the_program_at_its_first_line() -> None:
    with pytest.raises(OptionError, match="did you mean execution.checkpointing.interval"):
        get_env(Configuration({"execution.checkpointing.intervals": "1 s"}))


def test_an_unknown_option_that_is_set_later_stops_the_job(
    env: StreamExecutionEnvironment, executor: InstantExecutor
) -> None:
    env.get_configuration().set_string("execution.checkpointing.intervals", "1 s")
    env.from_collection([1]).sink_to(DiscardingSink())
    with pytest.raises(OptionError, match="did you mean"):
        env.execute()
    assert not executor.submitted


def test_settings_are_options(env: StreamExecutionEnvironment) -> None:
    env.enable_checkpointing(1000, CheckpointingMode.AT_LEAST_ONCE)
    env.set_parallelism(3).set_max_parallelism(99).disable_operator_chaining().set_buffer_timeout(5)
    env.set_state_backend(HashMapStateBackend())
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 10))
    env.set_runtime_mode(RuntimeExecutionMode.STREAMING)
    env.get_config().enable_object_reuse().set_global_job_parameters({"threshold": 3})
    assert env.get_configuration().to_dict() == {
        "execution.target": "instant",
        "parallelism.default": "3",
        "execution.checkpointing.interval": "1 s",
        "execution.checkpointing.mode": "AT_LEAST_ONCE",
        "pipeline.max-parallelism": "99",
        "pipeline.operator-chaining.enabled": "false",
        "execution.buffer-timeout.enabled": "true",
        "execution.buffer-timeout.interval": "5 ms",
        "state.backend.type": "hashmap",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "3",
        "restart-strategy.fixed-delay.delay": "10 ms",
        "execution.runtime-mode": "STREAMING",
        "pipeline.object-reuse": "true",
        "pipeline.global-job-parameters": "threshold:3",
    }
    assert (env.get_parallelism(), env.get_max_parallelism(), env.is_chaining_enabled()) == (3, 99, False)
    assert env.get_checkpointing_mode() is CheckpointingMode.AT_LEAST_ONCE and env.get_buffer_timeout() == 5
    assert env.get_config().get_global_job_parameters() == {"threshold": "3"}
    assert env.get_config().is_object_reuse_enabled()
    env.set_buffer_timeout(-1)
    assert env.get_buffer_timeout() == -1
    assert env.get_configuration().get(ExecutionOptions.BUFFER_TIMEOUT_ENABLED) is False
    env.configure(Configuration({"parallelism.default": 7, "restart-strategy.type": "none"}))
    assert env.get_parallelism() == 7
    assert env.get_configuration().get(RestartStrategyOptions.RESTART_STRATEGY) == "none"


def test_checkpoint_config_is_options(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    config = env.get_checkpoint_config()
    assert not config.is_checkpointing_enabled() and config.get_checkpoint_interval() == -1
    assert config.get_checkpoint_timeout() == 600_000 and not config.is_externalized_checkpoints_enabled()
    config.set_checkpoint_interval(250).set_checkpoint_timeout(60_000).set_min_pause_between_checkpoints(100)
    config.set_max_concurrent_checkpoints(1).set_tolerable_checkpoint_failure_number(3)
    config.enable_unaligned_checkpoints().set_aligned_checkpoint_timeout(500).set_force_unaligned_checkpoints()
    config.enable_externalized_checkpoints(ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION)
    config.set_checkpoint_storage(FileSystemCheckpointStorage(tmp_path))
    assert config.is_checkpointing_enabled() and config.get_checkpoint_interval() == 250
    assert config.get_checkpoint_timeout() == 60_000 and config.get_min_pause_between_checkpoints() == 100
    assert config.get_tolerable_checkpoint_failure_number() == 3 and not config.is_fail_on_checkpointing_errors()
    assert config.is_unaligned_checkpoints_enabled() and config.is_force_unaligned_checkpoints()
    assert config.get_aligned_checkpoint_timeout().to_millis() == 500
    assert config.get_externalized_checkpoint_retention() is ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
    options = env.get_configuration()
    assert options.get(CheckpointingOptions.CHECKPOINTS_DIRECTORY) == str(tmp_path)
    assert options.get(CheckpointingOptions.CHECKPOINT_STORAGE) == "filesystem"
    config.set_checkpoint_storage(JobManagerCheckpointStorage(max_state_size=1000))
    assert options.get(CheckpointingOptions.CHECKPOINT_STORAGE) == "jobmanager"
    assert options.get(CheckpointingOptions.JOBMANAGER_STORAGE_MAX_SIZE) == 1000
    config.disable_unaligned_checkpoints()
    assert not config.is_unaligned_checkpoints_enabled()


@pytest.mark.parametrize(
    "call, error, says",
    [
        (lambda env: env.enable_checkpointing(0), OptionError, "execution.checkpointing.interval: 0 is refused"),
        (lambda env: env.enable_checkpointing(5), OptionError, "at least 10 ms"),
        (lambda env: env.enable_checkpointing("1 s"), TypeError, "a number of milliseconds, e.g. 1000; got '1 s'"),
        (lambda env: env.configure({"parallelism.default": "2"}), TypeError, r"^configure\(\) takes a Configuration"),
        (lambda env: env.get_execution_environment({"a": 1}), TypeError, "takes a Configuration, e.g. .*; got a dict$"),
        (lambda env: env.get_checkpoint_config().set_max_concurrent_checkpoints(0), OptionError, "more than 0"),
        (lambda env: env.get_checkpoint_config().set_tolerable_checkpoint_failure_number(-1), OptionError, "negative"),
        (lambda env: env.set_parallelism(-1), ValueError, "at least 1, got -1"),
        (lambda env: env.set_max_parallelism(0), ValueError, "between 1 and 32768"),
        (lambda env: JobManagerCheckpointStorage("/tmp/x"), ValueError, "FileSystemCheckpointStorage"),
        (lambda env: env.add_python_file("/nowhere/x.py"), FileNotFoundError, "there is no /nowhere/x.py"),
        (lambda env: env.execute(), ValueError, "nothing to execute"),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_written(
    env: StreamExecutionEnvironment,
    call: Callable[[StreamExecutionEnvironment], object],
    error: type[Exception],
    says: str,
) -> None:
    with pytest.raises(error, match=says):
        call(env)


def test_python_files(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    (tmp_path / "lib.py").write_text("")
    env.add_python_file(str(tmp_path / "lib.py"))
    env.add_python_file(str(tmp_path))
    assert env.get_configuration().get(PythonOptions.PYTHON_FILES) == (str(tmp_path / "lib.py"), str(tmp_path))


def test_execute_hands_the_graph_to_the_executor_of_the_target(
    env: StreamExecutionEnvironment, executor: InstantExecutor
) -> None:
    env.from_collection([1], Types.LONG()).map(lambda v: v + 1).sink_to(DiscardingSink())
    result = env.execute("increment")
    ((graph, configuration),) = executor.submitted
    assert graph.name == "increment" and result.get_net_runtime() == 1
    env.set_parallelism(9)
    assert configuration.get_integer("parallelism.default", 0) == 2, "a running job keeps its own options"
    with pytest.raises(ValueError, match="nothing to execute"):
        env.execute("again")


def test_a_failed_job_raises(env: StreamExecutionEnvironment, executor: InstantExecutor) -> None:
    executor.outcome = JobExecutionError("the job failed", traceback="Traceback\n  their code")
    env.from_collection([1]).sink_to(DiscardingSink())
    with pytest.raises(JobExecutionError, match="^Traceback"):
        env.execute()


def test_an_unknown_target_lists_those_there_are(env: StreamExecutionEnvironment) -> None:
    env.get_configuration().set_string("execution.target", "yarn-session")
    env.from_collection([1]).sink_to(DiscardingSink())
    with pytest.raises(OptionError, match="there is no executor 'yarn-session'; there are: instant, .*spark"):
        env.execute()


def test_what_cannot_be_shipped_stops_the_job_before_it_starts(
    env: StreamExecutionEnvironment, executor: InstantExecutor
) -> None:
    lock = threading.Lock()
    env.from_collection([1]).map(lambda v: lock and v).name("locked").sink_to(DiscardingSink())
    with pytest.raises(UnpicklableFunction, match="operator 'locked' .*closure variable 'lock'"):
        env.execute()
    assert not executor.submitted


def test_sinks_are_asked_before_the_job_starts(env: StreamExecutionEnvironment, executor: InstantExecutor) -> None:
    class Refusing(DiscardingSink):
        def validate(self, input_type: TypeInformation | None) -> None:
            raise SinkError(f"cannot write {input_type}")

    env.from_collection([1], Types.LONG()).sink_to(Refusing())
    with pytest.raises(SinkError, match="cannot write LONG"):
        env.execute()
    assert not executor.submitted


def test_the_execution_plan_is_json(env: StreamExecutionEnvironment) -> None:
    env.from_collection([1]).sink_to(DiscardingSink())
    plan = json.loads(env.get_execution_plan())
    assert [n["parallelism"] for n in plan["nodes"]] == [1, 2]


def test_foreign_options_warn_once_per_job(env: StreamExecutionEnvironment, executor: InstantExecutor) -> None:
    env.get_configuration().set_string("rest.url-prefix", "/x")
    env.from_collection([1]).sink_to(DiscardingSink())
    with pytest.warns(OptionWarning, match="no effect here: rest.url-prefix"):
        env.execute()


def test_nothing_warns_about_a_plain_program(env: StreamExecutionEnvironment) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env.from_collection([1]).sink_to(DiscardingSink())
        env.execute()


def test_rocksdb_by_backend_is_rocksdb_by_options(env: StreamExecutionEnvironment) -> None:
    backend = EmbeddedRocksDBStateBackend(enable_incremental_checkpointing=True)
    backend.set_db_storage_paths("/disk1", "/disk2")
    assert backend.get_db_storage_paths() == ["/disk1", "/disk2"] and backend.is_incremental_checkpoints_enabled()
    env.set_state_backend(backend)
    options = env.get_configuration().to_dict()
    assert options["state.backend.type"] == "rocksdb"
    assert options["execution.checkpointing.incremental"] == "true"
    assert options["state.backend.rocksdb.localdir"] == "/disk1,/disk2"


def test_what_flink_sets_of_rocksdb_and_has_no_effect_here_is_named(env: StreamExecutionEnvironment) -> None:
    backend = EmbeddedRocksDBStateBackend()
    assert backend.get_predefined_options() is PredefinedOptions.DEFAULT
    assert backend.get_options() is None and backend.get_number_of_transfer_threads() == 4
    backend.set_predefined_options(PredefinedOptions.FLASH_SSD_OPTIMIZED)
    backend.set_options("org.example.Factory")
    backend.set_number_of_transfer_threads(8)
    with pytest.raises(ValueError, match="must be at least 1, not 0"):
        backend.set_number_of_transfer_threads(0)
    with pytest.raises(TypeError, match="takes PredefinedOptions, not 'FLASH_SSD_OPTIMIZED'"):
        backend.set_predefined_options("FLASH_SSD_OPTIMIZED")  # type: ignore[arg-type]
    assert backend.get_predefined_options() is PredefinedOptions.FLASH_SSD_OPTIMIZED
    assert backend.get_options() == "org.example.Factory" and backend.get_number_of_transfer_threads() == 8
    env.set_state_backend(backend)
    named = ("checkpoint.transfer.thread.num", "options-factory", "predefined-options")
    keys = ", ".join(f"state.backend.rocksdb.{name}" for name in named)
    with pytest.warns(OptionWarning, match=f"no effect here: {re.escape(keys)}$"):
        env.get_configuration().validate()


def test_a_backend_of_rocksdb_needs_a_storage() -> None:
    with pytest.warns(DeprecationWarning), pytest.raises(ValueError, match="needs checkpoint_data_uri, or"):
        RocksDBStateBackend()
    with pytest.warns(DeprecationWarning):
        backend = RocksDBStateBackend("/c")
    backend.set_number_of_transfering_threads(3)
    assert backend.get_number_of_transfering_threads() == 3
    backend.set_predefined_options(PredefinedOptions.DEFAULT)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: MemoryStateBackend(1000), {"state.backend.type": "hashmap", "storage": "jobmanager"}),
        (
            lambda: FsStateBackend("/c", "/s"),
            {"state.backend.type": "hashmap", "storage": "filesystem", "dir": "/c", "savepoint-dir": "/s"},
        ),
        (
            lambda: RocksDBStateBackend("/c", True),
            {"state.backend.type": "rocksdb", "storage": "filesystem", "dir": "/c", "incremental": "true"},
        ),
        (
            lambda: RocksDBStateBackend(checkpoint_stream_backend=FsStateBackend("/c", "/s")),
            {"state.backend.type": "rocksdb", "storage": "filesystem", "dir": "/c", "savepoint-dir": "/s"},
        ),
        (
            lambda: RocksDBStateBackend("/c", checkpoint_stream_backend=FsStateBackend("/other")),
            {"state.backend.type": "rocksdb", "storage": "filesystem", "dir": "/c"},
        ),
    ],
)
def test_older_names_of_backends_mean_what_they_mean_in_flink(
    env: StreamExecutionEnvironment, make: Callable[[], StateBackend], expected: dict[str, str]
) -> None:
    with pytest.warns(
        DeprecationWarning, match=r"is an older name: use env.set_state_backend\((HashMap|EmbeddedRocks)"
    ):
        env.set_state_backend(make())
    options = env.get_configuration().to_dict()
    found = {key.removeprefix("execution.checkpointing."): value for key, value in options.items()}
    assert {key: found.get(key) for key in expected} == expected


def test_a_missing_rocksdict_is_named_before_the_job_starts(
    env: StreamExecutionEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    env.set_state_backend(EmbeddedRocksDBStateBackend())
    env.from_collection([1]).sink_to(DiscardingSink())
    with pytest.raises(OptionError, match=r"pip install 'penstock\[rocksdb\]'"):
        env.execute()


def test_a_directory_of_checkpoints_without_an_interval_is_warned_of_when_the_job_is_executed(
    env: StreamExecutionEnvironment,
) -> None:
    env.configure(Configuration({"execution.checkpointing.dir": "/tmp/none", "execution.target": "instant"}))
    with pytest.warns(OptionWarning, match="execution.checkpointing.interval is not: the job takes no ch") as warned:
        env.from_collection([1]).sink_to(DiscardingSink())
        env.execute()
    assert [w.filename for w in warned] == [__file__]


@pytest.mark.parametrize("option", ["execution.checkpointing.interval: 1 s", "execution.runtime-mode: BATCH"])
def test_a_program_that_sets_the_interval_later_is_not_warned(
    executor: object, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    key, value = option.split(": ")
    given = {"execution.target": "instant", "execution.checkpointing.dir": "/tmp/none"}
    monkeypatch.setenv("PENSTOCK_DYNAMIC_OPTIONS", json.dumps(given))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = StreamExecutionEnvironment.get_execution_environment()
        env.get_configuration().set_string(key, value)
        env.from_collection([1]).sink_to(DiscardingSink())
        env.execute()
