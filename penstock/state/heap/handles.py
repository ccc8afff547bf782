"""Implements the handles that user functions hold: PyFlink's ValueState, ListState, MapState, ReducingState,
AggregatingState.

They work on the entry of the current key. What they return can be changed by the user as in Flink's heap backend; it
becomes state by `update` or `add` at the latest.
"""

from __future__ import annotations

from typing import Any, Callable, Generic, Iterable, Iterator, Protocol, TypeVar

from penstock.protocol.values.metadata import StateSchema
from penstock.state.backend import StateError, StateRevoked
from penstock.state.heap.tables import ABSENT

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


class _NoCurrentKey:
    """Takes the place of the key group while there is no current key: it raises when it is used."""

    def __index__(self) -> int:
        raise StateError(
            "keyed state was used where there is no current key: it can be used in process_element, on_timer, reduce "
            "and the like, not in open(), close() or the constructor (there, only ask for the handle), nor in "
            "process_broadcast_element (there, call ctx.apply_to_keyed_state(descriptor, function))"
        )


class CurrentKey:
    """Holds the key of the row or timer that is being processed, for all handles of a subtask."""

    __slots__ = ("key", "key_group")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.key: Any = None
        self.key_group: Any = _NoCurrentKey()


class _Revoked(list[Any]):
    def __getitem__(self, _: Any) -> Any:
        raise StateRevoked(
            "a state handle was used after its job attempt had ended: functions get new handles in "
            "open(); do not keep them in global variables or use them in other threads"
        )


class EntryTable(Protocol):
    """Holds the entries of one state as handles see them: a mapping of key to value per key group in `buckets`, and in
    `shared` the key groups for whose entries a call must come first: `own` before an entry is changed in place, or
    returned to a user who can do that, and `note` before it gets another object or is removed. Where values can be
    changed in place, `own` will do for that, too.
    """

    schema: StateSchema
    buckets: Any
    shared: Any

    def own(self, key_group: int, key: Any) -> None: ...

    def note(self, key_group: int, key: Any, value: Any) -> None:
        """Record the next value of an entry; `ABSENT`: it is about to be removed."""


class Handle:
    """Accesses the entry of the current key. `changeable`: a read touches it, too, for the user may change it."""

    __slots__ = ("_at", "_buckets", "_shared", "_table", "_changeable")

    def __init__(self, table: EntryTable, at: CurrentKey, changeable: bool) -> None:
        self._at = at
        self._table = table
        self._buckets = table.buckets
        self._shared = table.shared
        self._changeable = changeable

    def revoke(self) -> None:
        self._buckets = _Revoked()

    def clear(self) -> None:
        at = self._at
        if at.key in self._buckets[at.key_group]:
            if self._shared and at.key_group in self._shared:
                self._table.note(at.key_group, at.key, ABSENT)
            self._buckets[at.key_group].pop(at.key)

    def _put(self, value: Any) -> None:
        """Let the current key have another object as its value."""
        at = self._at
        if self._shared and at.key_group in self._shared:
            self._table.note(at.key_group, at.key, value)
        self._buckets[at.key_group][at.key] = value

    def _writable(self) -> dict[Any, Any]:
        """Return the current key's bucket, with the entry ready to be changed in place."""
        at = self._at
        if self._shared and at.key_group in self._shared:
            self._table.own(at.key_group, at.key)
        bucket: dict[Any, Any] = self._buckets[at.key_group]
        return bucket

    def _peek(self) -> Any:
        """Return the entry, ready to be read by the user; None if there is none."""
        at = self._at
        if self._changeable and self._shared and at.key_group in self._shared:
            self._table.own(at.key_group, at.key)
        return self._buckets[at.key_group].get(at.key)


class ValueHandle(Handle, Generic[T]):
    __slots__ = ()

    def value(self) -> T | None:
        at = self._at
        if self._changeable and self._shared and at.key_group in self._shared:
            self._table.own(at.key_group, at.key)
        value: T | None = self._buckets[at.key_group].get(at.key)
        return value

    def update(self, value: T | None) -> None:
        """Set the value; None clears it, as in Flink."""
        if value is None:
            self.clear()
            return
        at = self._at
        if self._shared and at.key_group in self._shared:
            self._table.note(at.key_group, at.key, value)
        self._buckets[at.key_group][at.key] = value


class ListHandle(Handle, Generic[T]):
    __slots__ = ()

    def get(self) -> list[T]:
        """Return a list that belongs to the user; [] if there is none."""
        return list(self._peek() or ())

    def __iter__(self) -> Iterator[T]:
        return iter(self.get())

    def add(self, value: T) -> None:
        self._extend([value])

    def add_all(self, values: Iterable[T]) -> None:
        self._extend(list(values))

    def update(self, values: Iterable[T]) -> None:
        values = list(values)
        refuse_none(values)
        if values:
            self._writable()[self._at.key] = values
        else:
            self.clear()

    def _extend(self, values: list[T]) -> None:
        refuse_none(values)
        if not values:
            return
        bucket = self._writable()
        items = bucket.get(self._at.key)
        if items is None:
            bucket[self._at.key] = values
        else:
            items += values


class MapHandle(Handle, Generic[K, V]):
    __slots__ = ()

    def get(self, key: K) -> V | None:
        items = self._peek()
        return None if items is None else items.get(key)

    def put(self, key: K, value: V) -> None:
        bucket = self._writable()
        items = bucket.get(self._at.key)
        if items is None:
            bucket[self._at.key] = {key: value}
        else:
            items[key] = value

    def put_all(self, dict_value: Any) -> None:
        """Put a dict, or pairs of key and value."""
        items = dict(dict_value)
        if items:
            self._writable().setdefault(self._at.key, {}).update(items)

    def remove(self, key: K) -> None:
        if not self.contains(key):
            return
        bucket = self._writable()
        items = bucket[self._at.key]
        del items[key]
        if not items:
            del bucket[self._at.key]

    def contains(self, key: K) -> bool:
        items = self._buckets[self._at.key_group].get(self._at.key)
        return items is not None and key in items

    def items(self) -> list[tuple[K, V]]:
        return list((self._peek() or {}).items())

    def keys(self) -> list[K]:
        return list(self._buckets[self._at.key_group].get(self._at.key) or ())

    def values(self) -> list[V]:
        return list((self._peek() or {}).values())

    def is_empty(self) -> bool:
        return self._at.key not in self._buckets[self._at.key_group]

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


class ReducingHandle(Handle, Generic[T]):
    __slots__ = ("_reduce",)

    def __init__(self, table: EntryTable, at: CurrentKey, changeable: bool, reduce: Callable[[T, T], T]) -> None:
        super().__init__(table, at, changeable)
        self._reduce = reduce

    def get(self) -> T | None:
        value: T | None = self._peek()
        return value

    def add(self, value: T) -> None:
        at = self._at
        if self._changeable and self._shared and at.key_group in self._shared:
            self._table.own(at.key_group, at.key)
        before = self._buckets[at.key_group].get(at.key)
        self._put(value if before is None else self._reduce(before, value))


class AggregatingHandle(Handle):
    """Stores the accumulator of an aggregating state."""

    __slots__ = ("_function",)

    def __init__(self, table: EntryTable, at: CurrentKey, changeable: bool, function: Any) -> None:
        super().__init__(table, at, changeable)
        self._function = function

    def get(self) -> Any:
        accumulator = self._peek()
        return None if accumulator is None else self._function.get_result(accumulator)

    def add(self, value: Any) -> None:
        accumulator = self._peek()
        if accumulator is None:
            accumulator = self._function.create_accumulator()
        self._put(self._function.add(value, accumulator))

    def accumulator(self) -> Any:
        """Return the accumulator itself; None if there is none."""
        return self._peek()

    def merge(self, accumulator: Any) -> None:
        """Merge another accumulator into that of the current key."""
        before = self._peek()
        self._put(accumulator if before is None else self._function.merge(before, accumulator))


def refuse_none(values: list[Any]) -> None:
    if any(value is None for value in values):
        raise StateError("None cannot be added to a list state: leave it out, or add another value in its place")
