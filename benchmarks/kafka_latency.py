"""Measures how long a record takes from its producer through Kafka, a Python map and Kafka again to a consumer.

    kafka_latency.py [guarantee=at-least-once|exactly-once] [seconds=60] [rows_per_s=10000] [warm_up_s=10]
                     [parallelism=2] [any.option=...]

Producer, broker, job and consumer are on one machine and have one clock. The producer stamps each record when it hands
it to its client; the consumer reads committed records only. A checkpoint each second. Prints one line of JSON last.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import Consumer, Producer, TopicPartition

from kafka_topics import broker_in, create_topic
from measuring import Arguments, configured, parse_arguments, print_result
from penstock.common import SimpleStringSchema, Types, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.kafka import (
    DeliveryGuarantee,
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from penstock.spark.session import open_session

DEFAULTS = {
    "guarantee": "at-least-once",
    "seconds": "60",
    "rows_per_s": "10000",
    "warm_up_s": "10",
    "parallelism": "2",
}
CHOICES = {"guarantee": ("at-least-once", "exactly-once")}
LINGER_MS = 1
LIMIT_S = 60.0


def declare(env: StreamExecutionEnvironment, servers: str, guarantee: DeliveryGuarantee) -> None:
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(servers)
        .set_topics("in")
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_value_only_deserializer(SimpleStringSchema())
        .set_property("fetch.wait.max.ms", "5")
        .build()
    )
    values = KafkaRecordSerializationSchema.builder().set_topic("out")
    sink = (
        KafkaSink.builder()
        .set_bootstrap_servers(servers)
        .set_delivery_guarantee(guarantee)
        .set_transactional_id_prefix("latency")
        .set_record_serializer(values.set_value_serialization_schema(SimpleStringSchema()).build())
        .set_property("linger.ms", str(LINGER_MS))
        .build()
    )
    env.from_source(source, WatermarkStrategy.no_watermarks(), "in").map(
        lambda text: text + "!", Types.STRING()
    ).sink_to(sink)


def produce(servers: str, seconds: float, rows_per_s: float, parallelism: int, failed: list[BaseException]) -> None:
    """Produce a record's number and its time. The rate is kept in steps of a millisecond."""
    try:
        producer = Producer({"bootstrap.servers": servers, "linger.ms": LINGER_MS, "acks": "all"})
        began, sent = time.monotonic(), 0
        while (now := time.monotonic()) < began + seconds:
            due = int((now - began) * rows_per_s)
            for number in range(sent, due):
                producer.produce("in", f"{number},{time.monotonic_ns()}".encode(), partition=number % parallelism)
            sent = due
            producer.poll(0)
            time.sleep(0.001)
        producer.produce("in", b"end", partition=0)
        if producer.flush(LIMIT_S):
            raise TimeoutError("the broker has not taken all records")
    except BaseException as error:
        failed.append(error)


def consume(servers: str, parallelism: int, failed: list[BaseException]) -> np.ndarray:
    """Return (number, stamp ns, age ns) of each record, up to the one that ends them."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "independent",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 5,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition("out", partition, 0) for partition in range(parallelism)])
    found: list[tuple[int, int, int]] = []
    ended, deadline = False, time.monotonic() + 2 * LIMIT_S
    while not ended or time.monotonic() < deadline:
        messages = consumer.consume(500, 0.002)
        now = time.monotonic_ns()
        for message in messages:
            if (error := message.error()) is not None:
                sys.exit(f"the consumer has failed: {error}")
            number, _, stamp = (message.value() or b"").rstrip(b"!").partition(b",")
            if number == b"end":
                ended, deadline = True, time.monotonic() + 5.0
            else:
                found.append((int(number), int(stamp), now - int(stamp)))
        if messages and not ended:
            deadline = time.monotonic() + LIMIT_S
        if failed or (not ended and time.monotonic() > deadline):
            sys.exit(f"no more records: {failed or 'the job is silent'}")
    consumer.close()
    return np.array(found, np.int64).reshape(-1, 3)


def measure(args: Arguments) -> dict[str, Any]:
    home, parallelism = Path(tempfile.mkdtemp(prefix="penstock-kafka-latency-")), args.whole("parallelism")
    guarantee = DeliveryGuarantee[args.values["guarantee"].upper().replace("-", "_")]
    defaults = {
        "parallelism.default": args.values["parallelism"],
        "execution.checkpointing.interval": "1 s",
        "execution.checkpointing.dir": (home / "checkpoints").as_uri(),
    }
    failed: list[BaseException] = []
    try:
        with broker_in(home / "kafka") as broker:
            servers = broker.bootstrap_servers
            for topic in ("in", "out"):
                create_topic(servers, topic, parallelism)
            spark = open_session("penstock benchmark", parallelism).context
            try:
                env = StreamExecutionEnvironment.get_execution_environment(configured(defaults, args.options))
                declare(env, servers, guarantee)
                client = env.execute_async("kafka latency")
                seconds, rate = args.number("seconds"), args.number("rows_per_s")
                producing = threading.Thread(target=produce, args=(servers, seconds, rate, parallelism, failed))
                producing.start()
                records = consume(servers, parallelism, failed)
                producing.join()
                report = client.report()
                client.cancel().result(LIMIT_S)
            finally:
                spark.stop()
    finally:
        shutil.rmtree(home, ignore_errors=True)
    numbers, stamps, ages = records.T
    measured = ages[stamps >= stamps.min() + int(args.number("warm_up_s") * 1e9)] / 1e6
    p50, p90, p99 = np.quantile(measured, [0.5, 0.9, 0.99])
    return {
        "peer": "penstock",
        "workload": "kafka latency",
        "guarantee": args.values["guarantee"],
        "options": args.options,
        "rows": len(measured),
        "achieved_rows_per_s": round(len(stamps) / (float(stamps.max() - stamps.min()) / 1e9)),
        "checkpoints": report.completed,
        "restarts": report.restarts,
        "latency_ms_p50": round(float(p50), 3),
        "latency_ms_p90": round(float(p90), 3),
        "latency_ms_p99": round(float(p99), 3),
        "latency_ms_max": round(float(measured.max()), 3),
        "exact": bool(len(np.unique(numbers)) == len(numbers) == numbers.max() + 1),
    }


if __name__ == "__main__":
    result = measure(parse_arguments(sys.argv[1:], DEFAULTS, CHOICES))
    print_result(result)
    sys.exit(0 if result["exact"] else 1)
