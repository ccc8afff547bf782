"""Decides how many failed checkpoints a job tolerates (Flink's CheckpointFailureManager).

Counts *consecutive* checkpoints that failed for a reason that counts, each id once. A completed
checkpoint resets the count; what is reported late for an id at or below it does not count.
"""

from __future__ import annotations

from penstock.protocol.values.reasons import FailureReason


class CheckpointFailureManager:
    """Counts failures. `tolerable_failures_max`: how many in a row are tolerated; None: any number."""

    def __init__(self, tolerable_failures_max: int | None = 0) -> None:
        self._tolerable_failures_max = tolerable_failures_max
        self._newest_completed = -1
        self._failed: set[int] = set()

    @property
    def consecutive_failures(self) -> int:
        return len(self._failed)

    def on_completed(self, checkpoint_id: int) -> None:
        self._newest_completed = max(self._newest_completed, checkpoint_id)
        self._failed.clear()

    def on_failed(self, checkpoint_id: int, reason: FailureReason, detail: str = "") -> str | None:
        """Return the message of the failure of the whole job, or None if the job continues."""
        if not reason.counts or checkpoint_id <= self._newest_completed or self._tolerable_failures_max is None:
            return None
        self._failed.add(checkpoint_id)
        if len(self._failed) <= self._tolerable_failures_max:
            return None
        count = len(self._failed)
        self._failed.clear()
        return (
            f"Exceeded checkpoint tolerable failure threshold: {count} checkpoint(s) in a row failed, the latest, "
            f"checkpoint {checkpoint_id}, due to {reason}{': ' + detail if detail else ''}. "
            f"execution.checkpointing.tolerable-failed-checkpoints is {self._tolerable_failures_max}."
        )
