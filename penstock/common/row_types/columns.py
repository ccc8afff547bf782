"""Defines types whose values fit into one Arrow column, and finds the value that does not fit.

Every type encodes and decodes whole columns, nested ones too: a list of tuples is a column of offsets and a column for
each field, so no Python object per row is made next to the values themselves.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from array import array
from functools import cached_property
from typing import Any, Sequence

import pyarrow as pa

from penstock.common.row_types.type_information import RowTypeError, TypeInformation

VALUE_COLUMN = "value"
ENCODING_ERRORS = (pa.ArrowException, TypeError, ValueError, OverflowError, UnicodeError, AttributeError)


class RefusedValue(ValueError):
    """Reports a value that a type refuses because Arrow would change it. The message says what was expected."""


class ColumnType(TypeInformation):
    """Describes values that fit into one column: rows of one value, fields of a tuple, elements of a list."""

    @property
    @abstractmethod
    def arrow_type(self) -> pa.DataType:
        """Return the Arrow type of the column."""

    @abstractmethod
    def encode_column(self, values: Sequence[Any]) -> pa.Array:
        """Encode values as an Arrow array.

        Args:
            values: The values. None becomes null.

        Returns:
            The array, of `arrow_type`.

        Raises:
            RefusedValue: A value does not fit; or another one of `ENCODING_ERRORS`, which does not say which value.
        """

    @abstractmethod
    def decode_column(self, array: pa.Array) -> list[Any]:
        """Decode an Arrow array.

        Args:
            array: An array of `arrow_type`.

        Returns:
            The values, in their order. Null becomes None.
        """

    @cached_property
    def schema(self) -> pa.Schema:
        """Return the schema of rows that are one such value: the column "value"."""
        return pa.schema([(VALUE_COLUMN, self.arrow_type)])

    def encode(self, rows: Sequence[Any]) -> list[pa.Array]:
        """Encode rows of one value each.

        Args:
            rows: The values.

        Returns:
            One array.

        Raises:
            RowTypeError: A value does not fit. The error names the first such row.
        """
        try:
            return [whole(self.encode_column(rows))]
        except ENCODING_ERRORS as error:
            index, cause = first_refused(self, rows, error)
            raise RowTypeError(
                f"row {index} does not fit its declared type {self}: {shown(rows[index])}: {cause}", index
            ) from error

    def decode(self, batch: pa.RecordBatch) -> list[Any]:
        return self.decode_column(batch.column(0))


_INTEGER_CODES = {8: "b", 16: "h", 32: "i", 64: "q"}


def integers(values: Sequence[Any], arrow_type: pa.DataType) -> pa.Array:
    """Encode integers, none of them None, faster than `pa.array`, whose fixed cost equals the cost of a hundred values.

    Args:
        values: The integers.
        arrow_type: A signed integer type.

    Returns:
        The array. Raises OverflowError for a value out of range, TypeError for one that is no integer.
    """
    packed = array(_INTEGER_CODES[arrow_type.bit_width], values)
    return pa.Array.from_buffers(arrow_type, len(packed), [None, pa.py_buffer(packed)])


def whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Check that a column is one array: Arrow splits a column of more than 2 GB, and a batch cannot hold it.

    Args:
        column: The column.

    Returns:
        The array.

    Raises:
        OverflowError: The column was split.
    """
    if isinstance(column, pa.ChunkedArray):
        raise OverflowError("one batch holds more than 2 GB of this column; make its rows smaller")
    return column


def first_refused(type: ColumnType, values: Sequence[Any], error: BaseException) -> tuple[int, str]:
    """Find the first value that a type refuses. Called only after a failure.

    Args:
        type: The type.
        values: The values that were encoded together.
        error: Their error, for the case that each value fits on its own.

    Returns:
        The index of the value, and the reason.
    """
    for index, value in enumerate(values):
        try:
            type.encode_column([value])
        except ENCODING_ERRORS as cause:
            return index, reason(cause)
    return 0, reason(error)


_ARROW_REASONS = re.compile(
    r"Expected (?P<bytes>bytes), got an? '(?P<other>[\w.]+)' object"
    r"|Could not convert .* with type (?P<given>[\w.]+): tried to convert to (?P<wanted>boolean|double|float32)",
    re.DOTALL,
)
_PYTHON_NAMES = {"bytes": "str", "boolean": "bool", "double": "float", "float32": "float"}
"""Arrow asks for bytes where a str is missing, and names its own types."""


def reason(error: BaseException) -> str:
    """Return the first line of an error's message, in Python's words if it is one of Arrow's.

    Args:
        error: The error.

    Returns:
        The line; the name of its class if there is no message.
    """
    text = str(error).strip() or type(error).__name__
    if (found := _ARROW_REASONS.match(text)) is not None:
        wanted, given = found["bytes"] or found["wanted"], found["other"] or found["given"]
        return f"expected a {_PYTHON_NAMES[wanted]}, got {'an' if given[0] in 'aeiou' else 'a'} {given}"
    return text.splitlines()[0]


def shown(value: Any) -> str:
    """Format a value for an error message: cut to 80 characters, with its Python type.

    Args:
        value: The value.

    Returns:
        The text.
    """
    text = repr(value)
    if len(text) > 80:
        text = text[:77] + "..."
    return f"{text} ({type(value).__name__})"
