"""A job's directory as the JobMaster uses it: its log, what is deleted when, the sweep, and storage in memory.

Deleting is always of exact names and in the background. Once another driver owns the job, nothing is deleted any more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from penstock.common.clock import Clock
from penstock.jobmaster.identity import JobIdentity, OpenStore
from penstock.jobmaster.log import LogConversations
from penstock.jobmaster.ports import BlockingWork
from penstock.jobmaster.restore import RestorePoint, open_own
from penstock.jobmaster.settings import JobSettings
from penstock.protocol.log.publication import Publication
from penstock.protocol.values.elements import Generation
from penstock.protocol.values.messages import StoreReply, StoreRequest
from penstock.storage.layout import MetadataName, log_path, metadata_path, orphans, parse
from penstock.storage.memory import MemoryStore
from penstock.storage.metadata import read_metadata
from penstock.storage.store import ObjectStore, StoreError


class JobStore:
    """`store`, `publication` and `conversations` are None until `opened`, and for a job without checkpoints."""

    def __init__(
        self,
        settings: JobSettings,
        identity: JobIdentity,
        incarnation: str,
        clock: Clock,
        work: BlockingWork,
        open_store: OpenStore,
        host: str,
        pid: int,
        warn: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._identity = identity
        self._work = work
        self._clock = clock
        self._open_store = open_store
        self._warn = warn
        self._memory: MemoryStore | None = None
        self.store: ObjectStore | None = None
        self.publication: Publication | None = None
        self.conversations: LogConversations | None = None
        if settings.checkpointing:
            directory = identity.directory or ""
            self.publication = Publication(incarnation, settings.retained_max, clock.wall_ms(), host, pid, directory)
        self.is_owner = True
        self._claimed: tuple[str, list[str]] | None = None
        self._sweep: tuple[float, Generation] | None = None
        self._next_sweep: Generation | None = None

    @property
    def fence(self) -> int:
        publication = self.publication
        return 0 if publication is None or publication.fence is None else publication.fence

    @property
    def retained_paths(self) -> list[str]:
        return [] if self.publication is None else [r.path for r in self.publication.retained]

    # ---- opening ------------------------------------------------------------------------------------------------

    def open(self, opened: Callable[[], None], failed: Callable[[str], None]) -> None:
        """Only for a job with checkpoints."""

        def done(result: Any) -> None:
            if isinstance(result, Exception):
                failed(str(result))
                return
            self.store = result
            self.conversations = LogConversations(result, self._work, self._clock)
            opened()

        directory = self._identity.directory
        if directory is None:
            self._memory = MemoryStore()
            done(self._memory)
        else:
            self._work.submit("open storage", lambda: open_own(self._open_store, directory), done)

    # ---- deleting -----------------------------------------------------------------------------------------------

    def delete(self, paths: Sequence[str]) -> None:
        store = self.store
        if store is not None and paths and self.is_owner:
            self._work.submit("delete", lambda: _delete(store, paths), self._deleted)

    def _deleted(self, result: Any) -> None:
        if isinstance(result, Exception):
            self._warn(f"files that are not needed any more could not be deleted: {result}")

    def claim(self, point: RestorePoint) -> None:
        """The checkpoint that this job started from is its own now: deleted when it is subsumed."""
        assert point.root is not None
        paths = [metadata_path(point.metadata.checkpoint_id), *(s.path for s in point.metadata.segments)]
        self._claimed = (point.root, paths)

    def delete_unneeded(self, deletable: Sequence[str], shortened: Sequence[int]) -> None:
        """Objects that no retained checkpoint names, and positions below the log's base."""
        self.delete([*deletable, *map(log_path, shortened)])

    def on_published(self, deletable: Sequence[str], shortened: Sequence[int]) -> None:
        self.delete_unneeded(deletable, shortened)
        publication, claimed = self.publication, self._claimed
        if claimed is not None and publication is not None and len(publication.retained) >= publication.retained_max:
            self._claimed = None
            root, paths = claimed
            self._work.submit("delete", lambda: _delete(self._open_store(root, False), paths), self._deleted)

    # ---- the sweep ----------------------------------------------------------------------------------------------

    def plan_sweep(self, running: Generation, now_ms: float) -> None:
        """What generations older than `running` left behind goes after the grace time. A job that restarts all the
        time must not put off the sweep for ever, so one that is planned stays, and the next follows it."""
        if self.store is None:
            return
        if self._sweep is None:
            self._sweep = (now_ms + self._settings.sweep_grace_ms, running)
        else:
            self._next_sweep = running

    def next_deadline_ms(self) -> float | None:
        deadlines = [None if self._sweep is None else self._sweep[0]]
        if self.conversations is not None:
            deadlines.append(self.conversations.next_deadline_ms())
        return min((d for d in deadlines if d is not None), default=None)

    def on_time(self, now_ms: float) -> None:
        if self.conversations is not None:
            self.conversations.on_time(now_ms)
        if self._sweep is not None and self._sweep[0] <= now_ms:
            _, running = self._sweep
            following, self._next_sweep, self._sweep = self._next_sweep, None, None
            if following is not None:
                self.plan_sweep(following, now_ms)
            self._begin_sweep(running)

    def sweep_at_end(self, swept: Callable[[], None]) -> None:
        """The job has ended, and its slots are gone: what they left of this generation, too, goes at once."""
        self._sweep = self._next_sweep = None
        self._begin_sweep(Generation(self.fence + 1, 0))
        conversations = self.conversations
        assert conversations is not None
        conversations.when_idle(lambda: self._after_all_work(swept))

    def _after_all_work(self, done: Callable[[], None]) -> None:
        """Once what has been handed out, and what that hands out in turn, is done: a sweep lists, then deletes."""
        self._work.submit("end", lambda: None, lambda _: self._work.submit("end", lambda: None, lambda _: done()))

    def _begin_sweep(self, running: Generation) -> None:
        """Between the checkpoints' publications: what is retained must not change while it is looked at."""
        store, publication, conversations = self.store, self.publication, self.conversations
        if store is None or publication is None or conversations is None or not self.is_owner:
            return

        def listed(result: Any) -> None:
            if isinstance(result, Exception):
                self._warn(f"the job's directory could not be swept: {result}")
                return
            if any(r.segments is None for r in publication.retained):
                return
            paths, unpublished = result
            named = {path for r in publication.retained for path in (r.path, *(r.segments or ()))}
            found = orphans(paths, named, running, publication.newest_id)
            self.delete([*found, *(path for path in unpublished if path not in named)])

        def look() -> tuple[list[str], list[str]]:
            return _look_around(store, publication.newest_id, running)

        conversations.when_idle(lambda: self._work.submit("sweep", look, listed))

    # ---- storage in the driver's memory -------------------------------------------------------------------------

    def serve(self, request: StoreRequest) -> StoreReply:
        memory = self._memory
        if memory is None:
            return StoreReply(request.request, None, "checkpoints of this job are not stored in the driver's memory")
        try:
            if request.data is None:
                length_bytes = None if request.length_bytes < 0 else request.length_bytes
                return StoreReply(request.request, memory.get(request.path, request.offset, length_bytes))
            limit = self._settings.object_bytes_max
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


def _look_around(store: ObjectStore, newest_id: int, running: Generation) -> tuple[list[str], list[str]]:
    """All objects of the job, and those of them that are metadata with a number above the newest published one, and
    of an older generation than `running`: a fenced driver wrote it before it found that it had lost the log."""
    paths = store.list("")
    unpublished = []
    for path in paths:
        name = parse(path)
        if isinstance(name, MetadataName) and name.checkpoint_id > newest_id:
            with suppress(StoreError):
                metadata = read_metadata(store, path)
                if Generation(metadata.fence, metadata.counter) < running:
                    unpublished.append(path)
    return paths, unpublished


def _delete(store: ObjectStore, paths: Sequence[str]) -> None:
    """Goes on with the others where one cannot be deleted, and tries again once; raises for the first that stays."""
    failed: StoreError | None = None
    for path in paths:
        try:
            try:
                store.delete(path)
            except StoreError:
                store.delete(path)
        except StoreError as error:
            failed = failed or error
    if failed is not None:
        raise failed
