"""Workload "kafka": count per key and second of event time, from a topic to a topic, beside the peers.

    kafka_throughput.py [rows=10000000] [python_rows=400000] [keys=10000] [parallelism=2] [rounds=1]
                        [peers=flink,spark,pyflink] [any.option=...]

One broker, one topic of "key,time in ms,padding", 100 bytes each, which all read in turns; each writes to a topic of
its own, exactly once (Structured Streaming: at least once). The time is that of the job alone: sessions and JVMs run
before. An independent consumer of committed records adds up what came out. PyFlink reads a topic of `python_rows`.
Prints one line of JSON last.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Consumer, KafkaError, TopicPartition

from kafka_topics import broker_in, create_topic, fill
from measuring import Arguments, configured, parse_arguments, print_result, scattered
from penstock.common import Duration, Types, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment, TumblingEventTimeWindows
from penstock.datastream.columnar import count
from penstock.datastream.connectors.kafka import (
    DeliveryGuarantee,
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from penstock.datastream.formats.csv import CsvRowDeserializationSchema, CsvRowSerializationSchema
from penstock.spark.session import open_session

DEFAULTS = {
    "rows": "10000000",
    "python_rows": "400000",
    "keys": "10000",
    "parallelism": "2",
    "rounds": "1",
    "peers": "flink,spark,pyflink",
}
VALUE_BYTES = 100
ROWS_PER_MS = 1000
BATCH_ROWS = 1_000_000
LIMIT_S = 900.0
PEER = Path(__file__).parent / "peers" / "peer"
VALUE = Types.ROW_NAMED(["key", "time_ms", "padding"], [Types.LONG(), Types.LONG(), Types.STRING()])


def values(first: int, last: int, keys: int, part: int, parts: int) -> list[bytes]:
    """The values of rows [first, last) that belong to one partition."""
    indices = np.arange(first + part, last, parts, dtype=np.int64)
    heads = pc.binary_join_element_wise(
        pc.cast(pa.array(scattered(indices, keys)), pa.string()),
        pc.cast(pa.array(indices // ROWS_PER_MS), pa.string()),
        ",",
    )
    padded = pc.utf8_rpad(pc.binary_join_element_wise(heads, "", ","), VALUE_BYTES, "x")
    return [text.encode() for text in padded.to_pylist()]


def fill_topic(servers: str, topic: str, rows: int, keys: int, partitions: int) -> None:
    create_topic(servers, topic, partitions)
    for first in range(0, rows, BATCH_ROWS):
        for part in range(partitions):
            fill(servers, topic, values(first, min(first + BATCH_ROWS, rows), keys, part, partitions), part)


def run_ours(args: Arguments, servers: str, topic: str, out: str, home: Path, rows: int) -> dict[str, Any]:
    defaults = {
        "parallelism.default": args.values["parallelism"],
        "execution.checkpointing.interval": "1 s",
        "execution.checkpointing.dir": (home / "checkpoints" / out).as_uri(),
    }
    env = StreamExecutionEnvironment.get_execution_environment(configured(defaults, args.options))
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(servers)
        .set_topics(topic)
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_bounded(KafkaOffsetsInitializer.latest())
        .set_value_only_deserializer(CsvRowDeserializationSchema.Builder(VALUE).build())
        .build()
    )
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("time_ms")
    counted = (
        env.from_source(source, strategy, "in")
        .key_by("key")
        .window(TumblingEventTimeWindows.of(Duration.of_seconds(1)))
        .aggregate(rows=count())
        .select("key", "window_start", "rows")
    )
    values = CsvRowSerializationSchema.Builder(counted.get_type()).build()
    sink = (
        KafkaSink.builder()
        .set_bootstrap_servers(servers)
        .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .set_transactional_id_prefix(out)
        .set_record_serializer(
            KafkaRecordSerializationSchema.builder().set_topic(out).set_value_serialization_schema(values).build()
        )
        .build()
    )
    counted.sink_to(sink)
    began = time.monotonic()
    env.execute("kafka")
    seconds = time.monotonic() - began
    return {"peer": "penstock", "rows": rows, "seconds": round(seconds, 3), "rows_per_s": round(rows / seconds)}


def run_peer(name: str, args: Arguments, servers: str, topic: str, out: str, rows: int) -> dict[str, Any] | None:
    """Returns the better mode of PyFlink."""
    call = [f"servers={servers}", f"in={topic}", f"rows={rows}", f"parallelism={args.values['parallelism']}"]
    checkpoints = ["execution.checkpointing.interval=1 s"] if name == "flink" else []
    modes: list[list[str]] = [["mode=process"], ["mode=thread"]] if name == "pyflink" else [[]]
    if name == "spark":
        modes = [["batch=2000000"]]
    found = []
    for number, mode in enumerate(modes):
        done = subprocess.run(
            [str(PEER), f"{name}-kafka", *call, f"out={out}{number or ''}", *mode, *checkpoints],
            stdout=subprocess.PIPE, text=True, timeout=LIMIT_S, check=False,
        )  # fmt: skip
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        if lines:
            found.append(json.loads(lines[-1]) | {"out": f"{out}{number or ''}"})
        else:
            print(f"{name} {mode}: no result (exit code {done.returncode})", file=sys.stderr)
    return max(found, key=lambda result: float(result["rows_per_s"]), default=None)


def counted_rows(servers: str, topic: str, partitions: int) -> int:
    """Add up what a consumer of committed records sees: of each key and second its last count."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers, "group.id": "independent", "enable.auto.commit": False,
            "isolation.level": "read_committed", "enable.partition.eof": True,
        }
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    counts: dict[bytes, int] = {}
    ended: set[int | None] = set()
    while len(ended) < partitions:
        for message in consumer.consume(10_000, 0.1):
            if (error := message.error()) is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(message.partition())
            else:
                key, _, rows = (message.value() or b"").rpartition(b",")
                counts[key] = max(counts.get(key, 0), int(rows))
    consumer.close()
    return sum(counts.values())


def measure(args: Arguments) -> dict[str, Any]:
    home, partitions = Path(tempfile.mkdtemp(prefix="penstock-kafka-")), args.whole("parallelism")
    sizes = {"in": args.whole("rows"), "few": args.whole("python_rows")}
    peers = [name for name in args.values["peers"].split(",") if name]
    found: dict[str, list[dict[str, Any]]] = {}
    exact: dict[str, bool] = {}
    try:
        with broker_in(home / "kafka") as broker:
            servers = broker.bootstrap_servers
            for topic, rows in sizes.items():
                fill_topic(servers, topic, rows, args.whole("keys"), partitions)
            for number in range(args.whole("rounds")):
                for name in ("penstock", *peers):
                    out, topic = f"{name}-{number}", "few" if name == "pyflink" else "in"
                    for suffix in ("", "1") if name == "pyflink" else ("",):
                        create_topic(servers, out + suffix, partitions)
                    if name == "penstock":
                        spark = open_session("penstock benchmark", partitions).context
                        result: dict[str, Any] | None = run_ours(args, servers, topic, out, home, sizes[topic])
                        spark.stop()
                    else:
                        result = run_peer(name, args, servers, topic, out, sizes[topic])
                    if result is not None:
                        print(f"{name}: {result['rows_per_s']:,} rows/s", file=sys.stderr)
                        found.setdefault(name, []).append(result)
                        seen = counted_rows(servers, result.get("out", out), partitions)
                        exact[name] = exact.get(name, True) and seen == sizes[topic]
    finally:
        shutil.rmtree(home, ignore_errors=True)
    rates = {
        name: statistics.median(r["rows_per_s"] for r in results)
        for name, results in found.items()
        if exact[name] or name == "penstock"  # the rate of a peer whose output is not complete says nothing
    }
    fields = {("" if name == "penstock" else f"{name}_") + "rows_per_s": rate for name, rate in rates.items()}
    return {
        "peer": "penstock",
        "workload": "kafka",
        "options": args.options,
        "rows": sizes["in"],
        **fields,
        "exact": exact["penstock"],
        "peers_exact": {name: e for name, e in exact.items() if name != "penstock"},
    }


if __name__ == "__main__":
    result = measure(parse_arguments(sys.argv[1:], DEFAULTS))
    print_result(result)
    sys.exit(0 if result["exact"] else 1)
