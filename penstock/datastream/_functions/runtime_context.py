"""Defines the context for `open()` of a function: keyed state, and facts about the subtask."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from penstock.common.missing_names import AdvisesOnMissing
from penstock.datastream.state import (
    AggregatingState,
    AggregatingStateDescriptor,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    ReducingState,
    ReducingStateDescriptor,
    ValueState,
    ValueStateDescriptor,
)


class KeyedStateStore(ABC):
    """Gives access to keyed state by descriptor. The same descriptor gives the same handle.

    A handle reads and writes the state of the current key. Only functions on keyed streams have keyed state.
    """

    @abstractmethod
    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState[Any]:
        """Return the handle of a single value per key.

        Args:
            state_descriptor: Names the state.

        Returns:
            The handle.
        """

    @abstractmethod
    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """Return the handle of a list per key.

        Args:
            state_descriptor: Names the state.

        Returns:
            The handle.
        """

    @abstractmethod
    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState[Any, Any]:
        """Return the handle of a map per key.

        Args:
            state_descriptor: Names the state.

        Returns:
            The handle.
        """

    @abstractmethod
    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> ReducingState[Any]:
        """Return the handle of a value per key that added values are reduced to.

        Args:
            state_descriptor: Names the state and the reduce function.

        Returns:
            The handle.
        """

    @abstractmethod
    def get_aggregating_state(self, state_descriptor: AggregatingStateDescriptor) -> AggregatingState[Any, Any]:
        """Return the handle of an accumulator per key that values are added to.

        Args:
            state_descriptor: Names the state and the aggregate function.

        Returns:
            The handle.
        """


class RuntimeContext(AdvisesOnMissing, KeyedStateStore):
    """Describes the subtask that a function runs in, and gives access to its keyed state. `open()` gets it."""

    @abstractmethod
    def get_task_name(self) -> str:
        """Return the name of the vertex: those of its chained operators."""

    @abstractmethod
    def get_number_of_parallel_subtasks(self) -> int:
        """Return the parallelism of the operator."""

    @abstractmethod
    def get_max_number_of_parallel_subtasks(self) -> int:
        """Return the max parallelism of the operator, the number of key groups."""

    @abstractmethod
    def get_index_of_this_subtask(self) -> int:
        """Return the index of this subtask, from 0."""

    @abstractmethod
    def get_attempt_number(self) -> int:
        """Return the number of the job's restarts, from 0."""

    @abstractmethod
    def get_task_name_with_subtasks(self) -> str:
        """Return the name, the number of this subtask from 1, and the parallelism: "Map (3/6)"."""

    @abstractmethod
    def get_job_parameter(self, key: str, default_value: str) -> str:
        """Return a parameter set by `ExecutionConfig.set_global_job_parameters`.

        Args:
            key: Its name.
            default_value: Returned if there is no such parameter.

        Returns:
            The value, a string.
        """
