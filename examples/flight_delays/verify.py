"""Compares what the job should have written, computed by Spark in one batch, with what it has written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from flights import FlightFiles
from job import DELAYED_MINUTES, FAIR, FOG, FOG_VISIBILITY, NO_WEATHER, RAIN, TOTALS, WEATHER_NAMES, WIND, WIND_SPEED

KEY = ("carrier", "hour")
FLIGHT_COLUMNS = ("flight_id", *KEY, "seats", "weather")


@dataclass(frozen=True)
class Verdict:
    """`differences` says in words what is wrong; empty means exact."""

    rows: int
    differences: tuple[str, ...]

    @property
    def exact(self) -> bool:
        return not self.differences


def verify(spark: SparkSession, files: FlightFiles, output: Path) -> Verdict:
    """Three claims: each flight came out exactly once, with the right plane and weather; the running totals of a key
    count 1, 2, 3, … without gap or repetition; the last ones are the batch's."""
    spark.conf.set("spark.sql.shuffle.partitions", "4")
    written = spark.read.option("recursiveFileLookup", "true").parquet(str(output)).cache()
    joined = batch_join(spark, files).cache()
    try:
        rows = written.count()
        differences = [f"{rows} rows were written, {files.rows} expected"] if rows != files.rows else []
        differences += difference("flights", written.select(*FLIGHT_COLUMNS), joined.select(*FLIGHT_COLUMNS))
        differences += repetitions(written)
        differences += difference("final statistics", last_totals(written), batch_totals(joined))
        return Verdict(rows, tuple(differences))
    finally:
        written.unpersist()
        joined.unpersist()


def batch_join(spark: SparkSession, files: FlightFiles) -> DataFrame:
    weather = spark.read.parquet(str(files.weather)).withColumn(
        "weather",
        F.when(F.col("rain") > 0, RAIN)
        .when(F.col("visibility") < FOG_VISIBILITY, FOG)
        .when(F.col("wind") >= WIND_SPEED, WIND)
        .otherwise(FAIR)
        .cast("long"),
    )
    flights = spark.read.parquet(str(files.flights))
    return (
        flights.join(spark.read.parquet(str(files.planes)), "tailnum", "left")
        .join(weather.select("origin", "hour_ms", "weather"), ["origin", "hour_ms"], "left")
        .fillna(0, ["seats"])
        .fillna(NO_WEATHER, ["weather"])
    )


def batch_totals(joined: DataFrame) -> DataFrame:
    def count_if(condition: Column) -> Column:
        return F.count(F.when(condition, 1))

    columns = {
        "flights": F.count(F.lit(1)),
        "cancelled": count_if(F.col("dep_delay").isNull()),
        "delayed": count_if(F.col("dep_delay") > DELAYED_MINUTES),
        "dep_delay_sum": F.coalesce(F.sum("dep_delay"), F.lit(0)),
        "dep_delay_min": F.coalesce(F.min("dep_delay"), F.lit(0)),
        "dep_delay_max": F.coalesce(F.max("dep_delay"), F.lit(0)),
        "arr_delay_sum": F.coalesce(F.sum("arr_delay"), F.lit(0)),
        "seats_sum": F.sum("seats"),
        **{name: count_if(F.col("weather") == kind) for kind, name in enumerate(WEATHER_NAMES)},
    }
    return joined.groupBy(*KEY).agg(*(column.alias(name) for name, column in columns.items()))


def last_totals(written: DataFrame) -> DataFrame:
    names = ("flights", *TOTALS, *WEATHER_NAMES)
    last = written.groupBy(*KEY).agg(F.max_by(F.struct(*names), "flights").alias("last"))
    return last.select(*KEY, *(f"last.{name}" for name in names))


def repetitions(written: DataFrame) -> list[str]:
    repeated = written.groupBy(*KEY, "flights").count().where("count > 1").take(3)
    return [f"{row.carrier} at {row.hour}: result {row.flights} was written {row['count']} times" for row in repeated]


def difference(what: str, actual: DataFrame, expected: DataFrame) -> list[str]:
    """Both directions, as multisets; the first few rows of each."""
    surplus = actual.exceptAll(expected).take(3)
    missing = expected.exceptAll(actual).take(3)
    return [f"{what}: not expected: {row.asDict()}" for row in surplus] + [
        f"{what}: missing: {row.asDict()}" for row in missing
    ]
