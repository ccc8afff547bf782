"""Lists what the checkpoint coordinator asks the JobMaster to do."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.protocol.checkpoint.savepoint import Savepoint
from penstock.protocol.values.elements import Barrier, Generation
from penstock.protocol.values.messages import SlotAck
from penstock.protocol.values.reasons import FailureReason


@dataclass(frozen=True)
class TriggerCheckpoint:
    """Snapshot the enumerators, then send the trigger to every slot."""

    barrier: Barrier
    savepoint: Savepoint | None = None


@dataclass(frozen=True)
class PublishCheckpoint:
    """Publish a checkpoint that every slot has acknowledged. `acks` in the order of slots. `duration_ms`: trigger to
    last acknowledgement. `savepoint`: write its metadata; only one that stops the job has an entry in the log.
    """

    barrier: Barrier
    generation: Generation
    acks: tuple[SlotAck, ...]
    duration_ms: float
    is_final: bool
    savepoint: Savepoint | None = None


@dataclass(frozen=True)
class CheckpointAborted:
    """Send the slots the end of the checkpoint, if the generation still runs."""

    checkpoint_id: int
    reason: FailureReason
    detail: str
    savepoint: Savepoint | None = None


@dataclass(frozen=True)
class SavepointRefused:
    """Tell who asked for a savepoint that it is not triggered."""

    savepoint: Savepoint
    reason: FailureReason


@dataclass(frozen=True)
class RescaleNotTaken:
    """Report that there is no checkpoint from which the job could continue at another parallelism."""

    reason: FailureReason
    detail: str = ""


@dataclass(frozen=True)
class DrainSources:
    """End all sources, so that everything in the job is processed; then the final checkpoint comes."""


@dataclass(frozen=True)
class StillDraining:
    """Warn that the sources were ended that long ago, and `ended` of `subtasks` have processed what they have."""

    waited_ms: float
    ended: int
    subtasks: int


@dataclass(frozen=True)
class DiscardSegments:
    """Delete these files: nothing names them, and nothing will. `directory`: of the savepoint that they are of."""

    paths: tuple[str, ...]
    directory: str | None = None


@dataclass(frozen=True)
class FailJob:
    """Fail the job over: too many checkpoints have failed. `planned`: it is no failure of the job, because the sources
    were ended for a savepoint that failed.
    """

    message: str
    planned: bool = False


@dataclass(frozen=True)
class StillPublishing:
    """Warn that the storage has not answered for the time of a whole checkpoint whether this one is in the log. Wait
    for it; no other one is published meanwhile.
    """

    checkpoint_id: int
    waited_ms: float


Effect = (
    TriggerCheckpoint
    | PublishCheckpoint
    | CheckpointAborted
    | SavepointRefused
    | RescaleNotTaken
    | DrainSources
    | StillDraining
    | DiscardSegments
    | FailJob
    | StillPublishing
)
