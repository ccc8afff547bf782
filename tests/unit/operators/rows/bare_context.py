"""Provides the runtime context of operators that run without a job."""

from __future__ import annotations

from penstock.graph.deployment import DeploymentPlan
from penstock.graph.job_graph import Operator, Vertex
from penstock.operators.event_time.progress import EventTime
from penstock.operators.rows.element import CurrentElement
from penstock.operators.rows.subtask_runtime_context import SubtaskRuntimeContext


def bare_context(*operators: Operator) -> SubtaskRuntimeContext:
    vertex = Vertex(0, "chain", 1, 128, operators)
    plan = DeploymentPlan("job", None, None, "inc", None, False)  # type: ignore[arg-type]
    return SubtaskRuntimeContext(vertex, 0, plan, None, 0, EventTime(), CurrentElement(), lambda: 0)
