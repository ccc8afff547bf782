"""Runs the functions of joins as functions of windows, and describes interval joins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from penstock.common.typeinfo import TypeInformation
from penstock.common.types import PICKLED, TupleType, Types
from penstock.datastream._streams.function_wrappers import Adapter
from penstock.datastream._streams.stream import Stream
from penstock.datastream.functions import (
    CoGroupFunction,
    FlatJoinFunction,
    JoinFunction,
    KeyedCoProcessFunction,
    MapFunction,
    ProcessJoinFunction,
    WindowFunction,
)

Tagged = tuple[int, Any, Any]
"""A row of one of two streams: the number of the stream, and the row at the place of that stream."""


def tagged_type(first: TypeInformation | None, second: TypeInformation | None) -> TupleType:
    """Return the type of rows of two streams with tags."""
    types: list[Any] = [first or PICKLED, second or PICKLED]
    made = Types.TUPLE([Types.INT(), *types])
    assert isinstance(made, TupleType)
    return made


class Tag(MapFunction):
    """Marks rows with the number of their stream."""

    def __init__(self, number: int) -> None:
        self.number = number

    def map(self, value: Any) -> Tagged:
        return (0, value, None) if self.number == 0 else (1, None, value)


class TaggedKey:
    """Returns the key of a tagged row: each stream has a selector of its own."""

    def __init__(self, first: Callable[[Any], Any], second: Callable[[Any], Any]) -> None:
        self._selectors = first, second

    def __call__(self, row: Tagged) -> Any:
        return self._selectors[row[0]](row[1 + row[0]])


class ColumnKey:
    """Returns the value of a column, or a tuple of several, as the key of a row."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names

    def __call__(self, row: Any) -> Any:
        if len(self._names) == 1:
            return row[self._names[0]]
        return tuple(row[name] for name in self._names)


class CallableJoin(JoinFunction):
    """Joins rows by a plain callable."""

    def __init__(self, wrapped: Callable[[Any, Any], Any]) -> None:
        self.wrapped = wrapped

    def join(self, first: Any, second: Any) -> Any:
        return self.wrapped(first, second)


class CallableCoGroup(CoGroupFunction):
    """Groups rows by a plain callable."""

    def __init__(self, wrapped: Callable[[Any, Any], Any]) -> None:
        self.wrapped = wrapped

    def co_group(self, first: Iterable[Any], second: Iterable[Any]) -> Iterable[Any] | None:
        made: Iterable[Any] | None = self.wrapped(first, second)
        return made


def _sides(inputs: Iterable[Tagged]) -> tuple[list[Any], list[Any]]:
    first, second = list[Any](), list[Any]()
    for number, left, right in inputs:
        if number == 0:
            first.append(left)
        else:
            second.append(right)
    return first, second


class GroupedWindow(Adapter, WindowFunction[Any, Any, Any, Any]):
    """Gives a co-group function the rows that both streams have in a window."""

    wrapped: CoGroupFunction

    def apply(self, key: Any, window: Any, inputs: Iterable[Tagged]) -> Iterable[Any] | None:
        return self.wrapped.co_group(*_sides(inputs))


class JoinedWindow(Adapter, WindowFunction[Any, Any, Any, Any]):
    """Gives a join function each pair of rows that both streams have in a window."""

    wrapped: JoinFunction | FlatJoinFunction

    def apply(self, key: Any, window: Any, inputs: Iterable[Tagged]) -> Iterator[Any]:
        first, second = _sides(inputs)
        join, is_flat = self.wrapped.join, isinstance(self.wrapped, FlatJoinFunction)
        for left in first:
            for right in second:
                made = join(left, right)
                if not is_flat:
                    yield made
                elif made is not None:
                    yield from made


@dataclass(frozen=True)
class Interval:
    """Bounds the time of the second row of a pair, relative to that of the first, in ms; both are included."""

    lower_ms: int
    upper_ms: int


class IntervalJoined(Adapter, KeyedCoProcessFunction):
    """Describes an interval join, which has an operator of its own. `late_tags`: the ids of the side outputs of late
    rows of both streams; None: they are counted and dropped.
    """

    wrapped: ProcessJoinFunction

    def __init__(
        self,
        wrapped: ProcessJoinFunction,
        interval: Interval,
        late_tags: tuple[str | None, str | None],
        types: tuple[TypeInformation | None, TypeInformation | None],
    ) -> None:
        super().__init__(wrapped)
        self.interval = interval
        self.late_tags = late_tags
        self.types = types

    def process_element1(self, value: Any, ctx: Any) -> Any:
        raise NotImplementedError("IntervalJoinOperator joins the rows")

    process_element2 = process_element1


def checked_other(stream: Stream, other: Any, method: str) -> Any:
    """Return the other stream of a join. Raises TypeError or ValueError."""
    if not isinstance(other, Stream):
        raise TypeError(f"{method}() takes a stream, got {other!r}")
    if other._environment is not stream._environment:
        raise ValueError(f"{method}() takes streams of one environment")
    return other
