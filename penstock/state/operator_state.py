"""Keeps operator state: lists and maps of a subtask that belong to no key (Flink: operator state).

It is small, so it is encoded when a snapshot is taken, in the subtask's thread. A state that has neither changed nor
been handed out since the last snapshot is not encoded again. How a list is distributed when a job is restored at
another parallelism is its *kind*: "split" (its elements are dealt out), "union" (every subtask gets all elements) or
"broadcast" (a map, the same in all subtasks).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NoReturn, TypeVar

import pyarrow as pa

from penstock.common.program.failures import OperatorFailure
from penstock.common.row_types.composite_types import MapType
from penstock.common.row_types.scalar_types import PICKLED
from penstock.common.typeinfo import TypeInformation
from penstock.protocol.values.metadata import OperatorPart
from penstock.state.backend import StateError, StateRevoked, StateSchemaError
from penstock.state.codecs import write_stream
from penstock.state.evolution import OTHER_KIND, changed_text, evolution_of
from penstock.state.unpickling import decoded

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")

SPLIT, UNION, BROADCAST = "split", "union", "broadcast"
_DECLARED = {
    SPLIT: "a list (get_list_state)",
    UNION: "a union list (get_union_list_state)",
    BROADCAST: "broadcast state",
}


class _Revoked:
    """Takes the place of a state's content when its generation has ended: whatever uses it raises."""

    def _raise(self, *_: Any) -> NoReturn:
        raise StateRevoked(
            "operator state was used after its job attempt had ended: functions get it anew in initialize_state() or "
            "by their context; do not keep it in global variables or use it in other threads"
        )

    __iter__ = __len__ = __contains__ = __getitem__ = __setitem__ = __delitem__ = __getattr__ = _raise


_REVOKED: Any = _Revoked()


class OperatorListHandle(Generic[T]):
    """Implements PyFlink's ListState for a list of the subtask."""

    def __init__(self, values: list[T], changeable: bool) -> None:
        self.values = values
        self.encoded: bytes | None = None
        self._changeable = changeable

    def get(self) -> list[T]:
        """Return a list that belongs to the user; [] if there is none."""
        if self._changeable:
            self.encoded = None
        return list(self.values)

    def __iter__(self) -> Iterator[T]:
        return iter(self.get())

    def add(self, value: T) -> None:
        self.add_all([value])

    def add_all(self, values: Iterable[T]) -> None:
        self.values.extend(_without_none(values))
        self.encoded = None

    def update(self, values: Iterable[T]) -> None:
        self.values[:] = _without_none(values)
        self.encoded = None

    def clear(self) -> None:
        self.values.clear()
        self.encoded = None

    def revoke(self) -> None:
        self.values = _REVOKED


def _without_none(values: Iterable[T]) -> list[T]:
    given = list(values)
    if any(value is None for value in given):
        raise StateError("None cannot be added to a list state")
    return given


class BroadcastHandle(Generic[K, V]):
    """Implements PyFlink's BroadcastState."""

    def __init__(self, entries: dict[K, V], changeable: bool) -> None:
        self.entries = entries
        self.encoded: bytes | None = None
        self._changeable = changeable

    # ---- reading ------------------------------------------------------------------------------------------------

    def get(self, key: K) -> V | None:
        if self._changeable:
            self.encoded = None
        return self.entries.get(key)

    def contains(self, key: K) -> bool:
        return key in self.entries

    def items(self) -> list[tuple[K, V]]:
        if self._changeable:
            self.encoded = None
        return list(self.entries.items())

    def keys(self) -> list[K]:
        return list(self.entries)

    def values(self) -> list[V]:
        return [value for _, value in self.items()]

    def is_empty(self) -> bool:
        return len(self.entries) == 0

    def __getitem__(self, key: K) -> V | None:
        return self.get(key)

    def __contains__(self, key: K) -> bool:
        return self.contains(key)

    def __iter__(self) -> Iterator[K]:
        return iter(self.keys())

    # ---- changing -----------------------------------------------------------------------------------------------

    def put(self, key: K, value: V) -> None:
        self.entries[key] = value
        self.encoded = None

    def put_all(self, dict_value: Any) -> None:
        """Put a dict, or pairs of key and value."""
        self.entries.update(dict_value)
        self.encoded = None

    def remove(self, key: K) -> None:
        self.entries.pop(key, None)
        self.encoded = None

    def clear(self) -> None:
        self.entries.clear()
        self.encoded = None

    def __setitem__(self, key: K, value: V) -> None:
        self.put(key, value)

    def __delitem__(self, key: K) -> None:
        self.remove(key)

    def revoke(self) -> None:
        self.entries = _REVOKED


class ReadOnlyBroadcastHandle(BroadcastHandle[K, V]):
    """Implements PyFlink's ReadOnlyBroadcastState: reads another handle, and refuses every change."""

    def __init__(self, state: BroadcastHandle[K, V], name: str, operator: str) -> None:
        self._state = state
        self._described = f"broadcast state '{name}' of operator '{operator}'"

    @property
    def entries(self) -> dict[K, V]:  # type: ignore[override]
        return self._state.entries

    def get(self, key: K) -> V | None:
        return self._state.get(key)

    def items(self) -> list[tuple[K, V]]:
        return self._state.items()

    def _refuse(self, *_: Any) -> NoReturn:
        raise StateError(
            f"{self._described} can only be read here: all subtasks must have the same, so only "
            "process_broadcast_element, which sees the same rows in every subtask, may change it"
        )

    put = put_all = remove = clear = __setitem__ = __delitem__ = _refuse  # type: ignore[assignment]


@dataclass
class _State:
    """Holds one state: how it was declared, and its handle."""

    kind: str
    type: TypeInformation
    handle: OperatorListHandle[Any] | BroadcastHandle[Any, Any]

    def encoded(self) -> bytes:
        handle = self.handle
        if handle.encoded is None:
            values = [handle.entries] if isinstance(handle, BroadcastHandle) else handle.values
            batch = pa.RecordBatch.from_arrays(self.type.encode(values), schema=self.type.schema)
            handle.encoded = bytes(write_stream(self.type.schema, [batch]))
        return handle.encoded


class OperatorStateBackend:
    """Holds the operator state of all operators of one subtask. One thread uses it.

    Args:
        operator_names: By uid, for messages.
        user_uids: What the program calls the operators, by uid, for messages.
    """

    def __init__(self, operator_names: Mapping[str, str], user_uids: Mapping[str, str] | None = None) -> None:
        self._operator_names = operator_names
        self._user_uids = user_uids or {}
        self._states: dict[tuple[str, str], _State] = {}
        self._restored: dict[tuple[str, str], tuple[Sequence[OperatorPart], Sequence[OperatorPart]]] = {}
        """The parts that a state begins with, by operator and name; they are stored again while nobody asks for
        them."""

    def restore(self, given: Sequence[OperatorPart], kept: Sequence[OperatorPart]) -> None:
        """Set the initial contents of one state. `kept` is stored again as long as nobody asks for the state. Parts may
        have different types: subtasks that did not ask for the state have kept the type of an earlier program."""
        for part in given[:1]:
            self._restored[part.operator, part.name] = given, kept

    def list_state(self, operator: str, descriptor: Any, kind: str) -> OperatorListHandle[Any]:
        """Return the list that a descriptor names, the same each time. Raises `StateSchemaError`."""
        _refuse_ttl(descriptor)
        handle = self._state(operator, descriptor.name, kind, descriptor.type_info or PICKLED)
        assert isinstance(handle, OperatorListHandle)
        return handle

    def broadcast_state(self, operator: str, descriptor: Any) -> BroadcastHandle[Any, Any]:
        """Return the map that a descriptor names, the same each time. Raises `StateSchemaError`."""
        _refuse_ttl(descriptor)
        map_type = MapType(descriptor.key_type_info or PICKLED, descriptor.type_info or PICKLED)
        handle = self._state(operator, descriptor.name, BROADCAST, map_type)
        assert isinstance(handle, BroadcastHandle)
        return handle

    def names(self, operator: str, *kinds: str) -> set[str]:
        """Return the names of the operator's states of these kinds that have been asked for."""
        return {name for (uid, name), state in self._states.items() if uid == operator and state.kind in kinds}

    def _state(self, operator: str, name: str, kind: str, type_info: TypeInformation) -> Any:
        known = self._states.get((operator, name))
        if known is not None:
            self._check(operator, name, known, kind, type_info)
            return known.handle
        values: list[Any] = []
        if (restored := self._restored.get((operator, name))) is not None:
            values = self._restored_values(restored[0], kind, type_info)
            del self._restored[operator, name]
        handle: OperatorListHandle[Any] | BroadcastHandle[Any, Any]
        if kind == BROADCAST:
            entries = dict(values[0]) if values else {}
            assert isinstance(type_info, MapType)
            changeable = type_info.value_type.freeze is not None
            handle = BroadcastHandle(entries, changeable)
        else:
            handle = OperatorListHandle(values, type_info.freeze is not None)
        self._states[operator, name] = _State(kind, type_info, handle)
        return handle

    def _restored_values(self, parts: Sequence[OperatorPart], kind: str, type_info: TypeInformation) -> list[Any]:
        return [value for part in parts for value in self._values(part, kind, type_info)]

    def _values(self, part: OperatorPart, kind: str, type_info: TypeInformation) -> list[Any]:
        batches, described = batches_of(part.items), self._described_with_uid(part.operator, part.name)
        if (part.kind, part.codec) != (kind, type_info.text):
            stored = f"{_DECLARED.get(part.kind, part.kind)} of {part.codec}"
            told = changed_text(described, f"{_DECLARED[kind]} of {type_info}", stored)
            if part.kind != kind:
                raise StateSchemaError(f"{told}: {OTHER_KIND}")
            batches = map(evolution_of(told, part.codec, type_info).converted, batches)
        return [value for batch in batches for value in decoded(type_info, batch, described)]

    def _check(self, operator: str, name: str, known: _State, kind: str, type: TypeInformation) -> None:
        """Refuse a state that the program has declared differently before."""
        if (known.kind, known.type.text) != (kind, type.text):
            raise StateSchemaError(
                f"{self._described_with_uid(operator, name)} is declared as {_DECLARED[kind]} of {type}, but in the "
                f"same program it is {_DECLARED[known.kind]} of {known.type}: declare both alike, or give one of them "
                "another name"
            )

    def _described_with_uid(self, operator: str, name: str) -> str:
        uid = self._user_uids.get(operator)
        return self._described(operator, name) + (f" (uid '{uid}')" if uid else "")

    def _described(self, operator: str, name: str) -> str:
        return f"operator state '{name}' of operator '{self._operator_names.get(operator, operator)}'"

    def parts(self) -> list[OperatorPart]:
        """Return the parts of a snapshot. Raises `OperatorFailure` for a value that cannot be encoded."""
        parts = [part for _, kept in self._restored.values() for part in kept]
        for (operator, name), state in self._states.items():
            try:
                encoded = state.encoded()
            except Exception as error:  # catches whatever a user's object raises when it is pickled
                told = StateError(f"{self._described(operator, name)} cannot be written: {error}")
                raise OperatorFailure(self._operator_names.get(operator, operator), told, ours=True) from error
            parts.append(OperatorPart(operator, name, [encoded], state.kind, state.type.text))
        return parts

    def revoke(self) -> None:
        """End the generation: every handle raises `StateRevoked` from now on."""
        for state in self._states.values():
            state.handle.revoke()


def batches_of(items: Iterable[bytes]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a part's items: an element of a list each, or one map."""
    for item in items:
        with pa.ipc.open_stream(pa.py_buffer(item)) as reader:
            yield from reader


def chosen_rows(items: Iterable[bytes], rows: list[int]) -> list[bytes]:
    """Return the items that hold these of all rows, by their positions."""
    batches = list(batches_of(items))
    if not batches:
        return []
    table = pa.Table.from_batches(batches).take(pa.array(rows, pa.int64())).combine_chunks()
    return [bytes(write_stream(table.schema, table.to_batches()))]


def count_rows(items: Iterable[bytes]) -> int:
    return sum(batch.num_rows for batch in batches_of(items))


def _refuse_ttl(descriptor: Any) -> None:
    if descriptor.ttl_config is not None and descriptor.ttl_config.is_enabled():
        raise StateError(
            f"operator state '{descriptor.name}' has a time to live, which only keyed state can have: leave "
            "enable_time_to_live out"
        )
