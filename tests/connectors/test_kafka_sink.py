"""Tests the Kafka sink on a real broker: what independent readers of committed records see, through every kill."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from kafka.partitioner.default import murmur2

from penstock.common import SimpleStringSchema, Types
from penstock.connectors.kafka.committer import KafkaCommitter, PreparedTransaction
from penstock.connectors.kafka.producers import id_pattern
from penstock.connectors.kafka.transactions import End, TransactionName
from penstock.connectors.testing import SinkRun, verify_sink
from penstock.datastream.connectors.base import OutputGone, RefusedRecord, Sink, SinkError, WriterContext
from penstock.datastream.connectors.kafka import (
    DeliveryGuarantee,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSinkBuilder,
)
from penstock.datastream.formats.json import JsonRowSerializationSchema
from tests.connectors.topics import LIMIT_S, coordinators_of, read_committed, read_uncommitted, records, topic
from tools.kafka_broker import KafkaBroker

STRING = Types.STRING()
_prefixes = (f"sink{n}" for n in itertools.count())


def builder(broker: KafkaBroker, name: str, guarantee: DeliveryGuarantee, prefix: str = "") -> KafkaSinkBuilder:
    serializer = KafkaRecordSerializationSchema.builder().set_topic(name)
    serializer.set_value_serialization_schema(SimpleStringSchema())
    found = KafkaSink.builder().set_bootstrap_servers(broker.bootstrap_servers).set_delivery_guarantee(guarantee)
    return found.set_record_serializer(serializer.build()).set_transactional_id_prefix(prefix or next(_prefixes))


def exactly_once(broker: KafkaBroker, name: str, prefix: str = "") -> KafkaSink:
    return builder(broker, name, DeliveryGuarantee.EXACTLY_ONCE, prefix).build()


def context(incarnation: str = "one", pending: Sequence[bytes] = (), subtask: int = 0) -> WriterContext:
    return WriterContext(subtask, 1, "sink", "a" * 32, incarnation, True, STRING, print, pending=tuple(pending))


def batch(*texts: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(texts)], schema=STRING.schema)


def seen(broker: KafkaBroker, name: str) -> list[str]:
    return [value.decode() for value in read_committed(broker, name)]


# ---- exactly once ---------------------------------------------------------------------------------------------------


@pytest.mark.timeout(400)
@pytest.mark.parametrize("parallelism", [1, 2])
def test_every_row_is_seen_once_through_every_kill(kafka: KafkaBroker, parallelism: int) -> None:
    def make() -> tuple[Sink, Callable[[], Sequence[Any]]]:
        name = topic(kafka, partitions=2)
        return exactly_once(kafka, name), lambda: seen(kafka, name)

    rows = [[f"{part}.{n}" for n in range(3)] for part in range(3 if parallelism == 1 else 2)]
    verify_sink(make, rows, STRING, parallelism)


def test_rows_are_seen_when_their_checkpoint_is_committed_by_another_process(kafka: KafkaBroker) -> None:
    name = topic(kafka)
    sink = exactly_once(kafka, name)
    writer = sink.create_writer(context(), [])
    writer.write(batch("a", "b"))
    prepared = writer.prepare_commit(1)
    assert seen(kafka, name) == [] and sorted(map(bytes.decode, read_uncommitted(kafka, name))) == ["a", "b"]
    kafka.kill()
    kafka.start()
    committer = sink.create_committer()
    assert committer is not None
    for _ in range(2):
        committer.commit(1, prepared)
        assert seen(kafka, name) == ["a", "b"]
    assert writer.prepare_commit(2) == [], "nothing was written since"
    writer.close()


def test_an_id_is_used_again_only_when_no_restore_can_commit_it(kafka: KafkaBroker) -> None:
    name = topic(kafka)
    sink = exactly_once(kafka, name)
    writer = sink.create_writer(context(), [])
    committer = sink.create_committer()
    assert committer is not None
    used: list[TransactionName] = []
    prepared: list[list[bytes]] = []
    for checkpoint in range(1, 7):
        writer.write(batch(str(checkpoint)))
        prepared.append(writer.prepare_commit(checkpoint))
        used += [PreparedTransaction.decoded(data).name for data in prepared[-1]]
        committer.commit(checkpoint, prepared[-1])
        writer.commits_confirmed(checkpoint - 1)
    ids = [name.transactional_id for name in used]
    assert len(set(ids)) <= 3, "a pool is as small as it can be"
    again = next(n for n in range(1, 6) if ids[n] in ids[:n])
    first = ids.index(ids[again])
    assert used[again].epoch > used[first].epoch, "an id begins again with a new epoch"
    # A restore of an old checkpoint, whose ids are in use again, repeats its commit: nothing becomes visible by that.
    writer.write(batch("open"))
    for checkpoint, data in enumerate(prepared, 1):
        sink_again = sink.create_committer()
        assert sink_again is not None
        sink_again.commit(checkpoint, data)
    assert seen(kafka, name) == [str(n) for n in range(1, 7)]
    writer.close()


def test_a_commit_that_comes_too_late_names_the_lost_rows(kafka: KafkaBroker) -> None:
    name, prefix = topic(kafka), next(_prefixes)
    sink = exactly_once(kafka, name, prefix)
    writer = sink.create_writer(context(), [])
    writer.write(batch("a", "b", "c"))
    prepared = writer.prepare_commit(4)
    coordinators = coordinators_of(kafka)
    assert coordinators.open_ids(id_pattern(prefix)) == [PreparedTransaction.decoded(prepared[0]).name.transactional_id]
    coordinators.fence(PreparedTransaction.decoded(prepared[0]).name.transactional_id)
    committer = sink.create_committer()
    assert committer is not None
    wanted = rf"3 rows of checkpoint 4 are lost, beginning at topic '{name}', partition 0, offset 0: .*timeout.ms"
    with pytest.raises(OutputGone, match=wanted):
        committer.commit(4, prepared)
    writer.close()


def test_a_transaction_that_times_out_while_rows_come_fails_the_writer(kafka: KafkaBroker) -> None:
    name = topic(kafka)
    sink = builder(kafka, name, DeliveryGuarantee.EXACTLY_ONCE).set_property("transaction.timeout.ms", "1000").build()
    writer = sink.create_writer(context(), [])
    deadline = time.monotonic() + LIMIT_S
    with pytest.raises(SinkError, match="transaction.timeout.ms passed between two checkpoints"):
        while time.monotonic() < deadline:
            writer.write(batch("a"))
            time.sleep(1.2)  # the broker's clock decides
        writer.prepare_commit(1)
    writer.close()
    assert seen(kafka, name) == []


def test_what_earlier_attempts_left_open_does_not_hold_up_readers(kafka: KafkaBroker) -> None:
    """Ends transactions of subtasks that there are no more, too; what is to be committed stays."""
    name, prefix = topic(kafka), next(_prefixes)
    sink = exactly_once(kafka, name, prefix)
    killed = [sink.create_writer(context("one", subtask=n), []) for n in range(3)]
    killed[0].write(batch("committed"))
    prepared = killed[0].prepare_commit(1)
    for writer in killed:
        writer.write(batch("open"))
        writer._records.flush(writer._open.producer)  # type: ignore[attr-defined]
    other_prefix = exactly_once(kafka, name, f"{prefix}-longer").create_writer(context("two"), [])
    other_prefix.write(batch("another's"))
    kept = other_prefix.prepare_commit(1)
    restored = sink.create_writer(context("two", prepared), [])
    restored.write(batch("next"))
    second = restored.prepare_commit(2)
    committer = KafkaCommitter({"bootstrap.servers": kafka.bootstrap_servers})
    for checkpoint, data in ((1, prepared), (2, second), (1, kept)):
        committer.commit(checkpoint, data)
    assert seen(kafka, name) == ["committed", "another's", "next"]
    with pytest.raises(SinkError, match=f"transactional_id_prefix '{prefix}'"):
        killed[1].write(batch("of a process that was taken for dead"))
        killed[1].prepare_commit(2)
    for writer in (*killed, restored, other_prefix):
        writer.close()


def test_a_job_whose_attempt_is_closed_aborts_its_transaction(kafka: KafkaBroker) -> None:
    name, prefix = topic(kafka), next(_prefixes)
    writer = exactly_once(kafka, name, prefix).create_writer(context(), [])
    writer.write(batch("a"))
    writer._records.flush(writer._open.producer)  # type: ignore[attr-defined]
    writer.close()
    assert coordinators_of(kafka).open_ids(id_pattern(prefix)) == []
    assert seen(kafka, name) == []


# ---- the real server's answers, which the fake of the simulation has, too -------------------------------------------


def test_the_answers_of_a_coordinator(kafka: KafkaBroker) -> None:
    name, prefix = topic(kafka), next(_prefixes)
    writer = exactly_once(kafka, name, prefix).create_writer(context(), [])
    writer.write(batch("a"))
    (prepared,) = writer.prepare_commit(1)
    transaction = PreparedTransaction.decoded(prepared).name
    coordinators = coordinators_of(kafka)
    assert coordinators.open_ids(id_pattern(prefix)) == [transaction.transactional_id]
    assert coordinators.end(replace(transaction, epoch=transaction.epoch + 1), commits=True) is not End.DONE
    assert coordinators.end(transaction, commits=True) is End.DONE
    assert coordinators.end(transaction, commits=True) is End.DONE
    assert coordinators.end(transaction, commits=False) is End.INVALID
    coordinators.fence(transaction.transactional_id)
    assert coordinators.end(transaction, commits=True) is End.FENCED
    unknown = replace(transaction, transactional_id=f"{prefix}-never")
    assert coordinators.end(unknown, commits=True) is End.UNKNOWN
    writer.close()


# ---- other guarantees, keys, topics ---------------------------------------------------------------------------------


@pytest.mark.parametrize("guarantee", [DeliveryGuarantee.AT_LEAST_ONCE, DeliveryGuarantee.NONE])
def test_rows_without_transactions(kafka: KafkaBroker, guarantee: DeliveryGuarantee) -> None:
    name = topic(kafka)
    sink = builder(kafka, name, guarantee).build()
    batches = [batch(*(f"{part}.{n}" for n in range(5))) for part in range(3)]
    run = SinkRun(sink, batches, STRING)
    run.checkpoint()
    if guarantee is DeliveryGuarantee.AT_LEAST_ONCE:
        assert len(seen(kafka, name)) == 5, "a checkpoint waits for the brokers"
    run.finish()
    assert sorted(seen(kafka, name)) == sorted(text for b in batches for text in b.column(0).to_pylist())
    assert sink.create_committer() is None


def test_keys_go_where_kafkas_java_client_sends_them_and_topics_are_selected(kafka: KafkaBroker) -> None:
    row = Types.ROW_NAMED(["region", "n"], [STRING, Types.LONG()])
    europe, asia = topic(kafka, 3), topic(kafka, 3)
    names = {"europe": europe, "asia": asia}

    class Region(SimpleStringSchema):
        def serialize(self, element: Any) -> bytes:
            return str(element.region).encode()

    serializer = (
        KafkaRecordSerializationSchema.builder()
        .set_topic_selector(lambda row: names[row.region])
        .set_key_serialization_schema(Region())
        .set_value_serialization_schema(JsonRowSerializationSchema.builder().build())
        .build()
    )
    sink = KafkaSink.builder().set_bootstrap_servers(kafka.bootstrap_servers).set_record_serializer(serializer).build()
    data = [("europe", 1), ("asia", 2), ("europe", 3)]
    rows = pa.RecordBatch.from_arrays(row.encode(data), schema=row.schema)
    SinkRun(sink, [rows], row).finish()
    found = records(kafka, europe)
    assert [(r.key(), json.loads(r.value() or b"")["n"]) for r in found] == [(b"europe", 1), (b"europe", 3)]
    assert {r.partition() for r in found} == {(murmur2(b"europe") & 0x7FFFFFFF) % 3}
    assert [r.key() for r in records(kafka, asia)] == [b"asia"]


# ---- bad input and faults -------------------------------------------------------------------------------------------


def test_a_record_that_is_too_large_is_named(kafka: KafkaBroker) -> None:
    name = topic(kafka)
    for guarantee in (DeliveryGuarantee.EXACTLY_ONCE, DeliveryGuarantee.AT_LEAST_ONCE):
        writer = builder(kafka, name, guarantee).build().create_writer(context(), [])
        with pytest.raises(RefusedRecord, match=rf"a record for topic '{name}' .*too large.* have 5,000,000 bytes"):
            writer.write(batch("x" * 5_000_000))
        writer.close()
        generous = builder(kafka, name, guarantee).set_property("max.request.size", "20000000").build()
        writer = generous.create_writer(context("two"), [])
        with pytest.raises(RefusedRecord, match=rf"topic '{name}' cannot be written: .*too large.*max\.request"):
            writer.write(batch("x" * 5_000_000))
            writer.prepare_commit(1)
        writer.close()


def test_what_the_brokers_do_not_allow_is_said_before_the_job_starts(
    kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = builder(kafka, "t", DeliveryGuarantee.EXACTLY_ONCE).set_property("transaction.timeout.ms", "3600000").build()
    with pytest.raises(SinkError, match=r"3600000 for this sink, but the brokers allow 900000 .*max.timeout.ms"):
        long.validate(STRING)
    exactly_once(kafka, "t").validate(STRING)
    with pytest.raises(SinkError, match="the value is written by SimpleStringSchema"):
        exactly_once(kafka, "t").validate(Types.LONG())
    monkeypatch.setattr("penstock.connectors.kafka.client.REACH_LIMIT_S", 0.5)
    away = KafkaSink.builder().set_bootstrap_servers("127.0.0.1:1")
    away.set_record_serializer(long._serializer)
    with pytest.raises(SinkError, match="Kafka at 127.0.0.1:1 does not answer: .*Connection refused"):
        away.build().validate(STRING)


def test_brokers_that_are_away_for_too_long_fail_a_commit_that_can_be_repeated(
    kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.connectors.kafka.broker_requests.ANSWER_LIMIT_S", 1.0)
    name = TransactionName("nobody", 1, 0)
    prepared = PreparedTransaction(name, 1, "t", 0, 0, {"t": (0,)}).encoded()
    with pytest.raises(SinkError, match="127.0.0.1:1 has not answered for 1 s when asked to commit the transaction"):
        KafkaCommitter({"bootstrap.servers": "127.0.0.1:1"}).commit(1, [prepared])
