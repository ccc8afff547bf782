"""Defines operator state: state of a subtask that belongs to no key."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from penstock.datastream._functions.runtime_context import KeyedStateStore
from penstock.datastream.state import BroadcastState, ListState, ListStateDescriptor, MapStateDescriptor


class OperatorStateStore(ABC):
    """Gives access to the operator state of one operator in one subtask, by descriptor.

    It is stored whole in the metadata of each checkpoint, so it is meant for small state, such as positions, buffers
    and rules. The same descriptor gives the same state. A state keeps the way in which it is distributed for ever.
    """

    @abstractmethod
    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """Return a list whose elements are dealt out, round robin, if the job is restored at another parallelism.

        Args:
            state_descriptor: Names the state.

        Returns:
            The list of this subtask.

        Raises:
            StateError: The state was declared differently before.
        """

    @abstractmethod
    def get_union_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """Return a list that has, after a restore, the elements of all subtasks, in the order of the subtasks.

        Each checkpoint stores the lists of all subtasks. A function that keeps what the others have stored stores it
        again, so the list grows with every restore; `snapshot_state` should replace it by this subtask's own elements.

        Args:
            state_descriptor: Names the state.

        Returns:
            The list of this subtask.

        Raises:
            StateError: The state was declared differently before.
        """

    @abstractmethod
    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        """Return a map that is the same in all subtasks. The function must keep it so.

        At another parallelism every subtask gets that of subtask 0.

        Args:
            state_descriptor: Names the state.

        Returns:
            The map of this subtask.

        Raises:
            StateError: The state was declared differently before.
        """

    @abstractmethod
    def get_registered_state_names(self) -> set[str]:
        """Return the names of the lists that have been asked for."""

    @abstractmethod
    def get_registered_broadcast_state_names(self) -> set[str]:
        """Return the names of the broadcast states that have been asked for."""


class FunctionInitializationContext(ABC):
    """Gives access to the operator state of a function, before its `open()`."""

    @abstractmethod
    def is_restored(self) -> bool:
        """Return True if the job was restored from a checkpoint."""

    @abstractmethod
    def get_restored_checkpoint_id(self) -> int | None:
        """Return the id of the checkpoint that the job was restored from; None at the start of a new job."""

    @abstractmethod
    def get_operator_state_store(self) -> OperatorStateStore:
        """Return the operator state."""

    @abstractmethod
    def get_keyed_state_store(self) -> KeyedStateStore:
        """Return the keyed state. Only functions on keyed streams have any; a handle works where there is a key."""


class FunctionSnapshotContext(ABC):
    """Describes the checkpoint that a snapshot is taken for."""

    @abstractmethod
    def get_checkpoint_id(self) -> int:
        """Return the id of the checkpoint.

        -1 in the call at the end of the data, whose state all later checkpoints have.
        """


class CheckpointedFunction(ABC):
    """Gives a function state that belongs to no key: lists, union lists and maps of its subtask.

    Any function of rows can have it as a second base class, and so can the `SourceReader` and the `SinkWriter` of a
    connector.

    Example:
        class Buffer(FlatMapFunction, CheckpointedFunction):
            def initialize_state(self, context):
                store = context.get_operator_state_store()
                self.state = store.get_list_state(ListStateDescriptor("rows", Types.LONG()))
                self.rows = list(self.state.get())

            def snapshot_state(self, context):
                self.state.update(self.rows)

            def flat_map(self, value):
                self.rows.append(value)
                if len(self.rows) == 100:
                    yield sum(self.rows)
                    self.rows.clear()
    """

    @abstractmethod
    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Ask for state, and take what it holds after a restore. Called once, before `open()`.

        Args:
            context: Gives access to the state.
        """

    @abstractmethod
    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """Bring the state up to date, because a checkpoint is about to store it.

        Called between two rows, and at the end of the data before `close()`. It delays the stream for as long as it
        takes.

        Args:
            context: Describes the checkpoint.
        """
