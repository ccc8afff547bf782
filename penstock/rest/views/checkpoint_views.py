"""Shows the checkpoints of a job: counts, history, one checkpoint by vertex and by subtask, settings."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Raw
from msgspec.json import encode

from penstock.monitoring.report import CheckpointReport, JobReport
from penstock.monitoring.subtask_figures import SubtaskCheckpoint
from penstock.rest.views.figures import Document, summary, vertex_id


class EncodedCheckpoints:
    """Shows checkpoints in a list, and keeps the JSON of those that have ended. A long history is sent many times."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[CheckpointReport, Raw]] = {}

    def shown(self, report: JobReport) -> list[Raw]:
        """Return the report's checkpoints, newest first."""
        known, self._kept = self._kept, {}
        shown = []
        for checkpoint in reversed(report.checkpoints):
            before = known.get(checkpoint.checkpoint_id)
            if before is None or before[0] is not checkpoint:
                before = checkpoint, Raw(encode(checkpoint_overview(checkpoint, report)))
            self._kept[checkpoint.checkpoint_id] = before
            shown.append(before[1])
        return shown


def checkpoint_statistics(report: JobReport, restored: Document | None, encoded: EncodedCheckpoints) -> Document:
    """Show the job's newest checkpoints, newest first, with counts and a summary. `restored`: the last one used."""
    newest_first = report.checkpoints[::-1]
    completed = [c for c in newest_first if c.status == "completed"]
    in_progress = sum(c.status == "in_progress" for c in newest_first)

    def newest(status: str, is_savepoint: bool | None) -> Document | None:
        found = (c for c in newest_first if c.status == status and is_savepoint in (None, c.is_savepoint))
        first = next(found, None)
        return None if first is None else checkpoint_overview(first, report)

    return {
        "counts": {
            "restored": sum(recovery.restored_checkpoint is not None for recovery in report.recoveries),
            "total": report.completed + report.failed + in_progress,
            "in_progress": in_progress,
            "completed": report.completed,
            "failed": report.failed,
        },
        "summary": {
            "checkpointed_size": summary(c.written_bytes for c in completed),
            "state_size": summary(c.state_bytes for c in completed),
            "end_to_end_duration": summary(c.duration_ms for c in completed if c.duration_ms is not None),
            "alignment_buffered": summary(0 for _ in completed),
            "persisted_data": summary(c.inflight_bytes for c in completed),
        },
        "latest": {
            "completed": newest("completed", is_savepoint=False),
            "savepoint": newest("completed", is_savepoint=True),
            "failed": newest("failed", is_savepoint=None),
            "restored": restored,
        },
        "history": encoded.shown(report),
    }


def checkpoint_overview(checkpoint: CheckpointReport, report: JobReport) -> Document:
    """Show one checkpoint in a list."""
    subtasks = checkpoint.subtasks_expected or sum(vertex.parallelism for vertex in report.vertices)
    duration_ms = None if checkpoint.duration_ms is None else round(checkpoint.duration_ms)
    if checkpoint.is_savepoint:
        kind = "SAVEPOINT"
    else:
        kind = "UNALIGNED_CHECKPOINT" if checkpoint.unaligned else "CHECKPOINT"
    shown = {
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
        "num_acknowledged_subtasks": checkpoint.subtasks_acknowledged if duration_ms is None else subtasks,
        "checkpoint_type": kind,
        "unaligned_checkpoint": checkpoint.unaligned,
        "tasks": {},
    }
    if checkpoint.publication_ms is not None:
        shown["publication_duration"] = round(checkpoint.publication_ms)
    if checkpoint.status == "completed":
        shown |= {"external_path": checkpoint.path, "discarded": False}
    if checkpoint.failure is not None:
        shown["failure_message"] = checkpoint.failure
    return shown


def checkpoint_details(checkpoint: CheckpointReport, report: JobReport) -> Document:
    """Show one checkpoint with a line per vertex."""
    by_vertex = parts_by_vertex(checkpoint)
    tasks = {
        vertex_id(number): _task(checkpoint, vertex.parallelism, by_vertex.get(number, []))
        for number, vertex in enumerate(report.vertices)
    }
    return checkpoint_overview(checkpoint, report) | {"tasks": tasks}


def checkpoint_of_vertex(checkpoint: CheckpointReport, number: int, report: JobReport) -> Document:
    """Show one checkpoint at each subtask of a vertex."""
    parts, parallelism = parts_by_vertex(checkpoint).get(number, []), report.vertices[number].parallelism
    known = {part.subtask: part for part in parts}
    subtasks = [
        _subtask(checkpoint, known[subtask]) if subtask in known else _pending(checkpoint, subtask)
        for subtask in range(max(parallelism, *known, 0) if known else parallelism)
    ]
    return _task(checkpoint, parallelism, parts) | {
        "summary": {
            "checkpointed_size": summary(part.written_bytes for part in parts),
            "state_size": summary(part.state_bytes for part in parts),
            "end_to_end_duration": summary(part.acknowledged_ms for part in parts),
            "checkpoint_duration": {
                "sync": summary(part.sync_ms for part in parts),
                "async": summary(part.async_ms for part in parts),
            },
            "alignment": {
                "buffered": summary(0 for _ in parts),
                "persisted": summary(part.persisted_bytes for part in parts),
                "duration": summary(part.alignment_ms for part in parts),
            },
            "start_delay": summary(part.start_delay_ms for part in parts),
        },
        "subtasks": subtasks,
    }


def parts_by_vertex(checkpoint: CheckpointReport) -> dict[int, list[SubtaskCheckpoint]]:
    by_vertex: dict[int, list[SubtaskCheckpoint]] = {}
    for part in checkpoint.parts:
        by_vertex.setdefault(part.vertex, []).append(part)
    return by_vertex


def _task(checkpoint: CheckpointReport, parallelism: int, parts: Sequence[SubtaskCheckpoint]) -> Document:
    last_ms = max((part.acknowledged_ms for part in parts), default=None)
    is_whole = len(parts) >= parallelism
    status = "COMPLETED" if is_whole else ("FAILED" if checkpoint.status == "failed" else "IN_PROGRESS")
    return {
        "id": checkpoint.checkpoint_id,
        "status": status,
        "latest_ack_timestamp": -1 if last_ms is None else checkpoint.trigger_wall_ms + round(last_ms),
        "checkpointed_size": sum(part.written_bytes for part in parts),
        "state_size": sum(part.state_bytes for part in parts),
        "end_to_end_duration": -1 if last_ms is None else round(last_ms),
        "alignment_buffered": 0,
        "persisted_data": sum(part.persisted_bytes for part in parts),
        "num_subtasks": parallelism,
        "num_acknowledged_subtasks": len(parts),
    }


def _subtask(checkpoint: CheckpointReport, part: SubtaskCheckpoint) -> Document:
    return {
        "className": "completed",
        "index": part.subtask,
        "status": "completed",
        "ack_timestamp": checkpoint.trigger_wall_ms + round(part.acknowledged_ms),
        "end_to_end_duration": round(part.acknowledged_ms),
        "checkpointed_size": part.written_bytes,
        "state_size": part.state_bytes,
        "checkpoint": {"sync": round(part.sync_ms), "async": round(part.async_ms)},
        "alignment": {"buffered": 0, "persisted": part.persisted_bytes, "duration": round(part.alignment_ms)},
        "start_delay": round(part.start_delay_ms),
        "unaligned_checkpoint": part.unaligned,
        "aborted": checkpoint.status == "failed",
    }


def _pending(checkpoint: CheckpointReport, subtask: int) -> Document:
    return {"className": "pending", "index": subtask, "status": "pending_or_failed"}


def restored_checkpoint(report: JobReport) -> Document | None:
    """Show the checkpoint from which the job has restarted last; None: from none."""
    for recovery in reversed(report.recoveries):
        number = recovery.restored_checkpoint
        if number is not None:
            known = next((c for c in report.checkpoints if c.checkpoint_id == number), None)
            return {
                "id": number,
                "restore_timestamp": recovery.wall_ms + round(recovery.running_after_ms or 0),
                "is_savepoint": known is not None and known.is_savepoint,
                "external_path": "" if known is None else known.path or "",
            }
    return None
