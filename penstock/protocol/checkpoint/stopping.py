"""Remembers the savepoint that a job is being stopped with, from the request to its end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from penstock.protocol.checkpoint.coordinator_effects import (
    CheckpointAborted,
    Effect,
    FailJob,
    PublishCheckpoint,
    SavepointRefused,
)
from penstock.protocol.checkpoint.pending_checkpoints import PendingCheckpoint
from penstock.protocol.checkpoint.savepoint import Savepoint
from penstock.protocol.values.elements import SnapshotKind
from penstock.protocol.values.reasons import FailureReason


class Stopping:
    """Holds one savepoint at most: a second request to stop is refused until the first has failed."""

    def __init__(self) -> None:
        self.savepoint: Savepoint | None = None
        self._began_ms = self._warns_ms = 0.0

    def begin(self, savepoint: Savepoint, now_ms: float, patience_ms: float) -> None:
        """Remember the savepoint, if it stops the job. `patience_ms`: how often to warn that the job is drained."""
        if savepoint.stops:
            self.savepoint = savepoint
            self._began_ms, self._warns_ms = now_ms, now_ms + patience_ms

    def next_warning_ms(self) -> float | None:
        """Return when to warn that the job is still being drained: nothing limits how long that takes."""
        return self._warns_ms if self.is_draining else None

    def take_warning(self, now_ms: float, patience_ms: float) -> float | None:
        """Return for how long the job has been drained, if it is time to warn of it."""
        if not self.is_draining or now_ms < self._warns_ms:
            return None
        self._warns_ms = now_ms + patience_ms
        return now_ms - self._began_ms

    @property
    def is_draining(self) -> bool:
        """Return whether the sources were ended for the savepoint: no other checkpoint may be triggered. Without this:
        another checkpoint stores that the sources have finished, the savepoint fails, and the job restarts from that
        checkpoint without the rest of its rows.
        """
        return self.savepoint is not None and self.savepoint.drains

    def on_final(self, published: Savepoint | None, pending: Iterable[PendingCheckpoint]) -> list[Effect]:
        """End the stop: the job's last checkpoint is canonical, which is `published` if it is a savepoint. One that
        waited for a final checkpoint, which was being published when it was asked for, is refused.
        """
        stop, self.savepoint = self.savepoint, None
        if stop is None or stop == published or any(p.savepoint == stop for p in pending):
            return []
        return [SavepointRefused(stop, FailureReason.JOB_ENDED)]

    def refused(self, savepoint: Savepoint, reason: FailureReason) -> SavepointRefused:
        """Return the answer to whoever asked for the savepoint, with which the job is not being stopped any more."""
        if savepoint == self.savepoint:
            self.savepoint = None
        return SavepointRefused(savepoint, reason)

    def on_failed(self, savepoint: Savepoint, detail: str, is_running: bool) -> list[Effect]:
        """Restart the job only if its sources were ended for the failed savepoint."""
        was_stop = savepoint == self.savepoint
        if was_stop:
            self.savepoint = None
        if was_stop and is_running and savepoint.drains:
            return [FailJob(f"the savepoint that the job was drained for has failed: {detail}", planned=True)]
        return []

    def on_generation_ended(
        self, pending: Iterable[PendingCheckpoint], ended: list[Effect], reason: FailureReason
    ) -> list[Effect]:
        """End the stop with the generation, unless its savepoint is being published. `ended`: what was aborted."""
        stop = self.savepoint
        if stop is None or any(p.savepoint == stop for p in pending):
            return []
        self.savepoint = None
        is_answered = any(isinstance(e, CheckpointAborted) and e.savepoint == stop for e in ended)
        return [] if is_answered else [SavepointRefused(stop, reason)]

    def not_final(self, effects: list[Effect]) -> list[Effect]:
        """Return the effects for a job that ends with its savepoint, not with a checkpoint that was under way."""
        if self.savepoint is None:
            return effects
        return [
            replace(e, is_final=False)
            if isinstance(e, PublishCheckpoint) and e.barrier.kind in (SnapshotKind.CHECKPOINT, SnapshotKind.RESCALE)
            else e
            for e in effects
        ]
