"""Makes the state of an operator of rows: real backends, filled by a function of the user's, and encoded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from penstock.common.configuration import Configuration
from penstock.common.program.failures import USER_ERRORS
from penstock.datastream.functions import FunctionInitializationContext, FunctionSnapshotContext, KeyedStateStore
from penstock.operators.checkpointed_parts import BackendStateStore
from penstock.protocol.values.key_encoding import UnsupportedKey
from penstock.protocol.values.metadata import OperatorPart, StateSchema
from penstock.savepoints.contexts import BootstrapContext, StateContext
from penstock.savepoints.savepoint_functions import BroadcastStateBootstrapFunction, StateBootstrapFunction
from penstock.savepoints.transformations import OperatorIdentifier, StateBootstrapTransformation, rows_of
from penstock.state.backend import EncodedState, KeyedStateBackend, StateError
from penstock.state.choice import row_backend
from penstock.state.operator_state import OperatorStateBackend


@dataclass
class BootstrappedState:
    """Holds the state that was made. `backends`: the backends with keyed state, by subtask; `parts`: operator state."""

    operator: OperatorIdentifier
    max_parallelism: int
    backends: list[KeyedStateBackend]
    parts: list[OperatorPart]

    def encoded(self, subtask: int) -> tuple[list[StateSchema], Iterator[EncodedState]]:
        """Return the declarations of a subtask's keyed state, and its runs."""
        snapshot = self.backends[subtask].snapshot(0, None)
        return snapshot.schemas, (run for run in snapshot.encode() if isinstance(run, EncodedState))

    def close(self) -> None:
        """Release the backends, and delete their files."""
        for backend in self.backends:
            backend.revoke()


def bootstrapped(
    operator: OperatorIdentifier,
    transformation: StateBootstrapTransformation,
    configuration: Configuration,
    parallelism: int,
    max_parallelism: int,
) -> BootstrappedState:
    """Run the function for each row. Raises `StateError`, which names the row, if it fails."""
    names = {operator.id: str(operator)}
    keyed = transformation.key_selector is not None
    backends = [row_backend(configuration, max_parallelism, names) for _ in range(parallelism if keyed else 0)]
    of_operator = OperatorStateBackend(names)
    made = BootstrappedState(operator, max_parallelism, backends, [])
    context = StateContext(operator.id, str(operator), configuration, max_parallelism, backends or None)
    try:
        _run(transformation, context, of_operator, operator)
    except BaseException:
        made.close()
        raise
    made.parts = of_operator.parts()
    return made


def _run(
    transformation: StateBootstrapTransformation,
    context: StateContext,
    of_operator: OperatorStateBackend,
    operator: OperatorIdentifier,
) -> None:
    function: Any = transformation.function
    store = BackendStateStore(of_operator, operator.id)
    if isinstance(function, StateBootstrapFunction):
        function.initialize_state(_Initialization(store))
    function.open(context)
    ctx: Any = BootstrapContext(context)
    if isinstance(function, BroadcastStateBootstrapFunction):
        ctx = _BroadcastContext(store)
    select = transformation.key_selector
    for number, row in enumerate(rows_of(transformation.rows)):
        try:
            if select is not None:
                context.set_key(select(row))
            function.process_element(row, ctx)
        except UnsupportedKey as error:
            raise StateError(f"operator '{operator}': row {number} ({row!r:.80}): {error}") from error
        except USER_ERRORS as error:
            told = f"{type(error).__name__}: {error}"
            raise StateError(f"operator '{operator}': row {number} ({row!r:.80}) made no state: {told}") from error
        for backend in (context.backends or ())[context.current : context.current + 1]:
            backend.slices.settle()
    if isinstance(function, StateBootstrapFunction):
        function.snapshot_state(_Snapshot())
    function.close()


class _Initialization(FunctionInitializationContext):
    """Implements the context of `initialize_state`: nothing is restored."""

    def __init__(self, store: BackendStateStore) -> None:
        self._store = store

    def is_restored(self) -> bool:
        return False

    def get_restored_checkpoint_id(self) -> None:
        return None

    def get_keyed_state_store(self) -> KeyedStateStore:
        raise RuntimeError("these rows have no key: a KeyedStateBootstrapFunction makes keyed state, after key_by()")

    def get_operator_state_store(self) -> BackendStateStore:
        return self._store


class _Snapshot(FunctionSnapshotContext):
    """Implements the context of `snapshot_state`."""

    def get_checkpoint_id(self) -> int:
        return 0


class _BroadcastContext:
    """Implements the context of functions that make broadcast state."""

    def __init__(self, store: BackendStateStore) -> None:
        self._store = store

    def get_broadcast_state(self, state_descriptor: Any) -> Any:
        return self._store.get_broadcast_state(state_descriptor)
