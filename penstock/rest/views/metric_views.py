"""Shows figures by the names that Flink's metrics have: of a job, of a vertex by subtask, and aggregated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from penstock.monitoring.report import CheckpointReport, JobReport, VertexReport
from penstock.monitoring.subtask_figures import SubtaskReport

_NO_WATERMARK = -(2**63)
_LOW, _HIGH = 0.1, 0.5
"""The shares of time from which Flink calls backpressure low, and high."""

AGGREGATIONS: dict[str, Callable[[list[float]], float]] = {
    "min": min,
    "max": max,
    "avg": lambda values: sum(values) / len(values),
    "sum": sum,
}


def backpressure_level(ratio: float) -> str:
    """Return Flink's word for a share of time under backpressure."""
    return "high" if ratio > _HIGH else "low" if ratio > _LOW else "ok"


def job_metrics(report: JobReport, started_wall_ms: int, now_wall_ms: int) -> dict[str, Any]:
    """Return the figures of a job by Flink's names."""
    completed = [c for c in report.checkpoints if c.status == "completed" and not c.is_savepoint]
    in_progress = sum(c.status == "in_progress" for c in report.checkpoints)
    restored = [r for r in report.recoveries if r.restored_checkpoint is not None]
    uptime_ms = now_wall_ms - started_wall_ms
    return {
        "uptime": uptime_ms,
        "runningTime": uptime_ms if report.state == "RUNNING" else 0,
        "restartingTime": _restarting_ms(report, now_wall_ms),
        "numRestarts": report.restarts,
        "numRescales": len(report.rescales),
        "totalNumberOfCheckpoints": report.completed + report.failed + in_progress,
        "numberOfInProgressCheckpoints": in_progress,
        "numberOfCompletedCheckpoints": report.completed,
        "numberOfFailedCheckpoints": report.failed,
        "lastCheckpointRestoreTimestamp": restored[-1].wall_ms if restored else -1,
        **_last_checkpoint(completed[-1] if completed else None),
    }


def _last_checkpoint(last: CheckpointReport | None) -> dict[str, Any]:
    if last is None:
        names = ("Duration", "Size", "FullSize", "PersistedData", "CompletedTimestamp")
        return {f"lastCheckpoint{name}": -1 for name in names} | {
            "lastCompletedCheckpointId": -1,
            "lastCheckpointExternalPath": "n/a",
        }
    duration_ms = round(last.duration_ms or 0)
    return {
        "lastCompletedCheckpointId": last.checkpoint_id,
        "lastCheckpointDuration": duration_ms,
        "lastCheckpointSize": last.written_bytes,
        "lastCheckpointFullSize": last.state_bytes + last.inflight_bytes,
        "lastCheckpointPersistedData": last.inflight_bytes,
        "lastCheckpointExternalPath": last.path or "n/a",
        "lastCheckpointCompletedTimestamp": last.trigger_wall_ms + round(last.publication_ms or duration_ms),
    }


def _restarting_ms(report: JobReport, now_wall_ms: int) -> int:
    if report.state != "RESTARTING" or not report.recoveries:
        return 0
    return now_wall_ms - report.recoveries[-1].wall_ms


def subtask_figures(subtask: SubtaskReport) -> dict[str, Any]:
    """Return the figures of a subtask by Flink's names."""
    busy, pressured = subtask.busy_share, subtask.backpressured_share
    figures: dict[str, Any] = {
        "numRecordsIn": subtask.rows_in,
        "numRecordsOut": subtask.rows_out,
        "numRecordsInPerSecond": round(subtask.rows_in_per_s, 3),
        "numRecordsOutPerSecond": round(subtask.rows_out_per_s, 3),
        "numBytesIn": subtask.bytes_in,
        "numBytesOut": subtask.bytes_out,
        "busyTimeMsPerSecond": round(1000 * busy),
        "idleTimeMsPerSecond": round(1000 * subtask.idle_share),
        "backPressuredTimeMsPerSecond": round(1000 * pressured),
        "isBackPressured": pressured > _HIGH,
        "accumulateBusyTimeMs": round(subtask.busy_ms),
        "accumulateBackPressuredTimeMs": round(subtask.backpressured_ms),
        "accumulateIdleTimeMs": round(max(0.0, subtask.since_ms - subtask.busy_ms - subtask.backpressured_ms)),
        "currentOutputWatermark": _NO_WATERMARK if subtask.watermark_ms is None else subtask.watermark_ms,
        "queuedBytes": subtask.queued_bytes,
        "longestStepMs": round(subtask.step_ms_max, 3),
    }
    if subtask.lag_rows is not None:
        figures["pendingRecords"] = subtask.lag_rows
    return figures


def vertex_pressure(vertex: VertexReport) -> dict[str, Any]:
    """Show the load of a vertex: the shares of its busiest subtask, and rates over all."""
    subtasks = vertex.subtasks.values()
    worst = max((s.backpressured_share for s in subtasks), default=0.0)
    marks = [s.watermark_ms for s in subtasks if s.watermark_ms is not None]
    return {
        "busy": max((s.busy_share for s in subtasks), default=0.0),
        "backpressured": worst,
        "level": backpressure_level(worst),
        "rows-in-per-second": vertex.rows_in_per_s,
        "rows-out-per-second": vertex.rows_out_per_s,
        "queued-bytes": sum(s.queued_bytes for s in subtasks),
        "lag-rows": vertex.lag_rows,
        "watermark": min(marks) if marks else None,
        "late-rows": vertex.late_rows,
    }


def figures_of(vertex: VertexReport) -> dict[int, dict[str, Any]]:
    """Return the figures of all subtasks of a vertex, those of its state backend and of user functions too."""
    found = {number: subtask_figures(subtask) for number, subtask in vertex.subtasks.items()}
    for number, metrics in vertex.metrics.items():
        found.setdefault(number, {}).update(metrics)
    return dict(sorted(found.items()))


def listed(figures: Mapping[str, Any], wanted: Sequence[str] | None) -> list[dict[str, str]]:
    """Show figures with their values. `wanted`: their names; None: show all names, without values."""
    if wanted is None:
        return [{"id": name} for name in sorted(figures)]
    return [{"id": name, "value": _text(figures[name])} for name in wanted if name in figures]


def vertex_metrics(vertex: VertexReport, wanted: Sequence[str] | None) -> list[dict[str, str]]:
    """Show figures of single subtasks, `<subtask>.<name>`."""
    sets = figures_of(vertex).items()
    return listed({f"{number}.{name}": value for number, figures in sets for name, value in figures.items()}, wanted)


def aggregated(
    sets: Iterable[Mapping[str, Any]], wanted: Sequence[str] | None, aggregations: Sequence[str]
) -> list[dict[str, Any]]:
    """Show figures over several subtasks, or several jobs. `wanted`: as for `listed`."""
    sets = list(sets)
    names = sorted({name for figures in sets for name, value in figures.items() if not isinstance(value, str)})
    if wanted is None:
        return [{"id": name} for name in names]
    shown: list[dict[str, Any]] = []
    for name in wanted:
        if name in names:
            values = [float(f[name]) for f in sets if name in f and not isinstance(f[name], str)]
            shown.append({"id": name} | {how: AGGREGATIONS[how](values) for how in aggregations})
    return shown


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
