"""Defines the interface of a type of rows: name the columns of its batches, turn rows into batches and back.

The concrete types, and `Types`, which makes them, are in `penstock.common.types`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Callable, Sequence

import pyarrow as pa

TIMESTAMP_COLUMN = "__timestamp__"
KEY_COLUMN = "__key__"
KEY_GROUP_COLUMN = "__key_group__"
LAST_ACCESS_COLUMN = "__last_access_ms__"
RESERVED_COLUMNS = (TIMESTAMP_COLUMN, KEY_COLUMN, KEY_GROUP_COLUMN, LAST_ACCESS_COLUMN)


class RowTypeError(TypeError):
    """Reports a row that does not fit its declared type.

    `row_index` is its place in the encoded list; `field` is the name of the field, or None.
    """

    def __init__(self, message: str, row_index: int, field: str | None = None) -> None:
        super().__init__(message)
        self.row_index = row_index
        self.field = field


class TypeInformation(ABC):
    """Describes the rows of a stream: the columns of its batches, and how rows become batches and back.

    `str(type)` is PyFlink's text, "RowTypeInfo(user: String)". Messages, and checkpoints, have the shorter `text`,
    "ROW(user STRING)", which f-strings give, too.
    """

    @property
    @abstractmethod
    def text(self) -> str:
        """Return the type as `Types` makes it: "ROW(user STRING)"."""

    def __format__(self, format_spec: str) -> str:
        return format(self.text, format_spec)

    def __str__(self) -> str:
        return repr(self)

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """Return the columns of a batch of such rows, without the reserved ones."""

    @abstractmethod
    def encode(self, rows: Sequence[Any]) -> list[pa.Array]:
        """Encode rows as columns.

        Raises `RowTypeError`, which names the first bad row and field, if a row does not fit.

        Args:
            rows: The rows.

        Returns:
            The arrays of `schema`, in its order.
        """

    @abstractmethod
    def decode(self, batch: pa.RecordBatch) -> list[Any]:
        """Decode a batch to rows as users' functions see them.

        Args:
            batch: A batch with the columns of `schema`, in its order; reserved columns may follow.

        Returns:
            The rows.
        """

    @property
    def freeze(self) -> Callable[[Any], Any] | None:
        """Return a function that makes a row independent of its user, who may still change it before it is encoded.

        None if rows of this type cannot be changed.
        """
        return None
