"""Holds the settings of the checkpoint coordinator, and what its barriers follow from them."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.protocol.checkpoint.savepoint import Alignment, Savepoint
from penstock.protocol.values.elements import Barrier, SnapshotKind


@dataclass(frozen=True)
class CoordinatorSettings:
    """Holds settings. `interval_ms` None: no checkpoints but the final one. `alignment_timeout_ms` as in `Barrier`."""

    interval_ms: float | None
    min_pause_ms: float = 0.0
    timeout_ms: float = 600_000.0
    concurrent_max: int = 1
    alignment_timeout_ms: int | None = None
    tolerable_failures_max: int | None = 0
    backlog_interval_ms: float | None = None
    """The interval while a source works off a backlog; None: the same, 0: no periodic checkpoints meanwhile."""

    def barrier(self, checkpoint_id: int, savepoint: Savepoint | None) -> Barrier:
        """Return the barrier of a checkpoint, or of a savepoint."""
        if savepoint is None:
            if self.interval_ms is None:
                return Barrier(checkpoint_id, None, kind=SnapshotKind.COMMITS_ONLY)
            return Barrier(checkpoint_id, self.alignment_timeout_ms)
        timeout_ms = self.alignment_timeout_ms
        if savepoint.alignment is not Alignment.CONFIGURED:
            timeout_ms = None if savepoint.alignment is Alignment.ALIGNED else 0
        kind = SnapshotKind.STOP if savepoint.stops else SnapshotKind.SAVEPOINT
        return Barrier(checkpoint_id, timeout_ms, kind=kind)

    def rescale_barrier(self, checkpoint_id: int, aligned: bool) -> Barrier:
        """Return the barrier of the checkpoint from which the job continues at another parallelism."""
        return Barrier(checkpoint_id, None if aligned else 0, kind=SnapshotKind.RESCALE)
