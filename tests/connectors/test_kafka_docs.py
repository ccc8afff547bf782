"""The programs of docs/kafka.md, and what they print."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.connectors.topics import produced, read_committed, topic
from tests.spark.documentation import Program, read_page
from tests.spark.run_programs import LIMIT_S, ROOT, Programs
from tools.kafka_broker import KafkaBroker

ORDERS = [
    b'{"id": 1, "item": "pipe", "amount": 2.5}',
    b'{"id": 2, "item": "gate", "amount": 40.0}',
    b'{"id": 3, "item": "pipe", "amount": 7.5}',
    b'{"id": 4, "item": "gate", "amount": 1.5}',
]


@pytest.mark.timeout(3 * LIMIT_S)
def test_the_programs_of_the_page_run_and_print_what_it_says(
    kafka: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA", kafka.bootstrap_servers)
    produced(kafka, topic(kafka, name="orders"), ORDERS)
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
    totals = [json.loads(value) for value in read_committed(kafka, "totals")]
    assert {"item": "pipe", "total": 10.0} in totals and {"item": "gate", "total": 41.5} in totals and len(totals) == 4
