"""Tests the programs of docs/kafka.md, and what they print."""

from __future__ import annotations

import io
import json
from pathlib import Path

import fastavro
import pytest

from tests.connectors.conftest import USERS
from tests.connectors.topics import produced, read_committed, topic
from tests.spark.documentation import Program, read_page
from tests.spark.run_programs import LIMIT_S, ROOT, Programs
from tools.kafka_broker import KafkaBroker
from tools.schema_registry import RegistryServer

ORDERS = [
    b'{"id": 1, "item": "pipe", "amount": 2.5}',
    b'{"id": 2, "item": "gate", "amount": 40.0}',
    b'{"id": 3, "item": "pipe", "amount": 7.5}',
    b'{"id": 4, "item": "gate", "amount": 1.5}',
]


PIPE, LIGHTER = {"id": 1, "name": "pipe", "weight": 2.5}, {"id": 1, "name": "pipe", "weight": 2.25}
CHANGES = [
    {"before": None, "after": PIPE, "op": "c"},
    {"before": PIPE, "after": LIGHTER, "op": "u"},
    {"before": LIGHTER, "after": None, "op": "d"},
    {"before": None, "after": None, "op": "x"},
]
RATES = [b"EUR,1.08", b"GBP,1.27"]


@pytest.mark.timeout(5 * LIMIT_S)
def test_the_programs_of_the_page_run_and_print_what_it_says(
    kafka: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA", kafka.bootstrap_servers)
    monkeypatch.setenv("KAFKA_TLS", kafka.tls_servers)
    monkeypatch.setenv("KAFKA_CA", str(kafka.certificate))
    monkeypatch.setenv("KAFKA_PASSWORD", USERS["ann"])
    produced(kafka, topic(kafka, name="orders"), ORDERS)
    produced(kafka, topic(kafka, name="products"), [json.dumps(change).encode() for change in CHANGES])
    produced(kafka, topic(kafka, name="rates"), RATES)
    registry = RegistryServer(user=f"ann:{USERS['ann']}")
    registry.start()
    monkeypatch.setenv("REGISTRY", registry.url)
    programs = Programs(tmp_path)
    try:
        for step in read_page((ROOT / "docs" / "kafka.md").read_text(encoding="utf-8")).steps:
            assert isinstance(step, Program)
            (tmp_path / step.name).write_text(step.text, encoding="utf-8")
            printed = programs.run(tmp_path / step.name)
            difference = None if step.output is None else step.output.difference(printed)
            assert difference is None, f"{step.name}: {difference}"
    finally:
        programs.close()
        registry.stop()
    totals = [json.loads(value) for value in read_committed(kafka, "totals")]
    assert {"item": "pipe", "total": 10.0} in totals and {"item": "gate", "total": 41.5} in totals and len(totals) == 4
    (schema,) = (json.loads(body["schema"]) for body in registry.schemas.values())
    parsed = fastavro.parse_schema(schema)
    rates = [
        fastavro.schemaless_reader(io.BytesIO(value[5:]), parsed, None) for value in read_committed(kafka, "rates-avro")
    ]
    assert rates == [{"currency": "EUR", "rate": 1.08}, {"currency": "GBP", "rate": 1.27}]
