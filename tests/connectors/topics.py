"""Makes topics, fills them, and reads them as an independent consumer does."""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import count

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from penstock.connectors.kafka.broker_requests import BrokerRequests
from penstock.connectors.kafka.transactions import TransactionCoordinators
from tools.kafka_broker import KafkaBroker

LIMIT_S = 30.0
_numbers = count()


def topic(broker: KafkaBroker, partitions: int = 1, name: str | None = None) -> str:
    """Make a topic, and return its name."""
    name = name or f"topic-{next(_numbers)}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(LIMIT_S)
    return name


def coordinators_of(broker: KafkaBroker) -> TransactionCoordinators:
    """Return what asks the broker about transactions."""
    return TransactionCoordinators(BrokerRequests({"bootstrap.servers": broker.bootstrap_servers}))


def produced(
    broker: KafkaBroker, name: str, values: Iterable[bytes | None], partition: int = -1, timestamp_ms: int = 0
) -> None:
    """Produce values to a topic, outside any transaction."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True})
    for value in values:
        producer.produce(name, value, partition=partition, timestamp=timestamp_ms)
    assert producer.flush(LIMIT_S) == 0


def read_committed(broker: KafkaBroker, name: str) -> list[bytes]:
    """Return the values that a consumer of committed records sees, up to the end that it sees."""
    return [value for message in records(broker, name) if (value := message.value()) is not None]


def read_uncommitted(broker: KafkaBroker, name: str) -> list[bytes]:
    """Return all values, those of open and of aborted transactions, too."""
    return [value for message in records(broker, name, "read_uncommitted") if (value := message.value()) is not None]


def records(broker: KafkaBroker, name: str, isolation: str = "read_committed") -> list[Message]:
    """Return all records of a topic, partition by partition in order."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "independent",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    try:
        partitions = consumer.list_topics(name, timeout=LIMIT_S).topics[name].partitions
        consumer.assign([TopicPartition(name, partition, 0) for partition in partitions])
        found: list[Message] = []
        at_end: set[int] = set()
        deadline = time.monotonic() + LIMIT_S
        while len(at_end) < len(partitions):
            messages = consumer.consume(1000, 0.05)  # it waits that long for the rest of a thousand
            deadline = time.monotonic() + LIMIT_S if messages else deadline
            assert time.monotonic() < deadline, f"the broker has not answered within {LIMIT_S} s"
            for message in messages:
                error = message.error()
                if error is None:
                    found.append(message)
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    at_end.add(message.partition() or 0)
        return found
    finally:
        consumer.close()
