"""Checks every option: Flink's key and default, what is refused by key, and which of several sources counts."""

from __future__ import annotations

import datetime
import json
import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest

from penstock.common.configuration import Configuration, OptionWarning
from penstock.common.options import (
    OPTIONS,
    CheckpointingOptions,
    ConfigOption,
    JobManagerOptions,
    OptionError,
    PipelineOptions,
    PythonOptions,
    RestartStrategyOptions,
    option_table,
)
from penstock.common.options.foreign import FOREIGN_KEYS, FOREIGN_PREFIXES
from penstock.common.options.modes import CheckpointingMode, ExternalizedCheckpointRetention
from penstock.common.options.registry import DEPRECATED
from penstock.common.restart_strategy import RestartStrategies
from penstock.common.settings.configuration_sources import (
    ConfigurationError,
    load_configuration,
    parse_dynamic_option,
    read_configuration_file,
)
from penstock.common.time import Duration

INTERVAL = "execution.checkpointing.interval"


@pytest.mark.parametrize("option", OPTIONS.values(), ids=lambda o: o.key)
def test_every_option_is_described_and_its_default_reads_back(option: ConfigOption[Any]) -> None:
    assert len(option.description) > 10
    if option.default is not None:
        assert option.parse(option.default_text) == option.default
    assert Configuration().get(option) == option.default
    assert Configuration().get(option.key) == option.default


def test_defaults_are_flinks() -> None:
    flink = {
        "execution.checkpointing.timeout": Duration.of_minutes(10),
        "execution.checkpointing.min-pause": Duration(0),
        "execution.checkpointing.max-concurrent-checkpoints": 1,
        "execution.checkpointing.tolerable-failed-checkpoints": 0,
        "execution.checkpointing.unaligned.enabled": False,
        "execution.checkpointing.aligned-checkpoint-timeout": Duration(0),
        "execution.checkpointing.num-retained": 1,
        "execution.buffer-timeout.interval": Duration.of_millis(100),
        "restart-strategy.fixed-delay.attempts": 1,
        "restart-strategy.exponential-delay.backoff-multiplier": 1.5,
        "slot.request.timeout": Duration.of_minutes(5),
        "heartbeat.timeout": Duration.of_seconds(50),
        "task.cancellation.timeout": Duration.of_seconds(180),
        "web.checkpoints.history": 10,
        "penstock.checkpoint-storage.jobmanager.max-size": 5 * 1024 * 1024,
    }
    assert {key: Configuration().get(key) for key in flink} == flink


def test_no_key_is_in_two_classes() -> None:
    for key in {*OPTIONS, *DEPRECATED}:
        assert key not in FOREIGN_KEYS
        assert not key.startswith(FOREIGN_PREFIXES), key


def test_the_table_names_every_option_and_its_old_keys() -> None:
    table = option_table()
    assert all(f"{key}  (" in table for key in OPTIONS)
    assert "formerly state.checkpoints.num-retained" in table


def test_values_may_be_typed_or_text() -> None:
    configuration = Configuration()
    for value in (1500, "1500 ms", "1500", datetime.timedelta(seconds=1.5), Duration.of_millis(1500)):
        configuration.set(CheckpointingOptions.CHECKPOINTING_INTERVAL, value)
        assert configuration.get(CheckpointingOptions.CHECKPOINTING_INTERVAL) == Duration.of_millis(1500)
        assert configuration.get_string(INTERVAL, "") in ("1500 ms", "1500")
    configuration.set(CheckpointingOptions.CHECKPOINTING_CONSISTENCY_MODE, "at_least_once")
    assert configuration.get(CheckpointingOptions.CHECKPOINTING_CONSISTENCY_MODE) is CheckpointingMode.AT_LEAST_ONCE
    configuration.set(CheckpointingOptions.CHECKPOINTING_CONSISTENCY_MODE, CheckpointingMode.EXACTLY_ONCE)
    assert configuration.get(CheckpointingOptions.CHECKPOINTING_CONSISTENCY_MODE) is CheckpointingMode.EXACTLY_ONCE
    configuration.set(CheckpointingOptions.EXTERNALIZED_CHECKPOINT_RETENTION, "retain-on-cancellation")
    assert configuration.get(CheckpointingOptions.EXTERNALIZED_CHECKPOINT_RETENTION) is (
        ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
    )
    configuration.set("penstock.network.window-bytes", "32 kb")
    assert configuration.get("penstock.network.window-bytes") == 32768
    configuration.set("penstock.network.window-bytes", 1000)
    assert configuration.get("penstock.network.window-bytes") == 1000
    configuration.set(PipelineOptions.GLOBAL_JOB_PARAMETERS, {"a": "1", "b": "x"})
    assert configuration.get(PipelineOptions.GLOBAL_JOB_PARAMETERS) == {"a": "1", "b": "x"}
    configuration.set(PythonOptions.PYTHON_FILES, ("a.py", "b.zip"))
    assert configuration.get(PythonOptions.PYTHON_FILES) == ("a.py", "b.zip")
    configuration.set("restart-strategy.exponential-delay.attempts-before-reset-backoff", "infinite")
    assert configuration.get(RestartStrategyOptions.EXPONENTIAL_DELAY_ATTEMPTS) == 2**31 - 1


@pytest.mark.parametrize(
    "text, ports",
    [("0", (range(1),)), ("50100-50102", (range(50100, 50103),)), ("1, 5-6", (range(1, 2), range(5, 7)))],
)
def test_port_ranges(text: str, ports: tuple[range, ...]) -> None:
    configuration = Configuration({"jobmanager.rpc.bind-port": text})
    assert configuration.get(JobManagerOptions.RPC_BIND_PORT) == ports


@pytest.mark.parametrize(
    "key, value, says",
    [
        (INTERVAL, "ten", "is no duration: write a whole number and a unit"),
        (INTERVAL, "5 ms", "it must be at least 10 ms"),
        ("execution.checkpointing.unaligned.enabled", "yes", "is no boolean: write true or false"),
        ("execution.checkpointing.num-retained", "0", "more than 0"),
        ("execution.checkpointing.num-retained", "many", "is no whole number"),
        ("execution.checkpointing.mode", "MAYBE_ONCE", "none of EXACTLY_ONCE, AT_LEAST_ONCE"),
        ("execution.checkpointing.max-concurrent-checkpoints", "0", "more than 0"),
        ("execution.checkpointing.storage", "s3", "none of jobmanager, filesystem"),
        ("state.backend.type", "forst", "none of hashmap, rocksdb"),
        ("restart-strategy.type", "sometimes", "none of none, fixed-delay"),
        ("restart-strategy.exponential-delay.backoff-multiplier", "0.5", "at least 1.0"),
        ("penstock.network.window-bytes", "3 pounds", "is no amount of memory"),
        ("jobmanager.rpc.bind-port", "9-1", "is no port range"),
        ("jobmanager.rpc.bind-port", "70000", "is no port range"),
        ("pipeline.job-id", "xyz", "32 hex digits"),
        ("pipeline.max-parallelism", "40000", "between 1 and 32768"),
        ("pipeline.global-job-parameters", "abc", "no 'key:value' pair"),
        ("execution.runtime-mode", "BATCHES", "'BATCHES' is none of STREAMING, BATCH, AUTOMATIC"),
        ("execution.state-recovery.claim-mode", "LEGACY", "NO_CLAIM or CLAIM"),
    ],
)
def test_an_impossible_value_is_refused_by_key(key: str, value: object, says: str) -> None:
    with pytest.raises(OptionError, match=says) as refused:
        Configuration().set(key, value)
    assert refused.value.key == key and str(refused.value).startswith(key + ":")


@pytest.mark.parametrize(
    "key, near",
    [
        ("execution.checkpointing.intervall", "did you mean execution.checkpointing.interval?"),
        ("execution.checkpointing.unaligned.enable", "did you mean execution.checkpointing.unaligned.enabled?"),
        ("taskmanager.network.memory.buffer-debloat.enable", "taskmanager.network.memory.buffer-debloat.enabled"),
        ("paralelism.default", "did you mean parallelism.default?"),
        ("completely.unheard-of", "lists all there are"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_one(key: str, near: str) -> None:
    with pytest.raises(OptionError) as refused:
        Configuration({key: "1"}).validate()
    assert near in str(refused.value) and refused.value.key == key


def test_keys_that_mean_nothing_here_are_listed_in_one_warning() -> None:
    configuration = Configuration(
        {
            "rest.url-prefix": "/x",
            "taskmanager.memory.process.size": "1 gb",
            "yarn.application.name": "x",
            INTERVAL: "1 s",
        }
    )
    with pytest.warns(OptionWarning) as warned:
        configuration.validate()
    assert [str(w.message) for w in warned] == [
        "options of Flink that have no effect here: rest.url-prefix, taskmanager.memory.process.size, "
        "yarn.application.name"
    ]


@pytest.mark.parametrize(
    "old, new, value",
    [
        ("execution.checkpointing.unaligned", "execution.checkpointing.unaligned.enabled", "true"),
        ("state.checkpoints.num-retained", "execution.checkpointing.num-retained", "3"),
        ("state.checkpoints.dir", "execution.checkpointing.dir", "/tmp/c"),
        ("state.savepoints.dir", "execution.checkpointing.savepoint-dir", "/tmp/s"),
        ("state.checkpoint-storage", "execution.checkpointing.storage", "jobmanager"),
        ("state.backend", "state.backend.type", "hashmap"),
        ("execution.checkpointing.alignment-timeout", "execution.checkpointing.aligned-checkpoint-timeout", "1 s"),
        ("execution.savepoint.path", "execution.state-recovery.path", "/tmp/c/chk-3"),
        ("restart-strategy", "restart-strategy.type", "fixed-delay"),
        ("execution.buffer-timeout", "execution.buffer-timeout.interval", "10 ms"),
    ],
)
def test_old_keys_are_taken_with_a_warning(old: str, new: str, value: str) -> None:
    configuration = Configuration({old: value})
    assert configuration.get_string(new, "") == configuration.get_string(old, "") == value
    assert configuration.key_set() == {new}
    with pytest.warns(OptionWarning, match=f"{old} is now called {new}"):
        configuration.validate()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        configuration.validate()  # once is enough


def test_pyflinks_getters_and_setters() -> None:
    configuration = Configuration()
    configuration.set_string("parallelism.default", "3").set_boolean("pipeline.object-reuse", True)
    configuration.set_float("rest.x", 1.5).set_integer("rest.y", 7)
    assert configuration.get_integer("parallelism.default", 1) == 3
    assert configuration.get_boolean("pipeline.object-reuse", False) is True
    assert configuration.get_float("rest.x", 0.0) == 1.5 and configuration.get_integer("rest.z", 9) == 9
    assert configuration.contains_key("rest.y") and configuration.remove_config("rest.y")
    assert not configuration.contains_key("rest.y") and not configuration.remove_config("rest.y")
    other = Configuration({"x": "1", "parallelism.default": 5})
    other.add_all(configuration)
    assert other.to_dict()["parallelism.default"] == "3" and other.to_dict()["x"] == "1"
    target: dict[str, str] = {}
    other.add_all_to_dict(target)
    assert target == other.to_dict()
    with pytest.raises(OptionError, match="object-reuse"):
        configuration.get_integer("pipeline.object-reuse", 0)


def test_a_copy_is_its_own_and_equal() -> None:
    configuration = Configuration({INTERVAL: "1 s"})
    for twin in (configuration.copy(), pickle.loads(pickle.dumps(configuration))):
        assert twin == configuration and hash(twin) == hash(configuration)
        twin.set("parallelism.default", 2)
        assert twin != configuration and not configuration.contains_key("parallelism.default")


def write(tmp_path: Path, name: str, text: str) -> Path:
    (tmp_path / name).write_text(text)
    return tmp_path / name


def test_a_nested_file_and_a_flat_one_say_the_same(tmp_path: Path) -> None:
    nested = write(
        tmp_path,
        "a.yaml",
        """
execution:
  checkpointing:
    interval: 500 ms      # a comment
    unaligned:
      enabled: true
    num-retained: 3
parallelism.default: 2
pipeline:
  global-job-parameters: {a: 1, b: x}
  name:
""",
    )
    flat = write(
        tmp_path,
        "b.yaml",
        """
execution.checkpointing.interval: 500 ms
execution.checkpointing.unaligned.enabled: true
execution.checkpointing.num-retained: 3
parallelism.default: 2
pipeline.global-job-parameters: 'a:1,b:x'
""",
    )
    read = read_configuration_file(nested)
    assert read == read_configuration_file(flat)
    assert read.get(CheckpointingOptions.ENABLE_UNALIGNED) is True
    assert not read.contains_key("pipeline.name")
    assert read_configuration_file(write(tmp_path, "empty.yaml", "# nothing\n")) == Configuration()


@pytest.mark.parametrize(
    "text, line, says",
    [
        ("parallelism.default: 2\nexecution:\n  checkpointing:\n    interval: soon\n", 4, "'soon' is no duration"),
        ("parallelism.default: 2\nexecution.checkpointing.intervall: 1 s\n", 2, "did you mean"),
        ("a: [1\n", 2, "this is no YAML"),
        ("- a\n- b\n", 1, "expected 'key: value' pairs"),
        ("parallelism.default: 2\nparallelism:\n  default: 3\n", 3, "stands in line 1 already"),
    ],
)
def test_errors_in_a_file_name_it_and_the_line(tmp_path: Path, text: str, line: int, says: str) -> None:
    file = write(tmp_path, "config.yaml", text)
    with pytest.raises(ConfigurationError) as refused:
        load_configuration({"PENSTOCK_CONF_DIR": str(tmp_path)})
    assert f"{file}, line {line}: " in str(refused.value) and says in str(refused.value)


def test_in_one_file_the_present_key_counts_before_its_old_form(tmp_path: Path) -> None:
    file = write(
        tmp_path, "flink-conf.yaml", "execution.checkpointing.num-retained: 5\nstate.checkpoints.num-retained: 2\n"
    )
    assert read_configuration_file(file).get(CheckpointingOptions.MAX_RETAINED_CHECKPOINTS) == 5


def test_dynamic_options_count_before_the_file(tmp_path: Path) -> None:
    write(tmp_path, "flink-conf.yml", "state.checkpoints.num-retained: 2\nparallelism.default: 2\n")
    environ = {
        "PENSTOCK_CONF_DIR": str(tmp_path),
        "PENSTOCK_DYNAMIC_OPTIONS": json.dumps({"execution.checkpointing.num-retained": "7"}),
    }
    loaded = load_configuration(environ)
    assert loaded.get(CheckpointingOptions.MAX_RETAINED_CHECKPOINTS) == 7
    assert loaded.get_integer("parallelism.default", 0) == 2
    assert load_configuration({}) == Configuration()


@pytest.mark.parametrize(
    "environ, says",
    [
        ({"PENSTOCK_CONF_DIR": "/nowhere/at/all"}, "which is no directory"),
        ({"PENSTOCK_DYNAMIC_OPTIONS": "{"}, "is no JSON object"),
        ({"PENSTOCK_DYNAMIC_OPTIONS": "[]"}, "is no JSON object of keys"),
        ({"PENSTOCK_DYNAMIC_OPTIONS": '{"parallelism.default": "0"}'}, "-D parallelism.default: "),
        ({"PENSTOCK_DYNAMIC_OPTIONS": '{"paralelism.default": "1"}'}, "-D paralelism.default: there is no option"),
    ],
)
def test_bad_surroundings_are_named(environ: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        load_configuration(environ)


def test_two_files_are_one_too_many(tmp_path: Path) -> None:
    write(tmp_path, "config.yaml", "")
    write(tmp_path, "flink-conf.yaml", "")
    with pytest.raises(ConfigurationError, match=r"config\.yaml and flink-conf\.yaml; keep one"):
        load_configuration({"PENSTOCK_CONF_DIR": str(tmp_path)})


def test_dynamic_options_of_the_command_line() -> None:
    assert parse_dynamic_option("pipeline.name=a = b") == ("pipeline.name", "a = b")
    wrong = {"novalue": "write it as -D key=value", "=1": "write it as", "paralelism.default=1": "did you mean"}
    for text, says in wrong.items():
        with pytest.raises(ConfigurationError, match=says):
            parse_dynamic_option(text)


def test_restart_strategies_are_options() -> None:
    configuration = Configuration()
    RestartStrategies.fixed_delay_restart(4, 250).apply_to(configuration)
    assert configuration.get(RestartStrategyOptions.RESTART_STRATEGY) == "fixed-delay"
    assert configuration.get(RestartStrategyOptions.FIXED_DELAY_ATTEMPTS) == 4
    assert configuration.get(RestartStrategyOptions.FIXED_DELAY_DELAY) == Duration.of_millis(250)
    RestartStrategies.failure_rate_restart(3, 1000, 10).apply_to(configuration)
    assert configuration.get(RestartStrategyOptions.RESTART_STRATEGY) == "failure-rate"
    assert configuration.get(RestartStrategyOptions.FAILURE_RATE_INTERVAL) == Duration.of_seconds(1)
    RestartStrategies.exponential_delay_restart(1, 1000, 2.0, 5000, 0.0).apply_to(configuration)
    assert configuration.get(RestartStrategyOptions.EXPONENTIAL_DELAY_BACKOFF_MULTIPLIER) == 2.0
    RestartStrategies.no_restart().apply_to(configuration)
    assert configuration.get(RestartStrategyOptions.RESTART_STRATEGY) == "none"
    before = configuration.copy()
    RestartStrategies.fall_back_restart().apply_to(configuration)
    assert configuration == before
