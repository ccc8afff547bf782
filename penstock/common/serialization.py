"""How rows become bytes in files, and back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any


class SerializationSchema(ABC):
    @abstractmethod
    def serialize(self, element: Any) -> bytes: ...


class DeserializationSchema(ABC):
    @abstractmethod
    def deserialize(self, message: bytes) -> Any: ...


class Encoder(ABC):
    """Writes one row to a file of rows."""

    @staticmethod
    def simple_string_encoder(charset_name: str = "UTF-8") -> Encoder:
        """`str(row)` and a line end."""
        return SimpleStringEncoder(charset_name)

    @abstractmethod
    def encode(self, element: Any) -> bytes:
        """The bytes of one row, with whatever separates it from the next."""


@dataclass(frozen=True)
class SimpleStringEncoder(Encoder):
    charset_name: str = "UTF-8"

    def __post_init__(self) -> None:
        "".encode(self.charset_name)  # an unknown charset is an error now, not in a slot

    def encode(self, element: Any) -> bytes:
        return f"{element}\n".encode(self.charset_name)


@dataclass(frozen=True)
class SimpleStringSchema(SerializationSchema, DeserializationSchema):
    """Strings as bytes."""

    charset: str = "UTF-8"

    def serialize(self, element: Any) -> bytes:
        if not isinstance(element, str):
            raise TypeError(f"SimpleStringSchema takes strings, got {element!r} ({type(element).__name__})")
        return element.encode(self.charset)

    def deserialize(self, message: bytes) -> str:
        return message.decode(self.charset)
