"""ConnectedStreams: two streams, of whatever types, into one operator."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Callable

from penstock.common.typeinfo import TypeInformation
from penstock.common.types import PICKLED
from penstock.datastream._streams import not_here
from penstock.datastream._streams.function_wrappers import KeyedCoFlatMap, KeyedCoMap, as_function
from penstock.datastream._streams.node_settings import check_type
from penstock.datastream.data_stream import DataStream, KeyedStream, SingleOutputStreamOperator
from penstock.datastream.functions import (
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedCoProcessFunction,
    KeySelector,
)
from penstock.graph.logical import Input, OperatorKind

Key = KeySelector | Callable[[Any], Any] | str | list[str]
"""A selector, the name of a column, or a list of names."""


class ConnectedStreams:
    """Made by `stream1.connect(stream2)`. Where both are keyed, the functions may use keyed state, which the rows of
    both share by key."""

    def __init__(self, stream1: DataStream, stream2: DataStream) -> None:
        if not isinstance(stream2, DataStream):
            raise TypeError(f"connect() takes a stream, got {stream2!r}")
        if stream1._environment is not stream2._environment:
            raise ValueError("connect() takes streams of one environment")
        self.stream1 = stream1
        self.stream2 = stream2

    if not TYPE_CHECKING:  # for a type checker, they have what they have

        def __getattr__(self, name: str) -> Any:
            raise not_here.of_connected(self, name)

    def get_execution_environment(self) -> Any:
        return self.stream1.get_execution_environment()

    def get_type1(self) -> TypeInformation:
        return self.stream1.get_type()

    def get_type2(self) -> TypeInformation:
        return self.stream2.get_type()

    def key_by(
        self, key_selector1: Key, key_selector2: Key, key_type: TypeInformation | None = None
    ) -> ConnectedStreams:
        """Rows of both streams with equal keys go to one subtask. `key_type` is the type of both keys; keys that are
        columns, `key_by("user", "id")` or `key_by(["shop", "user"], ["shop", "customer"])`, have that of the columns.
        """
        first = _keyed(self.stream1, key_selector1, key_type)
        return ConnectedStreams(first, _keyed(self.stream2, key_selector2, key_type))

    def map(self, func: CoMapFunction, output_type: TypeInformation | None = None) -> SingleOutputStreamOperator:
        function = as_function(func, CoMapFunction, _no_callable("map", "CoMapFunction"), "map")
        if self._keyed:
            return self._then(OperatorKind.KEYED_CO_PROCESS, "Co-Map", KeyedCoMap(function), output_type)
        return self._then(OperatorKind.CO_MAP, "Co-Map", function, output_type)

    def flat_map(
        self, func: CoFlatMapFunction, output_type: TypeInformation | None = None
    ) -> SingleOutputStreamOperator:
        function = as_function(func, CoFlatMapFunction, _no_callable("flat_map", "CoFlatMapFunction"), "flat_map")
        if self._keyed:
            return self._then(OperatorKind.KEYED_CO_PROCESS, "Co-Flat Map", KeyedCoFlatMap(function), output_type)
        return self._then(OperatorKind.CO_FLAT_MAP, "Co-Flat Map", function, output_type)

    def process(
        self, func: CoProcessFunction | KeyedCoProcessFunction, output_type: TypeInformation | None = None
    ) -> SingleOutputStreamOperator:
        """A KeyedCoProcessFunction where both streams are keyed, otherwise a CoProcessFunction."""
        if isinstance(func, KeyedCoProcessFunction) and not self._keyed:
            raise TypeError("process() was given a KeyedCoProcessFunction, but the streams are not both keyed: call "
                            "key_by(key_selector1, key_selector2) after connect()")
        if isinstance(func, CoProcessFunction) or not self._keyed:
            wrap = _no_callable("process", "CoProcessFunction")
            function = as_function(func, CoProcessFunction, wrap, "process")
            return self._then(OperatorKind.CO_PROCESS, "Co-Process", function, output_type)
        wrap = _no_callable("process", "KeyedCoProcessFunction")
        function = as_function(func, KeyedCoProcessFunction, wrap, "process")
        return self._then(OperatorKind.KEYED_CO_PROCESS, "Keyed Co-Process", function, output_type)

    @property
    def _keyed(self) -> bool:
        return isinstance(self.stream1, KeyedStream) and isinstance(self.stream2, KeyedStream)

    def _then(
        self, kind: OperatorKind, name: str, function: Any, output_type: TypeInformation | None
    ) -> SingleOutputStreamOperator:
        check_type(output_type, name)
        if kind.keyed:
            self._check_keys(name)
        inputs = [*self.stream1._inputs, *(replace(i, index=1) for i in self.stream2._inputs)]
        environment = self.stream1._environment
        node = environment._add_node(kind, name, function, inputs, output_type)
        return SingleOutputStreamOperator(environment, [Input(node)], output_type)

    def _check_keys(self, operator: str) -> None:
        assert isinstance(self.stream1, KeyedStream) and isinstance(self.stream2, KeyedStream)
        first, second = self.stream1.get_key_type(), self.stream2.get_key_type()
        if first != second:
            shown = [("no declared type" if t == PICKLED else str(t)) for t in (first, second)]
            way_out = "say key_by(..., key_type=...) for both"
            if any(keyed._partitioner.key_columns for keyed in (self.stream1, self.stream2)):
                way_out = ("give both columns one type, e.g. with_columns(id=pc.field('id').cast('string')), or key "
                           "both by selectors with a key_type")
            raise TypeError(f"operator {operator!r}: the keys of both inputs have one type, got {shown[0]} and "
                            f"{shown[1]}; {way_out}")


def _keyed(stream: DataStream, key: Any, key_type: TypeInformation | None) -> KeyedStream:
    if not isinstance(key, (str, list, tuple)):
        return stream.key_by(key, key_type)
    if key_type is not None:
        raise TypeError(f"key_by({key!r}): the key has the type of its columns; leave key_type out")
    names: list[str] = [key] if isinstance(key, str) else list(key)
    if not names:
        raise ValueError("key_by(): a list of columns has at least one name")
    return stream.key_by(names[0], *names[1:])


def _no_callable(method: str, kind: str) -> Callable[[Any], Any]:
    def refuse(given: Any) -> Any:
        raise TypeError(f"{method}() of connected streams takes a {kind}, got the callable {given!r}")

    return refuse
