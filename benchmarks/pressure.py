"""Workload "pressure" on Penstock, the twin of `peers/peer flink-pressure`: what checkpoints cost under backpressure.

    pressure.py [seconds=45] [sleep_us=1000] [parallelism=2] [busy=false] [any.option=...]

`busy=true`: the slow operator computes in pure Python instead of sleeping. Prints one line of JSON last. The memory
fields compare the end of the run with its first minute, so they want `seconds` well over 60.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import SparkContext

from measuring import (
    END_LIMIT_MS,
    ENDED,
    POLL_S,
    PRESSURE_ROW,
    RSS_SAMPLE_AFTER_S,
    START_LIMIT_S,
    Arguments,
    configured,
    generate_pressure,
    jvm_rss_bytes,
    parse_arguments,
    print_result,
    quantile,
    rss_bytes,
    wait_until,
)
from penstock.common import Types, WatermarkStrategy
from penstock.connectors.memory.discard import DiscardingSink
from penstock.datastream import JobClient, KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.connectors.base import Sink
from penstock.datastream.connectors.datagen import BatchGeneratorSource
from penstock.datastream.state import ValueStateDescriptor
from penstock.monitoring.report import CheckpointReport, JobReport
from penstock.spark.session import open_session

DEFAULTS = {"seconds": "45", "sleep_us": "1000", "parallelism": "2", "busy": "false"}
COUNT = Types.TUPLE([Types.LONG(), Types.LONG()])


class SlowCount(KeyedProcessFunction):
    """Counts rows per key, and takes `sleep_us` for each: asleep, or busy in pure Python."""

    def __init__(self, sleep_us: int, busy: bool) -> None:
        self.seconds = sleep_us / 1e6
        self.busy = busy

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: tuple[Any, ...], ctx: KeyedProcessFunction.Context) -> Iterator[tuple[int, int]]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        if self.busy:
            end = time.perf_counter() + self.seconds
            while time.perf_counter() < end:
                pass
        elif self.seconds:
            time.sleep(self.seconds)
        yield value[1], count


def declare(env: StreamExecutionEnvironment, sleep_us: int, busy: bool, sink: Sink) -> None:
    source = BatchGeneratorSource(generate_pressure, type_info=PRESSURE_ROW)
    (
        env.from_source(source, WatermarkStrategy.no_watermarks(), "source", type_info=PRESSURE_ROW)
        .rebalance()
        .map(lambda row: row, output_type=PRESSURE_ROW)
        .name("map")
        .key_by(lambda row: row[1], key_type=Types.LONG())
        .process(SlowCount(sleep_us, busy), output_type=COUNT)
        .name("slow count")
        .sink_to(sink)
    )


class Watch:
    """Follows a job for some seconds and keeps what its report forgets."""

    def __init__(self, spark: SparkContext) -> None:
        self._spark = spark
        self.checkpoints: dict[int, CheckpointReport] = {}
        self.memory: dict[str, Any] = {}

    def follow(self, client: JobClient, seconds: float) -> JobReport:
        started = time.monotonic()
        while True:
            report: JobReport = client.report()
            if report.state in ENDED:
                client.wait(END_LIMIT_MS)
            self.checkpoints.update({c.checkpoint_id: c for c in report.checkpoints if c.status == "completed"})
            elapsed = time.monotonic() - started
            if elapsed >= RSS_SAMPLE_AFTER_S and "driver_rss_bytes_1min" not in self.memory:
                self._sample("1min", report)
            if elapsed >= seconds:
                self._sample("end", report)
                return report
            time.sleep(POLL_S)

    def _sample(self, when: str, report: JobReport) -> None:
        self.memory[f"driver_rss_bytes_{when}"] = rss_bytes()
        self.memory[f"slots_rss_bytes_{when}"] = [rss_bytes(pid) for pid in report.slot_pids if pid is not None]
        self.memory[f"jvm_rss_bytes_{when}"] = jvm_rss_bytes(self._spark)


def measure(args: Arguments) -> dict[str, Any]:
    parallelism, seconds = args.whole("parallelism"), args.number("seconds")
    checkpoints_dir = Path(tempfile.mkdtemp(prefix="penstock-pressure-"))
    defaults = {
        "parallelism.default": str(parallelism),
        "execution.checkpointing.interval": "500 ms",
        "execution.checkpointing.timeout": "10 min",
        "execution.checkpointing.dir": checkpoints_dir.as_uri(),
        "web.checkpoints.history": "1000",
    }
    spark = open_session("penstock benchmark", parallelism).context
    try:
        env = StreamExecutionEnvironment.get_execution_environment(configured(defaults, args.options))
        declare(env, args.whole("sleep_us"), args.flag("busy"), DiscardingSink())
        client = env.execute_async("pressure")
        wait_until("running job", client, lambda r: r.state == "RUNNING", START_LIMIT_S)
        watch = Watch(spark)
        report = watch.follow(client, seconds)
        client.cancel().result(END_LIMIT_MS / 1000)
    finally:
        spark.stop()
        shutil.rmtree(checkpoints_dir, ignore_errors=True)
    done = list(watch.checkpoints.values())
    durations = [c.duration_ms for c in done if c.duration_ms is not None]
    return {
        "peer": "penstock",
        "workload": "pressure",
        "options": args.options,
        "seconds": seconds,
        "sleep_us": args.whole("sleep_us"),
        "busy": args.flag("busy"),
        "completed": len(done),
        "failed": report.failed,
        "duration_ms_p50": quantile(durations, 0.5),
        "duration_ms_p90": quantile(durations, 0.9),
        "duration_ms_max": round(max(durations), 3) if durations else None,
        "size_bytes_p50": quantile([c.written_bytes for c in done], 0.5),
        "persisted_bytes_p50": quantile([c.inflight_bytes for c in done], 0.5),
        "publication_ms_p50": quantile([c.publication_ms for c in done if c.publication_ms is not None], 0.5),
        "objects_written_max": max((c.objects_written for c in done), default=None),
        "restarts": report.restarts,
        **watch.memory,
    }


if __name__ == "__main__":
    print_result(measure(parse_arguments(sys.argv[1:], DEFAULTS)))
