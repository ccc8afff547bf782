"""Holds a job's directory for the JobMaster: opens it, deletes in it, looks around in it; and storage in memory.

`penstock.protocol.log.retention` decides what is deleted. Deleting is always of exact names and in the background. Once
another driver owns the job, nothing is deleted any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec

from penstock.common.clock import Clock
from penstock.jobmaster.current_job import CurrentJob
from penstock.jobmaster.identity import CheckpointToStartFrom
from penstock.jobmaster.ports import BlockingWork, MasterPorts
from penstock.protocol.driver.driver_machine import DriverMachine
from penstock.protocol.log.log_operations import (
    AppendEntry,
    Conversation,
    CreateMetadata,
    Damaged,
    Done,
    Exists,
    Gone,
    ListLog,
    ListMetadata,
    Missing,
    Operation,
    ReadEntry,
    ReadMetadata,
    Refused,
    Unknown,
    Wait,
)
from penstock.protocol.log.publication import Closed, Publication, PublicationError, Published
from penstock.protocol.log.retention import Found, FoundMetadata, FoundSegment, Sweep, SweepSchedule
from penstock.protocol.values.elements import Barrier, Generation
from penstock.protocol.values.messages import StoreReply, StoreRequest
from penstock.storage.layout import LOG_FOLDER, SHARED_FOLDER, LogName, SegmentName, log_path, parse
from penstock.storage.log import encode_entry, read_entry
from penstock.storage.memory import MemoryStore
from penstock.storage.metadata_file import list_metadata, read_metadata
from penstock.storage.opening import OpenStore, open_own
from penstock.storage.sealed import DamagedObject, NewerFormat
from penstock.storage.store import (
    TEMPORARY_GRACE_S,
    DirectoryMissing,
    ObjectExists,
    ObjectMissing,
    ObjectStore,
    StoreError,
    StoreRefused,
    StoreRemoved,
)


def execute(store: ObjectStore, operation: Operation) -> Any:
    """Return the answer that `penstock.protocol.log.log_operations` lists for the operation. Blocks."""
    try:
        return _execute(store, operation)
    except ObjectExists:
        return Exists()
    except ObjectMissing:
        return Missing()
    except (DamagedObject, NewerFormat) as error:
        return Damaged(str(error))
    except StoreRemoved as error:
        return Gone(str(error))
    except StoreRefused as error:
        return Refused(str(error)) if isinstance(operation, AppendEntry) else Unknown(str(error))
    except StoreError as error:
        return Unknown(str(error))


def _execute(store: ObjectStore, operation: Operation) -> Any:
    match operation:
        case ListLog():
            return [name.sequence for path in store.list(LOG_FOLDER) if isinstance(name := parse(path), LogName)]
        case ListMetadata():
            return [name.checkpoint_id for name in list_metadata(store)]
        case ReadEntry(sequence):
            return read_entry(store, sequence)
        case AppendEntry(entry):
            store.create(log_path(entry.sequence), encode_entry(entry))
            return Done()
        case CreateMetadata(path, data):
            store.create(path, data)
            return Done()
        case ReadMetadata(path, crc):
            return read_metadata(store, path, crc)
        case Wait():
            return None


class LogConversations:
    """Holds the conversations with the log that wait, and has one of them at a time."""

    def __init__(self, store: ObjectStore, work: BlockingWork, clock: Clock) -> None:
        self._store = store
        self._work = work
        self._clock = clock
        self._waiting: deque[tuple[Conversation[Any], Callable[[Any], None]]] = deque()
        self._current: tuple[Conversation[Any], Callable[[Any], None]] | None = None
        self._resume_at_ms: float | None = None
        self._when_idle: list[Callable[[], None]] = []

    @property
    def is_idle(self) -> bool:
        """Return whether none runs, and none waits. Without the second half: what the end of one brings about takes the
        job for one without publications, and restarts it below the next."""
        return self._current is None and not self._waiting

    def begin(self, conversation: Conversation[Any], done: Callable[[Any], None]) -> None:
        """Begin a conversation. `done` gets its result, or the exception that ended it."""
        self._waiting.append((conversation, done))
        self._start_next()

    def when_idle(self, action: Callable[[], None]) -> None:
        """Call `action` at once if there is no conversation, else when the last one has ended."""
        if self.is_idle:
            action()
        else:
            self._when_idle.append(action)

    def next_deadline_ms(self) -> float | None:
        return self._resume_at_ms

    def on_time(self, now_ms: float) -> None:
        if self._resume_at_ms is not None and self._resume_at_ms <= now_ms:
            self._resume_at_ms = None
            self._advance(None)

    def _start_next(self) -> None:
        if self._current is None and self._waiting:
            self._current = self._waiting.popleft()
            self._advance(None)

    def _advance(self, answer: Any) -> None:
        assert self._current is not None
        conversation, _ = self._current
        if isinstance(answer, Exception):
            answer = Unknown(f"{type(answer).__name__}: {answer}")
        try:
            operation = conversation.send(answer)
        except StopIteration as stop:
            self._finish(stop.value)
            return
        except PublicationError as error:
            self._finish(error)
            return
        if isinstance(operation, Wait):
            self._resume_at_ms = self._clock.monotonic_ms() + operation.delay_ms
            return
        store = self._store
        self._work.submit(f"log: {type(operation).__name__}", lambda: execute(store, operation), self._advance)

    def _finish(self, result: Any) -> None:
        assert self._current is not None
        _, done = self._current
        self._current = None
        done(result)
        self._start_next()
        if self._current is None:
            actions, self._when_idle = self._when_idle, []
            for action in actions:
                action()


class JobDirectory:
    """Holds the directory of one job. `store`, `publication` and `conversations` are None until `opened`, and for a job
    without checkpoints.
    """

    def __init__(
        self,
        job: CurrentJob,
        machine: DriverMachine,
        ports: MasterPorts,
    ) -> None:
        self._job = job
        self._machine = machine
        self._work = ports.work
        self._clock = ports.clock
        self._open_store = ports.open_store
        self._warn = ports.console.warning
        self._memory: MemoryStore | None = None
        self.store: ObjectStore | None = None
        self.publication: Publication | None = None
        self.conversations: LogConversations | None = None
        settings = job.settings
        if settings.checkpointing:
            self.publication = Publication(
                job.incarnation,
                settings.retained_max,
                ports.clock.wall_ms(),
                ports.host,
                ports.pid,
                job.identity.directory or "",
                job.graph.name,
                ports.limits.log_entries,
            )
        self._sweeps = SweepSchedule(settings.sweep_grace_ms)

    @property
    def is_owner(self) -> bool:
        """Return whether this driver may delete what lies in the directory."""
        return self._machine.owns_log

    @property
    def fence(self) -> int:
        publication = self.publication
        return 0 if publication is None or publication.fence is None else publication.fence

    @property
    def takeover(self) -> str | None:
        """Return the message that another driver owns the job, once the log has said so."""
        return None if self.publication is None else self.publication.takeover

    @property
    def retained_paths(self) -> list[str]:
        return [] if self.publication is None else [r.path for r in self.publication.retention.retained]

    # ---- opening ------------------------------------------------------------------------------------------------

    def open(self, opened: Callable[[], None], failed: Callable[[str], None]) -> None:
        """Open the directory of a job with checkpoints."""

        def done(result: Any) -> None:
            if isinstance(result, Exception):
                failed(str(result))
                return
            self.store = result
            self.conversations = LogConversations(result, self._work, self._clock)
            opened()

        directory = self._job.identity.directory
        if directory is None:
            self._memory = MemoryStore()
            done(self._memory)
        else:
            self._work.submit("open storage", lambda: open_own(self._open_store, directory), done)

    # ---- deleting -----------------------------------------------------------------------------------------------

    def delete(self, paths: Sequence[str]) -> None:
        store = self.store
        if store is not None and paths and self.is_owner:
            self._work.submit("delete", lambda: store.delete_all(paths), self._deleted)

    def _deleted(self, result: Any) -> None:
        if isinstance(result, Exception):
            self._warn(f"files that are not needed any more could not be deleted: {result}")

    def claim(self, path: str) -> None:
        """Claim the checkpoint that this job started from: it is deleted when it is subsumed."""
        if self.publication is not None:
            self.publication.retention.claim(path)

    def delete_unneeded(self, allowed: Published | Closed) -> None:
        """Delete objects that no retained checkpoint names, positions below the log's base, and the claimed checkpoint
        if it is subsumed.
        """
        self.delete([*allowed.deletable, *map(log_path, allowed.shortened)])
        claimed = None if allowed.claimed is None else CheckpointToStartFrom.parse(allowed.claimed)
        if claimed is not None and self.is_owner:
            self._work.submit("delete", lambda: _delete_claimed(self._open_store, claimed), self._deleted_claimed)

    def _deleted_claimed(self, result: Any) -> None:
        if isinstance(result, Exception):
            self._warn(f"the checkpoint that this job was started from, and owns, could not be deleted: {result}")
        elif self.publication is not None:
            self.publication.retention.release_claim()

    def with_predecessor(self, barrier: Barrier) -> Barrier:
        """Return a new barrier with its predecessor, which is kept until `unpin_predecessor`."""
        if self.publication is None or not barrier.kind.has_predecessor:
            return barrier
        predecessor = self.publication.retention.pin_predecessor(barrier.checkpoint_id)
        predecessor_id = None if predecessor is None else predecessor.checkpoint_id
        return msgspec.structs.replace(barrier, predecessor_id=predecessor_id)

    def unpin_predecessor(self, checkpoint_id: int) -> None:
        """Delete the objects that only the pending checkpoint may have needed, which has ended."""
        if self.publication is not None:
            self.delete(self.publication.retention.unpin(checkpoint_id))

    def may_be_named_by(self, checkpoint_id: int) -> frozenset[str]:
        """Return the paths of the earlier segments that a pending checkpoint may name."""
        retention = None if self.publication is None else self.publication.retention
        predecessor = None if retention is None else retention.predecessor_of(checkpoint_id)
        return frozenset() if predecessor is None or predecessor.segments is None else predecessor.segments

    # ---- the sweep ----------------------------------------------------------------------------------------------

    def plan_sweep(self, running: Generation, now_ms: float) -> None:
        """Sweep the leftovers of generations older than `running`, after the grace time."""
        if self.store is not None:
            self._sweeps.plan(running, now_ms)

    def next_deadline_ms(self) -> float | None:
        deadlines = [self._sweeps.next_deadline_ms()]
        if self.conversations is not None:
            deadlines.append(self.conversations.next_deadline_ms())
        return min((d for d in deadlines if d is not None), default=None)

    def on_time(self, now_ms: float) -> None:
        if self.conversations is not None:
            self.conversations.on_time(now_ms)
        running = self._sweeps.take_due(now_ms)
        if running is not None:
            self._begin_sweep(running)

    def sweep_at_end(self, swept: Callable[[], None]) -> None:
        """Delete at once the leftovers of this generation's slots, too: the job has ended, and its slots have left."""
        self._sweeps.cancel()
        self._begin_sweep(Generation(self.fence + 1, 0), 0.0)
        conversations = self.conversations
        assert conversations is not None
        conversations.when_idle(lambda: self._after_all_work(swept))

    def _after_all_work(self, done: Callable[[], None]) -> None:
        """Call `done` after all queued work, and the work it enqueues, has finished (a sweep enqueues its deletes)."""
        self._work.submit("end", lambda: None, lambda _: self._work.submit("end", lambda: None, lambda _: done()))

    def _begin_sweep(self, running: Generation, grace_s: float = TEMPORARY_GRACE_S) -> None:
        """Begin a sweep between the checkpoints' publications: what is retained must not change meanwhile. `grace_s`:
        how old a half-written object must be to be deleted.
        """
        store, publication, conversations = self.store, self.publication, self.conversations
        if store is None or publication is None or conversations is None or not self.is_owner:
            return

        def look_around() -> None:
            sweep = Sweep(running, publication.newest_id)

            def looked(found: Any) -> None:
                if isinstance(found, Exception):
                    self._warn(f"the job's directory could not be swept: {found}")
                else:
                    self.delete(sweep.deletable(found, publication.retention.named))

            self._work.submit("sweep", lambda: _look_around(store, sweep, grace_s), looked)

        conversations.when_idle(look_around)

    # ---- storage in the driver's memory -------------------------------------------------------------------------

    def serve(self, request: StoreRequest) -> StoreReply:
        memory = self._memory
        if memory is None:
            return StoreReply(request.request, None, "checkpoints of this job are not stored in the driver's memory")
        try:
            if request.data is None:
                length_bytes = None if request.length_bytes < 0 else request.length_bytes
                return StoreReply(request.request, memory.get(request.path, request.offset, length_bytes))
            limit = self._job.settings.object_bytes_max
            if len(request.data) > limit:
                raise StoreError(
                    f"{request.path} has {len(request.data)} bytes, more than the {limit} that storage in the driver's "
                    "memory takes at once: store checkpoints in files (execution.checkpointing.dir), or raise "
                    "penstock.checkpoint-storage.jobmanager.max-size"
                )
            memory.put(request.path, [request.data])
            return StoreReply(request.request, b"")
        except StoreError as error:
            return StoreReply(request.request, None, str(error))


def _delete_claimed(open_store: OpenStore, claimed: CheckpointToStartFrom) -> None:
    """Delete a checkpoint or savepoint of another job, and a savepoint's directory if nothing else is in it.

    Its metadata go last. Without this: the driver is killed in between, and nobody knows the names of the segments.
    """
    try:
        store = open_store(claimed.directory, False)
    except DirectoryMissing:
        return  # an earlier driver, or somebody else, has deleted it
    try:
        metadata = read_metadata(store, claimed.metadata_path)
    except ObjectMissing:
        return
    store.delete_all([segment.path for segment in metadata.segments])
    store.delete(claimed.metadata_path)
    if claimed.is_savepoint:
        store.remove_if_empty()


def _look_around(store: ObjectStore, sweep: Sweep, grace_s: float) -> list[Found]:
    """Return all segments and metadata in the job's directory, and delete what is only half there."""
    store.sweep_temporary(grace_s)
    found: list[Found] = []
    for name in list_metadata(store):
        found.append(_read_if_asked(store, sweep, FoundMetadata(name.path, name.checkpoint_id)))
    for path in store.list(SHARED_FOLDER):
        if isinstance(segment := parse(path), SegmentName):
            found.append(FoundSegment(path, segment.generation))
    return found


def _read_if_asked(store: ObjectStore, sweep: Sweep, found: FoundMetadata) -> FoundMetadata:
    if sweep.must_read(found):
        with suppress(StoreError):
            metadata = read_metadata(store, found.path)
            return replace(found, generation=Generation(metadata.fence, metadata.counter))
    return found
