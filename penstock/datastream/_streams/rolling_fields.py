"""Implements PyFlink's rolling sum, min and max of one field, over rows in Python.

Streams keyed by columns have columnar ones: `penstock.datastream._streams.keyed_columns`.
"""

from __future__ import annotations

from typing import Any, Callable

from penstock.common.row import Row
from penstock.common.types import RowType
from penstock.datastream._streams.row_operators import KeyedRowOperators
from penstock.datastream._streams.stream_classes import S
from penstock.datastream.functions import ReduceFunction

Field = int | str


class RollingFields(KeyedRowOperators[S]):
    """Offers PyFlink's rolling sum, minimum and maximum of a field.

    A field is that of a tuple by position, of a `Row` by position or name; position 0 of a plain value is the value.
    """

    def sum(self, position_to_sum: Field = 0) -> S:
        """Emit for each row the sum of a field of all rows of its key so far.

        Other fields are those of the key's first row.

        Args:
            position_to_sum: The position or name of the field.

        Returns:
            The stream of sums, of the type of the rows.
        """
        return self._rolling("sum", _Replaced(position_to_sum, lambda kept, new: kept + new))

    def min(self, position_to_min: Field = 0) -> S:
        """Emit for each row the minimum of a field so far. Other fields are those of the key's first row.

        Args:
            position_to_min: The position or name of the field.

        Returns:
            The stream of minima, of the type of the rows.
        """
        return self._rolling("min", _Replaced(position_to_min, lambda kept, new: new if new < kept else kept))

    def max(self, position_to_max: Field = 0) -> S:
        """Emit for each row the maximum of a field so far. Other fields are those of the key's first row.

        Args:
            position_to_max: The position or name of the field.

        Returns:
            The stream of maxima, of the type of the rows.
        """
        return self._rolling("max", _Replaced(position_to_max, lambda kept, new: new if new > kept else kept))

    def min_by(self, position_to_min_by: Field = 0) -> S:
        """Emit for each row the row of its key with the least field so far; of equal ones the first.

        Args:
            position_to_min_by: The position or name of the field.

        Returns:
            The stream of these rows.
        """
        return self._rolling("min_by", _Chosen(position_to_min_by, lambda kept, new: new < kept))

    def max_by(self, position_to_max_by: Field = 0) -> S:
        """Emit for each row the row of its key with the greatest field so far; of equal ones the first.

        Args:
            position_to_max_by: The position or name of the field.

        Returns:
            The stream of these rows.
        """
        return self._rolling("max_by", _Chosen(position_to_max_by, lambda kept, new: new > kept))

    def _rolling(self, method: str, function: _FieldReduce) -> S:
        field = function.field
        if isinstance(field, bool) or not isinstance(field, (int, str)):
            raise TypeError(f"{method}() takes a field's position or name, got {field!r}")
        if isinstance(self._type, RowType) and not _has(self._type, field):
            names = ", ".join(self._type.field_names)
            raise ValueError(f"{method}(): there is no field {field!r}; the fields are {names}")
        return self.reduce(function)


def _has(type_info: RowType, field: Field) -> bool:
    return field in type_info.field_names if isinstance(field, str) else 0 <= field < len(type_info.field_names)


class _FieldReduce(ReduceFunction):
    def __init__(self, field: Field, combine: Callable[[Any, Any], Any]) -> None:
        self.field = field
        self._combine = combine

    def _of(self, row: Any) -> Any:
        if isinstance(row, Row) or (isinstance(row, tuple) and isinstance(self.field, int)):
            return row[self.field]  # type: ignore[index]
        if isinstance(self.field, int) and self.field == 0:
            return row
        raise TypeError(f"field {self.field!r} of a {type(row).__name__}: {row!r:.200}")


class _Replaced(_FieldReduce):
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


class _Chosen(_FieldReduce):
    def reduce(self, value1: Any, value2: Any) -> Any:
        return value2 if self._combine(self._of(value1), self._of(value2)) else value1
