"""Defines the events of the driver's machine, in the order of a job: its life, then its checkpoints."""

from __future__ import annotations

import msgspec

from penstock.protocol.driver.driver_effects import FailureCause
from penstock.protocol.driver.published_checkpoints import PublishedKind
from penstock.protocol.driver.rescaling import Rescale
from penstock.protocol.driver.savepoint import Savepoint
from penstock.protocol.values.elements import Generation, SubtaskId
from penstock.protocol.values.messages import Decline, Register, SlotAck
from penstock.protocol.values.reasons import FailureReason

# ---- events of the job's life ---------------------------------------------------------------------------------------


class Started(msgspec.Struct, frozen=True):
    """Starts the job."""


class Registered(msgspec.Struct, frozen=True):
    """Reports a process that has come."""

    register: Register


class LinkLost(msgspec.Struct, frozen=True):
    """Reports that the connection of a process has ended."""

    process: str
    detail: str


class SlotConnected(msgspec.Struct, frozen=True):
    """Reports that a process is connected with all its peers."""

    process: str
    generation: Generation


class SlotRestored(msgspec.Struct, frozen=True):
    """Reports that a process has restored all its subtasks."""

    process: str
    generation: Generation


class SlotLeft(msgspec.Struct, frozen=True):
    """Reports that a process has released a generation, or leaves for good."""

    process: str
    generation: Generation


class Failed(msgspec.Struct, frozen=True):
    """Reports a failure of a generation; None: of the job as a whole, whatever runs."""

    cause: FailureCause
    generation: Generation | None = None


class Heard(msgspec.Struct, frozen=True):
    """Reports that a process is alive, because any message of it has arrived."""

    process: str


class Restoring(msgspec.Struct, frozen=True):
    """Reports which subtasks of a process are not restored yet."""

    process: str
    names: list[str]


class SlotsKept(msgspec.Struct, frozen=True):
    """Keeps the submissions for `slots` slots, even if the job has fewer: further processes are spares."""

    slots: int


class SlotsNeeded(msgspec.Struct, frozen=True):
    """Asks to submit the Spark jobs for this number of slots, before they are needed."""

    slots: int


class SlotsUnneeded(msgspec.Struct, frozen=True):
    """Reports that slots provided beyond the job's own are not needed after all."""


class Rescaled(msgspec.Struct, frozen=True):
    """Ends the generation; the next one has `slots` slots."""

    slots: int
    cause: str


class Resized(msgspec.Struct, frozen=True):
    """Lets the job start with `slots` slots, instead of waiting for the missing ones."""

    slots: int


class Finishing(msgspec.Struct, frozen=True):
    """Reports that the final checkpoint is canonical: what is left to do needs no slot."""


class Finished(msgspec.Struct, frozen=True):
    """Reports that everything up to the final checkpoint is committed."""


class Cancelled(msgspec.Struct, frozen=True):
    """Ends the job, because a user asks for it. `suspends`: only this driver ends, and the log says nothing of it."""

    suspends: bool = False


class Abandoned(msgspec.Struct, frozen=True):
    """Fails the job for good, whatever the restart strategy says. Its end deletes nothing."""

    error: str


class LogLost(msgspec.Struct, frozen=True):
    """Reports that another driver owns the job: this one fails it, and deletes nothing."""

    error: str


class CommitOverdue(msgspec.Struct, frozen=True):
    """Reports a commit that does not return. Nothing can stop it, so it is not repeated."""

    cause: FailureCause


# ---- events of checkpoints ------------------------------------------------------------------------------------------


class Running(msgspec.Struct, frozen=True):
    """Reports that all subtasks of a generation run. See `CheckpointCoordinator.on_running`."""

    generation: Generation
    slots: frozenset[int]
    subtasks: int
    spread: float
    holds_sources: bool


class BacklogChanged(msgspec.Struct, frozen=True):
    """Reports whether any source works off a backlog."""

    is_backlog: bool


class CheckpointAsked(msgspec.Struct, frozen=True):
    """Asks for a checkpoint, for a user."""


class SavepointAsked(msgspec.Struct, frozen=True):
    """Asks for a savepoint, for a user. Its directory exists."""

    savepoint: Savepoint


class TriggerFailed(msgspec.Struct, frozen=True):
    """Reports that the trigger of a checkpoint could not be sent."""

    checkpoint_id: int
    detail: str


class EndOfData(msgspec.Struct, frozen=True):
    """Reports that a subtask has reached the end of its data."""

    subtask: SubtaskId


class CheckpointPublished(msgspec.Struct, frozen=True):
    """Reports that the log entry of a checkpoint exists, that a savepoint of a job that continues is complete, or that
    the output which a checkpoint only collected is committed."""

    checkpoint_id: int
    kind: PublishedKind


class SavepointWritten(msgspec.Struct, frozen=True):
    """Reports that the directory of a savepoint is complete, before its entry in the log is begun."""

    checkpoint_id: int


class CheckpointNotPublished(msgspec.Struct, frozen=True):
    """Reports that a checkpoint certainly has no log entry, and never will."""

    checkpoint_id: int
    reason: FailureReason
    detail: str


class IdsUsed(msgspec.Struct, frozen=True):
    """Reports that ids below `next_checkpoint_id` may have been used, by another driver or job."""

    next_checkpoint_id: int


# ---- events of rescales ----------------------------------------------------------------------------------------------


class Facts(msgspec.Struct, frozen=True):
    """Describes the facts that decide about the number of slots, and that only the rest of the driver knows.

    `capacity`: the largest number of processes, None if that may change. `wanted_slots`: those that the user has asked
    for. `is_aligned`: the checkpoint of a rescale must hold no rows in flight. `is_drained`: nothing recovered is left
    to read.
    """

    capacity: int | None = None
    wanted_slots: int = 0
    is_aligned: bool = False
    is_drained: bool = True


class Looked(msgspec.Struct, frozen=True):
    """Lets rescales and the adaptive scheduler continue, if what they wait for is there."""

    facts: Facts


class RescaleOrdered(msgspec.Struct, frozen=True):
    """Orders a rescale."""

    rescale: Rescale
    facts: Facts


class RescaleRefused(msgspec.Struct, frozen=True):
    """Reports that the job restarts in other slots than the present rescale has ordered."""

    why: str


class RescalesEnded(msgspec.Struct, frozen=True):
    """Gives up all rescales that are left: the job has ended."""

    why: str


class NotLowered(msgspec.Struct, frozen=True):
    """Reports that the job cannot start in the fewer slots that the adaptive scheduler has chosen."""


class Raised(msgspec.Struct, frozen=True):
    """Reports the end of a rescale that the adaptive scheduler has ordered. `is_done` False: the job is as it was."""

    is_done: bool


# ---- both -----------------------------------------------------------------------------------------------------------


class TimePassed(msgspec.Struct, frozen=True):
    """Reports that the machine's deadline may be over. `progress_ms`: directory of a savepoint that is being written ->
    when its storage did something last.
    """

    progress_ms: dict[str, float] = {}


Event = (
    Started
    | Registered
    | LinkLost
    | SlotConnected
    | SlotRestored
    | SlotLeft
    | Failed
    | Heard
    | Restoring
    | SlotsKept
    | SlotsNeeded
    | SlotsUnneeded
    | Rescaled
    | Resized
    | Finishing
    | Finished
    | Cancelled
    | Abandoned
    | LogLost
    | CommitOverdue
    | Running
    | BacklogChanged
    | CheckpointAsked
    | SavepointAsked
    | SlotAck
    | Decline
    | Looked
    | RescaleOrdered
    | RescaleRefused
    | RescalesEnded
    | NotLowered
    | Raised
    | TriggerFailed
    | EndOfData
    | CheckpointPublished
    | SavepointWritten
    | CheckpointNotPublished
    | IdsUsed
    | TimePassed
)
