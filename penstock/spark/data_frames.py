"""Prepares DataFrames for the Spark executor, and manages the files that jobs with DataFrames keep next to
checkpoints.

    <job's directory>/data-frames/<operator uid>-<random>/   what `from_spark` wrote
    <job's directory>/results/<operator uid>/                what `to_spark` reads

No name there is known to the sweep of checkpoints. A job without a directory uses a temporary one.
"""

from __future__ import annotations

import atexit
import contextlib
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from penstock.common.checkpointing import RecoveryClaimMode
from penstock.common.configuration import Configuration
from penstock.common.options import PenstockOptions, StateRecoveryOptions
from penstock.datastream.connectors.base import SourceError
from penstock.graph.job_graph import JobGraph, Operator
from penstock.jobmaster.fit import FoundCheckpoint
from penstock.jobmaster.identity import JobIdentity
from penstock.spark.data_frame_sink import DataFrameSink
from penstock.spark.data_frame_source import DataFrameSource
from penstock.spark.frame_files import folder_in, take_along
from penstock.spark.session import Substrate
from penstock.storage.layout import FRAMES_FOLDER, FRAMES_MANIFEST, METADATA_NAME
from penstock.storage.location import is_local

_RESULTS = "results"
_CLAIMED_FROM = "_claimed_from"


@dataclass(frozen=True)
class FrameOptions:
    """Holds options. `ignore_changes`: read what an earlier start has written even if the DataFrame would give other
    rows now. `claims`: the checkpoint that a new job starts from becomes its own.
    """

    ignore_changes: bool = False
    claims: bool = False

    @classmethod
    def of(cls, configuration: Configuration) -> FrameOptions:
        mode = configuration.get(StateRecoveryOptions.RESTORE_MODE)
        return cls(configuration.get(PenstockOptions.DATA_FRAMES_IGNORE_CHANGES), mode is RecoveryClaimMode.CLAIM)


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


def check_place(graph: JobGraph, identity: JobIdentity) -> None:
    """Check that DataFrames can be kept where the job's checkpoints are: Spark and the slots share them as files.

    Raises:
        SourceError: They cannot.
    """
    start = identity.start_from
    places = [identity.directory, None if start is None else start.directory]
    remote = next((place for place in places if place is not None and not is_local(place)), None)
    frames = [o for o in _operators(graph) if isinstance(o.function, DataFrameSource | DataFrameSink)]
    if remote is not None and frames:
        raise SourceError(
            f"operator '{frames[0].name}': the rows of DataFrames are kept as files next to the checkpoints, and "
            f"{remote} is no file system: set execution.checkpointing.dir to a path that the driver and all executors "
            "share, or read and write files and topics instead of DataFrames"
        )


def find_results(graph: JobGraph, directory: str) -> None:
    """Tell the graph's sinks where their rows are, for a job that has finished before. Raises `SinkError`."""
    for operator in _operators(graph):
        if isinstance(operator.function, DataFrameSink):
            operator.function.prepare(Path(directory, _RESULTS), operator.uid, is_resumed=True)


class JobFiles:
    """Manages what one job reads and writes next to its checkpoints."""

    def __init__(self) -> None:
        self._written: list[Path] = []
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
            SourceError, SinkError: `remove` is to be called then.
        """
        chosen = [o for o in _operators(graph) if isinstance(o.function, DataFrameSource | DataFrameSink)]
        if not chosen:
            return
        root = self._root(identity, substrate)
        for operator in chosen:
            function = operator.function
            if isinstance(function, DataFrameSink):
                function.prepare(root / _RESULTS, operator.uid, identity.resume)
                continue
            folder = self._written_before(function, operator.uid, root, identity, restored, options.claims)
            if folder is None:
                self._written.append(function.write(root, operator.uid))
            else:
                self._written.append(folder)
                function.read_again(root, folder, options.ignore_changes)
                tell(_what_is_read(operator.name, folder / FRAMES_MANIFEST))

    def _written_before(
        self,
        source: DataFrameSource,
        uid: str,
        root: Path,
        identity: JobIdentity,
        restored: FoundCheckpoint | None,
        claims: bool,
    ) -> Path | None:
        """Return the folder that the checkpoint reads, below this job's directory; None if there is none to read."""
        if restored is None:
            # An unreadable checkpoint does not decide this: every split of a checkpoint names its own folder.
            found = _complete(root, uid) if identity.resume else []
            return max(found, key=lambda folder: (folder / FRAMES_MANIFEST).stat().st_mtime, default=None)
        states = [state.data for state in restored.metadata.enumerators if state.operator == uid]
        if not states:
            return None  # an operator that the checkpoint does not know
        theirs, name = Path(restored.directory), folder_in(states[0])
        if name is None:
            name = next((folder.name for directory in (root, theirs) for folder in _complete(directory, uid)), None)
        if name is None:
            return None
        folder, origin = root / FRAMES_FOLDER / name, theirs / FRAMES_FOLDER / name
        if (folder / FRAMES_MANIFEST).is_file():
            return folder
        if not (origin / FRAMES_MANIFEST).is_file():
            raise SourceError(
                f"from_spark() {source.name!r}: the rows that the checkpoint needs are not in {origin}, or not all of "
                "them. Put the folder back, or start without the checkpoint."
            )
        take_along(origin, folder)
        if claims:
            (folder / _CLAIMED_FROM).write_text(str(origin), encoding="utf-8")
        return folder

    def _root(self, identity: JobIdentity, substrate: Substrate) -> Path:
        if identity.directory is not None:
            return Path(identity.directory)
        if not substrate.is_local:
            raise SourceError(
                f"the executors of {substrate.master} need a directory that they share with this program for the rows "
                "of DataFrames: set execution.checkpointing.dir and execution.checkpointing.interval"
            )
        self._temporary = Path(tempfile.mkdtemp(prefix="penstock-data-frames-"))
        # Results are read when the job is over; they stay until the program ends.
        atexit.register(shutil.rmtree, self._temporary, ignore_errors=True)
        return self._temporary

    def remove(self, keep: bool) -> None:
        """Remove what no checkpoint needs. Called at the job's end. Results are the user's, and stay.

        Args:
            keep: A checkpoint needs what was written, or another driver owns the job.
        """
        for folder in self._written:
            _remove_claimed(folder)
        if keep and self._temporary is None:
            return
        for folder in self._written:
            # Starts that were killed while they wrote have left others for the same operator.
            for left in folder.parent.glob(f"{folder.name.rpartition('-')[0]}-*"):
                _remove(left)
        self._written.clear()


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):  # others may be there
        folder.parent.rmdir()


def _remove_claimed(folder: Path) -> None:
    """Remove the folder that this one was taken from, once its job has no checkpoint any more that needs it."""
    with contextlib.suppress(OSError):
        origin = Path((folder / _CLAIMED_FROM).read_text(encoding="utf-8"))
        if not any(origin.parents[1].glob(f"chk-*/{METADATA_NAME}")):
            _remove(origin)


def _complete(root: Path, uid: str) -> list[Path]:
    return sorted(manifest.parent for manifest in root.glob(f"{FRAMES_FOLDER}/{uid}-*/{FRAMES_MANIFEST}"))


def _what_is_read(operator: str, manifest: Path) -> str:
    """Say what a source reads. It is always printed, because a change inside a database, or of a Python function, would
    not be noticed.
    """
    at = datetime.fromtimestamp(manifest.stat().st_mtime).astimezone().isoformat(" ", "seconds")
    return (
        f"operator '{operator}': the job goes on with the DataFrame's rows of {at}, in {manifest.parent}; what the "
        "DataFrame holds now is not read"
    )


def _operators(graph: JobGraph) -> list[Operator]:
    return [operator for vertex in graph.vertices for operator in vertex.operators]
