"""Tests the broker that the other tests talk to: a real one, which keeps its data when it is killed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.connectors.topics import produced, read_committed, topic
from tools import kafka_broker
from tools.kafka_broker import BrokerUnavailable, KafkaBroker


def test_what_is_produced_is_there_after_a_kill(kafka: KafkaBroker) -> None:
    name = topic(kafka, partitions=2)
    produced(kafka, name, [f"{n}".encode() for n in range(100)])
    kafka.kill()
    kafka.start()
    assert sorted(int(value) for value in read_committed(kafka, name)) == list(range(100))


def test_a_machine_without_maven_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(BrokerUnavailable, match="apt-get install maven"):
        kafka_broker.install()
