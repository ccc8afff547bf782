"""Defines the encoding of rows as bytes in files, and their decoding."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Callable, ClassVar

from penstock.common.row_types.flink_text import text_of
from penstock.common.row_types.scalar_types import BYTES, STRING
from penstock.common.typeinfo import TypeInformation


class SerializationSchema(ABC):
    """Turns values into bytes."""

    @abstractmethod
    def serialize(self, element: Any) -> bytes:
        """Turn a value into bytes.

        Args:
            element: The value.

        Returns:
            The bytes.
        """


class DeserializationSchema(ABC):
    """Turns bytes into values."""

    @abstractmethod
    def deserialize(self, message: bytes) -> Any:
        """Turn bytes into a value.

        Args:
            message: The bytes.

        Returns:
            The value.
        """

    def get_produced_type(self) -> TypeInformation | None:
        """Return the type of the values. The default is None: they are pickled."""
        return None


class Encoder(ABC):
    """Writes rows to a file, one after the other."""

    @staticmethod
    def simple_string_encoder(charset_name: str = "UTF-8") -> Encoder:
        """Return an encoder that writes a row's text, as Flink does, and a line end.

        The text is that of the row's Java object in Flink: `(hi,1)`, `+I[hi, 1]`, `1.0E10`. A row without a declared
        type is written by `str`.

        Args:
            charset_name: The encoding of the text. Raises LookupError for one that Python does not know.

        Returns:
            The encoder.
        """
        return SimpleStringEncoder(charset_name)

    def for_type(self, type_info: TypeInformation | None) -> Encoder:
        """Return the encoder for rows of a type. The default is `self`, for all types.

        Args:
            type_info: The type of the stream; None if none was declared.

        Returns:
            An encoder.
        """
        return self

    @abstractmethod
    def encode(self, element: Any) -> bytes:
        """Encode a row.

        Args:
            element: The row.

        Returns:
            Its bytes, with the separator from the next row.
        """


@dataclass(frozen=True)
class SimpleStringEncoder(Encoder):
    """Writes the text of a row and a line end: see `Encoder.simple_string_encoder`."""

    charset_name: str = "UTF-8"
    type_info: TypeInformation | None = None

    def __post_init__(self) -> None:
        "".encode(self.charset_name)  # an unknown charset is an error now, not in a slot

    @cached_property
    def _text(self) -> Callable[[Any], str]:
        return text_of(self.type_info)

    def for_type(self, type_info: TypeInformation | None) -> Encoder:
        return SimpleStringEncoder(self.charset_name, type_info)

    def encode(self, element: Any) -> bytes:
        return f"{self._text(element)}\n".encode(self.charset_name)


@dataclass(frozen=True)
class SimpleStringSchema(SerializationSchema, DeserializationSchema):
    """Turns strings into bytes and back."""

    charset: str = "UTF-8"

    def serialize(self, element: Any) -> bytes:
        """Encode a string.

        Args:
            element: The string.

        Returns:
            Its bytes.

        Raises:
            TypeError: `element` is no string.
        """
        if not isinstance(element, str):
            raise TypeError(f"SimpleStringSchema takes strings, got {element!r} ({type(element).__name__})")
        return element.encode(self.charset)

    def deserialize(self, message: bytes) -> str:
        return message.decode(self.charset)

    def get_produced_type(self) -> TypeInformation:
        """Return `Types.STRING()`."""
        return STRING


@dataclass(frozen=True)
class ByteArraySchema(SerializationSchema, DeserializationSchema):
    """Takes bytes as they are."""

    produced_type: ClassVar[TypeInformation] = BYTES

    def serialize(self, element: Any) -> bytes:
        """Return bytes as they are.

        Args:
            element: The bytes.

        Returns:
            The same bytes.

        Raises:
            TypeError: `element` is of another class.
        """
        if not isinstance(element, bytes):
            raise TypeError(f"ByteArraySchema takes bytes, got {element!r} ({type(element).__name__})")
        return element

    def deserialize(self, message: bytes) -> bytes:
        return message

    def get_produced_type(self) -> TypeInformation:
        return self.produced_type


@dataclass(frozen=True)
class RowFieldExtractorSchema(SerializationSchema):
    """Writes one field of a row, which is bytes already: one as the key of a message, say, and another as its value."""

    field_index: int

    def __post_init__(self) -> None:
        if self.field_index < 0:
            raise ValueError(f"Field index must be non-negative, got: {self.field_index}")

    def serialize(self, element: Any) -> bytes:
        """Return the bytes of the field.

        Args:
            element: The row or tuple.

        Returns:
            The bytes.

        Raises:
            ValueError: The row has no such field.
            TypeError: The field is no bytes.
        """
        if self.field_index >= len(element):
            raise ValueError(
                f"RowFieldExtractorSchema({self.field_index}): the row has {len(element)} fields: {element!r}"
            )
        field = element[self.field_index]
        if not isinstance(field, bytes):
            raise TypeError(
                f"RowFieldExtractorSchema({self.field_index}) takes a field of bytes, got {field!r} "
                f"({type(field).__name__})"
            )
        return field
