"""Finds out what the next generation is restored from, before it may be deployed.

The first time in a driver: open the store, take over the log, choose the checkpoint (the job's own newest; else the
one that it was told to start from; else none), check it against the program. After a failure: wait until no checkpoint
is being published, and take the newest. Both times it is made sure that the files are there.

A restart without any checkpoint starts from scratch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from penstock.graph.compatibility import IncompatibleGraph
from penstock.graph.job_graph import JobGraph
from penstock.jobmaster.assembly import committables_of
from penstock.jobmaster.commits import CommitQueue
from penstock.jobmaster.console import Console
from penstock.jobmaster.ending import Ending
from penstock.jobmaster.fit import fitted, nothing_to_resume
from penstock.jobmaster.identity import CheckpointToStartFrom, JobIdentity, OpenStore
from penstock.jobmaster.ports import BlockingWork
from penstock.jobmaster.restore import RestorePoint, check_log, damage, read_start
from penstock.jobmaster.settings import JobSettings
from penstock.jobmaster.store import JobStore
from penstock.protocol.checkpoint.coordinator import CheckpointCoordinator
from penstock.protocol.job.lifecycle import Lifecycle
from penstock.protocol.job.lifecycle_effects import FailureCause
from penstock.protocol.log.publication import PublicationError, TakenOver
from penstock.storage.metadata import encode_metadata
from penstock.storage.store import StoreRemoved


class Master(Protocol):
    """What a preparation needs of the JobMaster. Exactly one of the methods ends it."""

    graph: JobGraph
    identity: JobIdentity
    settings: JobSettings
    store: JobStore
    commits: CommitQueue
    coordinator: CheckpointCoordinator
    lifecycle: Lifecycle
    work: BlockingWork
    console: Console
    open_store: OpenStore
    restore_point: RestorePoint | None
    ending: Ending

    def adopt(self, graph: JobGraph) -> None:
        """The same job, with what it takes over from a checkpoint."""

    def prepared(self) -> None: ...

    def fail(self, cause: FailureCause) -> None: ...

    def abandon(self, error: str) -> None: ...

    def committed_all(self) -> None: ...

    def final_checkpoint_reached(self) -> None: ...


class Preparation:
    def __init__(self, master: Master) -> None:
        self._master = master
        self._is_first = True
        self._attempt = 0

    def begin(self) -> None:
        self._attempt += 1
        if not self._is_first:
            self._again()
            return
        self._is_first = False
        if self._master.settings.checkpointing:
            self._master.store.open(self._take_over, self._master.abandon)
        else:
            self._start_from(self._master.identity.start_from)

    def supersede(self) -> None:
        """Ignore the answers that a preparation still waits for: the job failed meanwhile, and prepares again."""
        self._attempt += 1

    # ---- the first time in this driver ----------------------------------------------------------------------------

    def _take_over(self) -> None:
        store, identity = self._master.store, self._master.identity
        assert store.publication is not None and store.conversations is not None
        start = None if identity.start_from is None else identity.start_from.path
        conversation = store.publication.take_over(resume=identity.resume, restored_from=start)
        store.conversations.begin(conversation, self._taken_over)

    def _taken_over(self, result: PublicationError | TakenOver) -> None:
        master = self._master
        if isinstance(result, PublicationError):
            master.store.is_owner = False
            master.abandon(str(result))
            return
        master.coordinator.skip_ids_to(result.next_checkpoint_id)
        ended = result.ended
        if result.metadata is not None:
            self._restore_first(RestorePoint(result.metadata, encode_metadata(result.metadata)))
        elif ended is not None and (ended.state == "FINISHED" or result.had_checkpoints):
            master.abandon(nothing_to_resume(master.identity.job_id, ended.state))
        elif result.restored_from is not None:
            self._start_from(CheckpointToStartFrom.parse(result.restored_from))
        else:
            master.prepared()

    def _start_from(self, start: CheckpointToStartFrom | None) -> None:
        master = self._master
        if start is None:
            master.prepared()
            return

        def done(result: Any) -> None:
            if isinstance(result, Exception):
                master.abandon(str(result))
                return
            if result.warning is not None:
                master.console.warning(result.warning)
            if master.settings.claim:
                master.store.claim(result)
            self._restore_first(result)

        master.work.submit("read the checkpoint to start from", lambda: read_start(master.open_store, start), done)

    def _restore_first(self, point: RestorePoint) -> None:
        master, metadata = self._master, point.metadata
        try:
            graph = fitted(master.graph, metadata, master.settings.ignore_unclaimed_state)
        except IncompatibleGraph as error:
            master.abandon(str(error))
            return
        if graph is not master.graph:
            master.adopt(graph)
        master.coordinator.skip_ids_to(metadata.checkpoint_id + 1)
        master.restore_point = point
        if metadata.is_final and point.root is None:
            # Everything has been processed; what may be missing is the commit.
            master.final_checkpoint_reached()
            master.commits.add(committables_of(metadata), master.committed_all)
            return
        master.commits.add(committables_of(metadata))
        self._check_files()

    # ---- after a failure ------------------------------------------------------------------------------------------

    def _again(self) -> None:
        conversations = self._master.store.conversations
        if conversations is None:
            self._retry()
        else:
            conversations.when_idle(self._current(self._retry))

    def _retry(self) -> None:
        if self._master.lifecycle.is_over or self._master.lifecycle.is_finishing:
            return
        self._master.commits.retry()
        self._check_files()

    def _check_files(self) -> None:
        master, point, store = self._master, self._master.restore_point, self._master.store.store
        directory = master.identity.directory
        if store is None or directory is None or (point is not None and point.root is not None):
            master.prepared()
            return
        metadata, retained = None if point is None else point.metadata, master.store.retained_paths

        def done(result: Any) -> None:
            master.ending.keep_everything = isinstance(result, Exception)
            if isinstance(result, StoreRemoved):
                master.abandon(str(result))
            elif isinstance(result, Exception):
                master.fail(FailureCause(f"what the job restarts from cannot be looked at: {result}"))
            elif result is not None:
                master.abandon(result)
            else:
                master.prepared()

        def look() -> str | None:
            check_log(store)
            return None if metadata is None else damage(store, metadata, retained, directory)

        master.work.submit("check the checkpoint", look, self._current(done))

    def _current(self, action: Callable[..., None]) -> Callable[..., None]:
        """Does nothing if another preparation has begun meanwhile."""
        attempt = self._attempt

        def guarded(*arguments: Any) -> None:
            if attempt == self._attempt and not self._master.lifecycle.is_over:
                action(*arguments)

        return guarded
