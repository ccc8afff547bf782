"""Tests what a program for Kafka says, before there is any broker."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import cloudpickle
import pytest

from penstock.common import SimpleStringSchema, Types, WatermarkStrategy
from penstock.connectors.kafka.client import client_properties, protocol_properties
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.kafka import (
    DeliveryGuarantee,
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSinkBuilder,
    KafkaSource,
    KafkaSourceBuilder,
    KafkaTopicPartition,
    KafkaTopicSelector,
)
from penstock.graph.describe import describe

EXACTLY_ONCE = DeliveryGuarantee.EXACTLY_ONCE


def serializer() -> KafkaRecordSerializationSchema:
    builder = KafkaRecordSerializationSchema.builder().set_topic("totals")
    return builder.set_value_serialization_schema(SimpleStringSchema()).build()


def sink() -> KafkaSinkBuilder:
    return KafkaSink.builder().set_bootstrap_servers("broker:9092").set_record_serializer(serializer())


class ByName(KafkaTopicSelector):
    def apply(self, data: Any) -> str:
        return f"topic of {data}"


def complete() -> KafkaSourceBuilder:
    builder = KafkaSource.builder().set_bootstrap_servers("broker:9092").set_topics("orders")
    return builder.set_value_only_deserializer(SimpleStringSchema())


def test_a_source_knows_its_type_and_whether_it_ends() -> None:
    source = complete().build()
    assert source.produced_type == Types.STRING() and not source.bounded
    latest = KafkaOffsetsInitializer.latest()
    assert complete().set_bounded(latest).build().bounded and not complete().set_unbounded(latest).build().bounded


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: KafkaSource.builder().build(), r"set_bootstrap_servers\(.*, set_topics\(.*, set_value_only_des"),
        (lambda: complete().set_topic_pattern("o.*"), "set one of them, once"),
        (lambda: KafkaSource.builder().set_topics(), "at least one topic"),
        (lambda: KafkaSource.builder().set_topic_pattern("["), "no regular expression"),
        (lambda: complete().set_starting_offsets(KafkaOffsetsInitializer.committed_offsets()).build(), "set_group_id"),
        (lambda: KafkaOffsetsInitializer.timestamp(-1), "not negative"),
        (lambda: KafkaOffsetsInitializer.offsets({KafkaTopicPartition("a", 0): -2}), "not negative"),
        (lambda: complete().set_value_only_deserializer(str), "a deserializer is a DeserializationSchema"),  # type: ignore[arg-type]
        (lambda: complete().set_property("ssl.truststore.location", "x").build(), "ssl.ca.location"),
        (lambda: complete().set_property("sasl.jaas.config", "x").build(), "sasl.username"),
        (lambda: KafkaSink.builder().build(), r"set_bootstrap_servers\(.*, set_record_serializer"),
        (lambda: sink().set_delivery_guarantee(EXACTLY_ONCE).build(), "set_transactional_id_prefix.*exactly once"),
        (lambda: sink().set_delivery_guarantee("exactly"), "takes a DeliveryGuarantee"),  # type: ignore[arg-type]
        (lambda: sink().set_transactional_id_prefix(""), "1 to 6400 bytes"),
        (lambda: sink().set_transactional_id_prefix("ü" * 3201), "1 to 6400 bytes"),
        (lambda: sink().set_record_serializer(KafkaRecordSerializationSchema.builder()), r"call .build\(\)"),  # type: ignore[arg-type]
        (lambda: KafkaRecordSerializationSchema.builder().build(), "set_topic"),
        (lambda: KafkaRecordSerializationSchema.builder().set_topic("a").build(), "set_value_serialization_schema"),
        (lambda: KafkaRecordSerializationSchema.builder().set_topic("a").set_topic_selector(str), "not both"),
        (lambda: KafkaRecordSerializationSchema.builder().set_topic_selector(str).set_topic("a"), "not both"),
    ],
)
def test_what_is_missing_or_wrong_is_named(build: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        build()


def test_only_a_sink_that_writes_exactly_once_commits_and_selectors_may_be_objects() -> None:
    assert sink().build().create_committer() is None
    exactly_once = sink().set_delivery_guarantee(EXACTLY_ONCE).set_transactional_id_prefix("a").build()
    assert exactly_once.create_committer() is not None
    schema = KafkaRecordSerializationSchema.builder().set_topic_selector(ByName())
    selector = schema.set_value_serialization_schema(SimpleStringSchema()).build().selector
    assert selector is not None and selector(3) == "topic of 3"


def test_properties_of_the_java_client_are_translated() -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="s\\"cret";'
    found = client_properties(
        {
            "bootstrap.servers": "a:1,b:2",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": jaas,
            "fetch.max.wait.ms": "50",
            "key.deserializer": "org.apache.kafka.common.serialization.StringDeserializer",
        }
    )
    assert found["sasl.username"] == "me" and found["sasl.password"] == 's"cret' and found["fetch.wait.max.ms"] == "50"
    assert "key.deserializer" not in found
    assert protocol_properties(found) == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "me",
        "sasl_plain_password": 's"cret',
        "bootstrap_servers": ["a:1", "b:2"],
    }


def test_the_library_is_imported_when_it_is_used() -> None:
    program = (
        "import sys\n"
        "import penstock.datastream.connectors.kafka as kafka\n"
        "assert not {'confluent_kafka', 'kafka'} & set(sys.modules)\n"
        "sys.modules['confluent_kafka'] = None\n"
        "from penstock.connectors.kafka.client import client_library\n"
        "try:\n    client_library()\nexcept ImportError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert "pip install 'penstock[kafka]'" in done.stdout, done.stderr


def test_passwords_are_not_shown_and_a_source_can_be_sent() -> None:
    source = complete().set_property("sasl.password", "s3cret").build()
    assert "s3cret" not in repr(source) and "s3cret" not in str(source)
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_source(source, complete_strategy(), "orders").print()
    assert "s3cret" not in env.get_execution_plan()
    assert cloudpickle.loads(cloudpickle.dumps(source)).produced_type == Types.STRING()


def complete_strategy() -> Any:
    from penstock.common import WatermarkStrategy

    return WatermarkStrategy.for_monotonous_timestamps()


def test_connectors_describe_themselves_in_plans_without_their_secrets() -> None:
    secret = {"sasl.username": "ann", "sasl.password": "s3cret"}
    source = complete().set_group_id("billing").set_properties(secret).set_bounded(KafkaOffsetsInitializer.timestamp(7))
    writing = sink().set_property("sasl.password", "s3cret").set_delivery_guarantee(EXACTLY_ONCE)
    env = StreamExecutionEnvironment.get_execution_environment()
    rows = env.from_source(source.build(), WatermarkStrategy.no_watermarks(), "orders")
    rows.sink_to(writing.set_transactional_id_prefix("totals").build())
    plan = env.get_execution_plan()
    facts = [node["connector"] for node in json.loads(plan)["nodes"] if "connector" in node]
    assert facts == [
        {
            "connector": "Kafka", "servers": "broker:9092", "topics": "orders", "group": "billing",
            "begins at": "earliest", "ends at": "timestamp 7", "format": "SimpleStringSchema",
        },
        {
            "connector": "Kafka", "servers": "broker:9092", "topic": "totals", "guarantee": "EXACTLY_ONCE",
            "format": "SimpleStringSchema", "transactional id prefix": "totals",
        },
    ]  # fmt: skip
    text = describe(env.get_job_graph())
    assert "): connector Kafka, servers broker:9092, topics orders, group billing, begins at earliest" in text
    for shown in (plan, text, repr(source), repr(writing), str(source.build()), str(writing.build())):
        assert "s3cret" not in shown and "ann" not in shown
