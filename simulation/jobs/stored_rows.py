"""Simulates sources whose rows are written to a folder of the job's directory before the slots start, as DataFrames.

A driver writes the folder before it owns the job's log. Readers read it as long as the job runs; it is deleted as the
job's log allows (`penstock.protocol.driver.row_folders`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from copy import copy
from dataclasses import replace

import pyarrow as pa

from penstock.connectors.base import (
    NotReady,
    ReaderContext,
    SourceChanged,
    SourceReader,
    SplitEnumerator,
    decode_split,
    encode_split,
)
from penstock.graph.job_graph import JobGraph, Operator
from penstock.jobmaster.identity import JobIdentity, RestoreSourceError
from penstock.jobmaster.job_recovery import FoundCheckpoint, checkpoint_to_restore
from penstock.jobmaster.ports import JobOutcome
from penstock.protocol.driver.row_folders import Release, released_folders
from penstock.storage.layout import FRAMES_FOLDER, FRAMES_MANIFEST
from penstock.storage.opening import OpenStore
from penstock.storage.store import ObjectExists, StoreError
from simulation.jobs.ranges import RangesReader, RangesSource, SplitsWithBacklog
from simulation.world import world_hooks

DELETED = "have been deleted"


class StoredRanges(RangesSource):
    """Reads numbers as `RangesSource`, if their folder is there. `directory` and `folder` are set for each driver."""

    directory: str | None = None
    folder = ""

    def create_enumerator(self, parallelism: int, restored: bytes | None) -> SplitEnumerator:
        state = None if restored is None else decode_split(restored)
        folder = self.folder if state is None else state["folder"]
        made = super().create_enumerator(parallelism, None if state is None else encode_split(state["splits"]))
        assert isinstance(made, SplitsWithBacklog)
        splits = [encode_split(decode_split(split) | {"folder": folder}) for split in made._splits]
        return _FolderSplits(splits, folder, self.newest)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return _FolderReader(self)

    def copy_files(self, snapshot: bytes, directory: str, progress: Callable[[], None]) -> list[str]:
        path = _manifest(str(decode_split(snapshot)["folder"]))
        objects = world_hooks.current().objects()
        objects[f"{directory}/{path}"] = objects[f"{self.directory}/{path}"]
        return [path]


class _FolderSplits(SplitsWithBacklog):
    def __init__(self, splits: list[bytes], folder: str, newest: int | None) -> None:
        super().__init__(splits)
        self._folder = folder
        self.newest = newest

    def snapshot(self) -> bytes:
        return encode_split({"folder": self._folder, "splits": [decode_split(split) for split in self._splits]})


class _FolderReader(RangesReader):
    _source: StoredRanges

    def read(self, rows_max: int) -> pa.RecordBatch | NotReady | None:
        directory = self._source.directory
        for split in self._splits[:1] if directory is not None else []:
            path = f"{directory}/{_manifest(str(split['folder']))}"
            if path not in world_hooks.current().objects():
                raise SourceChanged(f"the rows in {path} {DELETED}, and a job that runs reads them")
        return super().read(rows_max)


class StoredRows:
    """Writes the folders of one driver, and deletes those that its end releases. `new_word` draws a random name."""

    def __init__(self, identity: JobIdentity, open_store: OpenStore, new_word: Callable[[], str]) -> None:
        self._identity = identity
        self._open_store = open_store
        self._new_word = new_word
        self._own: list[str] = []
        self._has_any = False

    def prepare(self, graph: JobGraph) -> JobGraph:
        """Write the missing folders, and return the graph with the folders in its sources. Raises `StoreError`."""
        directory = self._identity.directory
        if directory is None or not any(_is_stored(o) for vertex in graph.vertices for o in vertex.operators):
            return graph
        self._has_any, restored = True, None
        with suppress(RestoreSourceError):  # the JobMaster says so, too
            restored = checkpoint_to_restore(self._identity, self._open_store)
        try:
            vertices = tuple(
                replace(vertex, operators=tuple(self._with_folder(o, directory, restored) for o in vertex.operators))
                for vertex in graph.vertices
            )
        except StoreError:
            self._remove(Release.OWN)
            raise
        return replace(graph, vertices=vertices)

    def end(self, outcome: JobOutcome) -> None:
        """Delete the folders that the end of the driver releases."""
        if self._has_any:
            self._remove(outcome.releases)

    def _with_folder(self, operator: Operator, directory: str, restored: FoundCheckpoint | None) -> Operator:
        if not _is_stored(operator):
            return operator
        source = copy(operator.function)
        source.directory = directory
        source.folder = self._folder_of(operator.uid, directory, restored)
        return replace(operator, function=source)

    def _folder_of(self, uid: str, directory: str, restored: FoundCheckpoint | None) -> str:
        store = self._open_store(directory, True)
        states = [] if restored is None else [e.data for e in restored.metadata.enumerators if e.operator == uid]
        if restored is not None and states:
            folder = str(decode_split(states[0])["folder"])
            if restored.directory != directory:
                data = self._open_store(restored.directory, False).get(_manifest(folder))
                with suppress(ObjectExists):
                    store.put(_manifest(folder), [data])
            return folder
        folder = f"{uid}-{self._new_word()}"
        self._own.append(folder)
        store.put(_manifest(folder), [b"rows"])
        return folder

    def _remove(self, release: Release) -> None:
        assert self._identity.directory is not None
        store = self._open_store(self._identity.directory, False)
        with suppress(StoreError):
            for folder in released_folders(release, self._own, lambda: store.folders(FRAMES_FOLDER)):
                store.delete(_manifest(folder))


def stored_folders(enumerators: list[bytes]) -> list[str]:
    """Return the paths of the folders that the snapshots of enumerators name."""
    states = [decode_split(data) for data in enumerators if data.startswith(b'{"folder"')]
    return [_manifest(state["folder"]) for state in states]


def _is_stored(operator: Operator) -> bool:
    return isinstance(operator.function, StoredRanges)


def _manifest(folder: str) -> str:
    return f"{FRAMES_FOLDER}/{folder}/{FRAMES_MANIFEST}"
