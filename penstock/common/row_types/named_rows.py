"""Gives positional rows the field names of their declared type, so that the next function finds them."""

from __future__ import annotations

from typing import Any, Callable

from penstock.common.row_types.composite_types import RowType
from penstock.common.row_types.row import Row
from penstock.common.typeinfo import TypeInformation

Reduce = Callable[[Any, Any], Any]


def reducing(reduce: Reduce, type_info: TypeInformation | None) -> Reduce:
    """Wrap a reduce function so that its results have the field names of the declared type.

    A result is the first argument of the next call. After a restore it would have names, because state is decoded by
    its type; before, it would not if the function returned `Row(...)` by position.

    Args:
        reduce: The function (row, row) -> row.
        type_info: The declared type. If it has no field names, `reduce` itself is returned.

    Returns:
        The function to call.
    """
    if not isinstance(type_info, RowType):
        return reduce
    names = type_info.field_names

    def reduced(first: Any, second: Any) -> Any:
        made = reduce(first, second)
        if type(made) is tuple or (type(made) is Row and made.get_field_names() is None):
            return Row.of_fields(names, made) if len(made) == len(names) else made
        return made

    return reduced
