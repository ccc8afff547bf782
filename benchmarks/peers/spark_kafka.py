"""Workload "kafka" on Structured Streaming: at least once, in micro-batches of `batch` rows. See README.md."""

import json
import sys
import tempfile
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

args = dict(argument.split("=", 1) for argument in sys.argv[1:])
jars = ",".join(str(jar) for jar in Path(args["jars"]).glob("*.jar"))
spark = (
    SparkSession.builder.master(f"local[{args['parallelism']}]")
    .config("spark.jars", jars)
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", args["parallelism"])
    .config("spark.driver.memory", "4g")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")
values = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", args["servers"])
    .option("subscribe", args["in"])
    .option("startingOffsets", "earliest")
    .option("maxOffsetsPerTrigger", args["batch"])
    .load()
)
fields = F.split(F.col("value").cast("string"), ",")
counts = (
    values.select(fields[0].cast("long").alias("key"), (fields[1].cast("long") / 1000).cast("long").alias("second"))
    .groupBy("key", "second")
    .count()
)
text = F.concat_ws(",", "key", "second", "count").alias("value")
with tempfile.TemporaryDirectory() as checkpoints:
    began = time.monotonic()
    query = (
        counts.select(text)
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", args["servers"])
        .option("topic", args["out"])
        .option("checkpointLocation", checkpoints)
        .outputMode("update")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    seconds = time.monotonic() - began
rows = int(args["rows"])
found = {"peer": "spark", "workload": "kafka", "rows": rows, "seconds": round(seconds, 3), "rows_per_s": round(rows / seconds)}
print(json.dumps(found), flush=True)
