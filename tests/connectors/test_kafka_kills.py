"""Moves rows from Kafka through keyed state to Kafka, exactly once, while slots, drivers and the broker are killed by
SIGKILL.

What an independent reader of committed records sees at the end decides: each key's counts are 1, 2, 3, …, each once.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.connectors.topics import read_committed, topic
from tests.reporting_driver import EXECUTE_AND_REPORT, Driver, runs
from tools.kafka_broker import KafkaBroker

ROOT = Path(__file__).resolve().parents[2]
JOB_ID = "00000000000000000000000000c0ffee"
KEYS, PARTITIONS, ROWS = 7, 2, 24_000
HELD_BACK = 2_000
"""So many rows come when all kills are done, so that the job cannot end before."""
ROWS_PER_SECOND = 800.0
LIMIT_S = 240.0
KILLS = ("slot", "broker", "driver", "slot", "broker", "driver", "slot")

PROGRAM = """
import json, os, sys, threading, time
from pathlib import Path

from penstock.common import Configuration, SimpleStringSchema, Types, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.kafka import (
    DeliveryGuarantee, KafkaOffsetsInitializer, KafkaRecordSerializationSchema, KafkaSink, KafkaSource,
    KafkaTopicPartition,
)

servers, source_topic, sink_topic, root, job_id, rows = sys.argv[1:]
options = {
    "execution.checkpointing.interval": "300 ms",
    "execution.checkpointing.dir": root,
    "execution.checkpointing.unaligned.enabled": "true",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1000",
    "restart-strategy.fixed-delay.delay": "100 ms",
    "pipeline.job-id": job_id,
}
if (Path(root) / job_id / "log").is_dir():
    del options["pipeline.job-id"]
    options["execution.state-recovery.path"] = f"{root}/{job_id}"
env = StreamExecutionEnvironment.get_execution_environment(Configuration(options))
env.set_parallelism(2)
ends = {KafkaTopicPartition(source_topic, partition): int(rows) // 2 for partition in range(2)}
source = (
    KafkaSource.builder().set_bootstrap_servers(servers).set_topics(source_topic).set_group_id("kills")
    .set_bounded(KafkaOffsetsInitializer.offsets(ends)).set_value_only_deserializer(SimpleStringSchema()).build()
)
serializer = KafkaRecordSerializationSchema.builder().set_topic(sink_topic)
sink = (
    KafkaSink.builder().set_bootstrap_servers(servers).set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
    .set_record_serializer(serializer.set_value_serialization_schema(SimpleStringSchema()).build())
    .set_transactional_id_prefix("kills").build()
)
PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])
numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
keyed = numbers.map(lambda text: (int(text) % 7, 1), PAIR).key_by(lambda pair: pair[0], Types.LONG())
counted = keyed.reduce(lambda a, b: (a[0], a[1] + b[1]))
counted.map(lambda pair: f"{pair[0]}:{pair[1]}", Types.STRING()).sink_to(sink)
"""


def produce(broker: KafkaBroker, name: str, all_killed: threading.Event, stop: threading.Event) -> None:
    """Produce the numbers in their time, over the kills of the broker; the last ones after all kills."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True})
    began = time.monotonic()
    for number in range(ROWS):
        while number == ROWS - HELD_BACK and not all_killed.wait(0.1) and not stop.is_set():
            producer.poll(0)
        producer.produce(name, str(number).encode(), partition=number % PARTITIONS)
        if number % 80 == 79:
            producer.poll(0)
            stop.wait(max(0.0, number / ROWS_PER_SECOND - (time.monotonic() - began)))
            if stop.is_set():
                return
    assert producer.flush(LIMIT_S) == 0


@pytest.mark.timeout(LIMIT_S + 60)
def test_each_row_counts_once_while_slots_drivers_and_the_broker_are_killed(kafka: KafkaBroker, tmp_path: Path) -> None:
    source, sink = topic(kafka, PARTITIONS), topic(kafka, PARTITIONS)
    program = tmp_path / "job.py"
    program.write_text(PROGRAM + EXECUTE_AND_REPORT, encoding="utf-8")
    arguments = (kafka.bootstrap_servers, source, sink, str(tmp_path / "checkpoints"), JOB_ID, str(ROWS))
    all_killed, stop = threading.Event(), threading.Event()
    producing = threading.Thread(target=produce, args=(kafka, source, all_killed, stop), daemon=True)
    producing.start()
    chance, deadline = random.Random(14), time.monotonic() + LIMIT_S
    driver = Driver(program, *arguments)
    try:
        for victim in KILLS:
            running = driver.await_report(runs(1), deadline)
            assert running.state != "ENDED", "the job has ended before all rows were produced"
            if victim == "slot":
                os.kill(chance.choice(running.slot_pids), signal.SIGKILL)
            elif victim == "broker":
                kafka.kill()
                kafka.start()
            else:
                driver.kill()
                driver = Driver(program, *arguments)
            completed = running.completed if victim != "driver" else 0
            driver.await_report(runs(completed + 1), deadline)
        all_killed.set()
        driver.await_end(deadline)
    finally:
        stop.set()
        if driver.process.poll() is None:
            driver.kill()
    producing.join(30)
    seen = Counter(value.decode() for value in read_committed(kafka, sink))
    wanted = Counter(f"{key}:{n}" for key in range(KEYS) for n in range(1, len(range(key, ROWS, KEYS)) + 1))
    lost, doubled = wanted - seen, seen - wanted
    assert not lost and not doubled, (
        f"{lost.total()} lost {list(lost)[:5]}, {doubled.total()} too many {list(doubled)[:5]}"
    )
