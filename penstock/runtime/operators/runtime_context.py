"""What a rich function may ask of the runtime."""

from __future__ import annotations

from typing import Any

from penstock.common.options import PipelineOptions
from penstock.common.typeinfo import TypeInformation
from penstock.datastream.functions import KeyedProcessFunction, ProcessFunction, RuntimeContext, TimerService
from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from penstock.graph.job_graph import Operator, Vertex
from penstock.runtime.deployment import DeploymentPlan
from penstock.state.backend import KeyedStateBackend


class SubtaskRuntimeContext(RuntimeContext):
    """One per operator of a subtask. Keyed state belongs to the operator, and only a keyed head has any."""

    def __init__(
        self, vertex: Vertex, subtask: int, plan: DeploymentPlan, backend: KeyedStateBackend | None, attempt: int,
        operator: Operator | None = None,
    ) -> None:  # fmt: skip
        self._vertex = vertex
        self._subtask = subtask
        self._plan = plan
        self._backend = backend
        self._attempt = attempt
        self._operator = operator or vertex.operators[0]

    def for_operator(self, operator: Operator) -> SubtaskRuntimeContext:
        return SubtaskRuntimeContext(
            self._vertex, self._subtask, self._plan, self._backend, self._attempt, operator
        )  # fmt: skip

    def get_task_name(self) -> str:
        return self._vertex.name

    def get_number_of_parallel_subtasks(self) -> int:
        return self._vertex.parallelism

    def get_max_number_of_parallel_subtasks(self) -> int:
        return self._vertex.max_parallelism

    def get_index_of_this_subtask(self) -> int:
        return self._subtask

    def get_attempt_number(self) -> int:
        return self._attempt

    def get_task_name_with_subtasks(self) -> str:
        return f"{self._vertex.name} ({self._subtask + 1}/{self._vertex.parallelism})"

    def get_job_parameter(self, key: str, default_value: str) -> str:
        parameters = self._plan.configuration.get(PipelineOptions.GLOBAL_JOB_PARAMETERS)
        return dict(parameters or {}).get(key, default_value)

    def current_key(self) -> Any:
        return self._keyed_backend("the current key").current_key()

    def get_state(self, state_descriptor: ValueStateDescriptor) -> Any:
        return self._state(state_descriptor)

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> Any:
        return self._state(state_descriptor)

    def get_map_state(self, state_descriptor: MapStateDescriptor) -> Any:
        return self._state(state_descriptor)

    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> Any:
        return self._state(state_descriptor)

    def get_aggregating_state(self, state_descriptor: AggregatingStateDescriptor) -> Any:
        return self._state(state_descriptor)

    def internal_value_state(self, name: str, type_info: TypeInformation | None) -> Any:
        """State of our own operators, under a name that no user's state has."""
        return self._state(ValueStateDescriptor(name, type_info))

    def _state(self, descriptor: StateDescriptor) -> Any:
        what = f"state '{descriptor.get_name()}'"
        return self._keyed_backend(what).state(self._operator.uid, descriptor)

    def _keyed_backend(self, what: str) -> KeyedStateBackend:
        if self._backend is None or self._operator is not self._vertex.operators[0]:
            raise RuntimeError(
                f"operator '{self._operator.name}' asks for {what}, but its stream is not keyed: "
                "put key_by(...) right before it"
            )
        return self._backend


class ElementContext(ProcessFunction.Context, KeyedProcessFunction.Context):
    """Of the row being processed."""

    def __init__(self, operator: str, context: SubtaskRuntimeContext) -> None:
        self._operator = operator
        self._context = context

    def get_current_key(self) -> Any:
        return self._context.current_key()

    def timestamp(self) -> int | None:
        return None

    def timer_service(self) -> TimerService:
        raise RuntimeError(f"operator '{self._operator}': timers come with event time, in a later release")
