"""Sums up figures as Flink's REST API does: over a history with quantiles, over subtasks with quartiles."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

_QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}
_QUARTILES = {"p25": 0.25, "median": 0.5, "p75": 0.75, "p95": 0.95}

TASK_STATES = (
    "CREATED", "SCHEDULED", "DEPLOYING", "INITIALIZING", "RUNNING", "FINISHED", "CANCELING", "CANCELED", "FAILED",
    "RECONCILING",
)  # fmt: skip


def vertex_id(number: int) -> str:
    """Return the id of a vertex: its number, in 32 hex digits."""
    return f"{number:032x}"


def summary(values: Iterable[float]) -> dict[str, float]:
    """Return minimum, maximum, average and quantiles (nearest rank); zeros of nothing."""
    ordered = sorted(values)
    if not ordered:
        return dict.fromkeys(("min", "max", "avg"), 0) | dict.fromkeys(_QUANTILES, 0.0)
    ranks = {name: float(_at(ordered, share)) for name, share in _QUANTILES.items()}
    return {"min": round(ordered[0]), "max": round(ordered[-1]), "avg": round(sum(ordered) / len(ordered)), **ranks}


def over_subtasks(values: Iterable[float]) -> dict[str, int]:
    """Return the sum, the average and the quartiles of a figure over the subtasks of a vertex."""
    ordered = sorted(values)
    if not ordered:
        return dict.fromkeys(("min", "max", "avg", "sum", *_QUARTILES), 0)
    ranks = {name: round(_at(ordered, share)) for name, share in _QUARTILES.items()}
    total = sum(ordered)
    return {
        "min": round(ordered[0]),
        "max": round(ordered[-1]),
        "avg": round(total / len(ordered)),
        "sum": round(total),
        **ranks,
    }


def counts_of_states(states: Iterable[str]) -> dict[str, int]:
    """Count tasks by their states, all of Flink's states named."""
    counts = dict.fromkeys(TASK_STATES, 0)
    for state in states:
        counts[state] = counts.get(state, 0) + 1
    return counts


def task_state(job_state: str) -> str:
    """Return the state of a job's tasks: Flink has fewer names for these."""
    return {"RESTARTING": "SCHEDULED", "CANCELLING": "CANCELING", "FAILING": "CANCELING"}.get(job_state, job_state)


def _at(ordered: Sequence[float], share: float) -> float:
    return ordered[math.ceil(share * len(ordered)) - 1]


Document = dict[str, Any]
