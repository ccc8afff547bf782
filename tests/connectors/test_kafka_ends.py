"""Tests on a real broker that a group has committed what a job has read, however the job ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from penstock.common import SimpleStringSchema, Types, WatermarkStrategy
from penstock.connectors.memory.collection import CollectionSource
from penstock.datastream.connectors.hybrid_source import HybridSource
from penstock.datastream.connectors.kafka import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaSource,
    KafkaTopicPartition,
)
from tests.connectors.topics import LIMIT_S, produced, topic
from tests.spark.small_jobs import WAIT_S, checkpoints, committed, environment, execute, file_sink, wait_until
from tools.kafka_broker import KafkaBroker

AT = KafkaOffsetsInitializer
FROM_GROUP = AT.committed_offsets(KafkaOffsetResetStrategy.EARLIEST)


def reading(broker: KafkaBroker, name: str, stop: KafkaOffsetsInitializer | None = None) -> KafkaSource:
    """Read from what the group `name` has committed; without `stop`, for ever."""
    found = KafkaSource.builder().set_bootstrap_servers(broker.bootstrap_servers).set_topics(name).set_group_id(name)
    found.set_starting_offsets(FROM_GROUP).set_value_only_deserializer(SimpleStringSchema())
    return (found if stop is None else found.set_bounded(stop)).build()


def offsets(broker: KafkaBroker, group: str, partitions: int) -> list[int]:
    """Return what the group has committed; -1001: nothing."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group})
    found = consumer.committed([TopicPartition(group, n) for n in range(partitions)], timeout=LIMIT_S)
    consumer.close()
    return [at.offset for at in found]


def filled(broker: KafkaBroker, *rows: int) -> str:
    """Make a topic with as many rows in each partition, all numbered."""
    name = topic(broker, partitions=len(rows))
    add(broker, name, *rows)
    return name


def add(broker: KafkaBroker, name: str, *rows: int, first: int = 0) -> None:
    for partition, count in enumerate(rows):
        produced(broker, name, [f"{partition}-{n}".encode() for n in range(first, first + count)], partition)


@pytest.mark.parametrize("options", [{}, {"execution_checkpointing_interval": "1 h"}], ids=["no checkpoints", "some"])
def test_two_bounded_runs_read_each_row_once(kafka: KafkaBroker, tmp_path: Path, options: dict[str, str]) -> None:
    name = filled(kafka, 40, 0, 7)
    for run, expected in ((1, [40, 0, 7]), (2, [50, 10, 17])):
        env = environment(2, **(checkpoints(tmp_path / f"checkpoints-{run}") | options if options else {}))
        source = reading(kafka, name, AT.latest())
        env.from_source(source, WatermarkStrategy.no_watermarks(), "in").sink_to(file_sink(tmp_path / "out"))
        execute(env)
        assert offsets(kafka, name, 3) == expected
        add(kafka, name, 10, 10, 10, first=100 * run)
    assert committed(tmp_path / "out").total() == 77
    assert set(committed(tmp_path / "out").values()) == {1}


def test_partitions_that_end_early_are_committed_while_others_are_read(kafka: KafkaBroker, tmp_path: Path) -> None:
    name = filled(kafka, 5, 10)
    builder = KafkaSource.builder().set_bootstrap_servers(kafka.bootstrap_servers).set_topics(name).set_group_id(name)
    stop = AT.offsets({KafkaTopicPartition(name, 0): 5, KafkaTopicPartition(name, 1): 1000})
    source = builder.set_value_only_deserializer(SimpleStringSchema()).set_unbounded(stop).build()
    env = environment(1, **checkpoints(tmp_path / "checkpoints"))
    env.from_source(source, WatermarkStrategy.no_watermarks(), "in").sink_to(file_sink(tmp_path / "out"))
    client = env.execute_async("ends apart")
    wait_until(lambda: offsets(kafka, name, 2) == [5, 10], "both offsets")
    client.cancel().result(WAIT_S)


@pytest.mark.parametrize("drain", [False, True])
def test_a_job_that_is_stopped_has_committed_what_its_savepoint_has(
    kafka: KafkaBroker, tmp_path: Path, drain: bool
) -> None:
    name = filled(kafka, 30, 20)
    options = checkpoints(tmp_path / "checkpoints") | {"execution_checkpointing_interval": "1 h"}
    env = environment(2, **options)
    env.from_source(reading(kafka, name), WatermarkStrategy.no_watermarks(), "in").sink_to(file_sink(tmp_path / "out"))
    client = env.execute_async("stopped")
    wait_until(lambda: client.report().vertices[0].rows_out >= 50, "all rows")
    client.stop_with_savepoint(drain, str(tmp_path / "savepoints")).result(WAIT_S)
    client.get_job_execution_result().result(WAIT_S)
    at = offsets(kafka, name, 2)
    assert sum(max(0, offset) for offset in at) == committed(tmp_path / "out").total()
    assert at == [30, 20]


def test_a_hybrid_source_has_committed_its_part_that_is_done(kafka: KafkaBroker, tmp_path: Path) -> None:
    first, second = filled(kafka, 12), filled(kafka, 3)
    between = CollectionSource([f"row {n}" for n in range(5)], Types.STRING())
    builder = HybridSource.builder(reading(kafka, first, AT.latest())).add_source(between)
    source = builder.add_source(reading(kafka, second, AT.latest())).build()
    env = environment(2, **checkpoints(tmp_path / "checkpoints") | {"execution_checkpointing_interval": "1 h"})
    env.from_source(source, WatermarkStrategy.no_watermarks(), "in").sink_to(file_sink(tmp_path / "out"))
    execute(env)
    assert committed(tmp_path / "out").total() == 20
    assert offsets(kafka, first, 1) == [12] and offsets(kafka, second, 1) == [3]
