"""Kafka behind history and before other sources, on a real broker: partitions are looked up when its turn comes."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.common import SimpleStringSchema, Types, WatermarkStrategy
from penstock.connectors.memory.collection import CollectionSource
from penstock.connectors.testing import verify_source
from penstock.datastream.connectors.file_system import FileSource, StreamFormat
from penstock.datastream.connectors.hybrid_source import HybridSource
from penstock.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource
from tests.connectors.topics import produced, topic
from tests.spark.small_jobs import WAIT_S, checkpoints, committed, environment, file_sink, wait_until
from tools.kafka_broker import KafkaBroker


def reading(broker: KafkaBroker, name: str, *, ends: bool = True) -> KafkaSource:
    found = KafkaSource.builder().set_bootstrap_servers(broker.bootstrap_servers).set_topics(name)
    found.set_value_only_deserializer(SimpleStringSchema())
    return (found.set_bounded(KafkaOffsetsInitializer.latest()) if ends else found).build()


@pytest.mark.parametrize("parallelism", [1, 2])
def test_rows_come_once_through_restores_in_the_order_of_the_sources(kafka: KafkaBroker, parallelism: int) -> None:
    first, second = topic(kafka), topic(kafka)
    produced(kafka, first, [b"row %d" % n for n in range(5)])
    produced(kafka, second, [b"row %d" % n for n in range(8, 12)])
    between = CollectionSource([f"row {n}" for n in range(5, 8)], Types.STRING())
    source = HybridSource.builder(reading(kafka, first)).add_source(between).add_source(reading(kafka, second)).build()
    expected = [f"row {n}" for n in range(12)]
    verify_source(source, expected, parallelism, rows_max=(2,), reads_lost=(0, 2))


def test_a_job_reads_files_and_then_a_topic_without_end(kafka: KafkaBroker, tmp_path: Path) -> None:
    name, out = topic(kafka, partitions=2), tmp_path / "out"
    (tmp_path / "history.txt").write_text("".join(f"{n}\n" for n in range(500)))
    for partition in (0, 1):
        produced(kafka, name, [b"%d" % n for n in range(500 + partition, 1000, 2)], partition)
    files = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(tmp_path / "history.txt")).build()
    source = HybridSource.builder(files).add_source(reading(kafka, name, ends=False)).build()
    env = environment(2, **checkpoints(tmp_path / "checkpoints"), execution_checkpointing_interval__during__backlog="0")
    env.from_source(source, WatermarkStrategy.no_watermarks(), "rows").sink_to(file_sink(out))
    client = env.execute_async("files, then Kafka")
    wait_until(lambda: committed(out).total() >= 1000, "all rows")
    client.cancel().result(WAIT_S)
    assert committed(out) == {str(n): 1 for n in range(1000)}
