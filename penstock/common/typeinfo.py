"""Offers the names that PyFlink has in `pyflink.common.typeinfo`: `Types`, and the classes of its types."""

from typing import TYPE_CHECKING

from penstock.common.missing_names import advising_getattr
from penstock.common.row_types.composite_types import ListType as ListTypeInfo
from penstock.common.row_types.composite_types import MapType as MapTypeInfo
from penstock.common.row_types.composite_types import RowType as RowTypeInfo
from penstock.common.row_types.composite_types import TupleType as TupleTypeInfo
from penstock.common.row_types.row import Row, RowKind
from penstock.common.row_types.scalar_types import BasicType as BasicTypeInfo
from penstock.common.row_types.scalar_types import PickledType as PickledBytesTypeInfo
from penstock.common.row_types.type_information import (
    KEY_COLUMN,
    KEY_GROUP_COLUMN,
    LAST_ACCESS_COLUMN,
    RESERVED_COLUMNS,
    TIMESTAMP_COLUMN,
    RowTypeError,
    TypeInformation,
)
from penstock.common.types import Types

__all__ = [
    "KEY_COLUMN", "KEY_GROUP_COLUMN", "LAST_ACCESS_COLUMN", "RESERVED_COLUMNS", "TIMESTAMP_COLUMN", "BasicTypeInfo",
    "ListTypeInfo", "MapTypeInfo", "PickledBytesTypeInfo", "Row", "RowKind", "RowTypeError", "RowTypeInfo",
    "TupleTypeInfo", "TypeInformation", "Types",
]  # fmt: skip

if not TYPE_CHECKING:  # a type checker knows the names without it
    __getattr__ = advising_getattr(__name__)
