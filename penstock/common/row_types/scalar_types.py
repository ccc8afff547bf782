"""Defines types of one value: numbers, strings, bytes, dates, and pickles for everything else.

Arrow would cut 1.5 to 1 for an int64 column, take text for bytes and drop a time zone. Here a value that would change
is refused.
"""

from __future__ import annotations

import datetime
import decimal
import numbers
import pickle
from dataclasses import dataclass
from typing import Any, Callable, ClassVar, Sequence

import numpy as np
import pyarrow as pa

from penstock.common.program.program_classes import MissingClass, missing_class, pickled_data
from penstock.common.row_types.columns import ColumnType, RefusedValue, integers
from penstock.common.time import Instant

_NONE = type(None)
_INTEGERS = {int}
_FLOAT_MAX = float(np.finfo(np.float32).max)


@dataclass(frozen=True, repr=False)
class BasicType(ColumnType):
    """Describes BOOLEAN, DOUBLE and STRING, for which Arrow's own checks are strict enough."""

    name: str
    arrow: pa.DataType

    @property
    def arrow_type(self) -> pa.DataType:
        return self.arrow

    def encode_column(self, values: Sequence[Any]) -> pa.Array:
        return pa.array(values, self.arrow)

    def decode_column(self, array: pa.Array) -> list[Any]:
        values: list[Any] = array.to_pylist()
        return values

    @property
    def text(self) -> str:
        """Return the name of the method of `Types`."""
        return self.name

    def __repr__(self) -> str:
        return _PYFLINK_TEXTS.get(self.name, self.name)

    @staticmethod
    def STRING_TYPE_INFO() -> BasicType:
        """Return `Types.STRING()`."""
        return STRING

    @staticmethod
    def BOOLEAN_TYPE_INFO() -> BasicType:
        """Return `Types.BOOLEAN()`."""
        return BOOLEAN

    @staticmethod
    def BYTE_TYPE_INFO() -> BasicType:
        """Return `Types.BYTE()`."""
        return BYTE

    @staticmethod
    def SHORT_TYPE_INFO() -> BasicType:
        """Return `Types.SHORT()`."""
        return SHORT

    @staticmethod
    def INT_TYPE_INFO() -> BasicType:
        """Return `Types.INT()`."""
        return INT

    @staticmethod
    def LONG_TYPE_INFO() -> BasicType:
        """Return `Types.LONG()`."""
        return LONG

    @staticmethod
    def FLOAT_TYPE_INFO() -> BasicType:
        """Return `Types.FLOAT()`."""
        return FLOAT

    @staticmethod
    def DOUBLE_TYPE_INFO() -> BasicType:
        """Return `Types.DOUBLE()`."""
        return DOUBLE

    @staticmethod
    def CHAR_TYPE_INFO() -> BasicType:
        """Return `Types.CHAR()`."""
        return CHAR

    @staticmethod
    def BIG_INT_TYPE_INFO() -> BasicType:
        """Return `Types.BIG_INT()`."""
        return BIG_INT

    @staticmethod
    def BIG_DEC_TYPE_INFO() -> BasicType:
        """Return `Types.BIG_DEC()`."""
        return BIG_DEC

    @staticmethod
    def INSTANT_TYPE_INFO() -> BasicType:
        """Return `Types.INSTANT()`."""
        return INSTANT


_PYFLINK_TEXTS = {
    "STRING": "String", "BYTE": "Byte", "BOOLEAN": "Boolean", "SHORT": "Short", "INT": "Integer", "LONG": "Long",
    "FLOAT": "Float", "DOUBLE": "Double", "CHAR": "Char", "BIG_INT": "BigInteger", "BIG_DEC": "BigDecimal",
    "INSTANT": "Instant", "SQL_DATE": "DateTypeInfo", "SQL_TIME": "TimeTypeInfo",
    "SQL_TIMESTAMP": "TimestampTypeInfo", "PRIMITIVE_ARRAY(BYTE)": "PrimitiveArrayTypeInfo<Byte>",
}  # fmt: skip
"""PyFlink's text of each type of one value that PyFlink has."""


@dataclass(frozen=True, repr=False)
class IntegerType(BasicType):
    """Describes whole numbers of 8 to 64 bits. Other numbers, 1.0 too, and True are refused."""

    _exact: ClassVar[frozenset[type]] = frozenset({int, _NONE})

    def encode_column(self, values: Sequence[Any]) -> pa.Array:
        kinds = set(map(type, values))
        if kinds == _INTEGERS:
            try:
                return integers(values, self.arrow)
            except OverflowError:
                pass  # the error of `pa.array`, below, says more
        if not kinds <= self._exact:
            for value in values:
                if value is not None and (not isinstance(value, numbers.Integral) or isinstance(value, bool)):
                    raise RefusedValue(f"expected an int, got a {type(value).__name__}")
        return pa.array(values, self.arrow)


@dataclass(frozen=True, repr=False)
class CharType(BasicType):
    """Describes texts of one character."""

    def encode_column(self, values: Sequence[Any]) -> pa.Array:
        """Encode characters.

        Args:
            values: The texts. None becomes null.

        Returns:
            The array.

        Raises:
            RefusedValue: A value is no text of one character.
        """
        for value in values:
            if value is not None and (not isinstance(value, str) or len(value) != 1):
                raise RefusedValue("expected a str of one character")
        return pa.array(values, self.arrow)


@dataclass(frozen=True, repr=False)
class FloatType(BasicType):
    """Describes numbers in single precision.

    A finite number that would become infinite is refused; others are rounded.
    """

    def encode_column(self, values: Sequence[Any]) -> pa.Array:
        """Encode numbers, rounded to single precision.

        Args:
            values: The numbers. None becomes null.

        Returns:
            The array.

        Raises:
            RefusedValue: A finite number is too large.
        """
        array = pa.array(values, self.arrow)
        numbers_ = array.to_numpy(zero_copy_only=False)
        if np.isinf(numbers_).any():
            for value in values:
                if value is not None and np.isfinite(value) and abs(value) > _FLOAT_MAX:
                    raise RefusedValue("too large for FLOAT; declare DOUBLE")
        return array


@dataclass(frozen=True, repr=False)
class BytesType(BasicType):
    """Describes `bytes`. A bytearray is refused, because it could change while it waits to be sent."""

    _exact: ClassVar[frozenset[type]] = frozenset({bytes, _NONE})

    def encode_column(self, values: Sequence[Any]) -> pa.Array:
        if not set(map(type, values)) <= self._exact:
            for value in values:
                if value is not None and not isinstance(value, bytes):
                    raise RefusedValue(f"expected bytes, got a {type(value).__name__}")
        return pa.array(values, self.arrow)


@dataclass(frozen=True, repr=False)
class DateType(BasicType):
    """Describes dates, times and timestamps without time zone, to the microsecond."""

    python: type = datetime.date

    def encode_column(self, values: Sequence[Any]) -> pa.Array:
        """Encode dates, times or timestamps.

        Args:
            values: Values of the type's class. None becomes null.

        Returns:
            The array.

        Raises:
            RefusedValue: A value is of another class, or has a time zone.
        """
        for value in values:
            if value is None:
                continue
            if not isinstance(value, self.python) or (
                self.python is datetime.date and isinstance(value, datetime.datetime)
            ):
                raise RefusedValue(f"expected a datetime.{self.python.__name__}, got a {type(value).__name__}")
            if getattr(value, "tzinfo", None) is not None:
                raise RefusedValue("it has a time zone, which the type cannot keep; convert it to a naive value first")
        return pa.array(values, self.arrow)


@dataclass(frozen=True, repr=False)
class InstantType(BasicType):
    """Describes points in time, to the microsecond: datetimes with a time zone. They come back as `Instant`s."""

    def encode_column(self, values: Sequence[Any]) -> pa.Array:
        """Encode datetimes that have a time zone.

        Args:
            values: The datetimes. None becomes null.

        Returns:
            The array.

        Raises:
            RefusedValue: A value is of another class, or has no time zone.
        """
        for value in values:
            if value is None:
                continue
            if not isinstance(value, datetime.datetime):
                raise RefusedValue(f"expected a datetime.datetime, got a {type(value).__name__}")
            if value.utcoffset() is None:
                raise RefusedValue(
                    "it has no time zone, so it is no point in time; give it one, e.g. value.replace(tzinfo=UTC), or "
                    "declare SQL_TIMESTAMP"
                )
        return pa.array(values, self.arrow)

    def decode_column(self, array: pa.Array) -> list[Any]:
        microseconds = array.cast(pa.int64()).to_pylist()
        return [None if us is None else Instant(us // 10**6, us % 10**6 * 1000) for us in microseconds]


@dataclass(frozen=True, repr=False)
class DecimalType(BasicType):
    """Describes decimals of a fixed number of digits. Those that would have to be rounded are refused."""

    @property
    def precision(self) -> int:
        """Return the number of digits."""
        return int(self.arrow.precision)

    @property
    def scale(self) -> int:
        """Return the number of digits behind the point."""
        return int(self.arrow.scale)

    def encode_column(self, values: Sequence[Any]) -> pa.Array:
        """Encode decimals.

        Args:
            values: `decimal.Decimal`s, or integers. None becomes null.

        Returns:
            The array.

        Raises:
            RefusedValue: A value is of another class, or is no number.
        """
        for value in values:
            if value is None or type(value) is int:
                continue
            if not isinstance(value, decimal.Decimal):
                raise RefusedValue(f"expected a decimal.Decimal, got a {type(value).__name__}")
            if not value.is_finite():
                raise RefusedValue("it is no number, which the type cannot hold")
        return pa.array(values, self.arrow)


@dataclass(frozen=True, repr=False)
class BigType(BasicType):
    """Describes numbers of any size, which are stored as their decimal text."""

    python: type = int

    def encode_column(self, values: Sequence[Any]) -> pa.Array:
        texts = []
        for value in values:
            if value is not None and (not isinstance(value, self.python) or isinstance(value, bool)):
                raise RefusedValue(f"expected a {self.python.__name__}, got a {type(value).__name__}")
            texts.append(None if value is None else str(value))
        return pa.array(texts, self.arrow)

    def decode_column(self, array: pa.Array) -> list[Any]:
        return [None if text is None else self.python(text) for text in array.to_pylist()]


class FrozenPickle(bytes):
    """Holds a row that was pickled before its batch was full; `PickledType` stores it as it is."""


def _freeze_by_pickle(value: Any) -> FrozenPickle:
    return value if type(value) is FrozenPickle else FrozenPickle(pickled(value))


def pickled(value: Any) -> bytes:
    """Pickle a value (protocol 5). Classes of the main program go by name, its functions by value.

    Args:
        value: The value.

    Returns:
        The pickle.
    """
    try:
        return pickle.dumps(value, 5)
    except (pickle.PicklingError, AttributeError, TypeError):
        # Functions of the user's main program, and local classes, exist in a slot only by value.
        return pickled_data(value)


@dataclass(frozen=True, repr=False)
class PickledType(ColumnType):
    """Describes any picklable object, stored as a binary column of pickles (protocol 5)."""

    @property
    def arrow_type(self) -> pa.DataType:
        """Return Arrow's binary type."""
        return pa.binary()

    def encode_column(self, values: Sequence[Any]) -> pa.Array:
        """Pickle values. Classes of the main program go by name, its functions by value.

        Args:
            values: The objects.

        Returns:
            The array.

        Raises:
            RefusedValue: A value cannot be pickled.
        """
        try:
            return pa.array([v if type(v) is FrozenPickle else pickle.dumps(v, 5) for v in values], pa.binary())
        except (pickle.PicklingError, AttributeError, TypeError):
            pass
        try:
            return pa.array([_freeze_by_pickle(v) for v in values], pa.binary())
        except pickle.PicklingError as error:
            raise RefusedValue(f"it cannot be pickled: {error}") from error

    def decode_column(self, array: pa.Array) -> list[Any]:
        loads = pickle.loads
        pickles = array.to_pylist()
        try:
            return [loads(value) for value in pickles]
        except (AttributeError, ImportError) as error:
            raise _missing(pickles, error) from error

    @property
    def freeze(self) -> Callable[[Any], Any]:
        return _freeze_by_pickle

    @property
    def text(self) -> str:
        """Return the name of the method of `Types`."""
        return "PICKLED_BYTE_ARRAY"

    def __repr__(self) -> str:
        return "PickledByteArrayTypeInfo"


def _missing(pickles: list[bytes], error: Exception) -> Exception:
    found = next((found for data in pickles if (found := missing_class(data)) is not None), None)
    if found is None:
        return error
    name, why = found
    return MissingClass(
        f"a row holds an object of class {name}, which is not there ({why}): keep a class of this name where it was, "
        "at least until a checkpoint without such rows has completed"
    )


BOOLEAN = BasicType("BOOLEAN", pa.bool_())
BYTE = IntegerType("BYTE", pa.int8())
SHORT = IntegerType("SHORT", pa.int16())
INT = IntegerType("INT", pa.int32())
LONG = IntegerType("LONG", pa.int64())
FLOAT = FloatType("FLOAT", pa.float32())
DOUBLE = BasicType("DOUBLE", pa.float64())
STRING = BasicType("STRING", pa.string())
CHAR = CharType("CHAR", pa.string())
BYTES = BytesType("PRIMITIVE_ARRAY(BYTE)", pa.binary())
BIG_INT = BigType("BIG_INT", pa.string(), int)
BIG_DEC = BigType("BIG_DEC", pa.string(), decimal.Decimal)
SQL_DATE = DateType("SQL_DATE", pa.date32(), datetime.date)
SQL_TIME = DateType("SQL_TIME", pa.time64("us"), datetime.time)
SQL_TIMESTAMP = DateType("SQL_TIMESTAMP", pa.timestamp("us"), datetime.datetime)
INSTANT = InstantType("INSTANT", pa.timestamp("us", "UTC"))

DECIMAL_DIGITS_MAX = 38


def decimal_type(precision: int, scale: int) -> DecimalType:
    """Make the type of decimals of a fixed number of digits.

    Args:
        precision: The number of digits, at most 38.
        scale: How many of them are behind the point.

    Returns:
        The type.

    Raises:
        ValueError: There is no such type.
    """
    if not (1 <= precision <= DECIMAL_DIGITS_MAX and 0 <= scale <= precision):
        raise ValueError(
            f"DECIMAL({precision}, {scale}): the precision is 1 to {DECIMAL_DIGITS_MAX} digits, and the scale 0 to that"
        )
    return DecimalType(f"DECIMAL({precision}, {scale})", pa.decimal128(precision, scale))


PICKLED = PickledType()
"""The type of a stream without a declared one; the runtime reads `edge.type or PICKLED`."""
