"""Encodes keys canonically: equal keys are equal bytes in every process, at every time and from every selector.

1, 1.0, True and Decimal("1.0") are one key, as they are one key of a Python dict. So are 0.0 and -0.0, all NaNs, two
aware datetimes of one instant, a list and the tuple of its items. `decode` gives back a key that equals the encoded
one and is hashable; where several types share an encoding it is the plainest (int, tuple, bytes, UTC).

A value is a tag byte and its payload, each value delimits itself; integers in it are little-endian:

    N                       None, inside composites only
    i int64                 integers that fit
    I uint32 length, bytes  other integers, two's complement
    f float64               numbers that are not integers; every NaN is the same
    e uint32 length, bytes  timedeltas in microseconds, two's complement
    m uint32 length, ASCII  decimals that are neither integers nor exactly a float64
    s uint32 length, UTF-8  strings
    b uint32 length, bytes  bytes, bytearray
    t uint32 count, values  tuples, lists
    z uint32 count, values  sets, in the order of their encodings
    d int64                 dates, as proleptic ordinal
    w int64                 datetimes without zone, microseconds since 1970-01-01
    a int64                 datetimes with zone, the same in UTC
    c int64                 times without zone, microseconds since midnight
    u 16 bytes              UUIDs
"""

from __future__ import annotations

import math
import struct
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Callable
from uuid import UUID

import numpy as np


class UnsupportedKey(TypeError):
    """Signals a key that has no canonical encoding. `row_index` is its place in the encoded list, or None."""

    def __init__(self, message: str, row_index: int | None = None) -> None:
        super().__init__(message)
        self.row_index = row_index


INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1
NULL_KEY = (
    "a key must not be None (inside a tuple it may be): filter such rows out, or give them a key of their own "
    "in the key selector"
)
_NAN = b"f" + struct.pack("<Q", 0x7FF8_0000_0000_0000)
_INT64 = struct.Struct("<cq")
_FLOAT64 = struct.Struct("<cd")
_LENGTH = struct.Struct("<cI")
_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)


def encode(key: Any) -> bytes:
    """Return the canonical bytes of a key. Raises `UnsupportedKey` that names the type and the way out."""
    if key is None:
        raise UnsupportedKey(NULL_KEY)
    return _encode(key)


def _encode(value: Any) -> bytes:
    writer = _WRITERS.get(type(value))
    if writer is not None:
        return writer(value)
    return _encode_subclass(value)


def _encode_subclass(value: Any) -> bytes:
    if isinstance(value, (np.bool_, np.integer, np.floating)) and not isinstance(value, np.timedelta64):
        number = value.item()
        if isinstance(number, (int, float)):
            return _encode(number)
    for base in _SUBCLASSES_ALLOWED:
        if isinstance(value, base):
            return _WRITERS[base](value)
    if isinstance(value, datetime) and getattr(value, "equals_datetime", False):
        return _write_datetime(value)
    name = f"{type(value).__module__}.{type(value).__qualname__}"
    raise UnsupportedKey(f"a key of type {name} has no stable encoding: {_way_out(value)}")


def _way_out(value: Any) -> str:
    if hasattr(value, "__members__") or hasattr(type(value), "__members__"):
        return "use the enum member's name or value in the key selector"
    if hasattr(value, "__dataclass_fields__"):
        return "use dataclasses.astuple(...) in the key selector"
    if hasattr(value, "to_tuple"):
        return "use .to_tuple() in the key selector"
    if isinstance(value, (datetime, date, time)):
        return "use a plain datetime.datetime, datetime.date or datetime.time in the key selector"
    return (
        "keys are made of int, float, bool, str, bytes, Decimal, date, datetime, time, timedelta, UUID, and "
        "tuples, lists and sets of them"
    )


def _write_int(value: int) -> bytes:
    if INT64_MIN <= value <= INT64_MAX:
        return _INT64.pack(b"i", value)
    return _write_big(b"I", int(value))


def _write_big(tag: bytes, number: int) -> bytes:
    data = number.to_bytes(number.bit_length() // 8 + 1, "little", signed=True)
    return _LENGTH.pack(tag, len(data)) + data


def _write_float(value: float) -> bytes:
    if value.is_integer():
        return _write_int(int(value))
    return _NAN if value != value else _FLOAT64.pack(b"f", value)


def _write_decimal(value: Decimal) -> bytes:
    if not value.is_finite():
        return _NAN if value.is_nan() else _FLOAT64.pack(b"f", float(value))
    if value == value.to_integral_value():
        return _write_int(int(value))
    as_float = float(value)
    if math.isfinite(as_float) and Decimal(as_float) == value:
        return _FLOAT64.pack(b"f", as_float)
    sign, digits, exponent = value.as_tuple()
    text = "".join(map(str, digits))
    shortest = text.rstrip("0")
    data = f"{'-' * sign}{shortest}E{int(exponent) + len(text) - len(shortest)}".encode("ascii")
    return _LENGTH.pack(b"m", len(data)) + data


def _write_str(value: str) -> bytes:
    data = value.encode("utf-8", "surrogatepass")
    return _LENGTH.pack(b"s", len(data)) + data


def _write_bytes(value: bytes | bytearray) -> bytes:
    return _LENGTH.pack(b"b", len(value)) + value


def _write_tuple(value: tuple[Any, ...] | list[Any]) -> bytes:
    return _LENGTH.pack(b"t", len(value)) + b"".join(map(_encode, value))


def _write_set(value: frozenset[Any] | set[Any]) -> bytes:
    items = sorted(set(map(_encode, value)))  # several NaNs in a Python set are one here
    return _LENGTH.pack(b"z", len(items)) + b"".join(items)


def _write_date(value: date) -> bytes:
    return _INT64.pack(b"d", value.toordinal())


def _write_datetime(value: datetime) -> bytes:
    offset = value.utcoffset()
    local_us = (value.replace(tzinfo=None) - _EPOCH) // _MICROSECOND
    return _INT64.pack(b"w", local_us) if offset is None else _INT64.pack(b"a", local_us - offset // _MICROSECOND)


def _write_time(value: time) -> bytes:
    if value.tzinfo is not None:
        raise UnsupportedKey(
            "a time with a zone has no stable encoding as a key: use value.replace(tzinfo=None), or "
            "a datetime, in the key selector"
        )
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return _INT64.pack(b"c", seconds * 1_000_000 + value.microsecond)


_WRITERS: dict[type, Callable[[Any], bytes]] = {
    type(None): lambda _: b"N",
    bool: _write_int,
    int: _write_int,
    float: _write_float,
    Decimal: _write_decimal,
    str: _write_str,
    bytes: _write_bytes,
    bytearray: _write_bytes,
    tuple: _write_tuple,
    list: _write_tuple,
    frozenset: _write_set,
    set: _write_set,
    date: _write_date,
    datetime: _write_datetime,
    time: _write_time,
    timedelta: lambda value: _write_big(b"e", value // _MICROSECOND),
    UUID: lambda value: b"u" + value.bytes,
}
# Equality of these bases survives subclassing (IntEnum, StrEnum, named tuples); a datetime's need not (nanoseconds),
# unless its class has `equals_datetime`.
_SUBCLASSES_ALLOWED = (int, float, str, bytes, tuple)


def decode(data: bytes) -> Any:
    """Return the key whose canonical bytes these are. Raises ValueError if they are not the encoding of one key."""
    try:
        value, end = _decode(bytes(data), 0)
    except (struct.error, KeyError, UnicodeDecodeError, ArithmeticError) as error:
        raise ValueError(f"not a canonical key: {bytes(data[:64])!r}") from error
    if end != len(data):
        raise ValueError(f"{len(data) - end} bytes behind a canonical key: {bytes(data[:64])!r}")
    return value


def _decode(data: bytes, at: int) -> tuple[Any, int]:
    tag = data[at : at + 1]
    if tag in _INT64_READERS:
        return _INT64_READERS[tag](_INT64.unpack_from(data, at)[1]), at + 9
    if tag == b"f":
        number = _FLOAT64.unpack_from(data, at)[1]
        return (math.nan if number != number else number), at + 9
    if tag == b"N":
        return None, at + 1
    if tag == b"u":
        if len(data) < at + 17:
            raise struct.error("truncated UUID")
        return UUID(bytes=data[at + 1 : at + 17]), at + 17
    length = _LENGTH.unpack_from(data, at)[1]
    at += 5
    if tag in _COMPOSITES:
        items = []
        for _ in range(length):
            item, at = _decode(data, at)
            items.append(item)
        return _COMPOSITES[tag](items), at
    payload = data[at : at + length]
    if len(payload) != length:
        raise struct.error("truncated payload")
    return _PAYLOAD_READERS[tag](payload), at + length


_INT64_READERS: dict[bytes, Callable[[int], Any]] = {
    b"i": lambda number: number,
    b"d": date.fromordinal,
    b"w": lambda us: _EPOCH + us * _MICROSECOND,
    b"a": lambda us: (_EPOCH + us * _MICROSECOND).replace(tzinfo=UTC),
    b"c": lambda us: (_EPOCH + us * _MICROSECOND).time(),
}
_COMPOSITES: dict[bytes, Callable[[list[Any]], Any]] = {b"t": tuple, b"z": frozenset}
_PAYLOAD_READERS: dict[bytes, Callable[[bytes], Any]] = {
    b"I": lambda data: int.from_bytes(data, "little", signed=True),
    b"e": lambda data: int.from_bytes(data, "little", signed=True) * _MICROSECOND,
    b"m": lambda data: Decimal(data.decode("ascii")),
    b"s": lambda data: data.decode("utf-8", "surrogatepass"),
    b"b": lambda data: data,
}
