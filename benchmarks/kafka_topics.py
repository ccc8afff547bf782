"""Starts the broker that the benchmarks with Kafka share with their peers, and fills its topics."""

from __future__ import annotations

import sys
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the tools are not installed
from tools.kafka_broker import KafkaBroker

LIMIT_S = 120.0


def broker_in(directory: Path) -> KafkaBroker:
    """Return a broker, not started yet, whose data are below a directory."""
    return KafkaBroker(directory)


def create_topic(servers: str, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(LIMIT_S)


def fill(servers: str, topic: str, values: list[bytes], partition: int) -> None:
    """Produce values to one partition, without transactions."""
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "linger.ms": 50,
            "batch.size": 1 << 20,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    for first in range(0, len(values), 50_000):
        records = [{"value": value} for value in values[first : first + 50_000]]
        producer.produce_batch(topic, records, partition=partition)
        while len(producer) > 500_000:
            producer.poll(0.1)
    if producer.flush(LIMIT_S):
        sys.exit(f"the broker has not taken all values for topic {topic!r}")
