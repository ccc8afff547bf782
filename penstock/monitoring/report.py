"""Defines the observable facts of a running job: immutable values that the JobMaster replaces, so that any thread may
read them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.monitoring.subtask_figures import SubtaskCheckpoint, SubtaskReport, packed_count, unpacked


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
    metrics: Mapping[int, Mapping[str, int | float | str]] = field(default_factory=dict)
    """Figures of the state backend's own, by Flink's names, and those of user functions, by subtask."""
    subtasks: Mapping[int, SubtaskReport] = field(default_factory=dict)
    """Those that have reported in this generation."""
    max_parallelism: int = -1
    operators: tuple[tuple[str, str], ...] = ()
    """The uid and the name of each operator of the chain."""
    accumulators: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    """The counters of user functions, by subtask and by name."""


@dataclass(frozen=True)
class EdgeReport:
    """Describes a connection of two vertices. `exchange`: forward, hash, rebalance, broadcast or global."""

    source: int
    target: int
    exchange: str
    side_output: str | None = None


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
    acknowledged: bytes = b""
    """The parts of the subtasks that have acknowledged it, packed."""
    subtasks_expected: int = 0

    @property
    def parts(self) -> tuple[SubtaskCheckpoint, ...]:
        """Return the parts of the subtasks that have acknowledged the checkpoint."""
        return tuple(unpacked(self.acknowledged))

    @property
    def subtasks_acknowledged(self) -> int:
        return packed_count(self.acknowledged)


@dataclass(frozen=True)
class RecoveryReport:
    """Describes one restart: what failed, and how long it took from the failure until every subtask ran again."""

    generation: int
    wall_ms: int
    cause: str
    running_after_ms: float | None
    restored_checkpoint: int | None
    traceback: str = ""
    """That of the user's function; empty if none has failed."""
    is_rescale: bool = False
    """True if nothing has failed: the job continues at another parallelism."""


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
    edges: tuple[EdgeReport, ...] = ()

    @property
    def accumulators(self) -> dict[str, int]:
        """Return the counters of user functions by name, added up over all subtasks of this generation."""
        found: dict[str, int] = {}
        for vertex in self.vertices:
            for counts in vertex.accumulators.values():
                for name, count in counts.items():
                    found[name] = found.get(name, 0) + count
        return found
