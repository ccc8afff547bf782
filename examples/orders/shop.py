"""A made-up shop: sends its orders and payments to Kafka at the time at which they happen, and knows which invoices
are right."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

PARTITIONS = 2
COUNTRIES = ("AT", "DE", "FR", "IE", "IT")
PAY_WITHIN_MS = 5_000
LIMIT_S = 60.0

Invoice = tuple[int, str]
"""The order's id and `paid` or `expired`."""


@dataclass
class Shop:
    """Places `orders` orders, `per_second` of them, from now on. One in ten is paid too late."""

    orders: int
    per_second: float
    start_ms: int = field(default_factory=lambda: int(time.time() * 1000))

    def placed_at(self, number: int) -> int:
        return self.start_ms + int(number * 1000 / self.per_second)

    def paid_at(self, number: int) -> int:
        dice = random.Random(number)
        late = PAY_WITHIN_MS if dice.random() < 0.1 else 0
        return self.placed_at(number) + late + dice.randint(1, PAY_WITHIN_MS)

    def expected(self) -> Counter[Invoice]:
        in_time = {n: self.paid_at(n) <= self.placed_at(n) + PAY_WITHIN_MS for n in range(self.orders)}
        return Counter((number, "paid" if is_paid else "expired") for number, is_paid in in_time.items())

    def events(self) -> list[tuple[int, str, int]]:
        """Return (time, topic, order) of all orders and payments, in order of time."""
        placed = [(self.placed_at(n), "orders", n) for n in range(self.orders)]
        return sorted(placed + [(self.paid_at(n), "payments", n) for n in range(self.orders)])

    def record(self, at: int, topic: str, number: int) -> bytes:
        if topic == "payments":
            return json.dumps({"order": number, "at": at}).encode()
        amount = 5 + number % 9_000 / 100
        return json.dumps({"id": number, "country": COUNTRIES[number % 5], "amount": amount, "at": at}).encode()

    def open(self, brokers: str, hurry: threading.Event) -> None:
        """Send everything at its time, whether a broker is there or not; all that is left at once after `hurry`."""
        patience = {"enable.idempotence": True, "message.timeout.ms": 600_000}
        producer = Producer({**client(brokers), **patience})
        for count, (at, topic, number) in enumerate(self.events()):
            if count % 50 == 0:
                hurry.wait(max(0.0, at / 1000 - time.time()))
                producer.poll(0)
            while True:
                try:
                    producer.produce(topic, self.record(at, topic, number), partition=number % PARTITIONS, timestamp=at)
                    break
                except BufferError:  # no broker has taken anything for a while
                    producer.poll(0.5)
        if left := producer.flush(LIMIT_S * 5):
            raise RuntimeError(f"no broker has taken the last {left} orders and payments")


def client(brokers: str) -> dict[str, str | int]:
    """Return settings of a client that says nothing of a broker that is away, and looks for it each second."""
    return {"bootstrap.servers": brokers, "log_level": 0, "reconnect.backoff.max.ms": 1_000}


def make_topics(brokers: str) -> None:
    topics = [NewTopic(name, PARTITIONS, 1) for name in ("orders", "payments", "invoices")]
    admin = AdminClient({"bootstrap.servers": brokers})
    for made in admin.create_topics(topics).values():
        made.result(LIMIT_S)


class Auditor:
    """Reads the invoices as anybody would who reads committed records only, and counts them."""

    def __init__(self, brokers: str) -> None:
        settings = {"group.id": "auditor", "enable.auto.commit": False, "isolation.level": "read_committed"}
        self._consumer = Consumer({**client(brokers), **settings, "enable.partition.eof": True})
        self.seen: Counter[Invoice] = Counter()
        self.start_again()

    @property
    def number(self) -> int:
        return self.seen.total()

    def start_again(self) -> None:
        """Forget what was counted, and begin at the first invoice."""
        self.seen.clear()
        self._next = dict.fromkeys(range(PARTITIONS), 0)
        self._seek()

    def read(self, wait_s: float) -> int:
        """Count what comes within this time; return how many invoices that were."""
        before = self.number
        for message in self._consumer.consume(1000, wait_s):
            partition, error = message.partition() or 0, message.error()
            if error is None:
                self._at_end.discard(partition)
                self._next[partition] = (message.offset() or 0) + 1
                invoice = json.loads(message.value() or b"")
                self.seen[invoice["order"], invoice["state"]] += 1
            elif error.code() == KafkaError._PARTITION_EOF:
                self._at_end.add(partition)
        return self.number - before

    def read_to_the_end(self) -> None:
        """Count everything up to the end, when nobody writes any more. Raises TimeoutError if no broker answers."""
        self._seek()
        deadline = time.monotonic() + LIMIT_S
        while len(self._at_end) < PARTITIONS:
            deadline = time.monotonic() + LIMIT_S if self.read(0.1) else deadline
            if time.monotonic() > deadline:
                raise TimeoutError(f"the broker has not answered for {LIMIT_S:.0f} s")

    def close(self) -> None:
        self._consumer.close()

    def _seek(self) -> None:
        self._at_end: set[int] = set()
        self._consumer.assign([TopicPartition("invoices", p, offset) for p, offset in self._next.items()])
