"""`execution.target = spark`: runs job graphs in slots on Spark."""

from __future__ import annotations

from pathlib import Path

from penstock.common.configuration import Configuration
from penstock.common.job_id import JobID
from penstock.common.options import CheckpointingOptions, ResourceManagerOptions, StateRecoveryOptions
from penstock.datastream.job_client import JobClient
from penstock.graph.job_graph import JobGraph
from penstock.graph.pickling import dumps
from penstock.runtime.job_master.fit import check_fit
from penstock.runtime.job_master.identity import LATEST, identify
from penstock.runtime.job_master.restore import open_own
from penstock.runtime.job_master.settings import JobSettings
from penstock.spark.data_frames import DataFrames, JobFiles, has_frames
from penstock.spark.job import SparkJob, driver_store
from penstock.spark.session import is_running, open_session
from penstock.spark.submission import ship_modules
from penstock.spark.terminal import Terminal


class SparkExecutor:
    """Implements `penstock.datastream.execution.Executor`. `data_frames`: what knows Spark's DataFrames."""

    data_frames = DataFrames()

    def submit(self, graph: JobGraph, configuration: Configuration) -> JobClient:
        """Starts Spark, if none is active, and the job. What can be known without Spark is checked before it starts.

        Raises `OptionError`, `RestoreSourceError`, `StoreError`, `UnpicklableFunction`, `PortError`, `JavaMissing`,
        `SessionError`, `SourceError`, `SinkError`.
        """
        configuration = _with_absolute_paths(configuration)
        settings, open_store = JobSettings.from_configuration(configuration, graph.slots), driver_store(configuration)
        dumps(graph)
        identity = identify(configuration, graph.name, lambda: JobID.generate().hex, open_store)
        check_fit(graph, identity, open_store, settings.ignore_unclaimed_state)
        if identity.directory is not None:
            open_own(open_store, identity.directory)
        terminal, files = Terminal(), JobFiles()
        if not is_running():
            terminal.show("starting Spark …")
        try:
            reads_frames = has_frames(graph)
            spares = configuration.get(ResourceManagerOptions.REDUNDANT_TASK_MANAGER_NUM)
            substrate = open_session(graph.name, graph.slots + spares, keep=reads_frames)
            places = substrate.fixed_places()
            if spares and places is not None and places < graph.slots + spares:
                terminal.tell(
                    f"{min(spares, graph.slots + spares - places)} of {spares} spare slots cannot stand by: the "
                    f"session (master {substrate.master}) runs {places} tasks at once"
                )
            ship_modules(substrate, configuration)
            if reads_frames:
                terminal.show("writing the DataFrame's rows …")
            # Before slots take the places that Spark writes in.
            files.prepare(graph, identity, substrate, terminal.tell)
            terminal.show("")
            return SparkJob(graph, configuration, identity, substrate, terminal, files).start()
        except BaseException:
            files.remove(keep=identity.resume)
            raise
        finally:
            terminal.show("")


def _with_absolute_paths(configuration: Configuration) -> Configuration:
    """Executors may have another working directory than the program."""
    configuration = configuration.copy()
    for option in (CheckpointingOptions.CHECKPOINTS_DIRECTORY, StateRecoveryOptions.SAVEPOINT_PATH):
        path = configuration.get(option)
        if path and path != LATEST and ":/" not in path:
            configuration.set(option, str(Path(path).absolute()))
    return configuration
