"""How a checkpoint becomes canonical: the job's log, its fences, and what may be deleted when.

The log is dense; a position belongs to whoever created its entry first. A driver appends its fence before it reads
what to restore, so every older driver loses a position sooner or later, and stops without deleting anything. A
checkpoint is canonical from the moment its entry exists, and its `_metadata` is durable before that.

Nothing here touches a store. A conversation with it is a generator: it yields an operation, is sent the answer, and
returns its result. Whoever drives it carries out one conversation of a job's at a time, in the order they were begun.

`Unknown` is no proof that an operation was not carried out. "Exists" is no proof that somebody else was first: our own
first attempt may have gone through though its reply was lost. So both are settled by asking again, and by comparing
what stands there with what we meant.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from penstock.protocol.log_entries import CheckpointEntry, Ended, Fence, LogEntry
from penstock.protocol.log_operations import (
    AppendEntry,
    Conversation,
    CreateMetadata,
    Damaged,
    Done,
    Exists,
    ListLog,
    ListMetadata,
    Missing,
    ReadEntry,
    ReadMetadata,
    Refused,
    Unknown,
    Wait,
)
from penstock.protocol.snapshot import Metadata

ATTEMPTS_MAX = 20
"""How often an operation of unknown outcome is repeated; with the waits below that is about half a minute."""

MISSING_ATTEMPTS_MAX = 4
"""How often an object that is missing is looked for: once the fence stands nobody deletes, but a shared file system may
be a moment behind."""

WAIT_FIRST_MS = 50.0
WAIT_MAX_MS = 2000.0


# ---- results ----------------------------------------------------------------------------------------------------


class PublicationError(Exception):
    """Ends the driver's ownership of the job. Nothing may be deleted after it."""


class Fenced(PublicationError):
    """Another driver owns the job."""


LOG_EXISTS = (
    "the job's directory has a log already: another driver has run this job, or runs it now. "
    "To resume it (which stops the other one) pass the job's directory with -s, that is the option "
    "execution.state-recovery.path; to start afresh give another pipeline.job-id or checkpoint directory."
)


class LogRefused(PublicationError):
    """The job may not be started or resumed like this; the message says what to do."""


class OutcomeUnknown(PublicationError):
    """The store did not say for too long whether an operation was carried out."""


class CheckpointUnreadable(PublicationError):
    """The newest checkpoint is missing or damaged."""


@dataclass(frozen=True)
class Retained:
    """A completed checkpoint that is kept. `segments` None: its metadata could not be read."""

    checkpoint_id: int
    path: str
    segments: frozenset[str] | None


@dataclass(frozen=True)
class TakenOver:
    """`newest` is the canonical checkpoint to restore, with its metadata; None: the job has none. `ended`: how an
    earlier driver ended the job, if the log says so after the newest checkpoint. `restored_from`: see `Fence`.
    `had_checkpoints`: there is one in the log, whether it was kept or not."""

    fence: int
    newest: CheckpointEntry | None
    metadata: Metadata | None
    ended: Ended | None
    restored_from: str | None
    next_checkpoint_id: int
    had_checkpoints: bool = False


@dataclass(frozen=True)
class NewCheckpoint:
    metadata: Metadata
    path: str
    data: bytes
    crc: int


@dataclass(frozen=True)
class Published:
    """`deletable` may go now: no retained checkpoint names it."""

    entry: CheckpointEntry
    deletable: tuple[str, ...]


@dataclass(frozen=True)
class NotPublished:
    """There is no log entry, and never will be."""

    detail: str


@dataclass(frozen=True)
class Subsumed:
    """A newer checkpoint is in the log already."""


@dataclass
class Publication:
    """One driver's side of a job's log. `wall_ms`, `host` and `pid` describe it to people; `directory` is the job's,
    for messages."""

    incarnation: str
    retained_max: int
    wall_ms: int = 0
    host: str = ""
    pid: int = 0
    directory: str = ""
    retained: list[Retained] = field(default_factory=list, init=False)
    fence: int | None = field(default=None, init=False)
    newest_id: int = field(default=0, init=False)
    _next_sequence: int = field(default=0, init=False)
    _lost_by: LogEntry | None = field(default=None, init=False)

    # ---- taking over --------------------------------------------------------------------------------------------

    def take_over(self, *, resume: bool, restored_from: str | None = None) -> Conversation[TakenOver]:
        """Appends the fence, then finds the newest checkpoint below it.

        A fresh start (`resume` False) into a log that has entries raises `LogRefused`, and so does a store that lets
        an object be created twice."""
        positions: list[int] = yield from self._ask_until_known(ListLog())
        sequence = max(positions, default=-1) + 1
        if not resume and positions:
            raise LogRefused(LOG_EXISTS)
        while True:
            fence = Fence(sequence, self.incarnation, self.wall_ms, self.host, self.pid, restored_from)
            if (yield from self._append(fence)) is None:
                break
            if not resume:
                raise LogRefused(LOG_EXISTS)
            sequence += 1
        self.fence = sequence
        self._next_sequence = sequence + 1
        yield from self._probe(fence)
        return (yield from self._read_below(fence))

    def _probe(self, fence: Fence) -> Conversation[None]:
        for attempt in range(ATTEMPTS_MAX):
            answer = yield AppendEntry(fence)
            if isinstance(answer, Exists):
                return
            if isinstance(answer, Done):
                raise LogRefused(
                    "the checkpoint storage let an object be created that existed already. Without create-if-absent "
                    "two drivers could both own the job, so exactly-once cannot be promised there; use another "
                    "execution.checkpointing.dir."
                )
            yield Wait(_wait_ms(attempt))
        raise OutcomeUnknown(f"whether the checkpoint storage creates objects only if absent: {_detail(answer)}")

    def _read_below(self, fence: Fence) -> Conversation[TakenOver]:
        ended: Ended | None = None
        newest: CheckpointEntry | None = None
        restored_from = fence.restored_from
        for sequence in range(fence.sequence - 1, -1, -1):
            entry = yield from self._read_entry(sequence)
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
        known: list[int] = yield from self._ask_until_known(ListMetadata())
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
            if isinstance(answer, Damaged) or (isinstance(answer, Missing) and attempt + 1 == MISSING_ATTEMPTS_MAX):
                break
            yield Wait(_wait_ms(attempt))
        what = answer.detail if isinstance(answer, (Damaged, Unknown)) else f"{newest.path} does not exist"
        raise CheckpointUnreadable(
            unrestorable(newest.checkpoint_id, what, newest.path, newest.retained, self.directory)
        )

    def _adopt(self, kept: list[str], newest: CheckpointEntry, metadata: Metadata | None) -> Conversation[None]:
        for path in kept:
            found: Any = metadata
            if path != newest.path:
                found = yield ReadMetadata(path)
            if isinstance(found, Metadata):
                segments = frozenset(s.path for s in found.segments)
                self.retained.append(Retained(found.checkpoint_id, path, segments))
            else:
                self.retained.append(Retained(-1, path, None))

    # ---- publishing ---------------------------------------------------------------------------------------------

    def publish(self, checkpoint: NewCheckpoint) -> Conversation[Published | NotPublished | Subsumed]:
        metadata = checkpoint.metadata
        if self._lost_by is not None:
            raise self._fenced()
        if metadata.checkpoint_id <= self.newest_id:
            return Subsumed()
        failure = yield from self._write_metadata(checkpoint)
        if failure is not None:
            return NotPublished(failure)
        new = Retained(metadata.checkpoint_id, checkpoint.path, frozenset(s.path for s in metadata.segments))
        kept = [*self.retained, new][-max(self.retained_max, 1) :]
        entry = CheckpointEntry(
            self._next_sequence,
            self.incarnation,
            metadata.fence,
            metadata.counter,
            metadata.checkpoint_id,
            checkpoint.path,
            checkpoint.crc,
            [r.path for r in kept],
            metadata.is_final,
        )
        refused = yield from self._append_next(entry, gives_up=True)
        if refused is not None:
            return NotPublished(refused.detail)
        self.newest_id = metadata.checkpoint_id
        return Published(entry, self._replace_retained(kept))

    def _write_metadata(self, checkpoint: NewCheckpoint) -> Conversation[str | None]:
        """None when it is durable, else why not. Another driver that we do not know of yet may have used the id."""
        answer = yield CreateMetadata(checkpoint.path, checkpoint.data)
        if isinstance(answer, Done):
            return None
        if isinstance(answer, Unknown):
            first = answer.detail
            answer = yield CreateMetadata(checkpoint.path, checkpoint.data)
            if isinstance(answer, Done):
                return None
            if isinstance(answer, Unknown):
                return f"{checkpoint.path} could not be written: {first}"
        found = yield ReadMetadata(checkpoint.path, checkpoint.crc)
        if found == checkpoint.metadata:
            return None
        return f"{checkpoint.path} exists already, written by another driver"

    def end(self, state: str, keep: bool) -> Conversation[tuple[str, ...]]:
        """The job has ended. Proves that it still was ours before anything is deleted; returns what may be."""
        kept = list(self.retained) if keep else []
        yield from self._append_next(
            Ended(self._next_sequence, self.incarnation, state, [r.path for r in kept]),
        )
        return self._replace_retained(kept)

    def check_ours(self) -> Conversation[None]:
        """Raises `Fenced` where another driver has taken over meanwhile. Asked before a missing file is called damage:
        the new owner deletes what it needs no more."""
        found = yield ReadEntry(self._next_sequence)
        if isinstance(found, LogEntry) and found.incarnation != self.incarnation:
            self._lost_by = found
            raise self._fenced()

    def _replace_retained(self, kept: list[Retained]) -> tuple[str, ...]:
        dropped = [r for r in self.retained if r not in kept]
        self.retained = kept
        if any(r.segments is None for r in kept):
            return tuple(r.path for r in dropped)
        named = frozenset[str]().union(*(r.segments or () for r in kept))
        segments = frozenset[str]().union(*(r.segments or () for r in dropped)) - named
        return (*(r.path for r in dropped), *sorted(segments))

    # ---- the log ------------------------------------------------------------------------------------------------

    def _append_next(self, entry: LogEntry, gives_up: bool = False) -> Conversation[Refused | None]:
        """At the position that is ours if nobody has taken over."""
        if self._lost_by is not None:
            raise self._fenced()
        found = yield from self._append(entry, gives_up)
        if isinstance(found, Refused):
            return found
        self._lost_by = found
        if self._lost_by is not None:
            raise self._fenced()
        self._next_sequence += 1
        return None

    def _append(self, entry: LogEntry, gives_up: bool = False) -> Conversation[LogEntry | Refused | None]:
        """None when the entry stands at its position, else the entry that stands there instead. `gives_up`: an entry
        that was refused, and of which nothing can arrive later, is not tried again: its checkpoint fails, and the job
        goes on with the position free. [A full disk: the job waits half a minute for its log, and then ends.]"""
        answer: Any = None
        is_certain = gives_up
        for attempt in range(ATTEMPTS_MAX):
            answer = yield AppendEntry(entry)
            if isinstance(answer, Done):
                return None
            if isinstance(answer, Refused) and is_certain:
                return answer
            is_certain = False
            if isinstance(answer, Exists):
                found = yield ReadEntry(entry.sequence)
                if isinstance(found, LogEntry):
                    return None if found == entry else found
                answer = found
            yield Wait(_wait_ms(attempt))
        raise OutcomeUnknown(
            f"whether entry {entry.sequence} of the job's log was written could not be found out: {_detail(answer)}. "
            "Everything was kept; resume the job from its directory when the storage answers again."
        )

    def _read_entry(self, sequence: int) -> Conversation[LogEntry]:
        answer: Any = None
        for attempt in range(ATTEMPTS_MAX):
            answer = yield ReadEntry(sequence)
            if isinstance(answer, LogEntry):
                return answer
            if isinstance(answer, Damaged):
                break
            yield Wait(_wait_ms(attempt))
        raise OutcomeUnknown(f"entry {sequence} of the job's log cannot be read: {_detail(answer)}")

    def _ask_until_known(self, operation: ListLog | ListMetadata) -> Conversation[Any]:
        answer: Any = None
        for attempt in range(ATTEMPTS_MAX):
            answer = yield operation
            if not isinstance(answer, Unknown):
                return answer
            yield Wait(_wait_ms(attempt))
        raise OutcomeUnknown(f"the job's directory cannot be listed: {_detail(answer)}")

    def _fenced(self) -> Fenced:
        other = self._lost_by
        who = f"the driver of process {other.pid} on {other.host}" if isinstance(other, Fence) else "another driver"
        sequence = "?" if other is None else other.sequence
        return Fenced(
            f"this job was taken over by {who} (entry {sequence} of its log). This driver stops; "
            "it has published and committed nothing since, and deletes nothing."
        )


def unrestorable(checkpoint_id: int, detail: str, path: str, retained: list[str], directory: str) -> str:
    """The message for a job whose newest checkpoint, with its metadata at `path`, is damaged."""
    older = [f"{directory or '<job directory>'}/{other.rpartition('/')[0]}" for other in retained if other != path]
    way_out = (
        f"An older one is retained: start a new job from it by its explicit path, -s {' or -s '.join(older)}; rows "
        "that were put out after it will be put out again."
        if older
        else "No older checkpoint is retained (execution.checkpointing.num-retained keeps more)."
    )
    return (
        f"checkpoint {checkpoint_id}, the newest of this job, cannot be restored: {detail}. It is not skipped "
        f"by itself, because its output may be committed. {way_out}"
    )


def _wait_ms(attempt: int) -> float:
    return min(WAIT_FIRST_MS * float(2**attempt), WAIT_MAX_MS)


def _detail(answer: Any) -> str:
    return answer.detail if isinstance(answer, (Unknown, Refused, Damaged)) else "it is missing"
