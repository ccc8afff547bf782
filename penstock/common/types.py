"""`Types`: the types of a stream's rows, made as PyFlink makes them."""

from __future__ import annotations

from penstock.common import scalar_types as scalars
from penstock.common.columns import ColumnType
from penstock.common.composite_types import ListType, MapType, RowType, TupleType
from penstock.common.row import Row, RowKind
from penstock.common.scalar_types import PICKLED, PickledType
from penstock.common.type_information import RowTypeError, TypeInformation

__all__ = ["PICKLED", "ListType", "MapType", "PickledType", "Row", "RowKind", "RowType", "RowTypeError", "TupleType",
           "TypeInformation", "Types"]


class Types:
    """Every method returns a `TypeInformation`. Types compare equal when they mean the same."""

    @staticmethod
    def BOOLEAN() -> ColumnType:
        return scalars.BOOLEAN

    @staticmethod
    def BYTE() -> ColumnType:
        """A whole number of 8 bits."""
        return scalars.BYTE

    @staticmethod
    def SHORT() -> ColumnType:
        """A whole number of 16 bits."""
        return scalars.SHORT

    @staticmethod
    def INT() -> ColumnType:
        """A whole number of 32 bits."""
        return scalars.INT

    @staticmethod
    def LONG() -> ColumnType:
        """A whole number of 64 bits."""
        return scalars.LONG

    @staticmethod
    def FLOAT() -> ColumnType:
        """A number in single precision: values are rounded to about 7 digits."""
        return scalars.FLOAT

    @staticmethod
    def DOUBLE() -> ColumnType:
        return scalars.DOUBLE

    @staticmethod
    def STRING() -> ColumnType:
        return scalars.STRING

    @staticmethod
    def BIG_INT() -> ColumnType:
        """A whole number of any size."""
        return scalars.BIG_INT

    @staticmethod
    def BIG_DEC() -> ColumnType:
        """A `decimal.Decimal` of any precision."""
        return scalars.BIG_DEC

    @staticmethod
    def SQL_DATE() -> ColumnType:
        """A `datetime.date`."""
        return scalars.SQL_DATE

    @staticmethod
    def SQL_TIME() -> ColumnType:
        """A `datetime.time` without time zone, in microseconds."""
        return scalars.SQL_TIME

    @staticmethod
    def SQL_TIMESTAMP() -> ColumnType:
        """A `datetime.datetime` without time zone, in microseconds."""
        return scalars.SQL_TIMESTAMP

    @staticmethod
    def PICKLED_BYTE_ARRAY() -> ColumnType:
        """Any picklable object: what a stream without a declared type is made of."""
        return PICKLED

    @staticmethod
    def TUPLE(field_types: list[ColumnType]) -> ColumnType:
        """Tuples of this length; the columns are called f0, f1, ..."""
        return TupleType(tuple(field_types))

    @staticmethod
    def ROW(field_types: list[ColumnType]) -> ColumnType:
        """`Row`s of this length; the fields are called f0, f1, ..."""
        return RowType(tuple(field_types), tuple(f"f{i}" for i in range(len(field_types))))

    @staticmethod
    def ROW_NAMED(field_names: list[str], field_types: list[ColumnType]) -> ColumnType:
        return RowType(tuple(field_types), tuple(field_names))

    @staticmethod
    def PRIMITIVE_ARRAY(element_type: ColumnType) -> ColumnType:
        """Of BYTE: `bytes`. Of another type: a list."""
        if element_type == scalars.BYTE:
            return scalars.BYTES
        return ListType(element_type, "PRIMITIVE_ARRAY")

    @staticmethod
    def BASIC_ARRAY(element_type: ColumnType) -> ColumnType:
        return ListType(element_type, "BASIC_ARRAY")

    @staticmethod
    def OBJECT_ARRAY(element_type: ColumnType) -> ColumnType:
        return ListType(element_type, "OBJECT_ARRAY")

    @staticmethod
    def LIST(element_type_info: ColumnType) -> ColumnType:
        return ListType(element_type_info)

    @staticmethod
    def MAP(key_type_info: ColumnType, value_type_info: ColumnType) -> ColumnType:
        return MapType(key_type_info, value_type_info)
