"""What the Spark executor knows of DataFrames, and the files that jobs with some have beside their checkpoints.

    <job's directory>/data-frames/<operator uid>-<random>/   what `from_spark` wrote
    <job's directory>/results/<operator uid>/                what `to_spark` reads

Nothing there has a name that the sweep of checkpoints knows. A job without a directory uses a temporary one.
"""

from __future__ import annotations

import atexit
import contextlib
import shutil
import tempfile
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from penstock.datastream.connectors.base import SourceError
from penstock.graph.job_graph import JobGraph, Operator
from penstock.runtime.job_master.identity import JobIdentity
from penstock.spark.data_frame_sink import DataFrameSink
from penstock.spark.data_frame_source import DataFrameSource
from penstock.spark.session import Substrate

_SOURCES = "data-frames"
_RESULTS = "results"


class DataFrames:
    """Implements `penstock.datastream.execution.DataFrames`."""

    def source(self, frame: Any, name: str) -> DataFrameSource:
        return DataFrameSource(frame, name)

    def sink(self, path: str | None) -> DataFrameSink:
        return DataFrameSink(path)

    def read(self, sink: DataFrameSink, spark: Any) -> Any:
        if spark is None:
            # The job's context is still there, and a session joins it.
            spark = SparkSession.builder.getOrCreate()
        return sink.read(spark)


def has_frames(graph: JobGraph) -> bool:
    """Whether the graph reads DataFrames, which belong to a Spark that must go on living."""
    return any(isinstance(o.function, DataFrameSource) for o in _operators(graph))


class JobFiles:
    """What one job has written beside its checkpoints."""

    def __init__(self) -> None:
        self._written: list[Path] = []
        self._temporary: Path | None = None

    def prepare(
        self,
        graph: JobGraph,
        identity: JobIdentity,
        substrate: Substrate,
        ignore_changes: bool,
        tell: Callable[[str], None],
    ) -> None:
        """Has Spark write the graph's DataFrames, one after the other, and tells its sinks where rows go. Raises
        `SourceError`, `SinkError`; then `remove` is to be called."""
        chosen = [o for o in _operators(graph) if isinstance(o.function, DataFrameSource | DataFrameSink)]
        if not chosen:
            return
        root = self._root(identity, substrate)
        kept = [Path(root, _SOURCES)] if identity.resume else []
        if identity.start_from is not None:
            kept.append(Path(identity.start_from.directory, _SOURCES))
        for operator in chosen:
            function = operator.function
            if isinstance(function, DataFrameSink):
                function.prepare(root / _RESULTS, operator.uid, identity.resume)
            else:
                written = function.prepare(root / _SOURCES, operator.uid, kept, ignore_changes)
                self._written += [] if written is None else [written]
                if function.written_before is not None:
                    tell(_what_is_read(operator.name, function.written_before))

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
        """At the job's end. `keep`: a checkpoint needs what was written. Results are the user's, and stay."""
        if keep and self._temporary is None:
            return
        for folder in self._written:
            shutil.rmtree(folder, ignore_errors=True)
            with contextlib.suppress(OSError):  # others may be there
                folder.parent.rmdir()
        self._written.clear()


def _what_is_read(operator: str, manifest: Path) -> str:
    """A change inside of a database, or of a Python function, would not be noticed; so this is said always."""
    at = datetime.fromtimestamp(manifest.stat().st_mtime).astimezone().isoformat(" ", "seconds")
    return (f"operator '{operator}': the job goes on with the DataFrame's rows of {at}, in {manifest.parent}; what the "
            "DataFrame holds now is not read")


def _operators(graph: JobGraph) -> list[Operator]:
    return [operator for vertex in graph.vertices for operator in vertex.operators]
