"""Defines TypeSerializer, which a window assigner of a program's own returns for its windows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from io import BytesIO
from typing import Generic, TypeVar

__all__ = ["TypeSerializer"]

T = TypeVar("T")


class TypeSerializer(ABC, Generic[T]):
    """Writes objects of a class to bytes, and reads them back.

    Rows and state have types instead, made by `Types`.
    """

    @abstractmethod
    def serialize(self, element: T, stream: BytesIO) -> None:
        """Write an object.

        Args:
            element: The object.
            stream: Takes the bytes.
        """

    @abstractmethod
    def deserialize(self, stream: BytesIO) -> T:
        """Read an object.

        Args:
            stream: The bytes.

        Returns:
            The object.
        """
