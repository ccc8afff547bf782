"""Tests what goes wrong with topics, records and brokers while a job runs, on a real broker, and what is said of it."""

from __future__ import annotations

import io
import json
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from penstock.common import DeserializationSchema, SimpleStringSchema, Types
from penstock.connectors.kafka.producers import id_pattern
from penstock.connectors.testing import SourceRun, read_all, verify_source
from penstock.datastream.connectors.base import (
    NotReady,
    OutputGone,
    ReaderContext,
    SinkError,
    SourceChanged,
    SourceError,
    SourceReader,
    WriterContext,
)
from penstock.datastream.connectors.kafka import (
    DeliveryGuarantee,
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
    KafkaSourceBuilder,
)
from penstock.datastream.formats.avro import AvroRowDeserializationSchema, ConfluentRegistryAvroDeserializationSchema
from penstock.datastream.formats.csv import CsvRowDeserializationSchema
from penstock.datastream.formats.json import (
    DebeziumJsonDeserializationSchema,
    JsonRowDeserializationSchema,
    MalformedRows,
)
from tests.connectors.topics import LIMIT_S, coordinators_of, produced, read_committed, topic
from tools.kafka_broker import KafkaBroker
from tools.schema_registry import RegistryServer

STRING = Types.STRING()
ORDER = Types.ROW_NAMED(["id", "item"], [Types.LONG(), Types.STRING()])
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "item", "type": ["null", "string"]}],
}


def builder(broker: KafkaBroker, name: str, schema: DeserializationSchema | None = None) -> KafkaSourceBuilder:
    found = KafkaSource.builder().set_bootstrap_servers(broker.bootstrap_servers).set_topics(name)
    return found.set_value_only_deserializer(schema or SimpleStringSchema()).set_bounded(
        KafkaOffsetsInitializer.latest()
    )


def writer_context(subtask: int = 0) -> WriterContext:
    return WriterContext(subtask, 1, "sink", "a" * 32, "one", True, STRING, print)


# ---- records that cannot be read, in every format -------------------------------------------------------------------


def avro(number: int) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(AVRO), {"id": number, "item": "x"})
    return out.getvalue()


def change(number: int) -> bytes:
    return json.dumps({"before": None, "after": {"id": number, "item": "x"}, "op": "c"}).encode()


FORMATS: dict[str, tuple[Callable[[str], DeserializationSchema], Callable[[int], bytes], bytes, str]] = {
    "json": (
        lambda _: JsonRowDeserializationSchema.builder().type_info(ORDER).build(),
        lambda n: json.dumps({"id": n, "item": "x"}).encode(),
        b'{"id": "x"}',
        "field 'id': 'x' is no LONG",
    ),
    "csv": (
        lambda _: CsvRowDeserializationSchema.Builder(ORDER).build(),
        lambda n: f"{n},x".encode(),
        b"x,y",
        "field 'id': 'x' is no LONG",
    ),
    "avro": (
        lambda _: AvroRowDeserializationSchema(avro_schema_string=json.dumps(AVRO)),
        avro,
        avro(1)[:-1],
        "field 'item': it is cut off",
    ),
    "registry": (
        lambda url: ConfluentRegistryAvroDeserializationSchema.for_generic(json.dumps(AVRO), url),
        lambda n: b"\0\0\0\0\1" + avro(n),
        avro(1),
        "it does not begin with a zero byte and the id of a schema",
    ),
    "debezium": (
        lambda _: DebeziumJsonDeserializationSchema.builder().type_info(ORDER).build(),
        change,
        b'{"before": null, "after": {"id": 1}, "op": "u"}',
        "it has no before.*REPLICA IDENTITY FULL",
    ),
}


@pytest.mark.parametrize("name", FORMATS)
def test_a_bad_record_fails_is_left_out_or_goes_to_a_side_output(kafka: KafkaBroker, name: str) -> None:
    make, good, bad, reason = FORMATS[name]
    topic_name = topic(kafka)
    produced(kafka, topic_name, [good(1), good(2), bad, None, good(3)])
    with RegistryServer() as registry:
        registry.register("orders-value", {"schema": json.dumps(AVRO)})
        schema = make(registry.url)
        where = rf"topic '{topic_name}', partition 0, offset 2: .*{reason}.*set_malformed_records"
        with pytest.raises(SourceError, match=where):
            read_all(builder(kafka, topic_name, schema).build())
        for malformed in (MalformedRows.skip(), MalformedRows.side_output("bad")):
            run = SourceRun(builder(kafka, topic_name, schema).set_malformed_records(malformed).build())
            rows: list[Any] = []
            while (found := run.read(100)) is not None:
                rows += found[1]
            assert [(row.id, row.item) for row in rows] == [(1, "x"), (2, "x"), (3, "x")]
            assert run.skipped_rows == (0 if malformed.is_side_output else 1)
            expected = [(f"topic '{topic_name}', partition 0", 2, bad.decode(errors="replace"))]
            rejected = [(row.file, row.line, row.text) for row in run.rejected]
            assert rejected == (expected if malformed.is_side_output else [])


def test_change_events_come_once_through_restores(kafka: KafkaBroker) -> None:
    name = topic(kafka)
    update = {"before": {"id": 1, "item": "a"}, "after": {"id": 1, "item": "b"}, "op": "u"}
    delete = {"before": {"id": 1, "item": "b"}, "after": None, "op": "d"}
    produced(kafka, name, [change(1), json.dumps(update).encode(), json.dumps(delete).encode(), None, change(2)])
    schema = DebeziumJsonDeserializationSchema.builder().type_info(ORDER).build()
    rows = read_all(builder(kafka, name, schema).build())
    assert [(str(row.get_row_kind()), row.id, row.item) for row in rows] == [
        ("+I", 1, "x"), ("-U", 1, "a"), ("+U", 1, "b"), ("-D", 1, "b"), ("+I", 2, "x"),
    ]  # fmt: skip
    verify_source(builder(kafka, name, schema).build(), rows, rows_max=(2, 3, 1000), reads_lost=(0, 1))


def test_a_registry_that_is_down_is_named_before_the_job_starts(kafka: KafkaBroker) -> None:
    with RegistryServer() as registry:
        url = registry.url
    fast = {"max.retries": "1", "retries.wait.ms": "1"}
    schema = ConfluentRegistryAvroDeserializationSchema.for_generic(json.dumps(AVRO), url, fast)
    with pytest.raises(SourceError, match=f"the schema registry at {url} did not answer, tried 2 times: .*refused"):
        builder(kafka, topic(kafka), schema).build().validate()


# ---- topics that change while they are read -------------------------------------------------------------------------


def read_until_it_fails(reader: SourceReader) -> SourceError:
    deadline = time.monotonic() + 2 * LIMIT_S
    try:
        while time.monotonic() < deadline:
            reader.read(10)
    except SourceError as error:
        return error
    finally:
        reader.close()
    raise AssertionError("nothing was said")


def reading(broker: KafkaBroker, name: str, rows: int) -> SourceReader:
    """A reader that has read so many rows, and waits for more."""
    reader = builder(broker, name).build().create_reader(ReaderContext(0, 1, "orders"))
    reader.add_splits([json.dumps({"topic": name, "partition": 0, "next": 0, "stop": None}).encode()])
    deadline, found = time.monotonic() + LIMIT_S, 0
    while found < rows:
        assert time.monotonic() < deadline
        batch = reader.read(rows)
        if batch is not None and not isinstance(batch, NotReady):
            found += batch.num_rows
    return reader


def test_records_that_are_deleted_before_they_are_read_are_named(kafka: KafkaBroker) -> None:
    name = topic(kafka)
    produced(kafka, name, [b"%d" % n for n in range(5)])
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    (deleted,) = admin.delete_records([TopicPartition(name, 0, 3)]).values()
    deleted.result(LIMIT_S)
    reader = builder(kafka, name).build().create_reader(ReaderContext(0, 1, "orders"))
    reader.add_splits([json.dumps({"topic": name, "partition": 0, "next": 1, "stop": None}).encode()])
    error = read_until_it_fails(reader)
    assert isinstance(error, SourceChanged)
    assert f"topic '{name}', partition 0: the offset 1 that the job continues at does not exist any more" in str(error)
    assert "retention.ms" in str(error)


def delete(broker: KafkaBroker, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.delete_topics([name])[name].result(LIMIT_S)
    deadline = time.monotonic() + LIMIT_S
    while name in admin.list_topics(timeout=LIMIT_S).topics:
        assert time.monotonic() < deadline


@pytest.mark.parametrize("is_bounded", [False, True])
def test_a_topic_that_is_deleted_while_it_is_read_is_named(kafka: KafkaBroker, is_bounded: bool) -> None:
    """The client says nothing of it, so a bounded job would wait for its last rows without end."""
    name = topic(kafka)
    produced(kafka, name, [b"a", b"b"])
    every = builder(kafka, name).set_property("partition.discovery.interval.ms", "50")
    source = (every if is_bounded else every.set_unbounded(KafkaOffsetsInitializer.latest())).build()
    run = SourceRun(source)
    enumerator = run._enumerator
    assert enumerator.discovery_interval_ms == 50.0
    assert enumerator.on_discovered(enumerator.discover()) == {}
    delete(kafka, name)
    with pytest.raises(SourceChanged, match=f"topic '{name}' was deleted while the job reads it.*set_topics"):
        enumerator.discover()
    topic(kafka, 1, name)
    said, deadline = "", time.monotonic() + LIMIT_S
    while "made again" not in said and time.monotonic() < deadline:  # the broker shows it a little later
        with pytest.raises(SourceChanged, match=f"topic '{name}' was deleted") as told:
            enumerator.discover()
        said = str(told.value)
    assert f"topic '{name}' was deleted and made again" in said
    run.close()


def test_a_topic_of_a_pattern_may_be_deleted(kafka: KafkaBroker) -> None:
    first, second = topic(kafka, 1, "comes-and-goes-1"), topic(kafka, 1, "comes-and-goes-2")
    found = KafkaSource.builder().set_bootstrap_servers(kafka.bootstrap_servers).set_topic_pattern("comes-and-goes-.")
    source = found.set_value_only_deserializer(SimpleStringSchema()).build()
    enumerator = source.create_enumerator(1, None)
    assert list(enumerator.on_discovered(enumerator.discover())) == [0]
    delete(kafka, first)
    assert enumerator.on_discovered(enumerator.discover()) == {} and second


def test_a_topic_that_is_made_again_while_it_is_read_is_named(kafka: KafkaBroker) -> None:
    name = topic(kafka)
    produced(kafka, name, [b"a", b"b"])
    reader = reading(kafka, name, 2)
    delete(kafka, name)
    topic(kafka, 1, name)
    produced(kafka, name, [b"c"])
    error = read_until_it_fails(reader)
    assert isinstance(error, SourceChanged) and f"topic '{name}'" in str(error), error


# ---- writing --------------------------------------------------------------------------------------------------------


def sink(
    broker: KafkaBroker, name: str, guarantee: DeliveryGuarantee, key: bool = False, **properties: str
) -> KafkaSink:
    serializer = KafkaRecordSerializationSchema.builder().set_topic(name)
    serializer.set_value_serialization_schema(Short() if key else SimpleStringSchema())
    if key:
        serializer.set_key_serialization_schema(SimpleStringSchema())
    found = KafkaSink.builder().set_bootstrap_servers(broker.bootstrap_servers).set_delivery_guarantee(guarantee)
    for property_name, value in properties.items():
        found.set_property(property_name.replace("_", "."), value)
    return found.set_record_serializer(serializer.build()).set_transactional_id_prefix(name).build()


class Short(SimpleStringSchema):
    """Keeps the value small where the key is large."""

    def serialize(self, element: Any) -> bytes:
        return b"value"


def batch(*texts: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(texts)], schema=STRING.schema)


def test_a_key_that_is_too_large_is_named(kafka: KafkaBroker) -> None:
    name = topic(kafka)
    writer = sink(kafka, name, DeliveryGuarantee.AT_LEAST_ONCE, key=True).create_writer(writer_context(), [])
    wanted = rf"a record for topic '{name}' .*too large.*key and value have 5,000,005 bytes"
    with pytest.raises(SinkError, match=wanted):
        writer.write(batch("k" * 5_000_000))
    writer.close()
    assert read_committed(kafka, name) == []


@pytest.mark.timeout(200)
def test_a_broker_that_is_away_for_longer_than_a_transaction_may_take_costs_rows_that_are_named(
    kafka: KafkaBroker,
) -> None:
    """It does not answer between the writer's promise and the commit, and comes back when it gives the rows up."""
    name = topic(kafka)
    exactly_once = sink(kafka, name, DeliveryGuarantee.EXACTLY_ONCE, transaction_timeout_ms="1500")
    writer = exactly_once.create_writer(writer_context(), [])
    writer.write(batch("a", "b", "c"))
    prepared = writer.prepare_commit(7)
    os.kill(kafka.pid, signal.SIGSTOP)
    time.sleep(2.0)  # the broker's clock decides
    os.kill(kafka.pid, signal.SIGCONT)
    coordinators = coordinators_of(kafka)
    deadline = time.monotonic() + LIMIT_S
    while coordinators.open_ids(id_pattern(name)):
        assert time.monotonic() < deadline, "the broker keeps a transaction for longer than it may take"
    committer = exactly_once.create_committer()
    assert committer is not None
    wanted = rf"3 rows of checkpoint 7 are lost, beginning at topic '{name}', partition 0, offset 0: .*timeout.ms"
    with pytest.raises(OutputGone, match=wanted):
        committer.commit(7, prepared)
    assert read_committed(kafka, name) == []
    writer.close()


def test_a_topic_that_cannot_be_is_named_by_the_writer(kafka: KafkaBroker) -> None:
    writer = sink(kafka, "no such topic!", DeliveryGuarantee.AT_LEAST_ONCE).create_writer(writer_context(), [])
    with pytest.raises(SinkError, match="a record for topic 'no such topic!' cannot be written: .*[Tt]opic"):
        writer.write(batch("a"))
        writer.prepare_commit(1)
    writer.close()
