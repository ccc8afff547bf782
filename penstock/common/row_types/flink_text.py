"""Writes values as Flink's print() and simple_string_encoder write them.

In Flink they are Java objects, and this is their text: `(hi,1)`, `+I[hi, 1]`, `1.0E10`, `true`, `null`.
"""

from __future__ import annotations

import datetime
import math
from typing import Any, Callable

import numpy as np

from penstock.common.row_types import scalar_types as scalars
from penstock.common.row_types.composite_types import ListType, MapType, RowType, TupleType
from penstock.common.row_types.row import Row
from penstock.common.typeinfo import TypeInformation

Text = Callable[[Any], str]

_DECIMAL_MIN, _DECIMAL_END = 1e-3, 1e7
"""Java writes numbers in this range without an exponent."""


def text_of(type_info: TypeInformation | None) -> Text:
    """Return a function that writes a value of this type as Java does.

    A value of no declared type is written by `str`: in Flink it is a pickle, which Java cannot read.

    Args:
        type_info: The type, or None.

    Returns:
        A function value -> text.
    """
    return _or_null(_text(type_info))


def printed(type_info: TypeInformation | None) -> Text:
    """Return a function that writes a row as PyFlink's print() does.

    It is the same as `text_of`, except that PyFlink turns a `Row` into text before Java sees it: `+I[hi,None]`.

    Args:
        type_info: The type of the rows, or None.

    Returns:
        A function row -> text.
    """
    if not isinstance(type_info, RowType):
        return text_of(type_info)
    fields = [_float if t == scalars.FLOAT else str for t in type_info.field_types]

    def row_text(row: Any) -> str:
        return f"{_kind(row)}[{','.join('None' if v is None else f(v) for f, v in zip(fields, row))}]"

    return row_text


def _or_null(text: Text) -> Text:
    return lambda value: "null" if value is None else text(value)


def _text(type_info: TypeInformation | None) -> Text:
    if isinstance(type_info, TupleType):
        fields = [text_of(t) for t in type_info.field_types]
        return lambda row: f"({','.join(f(v) for f, v in zip(fields, row))})"
    if isinstance(type_info, RowType):
        columns = [text_of(t) for t in type_info.field_types]
        return lambda row: f"{_kind(row)}[{', '.join(f(v) for f, v in zip(columns, row))}]"
    if isinstance(type_info, ListType):
        element = text_of(type_info.element_type)
        return lambda values: f"[{', '.join(map(element, values))}]"
    if isinstance(type_info, MapType):
        key, item = text_of(type_info.key_type), text_of(type_info.value_type)
        return lambda values: f"{{{', '.join(f'{key(k)}={item(v)}' for k, v in values.items())}}}"
    return _SCALARS.get(type_info, str)


def _kind(row: Any) -> str:
    return str(row.get_row_kind()) if isinstance(row, Row) else "+I"


def _double(value: float) -> str:
    return _number(value, repr(float(value)))


def _float(value: float) -> str:
    return _number(value, str(np.float32(value)))


def _number(value: float, shortest: str) -> str:
    """Write a number as Java's Double.toString does. `shortest`: Python's text, which has the same digits."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    sign, digits, exponent = _decimal_digits(shortest)
    if not digits:
        return f"{sign}0.0"
    if _DECIMAL_MIN <= abs(float(shortest)) < _DECIMAL_END:
        if exponent < 0:
            return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
        digits = digits.ljust(exponent + 1, "0")
        return f"{sign}{digits[: exponent + 1]}.{digits[exponent + 1 :] or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"


def _decimal_digits(shortest: str) -> tuple[str, str, int]:
    """Return sign, digits without zeros at either end, and the exponent of the first of them."""
    sign = "-" if shortest.startswith("-") else ""
    mantissa, _, power = shortest.lstrip("-").partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = whole + fraction
    leading = len(digits) - len(digits.lstrip("0"))
    return sign, digits.strip("0"), len(whole) - 1 - leading + int(power or 0)


def _timestamp(value: datetime.datetime) -> str:
    """Write a timestamp as java.sql.Timestamp does: with one digit of the second's fraction at least."""
    fraction = f"{value.microsecond:06d}".rstrip("0") or "0"
    return f"{value:%Y-%m-%d %H:%M:%S}.{fraction}"


def _bytes(value: bytes) -> str:
    return f"[{', '.join(str(b - 256 if b > 127 else b) for b in value)}]"


_SCALARS: dict[TypeInformation | None, Text] = {
    scalars.BOOLEAN: lambda value: "true" if value else "false",
    scalars.FLOAT: _float,
    scalars.DOUBLE: _double,
    scalars.SQL_TIME: lambda value: f"{value:%H:%M:%S}",
    scalars.SQL_TIMESTAMP: _timestamp,
    scalars.BYTES: _bytes,
}
