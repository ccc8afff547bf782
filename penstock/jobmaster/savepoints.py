"""Writes savepoints: makes their directories, writes their metadata, and answers those who asked for them.

A savepoint is self-contained: its directory holds `_metadata`, one segment per slot, and the files of sources that lie
in the job's directory otherwise. It can be moved, and nothing in it is ever deleted by the job that took it. One that
stops the job is published in the job's log, too, as the job's last checkpoint: nothing restarts below it.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Collection, Sequence
from math import inf
from typing import Any

import msgspec

from penstock.common.clock import Clock
from penstock.common.job_execution import SavepointFailed
from penstock.common.options import CheckpointingOptions, ExecutionOptions
from penstock.graph.job_graph import JobGraph
from penstock.jobmaster.identity import JobIdentity
from penstock.jobmaster.ports import Answer, BlockingWork, SavepointOrder
from penstock.jobmaster.reports import CheckpointHistory
from penstock.protocol.driver.driver_effects import PublishCheckpoint
from penstock.protocol.driver.savepoint import Savepoint
from penstock.protocol.log.publication import NewCheckpoint
from penstock.protocol.values.metadata import Metadata
from penstock.storage.damage import check_segments
from penstock.storage.layout import METADATA_NAME, SAVEPOINT_PREFIX, is_savepoint_segment, metadata_path
from penstock.storage.location import location
from penstock.storage.metadata_file import encode_metadata, metadata_crc
from penstock.storage.opening import OpenStore
from penstock.storage.store import ObjectStore, StoreError

NAMES_MAX = 8
"""The number of names that are drawn for a savepoint's directory, until one is free."""


class _Taken(Exception):
    """Signals that something lies in the directory that a savepoint was to be written to."""


class _GivenUp(Exception):
    """Ends the writing of a savepoint that has been given up meanwhile."""


class Savepoints:
    """Writes the savepoints of one job. `random_name` returns letters and digits that no other savepoint has. `request`
    passes a savepoint to the coordinator once its directory is there, which may take `timeout_ms`. `is_batch`: none is
    written, because subtasks hold rows that no snapshot has."""

    def __init__(
        self,
        graph: JobGraph,
        identity: JobIdentity,
        history: CheckpointHistory,
        work: BlockingWork,
        clock: Clock,
        timeout_ms: float,
        open_store: OpenStore,
        default_directory: str | None,
        random_name: Callable[[], str],
        request: Callable[[Savepoint], None],
        warn: Callable[[str], None],
        is_batch: bool = False,
    ) -> None:
        self._graph = graph
        self._is_batch = is_batch
        self._identity = identity
        self._history = history
        self._work = work
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._open_store = open_store
        self._default_directory = default_directory
        self._random_name = random_name
        self._request = request
        self._warn = warn
        self._answers: dict[str, Answer] = {}
        self._has_ended = False
        self._making: dict[str, float] = {}
        """Directory that is being made -> by when it must be there."""
        self._made: set[str] = set()
        """Directories of pending savepoints that were empty: what lies there now is ours. No other is deleted from."""
        self._copied: dict[str, list[str]] = {}
        """Directory of a savepoint -> files of sources that were copied to it. One with an entry is being written."""
        self._stopping: set[str] = set()
        """Directories of those that are written and stop the job: they may be in its log."""
        self._progress_ms: dict[str, float] = {}

    @property
    def pending(self) -> Collection[str]:
        """Return the directories of the savepoints that somebody waits for."""
        return self._answers.keys()

    @property
    def progress_ms(self) -> dict[str, float]:
        """Return for each savepoint that is being written, by its directory, when some of the data of a source was
        copied to it last."""
        return dict(self._progress_ms)  # the thread that copies writes to it

    def order(self, order: SavepointOrder) -> None:
        """Make the directory, then ask the coordinator."""
        if self._has_ended:
            order.answer(SavepointFailed("the job has ended"))
            return
        if self._is_batch:
            key = ExecutionOptions.RUNTIME_MODE.key
            order.answer(SavepointFailed(f"a job in BATCH mode has no savepoints: set {key} to STREAMING"))
            return
        parent = order.directory or self._default_directory
        if not parent:
            key = CheckpointingOptions.SAVEPOINT_DIRECTORY.key
            order.answer(SavepointFailed(f"a savepoint needs a directory: name one, or set {key}"))
            return
        try:
            parent = location(parent)
        except StoreError as error:
            order.answer(SavepointFailed(str(error)))
            return
        self._make(order, parent, NAMES_MAX)

    def _make(self, order: SavepointOrder, parent: str, names_left: int) -> None:
        """Make a directory below `parent` for a savepoint, of a name that is free."""
        directory = posixpath.join(parent, f"{SAVEPOINT_PREFIX}{self._identity.job_id[:6]}-{self._random_name()}")
        if directory in self._answers:
            self._make_another(order, parent, names_left, directory)
            return

        def made(result: Any) -> None:
            self._making.pop(directory, None)
            is_pending = self._answers.get(directory) is order.answer
            if isinstance(result, _Taken):
                if is_pending:
                    del self._answers[directory]
                    self._make_another(order, parent, names_left, directory)
            elif isinstance(result, Exception):
                self._delete(directory, lambda store: [])
                if is_pending:
                    why = f"the savepoint {directory} cannot be written: {result}"
                    self._answers.pop(directory)(SavepointFailed(why))
            elif is_pending:
                self._made.add(directory)
                self._request(Savepoint(directory, order.alignment, order.stops, order.drains))
            else:
                self._remove(directory)  # the job ended meanwhile, or it came too late

        self._answers[directory] = order.answer
        self._making[directory] = self._clock.monotonic_ms() + self._timeout_ms
        self._work.submit("make the savepoint's directory", lambda: self._make_empty(directory), made)

    def _make_another(self, order: SavepointOrder, parent: str, names_left: int, taken: str) -> None:
        if names_left > 1:
            self._make(order, parent, names_left - 1)
            return
        order.answer(
            SavepointFailed(
                f"a savepoint needs a directory of its own, but {taken} is not empty, and neither are the "
                f"{NAMES_MAX - 1} whose names were drawn before it: name another directory than {parent}"
            )
        )

    def _make_empty(self, directory: str) -> None:
        # 11.21a: a savepoint is written to an empty directory only.
        if self._open_store(directory, True).list(""):
            raise _Taken

    def next_deadline_ms(self) -> float | None:
        return min(self._making.values(), default=None)

    def on_time(self, now_ms: float) -> None:
        """Answer those whose directory is not there in time. Without this: a storage that hangs (a network file system
        whose server is away) lets everybody wait who asks for a savepoint, or for the job to stop."""
        # Directories are made behind what is written: as long as that advances, so do they.
        by_progress_ms = max(self.progress_ms.values(), default=-inf) + self._timeout_ms
        for directory in [directory for directory, by_ms in self._making.items() if by_ms <= now_ms]:
            if by_progress_ms > now_ms:
                self._making[directory] = by_progress_ms
                continue
            del self._making[directory]
            limit = f"{self._timeout_ms / 1000:g} s"
            why = f"its directory was not made within {limit}: its storage, or an earlier savepoint's, does not answer"
            self._answers.pop(directory)(_not_taken(directory, why))

    # ---- writing ------------------------------------------------------------------------------------------------

    def write(self, publish: PublishCheckpoint, metadata: Metadata, written: Callable[[str | None], None]) -> None:
        """Write the metadata, after all that it refers to. `written` gets None, or why it failed."""
        savepoint = publish.savepoint
        assert savepoint is not None
        directory = savepoint.directory
        metadata = msgspec.structs.replace(metadata, drained=savepoint.drains, is_final=False)
        data = encode_metadata(metadata)
        copied = self._copied.setdefault(directory, [])
        if savepoint.stops:
            self._stopping.add(directory)

        def progress() -> None:
            if directory not in self._copied:
                raise _GivenUp
            self._progress_ms[directory] = self._clock.monotonic_ms()

        def write() -> None:
            store = self._open_store(directory, False)
            for source, state in self._sources(metadata):
                copied.extend(source.copy_files(state, directory, progress))
            # Without this: the directory was removed, the copies make it again, and metadata name what is gone.
            check_segments(store, metadata)
            if directory not in self._copied:
                raise _GivenUp
            store.create(METADATA_NAME, data)

        def done(result: Any) -> None:
            self._progress_ms.pop(directory, None)
            if directory not in self._copied:
                return  # it has been given up meanwhile, and what was written of it is deleted
            if isinstance(result, Exception):
                written(f"the savepoint {directory} could not be written: {result}")
                return
            self._history.saved(metadata.checkpoint_id, directory, len(data))
            written(None)

        self._work.submit("write the savepoint", write, done)

    def _sources(self, metadata: Metadata) -> list[tuple[Any, bytes]]:
        functions = {o.uid: o.function for v in self._graph.vertices if v.is_source for o in v.operators[:1]}
        return [(functions[e.operator], e.data) for e in metadata.enumerators if e.operator in functions]

    # ---- answers ------------------------------------------------------------------------------------------------

    def succeeded(self, savepoint: Savepoint) -> None:
        """Answer the caller: the savepoint is complete (and in the log, if it stops the job)."""
        answer = self._answers.pop(savepoint.directory, None)
        self._copied.pop(savepoint.directory, None)
        self._stopping.discard(savepoint.directory)
        self._made.discard(savepoint.directory)
        if answer is not None:
            answer(savepoint.directory)

    def failed(self, savepoint: Savepoint, why: str) -> None:
        """Answer the caller, and remove the written files."""
        answer = self._answers.pop(savepoint.directory, None)
        self._remove(savepoint.directory)
        if answer is not None:
            answer(_not_taken(savepoint.directory, why))

    def fail_all(self, why: str) -> None:
        """Answer all callers that still wait, and all later ones: the job has ended. What is being written and stops
        the job may be in its log; everything else is removed."""
        self._has_ended = True
        for directory, answer in list(self._answers.items()):
            if directory in self._made and directory not in self._stopping:
                self._remove(directory)
            answer(_not_taken(directory, why))
        self._answers.clear()
        self._making.clear()

    def discard(self, directory: str, paths: Sequence[str]) -> None:
        """Delete files of a savepoint that failed, which came late."""
        self._delete(directory, lambda store: paths)

    def _remove(self, directory: str) -> None:
        """Delete the files of a failed savepoint, and its directory, if nobody has put anything else there. A slot may
        have been lost before it has named its segment, so the names are looked up.
        """
        copied = self._copied.pop(directory, [])
        self._stopping.discard(directory)
        self._made.discard(directory)

        def own(store: ObjectStore) -> list[str]:
            found = store.list("")
            return [path for path in found if path == METADATA_NAME or is_savepoint_segment(path) or path in copied]

        self._delete(directory, own)

    def _delete(self, directory: str, paths: Callable[[ObjectStore], Sequence[str]]) -> None:
        def delete() -> None:
            try:
                store = self._open_store(directory, False)
            except StoreError:
                return  # it was removed: by us, when nothing was left in it, or by somebody else
            store.delete_all(paths(store))
            store.remove_if_empty()

        def done(result: Any) -> None:
            if isinstance(result, Exception):
                self._warn(f"files of the failed savepoint {directory} could not be deleted: {result}")

        self._work.submit("delete a failed savepoint", delete, done)


def _not_taken(directory: str, why: str) -> SavepointFailed:
    return SavepointFailed(f"the savepoint {directory} was not taken: {why}")


def last_checkpoint(metadata: Metadata, directory: str) -> NewCheckpoint:
    """Return the log entry of a savepoint that stops the job: its output to commit, the positions of its sources to
    report, and where it is.
    """
    subtasks = [
        msgspec.structs.replace(
            s,
            inputs=[],
            outputs=[],
            layers=[],
            keyed=[],
            schemas=[],
            parts=[part for part in s.parts if part.name == "splits" and not part.kind],
        )
        for s in metadata.subtasks
    ]
    last = msgspec.structs.replace(metadata, segments=[], subtasks=subtasks, is_final=True, savepoint=directory)
    data = encode_metadata(last)
    return NewCheckpoint(last, metadata_path(metadata.checkpoint_id), data, metadata_crc(data))
