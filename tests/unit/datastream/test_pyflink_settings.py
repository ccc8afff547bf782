"""Tests what PyFlink's programs set and Penstock takes: jars, groups, options by method; and texts of types."""

from __future__ import annotations

import datetime
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from penstock.common import (
    ConfigOptions,
    Configuration,
    Duration,
    ExecutionConfig,
    Instant,
    OptionWarning,
    RestartStrategies,
    Row,
    Time,
    Types,
)
from penstock.common.serialization import RowFieldExtractorSchema
from penstock.common.typeinfo import BasicTypeInfo, ListTypeInfo, RowTypeInfo, TupleTypeInfo
from penstock.common.watermark_strategy import AssignerWithPeriodicWatermarksWrapper
from penstock.connectors.memory.discard import DiscardingSink
from penstock.datastream import (
    CustomCheckpointStorage,
    CustomStateBackend,
    MemorySize,
    SlotSharingGroup,
    StreamExecutionEnvironment,
)
from penstock.graph.operator_ids import MissingUid
from penstock.protocol.values.key_encoding import encode


@pytest.mark.parametrize(
    ("type", "text"),
    [
        (Types.STRING(), "String"),
        (Types.INT(), "Integer"),
        (Types.BIG_DEC(), "BigDecimal"),
        (Types.INSTANT(), "Instant"),
        (Types.SQL_DATE(), "DateTypeInfo"),
        (Types.PICKLED_BYTE_ARRAY(), "PickledByteArrayTypeInfo"),
        (Types.ROW([Types.INT()]), "RowTypeInfo(Integer)"),
        (Types.ROW_NAMED(["a"], [Types.INT()]), "RowTypeInfo(a: Integer)"),
        (Types.TUPLE([Types.INT(), Types.STRING()]), "TupleTypeInfo(Integer, String)"),
        (Types.MAP(Types.STRING(), Types.INT()), "MapTypeInfo<String, Integer>"),
        (Types.LIST(Types.INT()), "ListTypeInfo<Integer>"),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), "PrimitiveArrayTypeInfo<Byte>"),
        (Types.OBJECT_ARRAY(Types.ROW([Types.INT()])), "ObjectArrayTypeInfo<RowTypeInfo(Integer)>"),
        (Types.DECIMAL(5, 2), "DECIMAL(5, 2)"),
    ],
)
def test_types_print_as_in_pyflink(type: Any, text: str) -> None:
    assert str(type) == repr(type) == text
    assert f"{type}" == type.text, "messages keep the form in which a type is made"


def test_classes_of_types() -> None:
    row = RowTypeInfo([Types.INT(), Types.STRING()], ["a", "b"])
    assert row == Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.STRING()])
    assert row.get_field_index("b") == 1 and row.get_field_names() == ["a", "b"]
    with pytest.raises(ValueError, match="has no field 'c'"):
        row.get_field_index("c")
    assert RowTypeInfo([Types.INT()]) == Types.ROW([Types.INT()])
    assert TupleTypeInfo([Types.INT()]) == Types.TUPLE([Types.INT()])
    assert ListTypeInfo(Types.INT()).elem_type == Types.INT()
    assert BasicTypeInfo.LONG_TYPE_INFO() is Types.LONG() and isinstance(Types.LONG(), BasicTypeInfo)
    assert Types.CHAR().encode_column(["a", None]).to_pylist() == ["a", None]
    with pytest.raises(ValueError, match="a str of one character"):
        Types.CHAR().encode_column(["ab"])


def test_instants_are_datetimes() -> None:
    instant = Instant.of_epoch_milli(-1)
    assert (instant.seconds, instant.nanos, instant.to_epoch_milli()) == (-1, 999_000_000, -1)
    assert repr(Instant(1, 2_000)) == "Instant<1, 2000>"
    now = datetime.datetime(2026, 11, 28, 5, tzinfo=datetime.UTC)
    same = Instant(int(now.timestamp()), 0)
    assert same == now and encode(same) == encode(now) and hash(same) == hash(now)
    assert pickle.loads(pickle.dumps(same)) == same
    later = same + datetime.timedelta(milliseconds=5)
    assert isinstance(later, Instant) and later.to_epoch_milli() == same.to_epoch_milli() + 5
    assert same.replace(year=2027).astimezone(datetime.UTC).year == 2027


def test_times_and_rows() -> None:
    assert Time(milliseconds=5) == Time.milliseconds(5) and str(Time.seconds(1)) == "1000 ms"
    assert Row(a=1, b=2).get_fields_by_names(["b"]) == [2] and Row(1, 2).get_fields_by_names(["x"]) == [1, 2]


def test_configurations_print_as_in_flink_and_take_bytes() -> None:
    configuration = Configuration.from_dict({"parallelism.default": "2", "rest.port": "1"})
    assert str(configuration) == "{parallelism.default=2, rest.port=1}"
    assert Configuration(configuration) == configuration and Configuration().add_all(configuration) == configuration
    configuration.set_bytearray("x", bytearray(b"abc"))
    assert configuration.get_bytearray("x", bytearray()) == b"abc"
    assert configuration.get_bytearray("y", bytearray(b"d")) == b"d"
    assert configuration.to_dict()["x"] == "!!binary |-\n  YWJj"
    with pytest.raises(ValueError, match="x: 'text' are no bytes"):
        configuration.set("x", "text").get_bytearray("x", bytearray())
    assert Configuration.parse_list_value("[a, b]") == Configuration.parse_list_value("a;b") == ["a", "b"]
    assert str(Configuration({"s3.secret-key": "hidden"})) == "{s3.secret-key=***}"


def test_options_of_a_program() -> None:
    words = ConfigOptions.key("words").int_type().default_value(3)
    assert Configuration().get(words) == 3 and Configuration({"words": 4}).get(words) == 4
    assert Configuration().get(ConfigOptions.key("path").string_type().no_default_value()) is None


def test_execution_config_has_all_of_pyflinks(env: StreamExecutionEnvironment) -> None:
    config = env.get_config()
    assert config == ExecutionConfig(env.get_configuration().copy())
    assert config.get_task_cancellation_timeout() == 180_000 and config.get_latency_tracking_interval() == 0
    assert config.set_task_cancellation_timeout(5).get_task_cancellation_timeout() == 5
    assert config.set_task_cancellation_interval(7).get_task_cancellation_interval() == 7
    assert config.set_latency_tracking_interval(8).get_latency_tracking_interval() == 8
    assert config.set_use_snapshot_compression(True).is_use_snapshot_compression()
    assert env.get_configuration().get("execution.checkpointing.snapshot-compression") == "lz4"
    assert not config.disable_closure_cleaner().is_closure_cleaner_enabled()
    assert config.enable_closure_cleaner().is_closure_cleaner_enabled()
    assert (
        config.enable_force_kryo().is_force_kryo_enabled() and not config.disable_force_kryo().is_force_kryo_enabled()
    )
    assert (
        config.enable_force_avro().is_force_avro_enabled() and not config.disable_force_avro().is_force_avro_enabled()
    )
    assert config.disable_generic_types().has_generic_types_disabled()
    assert not config.enable_generic_types().has_generic_types_disabled()
    assert config.get_registered_pojo_types() == config.get_registered_kryo_types() == []
    assert config.get_default_kryo_serializer_classes() == {}
    with pytest.warns(OptionWarning, match=r"no effect here: metrics.latency.interval, task.cancellation.interval$"):
        env.get_configuration().validate()


def test_operators_without_uids_are_refused_if_the_program_wants_that(env: StreamExecutionEnvironment) -> None:
    assert env.get_config().has_auto_generated_uids_enabled()
    env.get_config().disable_auto_generated_uids()
    stream = env.from_collection([1]).uid("numbers")
    sink = stream.sink_to(DiscardingSink())
    with pytest.raises(MissingUid, match=r"have no uid: 'Sink: DiscardingSink'; call uid\('\.\.\.'\) on each"):
        env.get_job_graph()
    sink.uid("sink")
    env.get_job_graph()


def test_jars_warn_what_replaces_them(env: StreamExecutionEnvironment) -> None:
    with pytest.warns(OptionWarning, match=r"add_jars\(\) has no effect.*: Kafka is pip install 'penstock\[kafka\]'"):
        env.add_jars("file:///opt/flink-sql-connector-kafka-3.2.0.jar")
    with pytest.warns(OptionWarning, match="there is no connector for jdbc"):
        env.add_classpaths("file:///opt/flink-connector-jdbc.jar")


def test_groups_warn(env: StreamExecutionEnvironment) -> None:
    builder = SlotSharingGroup.builder("models").set_cpu_cores(2).set_task_heap_memory_mb(100)
    group = builder.set_external_resource("gpu", 1).build()
    assert (group.get_name(), group.get_cpu_cores(), group.get_external_resources()) == ("models", 2.0, {"gpu": 1.0})
    assert str(group.get_task_heap_memory()) == "100 mb" and str(group.get_managed_memory()) == "0 bytes"
    assert SlotSharingGroup.builder("a").build().get_managed_memory() is None
    with pytest.raises(ValueError, match="give both set_cpu_cores"):
        SlotSharingGroup.builder("a").set_cpu_cores(1).build()
    with pytest.warns(OptionWarning, match="slot sharing group 'models' has no effect"):
        env.register_slot_sharing_group(group)
    stream = env.from_collection([1])
    with pytest.warns(OptionWarning, match="slot sharing group 'models' has no effect"):
        stream.slot_sharing_group(group)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stream.slot_sharing_group("default")


def test_memory_sizes() -> None:
    size = MemorySize.of_mebi_bytes(3)
    assert (size.get_bytes(), size.get_kibi_bytes(), size.get_mebi_bytes(), size.get_gibi_bytes()) == (
        3 << 20,
        3072,
        3,
        0,
    )
    assert (str(size), str(MemorySize(bytes_size=1500))) == ("3 mb", "1500 bytes")
    assert MemorySize(bytes_size=1) < size <= MemorySize(bytes_size=3 << 20) and size.get_tebi_bytes() == 0


def test_restart_strategies_tell_their_numbers() -> None:
    fixed: Any = RestartStrategies.fixed_delay_restart(3, 10_000)
    assert fixed.get_restart_attempts() == 3
    assert fixed.get_delay_between_attempts_interval() == datetime.timedelta(seconds=10)
    rate: Any = RestartStrategies.failure_rate_restart(2, Duration.of_minutes(1), 5)
    assert rate.get_max_failure_rate() == 2 and rate.get_failure_interval() == datetime.timedelta(minutes=1)
    assert rate.get_delay_between_attempts_interval() == datetime.timedelta(milliseconds=5)


def test_the_environments_other_settings(env: StreamExecutionEnvironment) -> None:
    assert env.get_default_savepoint_directory() is None
    assert env.set_default_savepoint_directory("/tmp/s").get_default_savepoint_directory() == "/tmp/s"
    assert env.is_changelog_state_backend_enabled() is None
    assert env.enable_changelog_state_backend(True).is_changelog_state_backend_enabled()
    assert not env.is_unaligned_checkpoints_enabled() and not env.is_force_unaligned_checkpoints()
    assert not env.is_chaining_of_operators_with_different_max_parallelism_enabled()
    assert env.get_default_local_parallelism() == env.get_parallelism()
    assert env.get_checkpointing_consistency_mode() == env.get_checkpointing_mode()
    assert env.from_collection([1]).get_execution_config() == env.get_config()


@pytest.mark.parametrize(
    "make",
    [CustomStateBackend, CustomCheckpointStorage, AssignerWithPeriodicWatermarksWrapper],
    ids=lambda c: c.__name__,
)
def test_wrappers_of_java_classes_say_what_to_use(make: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match="wraps a Java class, and there is no JVM here"):
        make(None)


def test_a_projection_of_tuples(env: StreamExecutionEnvironment) -> None:
    pairs = env.from_collection([("a", 1)], Types.TUPLE([Types.STRING(), Types.LONG()]))
    assert pairs.project(1, 0, 1).get_type() == Types.TUPLE([Types.LONG(), Types.STRING(), Types.LONG()])
    with pytest.raises(ValueError, match=r"project\(\): there is no field 2; the fields of TUPLE"):
        pairs.project(2)
    with pytest.raises(TypeError, match="the rows of this stream are LONG"):
        env.from_collection([1], Types.LONG()).project(0)


def test_a_field_of_a_row_is_a_message() -> None:
    row = Row(b"key", b"value", 3)
    assert [RowFieldExtractorSchema(index).serialize(row) for index in (0, 1)] == [b"key", b"value"]
    assert RowFieldExtractorSchema(1).serialize((b"key", b"value")) == b"value"
    with pytest.raises(ValueError, match="must be non-negative"):
        RowFieldExtractorSchema(-1)
    with pytest.raises(ValueError, match=r"RowFieldExtractorSchema\(3\): the row has 3 fields"):
        RowFieldExtractorSchema(3).serialize(row)
    with pytest.raises(TypeError, match=r"takes a field of bytes, got 3 \(int\)"):
        RowFieldExtractorSchema(2).serialize(row)
