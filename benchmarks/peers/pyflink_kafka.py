"""Workload "kafka" on PyFlink, in its `process` or `thread` mode. See README.md."""

import json
import sys
import time
from pathlib import Path

from pyflink.common import Configuration, Duration, SimpleStringSchema, Time, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.base import DeliveryGuarantee
from pyflink.datastream.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from pyflink.datastream.window import TumblingEventTimeWindows

args = dict(argument.split("=", 1) for argument in sys.argv[1:])
rows = int(args["rows"])


class Timestamp(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return int(value.split(",", 2)[1])


def parse(text):
    key, time_ms, _ = text.split(",", 2)
    return int(key), 1, int(time_ms) // 1000


options = Configuration()
options.set_string("python.execution-mode", args["mode"])
options.set_string("python.executable", sys.executable)
options.set_string("pipeline.jars", ";".join(f"file://{jar}" for jar in Path(args["jars"]).glob("*.jar")))
options.set_string("execution.checkpointing.interval", "1 s")
env = StreamExecutionEnvironment.get_execution_environment(options)
env.set_parallelism(int(args["parallelism"]))
source = (
    KafkaSource.builder()
    .set_bootstrap_servers(args["servers"])
    .set_topics(args["in"])
    .set_group_id("pyflink")
    .set_starting_offsets(KafkaOffsetsInitializer.earliest())
    .set_bounded(KafkaOffsetsInitializer.latest())
    .set_value_only_deserializer(SimpleStringSchema())
    .build()
)
values = KafkaRecordSerializationSchema.builder().set_topic(args["out"])
sink = (
    KafkaSink.builder()
    .set_bootstrap_servers(args["servers"])
    .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
    .set_transactional_id_prefix(args["out"])
    .set_property("transaction.timeout.ms", "600000")
    .set_record_serializer(values.set_value_serialization_schema(SimpleStringSchema()).build())
    .build()
)
strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Timestamp())
counted = (
    env.from_source(source, strategy, "in")
    .map(parse, Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG()]))
    .key_by(lambda row: row[0], Types.LONG())
    .window(TumblingEventTimeWindows.of(Time.seconds(1)))
    .reduce(lambda a, b: (a[0], a[1] + b[1], a[2]))
)
counted.map(lambda row: f"{row[0]},{row[2]},{row[1]}", Types.STRING()).sink_to(sink)
began = time.monotonic()
env.execute("kafka")
seconds = time.monotonic() - began
found = {"peer": "pyflink", "mode": args["mode"], "workload": "kafka", "rows": rows}
print(json.dumps(found | {"seconds": round(seconds, 3), "rows_per_s": round(rows / seconds)}), flush=True)
