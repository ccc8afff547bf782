"""Defines functions of one row, or of two."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Iterable

from penstock.datastream._functions.runtime_context import RuntimeContext


class Function(ABC):  # noqa: B024
    """Defines the common part of all functions. A function is pickled, and every subtask has a copy of its own."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Prepare the function.

        Called in the slot before the first row: the place for state handles, connections and tables.

        Args:
            runtime_context: Describes the subtask, and gives access to keyed state.
        """

    def close(self) -> None:
        """Release the resources that `open` has opened. Called after the last row, and after a failure."""


class MapFunction(Function):
    """Maps each row to another."""

    @abstractmethod
    def map(self, value: Any) -> Any:
        """Return the row to emit.

        Args:
            value: A row of the input.

        Returns:
            The row.
        """


class FlatMapFunction(Function):
    """Maps each row to any number of rows."""

    @abstractmethod
    def flat_map(self, value: Any) -> Iterable[Any] | None:
        """Yield the rows to emit, or return an iterable of them, or None for no rows.

        Args:
            value: A row of the input.

        Returns:
            The rows. They are emitted as the iterable gives them.
        """


class FilterFunction(Function):
    """Chooses rows."""

    @abstractmethod
    def filter(self, value: Any) -> bool:
        """Return True to keep the row.

        Args:
            value: A row of the input.

        Returns:
            True, or False to drop it.
        """


class ReduceFunction(Function):
    """Combines two values to one of the same type."""

    @abstractmethod
    def reduce(self, value1: Any, value2: Any) -> Any:
        """Combine two values. Must be associative.

        Args:
            value1: The result so far.
            value2: The next row.

        Returns:
            The new result.
        """


class AggregateFunction(Function):
    """Adds values to an accumulator, whose type is its own.

    Example:
        class Mean(AggregateFunction):
            def create_accumulator(self):
                return 0.0, 0

            def add(self, value, accumulator):
                return accumulator[0] + value, accumulator[1] + 1

            def get_result(self, accumulator):
                return accumulator[0] / accumulator[1]
    """

    @abstractmethod
    def create_accumulator(self) -> Any:
        """Return the accumulator of no values."""

    @abstractmethod
    def add(self, value: Any, accumulator: Any) -> Any:
        """Add a value to an accumulator.

        Args:
            value: The value.
            accumulator: The accumulator, which may be changed.

        Returns:
            The accumulator with the value.
        """

    @abstractmethod
    def get_result(self, accumulator: Any) -> Any:
        """Return the result of the values that were added.

        Args:
            accumulator: The accumulator, which stays as it is.

        Returns:
            The result.
        """

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        """Merge two accumulators. Tumbling windows do not need it.

        Args:
            acc_a: An accumulator.
            acc_b: Another.

        Returns:
            The accumulator of the values of both.

        Raises:
            NotImplementedError: The function does not define it.
        """
        raise NotImplementedError(f"{type(self).__name__}.merge is needed here")


class KeySelector(Function):
    """Computes the key of a row."""

    @abstractmethod
    def get_key(self, value: Any) -> Any:
        """Return the key of a row. The same row must always have the same key.

        Args:
            value: The row.

        Returns:
            The key, never None.
        """


class NullByteKeySelector(KeySelector):
    """Gives all rows the same key."""

    def get_key(self, value: Any) -> Any:
        return 0


class Partitioner(Function):
    """Chooses a subtask by key, for `DataStream.partition_custom`."""

    @abstractmethod
    def partition(self, key: Any, num_partitions: int) -> int:
        """Return the subtask that rows with a key go to.

        Args:
            key: The key.
            num_partitions: The number of subtasks.

        Returns:
            The index of the subtask, from 0 to `num_partitions` - 1.
        """


class CoMapFunction(Function):
    """Maps the rows of two connected streams. None is not emitted, as in PyFlink."""

    @abstractmethod
    def map1(self, value: Any) -> Any:
        """Return the row to emit for a row of the first stream.

        Args:
            value: The row.

        Returns:
            The row to emit, or None.
        """

    @abstractmethod
    def map2(self, value: Any) -> Any:
        """Return the row to emit for a row of the second stream.

        Args:
            value: The row.

        Returns:
            The row to emit, or None.
        """


class CoFlatMapFunction(Function):
    """Maps each row of two connected streams to any number of rows."""

    @abstractmethod
    def flat_map1(self, value: Any) -> Iterable[Any] | None:
        """Yield the rows to emit for a row of the first stream, or return an iterable of them, or None for no rows.

        Args:
            value: The row.

        Returns:
            The rows to emit.
        """

    @abstractmethod
    def flat_map2(self, value: Any) -> Iterable[Any] | None:
        """Yield the rows to emit for a row of the second stream, or return an iterable of them, or None for no rows.

        Args:
            value: The row.

        Returns:
            The rows to emit.
        """
