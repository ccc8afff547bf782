"""Encodes batches of rows as messages."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from penstock.common.row_types.scalar_types import PICKLED, STRING
from penstock.common.serialization import ByteArraySchema, SerializationSchema, SimpleStringSchema
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.base import SinkError

Encode = Callable[[pa.RecordBatch], "list[bytes | None]"]


class ColumnarSerializationSchema(SerializationSchema):
    """Encodes whole batches."""

    def validate(self, input_type: TypeInformation | None) -> None:
        """Check that rows of a type can be encoded.

        Args:
            input_type: The type of the stream; None: the rows are pickled.

        Raises:
            SinkError: They cannot.
        """

    @abstractmethod
    def written_type(self) -> TypeInformation:
        """Return the declared type of the rows. Raises TypeError if there is none."""

    def serialize(self, element: Any) -> bytes:
        row_type = self.written_type()
        batch = pa.RecordBatch.from_arrays(row_type.encode([element]), schema=row_type.schema)
        return self.serialize_batch(batch, row_type)[0]

    @abstractmethod
    def serialize_batch(self, batch: pa.RecordBatch, row_type: TypeInformation) -> list[bytes]:
        """Encode a batch.

        Args:
            batch: The rows.
            row_type: Their type.

        Returns:
            A message for each row.

        Raises:
            SinkError: A row cannot be encoded.
        """


def validate(schema: SerializationSchema, input_type: TypeInformation | None, what: str) -> None:
    """Check that a schema takes rows of a type.

    Args:
        schema: The schema.
        input_type: The type of the stream.
        what: What the schema makes, for the error: "the value" or "the key".

    Raises:
        SinkError: It does not.
    """
    if isinstance(schema, ColumnarSerializationSchema):
        schema.validate(input_type)
    elif type(schema) is SimpleStringSchema and input_type is not None and input_type != STRING:
        raise SinkError(
            f"{what} is written by SimpleStringSchema, which takes strings, but the stream's rows are {input_type}: "
            "map them to strings (output_type=Types.STRING()), or use JsonRowSerializationSchema"
        )
    elif type(schema) is ByteArraySchema and input_type is not None and input_type != ByteArraySchema.produced_type:
        raise SinkError(
            f"{what} is written by ByteArraySchema, which takes bytes, but the stream's rows are {input_type}"
        )


def encoder_of(schema: SerializationSchema, input_type: TypeInformation | None) -> Encode:
    """Return the function that encodes batches of rows: in columns where there is one, else row by row.

    Args:
        schema: The schema.
        input_type: The type of the rows; None: they are pickled.

    Returns:
        A function from a batch to its messages.
    """
    if isinstance(schema, ColumnarSerializationSchema):
        return lambda batch: list(schema.serialize_batch(batch, input_type or PICKLED))
    utf8 = type(schema) is SimpleStringSchema and schema.charset.lower().replace("-", "") == "utf8"
    if (utf8 and input_type == STRING) or (type(schema) is ByteArraySchema and input_type is not None):
        return lambda batch: batch.column(0).cast(pa.binary()).to_pylist()
    row_type = input_type or PICKLED
    return lambda batch: [None if row is None else schema.serialize(row) for row in row_type.decode(batch)]
