"""Offers the names that PyFlink has in `pyflink.common.typeinfo`: `Types`, and the base of the types that it makes."""

from penstock.common.row import Row, RowKind
from penstock.common.type_information import (
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
    "KEY_COLUMN", "KEY_GROUP_COLUMN", "LAST_ACCESS_COLUMN", "RESERVED_COLUMNS", "TIMESTAMP_COLUMN", "Row", "RowKind",
    "RowTypeError", "TypeInformation", "Types",
]  # fmt: skip
