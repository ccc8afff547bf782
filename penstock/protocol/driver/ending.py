"""Decides the end of a job once its slots have left: publications and commits finish, then the log is ended.

Nothing is deleted before a log entry has proved that this driver still owns the job. Everything is kept if the job
never ran in this driver, if it was given up because of its storage, or if output is still waiting to be committed. The
log itself always stays: it keeps the id of an ended job from being used again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import msgspec

from penstock.protocol.driver.driver_effects import FailureCause
from penstock.protocol.driver.patience import Patience
from penstock.protocol.driver.row_folders import Release, released_at_end
from penstock.protocol.machine import Cell, MachineState, Story, Table, step

FINAL_COMMIT_ATTEMPTS_MAX = 5
FINAL_COMMIT_PAUSE_MS = 1000.0
STORAGE_TIMEOUT_MS = 30_000.0


class EndingState(MachineState):
    """Lists the states of the end."""

    RUNNING = "running"
    PUBLISHING = "publishing"
    COMMITTING = "committing"
    CHECKING = "checking the log"
    LOGGING = "ending the log"
    SWEEPING = "sweeping"
    LOOKING = "looking for the newest checkpoint"
    ENDED = "ended"


_RUNNING, _PUBLISHING, _COMMITTING, _CHECKING, _LOGGING, _SWEEPING, _LOOKING, _ENDED = EndingState
_DONE = (_LOOKING, _ENDED)
_LATE: Cell[EndingState] = Cell("ignore: given up", (_ENDED,))

TABLE: Table[EndingState] = Table(
    "the end of the job",
    {
        "SlotsGone": {_RUNNING: Cell("release the slots; wait for publications", (_PUBLISHING,)), _ENDED: _LATE},
        "NothingPublishing": {_PUBLISHING: Cell("wait for commits", (_COMMITTING,)), _ENDED: _LATE},
        "CommitsIdle": {
            _COMMITTING: Cell(
                "not ours: keep nothing; never ran: check that it is ours; else end the log",
                (_CHECKING, _LOGGING, *_DONE),
            ),
            _ENDED: _LATE,
        },
        "LogChecked": {_CHECKING: Cell("look for the newest checkpoint", _DONE), _ENDED: _LATE},
        "LogEnded": {_LOGGING: Cell("ours: delete and sweep; lost: warn", (_SWEEPING, *_DONE)), _ENDED: _LATE},
        "Swept": {_SWEEPING: Cell("look for the newest checkpoint", _DONE), _ENDED: _LATE},
        "NewestLookedFor": {_LOOKING: Cell("finish", (_ENDED,)), _ENDED: _LATE},
        "FinalCommitRefused": {
            _RUNNING: Cell("pause and try again; after five attempts: give up", (_RUNNING,)),
            _ENDED: _LATE,
        },
        "TimePassed": {
            **{
                state: Cell("after 30 s without an answer: keep everything and finish", (state, _ENDED))
                for state in EndingState
                if state not in (_RUNNING, _ENDED)
            },
            _RUNNING: Cell("try the final commits again", (_RUNNING,)),
            _ENDED: _LATE,
        },
    },
)


# ---- events ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Holdings:
    """Describes the facts that decide about deleting. `owns_log`: this driver has fenced the log, and has not lost it.
    `keeps_everything`: the job was given up because of its storage. `has_run`: in this driver, or nothing was left to
    run. `keeps_checkpoints`: what the user chose for this state, or output waits to be committed. `had_checkpoints`: a
    checkpoint of the job has been in its log. `has_retained`: one is kept in the job's directory.
    """

    owns_log: bool
    keeps_everything: bool
    has_run: bool
    keeps_checkpoints: bool
    had_checkpoints: bool
    has_retained: Callable[[], bool]


class SlotsGone(msgspec.Struct, frozen=True):
    """Reports that every slot has left, or was given up."""

    state: str
    error: str | None


class NothingPublishing(msgspec.Struct, frozen=True):
    """Reports that the conversations with the log are idle."""


class CommitsIdle(msgspec.Struct, frozen=True):
    """Reports that all is committed, or that an attempt has failed."""

    holdings: Holdings


class LogChecked(msgspec.Struct, frozen=True):
    """Reports the check of the log. `lost`: what the log shows if another driver owns the job now."""

    lost: str | None


class LogEnded(msgspec.Struct, frozen=True):
    """Reports the end of the log. `lost`: why the log could not be ended."""

    lost: str | None


class Swept(msgspec.Struct, frozen=True):
    """Reports that unneeded objects have been deleted."""


class NewestLookedFor(msgspec.Struct, frozen=True):
    """Reports the search. `is_gone`: the newest checkpoint does not exist any more."""

    is_gone: bool


class FinalCommitRefused(msgspec.Struct, frozen=True):
    """Reports that the last commits, which need no slot any more, have failed once more."""

    cause: FailureCause


class TimePassed(msgspec.Struct, frozen=True):
    """Reports that the machine's deadline may be over."""


# ---- effects --------------------------------------------------------------------------------------------------------


class ReleaseSlots(msgspec.Struct, frozen=True):
    """Cancel the jobs that Spark still runs, and close all links."""


class AwaitPublications(msgspec.Struct, frozen=True):
    """Wait for publications; answer with `NothingPublishing`."""


class AwaitCommits(msgspec.Struct, frozen=True):
    """Wait for commits; answer with `CommitsIdle`."""


class CheckLog(msgspec.Struct, frozen=True):
    """Ask the log whether the job is still ours; answer with `LogChecked`."""


class EndLog(msgspec.Struct, frozen=True):
    """Append the job's end; answer with `LogEnded`."""

    state: str
    keeps_checkpoints: bool


class DeleteAndSweep(msgspec.Struct, frozen=True):
    """Delete the objects that the end of the log allows to; answer with `Swept`."""


class LookForNewest(msgspec.Struct, frozen=True):
    """Look for the newest checkpoint before a user is advised to resume from it; answer with `NewestLookedFor`."""


class RetryFinalCommits(msgspec.Struct, frozen=True):
    """Try the head of the commits again."""


class WarnOfRefusal(msgspec.Struct, frozen=True):
    """Warn that the final commits are retried after a pause."""

    cause: FailureCause


class GiveUpFinalCommits(msgspec.Struct, frozen=True):
    """Fail the job for good: its output waits for a later driver."""

    attempts: int
    cause: FailureCause


class WarnOfLoss(msgspec.Struct, frozen=True):
    """Warn that another driver owns the job."""

    detail: str


class WarnOfSilence(msgspec.Struct, frozen=True):
    """Warn that the storage, or a committer, did not answer within `STORAGE_TIMEOUT_MS`: everything was kept."""


class Finish(msgspec.Struct, frozen=True):
    """Finish the job. `is_resumable`: a checkpoint is retained in the job's directory. `releases`: the folders of rows
    that nobody needs any more.
    """

    state: str
    error: str | None
    is_resumable: bool
    releases: Release


Event = (
    SlotsGone
    | NothingPublishing
    | CommitsIdle
    | LogChecked
    | LogEnded
    | Swept
    | NewestLookedFor
    | FinalCommitRefused
    | TimePassed
)
Effect = (
    ReleaseSlots
    | AwaitPublications
    | AwaitCommits
    | CheckLog
    | EndLog
    | DeleteAndSweep
    | LookForNewest
    | RetryFinalCommits
    | WarnOfRefusal
    | GiveUpFinalCommits
    | WarnOfLoss
    | WarnOfSilence
    | Finish
)


class Ending:
    """Ends one job in one driver."""

    def __init__(self, story: Story | None = None) -> None:
        self.state = EndingState.RUNNING
        self.story = story or Story()
        self._verdict: tuple[str, str | None] = ("", None)
        self._keeps = self._log_is_ended = False
        self._holdings: Holdings | None = None
        self._commit_failures = 0
        self._patience = Patience(STORAGE_TIMEOUT_MS)
        self._retry_commit_at_ms: float | None = None

    @property
    def is_decided(self) -> bool:
        """Return whether it is decided what the log says of the end."""
        return self.state not in (_RUNNING, _PUBLISHING, _COMMITTING)

    def next_deadline_ms(self) -> float | None:
        """Return the deadline of `TimePassed`; None: never."""
        return min(
            (t for t in (self._patience.next_deadline_ms(), self._retry_commit_at_ms) if t is not None), default=None
        )

    def handle(self, event: Event, now_ms: float) -> list[Effect]:
        """Return the effects, in order."""
        name, decide = type(event).__name__, partial(self._decide, event, now_ms)
        return step(TABLE, self.story, name, "the JobMaster", now_ms, lambda: self.state, decide)

    def _decide(self, event: Event, now_ms: float) -> list[Effect]:
        if self.state is EndingState.ENDED:
            return []
        match event:
            case SlotsGone(state, error):
                self._verdict = (state, error)
                self._patience.begin(now_ms)
                self.state = EndingState.PUBLISHING
                return [ReleaseSlots(), AwaitPublications()]
            case NothingPublishing():
                self.state = EndingState.COMMITTING
                return [AwaitCommits()]
            case CommitsIdle(holdings):
                return self._end_log(holdings)
            case LogChecked(lost):
                return self._checked(lost)
            case LogEnded(None):
                self.state = EndingState.SWEEPING
                self._log_is_ended = True
                return [DeleteAndSweep()]
            case LogEnded(lost):
                self._keeps = False
                return [WarnOfLoss(lost or ""), *self._look()]
            case Swept():
                return self._look()
            case NewestLookedFor(is_gone):
                return self._finish(is_resumable=not is_gone)
            case FinalCommitRefused(cause):
                return self._refused(cause, now_ms)
            case TimePassed():
                return self._look_at_the_clock(now_ms)

    def _end_log(self, holdings: Holdings) -> list[Effect]:
        self._holdings = holdings
        if not holdings.owns_log:
            return self._finish(is_resumable=False)
        if holdings.keeps_everything or not holdings.has_run:
            self._keeps = True
            self.state = EndingState.CHECKING
            return [CheckLog()]
        self._keeps = holdings.keeps_checkpoints
        self.state = EndingState.LOGGING
        return [EndLog(self._verdict[0], self._keeps)]

    def _checked(self, lost: str | None) -> list[Effect]:
        """Continue after the check of the log. A driver that was fenced while it failed reports that: what it misses
        may be what its successor has deleted.
        """
        state, error = self._verdict
        if lost is not None:
            self._verdict = (state, lost if error is not None else None)
        return self._look()

    def _look(self) -> list[Effect]:
        if not self._keeps or not self._has_retained:
            return self._finish(is_resumable=False)
        self.state = EndingState.LOOKING
        return [LookForNewest()]

    @property
    def _has_retained(self) -> bool:
        return self._holdings is not None and self._holdings.has_retained()

    def _refused(self, cause: FailureCause, now_ms: float) -> list[Effect]:
        self._commit_failures += 1
        if cause.restartable and self._commit_failures < FINAL_COMMIT_ATTEMPTS_MAX:
            self._retry_commit_at_ms = now_ms + FINAL_COMMIT_PAUSE_MS
            return [WarnOfRefusal(cause)]
        return [GiveUpFinalCommits(self._commit_failures, cause)]

    def _look_at_the_clock(self, now_ms: float) -> list[Effect]:
        effects: list[Effect] = []
        if self._retry_commit_at_ms is not None and self._retry_commit_at_ms <= now_ms:
            self._retry_commit_at_ms = None
            effects.append(RetryFinalCommits())
        if self._patience.is_over(now_ms):
            effects += [WarnOfSilence(), *self._finish(is_resumable=True)]
        return effects

    def _finish(self, is_resumable: bool) -> list[Effect]:
        self.state = EndingState.ENDED
        self._patience.end()
        self._retry_commit_at_ms = None
        state, error = self._verdict
        return [Finish(state, error, is_resumable, self._releases)]

    @property
    def _releases(self) -> Release:
        if self._holdings is None:
            return Release.NOTHING
        may_begin_again = self._verdict[0] != "FINISHED" and not self._holdings.had_checkpoints
        return released_at_end(self._log_is_ended, self._keeps, may_begin_again, self._holdings.has_run)
