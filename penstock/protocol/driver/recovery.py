"""Decides the restore point of the next generation, before it may be deployed.

The first time in a driver: open the store, take over the log, choose the checkpoint, and check that it fits the
program. That is the job's own newest checkpoint, else the one that the user named to start from, else none. After a
failure: wait until no checkpoint is being published, and take the newest. Both times the files must exist.

A restart without any checkpoint starts from scratch. A job whose newest checkpoint is its final one needs no slot any
more: only its commit may be missing.
"""

from __future__ import annotations

from enum import Enum
from functools import partial

import msgspec

from penstock.protocol.machine import Cell, MachineState, Story, Table, step


class RecoveryState(MachineState):
    """Lists the steps of a recovery."""

    FRESH = "fresh"
    OPENING = "opening the store"
    TAKING_OVER = "taking over the log"
    READING = "reading the start"
    FITTING = "fitting"
    WAITING = "waiting for publications"
    CHECKING = "checking the files"
    RESTING = "resting"


class Files(Enum):
    """Lists the results of the check of the newest checkpoint's files."""

    COMPLETE = "complete"
    DAMAGED = "damaged"
    REMOVED = "removed"
    UNREACHABLE = "unreachable"


_FRESH, _OPENING, _TAKING, _READING, _FITTING, _WAITING, _CHECKING, _RESTING = RecoveryState

TABLE: Table[RecoveryState] = Table(
    "the recovery",
    {
        "Begun": {
            _FRESH: Cell(
                "open the store; without checkpoints: read the start, or be prepared",
                (_OPENING, _READING, _RESTING),
            ),
            **{state: Cell("continue", (state,)) for state in (_OPENING, _TAKING, _READING, _FITTING)},
            _WAITING: Cell("wait again", (_WAITING,)),
            _CHECKING: Cell("wait for publications", (_WAITING,)),
            _RESTING: Cell("wait for publications", (_WAITING,)),
        },
        "Superseded": {state: Cell("ignore the answers to come", (state,)) for state in RecoveryState},
        "Refused": {
            _OPENING: Cell("abandon", (_RESTING,)),
            _TAKING: Cell("abandon", (_RESTING,)),
            _READING: Cell("abandon", (_RESTING,)),
            _FITTING: Cell("abandon", (_RESTING,)),
        },
        "StoreOpened": {_OPENING: Cell("take over the log", (_TAKING,))},
        "LogTaken": {
            _TAKING: Cell(
                "own checkpoint: fit it; ended: abandon; another job's: read it; none: be prepared",
                (_FITTING, _READING, _RESTING),
            ),
        },
        "StartRead": {_READING: Cell("fit it", (_FITTING,))},
        "Fitted": {
            _FITTING: Cell(
                "queue its commits; own final: finish with them; own: check its files; else be prepared",
                (_CHECKING, _RESTING),
            ),
        },
        "PublicationsIdle": {
            _WAITING: Cell("retry commits, check the files", (_CHECKING, _RESTING, _WAITING)),
            **{state: Cell("ignore: superseded", (state,)) for state in RecoveryState if state is not _WAITING},
        },
        "FilesChecked": {
            _CHECKING: Cell(
                "complete: be prepared; unreachable: fail; damaged, removed: abandon", (_RESTING, _CHECKING)
            ),
            **{state: Cell("ignore: superseded", (state,)) for state in RecoveryState if state is not _CHECKING},
        },
    },
)


# ---- events ---------------------------------------------------------------------------------------------------------


class Begun(msgspec.Struct, frozen=True):
    """Asks for a recovery. `has_store`: the job takes checkpoints. `start`: the checkpoint that the user named to start
    from.
    """

    has_store: bool
    start: str | None


class Superseded(msgspec.Struct, frozen=True):
    """Reports that the job failed meanwhile, and will ask again."""


class Refused(msgspec.Struct, frozen=True):
    """Reports that the restore is impossible, and no restart mends it. `lost_log`: because another driver owns the
    job.
    """

    error: str
    lost_log: bool = False


class StoreOpened(msgspec.Struct, frozen=True):
    """Reports that the job's directory exists, and can be written."""


class LogTaken(msgspec.Struct, frozen=True):
    """Reports that this driver owns the log. `has_checkpoint`: its newest one. `ended`: how the job ended before;
    `had_checkpoints`: some that were deleted. `restored_from`: where the job had started from, if it has completed no
    checkpoint since. `fence`: the position from which the log is ours.
    """

    has_checkpoint: bool
    ended: str | None = None
    had_checkpoints: bool = False
    restored_from: str | None = None
    fence: int = 0


class StartRead(msgspec.Struct, frozen=True):
    """Reports that the checkpoint to start from is complete. `warning`: what the user should know of it."""

    warning: str | None


class Fitted(msgspec.Struct, frozen=True):
    """Reports that the checkpoint fits the program. `is_own`: it is this job's, not one that it starts from.
    `holds_files`: its files lie in the job's own directory.
    """

    is_final: bool
    is_own: bool
    holds_files: bool


class PublicationsIdle(msgspec.Struct, frozen=True):
    """Reports that no publication runs. `needs_slots` False: the job is over, or finishing. `holds_files`: what it
    restores lies in its own directory.
    """

    attempt: int
    needs_slots: bool
    holds_files: bool


class FilesChecked(msgspec.Struct, frozen=True):
    """Reports whether all files of the restore point exist. `is_over`: the job has ended meanwhile."""

    attempt: int
    files: Files
    detail: str = ""
    is_over: bool = False


# ---- effects --------------------------------------------------------------------------------------------------------


class OpenDirectory(msgspec.Struct, frozen=True):
    """Open the directory; answer with `StoreOpened` or `Refused`."""


class TakeOverLog(msgspec.Struct, frozen=True):
    """Take over the log; answer with `LogTaken` or `Refused`."""


class ReadStart(msgspec.Struct, frozen=True):
    """Read another job's checkpoint; answer with `StartRead` or `Refused`."""

    path: str


class FitCheckpoint(msgspec.Struct, frozen=True):
    """Check the checkpoint that was found against the program; answer with `Fitted` or `Refused`."""


class Claim(msgspec.Struct, frozen=True):
    """Make the checkpoint that was read this job's own from now on, if the user has chosen that."""


class Warn(msgspec.Struct, frozen=True):
    """Warn the user."""

    text: str


class QueueCommits(msgspec.Struct, frozen=True):
    """Commit the checkpoint's committables. `is_last`: then the job has finished, without a slot."""

    is_last: bool


class AwaitPublications(msgspec.Struct, frozen=True):
    """Wait for publications; answer with `PublicationsIdle`."""

    attempt: int


class RetryCommits(msgspec.Struct, frozen=True):
    """Retry failed commits."""


class CheckFiles(msgspec.Struct, frozen=True):
    """Check whether all files of the checkpoint exist; answer with `FilesChecked`."""

    attempt: int


class LoseLog(msgspec.Struct, frozen=True):
    """Delete nothing from now on: another driver owns the job."""


class KeepEverything(msgspec.Struct, frozen=True):
    """Keep everything if `keeps`: nothing of the job's directory may be deleted, because it could not be read."""

    keeps: bool


class Prepared(msgspec.Struct, frozen=True):
    """Let the lifecycle deploy."""


class Fail(msgspec.Struct, frozen=True):
    """Fail the job over: the next attempt may succeed."""

    cause: str


class Abandon(msgspec.Struct, frozen=True):
    """Fail the job for good."""

    error: str


class AbandonEnded(msgspec.Struct, frozen=True):
    """Abandon a job that had ended before: there is nothing to resume."""

    state: str


Event = Begun | Superseded | Refused | StoreOpened | LogTaken | StartRead | Fitted | PublicationsIdle | FilesChecked
Effect = (
    OpenDirectory
    | TakeOverLog
    | ReadStart
    | FitCheckpoint
    | Claim
    | Warn
    | QueueCommits
    | AwaitPublications
    | RetryCommits
    | CheckFiles
    | LoseLog
    | KeepEverything
    | Prepared
    | Fail
    | Abandon
    | AbandonEnded
)


class Recovery:
    """Decides the recoveries of one job in one driver, one after the other."""

    def __init__(self, story: Story | None = None) -> None:
        self.state = RecoveryState.FRESH
        self.story = story or Story()
        self._attempt = 0

    def handle(self, event: Event, now_ms: float) -> list[Effect]:
        """Return the effects, in order."""
        name, decide = type(event).__name__, partial(self._decide, event)
        return step(TABLE, self.story, name, "the JobMaster", now_ms, lambda: self.state, decide)

    def _decide(self, event: Event) -> list[Effect]:
        match event:
            case Begun(has_store, start):
                return self._begin(has_store, start)
            case Superseded():
                self._attempt += 1
                return []
            case Refused(error, lost_log):
                self.state = RecoveryState.RESTING
                return [*([LoseLog()] if lost_log else []), Abandon(error)]
            case StoreOpened():
                self.state = RecoveryState.TAKING_OVER
                return [TakeOverLog()]
            case LogTaken():
                return self._found(event)
            case StartRead(warning):
                self.state = RecoveryState.FITTING
                return [*([] if warning is None else [Warn(warning)]), Claim(), FitCheckpoint()]
            case Fitted(is_final, is_own, holds_files):
                if is_final and is_own:
                    self.state = RecoveryState.RESTING
                    return [QueueCommits(is_last=True)]
                return [QueueCommits(is_last=False), *self._look_at_files(holds_files)]
            case PublicationsIdle(attempt, needs_slots, holds_files):
                if attempt != self._attempt or self.state is not RecoveryState.WAITING:
                    return []
                if not needs_slots:
                    self.state = RecoveryState.RESTING
                    return []
                return [RetryCommits(), *self._look_at_files(holds_files)]
            case FilesChecked():
                return self._checked(event)

    def _begin(self, has_store: bool, start: str | None) -> list[Effect]:
        self._attempt += 1
        match self.state:
            case RecoveryState.FRESH if has_store:
                self.state = RecoveryState.OPENING
                return [OpenDirectory()]
            case RecoveryState.FRESH:
                return self._start_from(start)
            case RecoveryState.WAITING | RecoveryState.CHECKING | RecoveryState.RESTING:
                self.state = RecoveryState.WAITING
                return [AwaitPublications(self._attempt)]
        return []

    def _start_from(self, start: str | None) -> list[Effect]:
        self.state = RecoveryState.RESTING if start is None else RecoveryState.READING
        return [Prepared()] if start is None else [ReadStart(start)]

    def _found(self, taken: LogTaken) -> list[Effect]:
        if taken.has_checkpoint:
            self.state = RecoveryState.FITTING
            return [FitCheckpoint()]
        if taken.ended is not None and (taken.ended == "FINISHED" or taken.had_checkpoints):
            self.state = RecoveryState.RESTING
            return [AbandonEnded(taken.ended)]
        return self._start_from(taken.restored_from)

    def _look_at_files(self, holds_files: bool) -> list[Effect]:
        self.state = RecoveryState.CHECKING if holds_files else RecoveryState.RESTING
        return [CheckFiles(self._attempt)] if holds_files else [Prepared()]

    def _checked(self, checked: FilesChecked) -> list[Effect]:
        if checked.attempt != self._attempt or checked.is_over or self.state is not RecoveryState.CHECKING:
            return []
        self.state = RecoveryState.RESTING
        keeps = KeepEverything(checked.files in (Files.REMOVED, Files.UNREACHABLE))
        match checked.files:
            case Files.COMPLETE:
                return [keeps, Prepared()]
            case Files.UNREACHABLE:
                return [keeps, Fail(f"what the job restarts from cannot be looked at: {checked.detail}")]
        return [keeps, Abandon(checked.detail)]
