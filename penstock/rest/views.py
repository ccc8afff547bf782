"""Shows a job's report as Flink's REST API does. What a report does not know is left out."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from penstock.monitoring.report import CheckpointReport, JobReport, VertexReport

_QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}
_ENDED = ("FINISHED", "CANCELED", "FAILED")


def has_ended(report: JobReport) -> bool:
    return report.state in _ENDED


def job_status(report: JobReport) -> dict[str, Any]:
    return {"id": report.job_id, "status": report.state}


def job_overview(report: JobReport, started_wall_ms: int, now_wall_ms: int) -> dict[str, Any]:
    """Show a job in a list of jobs."""
    total = sum(vertex.parallelism for vertex in report.vertices)
    return {
        "jid": report.job_id,
        "name": report.job_name,
        "state": report.state,
        "start-time": started_wall_ms,
        "end-time": -1,
        "duration": now_wall_ms - started_wall_ms,
        "tasks": {"total": total, report.state.lower(): total},
    }


def job_details(report: JobReport, started_wall_ms: int, now_wall_ms: int) -> dict[str, Any]:
    """Show a job with its vertices."""
    vertices = [_vertex(number, vertex, report.state) for number, vertex in enumerate(report.vertices)]
    return {
        "jid": report.job_id,
        "name": report.job_name,
        "isStoppable": False,
        "state": report.state,
        "job-type": "STREAMING",
        "start-time": started_wall_ms,
        "end-time": -1,
        "duration": now_wall_ms - started_wall_ms,
        "now": now_wall_ms,
        "vertices": vertices,
        "status-counts": dict(Counter(vertex["status"] for vertex in vertices)),
    }


def checkpoint_statistics(report: JobReport) -> dict[str, Any]:
    """Show the job's newest checkpoints, newest first, with counts and a summary."""
    newest_first = report.checkpoints[::-1]
    shown = [checkpoint_details(checkpoint, report) for checkpoint in newest_first]
    completed = [c for c in newest_first if c.status == "completed"]
    in_progress = sum(c.status == "in_progress" for c in newest_first)

    def newest(status: str, is_savepoint: bool = False) -> dict[str, Any] | None:
        found = (s for s in shown if s["status"] == status and s["is_savepoint"] is is_savepoint)
        return next(found, None)

    return {
        "counts": {
            "restored": sum(recovery.restored_checkpoint is not None for recovery in report.recoveries),
            "total": report.completed + report.failed + in_progress,
            "in_progress": in_progress,
            "completed": report.completed,
            "failed": report.failed,
        },
        "summary": {
            "checkpointed_size": _summary([c.written_bytes for c in completed]),
            "state_size": _summary([c.state_bytes for c in completed]),
            "end_to_end_duration": _summary([round(c.duration_ms) for c in completed if c.duration_ms is not None]),
            "alignment_buffered": _summary([0 for _ in completed]),
            "persisted_data": _summary([c.inflight_bytes for c in completed]),
        },
        "latest": {
            "completed": newest("COMPLETED"),
            "savepoint": newest("COMPLETED", is_savepoint=True),
            "failed": newest("FAILED"),
            "restored": None,
        },
        "history": shown,
    }


def checkpoint_details(checkpoint: CheckpointReport, report: JobReport) -> dict[str, Any]:
    """Show one checkpoint. `num_acknowledged_subtasks` is left out while it is not known."""
    subtasks = sum(vertex.parallelism for vertex in report.vertices)
    duration_ms = None if checkpoint.duration_ms is None else round(checkpoint.duration_ms)
    kind = "UNALIGNED_CHECKPOINT" if checkpoint.unaligned else "CHECKPOINT"
    details = {
        "className": checkpoint.status,
        "id": checkpoint.checkpoint_id,
        "status": checkpoint.status.upper(),
        "is_savepoint": checkpoint.is_savepoint,
        "savepointFormat": "CANONICAL" if checkpoint.is_savepoint else None,
        "trigger_timestamp": checkpoint.trigger_wall_ms,
        "latest_ack_timestamp": -1 if duration_ms is None else checkpoint.trigger_wall_ms + duration_ms,
        "checkpointed_size": checkpoint.written_bytes,
        "state_size": checkpoint.state_bytes,
        "end_to_end_duration": -1 if duration_ms is None else duration_ms,
        "alignment_buffered": 0,
        "persisted_data": checkpoint.inflight_bytes,
        "num_subtasks": subtasks,
        "checkpoint_type": "SAVEPOINT" if checkpoint.is_savepoint else kind,
        "unaligned_checkpoint": checkpoint.unaligned,
        "tasks": {},
    }
    if duration_ms is not None:
        details["num_acknowledged_subtasks"] = subtasks
    if checkpoint.status == "completed":
        details["external_path"] = checkpoint.path
    if checkpoint.failure is not None:
        details["failure_message"] = checkpoint.failure
    return details


def _vertex(number: int, vertex: VertexReport, state: str) -> dict[str, Any]:
    return {
        "id": f"{number:032x}",
        "name": vertex.name,
        "parallelism": vertex.parallelism,
        "status": state,
        "metrics": {"read-records": vertex.rows_in, "write-records": vertex.rows_out},
        "connectors": [{"name": name, **facts} for name, facts in vertex.connectors],
    }


def subtask_metrics(vertex: VertexReport, wanted: Sequence[str] | None) -> list[dict[str, str]]:
    """Show figures of single subtasks, `<subtask>.<name>`. `wanted`: the figures to show with their values; None: show
    all names."""
    found = {
        f"{subtask}.{name}": value
        for subtask, metrics in sorted(vertex.metrics.items())
        for name, value in sorted(metrics.items())
    }
    if wanted is None:
        return [{"id": id} for id in found]
    return [{"id": id, "value": str(found[id])} for id in wanted if id in found]


def aggregated_metrics(
    vertex: VertexReport, wanted: Sequence[str] | None, aggregations: Sequence[str]
) -> list[dict[str, Any]]:
    """Show figures over all subtasks of a vertex. `wanted`: the figures to show with their values; None: show all
    names."""
    names = sorted({name for metrics in vertex.metrics.values() for name in metrics})
    if wanted is None:
        return [{"id": name} for name in names]
    return [
        {"id": name} | {how: AGGREGATIONS[how](_values(vertex, name)) for how in aggregations}
        for name in wanted
        if name in names
    ]


def _values(vertex: VertexReport, name: str) -> list[int]:
    return [metrics[name] for metrics in vertex.metrics.values() if name in metrics]


AGGREGATIONS: dict[str, Callable[[list[int]], float]] = {
    "min": min,
    "max": max,
    "avg": lambda values: sum(values) / len(values),
    "sum": sum,
}


def _summary(values: Sequence[int]) -> dict[str, float]:
    if not values:
        return dict.fromkeys(("min", "max", "avg", *_QUANTILES), 0)
    ordered = sorted(values)
    ranks = {name: ordered[math.ceil(share * len(ordered)) - 1] for name, share in _QUANTILES.items()}
    return {"min": ordered[0], "max": ordered[-1], "avg": sum(ordered) / len(ordered), **ranks}


def rescale_history(report: JobReport) -> list[dict[str, Any]]:
    """Return the newest rescales, newest first."""
    names = [vertex.name for vertex in report.vertices]
    return [
        {
            "trigger": rescale.reason,
            "end-timestamp": rescale.ended_wall_ms,
            "vertices": [
                {"name": name, "previous-parallelism": before, "acquired-parallelism": after}
                for name, before, after in zip(names, rescale.before, rescale.after)
            ],
            "waited-ms": round(rescale.waited_ms),
            "checkpoint-ms": round(rescale.checkpoint_ms),
            "restart-ms": round(rescale.restart_ms),
        }
        for rescale in reversed(report.rescales)
    ]
