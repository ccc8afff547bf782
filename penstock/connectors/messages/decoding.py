"""Decodes a batch of messages to rows, and finds those that cannot be decoded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.common.row_types.scalar_types import PICKLED, STRING
from penstock.common.serialization import ByteArraySchema, DeserializationSchema, SimpleStringSchema
from penstock.common.typeinfo import RowTypeError, TypeInformation


class RefusedMessage(Exception):
    """Reports that some message of a batch cannot be decoded. The message says what is wrong."""


_OF_A_VALUE = (ValueError, TypeError, ArithmeticError, LookupError, NotImplementedError, RecursionError)
"""The errors by which Python and Arrow say that a value is none of its type."""


class MessageDecoder(ABC):
    """Decodes batches of messages. A batch is decoded whole, or refused whole."""

    takes_null: bool = False
    """True: a message without a value is a row. False: it is left out."""

    skips_refused: bool = False
    """True: messages that cannot be decoded are left out, whatever the source says of them."""

    rows_per_message_max: int = 1
    """Says how many rows a message may be. If there may be several, `messages_of` tells which are whose."""

    messages_at_once: int = 4096
    """Says how many messages are decoded ahead at a time. Each call has a fixed cost, so small batches are dear."""

    @property
    @abstractmethod
    def produced_type(self) -> TypeInformation | None:
        """Return the type of the rows; None: they are pickled."""

    def check(self) -> None:
        """Ask for the external resources of decoding, before the job starts. Raises `SourceError` if one is missing."""

    @abstractmethod
    def decode(self, values: Sequence[bytes | None]) -> pa.RecordBatch:
        """Decode messages, one row each, or up to `rows_per_message_max`.

        Args:
            values: The messages; None: one without a value.

        Returns:
            The rows, in order.

        Raises:
            RefusedMessage: One of them cannot be decoded. Then no row is returned.
        """

    def messages_of(self, rows: pa.RecordBatch) -> npt.NDArray[np.int64] | None:
        """Return which message each row came from, by its index in the batch.

        Args:
            rows: What `decode` returned.

        Returns:
            The indices; None if each message is one row.
        """
        return None


class ColumnarDeserializationSchema(DeserializationSchema):
    """Brings its own decoder for whole batches."""

    def deserialize(self, message: bytes) -> Any:
        """Read one message by itself.

        Args:
            message: The message.

        Returns:
            The row.

        Raises:
            ValueError: It cannot be decoded.
        """
        decoder = self.message_decoder()
        assert decoder.produced_type is not None
        try:
            (row,) = decoder.produced_type.decode(decoder.decode([message]))
        except RefusedMessage as error:
            raise ValueError(str(error)) from error
        return row

    @abstractmethod
    def message_decoder(self) -> MessageDecoder:
        """Return the decoder."""


def decoder_of(schema: DeserializationSchema) -> MessageDecoder:
    """Return the decoder of a schema: in columns where there is one, else row by row.

    Args:
        schema: The schema.

    Returns:
        The decoder.
    """
    if isinstance(schema, ColumnarDeserializationSchema):
        return schema.message_decoder()
    if type(schema) is ByteArraySchema:
        return BytesDecoder()
    if type(schema) is SimpleStringSchema and schema.charset.lower().replace("-", "") == "utf8":
        return TextDecoder()
    return PythonDecoder(schema)


class BytesDecoder(MessageDecoder):
    """Takes messages as they are."""

    takes_null = True

    @property
    def produced_type(self) -> TypeInformation:
        return ByteArraySchema.produced_type

    def decode(self, values: Sequence[bytes | None]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], schema=self.produced_type.schema)


class TextDecoder(MessageDecoder):
    """Decodes UTF-8."""

    takes_null = True

    @property
    def produced_type(self) -> TypeInformation:
        return STRING

    def decode(self, values: Sequence[bytes | None]) -> pa.RecordBatch:
        try:
            texts = pa.array(values, pa.binary()).cast(pa.string())
        except pa.ArrowException:
            raise RefusedMessage("it is not UTF-8") from None
        return pa.RecordBatch.from_arrays([texts], schema=STRING.schema)


class PythonDecoder(MessageDecoder):
    """Calls a user's schema for each message."""

    messages_at_once = 1

    def __init__(self, schema: DeserializationSchema) -> None:
        self._schema = schema

    @property
    def produced_type(self) -> TypeInformation | None:
        return self._schema.get_produced_type()

    def decode(self, values: Sequence[bytes | None]) -> pa.RecordBatch:
        row_type = self.produced_type or PICKLED
        name = type(self._schema).__name__
        try:
            rows = [self._schema.deserialize(value) for value in values if value is not None]
            return pa.RecordBatch.from_arrays(row_type.encode(rows), schema=row_type.schema)
        except RowTypeError as error:
            raise RefusedMessage(f"{name} returned what is no {row_type}: {error}") from error
        except Exception as error:
            if _is_of_the_world(error):
                raise
            raise RefusedMessage(f"{name}.deserialize raised {type(error).__name__}: {error}") from error


def _is_of_the_world(error: Exception) -> bool:
    """Return whether a restart may help: a connection or a file failed, not the message. Damaged data is an `OSError`
    without a number, of gzip for example.
    """
    is_io = isinstance(error, ConnectionError | TimeoutError)
    return is_io or (isinstance(error, OSError) and error.errno is not None)


@dataclass
class Decoded:
    """Holds the rows of a batch of messages, the index of each row's message, and what was refused.

    `taken` is a range if each message is one row.
    """

    rows: pa.RecordBatch
    taken: Sequence[int]
    refused: dict[int, str] = field(default_factory=dict)


def decode_all(decoder: MessageDecoder, values: Sequence[bytes | None]) -> Decoded:
    """Decode messages, and find those that cannot be decoded by halving the batch.

    Args:
        decoder: The decoder.
        values: The messages; None: one without a value.

    Returns:
        The rows, in order.
    """
    taken: Sequence[int] = range(len(values))
    if not decoder.takes_null and None in values:
        taken = [index for index, value in enumerate(values) if value is not None]
        values = [values[index] for index in taken]
    try:
        rows = _decode(decoder, values)
        return Decoded(rows, _messages(decoder, rows, taken))
    except RefusedMessage:
        parts: list[pa.RecordBatch] = []
        refused: dict[int, str] = {}
        _halve(decoder, values, 0, parts, refused)
        kept = [at for index, at in enumerate(taken) if index not in refused]
        rows = pa.concat_batches(parts) if parts else decoder.decode([])
        return Decoded(
            rows, _messages(decoder, rows, kept), {taken[index]: reason for index, reason in refused.items()}
        )


def _decode(decoder: MessageDecoder, values: Sequence[bytes | None]) -> pa.RecordBatch:
    """Decode messages. An error that the decoder has not foreseen is one of a message, too.

    Without this: the error names no record, and the job restarts at the same record for ever.
    """
    try:
        return decoder.decode(values)
    except _OF_A_VALUE as error:
        raise RefusedMessage(f"{type(error).__name__}: {error}") from error


def _messages(decoder: MessageDecoder, rows: pa.RecordBatch, decoded: Sequence[int]) -> Sequence[int]:
    index = decoder.messages_of(rows)
    return decoded if index is None else [decoded[at] for at in index.tolist()]


def _halve(
    decoder: MessageDecoder,
    values: Sequence[bytes | None],
    first: int,
    parts: list[pa.RecordBatch],
    refused: dict[int, str],
) -> None:
    try:
        parts.append(_decode(decoder, values))
    except RefusedMessage as error:
        if len(values) == 1:
            refused[first] = str(error)
            return
        half = len(values) // 2
        _halve(decoder, values[:half], first, parts, refused)
        _halve(decoder, values[half:], first + half, parts, refused)
