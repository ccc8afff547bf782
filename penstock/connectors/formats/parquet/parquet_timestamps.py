"""Reads timestamps of Parquet that have nanoseconds, or are far away, as timestamps to the microsecond.

Spark's default writer stores timestamps as INT96, whose range is larger than that of nanoseconds in 64 bits. Arrow
reads those to the microsecond rightly, but says nothing of digits behind it; as nanoseconds it reads them modulo 2**64.
From both together follows which digits there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.common.row_types.arrow_types import UnsupportedColumn


class LossyTimestamps(Enum):
    """Chooses the treatment of timestamps with digits behind the microsecond, which `SQL_TIMESTAMP` does not hold."""

    REFUSE = "refuse"
    """Fail the job. The error names file, row and column."""
    COERCE = "coerce"
    """Round them down to the microsecond."""
    NULL = "null"
    """Read them as null. Of timestamps in lists, maps and rows this is not possible."""


def int96_columns(file: pq.ParquetFile) -> frozenset[str]:
    """Find the columns that have timestamps as INT96, in themselves or in what they hold.

    Args:
        file: The file.

    Returns:
        Their names.
    """
    schema = file.schema
    found = [schema.column(index) for index in range(len(schema))]
    return frozenset(column.path.split(".")[0] for column in found if column.physical_type == "INT96")


def to_microseconds(
    batch: pa.RecordBatch, raw: pa.RecordBatch | None, way: LossyTimestamps, first_row: int
) -> pa.RecordBatch:
    """Return a batch whose timestamps are to the microsecond.

    Args:
        batch: The batch. INT96 has been read to the microsecond.
        raw: Its columns of INT96, read as nanoseconds modulo 2**64; None: there are none, or nothing is to be found.
        way: What becomes of digits behind the microsecond.
        first_row: The number of the batch's first row, for the error.

    Returns:
        The batch.

    Raises:
        UnsupportedColumn: There are such digits, and they are refused.
    """
    columns = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if raw is not None and name in raw.schema.names:
            lossy = _where(column, _digits_of_int96(column, raw.column(name)))
            columns.append(_settled(name, column, column, lossy, way, first_row))
        elif _has_nanoseconds(column.type):
            if pa.types.is_timestamp(column.type):
                floor = _floor(column)
            else:
                floor = column.cast(_without_nanoseconds(column.type), safe=False)
            lossy = _where(column, _digits_of_nanoseconds(column))
            columns.append(_settled(name, column, floor, lossy, way, first_row))
        else:
            columns.append(column)
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _settled(
    name: str, column: pa.Array, floor: pa.Array, lossy: npt.NDArray[np.bool_] | bool, way: LossyTimestamps, row: int
) -> pa.Array:
    is_lossy = bool(np.any(lossy))
    if not is_lossy or way is LossyTimestamps.COERCE:
        return floor
    if way is LossyTimestamps.NULL and not isinstance(lossy, bool):
        return pc.if_else(pa.array(lossy), pa.scalar(None, floor.type), floor)
    where = "" if isinstance(lossy, bool) else f", row {row + int(np.flatnonzero(lossy)[0])}"
    raise UnsupportedColumn(
        name,
        f"column {name!r}{where} has a timestamp with digits behind the microsecond, which SQL_TIMESTAMP has not: "
        "lossy_timestamps=LossyTimestamps.COERCE rounds such timestamps down"
        + ("" if isinstance(lossy, bool) else ", LossyTimestamps.NULL reads them as null"),
    )


def _where(column: pa.Array, leaves: list[npt.NDArray[np.bool_]]) -> npt.NDArray[np.bool_] | bool:
    """Return which rows have lossy digits; of a column that holds timestamps in lists or rows, whether it has any."""
    if pa.types.is_timestamp(column.type):
        return leaves[0]
    return any(bool(leaf.any()) for leaf in leaves)


def _floor(column: pa.Array) -> pa.Array:
    """Round down to the microsecond. Arrow's own function overflows next to its smallest timestamp."""
    microseconds = _integers(column).view(np.int64) // 1000
    is_null = column.is_null().to_numpy(zero_copy_only=False)
    return pa.array(microseconds, pa.int64(), mask=is_null).cast(_of_zone(column.type))


def _digits_of_int96(read: pa.Array, raw: pa.Array) -> list[npt.NDArray[np.bool_]]:
    pairs = zip(_leaves(read), _leaves(raw), strict=True)
    return [_integers(whole) * np.uint64(1000) != _integers(exact) for whole, exact in pairs]


def _digits_of_nanoseconds(column: pa.Array) -> list[npt.NDArray[np.bool_]]:
    leaves = [leaf for leaf in _leaves(column) if leaf.type.unit == "ns"]
    return [_integers(leaf).view(np.int64) % 1000 != 0 for leaf in leaves]


def _integers(timestamps: pa.Array) -> npt.NDArray[np.uint64]:
    """Return the numbers of timestamps modulo 2**64; 0 for null."""
    found: npt.NDArray[np.uint64] = (
        pc.coalesce(timestamps.cast(pa.int64()), 0).to_numpy(zero_copy_only=False).view(np.uint64)
    )
    return found


def _leaves(array: pa.Array) -> Iterator[pa.Array]:
    """Yield the timestamps in an array, and in what it holds."""
    kind = array.type
    if pa.types.is_timestamp(kind):
        yield array
    elif pa.types.is_struct(kind):
        for child in array.flatten():
            yield from _leaves(child)
    elif pa.types.is_map(kind):
        yield from _leaves(array.keys)
        yield from _leaves(array.items)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        yield from _leaves(array.flatten())


def _of_zone(kind: pa.TimestampType) -> pa.DataType:
    return pa.timestamp("us", kind.tz)


def _has_nanoseconds(kind: pa.DataType) -> bool:
    if pa.types.is_timestamp(kind):
        return bool(kind.unit == "ns")
    return any(_has_nanoseconds(kind.field(index).type) for index in range(kind.num_fields))


def _without_nanoseconds(kind: pa.DataType) -> pa.DataType:
    """Return a type of lists, maps or structs with its timestamps to the microsecond."""
    if pa.types.is_timestamp(kind):
        return _of_zone(kind) if kind.unit == "ns" else kind
    if pa.types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return pa.struct([field.with_type(_without_nanoseconds(field.type)) for field in fields])
    if pa.types.is_map(kind):
        return pa.map_(_without_nanoseconds(kind.key_type), _without_nanoseconds(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_without_nanoseconds(kind.value_type)))
    return kind
