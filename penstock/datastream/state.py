"""Defines keyed and broadcast state: the descriptors that name it, and the handles that read and write it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Callable, Generic, Iterable, Iterator, TypeVar

from penstock.common.typeinfo import TypeInformation
from penstock.datastream._functions.state_ttl import StateTtlConfig

__all__ = [
    "AggregatingState", "AggregatingStateDescriptor", "AppendingState", "BroadcastState", "ListState", "StateTtlConfig",
    "ListStateDescriptor", "MapState", "MapStateDescriptor", "MergingState", "ReadOnlyBroadcastState", "ReducingState",
    "ReducingStateDescriptor", "State", "StateDescriptor", "ValueState", "ValueStateDescriptor",
]  # fmt: skip

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
IN = TypeVar("IN")
OUT = TypeVar("OUT")


class State(ABC):
    """Holds a value of any shape for each key. Every method reads or writes that of the current key."""

    @abstractmethod
    def clear(self) -> None:
        """Remove the value of the current key."""


class ValueState(State, Generic[T]):
    """Holds a single value per key."""

    @abstractmethod
    def value(self) -> T | None:
        """Return the value, or None if there is none."""

    @abstractmethod
    def update(self, value: T) -> None:
        """Set the value.

        Args:
            value: The value. None is the same as `clear()`.
        """


class AppendingState(State, Generic[IN, OUT]):
    """Holds values that are added."""

    @abstractmethod
    def get(self) -> OUT:
        """Return the aggregate of the added values."""

    @abstractmethod
    def add(self, value: IN) -> None:
        """Add a value.

        Args:
            value: The value.
        """


class MergingState(AppendingState[IN, OUT]):
    """Holds values that are added, as `AppendingState` does."""


class ReducingState(MergingState[T, T]):
    """Holds the value that all added values reduce to. `get()` returns None if none was added."""


class AggregatingState(MergingState[IN, OUT]):
    """Holds the aggregate of all added values. `get()` returns None if none was added."""


class ListState(MergingState[T, Iterable[T]]):
    """Holds a list per key. `get()` returns an iterable, which is empty if there are no values; `add()` appends one."""

    @abstractmethod
    def update(self, values: list[T]) -> None:
        """Replace the list.

        Args:
            values: The new values.
        """

    @abstractmethod
    def add_all(self, values: list[T]) -> None:
        """Append several values.

        Args:
            values: The values.
        """

    def __iter__(self) -> Iterator[T]:
        return iter(self.get())


class MapState(State, Generic[K, V]):
    """Holds a map per key. It can be used like a dict: `state[k]`, `state[k] = v`, `del state[k]`, `k in state`."""

    @abstractmethod
    def get(self, key: K) -> V | None:
        """Return the value of an entry. `state[key]` does the same.

        Args:
            key: The key of the entry.

        Returns:
            The value, or None if there is no entry.
        """

    @abstractmethod
    def put(self, key: K, value: V) -> None:
        """Set the value of an entry.

        Args:
            key: The key of the entry.
            value: The value.
        """

    @abstractmethod
    def put_all(self, dict_value: dict[K, V]) -> None:
        """Set the values of several entries.

        Args:
            dict_value: The values by key.
        """

    @abstractmethod
    def remove(self, key: K) -> None:
        """Remove an entry, if there is one.

        Args:
            key: The key of the entry.
        """

    @abstractmethod
    def contains(self, key: K) -> bool:
        """Test whether there is an entry.

        Args:
            key: The key of the entry.

        Returns:
            True if there is one.
        """

    @abstractmethod
    def items(self) -> Iterable[tuple[K, V]]:
        """Return the entries as (key, value)."""

    @abstractmethod
    def keys(self) -> Iterable[K]:
        """Return the keys of the entries."""

    @abstractmethod
    def values(self) -> Iterable[V]:
        """Return the values of the entries."""

    @abstractmethod
    def is_empty(self) -> bool:
        """Return True if there are no entries."""

    def __getitem__(self, key: K) -> V | None:
        return self.get(key)

    def __setitem__(self, key: K, value: V) -> None:
        self.put(key, value)

    def __delitem__(self, key: K) -> None:
        self.remove(key)

    def __contains__(self, key: K) -> bool:
        return self.contains(key)

    def __iter__(self) -> Iterator[K]:
        return iter(self.keys())


class ReadOnlyBroadcastState(State, Generic[K, V]):
    """Holds a map that every subtask has, and that belongs to no key. A call that would change it raises `StateError`.

    It can be read like a dict: `state[k]`, `k in state`. Values that it returns must not be changed.
    """

    @abstractmethod
    def get(self, key: K) -> V | None:
        """Return the value of an entry, or None if there is no entry. `state[key]` does the same.

        Args:
            key: The key of the entry.

        Returns:
            The value, or None.
        """

    @abstractmethod
    def contains(self, key: K) -> bool:
        """Test whether there is an entry.

        Args:
            key: The key of the entry.

        Returns:
            True if there is one.
        """

    @abstractmethod
    def items(self) -> Iterable[tuple[K, V]]:
        """Return the entries as (key, value)."""

    @abstractmethod
    def keys(self) -> Iterable[K]:
        """Return the keys of the entries."""

    @abstractmethod
    def values(self) -> Iterable[V]:
        """Return the values of the entries."""

    @abstractmethod
    def is_empty(self) -> bool:
        """Return True if there are no entries."""

    def __getitem__(self, key: K) -> V | None:
        return self.get(key)

    def __contains__(self, key: K) -> bool:
        return self.contains(key)

    def __iter__(self) -> Iterator[K]:
        return iter(self.keys())


class BroadcastState(ReadOnlyBroadcastState[K, V]):
    """Holds a map that every subtask has, and that belongs to no key. It can be changed like a dict, too."""

    @abstractmethod
    def put(self, key: K, value: V) -> None:
        """Set the value of an entry.

        Args:
            key: The key of the entry.
            value: The value.
        """

    @abstractmethod
    def put_all(self, dict_value: dict[K, V]) -> None:
        """Set the values of several entries.

        Args:
            dict_value: The values by key.
        """

    @abstractmethod
    def remove(self, key: K) -> None:
        """Remove an entry, if there is one.

        Args:
            key: The key of the entry.
        """

    def __setitem__(self, key: K, value: V) -> None:
        self.put(key, value)

    def __delitem__(self, key: K) -> None:
        self.remove(key)


class StateDescriptor:
    """Names a state, and describes its values.

    The name is unique within the operator. State is restored by the operator's uid and this name. A type of None:
    values are pickled. `kind` is "value", "list", "map", "reducing" or "aggregating", as in a checkpoint's metadata.
    """

    kind: str = ""

    def __init__(self, name: str, type_info: TypeInformation | None) -> None:
        if not isinstance(name, str) or not name:
            raise TypeError(f"a state's name is a non-empty string, got {name!r}")
        if type_info is not None and not isinstance(type_info, TypeInformation):
            raise TypeError(f"the type of state {name!r} is made by Types, e.g. Types.LONG(); got {type_info!r}")
        self.name, self.type_info = name, type_info
        self.ttl_config: StateTtlConfig | None = None

    def get_name(self) -> str:
        """Return the name of the state."""
        return self.name

    def enable_time_to_live(self, ttl_config: StateTtlConfig) -> None:
        """Let entries of the state expire. Call it before the state is asked for.

        Args:
            ttl_config: Made by `StateTtlConfig.new_builder(ttl)`.

        Raises:
            TypeError: It is not a `StateTtlConfig`.
        """
        if not isinstance(ttl_config, StateTtlConfig):
            raise TypeError(f"state {self.name!r}: StateTtlConfig.new_builder(ttl).build() wanted, got {ttl_config!r}")
        self.ttl_config = ttl_config

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.type_info})"


class ValueStateDescriptor(StateDescriptor):
    """Describes a single value per key.

    `value_type_info` is the type of the value, made by `Types`; None: it is pickled.

    Example:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.DOUBLE()))
    """

    kind = "value"

    def __init__(self, name: str, value_type_info: TypeInformation | None = None) -> None:
        super().__init__(name, value_type_info)


class ListStateDescriptor(StateDescriptor):
    """Describes a list per key.

    `elem_type_info` is the type of an element, made by `Types`; None: elements are pickled.

    Example:
        self.recent = runtime_context.get_list_state(ListStateDescriptor("recent", Types.STRING()))
    """

    kind = "list"

    def __init__(self, name: str, elem_type_info: TypeInformation | None = None) -> None:
        super().__init__(name, elem_type_info)


class MapStateDescriptor(StateDescriptor):
    """Describes a map per key, or broadcast state: a map that every subtask has.

    `key_type_info` and `value_type_info` are the types of its entries, made by `Types`; None: they are pickled.

    Example:
        self.counts = runtime_context.get_map_state(MapStateDescriptor("counts", Types.STRING(), Types.LONG()))
    """

    kind = "map"

    def __init__(
        self, name: str, key_type_info: TypeInformation | None = None, value_type_info: TypeInformation | None = None
    ) -> None:
        super().__init__(name, value_type_info)
        if key_type_info is not None and not isinstance(key_type_info, TypeInformation):
            raise TypeError(f"the key type of state {name!r} is made by Types, got {key_type_info!r}")
        self.key_type_info, self.value_type_info = key_type_info, value_type_info


class ReducingStateDescriptor(StateDescriptor):
    """Describes a value per key that added values are reduced to.

    `reduce_function` is a `ReduceFunction`, or a function (result so far, value) -> result; `type_info` is the type of
    the values.

    Example:
        descriptor = ReducingStateDescriptor("largest", max, Types.LONG())
    """

    kind = "reducing"

    def __init__(self, name: str, reduce_function: Any, type_info: TypeInformation | None = None) -> None:
        super().__init__(name, type_info)
        reduce = getattr(reduce_function, "reduce", reduce_function)
        if not callable(reduce):
            raise TypeError(f"state {name!r} needs a ReduceFunction or a callable, got {reduce_function!r}")
        self.reduce_function = reduce_function
        self._reduce: Callable[[Any, Any], Any] = reduce

    def get_reduce_function(self) -> Callable[[Any, Any], Any]:
        """Return the function (result so far, value) -> result."""
        return self._reduce


class AggregatingStateDescriptor(StateDescriptor):
    """Describes an accumulator per key that values are added to.

    `agg_function` is an `AggregateFunction`; `state_type_info` is the type of its accumulator; None: it is pickled.
    """

    kind = "aggregating"

    def __init__(self, name: str, agg_function: Any, state_type_info: TypeInformation | None = None) -> None:
        super().__init__(name, state_type_info)
        for method in ("create_accumulator", "add", "get_result"):
            if not callable(getattr(agg_function, method, None)):
                raise TypeError(f"state {name!r} needs an AggregateFunction, got {agg_function!r}")
        self.agg_function = agg_function

    def get_agg_function(self) -> Any:
        """Return the `AggregateFunction`."""
        return self.agg_function
