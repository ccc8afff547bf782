"""Makes checkpoints canonical: manages the job's log and its fences, and decides when objects may be deleted.

The log is dense from its base on (`job_log`); a position belongs to the driver that created its entry first. A driver
appends its fence before it reads what to restore, so every older driver loses a position sooner or later, and stops
without deleting anything. A checkpoint is canonical from the moment its entry exists, and its `_metadata` is durable
before that.

Nothing here touches a store. A conversation with it is a generator: it yields an operation, receives the answer, and
returns its result. The caller runs one conversation of a job's at a time, in the order they were begun.

`Unknown` is no proof that an operation was not carried out. "Exists" is no proof that another driver was first: our own
first attempt may have succeeded although its reply was lost. So both are resolved by asking again, and by comparing
what is there with what we meant.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar

from penstock.protocol.log.job_log import (
    ATTEMPTS_MAX,
    LOG_EXISTS,
    Fenced,
    JobLog,
    LogExists,
    LogGone,
    LogRefused,
    OutcomeUnknown,
    PublicationError,
    wait_ms,
)
from penstock.protocol.log.log_operations import (
    Conversation,
    CreateMetadata,
    Damaged,
    Done,
    Gone,
    ListMetadata,
    Missing,
    ReadMetadata,
    Unknown,
    Wait,
)
from penstock.protocol.log.retention import Retained, Retention
from penstock.protocol.machine import Cell, MachineState, Story, Table, step
from penstock.protocol.values.log_entries import CheckpointEntry, Ended, Fence
from penstock.protocol.values.metadata import Metadata


class PublicationState(MachineState):
    """Lists the driver's conversations with the log, one at a time."""

    NEW = "new"
    TAKING_OVER = "taking over"
    """The fence is being appended, then what lies below it is read."""
    OWNER = "owner"
    """The log is ours as far as we know, and nothing is under way."""
    WRITING = "writing metadata"
    APPENDING = "appending"
    """A checkpoint's metadata is durable; its entry may exist."""
    ENDING = "ending"
    ENDED = "ended"
    LOST = "lost"
    """Another driver owns the job, or it is not known who does: nothing may be deleted any more."""


_NEW, _TAKING, _OWNER, _WRITING, _APPENDING, _ENDING, _ENDED, _LOST = PublicationState
_REFUSED = {_LOST: Cell("raise the error again", (_LOST,))}

TABLE: Table[PublicationState] = Table(
    "the publication",
    {
        "take over": {_NEW: Cell("append a fence, read what lies below it", (_TAKING,))},
        "taken over": {_TAKING: Cell("keep what the newest entry retains", (_OWNER,))},
        "publish": {
            _OWNER: Cell("write the metadata; a newer one is in the log: skip it", (_OWNER, _WRITING)),
            **_REFUSED,
        },
        "metadata written": {_WRITING: Cell("append the entry", (_APPENDING,))},
        "metadata refused": {_WRITING: Cell("fail the checkpoint; the id was taken: name a free one", (_OWNER,))},
        "entry counts": {
            _APPENDING: Cell("name what may be deleted", (_OWNER,)),
            _ENDING: Cell("name what may be deleted", (_ENDED,)),
        },
        "entry refused": {_APPENDING: Cell("fail the checkpoint; the position stays free", (_OWNER,))},
        "check": {_OWNER: Cell("list the log", (_OWNER,)), **_REFUSED},
        "end": {_OWNER: Cell("append the end", (_ENDING,)), **_REFUSED},
        "lost": {
            state: Cell("delete nothing any more", (_LOST,))
            for state in (_TAKING, _OWNER, _WRITING, _APPENDING, _ENDING)
        },
    },
)


__all__ = [
    "LOG_EXISTS", "CheckpointUnreadable", "Closed", "Fenced", "IdTaken", "LogGone", "LogRefused", "NewCheckpoint",
    "NotPublished", "OutcomeUnknown", "Publication", "PublicationError", "Published", "Subsumed", "TakenOver",
    "unrestorable",
]  # fmt: skip

T = TypeVar("T")

MISSING_ATTEMPTS_MAX = 4
"""The number of times that a missing object is looked for: once the fence stands nobody deletes, but a shared file
system may be a moment behind."""


# ---- results ----------------------------------------------------------------------------------------------------


class CheckpointUnreadable(PublicationError):
    """Signals that the newest checkpoint is missing or damaged."""


@dataclass(frozen=True)
class TakenOver:
    """Holds the result of a takeover. `newest` is the canonical checkpoint to restore, with its metadata; None: the job
    has none. `ended`: how an earlier driver ended the job, if the log says so after the newest checkpoint.
    `restored_from`: see `Fence`. `had_checkpoints`: there is one in the log, kept or not.
    """

    fence: int
    newest: CheckpointEntry | None
    metadata: Metadata | None
    ended: Ended | None
    restored_from: str | None
    next_checkpoint_id: int
    had_checkpoints: bool = False


@dataclass(frozen=True)
class NewCheckpoint:
    """Holds a checkpoint that is to be published: its metadata, encoded as `data` for `path`."""

    metadata: Metadata
    path: str
    data: bytes
    crc: int


@dataclass(frozen=True)
class Published:
    """Holds a published checkpoint. `deletable` may be deleted now: no retained checkpoint names it. So may the entries
    of the log at `shortened`, and `claimed`, the path of another job's checkpoint, which this one has subsumed.
    """

    entry: CheckpointEntry
    deletable: tuple[str, ...]
    shortened: tuple[int, ...] = ()
    claimed: str | None = None


@dataclass(frozen=True)
class Closed:
    """Reports that the job's end is in the log. The fields name the objects that may be deleted, as in `Published`."""

    deletable: tuple[str, ...]
    shortened: tuple[int, ...]
    claimed: str | None = None


@dataclass(frozen=True)
class NotPublished:
    """Reports that there is no log entry, and never will be."""

    detail: str


@dataclass(frozen=True)
class IdTaken:
    """Reports that metadata of this id exist already: a driver that was fenced meanwhile had written them. `next_id` is
    free.
    """

    detail: str
    next_id: int


@dataclass(frozen=True)
class Subsumed:
    """Reports that a newer checkpoint is in the log already, or the final one, which nothing follows."""


@dataclass
class Publication:
    """Publishes checkpoints for one driver. `wall_ms`, `host`, `pid` and `job_name` describe it to people;
    `directory` is the job's, for messages.
    """

    incarnation: str
    retained_max: int
    wall_ms: int = 0
    host: str = ""
    pid: int = 0
    directory: str = ""
    job_name: str = ""
    entries_kept: int | None = None
    state: PublicationState = field(default=PublicationState.NEW, init=False)
    retention: Retention = field(init=False)
    fence: int | None = field(default=None, init=False)
    newest_id: int = field(default=0, init=False)
    log: JobLog = field(init=False)
    story: Story = field(init=False)

    def __post_init__(self) -> None:
        self.log = JobLog(self.incarnation, self.entries_kept)
        self.story = Story()
        self.retention = Retention(self.retained_max)
        self._lost_by: PublicationError | None = None
        self._has_final = False

    @property
    def takeover(self) -> str | None:
        """Return the message that another driver owns the job, whichever conversation has learned that."""
        return str(self._lost_by) if isinstance(self._lost_by, Fenced | LogExists) else None

    def _step(self, event: str, after: PublicationState) -> None:
        def become() -> list[object]:
            self.state = after
            return []

        step(TABLE, self.story, event, "the log", None, lambda: self.state, become)

    def _as_owner(self, conversation: Conversation[T]) -> Conversation[T]:
        """Run a conversation as the owner of the log. After the first error of any, raise it for all others."""
        if self._lost_by is not None:
            raise self._lost_by
        try:
            return (yield from conversation)
        except PublicationError as error:
            self._lost_by = error
            self._step("lost", PublicationState.LOST)
            raise

    # ---- taking over --------------------------------------------------------------------------------------------

    def take_over(
        self, *, resume: bool, restored_from: str | None = None, claims: bool = False
    ) -> Conversation[TakenOver]:
        """Appends the fence, then finds the newest checkpoint below it. `claims`: the job owns `restored_from`.

        A fresh start (`resume` False) into a log that has entries raises `LogRefused`, and so does a store that lets
        an object be created twice."""

        self._step("take over", PublicationState.TAKING_OVER)
        taken = yield from self._as_owner(self._take_over(resume, restored_from, restored_from if claims else None))
        self._step("taken over", PublicationState.OWNER)
        return taken

    def _take_over(self, resume: bool, restored_from: str | None, claim: str | None) -> Conversation[TakenOver]:
        def fence_at(sequence: int, base: int, claimed: str | None) -> Fence:
            who = (self.incarnation, self.wall_ms, self.host, self.pid)
            return Fence(sequence, *who, restored_from, base, claimed or claim, self.job_name)

        fence = yield from self.log.take_over(fence_at, resume=resume)
        self.fence = fence.sequence
        self.retention.claimed = fence.claimed
        return (yield from self._read_below(fence))

    def _read_below(self, fence: Fence) -> Conversation[TakenOver]:
        ended: Ended | None = None
        newest: CheckpointEntry | None = None
        restored_from = fence.restored_from
        for sequence in range(fence.sequence - 1, fence.base - 1, -1):
            entry = yield from self.log.read(sequence)
            if isinstance(entry, CheckpointEntry):
                newest = entry
                break
            if isinstance(entry, Ended) and ended is None:
                ended = entry
            if isinstance(entry, Fence) and restored_from is None:
                restored_from = entry.restored_from
        metadata: Metadata | None = None
        if newest is not None:
            self.newest_id = newest.checkpoint_id
            kept = newest.retained if ended is None else ended.retained
            if newest.path in kept:
                metadata = yield from self._read_newest(newest)
            yield from self._adopt(kept, newest, metadata)
        known: list[int] = yield from self.log.ask_until_known(ListMetadata())
        next_id = max([self.newest_id, *known]) + 1
        restorable = newest if metadata is not None else None
        return TakenOver(
            fence.sequence, restorable, metadata, ended, restored_from, next_id, had_checkpoints=newest is not None
        )

    def _read_newest(self, newest: CheckpointEntry) -> Conversation[Metadata]:
        answer: Any = None
        for attempt in range(ATTEMPTS_MAX):
            answer = yield ReadMetadata(newest.path, newest.metadata_crc)
            if isinstance(answer, Metadata):
                return answer
            if isinstance(answer, Missing):
                # 11.7: a newer owner may have published, and deleted it. Without this: a driver that was fenced while
                # it started calls the checkpoint damaged.
                yield from self.log.check_ours()
            if isinstance(answer, Damaged) or (isinstance(answer, Missing) and attempt + 1 == MISSING_ATTEMPTS_MAX):
                break
            yield Wait(wait_ms(attempt))
        if isinstance(answer, Unknown):
            raise OutcomeUnknown(
                f"checkpoint {newest.checkpoint_id}, the newest of this job, cannot be read now: {answer.detail}. "
                "Nothing says that it is damaged: start the job again when the checkpoint storage answers"
            )
        what = answer.detail if isinstance(answer, (Damaged, Gone)) else f"{newest.path} does not exist"
        raise CheckpointUnreadable(
            unrestorable(newest.checkpoint_id, what, newest.path, newest.retained, self.directory)
        )

    def _adopt(self, kept: list[str], newest: CheckpointEntry, metadata: Metadata | None) -> Conversation[None]:
        for path in kept:
            found: Any = metadata
            if path != newest.path:
                found = yield ReadMetadata(path)
            known = Retained.of(path, found) if isinstance(found, Metadata) else Retained(-1, path, None)
            self.retention.retained.append(known)

    # ---- publishing ---------------------------------------------------------------------------------------------

    def publish(self, checkpoint: NewCheckpoint) -> Conversation[Published | NotPublished | IdTaken | Subsumed]:
        """Write the checkpoint's metadata, then its log entry. Raises `PublicationError`."""
        # 11.15: no checkpoint follows a newer one.
        is_older = checkpoint.metadata.checkpoint_id <= self.newest_id
        # 9.4: and none follows the final one.
        is_subsumed = self._lost_by is None and (is_older or self._has_final)
        self._step("publish", self._after(PublicationState.OWNER if is_subsumed else PublicationState.WRITING))
        return Subsumed() if is_subsumed else (yield from self._as_owner(self._publish(checkpoint)))

    def _publish(self, checkpoint: NewCheckpoint) -> Conversation[Published | NotPublished | IdTaken]:
        metadata, log = checkpoint.metadata, self.log
        failure = yield from self._write_metadata(checkpoint)
        if failure is not None:
            self._step("metadata refused", PublicationState.OWNER)
            return failure
        self._step("metadata written", PublicationState.APPENDING)
        kept = self.retention.with_newest(Retained.of(checkpoint.path, metadata))
        entry = CheckpointEntry(
            log.next_sequence,
            self.incarnation,
            metadata.fence,
            metadata.counter,
            metadata.checkpoint_id,
            checkpoint.path,
            checkpoint.crc,
            [r.path for r in kept],
            metadata.is_final,
            log.base_after(log.next_sequence),
            self.retention.claimed,
            metadata.savepoint,
        )
        refused = yield from log.append_next(entry, gives_up=True)
        if refused is not None:
            self._step("entry refused", PublicationState.OWNER)
            return NotPublished(refused.detail)
        self._step("entry counts", PublicationState.OWNER)
        self.newest_id, self._has_final = metadata.checkpoint_id, metadata.is_final
        deletable = self.retention.replace(kept)
        return Published(entry, deletable, log.below_base, self.retention.take_subsumed_claim())

    def _write_metadata(self, checkpoint: NewCheckpoint) -> Conversation[NotPublished | IdTaken | None]:
        """Write a checkpoint's metadata; return None once they are durable, else the reason. Another driver may have
        used the id: one that was fenced, or a newer one that we do not know of yet."""
        answer = yield CreateMetadata(checkpoint.path, checkpoint.data)
        if isinstance(answer, Done):
            return None
        if isinstance(answer, Unknown):
            first = answer.detail
            answer = yield CreateMetadata(checkpoint.path, checkpoint.data)
            if isinstance(answer, Done):
                return None
            if isinstance(answer, Unknown):
                return NotPublished(f"{checkpoint.path} could not be written: {first}")
        if isinstance(answer, Gone):
            return NotPublished(f"{checkpoint.path} could not be written: {answer.detail}")
        found = yield ReadMetadata(checkpoint.path, checkpoint.crc)
        if found == checkpoint.metadata:
            return None
        known: list[int] = yield from self.log.ask_until_known(ListMetadata())
        return IdTaken(
            f"{checkpoint.path} exists already, written by another driver",
            max([checkpoint.metadata.checkpoint_id, *known]) + 1,
        )

    def end(self, state: str, keep: bool) -> Conversation[Closed]:
        """End the job. Prove that this driver still owned it before anything is deleted. Return the objects that may be
        deleted. Raises `PublicationError`.
        """
        # 11.12: a job that failed for good keeps its newest checkpoint (`keep`).
        self._step("end", self._after(PublicationState.ENDING))
        return (yield from self._as_owner(self._end(state, keep)))

    def _end(self, state: str, keep: bool) -> Conversation[Closed]:
        kept, log = list(self.retention.retained) if keep else [], self.log
        paths = [retained.path for retained in kept]
        yield from log.append_next(
            Ended(log.next_sequence, self.incarnation, state, paths, log.base, self.retention.claimed, self.job_name)
        )
        self._step("entry counts", PublicationState.ENDED)
        deletable = self.retention.replace(kept)
        return Closed(deletable, log.below_base, self.retention.take_claim_at_end(self.newest_id > 0))

    def check_ours(self) -> Conversation[None]:
        """Raise `Fenced` if another driver has taken over meanwhile. Ask before a missing file is called damage: the
        new owner deletes what it does not need any more."""
        self._step("check", self._after(PublicationState.OWNER))
        yield from self._as_owner(self.log.check_ours())

    def _after(self, state: PublicationState) -> PublicationState:
        """Return the state that follows if the log is not lost already."""
        return PublicationState.LOST if self._lost_by is not None else state


def unrestorable(checkpoint_id: int, detail: str, path: str, retained: list[str], directory: str) -> str:
    """Return the message for a job whose newest checkpoint, with its metadata at `path`, is damaged."""
    older = [f"{directory or '<job directory>'}/{other.rpartition('/')[0]}" for other in retained if other != path]
    way_out = (
        f"An older one is retained: start a new job from it by its explicit path, -s {' or -s '.join(older)}; rows "
        "that were put out after it will be put out again."
        if older
        else "No older checkpoint is retained (execution.checkpointing.num-retained keeps more)."
    )
    return (
        f"checkpoint {checkpoint_id}, the newest of this job, cannot be restored: {detail}. It is not skipped "
        f"by itself, because its output may be committed. {to_give_up_rows(checkpoint_id, detail)}{way_out}"
    )


def to_give_up_rows(checkpoint_id: int, detail: str) -> str:
    """Return the advice for a checkpoint of which only rows in flight are damaged; "" if `detail` names other data."""
    if "in-flight data" not in detail:
        return ""
    option = "execution.state-recovery.without-channel-state.checkpoint-id"
    channels = "penstock.state-recovery.without-channel-state.channels"
    return (
        f"To give up the rows that were in flight, and restore all else, set {option} to {checkpoint_id}; and "
        f"{channels} to the channel, to give up only its rows. "
    )
