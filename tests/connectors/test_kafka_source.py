"""Tests the Kafka source on a real broker, row by row: what it reads, where it begins and ends, and what it says."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]

from penstock.common import ByteArraySchema, DeserializationSchema, SimpleStringSchema, Types
from penstock.common.serialization import DeserializationSchema as Schema
from penstock.connectors.testing import SourceRun, read_all, verify_source
from penstock.datastream.connectors.base import (
    MalformedRecord,
    NotReady,
    ReaderContext,
    SourceChanged,
    SourceError,
    SourceReader,
)
from penstock.datastream.connectors.kafka import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaSource,
    KafkaSourceBuilder,
    KafkaTopicPartition,
)
from penstock.datastream.formats.json import JsonRowDeserializationSchema, MalformedRows
from tests.connectors.topics import LIMIT_S, produced, topic
from tools.kafka_broker import KafkaBroker

LATEST = KafkaOffsetsInitializer.latest()
ORDER = Types.ROW_NAMED(["id", "item"], [Types.LONG(), Types.STRING()])


def builder(broker: KafkaBroker, *topics: str, schema: Schema | None = None) -> KafkaSourceBuilder:
    found = KafkaSource.builder().set_bootstrap_servers(broker.bootstrap_servers).set_bounded(LATEST)
    if topics:
        found.set_topics(*topics)
    return found.set_value_only_deserializer(schema or SimpleStringSchema())


def numbers(count: int, first: int = 0) -> list[bytes | None]:
    return [f"row {n}".encode() for n in range(first, first + count)]


def texts(count: int, first: int = 0) -> list[str]:
    return [f"row {n}" for n in range(first, first + count)]


# ---- what is read ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parallelism", [1, 2])
def test_rows_come_once_through_restores(kafka: KafkaBroker, parallelism: int) -> None:
    name = topic(kafka, partitions=3)
    for partition in range(3):
        produced(kafka, name, numbers(7, 10 * partition), partition)
    source = builder(kafka, name).build()
    rows = read_all(source)
    assert sorted(rows) == sorted(texts(7) + texts(7, 10) + texts(7, 20))
    if parallelism == 1:
        single = topic(kafka)
        produced(kafka, single, numbers(9))
        verify_source(builder(kafka, single).build(), texts(9), rows_max=(2, 1000), reads_lost=(0, 2))
    else:
        verify_source(source, sorted(rows), parallelism, rows_max=(2,), reads_lost=(1,))


def test_tombstones_are_null_strings_and_no_json_rows(kafka: KafkaBroker) -> None:
    name = topic(kafka)
    produced(kafka, name, [b'{"id": 1}', None, b'{"id": 2}'])
    assert read_all(builder(kafka, name).build()) == ['{"id": 1}', None, '{"id": 2}']
    json_rows = JsonRowDeserializationSchema.builder().type_info(ORDER).build()
    assert [row.id for row in read_all(builder(kafka, name, schema=json_rows).build())] == [1, 2]


def test_bytes_and_schemas_of_users(kafka: KafkaBroker) -> None:
    name = topic(kafka)
    produced(kafka, name, [b"\xff1", b"22"])

    class Length(DeserializationSchema):
        def deserialize(self, message: bytes) -> Any:
            return len(message)

    assert read_all(builder(kafka, name, schema=ByteArraySchema()).build()) == [b"\xff1", b"22"]
    assert read_all(builder(kafka, name, schema=Length()).build()) == [2, 2]


def test_rows_have_the_timestamps_of_their_records(kafka: KafkaBroker) -> None:
    name = topic(kafka)
    produced(kafka, name, numbers(1), timestamp_ms=1_700_000_000_123)
    run = SourceRun(builder(kafka, name).build())
    batch = reader_of(run).read(10)
    while isinstance(batch, NotReady):
        batch = reader_of(run).read(10)
    assert batch is not None and batch.column("__timestamp__").to_pylist() == [1_700_000_000_123]
    run.close()


def test_committed_transactions_are_read_and_aborted_ones_are_not(kafka: KafkaBroker) -> None:
    """The last records of the partition are aborted: its end is reached without a record that says so."""
    name = topic(kafka)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(LIMIT_S)
    for value, is_committed in ((b"a", True), (b"b", False), (b"c", True), (b"d", False)):
        producer.begin_transaction()
        producer.produce(name, value)
        producer.flush(LIMIT_S)
        (producer.commit_transaction if is_committed else producer.abort_transaction)(LIMIT_S)
    assert read_all(builder(kafka, name).build()) == ["a", "c"]
    everything = builder(kafka, name).set_property("isolation.level", "read_uncommitted").build()
    assert read_all(everything) == ["a", "b", "c", "d"]


# ---- where it begins and ends ---------------------------------------------------------------------------------------


def test_starting_and_stopping_offsets(kafka: KafkaBroker) -> None:
    name = topic(kafka)
    for number in range(6):
        produced(kafka, name, numbers(1, number), timestamp_ms=1_700_000_000_000 + number)
    at = KafkaOffsetsInitializer
    partition = KafkaTopicPartition(name, 0)

    def read(start: KafkaOffsetsInitializer, stop: KafkaOffsetsInitializer) -> list[str]:
        return read_all(builder(kafka, name).set_group_id(name).set_starting_offsets(start).set_bounded(stop).build())

    assert read(at.earliest(), at.offsets({partition: 4})) == texts(4)
    assert read(at.timestamp(1_700_000_000_004), LATEST) == texts(2, 4)
    assert read(at.timestamp(1_800_000_000_000), LATEST) == []
    assert read(at.offsets({partition: 3}), at.timestamp(1_700_000_000_005)) == texts(2, 3)
    assert read(at.latest(), LATEST) == []
    with pytest.raises(SourceError, match=rf"committed for {name}/0: give a KafkaOffsetResetStrategy"):
        read(at.committed_offsets(), LATEST)
    assert read(at.committed_offsets(KafkaOffsetResetStrategy.EARLIEST), LATEST) == texts(6)
    enumerator = builder(kafka, name).set_group_id(name).build().create_enumerator(1, None)
    enumerator.checkpoint_completed([json.dumps({"topic": name, "partition": 0, "next": 5, "stop": None}).encode()])
    assert read(at.committed_offsets(), LATEST) == texts(1, 5)
    assert committed(kafka, name, name) == 5


def committed(broker: KafkaBroker, group: str, name: str) -> int:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group})
    (found,) = consumer.committed([TopicPartition(name, 0)], timeout=LIMIT_S)
    consumer.close()
    return int(found.offset)


def test_topics_by_pattern_and_single_partitions(kafka: KafkaBroker) -> None:
    first, second = topic(kafka, 2, "by-pattern-1"), topic(kafka, 1, "by-pattern-2")
    topic(kafka, 1, "not-by-pattern-1")
    produced(kafka, first, numbers(2), 1)
    produced(kafka, second, numbers(2, 2))
    produced(kafka, "not-by-pattern-1", numbers(2, 4))
    assert sorted(read_all(builder(kafka).set_topic_pattern(r"by-pattern-\d").build())) == texts(4)
    assert read_all(builder(kafka).set_partitions({KafkaTopicPartition(first, 1)}).build()) == texts(2)


def test_partitions_that_come_later_are_found_and_read_from_their_start(kafka: KafkaBroker) -> None:
    name = topic(kafka)
    produced(kafka, name, numbers(2))
    source = (
        KafkaSource.builder().set_bootstrap_servers(kafka.bootstrap_servers).set_topics(name)
        .set_starting_offsets(LATEST).set_value_only_deserializer(SimpleStringSchema())
        .set_property("partition.discovery.interval.ms", "100").build()
    )  # fmt: skip
    run = SourceRun(source)
    enumerator = run._enumerator
    assert enumerator.discovery_interval_ms == 100.0 and reader_of(run).splits_in_hand() == [f"{name}/0"]
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_partitions([NewPartitions(name, 2)])[name].result(LIMIT_S)
    produced(kafka, name, numbers(3, 5), 1)
    deadline = time.monotonic() + LIMIT_S
    assigned: dict[int, list[bytes]] = {}
    while not assigned and time.monotonic() < deadline:
        assigned = enumerator.on_discovered(enumerator.discover())
    reader_of(run).add_splits(assigned[0])
    found = run.read(100)
    assert found == (0, texts(3, 5))
    assert run.current_split == f"{name}/1"
    restored = source.create_enumerator(1, enumerator.snapshot())
    assert restored.on_discovered(restored.discover()) == {}, "what is handed out is not handed out again"
    run.close()


def reader_of(run: SourceRun) -> SourceReader:
    return run._readers[0]


def test_lag_is_what_is_left_to_read(kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.connectors.kafka.kafka_reader._LAG_INTERVAL_S", 0.0)
    name = topic(kafka)
    produced(kafka, name, numbers(10))
    run = SourceRun(builder(kafka, name).build())
    assert reader_of(run).lag_rows is None
    run.read(4)
    assert reader_of(run).lag_rows == 6
    run.close()


# ---- bad input and faults -------------------------------------------------------------------------------------------


def test_records_that_cannot_be_read(kafka: KafkaBroker) -> None:
    name = topic(kafka)
    produced(kafka, name, [b'{"id": 1, "item": "a"}', b'{"id": "x"}', b"[", b'{\n"id": 2}', b""])
    schema = JsonRowDeserializationSchema.builder().type_info(ORDER)
    with pytest.raises(
        SourceError, match=rf"topic '{name}', partition 0, offset 1: .*field 'id'.*set_malformed_records"
    ):
        read_all(builder(kafka, name, schema=schema.build()).build())
    side = builder(kafka, name, schema=schema.build()).set_malformed_records(MalformedRows.side_output("bad")).build()
    run = SourceRun(side)
    rows = []
    while (found := run.read(100)) is not None:
        rows += found[1]
    assert [row.id for row in rows] == [1, 2]
    assert [(r.file, r.line, r.text) for r in run.rejected] == [
        (f"topic '{name}', partition 0", 1, '{"id": "x"}'),
        (f"topic '{name}', partition 0", 2, "["),
        (f"topic '{name}', partition 0", 4, ""),
    ]
    skipping = SourceRun(builder(kafka, name, schema=schema.ignore_parse_errors().build()).build())
    rows = []
    while (found := skipping.read(100)) is not None:
        rows += found[1]
    assert [row.id for row in rows] == [1, None, 2], "as in Flink, a field that cannot be read is null"
    assert skipping.skipped_rows == 2


def test_records_without_a_time_are_malformed_ones(kafka: KafkaBroker) -> None:
    """What the runtime does with them, whatever the source is, is in `test_untimed_rows`."""
    name = topic(kafka)
    produced(kafka, name, [b"[", b'{"id": 1}', None, b'{"item": "b"}', b'{"id": 3}'])
    schema = JsonRowDeserializationSchema.builder().type_info(ORDER).build()

    def refused(malformed: MalformedRows) -> tuple[SourceReader, list[int]]:
        run = SourceRun(builder(kafka, name, schema=schema).set_malformed_records(malformed).build())
        while (found := run.read(100)) is not None and not found[1]:
            pass
        assert found is not None and [row.id for row in found[1]] == [1, None, 3]
        return reader_of(run), list(reader_of(run).refuse({1: "its time is not known"}))

    side, left_out = refused(MalformedRows.side_output("bad"))
    rejected = side.take_rejected()
    assert left_out == [1] and rejected is not None
    assert rejected.to_pylist() == [
        {"file": f"topic '{name}', partition 0", "line": 3, "text": '{"item": "b"}', "reason": "its time is not known"}
    ]
    skipping, left_out = refused(MalformedRows.skip())
    assert left_out == [1] and skipping.skipped_rows == 2
    failing = builder(kafka, name, schema=schema).set_starting_offsets(
        KafkaOffsetsInitializer.offsets({KafkaTopicPartition(name, 0): 1})
    )
    run = SourceRun(failing.build())
    while (found := run.read(100)) is not None and not found[1]:
        pass
    with pytest.raises(MalformedRecord, match=f"topic '{name}', partition 0, offset 3: .*its time is not known"):
        reader_of(run).refuse({1: "its time is not known"})


def test_a_missing_topic_and_an_absent_broker_are_named_before_the_job_starts(
    kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SourceError, match=r"no topic 'nowhere' at 127.0.0.1:\d+.*set_topics"):
        builder(kafka, "nowhere").build().validate()
    monkeypatch.setattr("penstock.connectors.kafka.client.REACH_LIMIT_S", 0.5)
    source = KafkaSource.builder().set_bootstrap_servers("127.0.0.1:1").set_topics("orders")
    with pytest.raises(
        SourceError, match=r"Kafka at 127.0.0.1:1 does not answer: .*Connect to .* failed: Connection refused"
    ):
        source.set_value_only_deserializer(SimpleStringSchema()).build().validate()


def test_offsets_that_do_not_exist_any_more_are_named(kafka: KafkaBroker) -> None:
    name = topic(kafka)
    produced(kafka, name, numbers(3))
    reader = builder(kafka, name).build().create_reader(ReaderContext(0, 1, "orders"))
    reader.add_splits([json.dumps({"topic": name, "partition": 0, "next": 50, "stop": None}).encode()])
    deadline = time.monotonic() + LIMIT_S
    with pytest.raises(SourceChanged, match=rf"topic '{name}', partition 0: the offset 50 .* does not exist any more"):
        while time.monotonic() < deadline:
            reader.read(10)
    reader.close()


def test_a_topic_that_is_made_again_is_noticed(kafka: KafkaBroker) -> None:
    name = topic(kafka)
    produced(kafka, name, numbers(1))
    source = builder(kafka, name).build()
    snapshot = SourceRun(source).snapshot().enumerator
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.delete_topics([name])[name].result(LIMIT_S)
    deadline = time.monotonic() + LIMIT_S
    while name in admin.list_topics(timeout=LIMIT_S).topics and time.monotonic() < deadline:
        pass
    topic(kafka, 1, name)
    with pytest.raises(SourceChanged, match=f"topic '{name}' was deleted and made again"):
        source.create_enumerator(1, snapshot).discover()


def test_a_broker_that_is_killed_and_comes_back_loses_no_row(kafka: KafkaBroker) -> None:
    name = topic(kafka)
    produced(kafka, name, numbers(5))
    source = builder(kafka, name).set_unbounded(KafkaOffsetsInitializer.offsets({KafkaTopicPartition(name, 0): 8}))
    run = SourceRun(source.build())
    rows = run.read(5)
    kafka.kill()
    assert isinstance(reader_of(run).read(5), NotReady)
    kafka.start()
    produced(kafka, name, numbers(3, 5))
    deadline = time.monotonic() + LIMIT_S
    more: list[str] = []
    while len(more) < 3 and time.monotonic() < deadline:
        batch = reader_of(run).read(5)
        if batch is not None and not isinstance(batch, NotReady):
            more += Types.STRING().decode(batch)
    assert rows == (0, texts(5)) and more == texts(3, 5)
    run.close()
