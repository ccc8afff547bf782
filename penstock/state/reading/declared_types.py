"""Reads the declarations of built-in aggregates' state, and finds the pickles in types."""

from __future__ import annotations

import re

import pyarrow as pa

from penstock.common.row_types import scalar_types as scalars
from penstock.common.row_types.columns import ColumnType
from penstock.common.row_types.composite_types import ListType, MapType, RowType, TupleType

_BETWEEN = re.compile(r", (?![^\[]*\])")
"""Between columns: a comma that is not in brackets, as that of "timestamp[us, tz=UTC]" is."""
_INSTANT = "timestamp[us, tz=UTC]"


def parse_columns(text: str) -> pa.Schema:
    """Return the columns of a table of built-in aggregates, as they are stored. `text`: "(values) by (keys)"."""
    values, _, keys = text.removeprefix("(").removesuffix(")").partition(") by (")
    told = [f"key.{column}" for column in _BETWEEN.split(keys)] + [f"value.{column}" for column in values.split(", ")]
    return pa.schema([(name, _arrow_type(type)) for name, _, type in (column.rpartition(" ") for column in told)])


def _arrow_type(text: str) -> pa.DataType:
    if text == _INSTANT:
        return pa.timestamp("us", "UTC")
    try:
        return pa.type_for_alias(text)
    except ValueError:
        return pa.null()


def has_pickles(type: ColumnType) -> bool:
    """Return whether values of the type contain pickles."""
    match type:
        case TupleType() | RowType():
            return any(map(has_pickles, type.field_types))
        case ListType():
            return has_pickles(type.element_type)
        case MapType():
            return has_pickles(type.key_type) or has_pickles(type.value_type)
    return isinstance(type, scalars.PickledType)
