"""A Spark DataFrame in, a keyed sum of its rows, Parquet out: against the same in Structured Streaming, in one run.

    dataframe.py [rows=10000000] [keys=10000] [parallelism=2] [rounds=1] [output=totals|rolling] [any.option=...]

Both take a DataFrame of (key, value, time) and end with a table of (key, sum). Neither can stream from a DataFrame, so
each writes it to files first, which counts. Ours: `env.from_spark`, the columnar sum in one window of event time, an
exactly-once Parquet sink; with `output=rolling` a row for each input instead, so ten million, of which the last of each
key is the sum. Structured Streaming: `readStream.parquet`, `groupBy`, `trigger(availableNow=True)`, each micro-batch's
totals to Parquet. Everything is in `local[parallelism + 2]`, Spark with `parallelism` shuffle partitions; the session
is warm for both. `exact`: both tables are right. Prints one line of JSON last.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.dataset
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from measuring import Arguments, configured, parse_arguments, print_result, scattered
from penstock.common import Duration, Types, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment, TumblingEventTimeWindows
from penstock.datastream.connectors.file_system import FileSink, ParquetBulkWriters
from penstock.spark.session import open_session

DEFAULTS = {"rows": "10000000", "keys": "10000", "parallelism": "2", "rounds": "1", "output": "totals"}
CHOICES = {"output": ("totals", "rolling")}
ALL_OF_TIME = Duration.of_days(365)
WARM_UP_ROWS = 100_000
ROLLING = Types.ROW_NAMED(["key", "sum_value"], [Types.LONG(), Types.LONG()])
TOTALS = Types.ROW_NAMED(
    ["key", "window_start", "window_end", "sum_value"], [Types.LONG(), Types.LONG(), Types.LONG(), Types.LONG()]
)


def make_frame(spark: SparkSession, rows: int, keys: int) -> DataFrame:
    index = F.col("id")
    return spark.range(rows).select(
        (index * 2654435761 % keys).alias("key"), index.alias("value"), (index / 1000).cast("long").alias("time_ms")
    )


def run_ours(args: Arguments, frame: DataFrame, output: Path) -> float:
    defaults = {"parallelism.default": args.values["parallelism"]}
    env = StreamExecutionEnvironment.get_execution_environment(configured(defaults, args.options))
    is_rolling = args.values["output"] == "rolling"
    time_of = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("time_ms")
    keyed = env.from_spark(frame, WatermarkStrategy.no_watermarks() if is_rolling else time_of).key_by("key")
    sums = (keyed if is_rolling else keyed.window(TumblingEventTimeWindows.of(ALL_OF_TIME))).sum("value")
    writers = ParquetBulkWriters.for_row_type(ROLLING if is_rolling else TOTALS)
    sums.sink_to(FileSink.for_bulk_format(str(output), writers).build())
    started = time.monotonic()
    env.execute("DataFrame")
    return time.monotonic() - started


def run_spark(frame: DataFrame, home: Path, output: Path) -> tuple[float, float]:
    """Seconds in all, and those for writing the DataFrame."""
    spark = frame.sparkSession
    rows = str(home / "rows")
    started = time.monotonic()
    frame.write.parquet(rows)
    written = time.monotonic()

    def save(totals: DataFrame, number: int) -> None:
        totals.write.parquet(f"{output}/{number}")

    sums = spark.readStream.schema(frame.schema).parquet(rows).groupBy("key").agg(F.sum("value").alias("sum_value"))
    query = (
        sums.writeStream.outputMode("update")
        .foreachBatch(save)
        .option("checkpointLocation", str(home / "checkpoints"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return time.monotonic() - started, written - started


def expected(rows: int, keys: int) -> np.ndarray:
    """The sum of each key's indices."""
    sums = np.zeros(keys, np.int64)
    for first in range(0, rows, 1 << 20):
        indices = np.arange(first, min(first + (1 << 20), rows), dtype=np.int64)
        # Weights are doubles; a chunk's sums are far below 2**53.
        sums += np.bincount(scattered(indices, keys), weights=indices, minlength=keys).astype(np.int64)
    return sums


def is_exact(output: Path, rows: int, keys: int) -> bool:
    """Return whether the output is exact: of sums that only grow, a key's last is its greatest."""
    files = [str(path) for path in output.rglob("*") if path.is_file() and not path.name.startswith(("_", "."))]
    table = pyarrow.dataset.dataset(files, format="parquet").to_table(["key", "sum_value"])
    last = table.group_by("key").aggregate([("sum_value", "max")]).sort_by("key")
    wanted = expected(rows, keys)
    present = np.flatnonzero(np.bincount(scattered(np.arange(rows, dtype=np.int64), keys), minlength=keys))
    return bool(
        np.array_equal(last["key"].to_numpy(), present)
        and np.array_equal(last["sum_value_max"].to_numpy(), wanted[present])
    )


def compare(args: Arguments, spark: SparkSession, rows: int, ours_first: bool) -> dict[str, Any]:
    keys = args.whole("keys")
    home = Path(tempfile.mkdtemp(prefix="penstock-dataframe-"))
    ours, theirs = home / "ours", home / "theirs"
    found: dict[str, Any] = {}

    def measure_ours() -> None:
        found["seconds"] = run_ours(args, make_frame(spark, rows, keys), ours)

    def measure_spark() -> None:
        found["spark_seconds"], found["spark_write_seconds"] = run_spark(make_frame(spark, rows, keys), home, theirs)

    try:
        for side in (measure_ours, measure_spark) if ours_first else (measure_spark, measure_ours):
            side()
        found["exact"] = is_exact(ours, rows, keys) and is_exact(theirs, rows, keys)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return found


def measure(args: Arguments) -> dict[str, Any]:
    parallelism, rows = args.whole("parallelism"), args.whole("rows")
    context = open_session("penstock benchmark", parallelism).context
    spark = SparkSession(context)
    spark.conf.set("spark.sql.shuffle.partitions", str(parallelism))
    try:
        compare(args, spark, WARM_UP_ROWS, ours_first=True)
        found = [compare(args, spark, rows, ours_first=n % 2 == 0) for n in range(args.whole("rounds"))]
    finally:
        spark.stop()
    median = {key: round(statistics.median(run[key] for run in found), 3) for key in found[0] if key != "exact"}
    return {
        "peer": "penstock",
        "workload": "dataframe",
        "output": args.values["output"],
        "options": args.options,
        "rows": rows,
        "keys": args.whole("keys"),
        "parallelism": parallelism,
        **median,
        "rows_per_s": round(rows / median["seconds"]),
        "spark_rows_per_s": round(rows / median["spark_seconds"]),
        "ratio": round(median["spark_seconds"] / median["seconds"], 3),
        "exact": all(run["exact"] for run in found),
    }


if __name__ == "__main__":
    result = measure(parse_arguments(sys.argv[1:], DEFAULTS, CHOICES))
    print_result(result)
    sys.exit(0 if result["exact"] else 1)
