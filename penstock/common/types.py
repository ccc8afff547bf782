"""Defines `Types`, which makes the types of a stream's rows."""

from __future__ import annotations

from penstock.common.row_types import scalar_types as scalars
from penstock.common.row_types.columns import ColumnType
from penstock.common.row_types.composite_types import ListType, MapType, RowType, TupleType
from penstock.common.row_types.row import Row, RowKind
from penstock.common.row_types.scalar_types import PICKLED, PickledType
from penstock.common.row_types.type_information import RowTypeError, TypeInformation

__all__ = [
    "PICKLED", "ListType", "MapType", "PickledType", "Row", "RowKind", "RowType", "RowTypeError", "TupleType",
    "TypeInformation", "Types",
]  # fmt: skip


class Types:
    """Makes the types of a stream's rows and of state. Types that mean the same compare equal.

    Example:
        Types.ROW_NAMED(["user", "amount"], [Types.STRING(), Types.DOUBLE()])
        Types.TUPLE([Types.STRING(), Types.LONG()])
    """

    @staticmethod
    def BOOLEAN() -> ColumnType:
        """Return the type of `bool` values."""
        return scalars.BOOLEAN

    @staticmethod
    def BYTE() -> ColumnType:
        """Return the type of whole numbers of 8 bits."""
        return scalars.BYTE

    @staticmethod
    def SHORT() -> ColumnType:
        """Return the type of whole numbers of 16 bits."""
        return scalars.SHORT

    @staticmethod
    def INT() -> ColumnType:
        """Return the type of whole numbers of 32 bits."""
        return scalars.INT

    @staticmethod
    def LONG() -> ColumnType:
        """Return the type of whole numbers of 64 bits."""
        return scalars.LONG

    @staticmethod
    def FLOAT() -> ColumnType:
        """Return the type of numbers in single precision: values are rounded to about 7 digits."""
        return scalars.FLOAT

    @staticmethod
    def DOUBLE() -> ColumnType:
        """Return the type of numbers in double precision, which is Python's `float`."""
        return scalars.DOUBLE

    @staticmethod
    def STRING() -> ColumnType:
        """Return the type of `str` values."""
        return scalars.STRING

    @staticmethod
    def CHAR() -> ColumnType:
        """Return the type of `str` values of one character."""
        return scalars.CHAR

    @staticmethod
    def BIG_INT() -> ColumnType:
        """Return the type of whole numbers of any size."""
        return scalars.BIG_INT

    @staticmethod
    def BIG_DEC() -> ColumnType:
        """Return the type of `decimal.Decimal` values of any precision."""
        return scalars.BIG_DEC

    @staticmethod
    def DECIMAL(precision: int, scale: int) -> ColumnType:
        """Return the type of `decimal.Decimal` values with a fixed number of digits: numbers in columns, too.

        Args:
            precision: The number of digits, at most 38.
            scale: How many of them are behind the point.

        Returns:
            The type.
        """
        return scalars.decimal_type(precision, scale)

    @staticmethod
    def SQL_DATE() -> ColumnType:
        """Return the type of `datetime.date` values."""
        return scalars.SQL_DATE

    @staticmethod
    def SQL_TIME() -> ColumnType:
        """Return the type of `datetime.time` values without time zone, in microseconds."""
        return scalars.SQL_TIME

    @staticmethod
    def SQL_TIMESTAMP() -> ColumnType:
        """Return the type of `datetime.datetime` values without time zone, in microseconds."""
        return scalars.SQL_TIMESTAMP

    @staticmethod
    def INSTANT() -> ColumnType:
        """Return the type of `Instant`s and other `datetime.datetime` values with a time zone, in microseconds.

        They come back as `Instant`s, which are datetimes in UTC.
        """
        return scalars.INSTANT

    @staticmethod
    def PICKLED_BYTE_ARRAY() -> ColumnType:
        """Return the type of any picklable objects: the type of streams for which none was declared."""
        return PICKLED

    @staticmethod
    def TUPLE(field_types: list[ColumnType]) -> ColumnType:
        """Return the type of tuples. The columns are called f0, f1, ...

        Args:
            field_types: The types of the fields.

        Returns:
            The type.
        """
        return TupleType(tuple(field_types))

    @staticmethod
    def ROW(field_types: list[ColumnType]) -> RowType:
        """Return the type of `Row`s. The fields are called f0, f1, ...

        Args:
            field_types: The types of the fields.

        Returns:
            The type.
        """
        return RowType(tuple(field_types))

    @staticmethod
    def ROW_NAMED(field_names: list[str], field_types: list[ColumnType]) -> RowType:
        """Return the type of `Row`s with named fields.

        Args:
            field_names: The names of the fields, which are those of the columns.
            field_types: The types of the fields.

        Returns:
            The type. Raises ValueError if the lengths differ or a name is repeated or reserved.
        """
        return RowType(tuple(field_types), tuple(field_names))

    @staticmethod
    def PRIMITIVE_ARRAY(element_type: ColumnType) -> ColumnType:
        """Return the type of `bytes`, for BYTE, or of lists of another type.

        Args:
            element_type: The type of an element.

        Returns:
            The type.
        """
        if element_type == scalars.BYTE:
            return scalars.BYTES
        return ListType(element_type, "PRIMITIVE_ARRAY")

    @staticmethod
    def BASIC_ARRAY(element_type: ColumnType) -> ColumnType:
        """Return the type of lists of simple values.

        Args:
            element_type: The type of an element.

        Returns:
            The type.
        """
        return ListType(element_type, "BASIC_ARRAY")

    @staticmethod
    def OBJECT_ARRAY(element_type: ColumnType) -> ColumnType:
        """Return the type of lists of any values.

        Args:
            element_type: The type of an element.

        Returns:
            The type.
        """
        return ListType(element_type, "OBJECT_ARRAY")

    @staticmethod
    def LIST(element_type_info: ColumnType) -> ColumnType:
        """Return the type of lists.

        Args:
            element_type_info: The type of an element.

        Returns:
            The type.
        """
        return ListType(element_type_info)

    @staticmethod
    def MAP(key_type_info: ColumnType, value_type_info: ColumnType) -> ColumnType:
        """Return the type of dicts.

        Args:
            key_type_info: The type of a key. Keys are not None.
            value_type_info: The type of a value.

        Returns:
            The type.
        """
        return MapType(key_type_info, value_type_info)
