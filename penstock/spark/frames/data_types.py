"""Converts between Spark SQL's types and ours, for rows that pass between them in files.

The way to our types and back is the identity; a type for which it would not be is refused by name. BIG_INT and BIG_DEC,
whose values have no bound, are their decimal text. Columns may be null on the way back, as in all files that Spark
reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import types as sql

from penstock.common.row_types import scalar_types as scalar
from penstock.common.row_types.columns import ColumnType
from penstock.common.row_types.composite_types import ListType, MapType, RowType, TupleType
from penstock.common.typeinfo import RESERVED_COLUMNS, TypeInformation

_TO_OURS: dict[type[sql.DataType], ColumnType] = {
    sql.BooleanType: scalar.BOOLEAN,
    sql.ByteType: scalar.BYTE,
    sql.ShortType: scalar.SHORT,
    sql.IntegerType: scalar.INT,
    sql.LongType: scalar.LONG,
    sql.FloatType: scalar.FLOAT,
    sql.DoubleType: scalar.DOUBLE,
    sql.StringType: scalar.STRING,
    sql.BinaryType: scalar.BYTES,
    sql.DateType: scalar.SQL_DATE,
    sql.TimestampType: scalar.INSTANT,
    sql.TimestampNTZType: scalar.SQL_TIMESTAMP,
}

_TO_SPARK: dict[ColumnType, sql.DataType] = {
    scalar.BOOLEAN: sql.BooleanType(),
    scalar.BYTE: sql.ByteType(),
    scalar.SHORT: sql.ShortType(),
    scalar.INT: sql.IntegerType(),
    scalar.LONG: sql.LongType(),
    scalar.FLOAT: sql.FloatType(),
    scalar.DOUBLE: sql.DoubleType(),
    scalar.STRING: sql.StringType(),
    scalar.BYTES: sql.BinaryType(),
    scalar.BIG_INT: sql.StringType(),
    scalar.BIG_DEC: sql.StringType(),
    scalar.SQL_DATE: sql.DateType(),
    scalar.SQL_TIMESTAMP: sql.TimestampNTZType(),
    scalar.INSTANT: sql.TimestampType(),
}


class UnsupportedType(TypeError):
    """Signals that a column cannot pass between Spark and Penstock. The message names it, its type, and the way out."""


def row_type_of(schema: sql.StructType) -> RowType:
    """Return ROW_NAMED with a field per column of a DataFrame. Raises `UnsupportedType`."""
    names = schema.names
    if not names:
        raise UnsupportedType("the DataFrame has no columns: select at least one before from_spark()")
    for name in names:
        if name in RESERVED_COLUMNS:
            raise UnsupportedType(f"the column name {name!r} is reserved for Penstock's own columns: rename it")
        if names.count(name) > 1:
            raise UnsupportedType(f"the column name {name!r} occurs {names.count(name)} times: rename one of them")
    return RowType(tuple(_ours(f.dataType, f.name) for f in schema.fields), tuple(names))


def _ours(spark: sql.DataType, column: str) -> ColumnType:
    if isinstance(spark, sql.ArrayType):
        return ListType(_ours(spark.elementType, f"{column}[]"))
    if isinstance(spark, sql.MapType):
        return MapType(_ours(spark.keyType, f"{column} (key)"), _ours(spark.valueType, f"{column} (value)"))
    if isinstance(spark, sql.StructType) and spark.names:
        fields = tuple(_ours(f.dataType, f"{column}.{f.name}") for f in spark.fields)
        return RowType(fields, tuple(spark.names))
    if isinstance(spark, sql.DecimalType):
        if spark.scale < 0:  # Spark has these with spark.sql.legacy.allowNegativeScaleOfDecimal
            raise UnsupportedType(
                f"column {column!r} is Spark's {spark.simpleString()}, and there are no decimals of a negative scale "
                f"here: cast it, e.g. to decimal({min(38, spark.precision - spark.scale)},0), before from_spark()"
            )
        return scalar.decimal_type(spark.precision, spark.scale)
    ours = _TO_OURS.get(type(spark))
    if ours is None or (isinstance(spark, sql.StringType) and spark != sql.StringType()):
        raise UnsupportedType(
            f"column {column!r} is Spark's {spark.simpleString()}, for which there is no type here: cast it (e.g. to "
            "string) or drop it before from_spark()"
        )
    return ours


def schema_of(row_type: TypeInformation) -> sql.StructType:
    """Return the columns in which a sink writes rows of this type. Raises `UnsupportedType`."""
    names: Sequence[str] = row_type.schema.names
    types: Sequence[Any] = row_type.field_types if isinstance(row_type, RowType | TupleType) else [row_type]
    return sql.StructType([sql.StructField(n, _spark(t, n)) for n, t in zip(names, types)])


def _spark(ours: ColumnType, column: str) -> sql.DataType:
    if isinstance(ours, ListType):
        return sql.ArrayType(_spark(ours.element_type, f"{column}[]"))
    if isinstance(ours, MapType):
        return sql.MapType(_spark(ours.key_type, f"{column} (key)"), _spark(ours.value_type, f"{column} (value)"))
    if isinstance(ours, RowType | TupleType):
        fields = zip(ours.field_names, ours.field_types)
        return sql.StructType([sql.StructField(n, _spark(t, f"{column}.{n}")) for n, t in fields])
    if isinstance(ours, scalar.DecimalType):
        return sql.DecimalType(ours.precision, ours.scale)
    spark = _TO_SPARK.get(ours)
    if spark is None:
        raise UnsupportedType(
            f"column {column!r} is {ours}, which a Spark DataFrame cannot hold: convert it in a map before to_spark()"
        )
    return spark
