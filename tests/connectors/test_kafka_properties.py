"""Tests the properties of Kafka's Java clients: all of them, against the jars of the broker and a real client."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from penstock.common import SimpleStringSchema, Types
from penstock.connectors.kafka.client import _said_without_effect, client_properties
from penstock.connectors.kafka.java_properties import OURS, REFUSED, SAME, TRANSLATED, WITHOUT_EFFECT
from penstock.connectors.kafka.kafka_reader import check_consumer
from penstock.connectors.kafka.kafka_sink import KafkaSinkBuilder
from penstock.connectors.kafka.kafka_source import KafkaSourceBuilder
from penstock.datastream.connectors.base import DeliveryGuarantee, SinkError, SourceError
from penstock.datastream.connectors.kafka import KafkaRecordSerializationSchema, KafkaSink, KafkaSource
from tests.connectors.topics import topic
from tools.kafka_broker import KafkaBroker, install

TABLES = (SAME, TRANSLATED, WITHOUT_EFFECT, OURS, REFUSED)
OF_OLDER_CLIENTS = {"auto.include.jmx.reporter"}


@pytest.fixture(scope="module")
def java(kafka: KafkaBroker) -> list[tuple[str, str, str]]:
    """Client, name and default of each property of Java's consumer and producer."""
    program = Path(__file__).parents[2] / "tools" / "kafka" / "ClientProperties.java"
    command = ["java", "-cp", f"{install()}/*", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    found = []
    for line in done.stdout.splitlines():
        client, name, default = line.split("\t")
        found.append((client, name, default))
    return found


def sink(broker: KafkaBroker, name: str) -> KafkaSinkBuilder:
    schema = KafkaRecordSerializationSchema.builder().set_topic(name)
    built = schema.set_value_serialization_schema(SimpleStringSchema()).build()
    return KafkaSink.builder().set_bootstrap_servers(broker.bootstrap_servers).set_record_serializer(built)


def source(broker: KafkaBroker) -> KafkaSourceBuilder:
    found = KafkaSource.builder().set_bootstrap_servers(broker.bootstrap_servers)
    return found.set_value_only_deserializer(SimpleStringSchema())


def test_the_tables_have_each_property_of_java_once_and_no_other(java: list[tuple[str, str, str]]) -> None:
    names = {name for _, name, _ in java}
    assert len(names) > 130
    in_tables = [name for table in TABLES for name in table]
    assert not names - set(in_tables), "say what becomes of these"
    assert len(set(in_tables)) == len(in_tables), "one table each"
    known_to_java = names | OURS | OF_OLDER_CLIENTS | {"register.consumer.metrics"}
    assert not set(in_tables) - known_to_java, "these are no properties of Java's"


def test_the_client_takes_each_property_with_the_value_that_java_has_by_default(
    kafka: KafkaBroker, java: list[tuple[str, str, str]]
) -> None:
    name = topic(kafka)
    refused = []
    for client, key, default in java:
        if key == "bootstrap.servers" or not default or default.startswith("java.lang.Object"):
            continue
        try:
            if client == "producer":
                sink(kafka, name).set_property(key, default).build()._make_producer()
            else:
                properties = source(kafka).set_topics(name).set_property(key, default).build()._properties

                check_consumer(client_properties(properties))
        except (SinkError, SourceError, ValueError) as error:
            refused.append(f"{client}: {key}={default}: {error}")
    assert not refused, "\n".join(refused)


OF_PROGRAMS = {
    "max.request.size": ("2097152", {"message.max.bytes": "2097152"}),
    "buffer.memory": ("33554432", {"queue.buffering.max.kbytes": "32768"}),
    "batch.size": ("0", {"batch.num.messages": "1"}),
    "request.timeout.ms": ("600000", {"socket.timeout.ms": "300000"}),
    "send.buffer.bytes": ("-1", {"socket.send.buffer.bytes": "0"}),
    "ssl.endpoint.identification.algorithm": ("", {"ssl.endpoint.identification.algorithm": "none"}),
    "partitioner.class": ("org.apache.kafka.clients.producer.internals.DefaultPartitioner", {}),
    "enable.idempotence": (True, {"enable.idempotence": "true"}),
    "linger.ms": (20, {"linger.ms": "20"}),
}


@pytest.mark.parametrize("name", OF_PROGRAMS)
def test_values_are_translated_and_taken(kafka: KafkaBroker, name: str) -> None:
    value, expected = OF_PROGRAMS[name]
    built = sink(kafka, topic(kafka)).set_property(name, value).build()  # type: ignore[arg-type]
    translated = client_properties(built._properties)
    assert {key: v for key, v in translated.items() if key != "bootstrap.servers"} == expected
    built.validate(Types.STRING())


def test_levels_of_compression_count_for_their_codec_only() -> None:
    levels = {"compression.zstd.level": "22", "compression.gzip.level": "5"}
    assert client_properties({"compression.type": "ZSTD", **levels})["compression.level"] == "12"
    assert client_properties({"compression.type": "gzip", **levels})["compression.level"] == "5"
    assert "compression.level" not in client_properties({"compression.type": "snappy", **levels})


def test_pem_stores_and_other_logins_are_translated() -> None:
    stores = {"ssl.keystore.type": "PEM", "ssl.keystore.location": "/k.pem", "ssl.truststore.type": "PEM"}
    assert client_properties({**stores, "ssl.truststore.location": "/ca.pem"}) == {
        "ssl.certificate.location": "/k.pem",
        "ssl.key.location": "/k.pem",
        "ssl.ca.location": "/ca.pem",
    }
    jaas = 'org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required clientId="a" clientSecret="b";'
    handler = "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler"
    assert client_properties({"sasl.jaas.config": jaas, "sasl.login.callback.handler.class": handler}) == {
        "sasl.oauthbearer.client.id": "a",
        "sasl.oauthbearer.client.secret": "b",
        "sasl.oauthbearer.method": "oidc",
    }
    jaas = 'com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab="/k" principal="me@REALM";'
    assert client_properties({"sasl.jaas.config": jaas}) == {
        "sasl.kerberos.keytab": "/k",
        "sasl.kerberos.principal": "me@REALM",
    }


WRONG = [
    ("no.such.property", "1", "no.such.property"),
    ("compression.type", "gzipp", "compression"),
    ("acks", "several", "acks"),
    ("partitioner", "nobody", "partitioner"),
    ("linger.ms", "soon", "queue.buffering.max.ms"),
    ("security.protocol", "TLS", "security.protocol"),
    ("ssl.ca.location", "/there/is/no/such/file", "ssl.ca.location"),
    ("transaction.timeout.ms", "an hour", "transaction.timeout.ms"),
    ("max.request.size", "large", "max.request.size"),
]


@pytest.mark.parametrize("guarantee", [DeliveryGuarantee.EXACTLY_ONCE, DeliveryGuarantee.AT_LEAST_ONCE])
@pytest.mark.parametrize(("name", "value", "said"), WRONG)
def test_wrong_properties_of_a_sink_are_refused_before_the_job_starts(
    kafka: KafkaBroker, name: str, value: str, said: str, guarantee: DeliveryGuarantee
) -> None:
    builder = sink(kafka, topic(kafka)).set_delivery_guarantee(guarantee).set_transactional_id_prefix("wrong")
    if name.startswith("ssl."):
        builder.set_property("security.protocol", "SSL")
    with pytest.raises((SinkError, ValueError), match=said):
        builder.set_property(name, value).build().validate(Types.STRING())


@pytest.mark.parametrize(
    ("name", "value"), [("no.such.property", "1"), ("fetch.min.bytes", "few"), ("isolation.level", "dirty")]
)
def test_wrong_properties_of_a_source_are_refused_before_the_job_starts(
    kafka: KafkaBroker, name: str, value: str
) -> None:
    built = source(kafka).set_topics(topic(kafka)).set_property(name, value).build()
    with pytest.raises(SourceError, match=name):
        built.validate()


def test_producers_that_cannot_be_idempotent_are_not_unless_somebody_asks(kafka: KafkaBroker) -> None:
    name = topic(kafka)
    for key, value in (("acks", "1"), ("acks", "0"), ("retries", "0"), ("max.in.flight.requests.per.connection", "9")):
        sink(kafka, name).set_property(key, value).build().validate(Types.STRING())
    asking = sink(kafka, name).set_property("acks", "1").set_property("enable.idempotence", "true").build()
    exactly_once = sink(kafka, name).set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE).set_property("acks", "1")
    for wrong in (asking, exactly_once.set_transactional_id_prefix("once").build()):
        with pytest.raises(SinkError, match="acks"):
            wrong.validate(Types.STRING())


def test_a_topic_that_nobody_makes_is_missed_before_the_job_starts(
    kafka: KafkaBroker, tmp_path_factory: pytest.TempPathFactory
) -> None:
    sink(kafka, "made-by-the-first-record").build().validate(Types.STRING())
    strict = KafkaBroker(tmp_path_factory.mktemp("strict"), "auto.create.topics.enable=false")
    strict.start()
    try:
        with pytest.raises(SinkError, match=r"there is no topic 'missing' .*set_topic"):
            sink(strict, "missing").build().validate(Types.STRING())
    finally:
        strict.stop()


def test_what_has_no_effect_is_said_once(caplog: pytest.LogCaptureFixture, kafka: KafkaBroker) -> None:
    _said_without_effect.clear()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            sink(kafka, "any").set_property("metrics.sample.window.ms", "1000").build()
    said = [record.getMessage() for record in caplog.records if "metrics.sample.window.ms" in record.getMessage()]
    assert said == ["Kafka's property 'metrics.sample.window.ms' has no effect here: the metrics are those of the job"]


def test_refused_properties_are_taken_if_they_are_empty() -> None:
    assert client_properties(dict.fromkeys(REFUSED, "")) == {}
    for name in REFUSED:
        with pytest.raises(ValueError, match=f"'{name}': .*{REFUSED[name][:10]}"):
            client_properties({name: "x"})


def test_the_client_s_log_goes_to_a_logger(kafka: KafkaBroker) -> None:
    """Without a program that has set up logging, nothing is printed but our error."""
    program = (
        "import logging, sys\n"
        "if sys.argv[1] == 'shown': logging.basicConfig()\n"
        "from penstock.common import SimpleStringSchema\n"
        "from penstock.datastream.connectors.base import SourceError\n"
        "from penstock.connectors.kafka import client\n"
        "from penstock.datastream.connectors.kafka import KafkaSource\n"
        "client.REACH_LIMIT_S = 2.0\n"
        "builder = KafkaSource.builder().set_bootstrap_servers('127.0.0.1:9').set_topics('a')\n"
        "source = builder.set_value_only_deserializer(SimpleStringSchema()).build()\n"
        "try:\n    source.validate()\nexcept SourceError as error:\n    print(error)\n"
    )

    def printed(how: str) -> tuple[str, str]:
        command = [sys.executable, "-c", program, how]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        return done.stdout, done.stderr

    said, log = printed("not shown")
    assert said.startswith("Kafka at 127.0.0.1:9 does not answer") and not log
    assert "penstock.librdkafka" in printed("shown")[1]


def test_internal_topics_are_read_only_if_they_are_named(kafka: KafkaBroker) -> None:
    name = topic(kafka)
    enumerator = source(kafka).set_topics(name).set_group_id("makes-offsets").build().create_enumerator(1, None)
    enumerator.checkpoint_completed([b'{"topic": "%s", "partition": 0, "next": 0, "stop": null}' % name.encode()])
    listed = AdminClient({"bootstrap.servers": kafka.bootstrap_servers}).list_topics(timeout=30).topics
    assert "__consumer_offsets" in listed
    own = topic(kafka, name="__ours")

    def found(builder: KafkaSourceBuilder) -> set[str]:
        return {partition.topic for partition in builder.build()._discovery()._partitions()}

    by_pattern = found(source(kafka).set_topic_pattern(".*"))
    assert own in by_pattern and "__consumer_offsets" not in by_pattern
    for named in ("__consumer_offsets", r"__consumer\_offsets"):
        assert found(source(kafka).set_topic_pattern(named)) == {"__consumer_offsets"}
    assert found(source(kafka).set_topics("__consumer_offsets")) == {"__consumer_offsets"}
    all_of_them = source(kafka).set_topic_pattern("__.*").set_property("exclude.internal.topics", "false")
    assert found(all_of_them) >= {"__consumer_offsets", own}
