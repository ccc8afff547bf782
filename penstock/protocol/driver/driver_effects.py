"""Lists the effects of the driver's machines: effects of the job's life, and of its checkpoints."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.protocol.driver.published_checkpoints import Follow
from penstock.protocol.driver.savepoint import Savepoint
from penstock.protocol.values.elements import Barrier, Generation
from penstock.protocol.values.messages import Register, SlotAck
from penstock.protocol.values.reasons import FailureReason


@dataclass(frozen=True)
class FailureCause:
    """Describes why a generation failed. `summary` is one line; `traceback` is the user's, or empty. `slot_lost`: not
    an error of the job itself. `planned`: nothing failed at all, and the restart strategy is not asked. `lost_peer`:
    the slot at the other end of a lost connection. The end of the process there explains the failure better, and is
    known later. `keeps_everything`: nothing of the job may be deleted at its end, because somebody has to look at it.
    """

    summary: str
    traceback: str = ""
    slot_lost: bool = False
    restartable: bool = True
    planned: bool = False
    lost_peer: int | None = None
    keeps_everything: bool = False

    def text(self) -> str:
        return f"{self.traceback.rstrip()}\n{self.summary}" if self.traceback else self.summary


@dataclass(frozen=True)
class SubmitSlot:
    """Submit a slot. `slot`: its number, or one beyond the slots for a spare."""

    slot: int


@dataclass(frozen=True)
class ResubmitSlot:
    """Submit a slot again. `slot`: the number under which it was submitted."""

    slot: int


@dataclass(frozen=True)
class ReleaseSlot:
    """Cancel a slot, and do not submit it again. `slot`: the number under which it was submitted."""

    slot: int


@dataclass(frozen=True)
class AssignSpare:
    """Keep the process as a spare: it plays no slot yet."""

    process: str


@dataclass(frozen=True)
class Dismiss:
    """Tell the process to leave for good."""

    process: str
    message: str


@dataclass(frozen=True)
class CloseLink:
    """Close the process's connection: nothing it says counts any more."""

    process: str


@dataclass(frozen=True)
class Prepare:
    """Find the restore point of the next generation; answered by `Lifecycle.on_prepared`."""


@dataclass(frozen=True)
class Deploy:
    """Deploy a generation. `members`: the process of each slot, by slot."""

    generation: Generation
    members: tuple[Register, ...]


@dataclass(frozen=True)
class StartRestore:
    """Let all slots restore their subtasks: they are connected with each other."""

    generation: Generation


@dataclass(frozen=True)
class StartRun:
    """Start to run the generation, of which every subtask is restored."""

    generation: Generation


@dataclass(frozen=True)
class CancelGeneration:
    """Ask a process to release the subtasks of a generation."""

    generation: Generation
    process: str


@dataclass(frozen=True)
class GenerationEnded:
    """Ignore this generation from now on: it has ended."""

    generation: Generation
    cause: str


@dataclass(frozen=True)
class Restarting:
    """Restart the job after `delay_ms`. `failures` counts all failures of the job, this one included."""

    cause: FailureCause
    failures: int
    delay_ms: float

    def text(self) -> str:
        """Describe the restart to the user."""
        when = "at once" if self.delay_ms <= 0 else f"in {self.delay_ms / 1000:.1f} s"
        what = "This is no failure of the job" if self.cause.planned else f"Failure {self.failures} of this job"
        return f"{self.cause.text()}\n{what}; it restarts {when}."


@dataclass(frozen=True)
class SlotsGone:
    """Report that the job is over and every slot has left, or was given up: `state` is FINISHED, CANCELED or FAILED."""

    state: str
    error: str | None


LifecycleEffect = (
    SubmitSlot
    | ResubmitSlot
    | ReleaseSlot
    | AssignSpare
    | Dismiss
    | CloseLink
    | Prepare
    | Deploy
    | StartRestore
    | StartRun
    | CancelGeneration
    | GenerationEnded
    | Restarting
    | SlotsGone
)


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
class FollowPublication:
    """Take this step for a checkpoint that is canonical now."""

    step: Follow
    checkpoint_id: int


@dataclass(frozen=True)
class CheckpointAborted:
    """Send the slots the end of the checkpoint, if the generation still runs. `fails_job`: the job fails over, because
    too many have failed.
    """

    checkpoint_id: int
    reason: FailureReason
    detail: str
    savepoint: Savepoint | None = None
    fails_job: bool = False


@dataclass(frozen=True)
class SavepointRefused:
    """Report to the caller of a savepoint that it is not triggered."""

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
    """Delete these files: nothing names them, and nothing will. `directory`: the directory of their savepoint."""

    paths: tuple[str, ...]
    directory: str | None = None


@dataclass(frozen=True)
class FailJob:
    """Fail the job over: too many checkpoints have failed. `DriverMachine` consumes it. `planned`: it is no failure of
    the job, because the sources were ended for a savepoint that failed.
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


CheckpointEffect = (
    TriggerCheckpoint
    | PublishCheckpoint
    | FollowPublication
    | CheckpointAborted
    | SavepointRefused
    | RescaleNotTaken
    | DrainSources
    | StillDraining
    | DiscardSegments
    | FailJob
    | StillPublishing
)

Effect = LifecycleEffect | CheckpointEffect
