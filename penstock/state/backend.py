"""What the runtime asks of a keyed state backend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterator, Protocol

from penstock.common.failures import Fault
from penstock.protocol.values.metadata import StateSchema


class StateError(Fault):
    """State that cannot be used or written. The message names operator, state and the way out."""


class StateSchemaError(StateError):
    """A state was declared otherwise before: in the checkpoint that is being restored, or in this program."""


class StateRevoked(StateError):
    """A handle was used after its generation had ended."""


@dataclass(frozen=True)
class EncodedState:
    """A run of entries of one state, ready to be written: `parts` are the buffers of one Arrow IPC stream. They
    are good until the next is asked for."""

    operator: str
    name: str
    entries: int
    parts: list[bytes | memoryview]


class StateSnapshot(Protocol):
    """One checkpoint's view of a backend. Taken in the subtask's thread, in a time that does not depend on how much
    state there is; encoded in another thread while the subtask goes on."""

    schemas: list[StateSchema]
    expected_bytes: int
    """About how much will be written, as far as that is known at once; else 0."""

    def encode(self) -> Iterator[EncodedState]:
        """Runs once, in the writer's thread. Raises `StateError` for a value that cannot be encoded."""

    def discard(self) -> None:
        """The checkpoint was given up: stop paying for it. From any thread; `encode`, if it is running, ends early."""


class StateBackend(Protocol):
    """State of all operators of one subtask, as far as checkpoints see it. One thread uses it, but for
    `StateSnapshot`."""

    def snapshot(self) -> StateSnapshot: ...

    def restore_schema(self, schema: StateSchema) -> None:
        """How a state was declared in the checkpoint. Called before any is asked for."""

    def restore(self, operator: str, name: str, data: bytes, key_groups: range) -> None:
        """Adds the entries of one `EncodedState` (its joined parts) whose key group is in `key_groups`. Called
        before the first `state()`."""

    def revoke(self) -> None:
        """The generation has ended: every handle raises `StateRevoked` from now on."""


class KeyedStateBackend(StateBackend, Protocol):
    """State of all operators of one subtask. One thread uses it, but for `StateSnapshot`."""

    def set_current_key(self, key: Any, key_group: int) -> None:
        """`key` is hashable, and what `penstock.protocol.values.keys.decode` returns for its encoding."""

    def current_key(self) -> Any: ...

    def state(self, operator: str, descriptor: Any) -> Any:
        """The handle (PyFlink's ValueState, ListState, MapState, ReducingState, AggregatingState) of a
        descriptor; the same handle each time. `operator` is its uid. Raises `StateSchemaError` where restored state
        does not fit."""

    def state_of_window(self, operator: str, descriptor: Any, start: int) -> Any:
        """As `state`, of the current key and one of its windows. The handle is good until the next call."""
