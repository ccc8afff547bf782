"""Finds the columns of a stream, and the types of expressions over them."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.row_types.columns import ColumnType
from penstock.common.typeinfo import TypeInformation
from penstock.common.types import PICKLED
from penstock.datastream._streams.decimal_literals import with_decimal_literals

_UNKNOWN_COLUMN = re.compile(r"No match for FieldRef\.(?:Name\((?P<name>.*?)\)|\w+\((?P<other>.*?)\)) in ")


def columns_of(type_info: TypeInformation | None, method: str) -> pa.Schema:
    """Return the columns of a stream of this type. Raises TypeError if it has none."""
    if type_info is None or type_info == PICKLED:
        raise TypeError(
            f"{method} works on columns, and the rows of this stream have no declared type: give the operator before "
            "it one, e.g. map(f, output_type=Types.ROW_NAMED(['id', 'amount'], [Types.LONG(), Types.DOUBLE()]))"
        )
    return type_info.schema


def field_type(type_info: TypeInformation | None, column: str) -> ColumnType:
    """Return the type of a field of a tuple or row; that of a plain value is its own."""
    assert type_info is not None
    fields: tuple[ColumnType, ...] | None = getattr(type_info, "field_types", None)
    found = type_info if fields is None else fields[type_info.schema.get_field_index(column)]
    assert isinstance(found, ColumnType)
    return found


def name_of_number(schema: pa.Schema) -> str:
    """Return an example of an expression, `pc.field('amount')`, with a column of the schema."""
    numbers = (f.name for f in schema if pa.types.is_integer(f.type) or pa.types.is_floating(f.type))
    return f"pc.field({next(numbers, 'amount')!r})"


def unknown_column(method: str, column: str, schema: pa.Schema) -> ValueError:
    return ValueError(f"{method}: there is no column {column!r}; the columns are {described(schema)}")


def described(schema: pa.Schema) -> str:
    return ", ".join(f"{f.name} ({f.type})" for f in schema)


_HINTS = {
    "Precision is not great enough": "; next to a decimal column write a number as a decimal, Decimal('100')",
    "Decimal precision out of range": (
        "; a result has at most 38 digits: cast a column to fewer before, pc.field('a').cast(pa.decimal128(18, 2))"
    ),
}
"""Ways out of what Arrow refuses about decimals."""


def bound(expression: pc.Expression, schema: pa.Schema, method: str) -> tuple[pc.Expression, pa.DataType]:
    """Bind an expression to columns, and find its type.

    Args:
        expression: The expression.
        schema: The columns.
        method: The user's call, for messages.

    Returns:
        The expression as it is evaluated (whole numbers next to decimals are decimals), and its type.

    Raises:
        TypeError: It does not fit the columns, which the message lists.
        ValueError: There is no such column.
    """
    try:
        typed = with_decimal_literals(expression, schema, lambda part: _type_of(part, schema))
        return typed, _type_of(typed, schema)
    except pa.ArrowException as error:
        said = str(error)
        unknown = _UNKNOWN_COLUMN.search(said)
        if unknown is not None:
            raise unknown_column(method, unknown["name"] or unknown["other"], schema) from None
        hint = next((hint for words, hint in _HINTS.items() if words in said), "")
        raise TypeError(
            f"{method}: the expression {expression} does not fit the columns {described(schema)}: {said}{hint}"
        ) from None


def _type_of(expression: pc.Expression, schema: pa.Schema) -> pa.DataType:
    # Imported here: acero imports pandas and clients of object stores, which takes longer than all of our modules.
    from pyarrow import acero

    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(schema.empty_table()))
    node = acero.Declaration("project", acero.ProjectNodeOptions([expression], ["bound"]), [source])
    return node.to_table(use_threads=False).schema.field(0).type
