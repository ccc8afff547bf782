"""Prepares DataFrames for the Spark executor, and manages the files that jobs with DataFrames keep next to
checkpoints.

    <job's directory>/data-frames/<operator uid>-<random>/   what `from_spark` wrote
    <job's directory>/results/<operator uid>/                what `to_spark` reads

No name there is known to the sweep of checkpoints. A job without a directory uses a temporary one.
"""

from __future__ import annotations

import atexit
import posixpath
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from penstock.common.configuration import Configuration
from penstock.common.options import PenstockOptions, StateRecoveryOptions
from penstock.common.options.modes import RecoveryClaimMode
from penstock.connectors.base import SourceError
from penstock.graph.job_graph import JobGraph, Operator
from penstock.jobmaster.identity import JobIdentity
from penstock.jobmaster.job_recovery import FoundCheckpoint
from penstock.protocol.driver.row_folders import Release, released_folders
from penstock.spark.frames.data_frame_sink import DataFrameSink
from penstock.spark.frames.data_frame_source import DataFrameSource
from penstock.spark.frames.frame_directory import FrameDirectory, new_name
from penstock.spark.frames.frame_files import folder_in
from penstock.spark.session import Substrate
from penstock.storage.location import is_local
from penstock.storage.store_settings import DEFAULT_SETTINGS, StoreSettings

_RESULTS = "results"
_PYSPARK_WITH_STORES = 4
"""Earlier ones have neither Arrow with a number of rows that we choose, nor data sources in Python."""


@dataclass(frozen=True)
class FrameOptions:
    """Holds options. `ignore_changes`: read what an earlier start has written even if the DataFrame would give other
    rows now. `claims`: the checkpoint that a new job starts from becomes its own. `stores`: how stores
    are reached.
    """

    ignore_changes: bool = False
    claims: bool = False
    stores: StoreSettings = DEFAULT_SETTINGS

    @classmethod
    def of(cls, configuration: Configuration) -> FrameOptions:
        mode = configuration.get(StateRecoveryOptions.RESTORE_MODE)
        ignores = configuration.get(PenstockOptions.DATA_FRAMES_IGNORE_CHANGES)
        return cls(ignores, mode is RecoveryClaimMode.CLAIM, StoreSettings.of(configuration))


class DataFrames:
    """Implements `penstock.datastream._streams.execution.DataFrames`."""

    def source(self, frame: Any, name: str) -> DataFrameSource:
        return DataFrameSource(frame, name)

    def sink(self, path: str | None) -> DataFrameSink:
        return DataFrameSink(path)

    def read(self, sink: DataFrameSink, spark: Any) -> Any:
        if spark is None:
            # The job's context still runs, and a session joins it.
            spark = SparkSession.builder.getOrCreate()
        return sink.read(spark)


def has_frames(graph: JobGraph) -> bool:
    """Return whether the graph reads DataFrames, which belong to a Spark that must not be stopped."""
    return any(isinstance(o.function, DataFrameSource) for o in _operators(graph))


def gives_frames(graph: JobGraph) -> bool:
    """Return whether the program gets a DataFrame of the job's rows, and so has Spark execute queries."""
    return any(isinstance(o.function, DataFrameSink) for o in _operators(graph))


def check_place(graph: JobGraph, identity: JobIdentity, pyspark_version: str = pyspark.__version__) -> None:
    """Check that DataFrames can be kept where the job's checkpoints are.

    Raises:
        SourceError: They cannot: PySpark before 4.0 writes and reads the files of a file system only.
    """
    start = identity.start_from
    places = [identity.directory, None if start is None else start.directory]
    remote = next((place for place in places if place is not None and not is_local(place)), None)
    frames = [o for o in _operators(graph) if isinstance(o.function, DataFrameSource | DataFrameSink)]
    if remote is not None and frames and int(pyspark_version.partition(".")[0]) < _PYSPARK_WITH_STORES:
        raise SourceError(
            f"operator '{frames[0].name}': the rows of DataFrames are kept as files next to the checkpoints, and with "
            f"PySpark {pyspark_version} those cannot be in {remote}: install PySpark 4.0 or later, or set "
            "execution.checkpointing.dir to a path that the driver and all executors share"
        )


def find_results(graph: JobGraph, directory: str) -> None:
    """Tell the graph's sinks where their rows are, for a job that has finished before. Raises `SinkError`."""
    for operator in _operators(graph):
        if isinstance(operator.function, DataFrameSink):
            operator.function.prepare(posixpath.join(directory, _RESULTS), operator.uid, is_resumed=True)


class JobFiles:
    """Manages the files that one job reads and writes next to its checkpoints."""

    def __init__(self) -> None:
        self._root: FrameDirectory | None = None
        self._own: list[str] = []
        """The folders that this start has written: nobody else knows them before a checkpoint names them."""
        self._read: list[str] = []
        self._temporary: Path | None = None

    def prepare(
        self,
        graph: JobGraph,
        identity: JobIdentity,
        substrate: Substrate,
        restored: FoundCheckpoint | None,
        options: FrameOptions,
        tell: Callable[[str], None],
    ) -> None:
        """Have Spark write the graph's DataFrames, one after the other, and tell its sinks where rows go.

        Args:
            restored: The checkpoint that the job is restored from. The DataFrames that it has read are not written
                again: their folders are taken along where another job wrote them.

        Raises:
            SourceError, SinkError, StoreError: `remove` is to be called then.
        """
        chosen = [o for o in _operators(graph) if isinstance(o.function, DataFrameSource | DataFrameSink)]
        if not chosen:
            return
        root = self._root = FrameDirectory(self._place(identity, substrate), options.stores, create=True)
        for operator in chosen:
            function = operator.function
            if isinstance(function, DataFrameSink):
                function.prepare(posixpath.join(root.place, _RESULTS), operator.uid, identity.resume)
                continue
            name = self._written_before(function, operator.uid, root, identity, restored, options)
            if name is None:
                self._own.append(function.write(root, operator.uid))
            else:
                self._read.append(name)
                function.read_again(root, name, options.ignore_changes)
                tell(_what_is_read(operator.name, root, name))

    def _written_before(
        self,
        source: DataFrameSource,
        uid: str,
        root: FrameDirectory,
        identity: JobIdentity,
        restored: FoundCheckpoint | None,
        options: FrameOptions,
    ) -> str | None:
        """Return the folder's name below this job's directory that the checkpoint reads; None if there is none."""
        if restored is None:
            # An unreadable checkpoint does not decide this: every split of a checkpoint names its own folder.
            return self._copied(root, uid) if identity.resume else None
        states = [state.data for state in restored.metadata.enumerators if state.operator == uid]
        if not states:
            return None  # an operator that the checkpoint does not know
        theirs, name = FrameDirectory(restored.directory, options.stores), folder_in(states[0])
        if root.is_complete(name):
            return name
        if not theirs.is_complete(name):
            raise SourceError(
                f"from_spark() {source.name!r}: the rows that the checkpoint needs are not in {theirs.folder(name)}, "
                "or not all of them. Put the folder back, or start without the checkpoint."
            )
        if identity.is_private:
            self._own.append(name)
        root.take(name, theirs)
        if options.claims:
            root.note_claim(name, theirs)
        return name

    def _copied(self, root: FrameDirectory, uid: str) -> str | None:
        """Copy the rows that an earlier start has written, before any checkpoint, to a folder of our own, and return
        its name; None if there are none. Without the copy: that start still runs, finds that it has lost the job, and
        removes its folder.
        """
        for found in reversed(root.complete(uid)):
            name = new_name(uid)
            with suppress(SourceError):  # it is removed just now
                root.take(found, root, new_name=name, is_private=True)
                self._own.append(name)
                return name
        return None

    def _place(self, identity: JobIdentity, substrate: Substrate) -> str:
        if identity.directory is not None:
            return identity.directory
        if not substrate.is_local:
            raise SourceError(
                f"the executors of {substrate.master} need a directory that they share with this program for the rows "
                "of DataFrames: set execution.checkpointing.dir and execution.checkpointing.interval"
            )
        self._temporary = Path(tempfile.mkdtemp(prefix="penstock-data-frames-"))
        # Results are read when the job is over; they stay until the program ends.
        atexit.register(shutil.rmtree, self._temporary, ignore_errors=True)
        return str(self._temporary)

    def remove(self, release: Release, owns_log: bool) -> None:
        """Remove the files that nobody needs any more, at the driver's end. Results are the user's, and stay.

        Args:
            release: What the job's log says of the folders, or what is known without it.
            owns_log: The job's log is ours, so that the origin of claimed rows is, too.
        """
        root = self._root
        if root is None:
            return
        if owns_log:
            for name in self._read:
                root.remove_claimed(name)
        if self._temporary is not None:
            release = Release.ALL  # nobody else knows the directory
        for name in released_folders(release, self._own, root.names):
            root.remove(name)
        self._own.clear()


def _what_is_read(operator: str, root: FrameDirectory, name: str) -> str:
    """Return the line that says what a source reads. It is always printed, because nobody would notice a change inside
    a database, or of a Python function.
    """
    at = datetime.fromtimestamp(root.written_s(name)).astimezone().isoformat(" ", "seconds")
    return (
        f"operator '{operator}': the job goes on with the DataFrame's rows of {at}, in {root.folder(name)}; what the "
        "DataFrame holds now is not read"
    )


def _operators(graph: JobGraph) -> list[Operator]:
    return [operator for vertex in graph.vertices for operator in vertex.operators]
