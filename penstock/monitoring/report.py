"""Defines the observable facts of a running job: immutable values that the JobMaster replaces, so that any thread may
read them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class VertexReport:
    name: str
    parallelism: int
    rows_in: int
    rows_out: int
    rows_in_per_s: float
    rows_out_per_s: float
    busy_share: float
    backpressured_share: float
    late_rows: int = 0
    """Rows that came after their windows had ended, and were dropped."""
    skipped_rows: int = 0
    """Rows that the source could not read, and skipped, as its format is set to do."""
    lag_rows: int | None = None
    """Rows that are not read yet; None if the source does not know."""
    connectors: tuple[tuple[str, dict[str, str]], ...] = ()
    """The sources and sinks of the chain: the name and the description of each."""
    metrics: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    """Figures of the state backend's own, by subtask and by Flink's names."""


@dataclass(frozen=True)
class CheckpointReport:
    """Describes one checkpoint. `duration_ms`: trigger to last acknowledgement (Flink's end-to-end duration).
    `publication_ms`: trigger to log entry. `sync_ms_max`: the longest time for which a subtask stood still to take its
    snapshot. `status`: "completed", "failed" or "in_progress".
    """

    checkpoint_id: int
    status: str
    trigger_wall_ms: int
    duration_ms: float | None
    publication_ms: float | None
    unaligned: bool
    state_bytes: int
    inflight_bytes: int
    written_bytes: int
    objects_written: int
    path: str | None
    failure: str | None = None
    is_savepoint: bool = False
    sync_ms_max: float = 0.0


@dataclass(frozen=True)
class RecoveryReport:
    """Describes one restart: what failed, and how long it took from the failure until every subtask ran again."""

    generation: int
    wall_ms: int
    cause: str
    running_after_ms: float | None
    restored_checkpoint: int | None


@dataclass(frozen=True)
class DrainingReport:
    """Describes draining after a restore at another parallelism: in-flight data is read in layers, one for each old
    channel, before anything younger. `duration_ms` None: it is not over.
    """

    layers: int
    layers_read: int
    duration_ms: float | None = None

    @property
    def is_over(self) -> bool:
        return self.duration_ms is not None

    def __str__(self) -> str:
        return f"draining {self.layers_read} of {self.layers} layers"


@dataclass(frozen=True)
class RescaleReport:
    """Describes a rescale that is over. `before`/`after`: the parallelism of each vertex. Durations are in ms: until
    the slots were there and its checkpoint was triggered; until that was published; until every subtask ran again.
    """

    ended_wall_ms: int
    reason: str
    before: tuple[int, ...]
    after: tuple[int, ...]
    waited_ms: float
    checkpoint_ms: float
    restart_ms: float


@dataclass(frozen=True)
class JobReport:
    """Describes a job. `state` is Flink's: CREATED, RUNNING, RESTARTING, FINISHED, CANCELLING, CANCELED, FAILING,
    FAILED.

    `checkpoints` holds the newest ones (`web.checkpoints.history`), oldest first; `completed`/`failed` count all.
    """

    job_id: str
    job_name: str
    state: str
    generation: int
    restarts: int
    vertices: tuple[VertexReport, ...]
    checkpoints: tuple[CheckpointReport, ...]
    completed: int
    failed: int
    recoveries: tuple[RecoveryReport, ...]
    slots_needed: int
    slots_registered: int
    slot_rss_bytes: tuple[int, ...] = ()
    slot_pids: tuple[int | None, ...] = ()
    """The process of each slot; None for a slot that is missing now."""
    spare_pids: tuple[int, ...] = ()
    """The spares, which can take a lost slot's place."""
    draining: DrainingReport | None = None
    """The drain of the newest generation; None where it had nothing to drain."""
    rescales: tuple[RescaleReport, ...] = ()
    has_run: bool = False
    """True once the job has been RUNNING, whatever it is now."""
