"""Tests PyFlink's older names of the Kafka source and sink: the same connectors, with a warning."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from penstock.common import SimpleStringSchema, Types
from penstock.connectors.kafka.offsets import KafkaOffsetResetStrategy, Kind
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.base import DeliveryGuarantee
from penstock.datastream.connectors.kafka import (
    FlinkKafkaConsumer,
    FlinkKafkaProducer,
    KafkaSink,
    KafkaSource,
    Semantic,
)

SERVERS = {"bootstrap.servers": "broker:9092"}
GROUP = {**SERVERS, "group.id": "billing"}


def consumer(topics: Any = "orders", properties: Any = GROUP) -> FlinkKafkaConsumer:
    with pytest.warns(DeprecationWarning, match=r"KafkaSource.builder\(\)"):
        return FlinkKafkaConsumer(topics, SimpleStringSchema(), properties)


def producer(config: Any = SERVERS, semantic: Semantic = Semantic.AT_LEAST_ONCE) -> FlinkKafkaProducer:
    with pytest.warns(DeprecationWarning, match=r"KafkaSink.builder\(\)"):
        return FlinkKafkaProducer("totals", SimpleStringSchema(), config, semantic=semantic)


def test_an_older_program_makes_a_source_and_a_sink() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.add_source(consumer(["orders", "refunds"])).add_sink(producer())
    plan = env.get_execution_plan()
    assert "Source: Custom Source" in plan and "FlinkKafkaProducer" in plan
    assert isinstance(consumer(), KafkaSource) and isinstance(producer(), KafkaSink)
    assert consumer().get_produced_type() == Types.STRING()


def test_a_consumer_begins_where_it_is_told() -> None:
    assert consumer()._start.kind is Kind.COMMITTED and consumer()._start.reset is KafkaOffsetResetStrategy.LATEST
    earliest = consumer(properties={**GROUP, "auto.offset.reset": "earliest"})
    assert earliest._start.reset is KafkaOffsetResetStrategy.EARLIEST
    assert consumer(properties=SERVERS)._start.kind is Kind.LATEST
    assert consumer().set_start_from_earliest()._start.kind is Kind.EARLIEST
    assert consumer().set_start_from_latest()._start.kind is Kind.LATEST
    assert consumer().set_start_from_timestamp(5)._start.timestamp_ms == 5
    with pytest.raises(ValueError, match=r"group\.id"):
        consumer(properties=SERVERS).set_start_from_group_offsets()
    with pytest.raises(ValueError, match=r"bootstrap\.servers"):
        consumer(properties={})
    assert consumer().set_commit_offsets_on_checkpoints(False)._properties["commit.offsets.on.checkpoint"] == "false"


def test_a_producer_has_the_guarantee_of_its_semantic() -> None:
    assert producer()._guarantee is DeliveryGuarantee.AT_LEAST_ONCE
    assert producer().set_flush_on_checkpoint(False)._guarantee is DeliveryGuarantee.NONE
    with pytest.raises(ValueError, match=r"transactional\.id.*set_transactional_id_prefix"):
        producer(semantic=Semantic.EXACTLY_ONCE)
    exactly = producer({**SERVERS, "transactional.id": "totals"}, Semantic.EXACTLY_ONCE)
    assert exactly._guarantee is DeliveryGuarantee.EXACTLY_ONCE and exactly._prefix == "totals"
    assert exactly.set_flush_on_checkpoint(False)._guarantee is DeliveryGuarantee.EXACTLY_ONCE


def test_what_would_lose_rows_is_refused() -> None:
    calls: tuple[Callable[[FlinkKafkaProducer], Any], ...] = (
        lambda p: p.set_log_failures_only(True),
        lambda p: p.set_write_timestamp_to_kafka(True),
        lambda p: p.ignore_failures_after_transaction_timeout(),
    )
    for call in calls:
        with pytest.raises(ValueError, match="is not offered"):
            call(producer())
    assert producer().set_log_failures_only(False).set_write_timestamp_to_kafka(False)
    names = list(inspect.signature(FlinkKafkaProducer).parameters)
    assert names == ["topic", "serialization_schema", "producer_config", "kafka_producer_pool_size", "semantic"]
