"""Turns the elements of a collection into rows of a type, as PyFlink's `from_collection()` does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.common.typeinfo import TypeInformation
from penstock.common.types import Row, RowType, TupleType


def as_rows(collection: Iterable[Any], type_info: TypeInformation | None) -> list[Any]:
    """Return the rows of a collection. For a type of fields, a list, a dict and an object become rows, too."""
    if isinstance(type_info, RowType):
        return [_as_row(given, type_info.field_names) for given in collection]
    if isinstance(type_info, TupleType):
        return [tuple(given) if isinstance(given, list) else given for given in collection]
    return list(collection)


def _as_row(given: Any, names: tuple[str, ...]) -> Any:
    if isinstance(given, (tuple, Row)):
        return given
    if isinstance(given, list):
        return tuple(given)
    fields = given if isinstance(given, dict) else getattr(given, "__dict__", None)
    # One that has none of the fields is a mistake, which the type's own error explains.
    if fields is None or not any(name in fields for name in names):
        return given
    return tuple(fields.get(name) for name in names)
