"""Tests that a DataFrame's round trip is the identity for every type, in every time zone of the session."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql import types as sql

from penstock.common import Types
from penstock.datastream.columnar import max_, sum_
from penstock.spark.frames.data_types import UnsupportedType, row_type_of, schema_of
from tests.spark.small_jobs import environment

pytestmark = [pytest.mark.spark, pytest.mark.timeout(200), pytest.mark.usefixtures("spark_session")]

ROWS = 60
ZONES = ["UTC", "Europe/Vienna", "America/New_York"]
_HOUR = timedelta(hours=1)


def decimals(random: Random, precision: int, scale: int) -> Decimal:
    digits = random.randrange(1, precision + 1)
    number = random.randrange(-(10**digits) + 1, 10**digits)
    sign, figures, _ = Decimal(number).as_tuple()
    return Decimal((sign, figures, -scale))


def instants(random: Random) -> datetime:
    """Points in time around the changes to and from daylight saving time, and far from today."""
    around = random.choice([datetime(2024, 3, 31), datetime(2024, 10, 27), datetime(1900, 1, 1), datetime(1583, 2, 3)])
    return (around + random.randrange(48) * _HOUR / 2 + timedelta(microseconds=random.randrange(10**6))).replace(
        tzinfo=UTC
    )


SCALARS: list[tuple[sql.DataType, Any]] = [
    (sql.BooleanType(), lambda r: r.random() < 0.5),
    (sql.ByteType(), lambda r: r.randrange(-128, 128)),
    (sql.ShortType(), lambda r: r.randrange(-(2**15), 2**15)),
    (sql.IntegerType(), lambda r: r.randrange(-(2**31), 2**31)),
    (sql.LongType(), lambda r: r.randrange(-(2**63), 2**63)),
    (sql.FloatType(), lambda r: r.choice([0.5, -1.25, float("inf"), 3.0])),
    (sql.DoubleType(), lambda r: r.choice([0.1, -1e300, float("-inf"), 3.0])),
    (sql.StringType(), lambda r: r.choice(["", "ü", "x" * 50, "\x00"])),
    (sql.BinaryType(), lambda r: bytearray(r.randbytes(r.randrange(4)))),
    (sql.DateType(), lambda r: r.choice([date(1, 1, 1), date(1582, 10, 15), date(2024, 2, 29), date(9999, 12, 31)])),
    (sql.TimestampType(), instants),
    (sql.TimestampNTZType(), lambda r: instants(r).replace(tzinfo=None)),
    *((sql.DecimalType(p, s), lambda r, p=p, s=s: decimals(r, p, s)) for p, s in ((1, 0), (9, 2), (18, 18), (38, 10))),
]


def kinds() -> Iterator[tuple[sql.DataType, Any]]:
    """Every type on its own, in arrays, in maps and in structs."""
    for type, draw in SCALARS:
        yield type, draw
        yield sql.ArrayType(type), lambda r, d=draw: [none_or(r, d) for _ in range(r.randrange(3))]
        yield (
            sql.MapType(sql.StringType(), type),
            lambda r, d=draw: {f"k{n}": none_or(r, d) for n in range(r.randrange(3))},
        )
        nested = sql.StructType([sql.StructField("a", type), sql.StructField("b", sql.ArrayType(type))])
        yield nested, lambda r, d=draw: (none_or(r, d), [d(r)])


def none_or(random: Random, draw: Any) -> Any:
    return None if random.random() < 0.2 else draw(random)


def frame_of_all_types(session: SparkSession, columns: list[tuple[sql.DataType, Any]], seed: int) -> DataFrame:
    random = Random(seed)
    schema = sql.StructType([sql.StructField("id", sql.LongType())])
    for number, (type, _) in enumerate(columns):
        schema.add(f"c{number}", type)
    rows = [(id, *(none_or(random, draw) for _, draw in columns)) for id in range(ROWS)]
    return session.createDataFrame(rows, schema)


def plain(schema: sql.DataType) -> str:
    return schema.simpleString()


@pytest.mark.parametrize("fixed_size", [True, False], ids=["arrow", "parquet"])
@pytest.mark.parametrize("zone", ZONES)
def test_the_round_trip_is_the_identity(spark_session: SparkSession, zone: str, fixed_size: bool) -> None:
    before = str(spark_session.conf.get("spark.sql.session.timeZone"))
    spark_session.conf.set("spark.sql.session.timeZone", zone)
    try:
        columns = [c for c in SCALARS if not isinstance(c[0], sql.StringType | sql.BinaryType)]
        frame = frame_of_all_types(spark_session, columns if fixed_size else list(kinds()), ZONES.index(zone)).cache()
        rows = environment(2).from_spark(frame)
        through_python = rows.map(lambda row: row, rows.get_type())
        for stream in (rows, through_python) if fixed_size else (through_python,):
            found = stream.to_spark(spark_session)
            assert plain(found.schema) == plain(frame.schema)
            assert sorted(found.collect(), key=lambda r: r.id) == sorted(frame.collect(), key=lambda r: r.id)
            if fixed_size:
                keys = [name for name in frame.columns if name != "id"]
                assert found.join(frame.na.drop(), ["id", *keys]).count() == frame.na.drop().count() > 0
    finally:
        spark_session.conf.set("spark.sql.session.timeZone", before)


def test_decimals_are_numbers_in_columns(spark_session: SparkSession) -> None:
    import pyarrow.compute as pc

    frame = spark_session.range(1000).select(
        (sf.col("id") % 7).alias("key"), (sf.col("id") * sf.lit(Decimal("1.25"))).cast("decimal(20, 2)").alias("amount")
    )
    rows = environment(2).from_spark(frame)
    doubled = rows.with_columns(twice=pc.field("amount") + pc.field("amount")).filter(pc.field("amount") > Decimal(100))
    totals = doubled.key_by("key").aggregate(total=sum_("twice"), most=max_("amount"))
    newest = totals.to_spark(spark_session).groupBy("key").agg(sf.max("total").alias("total"), sf.max("most"))
    wanted = frame.filter("amount > 100").groupBy("key").agg(sf.sum("amount") * 2, sf.max("amount"))
    assert sorted(map(tuple, newest.collect())) == sorted(map(tuple, wanted.collect()))
    row_type = totals.get_type()
    assert row_type is not None and plain(schema_of(row_type)["total"].dataType) == "decimal(38,2)"


REFUSED = [
    sql.DayTimeIntervalType(), sql.YearMonthIntervalType(), sql.NullType(), sql.CharType(5), sql.VarcharType(5),
    sql.ArrayType(sql.DayTimeIntervalType()),
    *([sql.StringType("UTF8_LCASE")] if hasattr(sql.StringType(), "collation") else []),
    *([sql.VariantType()] if hasattr(sql, "VariantType") else []),
]  # fmt: skip


@pytest.mark.parametrize("type", REFUSED, ids=str)
def test_other_types_are_refused_by_name(type: sql.DataType) -> None:
    with pytest.raises(UnsupportedType, match=r"column 'odd(\[\])?' is Spark's .*: cast it"):
        row_type_of(sql.StructType([sql.StructField("odd", type)]))


def test_types_without_a_twin_in_spark_are_refused_or_texts(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedType, match="column 'at' is SQL_TIME"):
        schema_of(Types.ROW_NAMED(["at"], [Types.SQL_TIME()]))
    big = schema_of(Types.ROW_NAMED(["a", "b"], [Types.BIG_DEC(), Types.BIG_INT()]))
    assert [plain(field.dataType) for field in big.fields] == ["string", "string"]
