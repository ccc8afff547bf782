"""Gives functions, readers and writers their operator state, and has them bring it up to date for snapshots."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, Callable

from penstock.common.program.failures import USER_ERRORS, OperatorFailure
from penstock.connectors.base import SinkWriter, SourceReader
from penstock.datastream._streams.function_wrappers import Adapter
from penstock.datastream.functions import (
    CheckpointedFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    KeyedStateStore,
    OperatorStateStore,
)
from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor
from penstock.graph.declared_functions import AnyWindowSpec, AsyncSpec, BroadcastSpec
from penstock.graph.job_graph import Operator
from penstock.protocol.values.metadata import OperatorPart
from penstock.state.operator_state import BROADCAST, SPLIT, UNION, OperatorStateBackend

AT_END_OF_DATA = -1
"""The number used for a checkpoint's id at the end of the data."""


class BackendStateStore(OperatorStateStore):
    """Hands out the state of one operator."""

    def __init__(self, backend: OperatorStateBackend, operator: str) -> None:
        self._backend = backend
        self._operator = operator

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> Any:
        return self._list(state_descriptor, SPLIT, "get_list_state")

    def get_union_list_state(self, state_descriptor: ListStateDescriptor) -> Any:
        return self._list(state_descriptor, UNION, "get_union_list_state")

    def _list(self, descriptor: Any, kind: str, method: str) -> Any:
        if not isinstance(descriptor, ListStateDescriptor):
            raise TypeError(f"{method}() takes a ListStateDescriptor, got {descriptor!r}")
        return self._backend.list_state(self._operator, descriptor, kind)

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> Any:
        if not isinstance(state_descriptor, MapStateDescriptor):
            raise TypeError(f"get_broadcast_state() takes a MapStateDescriptor, got {state_descriptor!r}")
        return self._backend.broadcast_state(self._operator, state_descriptor)

    def get_registered_state_names(self) -> set[str]:
        return self._backend.names(self._operator, SPLIT, UNION)

    def get_registered_broadcast_state_names(self) -> set[str]:
        return self._backend.names(self._operator, BROADCAST)


class _Initialization(FunctionInitializationContext):
    def __init__(self, store: OperatorStateStore, restored_id: int | None, keyed: KeyedStateStore | None) -> None:
        self._store = store
        self._restored_id = restored_id
        self._keyed = keyed

    def is_restored(self) -> bool:
        return self._restored_id is not None

    def get_restored_checkpoint_id(self) -> int | None:
        return self._restored_id

    def get_operator_state_store(self) -> OperatorStateStore:
        return self._store

    def get_keyed_state_store(self) -> KeyedStateStore:
        if self._keyed is None:
            raise RuntimeError("get_keyed_state_store(): only functions of rows on a keyed stream have keyed state")
        return self._keyed


class _Snapshot(FunctionSnapshotContext):
    def __init__(self, checkpoint_id: int) -> None:
        self._checkpoint_id = checkpoint_id

    def get_checkpoint_id(self) -> int:
        return self._checkpoint_id


class CheckpointedParts:
    """Calls the functions, the reader and the writer of a subtask that keep operator state.

    Args:
        backend: Holds the state.
        restored_id: The id of the checkpoint that the subtask was restored from, if it was.
    """

    def __init__(self, backend: OperatorStateBackend, restored_id: int | None) -> None:
        self._backend = backend
        self._restored_id = restored_id
        self._functions: list[tuple[Operator, CheckpointedFunction]] = []
        """They are closed at the end of the data."""
        self._connectors: list[tuple[Operator, CheckpointedFunction]] = []
        """Readers and writers, which are closed later: a writer prepares output at every checkpoint until then."""
        self._has_ended = False

    @property
    def backend(self) -> OperatorStateBackend:
        """Return the operator state of the subtask."""
        return self._backend

    def initialize(self, operator: Operator, part: Any, keyed: KeyedStateStore | None = None) -> None:
        """Give a part its state if it keeps any. `keyed`: of a function of rows. Raises `OperatorFailure`."""
        is_connector = isinstance(part, SourceReader | SinkWriter)
        for found in _checkpointed(part):
            store = BackendStateStore(self._backend, operator.uid)
            context = _Initialization(store, self._restored_id, keyed)
            _guarded(operator, partial(found.initialize_state, context))
            (self._connectors if is_connector else self._functions).append((operator, found))

    def end(self) -> None:
        """Bring the state of the functions up to date before they are closed, because no row comes any more."""
        self._update(self._functions, AT_END_OF_DATA)
        self._has_ended = True

    def snapshot(self, checkpoint_id: int) -> list[OperatorPart]:
        """Bring all state up to date and return it. Raises `OperatorFailure`."""
        if not self._has_ended:
            self._update(self._functions, checkpoint_id)
        self._update(self._connectors, checkpoint_id)
        return self._backend.parts()

    @staticmethod
    def _update(parts: list[tuple[Operator, CheckpointedFunction]], checkpoint_id: int) -> None:
        context = _Snapshot(checkpoint_id)
        for operator, part in parts:
            _guarded(operator, partial(part.snapshot_state, context))

    def revoke(self) -> None:
        """End the generation: whatever uses the state from now on raises."""
        self._backend.revoke()


def _checkpointed(part: Any) -> Iterable[CheckpointedFunction]:
    """Return the functions that keep operator state: the part itself, or what it was made of."""
    if isinstance(part, CheckpointedFunction):
        yield part
    elif isinstance(part, BroadcastSpec):
        yield from _checkpointed(part.process)
    elif isinstance(part, AsyncSpec):
        yield from _checkpointed(part.function)
    elif isinstance(part, AnyWindowSpec):
        for function in (part.reduce, part.aggregate, part.process):
            yield from _checkpointed(function)
    elif isinstance(part, Adapter):
        yield from _checkpointed(part.wrapped)


def _guarded(operator: Operator, call: Callable[[], None]) -> None:
    try:
        call()
    except USER_ERRORS as error:
        raise OperatorFailure(operator.name, error) from error
