"""Wraps plain callables as functions, and functions on keyed streams as keyed process functions.

A wrapper holds the callable under its method's name as an attribute of its own, so that calling it costs no frame.
"""

from __future__ import annotations

import re
from typing import Any, Callable, Iterable

from penstock.common.program.signatures import check_call, parameters_of, refuse_coroutine
from penstock.datastream.functions import (
    AllWindowFunction,
    CoFlatMapFunction,
    CoMapFunction,
    FilterFunction,
    FlatMapFunction,
    Function,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    Partitioner,
    ProcessAllWindowFunction,
    ProcessJoinFunction,
    ProcessWindowFunction,
    ReduceFunction,
    RuntimeContext,
    WindowFunction,
)


class Wrapper:
    """Holds the user's object as `wrapped`, which errors name."""

    wrapped: Callable[..., Any]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({function_name(self.wrapped)})"


class CallableMap(Wrapper, MapFunction):
    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        self.wrapped = wrapped
        self.map = wrapped  # type: ignore[method-assign,assignment]

    def map(self, value: Any) -> Any:
        return self.wrapped(value)


class CallableFlatMap(Wrapper, FlatMapFunction):
    wrapped: Callable[[Any], Iterable[Any] | None]

    def __init__(self, wrapped: Callable[[Any], Iterable[Any] | None]) -> None:
        self.wrapped = wrapped
        self.flat_map = wrapped  # type: ignore[method-assign,assignment]

    def flat_map(self, value: Any) -> Iterable[Any] | None:
        return self.wrapped(value)


class CallableFilter(Wrapper, FilterFunction):
    wrapped: Callable[[Any], bool]

    def __init__(self, wrapped: Callable[[Any], bool]) -> None:
        self.wrapped = wrapped
        self.filter = wrapped  # type: ignore[method-assign,assignment]

    def filter(self, value: Any) -> bool:
        return self.wrapped(value)


class CallableReduce(Wrapper, ReduceFunction):
    def __init__(self, wrapped: Callable[[Any, Any], Any]) -> None:
        self.wrapped = wrapped
        self.reduce = wrapped  # type: ignore[method-assign,assignment]

    def reduce(self, value1: Any, value2: Any) -> Any:
        return self.wrapped(value1, value2)


class CallableProcessJoin(Wrapper, ProcessJoinFunction):
    """Makes one row of each pair of an interval join, by a plain callable."""

    def __init__(self, wrapped: Callable[[Any, Any], Any]) -> None:
        self.wrapped = wrapped

    def process_element(self, left: Any, right: Any, ctx: Any) -> Iterable[Any]:
        return (self.wrapped(left, right),)


class Adapter(Function):
    """Runs a function as one of another kind."""

    def __init__(self, wrapped: Function) -> None:
        self.wrapped = wrapped

    def open(self, runtime_context: RuntimeContext) -> None:
        self.wrapped.open(runtime_context)

    def close(self) -> None:
        self.wrapped.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.wrapped!r})"


class KeyedAdapter(Adapter, KeyedProcessFunction):
    """Runs a map, flat map or filter function on a keyed stream, where it may use keyed state."""


class KeyedMap(KeyedAdapter):
    wrapped: MapFunction

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        return (self.wrapped.map(value),)


class KeyedFlatMap(KeyedAdapter):
    wrapped: FlatMapFunction

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any] | None:
        return self.wrapped.flat_map(value)


class KeyedFilter(KeyedAdapter):
    wrapped: FilterFunction

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any] | None:
        return (value,) if self.wrapped.filter(value) else None


class KeyedCoAdapter(Adapter, KeyedCoProcessFunction):
    """Runs a map or flat map function of two connected keyed streams, where it may use keyed state."""


class KeyedCoMap(KeyedCoAdapter):
    wrapped: CoMapFunction

    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterable[Any] | None:
        made = self.wrapped.map1(value)
        return None if made is None else (made,)

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterable[Any] | None:
        made = self.wrapped.map2(value)
        return None if made is None else (made,)


class KeyedCoFlatMap(KeyedCoAdapter):
    wrapped: CoFlatMapFunction

    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterable[Any] | None:
        return self.wrapped.flat_map1(value)

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterable[Any] | None:
        return self.wrapped.flat_map2(value)


class AllWindows(Adapter, WindowFunction[Any, Any, Any, Any]):
    """Runs a function of windows over all rows on those of the only key."""

    wrapped: AllWindowFunction[Any, Any, Any]

    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Iterable[Any] | None:
        return self.wrapped.apply(window, inputs)


class ProcessAllWindows(Adapter, ProcessWindowFunction[Any, Any, Any, Any]):
    """Runs a process function of windows over all rows on those of the only key."""

    wrapped: ProcessAllWindowFunction[Any, Any, Any]

    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterable[Any] | None:
        return self.wrapped.process(context, elements)

    def clear(self, context: Any) -> None:
        self.wrapped.clear(context)


def as_function(given: Any, kind: type, wrap: Callable[[Any], Any], method: str) -> Any:
    """Return `given` as a function of this kind. Raises TypeError, naming the stream's method, for anything else."""
    calls = {name: parameters_of(getattr(kind, name)) for name in getattr(kind, "__abstractmethods__", ())}
    if isinstance(given, kind):
        for name, parameters in calls.items():
            check_call(f"{method}()", getattr(given, name), parameters)
            refuse_coroutine(f"{method}()", getattr(given, name))
        return given
    if isinstance(given, type) and issubclass(given, Function):
        raise TypeError(f"{method}() was given the class {given.__name__}; give it an object: {given.__name__}()")
    if isinstance(given, Function):
        raise TypeError(
            f"{method}() takes {_a(kind.__name__)} or a callable, got {_a(type(given).__name__)}, which is "
            f"{_a(base_name(given))}{_place_of(given)}"
        )
    if callable(given):
        made = wrap(given)
        [parameters] = calls.values()
        check_call(f"{method}()", given, parameters)
        refuse_coroutine(f"{method}()", given)
        return made
    raise TypeError(
        f"{method}() takes {_a(kind.__name__)} or a callable, got {given!r} ({type(given).__name__})"
        f"{_hint(given, method)}"
    )


_PLACES = {
    "MapFunction": "stream.map({0})",
    "FlatMapFunction": "stream.flat_map({0})",
    "FilterFunction": "stream.filter({0})",
    "ReduceFunction": "stream.key_by(...).reduce({0})",
    "AggregateFunction": "stream.key_by(...).window(...).aggregate({0})",
    "ProcessFunction": "stream.process({0}), where the stream is not keyed",
    "KeyedProcessFunction": "stream.key_by(...).process({0})",
    "WindowFunction": "stream.key_by(...).window(...).apply({0})",
    "ProcessWindowFunction": "stream.key_by(...).window(...).process({0})",
    "AllWindowFunction": "stream.window_all(...).apply({0})",
    "ProcessAllWindowFunction": "stream.window_all(...).process({0})",
    "CoMapFunction": "stream.connect(other).map({0})",
    "CoFlatMapFunction": "stream.connect(other).flat_map({0})",
    "CoProcessFunction": "stream.connect(other).process({0}), where the streams are not keyed",
    "KeyedCoProcessFunction": "stream.connect(other).key_by(..., ...).process({0})",
    "BroadcastProcessFunction": "stream.connect(broadcast_stream).process({0})",
    "KeyedBroadcastProcessFunction": "stream.key_by(...).connect(broadcast_stream).process({0})",
    "AsyncFunction": "AsyncDataStream.unordered_wait(stream, {0}, Time.seconds(5))",
    "BlockingFunction": "AsyncDataStream.unordered_wait(stream, {0}, Time.seconds(5))",
    "SinkFunction": "stream.add_sink({0})",
    "SourceFunction": "env.add_source({0})",
}
"""The calls that take each kind of function."""


def _place_of(function: Function) -> str:
    place = _PLACES.get(base_name(function))
    return "" if place is None else f": write {place.format(type(function).__name__ + '()')}"


def refuse_callable(call: str, kind: str, way_out: str = "") -> Callable[[Any], Any]:
    """Return a `wrap` for `as_function` that raises TypeError: `call` takes functions of a class of ours only."""

    def refuse(given: Any) -> Any:
        raise TypeError(f"{call} takes a {kind}, got the callable {given!r}{way_out}")

    return refuse


_CONDITION = re.compile(r"\s*(\w+)\s*(==|!=|<=|>=|<|>|=|<>)\s*(-?[\d.]+|'[^']*'|\"[^\"]*\")\s*")


def _a(name: str) -> str:
    return f"{'an' if name[:1] in 'AEIOUaeiou' else 'a'} {name}"


def _hint(given: Any, method: str) -> str:
    """Return the replacement for an expression of SQL, Spark or Arrow."""
    if method == "filter":
        condition = _CONDITION.fullmatch(given) if isinstance(given, str) else None
        column, operator, value = ("a", ">", "1") if condition is None else condition.groups()
        operator = {"=": "==", "<>": "!="}.get(operator, operator)
        return (
            f': write a condition on columns, filter(pc.field("{column}") {operator} {value}), with import '
            f'pyarrow.compute as pc, or on rows, filter(lambda row: row["{column}"] {operator} {value})'
        )
    if type(given).__module__.split(".")[0] in ("pyarrow", "pyspark"):
        return ": an expression makes a column with with_columns(name=expression) or select(name=expression)"
    return ""


def selector_of(given: Any, method: str) -> Callable[[Any], Any]:
    """Return a function row -> key, from a KeySelector or a callable."""
    if isinstance(given, KeySelector):
        return given.get_key
    if callable(given) and not _is_function(given):
        check_call(f"{method}()", given, ["row"])
        refuse_coroutine(f"{method}()", given)
        selector: Callable[[Any], Any] = given
        return selector
    hint = f"; for a column, write lambda row: row[{given!r}]" if isinstance(given, (int, str)) else ""
    if isinstance(given, (list, tuple)):
        hint = f"; for columns, write {method}({', '.join(repr(name) for name in given)})"
    elif type(given).__module__.startswith("pyarrow"):
        hint = f"; make it a column first, with_columns(key=<expression>).{method}('key'), or name a column"
    raise TypeError(f"{method}() takes a key selector, a KeySelector or a callable of one row, got {given!r}{hint}")


def partitioner_of(given: Any) -> Callable[[Any, int], int]:
    """Return a function (key, number of partitions) -> partition, from a Partitioner or a callable."""
    if isinstance(given, Partitioner):
        return given.partition
    if callable(given) and not _is_function(given):
        check_call("partition_custom()", given, ["key", "number of partitions"])
        partitioner: Callable[[Any, int], int] = given
        return partitioner
    raise TypeError(
        f"partition_custom() takes a Partitioner or a callable (key, partitions) -> partition, got {given!r}"
    )


def _is_function(given: Any) -> bool:
    return isinstance(given, Function) or (isinstance(given, type) and issubclass(given, Function))


def base_name(function: Function) -> str:
    """Return the name of the kind of function that this is: MapFunction, ..."""
    for base in type(function).__mro__:
        if base.__module__ == Function.__module__:
            return base.__name__
    return type(function).__name__


def function_name(function: Any) -> str:
    return getattr(function, "__qualname__", None) or type(function).__name__
