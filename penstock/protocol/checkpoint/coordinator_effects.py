"""Lists what the checkpoint coordinator asks the JobMaster to do."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.protocol.values.elements import Barrier, Generation
from penstock.protocol.values.messages import SlotAck
from penstock.protocol.values.reasons import FailureReason


@dataclass(frozen=True)
class TriggerCheckpoint:
    """Snapshot the enumerators, then send the trigger to every slot."""

    barrier: Barrier


@dataclass(frozen=True)
class PublishCheckpoint:
    """Publish a checkpoint that every slot has acknowledged. `acks` in the order of slots. `duration_ms`: trigger to
    last acknowledgement.
    """

    barrier: Barrier
    generation: Generation
    acks: tuple[SlotAck, ...]
    duration_ms: float
    is_final: bool


@dataclass(frozen=True)
class CheckpointAborted:
    """Send the slots the end of the checkpoint, if the generation still runs."""

    checkpoint_id: int
    reason: FailureReason
    detail: str


@dataclass(frozen=True)
class DiscardSegments:
    """Delete these files: nothing names them, and nothing will."""

    paths: tuple[str, ...]


@dataclass(frozen=True)
class FailJob:
    """Fail the job over: too many checkpoints have failed."""

    message: str


@dataclass(frozen=True)
class StillPublishing:
    """Warn that the storage has not answered for the time of a whole checkpoint whether this one is in the log. Wait
    for it; no other one is triggered meanwhile.
    """

    checkpoint_id: int
    waited_ms: float


Effect = TriggerCheckpoint | PublishCheckpoint | CheckpointAborted | DiscardSegments | FailJob | StillPublishing
