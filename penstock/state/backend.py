"""What the runtime asks of a keyed state backend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterator, Protocol

from penstock.protocol.snapshot import StateSchema


@dataclass(frozen=True)
class EncodedState:
    """A run of entries of one state, ready to be written: `parts` are the buffers of one Arrow IPC stream."""

    operator: str
    name: str
    entries: int
    parts: list[bytes | memoryview]


class StateSnapshot(Protocol):
    """One checkpoint's view of a backend. Taken in the subtask's thread in constant time; encoded in another thread
    while the subtask goes on: whatever the subtask touches first is encoded (or copied) first."""

    schemas: list[StateSchema]

    def encode(self) -> Iterator[EncodedState]:
        """Runs once, in the writer's thread. Small steps: between two of them the subtask may touch entries."""

    def discard(self) -> None:
        """The checkpoint was given up: stop paying for it. From any thread."""


class KeyedStateBackend(Protocol):
    """State of all operators of one subtask. One thread uses it, but for `StateSnapshot.encode`."""

    def set_current_key(self, key: Any, key_group: int) -> None: ...

    def current_key(self) -> Any: ...

    def state(self, operator: str, descriptor: Any) -> Any:
        """The handle (PyFlink's ValueState, ListState, MapState, ReducingState, AggregatingState) of a
        descriptor; the same handle each time. Raises `StateSchemaError` where restored state does not fit."""

    def snapshot(self) -> StateSnapshot: ...

    def restore(self, operator: str, name: str, data: bytes, key_groups: range) -> None:
        """Adds the entries of one `EncodedState` (its joined parts) whose key group is in `key_groups`. Called
        before the first `state()`."""
