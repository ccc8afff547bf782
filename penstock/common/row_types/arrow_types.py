"""Finds the type of rows for the columns of a file.

A column whose Arrow type has no twin among our types is widened to the nearest that holds its values exactly
(unsigned to the next larger signed, dictionaries to what they hold, decimals of more than 38 digits to BIG_DEC).
Timestamps with a time zone are instants.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as kinds

from penstock.common.row_types import scalar_types as scalar
from penstock.common.row_types.columns import ColumnType
from penstock.common.row_types.composite_types import ListType, MapType, RowType
from penstock.common.typeinfo import RESERVED_COLUMNS

_EXACT: dict[pa.DataType, ColumnType] = {
    pa.bool_(): scalar.BOOLEAN,
    pa.int8(): scalar.BYTE,
    pa.int16(): scalar.SHORT,
    pa.int32(): scalar.INT,
    pa.int64(): scalar.LONG,
    pa.uint8(): scalar.SHORT,
    pa.uint16(): scalar.INT,
    pa.uint32(): scalar.LONG,
    pa.uint64(): scalar.LONG,
    pa.float16(): scalar.FLOAT,
    pa.float32(): scalar.FLOAT,
    pa.float64(): scalar.DOUBLE,
    pa.string(): scalar.STRING,
    pa.large_string(): scalar.STRING,
    pa.string_view(): scalar.STRING,
    pa.binary(): scalar.BYTES,
    pa.large_binary(): scalar.BYTES,
    pa.binary_view(): scalar.BYTES,
    pa.date32(): scalar.SQL_DATE,
    pa.date64(): scalar.SQL_DATE,
}


class UnsupportedColumn(TypeError):
    """Reports a column whose values no type of ours holds. `column` is its name."""

    def __init__(self, column: str, message: str) -> None:
        super().__init__(message)
        self.column = column


def row_type_of(schema: pa.Schema) -> RowType:
    """Make the row type with a named field for each column of an Arrow schema.

    Args:
        schema: The schema.

    Returns:
        The type, as `Types.ROW_NAMED` makes it.

    Raises:
        UnsupportedColumn: A column's name is reserved or occurs twice, or no type holds its values.
    """
    for name in schema.names:
        if name in RESERVED_COLUMNS:
            raise UnsupportedColumn(name, f"the column name {name!r} is reserved for Penstock's own columns")
        if schema.names.count(name) > 1:
            raise UnsupportedColumn(name, f"the column name {name!r} occurs {schema.names.count(name)} times")
    return RowType(tuple(column_type_of(f.type, f.name) for f in schema), tuple(schema.names))


def column_type_of(arrow: pa.DataType, column: str) -> ColumnType:
    """Find the type that holds the values of an Arrow type.

    Args:
        arrow: The Arrow type.
        column: The column's name, for the error.

    Returns:
        The type.

    Raises:
        UnsupportedColumn: No type holds such values.
    """
    if arrow in _EXACT:
        return _EXACT[arrow]
    if kinds.is_dictionary(arrow):
        return column_type_of(arrow.value_type, column)
    if kinds.is_decimal(arrow):
        if arrow.precision <= scalar.DECIMAL_DIGITS_MAX and 0 <= arrow.scale <= arrow.precision:
            return scalar.decimal_type(arrow.precision, arrow.scale)
        return scalar.BIG_DEC
    if kinds.is_timestamp(arrow):
        return scalar.SQL_TIMESTAMP if arrow.tz is None else scalar.INSTANT
    if kinds.is_time(arrow):
        return scalar.SQL_TIME
    if kinds.is_fixed_size_binary(arrow):
        return scalar.BYTES
    if kinds.is_list(arrow) or kinds.is_large_list(arrow) or kinds.is_fixed_size_list(arrow):
        return ListType(column_type_of(arrow.value_type, f"{column}[]"))
    if kinds.is_map(arrow):
        return MapType(
            column_type_of(arrow.key_type, f"{column} (key)"), column_type_of(arrow.item_type, f"{column} (value)")
        )
    if kinds.is_struct(arrow) and arrow.num_fields:
        fields = [arrow.field(i) for i in range(arrow.num_fields)]
        return RowType(
            tuple(column_type_of(f.type, f"{column}.{f.name}") for f in fields), tuple(f.name for f in fields)
        )
    raise UnsupportedColumn(column, f"no type holds the values of column {column!r}, which are Arrow's {arrow}")


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Select the columns of a schema by name, and cast those whose types differ.

    Args:
        batch: The batch. It may have more columns.
        schema: The schema of the result.

    Returns:
        A batch of `schema`, without a copy of columns that have its types already.

    Raises:
        UnsupportedColumn: A value does not fit the type of its column.
    """
    columns = []
    for field in schema:
        column = batch.column(field.name)
        if column.type != field.type:
            try:
                column = column.cast(field.type)
            except pa.ArrowException as error:
                raise UnsupportedColumn(
                    field.name, f"column {field.name!r} does not fit {field.type}: {error}"
                ) from error
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)
