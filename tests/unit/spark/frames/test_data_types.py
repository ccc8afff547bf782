"""Tests which columns of a DataFrame have no type here, and how they are refused."""

from __future__ import annotations

import pytest
from pyspark.sql import types as sql

from penstock.spark.frames.data_types import UnsupportedType, row_type_of, schema_of


@pytest.mark.parametrize("nested", [False, True])
def test_decimals_of_a_negative_scale_are_refused_by_name(nested: bool) -> None:
    type: sql.DataType = sql.DecimalType(5, -2)
    column = sql.StructField("amount", sql.ArrayType(type) if nested else type)
    with pytest.raises(UnsupportedType, match=r"column 'amount(\[\])?' is .*decimal\(5,-2\).*to decimal\(7,0\)"):
        row_type_of(sql.StructType([column]))


@pytest.mark.parametrize("digits", [(1, 0), (38, 0), (38, 38), (10, 2)])
def test_decimals_of_all_widths_come_back(digits: tuple[int, int]) -> None:
    given = sql.StructType([sql.StructField("amount", sql.MapType(sql.StringType(), sql.DecimalType(*digits)))])
    assert schema_of(row_type_of(given)) == given
