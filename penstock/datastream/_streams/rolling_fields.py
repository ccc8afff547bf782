"""Implements PyFlink's rolling sum, min and max of one field, over rows in Python.

Streams keyed by columns have columnar ones: `penstock.datastream._streams.keyed_columns`.
"""

from __future__ import annotations

from typing import Any, Callable

from penstock.common.row_types.row import Row
from penstock.common.typeinfo import TypeInformation
from penstock.common.types import RowType, TupleType
from penstock.datastream.functions import ReduceFunction

Field = int | str


def checked_field(type_info: TypeInformation | None, method: str, field: Field) -> Field:
    """Check that rows of this type have the field, and return it; of a tuple, its position.

    Raises TypeError or ValueError.
    """
    if isinstance(field, bool) or not isinstance(field, (int, str)):
        raise TypeError(f"{method}() takes a field's position or name, got {field!r}")
    if isinstance(type_info, (RowType, TupleType)) and not _has(type_info, field):
        names = ", ".join(type_info.field_names)
        raise ValueError(f"{method}(): there is no field {field!r}; the fields are {names}")
    if isinstance(type_info, TupleType) and isinstance(field, str):
        return type_info.field_names.index(field)
    return field


def _has(type_info: RowType | TupleType, field: Field) -> bool:
    return field in type_info.field_names if isinstance(field, str) else 0 <= field < len(type_info.field_names)


class FieldReduce(ReduceFunction):
    """Combines a field of two rows. It is that of a tuple by position, of a `Row` by position or name; position 0 of a
    plain value is the value."""

    def __init__(self, field: Field, combine: Callable[[Any, Any], Any]) -> None:
        self.field = field
        self._combine = combine

    def _of(self, row: Any) -> Any:
        if isinstance(row, Row) or (isinstance(row, tuple) and isinstance(self.field, int)):
            return row[self.field]  # type: ignore[index]
        if isinstance(self.field, int) and self.field == 0:
            return row
        raise TypeError(f"field {self.field!r} of a {type(row).__name__}: {row!r:.200}")


class ReplacedField(FieldReduce):
    """Puts the combined field into the first row."""

    def reduce(self, value1: Any, value2: Any) -> Any:
        combined = self._combine(self._of(value1), self._of(value2))
        if isinstance(value1, tuple):
            at = int(self.field)
            fields = list(value1)
            fields[at] = combined
            return tuple(fields)
        if isinstance(value1, Row):
            made = Row.of_fields(value1.get_field_names(), value1.to_tuple())
            made[self.field] = combined
            return made
        return combined


class ChosenRow(FieldReduce):
    """Keeps the one row or the other, by their fields."""

    def reduce(self, value1: Any, value2: Any) -> Any:
        return value2 if self._combine(self._of(value1), self._of(value2)) else value1
