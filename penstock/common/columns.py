"""Types whose values fit into one Arrow column, and the search for the value that does not.

Every type encodes and decodes whole columns, nested ones too: a list of tuples is one column of offsets and one
column per field, so no Python object per row is made beside the values themselves.
"""

from __future__ import annotations

from abc import abstractmethod
from array import array
from functools import cached_property
from typing import Any, Sequence

import pyarrow as pa

from penstock.common.type_information import RowTypeError, TypeInformation

VALUE_COLUMN = "value"
ENCODING_ERRORS = (pa.ArrowException, TypeError, ValueError, OverflowError, UnicodeError, AttributeError)


class RefusedValue(ValueError):
    """A value that a type refuses, before Arrow would bend it; the message says what was expected instead."""


class ColumnType(TypeInformation):
    """A type whose values fit into one column: a scalar row, a field of a tuple, an element of a list."""

    @property
    @abstractmethod
    def arrow_type(self) -> pa.DataType: ...

    @abstractmethod
    def encode_column(self, values: Sequence[Any]) -> pa.Array:
        """None becomes null. Raises one of `ENCODING_ERRORS` without saying which value it was."""

    @abstractmethod
    def decode_column(self, array: pa.Array) -> list[Any]: ...

    @cached_property
    def schema(self) -> pa.Schema:
        return pa.schema([(VALUE_COLUMN, self.arrow_type)])

    def encode(self, rows: Sequence[Any]) -> list[pa.Array]:
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
    """A column of signed integers, none of them missing, made with less ado than by `pa.array`, which costs few values
    as much as a hundred. Raises OverflowError for one that is out of range, TypeError for what is no integer."""
    packed = array(_INTEGER_CODES[arrow_type.bit_width], values)
    return pa.Array.from_buffers(arrow_type, len(packed), [None, pa.py_buffer(packed)])


def whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Arrow splits a column of more than 2 GB; a batch cannot hold it."""
    if isinstance(column, pa.ChunkedArray):
        raise OverflowError("one batch holds more than 2 GB of this column; make its rows smaller")
    return column


def first_refused(type: ColumnType, values: Sequence[Any], error: BaseException) -> tuple[int, str]:
    """The place of the first value that `type` refuses on its own, and why. Runs only after a failure."""
    for index, value in enumerate(values):
        try:
            type.encode_column([value])
        except ENCODING_ERRORS as cause:
            return index, reason(cause)
    return 0, reason(error)


def reason(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0]


def shown(value: Any) -> str:
    """A value as an error message shows it: cut to 80 characters, with its Python type."""
    text = repr(value)
    if len(text) > 80:
        text = text[:77] + "..."
    return f"{text} ({type(value).__name__})"
