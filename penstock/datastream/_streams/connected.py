"""Connects two streams, of any types, as the inputs of one operator."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Callable, Generic

from penstock.common.typeinfo import TypeInformation
from penstock.common.types import PICKLED
from penstock.datastream._streams import missing_methods
from penstock.datastream._streams.function_wrappers import KeyedCoFlatMap, KeyedCoMap, as_function, refuse_callable
from penstock.datastream._streams.stream import Stream
from penstock.datastream._streams.stream_classes import S
from penstock.datastream.functions import (
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedCoProcessFunction,
    KeySelector,
)
from penstock.graph.logical import OperatorKind

Key = KeySelector | Callable[[Any], Any] | str | list[str]
"""A selector, the name of a column, or a list of names."""

_WHERE = "of connected streams"


class Connected(Generic[S]):
    """Offers functions that have a method for the rows of each of two streams."""

    def __init__(self, stream1: Stream[S], stream2: Stream[S]) -> None:
        if not isinstance(stream2, Stream):
            raise TypeError(f"connect() takes a stream, got {stream2!r}")
        if stream1._environment is not stream2._environment:
            raise ValueError("connect() takes streams of one environment")
        self.stream1 = stream1
        self.stream2 = stream2

    if not TYPE_CHECKING:  # a type checker knows the attributes without it

        def __getattr__(self, name: str) -> Any:
            raise missing_methods.of_connected(self, name)

    def get_execution_environment(self) -> Any:
        """Return the `StreamExecutionEnvironment` that the streams were declared in."""
        return self.stream1.get_execution_environment()

    def get_type1(self) -> TypeInformation:
        """Return the type of the first stream's rows."""
        return self.stream1.get_type()

    def get_type2(self) -> TypeInformation:
        """Return the type of the second stream's rows."""
        return self.stream2.get_type()

    def map(self, func: CoMapFunction, output_type: TypeInformation | None = None) -> S:
        """Apply `map1` to each row of the first stream and `map2` to each row of the second.

        Args:
            func: A `CoMapFunction`. If both streams are keyed it may use keyed state. None is not emitted.
            output_type: The type of the returned rows, made by `Types`. None: they are pickled.

        Returns:
            The stream of the returned rows.

        Raises:
            TypeError: `func` is of another kind, or both streams are keyed, by keys of different types.
        """
        function = as_function(func, CoMapFunction, refuse_callable(f"map() {_WHERE}", "CoMapFunction"), "map")
        if self._keyed:
            return self._then(OperatorKind.KEYED_CO_PROCESS, "Co-Map", KeyedCoMap(function), output_type)
        return self._then(OperatorKind.CO_MAP, "Co-Map", function, output_type)

    def flat_map(self, func: CoFlatMapFunction, output_type: TypeInformation | None = None) -> S:
        """Apply `flat_map1` to each row of the first stream and `flat_map2` to each row of the second.

        Args:
            func: A `CoFlatMapFunction`. If both streams are keyed it may use keyed state.
            output_type: The type of the emitted rows, made by `Types`. None: they are pickled.

        Returns:
            The stream of the emitted rows.

        Raises:
            TypeError: `func` is of another kind, or both streams are keyed, by keys of different types.
        """
        refuse = refuse_callable(f"flat_map() {_WHERE}", "CoFlatMapFunction")
        function = as_function(func, CoFlatMapFunction, refuse, "flat_map")
        if self._keyed:
            return self._then(OperatorKind.KEYED_CO_PROCESS, "Co-Flat Map", KeyedCoFlatMap(function), output_type)
        return self._then(OperatorKind.CO_FLAT_MAP, "Co-Flat Map", function, output_type)

    def process(
        self, func: CoProcessFunction | KeyedCoProcessFunction, output_type: TypeInformation | None = None
    ) -> S:
        """Apply a function that sees timestamps and watermarks and may emit rows to side outputs.

        Args:
            func: A `KeyedCoProcessFunction` if both streams are keyed, otherwise a `CoProcessFunction`.
            output_type: The type of the rows of the main output, made by `Types`. None: they are pickled.

        Returns:
            The stream of the main output. `get_side_output(tag)` on it returns the others.

        Raises:
            TypeError: `func` is of another kind, or both streams are keyed, by keys of different types.
        """
        if isinstance(func, KeyedCoProcessFunction) and not self._keyed:
            raise TypeError(
                "process() was given a KeyedCoProcessFunction, but the streams are not both keyed: call "
                "key_by(key_selector1, key_selector2) after connect()"
            )
        if isinstance(func, CoProcessFunction) or not self._keyed:
            refuse = refuse_callable(f"process() {_WHERE}", "CoProcessFunction")
            function = as_function(func, CoProcessFunction, refuse, "process")
            return self._then(OperatorKind.CO_PROCESS, "Co-Process", function, output_type)
        refuse = refuse_callable(f"process() {_WHERE}", "KeyedCoProcessFunction")
        function = as_function(func, KeyedCoProcessFunction, refuse, "process")
        return self._then(OperatorKind.KEYED_CO_PROCESS, "Keyed Co-Process", function, output_type)

    @property
    def _keyed(self) -> bool:
        return self.stream1._partitioner is not None and self.stream2._partitioner is not None

    def _then(self, kind: OperatorKind, name: str, function: Any, output_type: TypeInformation | None) -> S:
        if kind.keyed:
            self._check_keys(name)
        inputs = [*self.stream1._inputs, *(replace(i, index=1) for i in self.stream2._inputs)]
        return self.stream1._then(kind, name, function, output_type, inputs)

    def _check_keys(self, operator: str) -> None:
        first, second = self.stream1._key_type, self.stream2._key_type
        if first != second:
            shown = [("no declared type" if t == PICKLED else str(t)) for t in (first, second)]
            way_out = "say key_by(..., key_type=...) for both"
            keyed = [stream._partitioner for stream in (self.stream1, self.stream2)]
            if any(partitioner is not None and partitioner.key_columns for partitioner in keyed):
                way_out = (
                    "give both columns one type, e.g. with_columns(id=pc.field('id').cast('string')), or key "
                    "both by selectors with a key_type"
                )
            raise TypeError(
                f"operator {operator!r}: the keys of both inputs have one type, got {shown[0]} and "
                f"{shown[1]}; {way_out}"
            )
