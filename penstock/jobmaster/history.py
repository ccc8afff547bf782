"""Records the outcomes of a job's checkpoints and restarts for its report."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from penstock.monitoring.report import CheckpointReport, RecoveryReport
from penstock.protocol.driver.driver_effects import PublishCheckpoint
from penstock.protocol.log.publication import NewCheckpoint
from penstock.protocol.values.elements import Generation
from penstock.protocol.values.reasons import FailureReason

METADATA_AND_LOG_ENTRY = 2

_RECOVERIES_MAX = 100


class CheckpointHistory:
    """Remembers the newest checkpoints for reports, and counts all."""

    def __init__(self, newest_max: int, directory: str | None) -> None:
        self._directory = directory
        self._newest_max = newest_max
        self._reports: dict[int, CheckpointReport] = {}
        self._triggered_ms: dict[int, float] = {}
        self.completed = 0
        self.failed = 0
        self.latest_path: str | None = None

    @property
    def reports(self) -> tuple[CheckpointReport, ...]:
        return tuple(self._reports.values())

    def path(self, checkpoint_id: int) -> str | None:
        return None if self._directory is None else f"{self._directory}/chk-{checkpoint_id}"

    def triggered(
        self, checkpoint_id: int, now_ms: float, wall_ms: int, unaligned: bool, is_savepoint: bool = False
    ) -> None:
        self._triggered_ms[checkpoint_id] = now_ms
        self._reports[checkpoint_id] = CheckpointReport(
            checkpoint_id,
            "in_progress",
            wall_ms,
            None,
            None,
            unaligned,
            0,
            0,
            0,
            0,
            None,
            is_savepoint=is_savepoint,
        )
        while len(self._reports) > self._newest_max:
            del self._reports[next(iter(self._reports))]

    def trigger_wall_ms(self, checkpoint_id: int) -> int:
        report = self._reports.get(checkpoint_id)
        return 0 if report is None else report.trigger_wall_ms

    def acknowledged(self, publish: PublishCheckpoint) -> None:
        checkpoint_id = publish.barrier.checkpoint_id
        if checkpoint_id not in self._reports:
            return
        subtasks = [s for ack in publish.acks for s in ack.subtasks]
        named = [segment for ack in publish.acks for segment in (ack.segment, *ack.earlier) if segment is not None]
        own = frozenset[str]().union(*(ack.own for ack in publish.acks))
        segments = [segment for segment in named if segment.path in own]
        self._reports[checkpoint_id] = replace(
            self._reports[checkpoint_id],
            duration_ms=publish.duration_ms,
            unaligned=any(s.unaligned for s in subtasks),
            state_bytes=sum(s.state_bytes for s in subtasks),
            inflight_bytes=sum(s.persisted_bytes for s in subtasks),
            written_bytes=sum(s.length_bytes for s in segments),
            objects_written=len(segments),
            sync_ms_max=max((s.sync_ms for s in subtasks), default=0.0),
        )

    def published(self, checkpoint: NewCheckpoint, now_ms: float) -> None:
        checkpoint_id = checkpoint.metadata.checkpoint_id
        triggered_ms = self._triggered_ms.pop(checkpoint_id, now_ms)
        if checkpoint.metadata.savepoint is not None:
            return
        self.completed += 1
        self.latest_path = self.path(checkpoint_id)
        if checkpoint_id in self._reports:
            report = self._reports[checkpoint_id]
            self._reports[checkpoint_id] = replace(
                report,
                status="completed",
                publication_ms=now_ms - triggered_ms,
                written_bytes=report.written_bytes + len(checkpoint.data),
                objects_written=report.objects_written + METADATA_AND_LOG_ENTRY,
                path=self.latest_path,
            )

    def saved(self, checkpoint_id: int, directory: str, metadata_bytes: int) -> None:
        """Record a savepoint whose metadata has been written."""
        report = self._reports.get(checkpoint_id)
        if report is not None:
            self._reports[checkpoint_id] = replace(
                report,
                status="completed",
                written_bytes=report.written_bytes + metadata_bytes,
                objects_written=report.objects_written + 1,
                path=directory,
            )

    def aborted(self, checkpoint_id: int, reason: FailureReason, detail: str) -> None:
        self.failed += 1
        self._triggered_ms.pop(checkpoint_id, None)
        if checkpoint_id in self._reports:
            failure = f"{reason}: {detail}" if detail else reason
            self._reports[checkpoint_id] = replace(self._reports[checkpoint_id], status="failed", failure=failure)

    def ended_without_entry(self, checkpoint_id: int) -> None:
        """Record a checkpoint that only collected what sinks commit at the job's end: nobody can restore it."""
        self._reports.pop(checkpoint_id, None)
        self._triggered_ms.pop(checkpoint_id, None)


class RecoveryHistory:
    """Remembers the newest recoveries for reports: when each began, why, and how long it took."""

    def __init__(self) -> None:
        self._recoveries: deque[RecoveryReport] = deque(maxlen=_RECOVERIES_MAX)
        self._failed_ms: float | None = None

    @property
    def reports(self) -> tuple[RecoveryReport, ...]:
        return tuple(self._recoveries)

    def failed(self, next_generation: int, now_ms: float, wall_ms: int, cause: str) -> None:
        """Record a failure. One while the job still recovers from the one before belongs to the same recovery's
        time.
        """
        if self._failed_ms is None:
            self._failed_ms = now_ms
        self._recoveries.append(RecoveryReport(next_generation, wall_ms, cause, None, None))

    def running(self, generation: Generation, now_ms: float, restored_checkpoint: int | None) -> None:
        if self._failed_ms is None:
            return
        self._recoveries[-1] = replace(
            self._recoveries[-1],
            generation=generation.counter,
            running_after_ms=now_ms - self._failed_ms,
            restored_checkpoint=restored_checkpoint,
        )
        self._failed_ms = None
