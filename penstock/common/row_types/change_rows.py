"""Defines the type of rows that are changes: each has a kind besides its fields."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from penstock.common.row_types.columns import ColumnType
from penstock.common.row_types.composite_types import RowType
from penstock.common.row_types.row import Row, RowKind
from penstock.common.row_types.type_information import RowTypeError

KIND_COLUMN = "__row_kind__"
_KINDS = tuple(RowKind)
_KIND_TYPE = pa.int8()


@dataclass(frozen=True, repr=False)
class ChangeRowType(ColumnType):
    """Describes `Row`s of any `RowKind`, in the columns of `row_type` and one more for the kind.

    It is not a `RowType`, so that a sink that knows nothing of kinds refuses changes instead of writing them all alike.
    """

    row_type: RowType

    @property
    def field_names(self) -> tuple[str, ...]:
        """Return the names of the fields."""
        return self.row_type.field_names

    @property
    def field_types(self) -> tuple[ColumnType, ...]:
        """Return the types of the fields."""
        return self.row_type.field_types

    @cached_property
    def arrow_type(self) -> pa.DataType:
        """Return the Arrow struct type of nested rows."""
        return pa.struct(list(self.schema))

    @cached_property
    def schema(self) -> pa.Schema:
        """Return the schema of the stream's batches: a column for each field, and one for the kind."""
        return self.row_type.schema.append(pa.field(KIND_COLUMN, _KIND_TYPE))

    def encode(self, rows: Sequence[Any]) -> list[pa.Array]:
        """Encode rows. Tuples, and rows by default, are inserts.

        Args:
            rows: The rows.

        Returns:
            An array for each field, and one of the kinds.

        Raises:
            RowTypeError: A row does not fit. The error names it.
        """
        kinds = [row.get_row_kind().value if isinstance(row, Row) else 0 for row in rows]
        try:
            columns = self.row_type.encode([_insert(row) for row in rows])
        except RowTypeError as error:
            raise RowTypeError(
                str(error).replace(self.row_type.text, self.text), error.row_index, error.field
            ) from error
        return [*columns, pa.array(kinds, _KIND_TYPE)]

    def decode(self, batch: pa.RecordBatch) -> list[Any]:
        """Decode rows.

        Args:
            batch: The rows.

        Returns:
            A `Row` for each, of its kind.
        """
        rows = self.row_type.decode(batch)
        for row, kind in zip(rows, batch.column(len(self.field_names)).to_pylist()):
            if kind:
                row.set_row_kind(_KINDS[kind])
        return rows

    def encode_column(self, values: Sequence[Any]) -> pa.Array:
        found = self.encode([(None,) * len(self.field_names) if value is None else value for value in values])
        mask = pa.array([value is None for value in values])
        return pa.StructArray.from_arrays(found, fields=list(self.arrow_type), mask=mask)

    def decode_column(self, array: pa.Array) -> list[Any]:
        rows = self.decode(pa.RecordBatch.from_arrays(array.flatten(), schema=self.schema))
        if array.null_count:
            return [row if valid else None for row, valid in zip(rows, array.is_valid().to_pylist())]
        return rows

    @property
    def freeze(self) -> Callable[[Any], Any]:
        return lambda row: pickle.loads(pickle.dumps(row, 5)) if isinstance(row, Row) else row

    @property
    def text(self) -> str:
        """Return "CHANGES OF ROW(user STRING)"."""
        return f"CHANGES OF {self.row_type.text}"

    def __repr__(self) -> str:
        return f"CHANGES OF {self.row_type!r}"


def _insert(row: Any) -> Any:
    """Return the row without its kind."""
    if isinstance(row, Row) and row.get_row_kind() is not RowKind.INSERT:
        return Row.of_fields(row.get_field_names(), row.to_tuple())
    return row
