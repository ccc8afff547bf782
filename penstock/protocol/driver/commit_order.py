"""Decides the moment at which prepared output is committed: after the log entry, in the log's order, one batch at a
time.

A batch that failed stays at the head. The metadata of later checkpoints includes it, and it is retried when the job
restarts; nothing overtakes it. A commit that does not return is reported after a while, and fails the job in the end.
Nothing can stop it, so this driver does not repeat it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import partial

import msgspec

from penstock.protocol.driver.driver_effects import FailureCause
from penstock.protocol.driver.patience import Patience
from penstock.protocol.machine import Cell, MachineState, Story, Table, step
from penstock.protocol.values.metadata import Committable, Metadata, SubtaskSnapshot

WARN_AFTER_MS = 30_000.0


class CommitState(MachineState):
    """Lists the states of the batch at the head."""

    IDLE = "idle"
    COMMITTING = "committing"
    STUCK = "stuck"


_IDLE, _COMMITTING, _STUCK = CommitState

TABLE: Table[CommitState] = Table(
    "the order of commits",
    {
        "Added": {
            _IDLE: Cell("confirm what has nothing to commit; commit the next", (_IDLE, _COMMITTING)),
            _COMMITTING: Cell("queue", (_COMMITTING,)),
            _STUCK: Cell("queue", (_STUCK,)),
        },
        "Retried": {
            _IDLE: Cell("ignore", (_IDLE,)),
            _COMMITTING: Cell("ignore", (_COMMITTING,)),
            _STUCK: Cell("commit the head again", (_COMMITTING,)),
        },
        "Committed": {
            _COMMITTING: Cell("confirm; commit the next, or say that all is settled", (_IDLE, _COMMITTING)),
        },
        "Refused": {
            _COMMITTING: Cell("tell the failure, say that all is settled", (_STUCK,)),
        },
        "TimePassed": {
            _IDLE: Cell("ignore", (_IDLE,)),
            _COMMITTING: Cell("warn after 30 s, fail after the checkpoint timeout", (_COMMITTING,)),
            _STUCK: Cell("ignore", (_STUCK,)),
        },
    },
)


# ---- events ---------------------------------------------------------------------------------------------------------


class Added(msgspec.Struct, frozen=True):
    """Adds a checkpoint that is in the log. `batch` numbers what it has prepared."""

    batch: int
    committables: tuple[Committable, ...]


class Retried(msgspec.Struct, frozen=True):
    """Reports that the job restarts, or a pause is over."""


class Committed(msgspec.Struct, frozen=True):
    """Reports that every sink has committed what it got."""


class Refused(msgspec.Struct, frozen=True):
    """Reports that a sink could not commit. Not `cause.restartable`: every later attempt would fail, too."""

    cause: FailureCause


class TimePassed(msgspec.Struct, frozen=True):
    """Reports that the machine's deadline may be over."""


# ---- effects --------------------------------------------------------------------------------------------------------


class Commit(msgspec.Struct, frozen=True):
    """Give these committables to their sinks; answer with `Committed` or `Refused`."""

    committables: tuple[Committable, ...]


class Confirm(msgspec.Struct, frozen=True):
    """Confirm that this batch and all before it are committed."""

    batch: int


class ReportRefusal(msgspec.Struct, frozen=True):
    """Report the failed attempt: the job fails over, or pauses at its end."""

    cause: FailureCause


class WarnOfDelay(msgspec.Struct, frozen=True):
    """Warn that a commit has not ended for `waited_ms`."""

    waited_ms: float


class FailForDelay(msgspec.Struct, frozen=True):
    """Fail the job: a commit has not ended for `waited_ms`."""

    waited_ms: float


class NotifyIdle(msgspec.Struct, frozen=True):
    """Report that nothing is being committed now: all is confirmed, or an attempt has failed."""


Event = Added | Retried | Committed | Refused | TimePassed
Effect = Commit | Confirm | ReportRefusal | WarnOfDelay | FailForDelay | NotifyIdle


@dataclass(frozen=True)
class _Batch:
    """Holds the committables of one checkpoint, with the number under which they are queued."""

    number: int
    committables: tuple[Committable, ...]


class CommitOrder:
    """Orders the commits of one driver. `timeout_ms`: how long one commit may take."""

    def __init__(self, timeout_ms: float, story: Story | None = None) -> None:
        self._patience = Patience(timeout_ms)
        self._batches: deque[_Batch] = deque()
        self._started_ms = 0.0
        self._warn_at_ms: float | None = None
        self.state = CommitState.IDLE
        self.story = story or Story()

    @property
    def unconfirmed(self) -> list[Committable]:
        """Return the committables that are not confirmed, in order."""
        return [committable for batch in self._batches for committable in batch.committables]

    def next_deadline_ms(self) -> float | None:
        """Return the deadline of `TimePassed`; None: never."""
        return min((t for t in (self._warn_at_ms, self._patience.next_deadline_ms()) if t is not None), default=None)

    def handle(self, event: Event, now_ms: float) -> list[Effect]:
        """Return the effects, in order."""
        name, decide = type(event).__name__, partial(self._decide, event, now_ms)
        return step(TABLE, self.story, name, "the JobMaster", now_ms, lambda: self.state, decide)

    def _decide(self, event: Event, now_ms: float) -> list[Effect]:
        match event:
            case Added(batch, committables):
                self._batches.append(_Batch(batch, committables))
                return self._continue(now_ms) if self.state is CommitState.IDLE else []
            case Retried():
                if self.state is not CommitState.STUCK:
                    return []
                self.state = CommitState.IDLE
                return self._continue(now_ms)
            case Committed():
                self._rest(CommitState.IDLE)
                confirmed: list[Effect] = [Confirm(self._batches.popleft().number)]
                confirmed += self._continue(now_ms)
                return confirmed if self.state is CommitState.COMMITTING else [*confirmed, NotifyIdle()]
            case Refused(cause):
                self._rest(CommitState.STUCK)
                return [ReportRefusal(cause), NotifyIdle()]
            case TimePassed():
                return self._look_at_the_clock(now_ms)

    def _continue(self, now_ms: float) -> list[Effect]:
        effects: list[Effect] = []
        while self._batches and not self._batches[0].committables:
            effects.append(Confirm(self._batches.popleft().number))
        if self._batches:
            self.state = CommitState.COMMITTING
            self._started_ms = now_ms
            self._warn_at_ms = now_ms + WARN_AFTER_MS
            self._patience.begin(now_ms)
            effects.append(Commit(self._batches[0].committables))
        return effects

    def _rest(self, state: CommitState) -> None:
        self.state = state
        self._warn_at_ms = None
        self._patience.end()

    def _look_at_the_clock(self, now_ms: float) -> list[Effect]:
        waited_ms = now_ms - self._started_ms
        if self._patience.is_over(now_ms):
            self._warn_at_ms = None
            self._patience.end()
            return [FailForDelay(waited_ms)]
        if self._warn_at_ms is not None and self._warn_at_ms <= now_ms:
            self._warn_at_ms = None
            return [WarnOfDelay(waited_ms)]
        return []


# ---- the committables of a checkpoint -------------------------------------------------------------------------------


def committables_of(metadata: Metadata) -> list[Committable]:
    """Return the committables that a restore of this checkpoint commits again, in order."""
    # 11.10: unconfirmed committables ride along, and a recovery commits them again.
    own = (_named_by(metadata.checkpoint_id, c) for s in metadata.subtasks for c in s.committables)
    return [*metadata.unconfirmed_commits, *own]


def confirmed_id(metadata: Metadata) -> int:
    """Return the newest checkpoint up to which no restore of this one commits anything again that was prepared."""
    # 11.20: what this checkpoint does not name any more is never committed again.
    named = [c.prepared_for for c in committables_of(metadata)]
    return min(named, default=metadata.checkpoint_id + 1) - 1


def _named_by(checkpoint_id: int, committable: Committable) -> Committable:
    return msgspec.structs.replace(committable, checkpoint_id=checkpoint_id)


def without_committables(subtasks: list[SubtaskSnapshot], newest_id: int) -> list[SubtaskSnapshot]:
    """Leave out the output that the checkpoint `newest_id` has named: snapshots of later ones that were pending then
    name it again. Without this: it is committed with each of them, when its user may have moved it away."""

    def without(snapshot: SubtaskSnapshot) -> SubtaskSnapshot:
        # 11.16: an earlier checkpoint of the log has named the others.
        kept = [c for c in snapshot.committables if c.prepared_for > newest_id]
        if len(kept) == len(snapshot.committables):
            return snapshot
        return msgspec.structs.replace(snapshot, committables=kept)

    return [without(snapshot) for snapshot in subtasks] if newest_id else subtasks
