"""`execution.target = spark`: runs job graphs in slots on Spark."""

from __future__ import annotations

from pathlib import Path

from penstock.common.configuration import Configuration
from penstock.common.job_id import JobID
from penstock.common.options import CheckpointingOptions, StateRecoveryOptions
from penstock.datastream.job_client import JobClient
from penstock.graph.job_graph import JobGraph
from penstock.graph.pickling import dumps
from penstock.runtime.job_master.identity import LATEST, identify
from penstock.runtime.job_master.restore import open_own
from penstock.runtime.job_master.settings import JobSettings
from penstock.spark.job import SparkJob, driver_store
from penstock.spark.session import is_running, open_session
from penstock.spark.submission import ship_modules
from penstock.spark.terminal import Terminal


class SparkExecutor:
    """Implements `penstock.datastream.execution.Executor`."""

    def submit(self, graph: JobGraph, configuration: Configuration) -> JobClient:
        """Starts Spark, if none is active, and the job. What can be known without Spark is checked before it starts.

        Raises `OptionError`, `RestoreSourceError`, `StoreError`, `UnpicklableFunction`, `PortError`, `JavaMissing`,
        `SessionError`.
        """
        configuration = _with_absolute_paths(configuration)
        JobSettings.from_configuration(configuration, graph.slots)
        dumps(graph)
        identity = identify(configuration, graph.name, lambda: JobID.generate().hex, driver_store(configuration))
        if identity.directory is not None:
            open_own(driver_store(configuration), identity.directory)
        terminal = Terminal()
        if not is_running():
            terminal.show("starting Spark …")
        try:
            substrate = open_session(graph.name, graph.slots)
            substrate.check_places(graph.slots)
            ship_modules(substrate, configuration)
        finally:
            terminal.show("")
        return SparkJob(graph, configuration, identity, substrate, terminal).start()


def _with_absolute_paths(configuration: Configuration) -> Configuration:
    """Executors may have another working directory than the program."""
    configuration = configuration.copy()
    for option in (CheckpointingOptions.CHECKPOINTS_DIRECTORY, StateRecoveryOptions.SAVEPOINT_PATH):
        path = configuration.get(option)
        if path and path != LATEST and ":/" not in path:
            configuration.set(option, str(Path(path).absolute()))
    return configuration
