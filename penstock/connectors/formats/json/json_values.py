"""Reads single values of JSON as the types of fields, as Flink's `JsonRowDeserializationSchema` does.

A number may stand in a text, and the text of anything is a STRING. What Flink reads by losing something is refused: a
fraction for a whole number, a text that is no truth value for a BOOLEAN, a number for a MAP.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import json
import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.common.row_types.columns import ColumnType
from penstock.common.row_types.composite_types import ListType, MapType, RowType
from penstock.common.row_types.scalar_types import (
    BIG_DEC,
    BIG_INT,
    BOOLEAN,
    INSTANT,
    SQL_DATE,
    SQL_TIME,
    SQL_TIMESTAMP,
    STRING,
    BasicType,
    BytesType,
    DecimalType,
)

Reader = Callable[[Any], Any]

_DIGITS_MAX = 400
"""The most digits of a whole number that is written with an exponent."""
_WHOLE = re.compile(r"[+-]?[0-9]+", re.ASCII)
_DOUBLE = re.compile(r"[+-]?(NaN|Infinity|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[dDfF]?)", re.ASCII)
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_CLOCK = r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:\.(?P<fraction>[0-9]{1,9}))?)?"
_TIME = re.compile(rf"{_CLOCK}(?:Z|[+-]00:?00)?", re.ASCII)
_ZONE = r"(?P<zone>Z|[+-][0-9]{2}(?::?[0-9]{2})?)?"
_TIMESTAMP = re.compile(rf"(?P<date>[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}})(?:[T ]{_CLOCK}{_ZONE})?", re.ASCII)


class Number(str):
    """Holds a number as its text in the message, with all its digits."""


class UnreadableType(TypeError):
    """Reports a type that JSON cannot represent."""


class UnreadableValue(ValueError):
    """Reports a value that is none of its field's type. The message names field and value."""


def parsed(text: bytes | str) -> Any:
    """Parse JSON with its numbers as texts.

    Args:
        text: The text, in UTF-8.

    Returns:
        Its value; numbers are `Number`.

    Raises:
        ValueError: It is no JSON.
    """
    return json.loads(text, parse_float=Number, parse_int=Number, parse_constant=Number, object_pairs_hook=_object_of)


def _object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"field {next(name for name in names if names.count(name) > 1)!r} is there twice")
    return found


def reader_of(kind: ColumnType, name: str, unreadable_is_null: bool = False) -> Reader:
    """Return the reader of values of a type.

    Args:
        kind: The type.
        name: The field, for errors.
        unreadable_is_null: True: a value that cannot be read is None.

    Returns:
        A function of what `parsed` returned. It raises `UnreadableValue`.

    Raises:
        UnreadableType: JSON cannot represent the type.
    """
    read = _reader(kind, name, unreadable_is_null)

    def checked(value: Any) -> Any:
        if value is None:
            return None
        try:
            return read(value)
        except UnreadableValue:
            if unreadable_is_null:
                return None
            raise
        except (ValueError, ArithmeticError) as error:
            if unreadable_is_null:
                return None
            why = f" ({error})" if isinstance(error, _Because) else ""
            raise UnreadableValue(f"field {name!r}: {str(text_of(value))[:100]!r} is no {kind}{why}") from None

    return checked


class _Because(ValueError):
    """Says why a value is none of its type."""


def _reader(kind: ColumnType, name: str, nulls: bool) -> Reader:
    if isinstance(kind, RowType):
        fields = [
            _Field(field, reader_of(field_kind, f"{name}.{field}" if name else field, nulls))
            for field, field_kind in zip(kind.field_names, kind.field_types, strict=True)
        ]
        return lambda value: _row(value, fields)
    if isinstance(kind, ListType):
        element = reader_of(kind.element_type, f"{name}[]", nulls)
        return lambda value: [element(item) for item in _of(value, list)]
    if isinstance(kind, MapType):
        key = reader_of(kind.key_type, f"{name} (a key)", nulls)
        item = reader_of(kind.value_type, f"{name}{{}}", nulls)
        return lambda value: {key(k): item(v) for k, v in _of(value, dict).items()}
    found = _READERS.get(kind)
    if found is not None:
        return found
    if isinstance(kind, DecimalType):
        return _decimal
    if isinstance(kind, BytesType):
        return _bytes
    if isinstance(kind, BasicType) and pa.types.is_integer(kind.arrow_type):
        return _whole_number(kind.arrow_type.bit_width)
    if isinstance(kind, BasicType) and pa.types.is_floating(kind.arrow_type):
        return _double
    raise UnreadableType(f"field {name!r}: {kind} is not read from JSON. Declare it as STRING or DOUBLE, say")


class _Field(NamedTuple):
    name: str
    read: Reader


def _row(value: Any, fields: list[_Field]) -> tuple[Any, ...]:
    found = _of(value, dict)
    return tuple(field.read(found.get(field.name)) for field in fields)


def _of(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise ValueError
    return value


def _text(value: Any) -> str:
    """Return the text of a value that is one, or of a number."""
    return str(_of(value, Number) if isinstance(value, Number) else _of(value, str)).strip()


def _whole_number(bits: int) -> Reader:
    least, most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def read(value: Any) -> int:
        number = _integer(value)
        if not least <= number <= most:
            raise _Because("it is out of range")
        return number

    return read


def _integer(value: Any) -> int:
    text = _text(value)
    if _WHOLE.fullmatch(text):
        return int(text)
    if not isinstance(value, Number):
        raise ValueError
    return _without_fraction(text)


def _without_fraction(text: str) -> int:
    if not _DECIMAL.fullmatch(text):
        raise ValueError
    number = Decimal(text)
    if number.adjusted() > _DIGITS_MAX:
        raise _Because("it is out of range")
    if number != number.to_integral_value():
        raise _Because("it has a fraction")
    return int(number)


def _big_integer(value: Any) -> int:
    text = _text(value)
    return int(text) if _WHOLE.fullmatch(text) else _without_fraction(text)


def _double(value: Any) -> float:
    text = _text(value)
    if not _DOUBLE.fullmatch(text):
        raise ValueError
    return float(text if text.endswith(("N", "y")) else text.rstrip("dDfF"))


def _decimal(value: Any) -> Decimal:
    text = _text(value)
    if not _DECIMAL.fullmatch(text):
        raise ValueError
    number = Decimal(text)
    if isinstance(value, Number) and not _WHOLE.fullmatch(text):
        # As Flink's: the zeros behind the last digit of a number mean nothing; those of a text are kept.
        return without_zeros(number)
    return number


def without_zeros(number: Decimal) -> Decimal:
    """Return a number without zeros behind its last digit. Unlike `normalize` it rounds nothing.

    Args:
        number: The number.

    Returns:
        An equal one.
    """
    sign, digits, exponent = number.as_tuple()
    if not any(digits) or not isinstance(exponent, int):
        return Decimal(0)
    while digits[-1] == 0:
        digits, exponent = digits[:-1], exponent + 1
    return Decimal((sign, digits, exponent))


def _truth(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    text = str(_of(value, str)).strip().lower()
    if text not in ("true", "false"):
        raise ValueError
    return text == "true"


def _date(value: Any) -> datetime.date:
    text = _of(value, str)
    if not _DATE.fullmatch(text):
        raise ValueError
    return datetime.date.fromisoformat(text)


def _instant(value: Any) -> datetime.datetime:
    found = datetime.datetime.fromisoformat(_of(value, str))
    if found.tzinfo is None:
        raise _Because("it has no time zone")
    return found


def _clock(found: re.Match[str]) -> datetime.time:
    """Return a time of day to the microsecond; what is behind that is left out, as in PyFlink."""
    microsecond = int((found["fraction"] or "")[:6].ljust(6, "0"))
    return datetime.time(int(found["hour"]), int(found["minute"]), int(found["second"] or 0), microsecond)


def _time(value: Any) -> datetime.time:
    found = _TIME.fullmatch(_of(value, str))
    if found is None:
        raise ValueError
    return _clock(found)


def _timestamp(value: Any) -> datetime.datetime:
    """Read a point in time, in UTC if it names a zone."""
    found = _TIMESTAMP.fullmatch(_of(value, str))
    if found is None:
        raise ValueError
    day = datetime.date.fromisoformat(found["date"])
    if found["hour"] is None:
        return datetime.datetime.combine(day, datetime.time())
    local = datetime.datetime.combine(day, _clock(found))
    zone = (found["zone"] or "Z").replace(":", "")
    if zone == "Z":
        return local
    offset = datetime.timedelta(hours=int(zone[1:3]), minutes=int(zone[3:] or 0))
    return local - offset if zone[0] == "+" else local + offset


def _bytes(value: Any) -> bytes:
    try:
        return base64.b64decode(_of(value, str), validate=True)
    except binascii.Error as error:
        raise _Because(f"it is no base64: {error}") from None


def text_of(value: Any) -> str:
    """Return the text of a value, as Flink reads it as a STRING.

    Args:
        value: What `parsed` returned.

    Returns:
        The string itself; the text of a number; `true` or `false`; the JSON of an object or list, without spaces.
    """
    if isinstance(value, Number):
        return _text_of_number(value)
    return value if isinstance(value, str) else _json_of(value)


def _json_of(value: Any) -> str:
    if isinstance(value, Number):
        return _text_of_number(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(k, ensure_ascii=False)}:{_json_of(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_json_of, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _text_of_number(number: Number) -> str:
    """Return the text that Java gives to a number, unless that would be another number: then the message's own."""
    if _WHOLE.fullmatch(number):
        return str(number)
    found = float(number)
    if not math.isfinite(found) or Decimal(repr(found)) != Decimal(number):
        return str(number)
    if found == 0 or 1e-3 <= abs(found) < 1e7:
        return repr(found)
    sign, digits, exponent = Decimal(repr(found)).normalize().as_tuple()
    text = "".join(map(str, digits))
    return f"{'-' * sign}{text[0]}.{text[1:] or '0'}E{int(exponent) + len(digits) - 1}"


_READERS: dict[ColumnType, Reader] = {
    BIG_DEC: _decimal,
    INSTANT: _instant,
    BIG_INT: _big_integer,
    BOOLEAN: _truth,
    SQL_DATE: _date,
    SQL_TIME: _time,
    SQL_TIMESTAMP: _timestamp,
    STRING: text_of,
}
