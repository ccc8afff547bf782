"""Declares the interface of keyed state backends to the runtime."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Iterable, Iterator, Protocol, Sequence

from penstock.common.program.failures import Fault
from penstock.protocol.values.metadata import RunBounds, Segment, StateSchema
from penstock.storage.local_backup import LocalBackup


class StateError(Fault):
    """Signals state that cannot be used or written. The message names operator, state and the way out."""


class StateSchemaError(StateError):
    """Signals that a state was declared differently in the restored checkpoint, or before in this program."""


class MissingStateClass(StateSchemaError):
    """Signals a pickled object of a class that cannot be imported any more."""


class StateRevoked(StateError):
    """Signals that a handle was used after its generation had ended."""


@dataclass(frozen=True)
class EncodedState:
    """Holds a run of entries of one state, ready to be written: `parts` are the buffers of one Arrow IPC stream. They
    are valid until the next run is asked for. `bounds`: if the entries are sorted.
    """

    operator: str
    name: str
    entries: int
    parts: list[bytes | memoryview]
    bounds: RunBounds | None = None


@dataclass(frozen=True)
class StoredState:
    """Locates a run of entries that a checkpoint has stored: `length_bytes` at `offset` of a segment. A later snapshot
    yields it in place of an `EncodedState` to say that these entries are as they were.
    """

    operator: str
    name: str
    entries: int
    segment: Segment
    offset: int
    length_bytes: int
    crc: int
    bounds: RunBounds | None = None


class ConsolidatedChains(Protocol):
    """Receives the results of consolidations. Any thread may call it."""

    def on_consolidated(self, name: tuple[str, str], checkpoint_id: int, runs: tuple[StoredState, ...] | None) -> None:
        """Note that a state was stored whole as it was at a checkpoint's barrier; `runs` None: that it was not."""


class Consolidation:
    """Stores one state whole, as it was at the barrier of checkpoint `checkpoint_id` (see `penstock/state/chains.py`).
    `name`: (operator, state). `snapshot`: a snapshot of this state alone.
    """

    def __init__(
        self, name: tuple[str, str], checkpoint_id: int, snapshot: StateSnapshot, chains: ConsolidatedChains
    ) -> None:
        self.name = name
        self.checkpoint_id = checkpoint_id
        self._snapshot = snapshot
        self._chains = chains

    def encode(self) -> Iterator[EncodedState]:
        """Yield the ranges. Runs once, in the writer's thread. Raises `StateError`."""
        for run in self._snapshot.encode():
            assert isinstance(run, EncodedState)
            yield run

    def on_stored(self, runs: list[StoredState]) -> None:
        """Let a later checkpoint name the runs, which are durable."""
        self._chains.on_consolidated(self.name, self.checkpoint_id, tuple(runs))

    def discard(self) -> None:
        """Release the view, because nothing could be stored. It is tried again later."""
        self._snapshot.discard()
        self._chains.on_consolidated(self.name, self.checkpoint_id, None)


class StateSnapshot(Protocol):
    """Holds one checkpoint's view of a backend. It is taken in the subtask's thread, in a time that does not depend on
    the size of the state, and encoded in another thread while the subtask continues.
    """

    schemas: list[StateSchema]
    expected_bytes: int
    """About how much will be written, as far as that is known at once; else 0."""
    consolidations: Sequence[Consolidation]
    """The states that are to be stored whole as well, next to this checkpoint and later ones."""

    def encode(self) -> Iterator[EncodedState | StoredState]:
        """Yield the state: encoded, or where the checkpoint's predecessor has stored it. Runs once, in the writer's
        thread. Raises `StateError` for a value that cannot be encoded.
        """

    def on_stored(self, stored: list[StoredState]) -> None:
        """Record the stored runs that the next checkpoint may reference. Called in the writer's thread, before the
        checkpoint is acknowledged.
        """

    def discard(self) -> None:
        """Release the view of a checkpoint that was given up. Any thread may call it; `encode` ends early."""


@dataclass(frozen=True)
class RestoringSubtask:
    """Describes a subtask to a backend that keeps copies of its files. `backup` None: it keeps none. `runs`: all that
    is to be restored, if that is the subtask's own state of its own job, else nothing. `read`: reads one of them, in
    any thread. `load_apart`: runs work once, next to the subtask; None: everything is restored before it runs.
    """

    backup: LocalBackup | None
    key_groups: range
    key_type: str
    runs: tuple[StoredState, ...]
    read: Callable[[StoredState], bytes]
    load_apart: Callable[[Callable[[], None]], None] | None = None


class StateBackend(Protocol):
    """Holds the state of all operators of one subtask, as far as checkpoints see it. One thread uses it, except for
    `StateSnapshot`.
    """

    def snapshot(self, checkpoint_id: int, predecessor_id: int | None) -> StateSnapshot:
        """Return a view for a checkpoint. It may name the runs that it knows its predecessor has stored, and no others;
        None: it has no predecessor, so everything is encoded.
        """

    def check_room(self, stored_bytes: int) -> None:
        """Raise `StateError` if there is certainly too little room for the state to restore, which has `stored_bytes`
        in the checkpoint. Called before anything is restored.
        """

    def restore_schema(self, schema: StateSchema, user_uid: str = "", key_type: str = "") -> None:
        """Record a state's declaration in the checkpoint. Call it before its entries are restored. `user_uid`: what the
        program calls its operator, for messages; `key_type`: the type of its keys, as it is declared now.
        """

    def restore(self, operator: str, name: str, data: bytes, key_groups: range) -> None:
        """Add the entries of one `EncodedState` (its joined parts) whose key group is in `key_groups`. Call it before
        the first `state()`.
        """

    def restore_copy(self, subtask: RestoringSubtask) -> frozenset[StoredState]:
        """Restore from a copy of the backend's own files, and keep such copies from now on, or begin to restore while
        the subtask runs. Return the runs that need not be restored any more. Call it after `on_restored`, and before
        anything is restored.
        """

    def on_restored(self, checkpoint_id: int, stored: list[StoredState]) -> None:
        """Record the restored runs that the first checkpoint may reference. Only called if the subtask has restored
        them whole: without the key groups of others, and from its own job's directory.
        """

    def metrics(self) -> dict[str, int]:
        """Return figures of the backend's own, by Flink's names; none if there are none. Called from any thread."""

    def revoke(self) -> None:
        """End the generation: every handle raises `StateRevoked` from now on."""


class SliceAccess(Protocol):
    """Lets a backend read and write for a slice of rows at once."""

    def prepare(self, keys: Sequence[Any], key_groups: Sequence[int], start: int, end: int) -> None:
        """Read ahead the entries that rows `start` to `end` are likely to use. Called before a slice; its last rows may
        not be processed.
        """

    def settle(self) -> None:
        """Write touched entries, evict from the cache, and remove expired entries. Called between two rows: nobody uses
        a value of state that a handle has returned before.
        """


class KeyedStateBackend(StateBackend, Protocol):
    """Holds the keyed state of all operators of one subtask. One thread uses it, except for `StateSnapshot`."""

    def set_current_key(self, key: Any, key_group: int) -> None:
        """Set the current key. It is hashable, and equals the result of `penstock.protocol.values.keys.decode` for its
        encoding."""

    def clear_current_key(self) -> None:
        """Let there be no current key: every use of keyed state is an error until one is set."""

    def current_key(self) -> Any: ...

    def current_key_group(self) -> int: ...

    @property
    def slices(self) -> SliceAccess:
        """Return the per-slice hooks (`prepare`, `settle`)."""

    def forget(self, key_group: int) -> None:
        """Remove the entries of a key group, where that frees memory. Only for jobs that take no checkpoints."""

    def has_restored(self, operator: str, name: str) -> bool:
        """Return whether the checkpoint that is being restored has such a state."""

    def keys_of(self, operator: str, name: str) -> Iterable[tuple[Any, int]]:
        """Return (key, key group) of all entries of a state that has been asked for, as they are now."""

    def entries(self, operator: str, name: str) -> Iterator[tuple[Any, int, Any]]:
        """Yield (key, key group, value) of a state that has been asked for; read only, and before anything changes."""

    def state(self, operator: str, descriptor: Any) -> Any:
        """Return the handle (PyFlink's ValueState, ListState, MapState, ReducingState, AggregatingState) of a
        descriptor; the same handle each time. `operator` is its uid. Raises `StateSchemaError` if restored state does
        not fit.
        """

    def set_current_window(self, window: Any) -> None:
        """Let all handles of `state_of_window` be those of the current key and this window."""

    def state_of_window(self, operator: str, descriptor: Any, window: Any) -> Any:
        """Return a handle like `state`, for the current key and one of its windows. It is valid until the next call.
        `window`: what names the window, a value that a key can have.
        """
