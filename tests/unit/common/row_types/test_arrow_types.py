"""Turns Arrow types into ours and back: a value that does not fit must be an error, never another value."""

from __future__ import annotations

import decimal

import pyarrow as pa
import pytest

from penstock.common.row_types.arrow_types import UnsupportedColumn, column_type_of, conform, row_type_of
from penstock.common.row_types.columns import ColumnType
from penstock.common.types import Types

TWINS = [
    Types.BOOLEAN(), Types.BYTE(), Types.SHORT(), Types.INT(), Types.LONG(), Types.FLOAT(), Types.DOUBLE(),
    Types.STRING(), Types.PRIMITIVE_ARRAY(Types.BYTE()), Types.SQL_DATE(), Types.SQL_TIME(), Types.SQL_TIMESTAMP(),
    Types.LIST(Types.LONG()), Types.MAP(Types.STRING(), Types.DOUBLE()),
    Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.LIST(Types.STRING())]),
]  # fmt: skip


@pytest.mark.parametrize("type", TWINS, ids=str)
def test_the_columns_of_a_type_lead_back_to_it(type: ColumnType) -> None:
    assert column_type_of(type.arrow_type, "c") == type


@pytest.mark.parametrize(
    ("arrow", "type", "value"),
    [
        (pa.uint8(), Types.SHORT(), 255),
        (pa.uint16(), Types.INT(), 2**16 - 1),
        (pa.uint32(), Types.LONG(), 2**32 - 1),
        (pa.uint64(), Types.LONG(), 2**63 - 1),
        (pa.large_string(), Types.STRING(), "x"),
        (pa.string_view(), Types.STRING(), "x"),
        (pa.binary(2), Types.PRIMITIVE_ARRAY(Types.BYTE()), b"xy"),
        (pa.dictionary(pa.int32(), pa.string()), Types.STRING(), "x"),
        (pa.decimal128(10, 2), Types.DECIMAL(10, 2), decimal.Decimal("12.30")),
        (pa.decimal256(60, 2), Types.BIG_DEC(), decimal.Decimal("-0.01")),
        (pa.large_list(pa.uint8()), Types.LIST(Types.SHORT()), [1, 2]),
    ],
    ids=str,
)
def test_what_has_no_twin_is_widened_without_loss(arrow: pa.DataType, type: ColumnType, value: object) -> None:
    batch = pa.record_batch({"c": pa.array([value, None], arrow)})
    row_type = row_type_of(batch.schema)
    assert row_type == Types.ROW_NAMED(["c"], [type])
    assert [row.c for row in row_type.decode(conform(batch, row_type.schema))] == [value, None]


@pytest.mark.parametrize(
    ("schema", "column"),
    [
        (pa.schema([("ok", pa.int64()), ("nothing", pa.null())]), "nothing"),
        (pa.schema([("deep", pa.list_(pa.struct([("d", pa.duration("s"))])))]), "deep[].d"),
        (pa.schema([("__key__", pa.int64())]), "__key__"),
        (pa.schema([("twice", pa.int64()), ("twice", pa.int64())]), "twice"),
    ],
)
def test_a_column_that_no_type_holds_is_named(schema: pa.Schema, column: str) -> None:
    with pytest.raises(UnsupportedColumn) as caught:
        row_type_of(schema)
    assert caught.value.column == column


def test_values_that_do_not_fit_are_an_error_not_a_change() -> None:
    batch = pa.record_batch({"c": pa.array([2**63], pa.uint64())})
    with pytest.raises(UnsupportedColumn, match="column 'c' does not fit int64"):
        conform(batch, row_type_of(batch.schema).schema)
    at = pa.record_batch({"t": pa.array([1], pa.timestamp("ns"))})
    with pytest.raises(UnsupportedColumn, match="column 't' does not fit"):
        conform(at, row_type_of(at.schema).schema)
