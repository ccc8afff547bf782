"""What a type of rows can do: name the columns of its batches, turn rows into batches and back.

The concrete types, and `Types`, which makes them, are in `penstock.common.types`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Callable, Sequence

import pyarrow as pa

TIMESTAMP_COLUMN = "__timestamp__"
KEY_COLUMN = "__key__"
KEY_GROUP_COLUMN = "__key_group__"
RESERVED_COLUMNS = (TIMESTAMP_COLUMN, KEY_COLUMN, KEY_GROUP_COLUMN)


class RowTypeError(TypeError):
    """A row does not fit its declared type. `row_index` is its place in the encoded list; `field` a name or None."""

    def __init__(self, message: str, row_index: int, field: str | None = None) -> None:
        super().__init__(message)
        self.row_index = row_index
        self.field = field


class TypeInformation(ABC):
    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns of a batch of such rows, without the reserved ones."""

    @abstractmethod
    def encode(self, rows: Sequence[Any]) -> list[pa.Array]:
        """The arrays of `schema`, in its order. Raises `RowTypeError` that names the first bad row and field."""

    @abstractmethod
    def decode(self, batch: pa.RecordBatch) -> list[Any]:
        """The rows as the user's functions see them. Reserved columns of the batch are ignored."""

    @property
    def freeze(self) -> Callable[[Any], Any] | None:
        """Turns a row that the user may still change into one that can wait to be encoded; None where rows of this
        type cannot be changed."""
        return None
