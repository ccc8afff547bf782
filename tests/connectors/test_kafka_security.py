"""Tests users, passwords and TLS, on ports of a real broker that want them; and where secrets must not be seen."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.common import SimpleStringSchema, Types
from penstock.connectors.testing import SinkRun, read_all
from penstock.datastream.connectors.base import Sink, SinkError, Source, SourceError
from penstock.datastream.connectors.kafka import (
    DeliveryGuarantee,
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from tests.connectors.conftest import USERS
from tests.connectors.topics import produced, read_committed, topic
from tools.kafka_broker import KafkaBroker

ROOT = Path(__file__).resolve().parents[2]
STRING = Types.STRING()
(USER,) = USERS
SOON_S = 8.0


def properties(kafka: KafkaBroker, listener: str, password: str = USERS[USER]) -> dict[str, str]:
    """Return the properties of Kafka's Java client, as programs for PyFlink have them."""
    jaas = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    found = {"sasl.mechanism": "PLAIN", "sasl.jaas.config": f'{jaas} username="{USER}" password="{password}";'}
    if listener == "users":
        return {**found, "bootstrap.servers": kafka.users_servers, "security.protocol": "SASL_PLAINTEXT"}
    certificate = {"ssl.ca.location": str(kafka.certificate)}
    return {**found, **certificate, "bootstrap.servers": kafka.tls_servers, "security.protocol": "SASL_SSL"}


def source(props: dict[str, str], name: str) -> Source:
    builder = KafkaSource.builder().set_properties(props).set_topics(name).set_bounded(KafkaOffsetsInitializer.latest())
    return builder.set_group_id(name).set_value_only_deserializer(SimpleStringSchema()).build()


def sink(props: dict[str, str], name: str) -> Sink:
    serializer = KafkaRecordSerializationSchema.builder().set_topic(name)
    serializer.set_value_serialization_schema(SimpleStringSchema())
    builder = KafkaSink.builder().set_record_serializer(serializer.build()).set_transactional_id_prefix(name)
    for key, value in props.items():
        builder.set_property(key, value)
    return builder.set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE).build()


@pytest.mark.parametrize("listener", ["users", "tls"])
def test_rows_go_in_and_out_exactly_once_with_a_password(kafka: KafkaBroker, listener: str) -> None:
    """The driver commits by a client of its own, which has the same properties."""
    props = properties(kafka, listener)
    into, out = topic(kafka), topic(kafka)
    produced(kafka, into, [b"a", b"b"])
    read = source(props, into)
    read.validate()
    assert read_all(read) == ["a", "b"]
    batches = [pa.RecordBatch.from_arrays([pa.array([text])], schema=STRING.schema) for text in "cd"]
    run = SinkRun(sink(props, out), batches, STRING)
    run.checkpoint()
    assert read_committed(kafka, out) == [b"c"]
    run.finish()
    assert read_committed(kafka, out) == [b"c", b"d"]


@pytest.mark.parametrize(
    ("listener", "change", "reason"),
    [
        (
            "users",
            {"password": "wr0ng-passw0rd"},
            "refuses the connection: .*Invalid username or password.*sasl.password",
        ),
        ("tls", {"ssl.ca.location": None}, "refuses the connection: .*certificate verify failed.*ssl.ca.location"),
        ("tls", {"password": "wr0ng-passw0rd"}, "refuses the connection: .*Invalid username or password"),
    ],
)
def test_who_is_refused_is_told_soon_and_without_the_password(
    kafka: KafkaBroker, listener: str, change: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    password = change.pop("password", USERS[USER])
    props = {**properties(kafka, listener, password), **change}
    props = {key: value for key, value in props.items() if value is not None}
    for validate, fault in (
        (source(props, "orders").validate, SourceError),
        (lambda: sink(props, "orders").validate(STRING), SinkError),
    ):
        started = time.monotonic()
        with pytest.raises(fault, match=reason) as told:
            validate()
        assert time.monotonic() - started < SOON_S
        assert password not in str(told.value)
    assert password not in caplog.text


def test_a_port_that_wants_a_password_is_named_where_none_is_given(
    kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.connectors.kafka.client.REACH_LIMIT_S", 0.5)
    wanted = rf"Kafka at {kafka.users_servers} does not answer: .*security.protocol and sasl.\* if they want them"
    with pytest.raises(SourceError, match=wanted):
        source({"bootstrap.servers": kafka.users_servers}, "orders").validate()


def test_files_of_keys_that_are_not_there_are_named(kafka: KafkaBroker) -> None:
    props = {**properties(kafka, "tls"), "ssl.ca.location": "/nowhere/ca.pem"}
    with pytest.raises(SourceError, match=r"does not take its properties: .*ssl.ca.location.*"):
        source(props, "orders").validate()


# ---- secrets --------------------------------------------------------------------------------------------------------

PROGRAM = """
import logging, sys
from penstock.common import Configuration, SimpleStringSchema, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.kafka import (
    DeliveryGuarantee, KafkaOffsetsInitializer, KafkaRecordSerializationSchema, KafkaSink, KafkaSource,
)

logging.basicConfig(level=logging.DEBUG)
servers, user, password, into, out, root = sys.argv[1:]
props = {
    "bootstrap.servers": servers, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
    "sasl.username": user, "sasl.password": password,
}
options = {
    "execution.checkpointing.interval": "200 ms", "execution.checkpointing.dir": root,
    "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
}
env = StreamExecutionEnvironment.get_execution_environment(Configuration(options))
source = (
    KafkaSource.builder().set_properties(props).set_topics(into).set_group_id("secrets")
    .set_bounded(KafkaOffsetsInitializer.latest()).set_value_only_deserializer(SimpleStringSchema()).build()
)
serializer = KafkaRecordSerializationSchema.builder().set_topic(out)
sink = KafkaSink.builder().set_record_serializer(
    serializer.set_value_serialization_schema(SimpleStringSchema()).build()
)
for key, value in props.items():
    sink.set_property(key, value)
sink = sink.set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE).set_transactional_id_prefix(out).build()
print(source, sink, vars(source).keys())
rows = env.from_source(source, WatermarkStrategy.no_watermarks(), "in")
rows.sink_to(sink)
print(env.get_execution_plan())
env.execute("secrets")
"""


@pytest.mark.timeout(200)
def test_a_password_is_in_no_log_no_plan_and_no_checkpoint(kafka: KafkaBroker, tmp_path: Path) -> None:
    into, out = topic(kafka), topic(kafka)
    produced(kafka, into, [b"row %d" % n for n in range(1000)])
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    checkpoints = tmp_path / "checkpoints"
    command = [sys.executable, str(program), kafka.users_servers, USER, USERS[USER], into, out, str(checkpoints)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path / "tmp")}
    (tmp_path / "tmp").mkdir()
    with (tmp_path / "printed.txt").open("wb") as printed:
        process = subprocess.Popen(command, stdout=printed, stderr=printed, env=environment, start_new_session=True)
        try:
            code = process.wait(150)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    text = (tmp_path / "printed.txt").read_text(encoding="utf-8", errors="replace")
    assert code == 0, text[-3000:]
    assert len(read_committed(kafka, out)) == 1000
    files = [path for folder in (checkpoints, tmp_path / "tmp") for path in folder.rglob("*") if path.is_file()]
    assert any(path.is_relative_to(checkpoints) for path in files)
    seen = [str(path) for path in files if USERS[USER].encode() in path.read_bytes()]
    assert not seen, f"the password is in {seen}"
    printed_by = [line[:200] for line in text.splitlines() if USERS[USER] in line]
    assert not printed_by, f"the password was printed: {printed_by}"
