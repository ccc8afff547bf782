"""Keyed state: the descriptors that name it and the handles that read and write it, as in PyFlink."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Callable, Generic, Iterable, Iterator, TypeVar

from penstock.common.typeinfo import TypeInformation

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
IN = TypeVar("IN")
OUT = TypeVar("OUT")


class State(ABC):
    """Of the current key."""

    @abstractmethod
    def clear(self) -> None: ...


class ValueState(State, Generic[T]):
    @abstractmethod
    def value(self) -> T | None:
        """None where nothing was set."""

    @abstractmethod
    def update(self, value: T) -> None:
        """None is the same as `clear()`."""


class AppendingState(State, Generic[IN, OUT]):
    @abstractmethod
    def get(self) -> OUT: ...

    @abstractmethod
    def add(self, value: IN) -> None: ...


class MergingState(AppendingState[IN, OUT]):
    pass


class ReducingState(MergingState[T, T]):
    """`get()` is what all added values reduce to; None where there are none."""


class AggregatingState(MergingState[IN, OUT]):
    """`get()` is the aggregate of all added values; None where there are none."""


class ListState(MergingState[T, Iterable[T]]):
    """`get()` iterates over the values; nothing where there are none."""

    @abstractmethod
    def update(self, values: list[T]) -> None:
        """Replaces all values."""

    @abstractmethod
    def add_all(self, values: list[T]) -> None: ...

    def __iter__(self) -> Iterator[T]:
        return iter(self.get())


class MapState(State, Generic[K, V]):
    @abstractmethod
    def get(self, key: K) -> V | None: ...

    @abstractmethod
    def put(self, key: K, value: V) -> None: ...

    @abstractmethod
    def put_all(self, dict_value: dict[K, V]) -> None: ...

    @abstractmethod
    def remove(self, key: K) -> None:
        """No error where there is none."""

    @abstractmethod
    def contains(self, key: K) -> bool: ...

    @abstractmethod
    def items(self) -> Iterable[tuple[K, V]]: ...

    @abstractmethod
    def keys(self) -> Iterable[K]: ...

    @abstractmethod
    def values(self) -> Iterable[V]: ...

    @abstractmethod
    def is_empty(self) -> bool: ...

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


class StateDescriptor:
    """A state's name, which is unique within its operator, and the type of its values (None: pickles).

    `kind`: value, list, map, reducing or aggregating, as it stands in a checkpoint's metadata.
    """

    kind: str = ""

    def __init__(self, name: str, type_info: TypeInformation | None) -> None:
        if not isinstance(name, str) or not name:
            raise TypeError(f"a state's name is a non-empty string, got {name!r}")
        if type_info is not None and not isinstance(type_info, TypeInformation):
            raise TypeError(f"the type of state {name!r} is made by Types, e.g. Types.LONG(); got {type_info!r}")
        self.name = name
        self.type_info = type_info

    def get_name(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.type_info})"


class ValueStateDescriptor(StateDescriptor):
    kind = "value"

    def __init__(self, name: str, value_type_info: TypeInformation | None = None) -> None:
        super().__init__(name, value_type_info)


class ListStateDescriptor(StateDescriptor):
    """`elem_type_info`: the type of one element."""

    kind = "list"

    def __init__(self, name: str, elem_type_info: TypeInformation | None = None) -> None:
        super().__init__(name, elem_type_info)


class MapStateDescriptor(StateDescriptor):
    """`key_type_info` and `value_type_info`: of its entries (None: pickles)."""

    kind = "map"

    def __init__(
        self, name: str, key_type_info: TypeInformation | None = None, value_type_info: TypeInformation | None = None
    ) -> None:
        super().__init__(name, value_type_info)
        if key_type_info is not None and not isinstance(key_type_info, TypeInformation):
            raise TypeError(f"the key type of state {name!r} is made by Types, got {key_type_info!r}")
        self.key_type_info = key_type_info
        self.value_type_info = value_type_info


class ReducingStateDescriptor(StateDescriptor):
    """`reduce_function`: a ReduceFunction or a callable of two values."""

    kind = "reducing"

    def __init__(self, name: str, reduce_function: Any, type_info: TypeInformation | None = None) -> None:
        super().__init__(name, type_info)
        reduce = getattr(reduce_function, "reduce", reduce_function)
        if not callable(reduce):
            raise TypeError(f"state {name!r} needs a ReduceFunction or a callable, got {reduce_function!r}")
        self.reduce_function = reduce_function
        self._reduce: Callable[[Any, Any], Any] = reduce

    def get_reduce_function(self) -> Callable[[Any, Any], Any]:
        """(value, value) -> value."""
        return self._reduce


class AggregatingStateDescriptor(StateDescriptor):
    """`agg_function`: an AggregateFunction; `state_type_info`: the type of its accumulator."""

    kind = "aggregating"

    def __init__(self, name: str, agg_function: Any, state_type_info: TypeInformation | None = None) -> None:
        super().__init__(name, state_type_info)
        for method in ("create_accumulator", "add", "get_result"):
            if not callable(getattr(agg_function, method, None)):
                raise TypeError(f"state {name!r} needs an AggregateFunction, got {agg_function!r}")
        self.agg_function = agg_function

    def get_agg_function(self) -> Any:
        return self.agg_function
