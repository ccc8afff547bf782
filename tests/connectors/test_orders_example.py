"""Tests the order example as `make demo-kafka` runs it: a slot, the broker and the driver are killed, and all is
exact.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.run_programs import ROOT, surroundings
from tools.kafka_broker import KafkaBroker

LIMIT_S = 300


@pytest.mark.timeout(LIMIT_S + 30)
@pytest.mark.usefixtures("kafka")  # what cannot be installed is said there; the example has a broker of its own
def test_the_order_example_is_exact_under_kills_and_says_what_it_does(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "examples.orders.demo", "--dir", str(tmp_path / "demo"), "--orders", "24000"]
    done = subprocess.run(
        command, cwd=ROOT, env=surroundings(), capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    for said in (
        "Killing the slot", "Killing the broker", "Killing the driver", "starts the same command again",
        "sees 24,000 invoices of 24,000 orders", "lost: 0   doubled or wrong: 0", "EXACTLY ONCE",
    ):  # fmt: skip
        assert said in done.stdout, done.stdout


@pytest.mark.usefixtures("kafka")
def test_what_is_lost_or_doubled_is_counted(tmp_path: Path) -> None:
    """An audit that could not fail would prove nothing. It has a broker of its own, for its topics' names are fixed."""
    from confluent_kafka import Producer

    from examples.orders.shop import Auditor, Shop, make_topics

    with KafkaBroker(tmp_path / "kafka") as kafka:
        make_topics(kafka.bootstrap_servers)
        shop = Shop(4, 100.0)
        (first, state), *_ = shop.expected()
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        for _ in range(2):
            producer.produce("invoices", f'{{"order": {first}, "state": "{state}"}}'.encode())
        assert producer.flush(30) == 0
        auditor = Auditor(kafka.bootstrap_servers)
        auditor.read_to_the_end()
        auditor.close()
        assert (shop.expected() - auditor.seen).total() == 3
        assert auditor.seen - shop.expected() == {(first, state): 1}
