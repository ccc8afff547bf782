"""Implements `execution.target = spark`: runs job graphs in slots on Spark."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.version import __version__ as PYSPARK_VERSION

from penstock.common.configuration import Configuration
from penstock.common.job_client import JobClient
from penstock.common.job_id import JobID
from penstock.common.options import (
    CheckpointingOptions,
    HighAvailabilityOptions,
    OptionError,
    PipelineOptions,
    ResourceManagerOptions,
    StateRecoveryOptions,
)
from penstock.graph.job_graph import JobGraph
from penstock.graph.pickling import dumps
from penstock.jobmaster.fit import FoundCheckpoint, check_fit
from penstock.jobmaster.identity import LATEST, JobIdentity, identify
from penstock.jobmaster.job_settings import JobSettings
from penstock.jobmaster.restore import open_own
from penstock.jobmaster.resume_or_start import is_available
from penstock.spark.data_frames import DataFrames, FrameOptions, JobFiles, check_place, find_results, has_frames
from penstock.spark.ended_job import EndedJobClient
from penstock.spark.session import Substrate, is_running, open_session
from penstock.spark.spark_job import SparkJob, driver_store
from penstock.spark.spark_slots import places_taken
from penstock.spark.submission import ship_modules
from penstock.spark.terminal import Terminal
from penstock.spark.versions import check_pyspark

check_pyspark(PYSPARK_VERSION, sys.version_info[:2])


class SparkExecutor:
    """Implements `penstock.datastream._streams.execution.Executor`. `data_frames`: what knows Spark's DataFrames."""

    data_frames = DataFrames()

    def submit(self, graph: JobGraph, configuration: Configuration) -> JobClient:
        """Start Spark, if none is active, and the job. What can be checked without Spark is checked before it starts.

        Raises `OptionError`, `RestoreSourceError`, `StoreError`, `UnpicklableFunction`, `PortError`, `JavaMissing`,
        `SessionError`, `SourceError`, `SinkError`.
        """
        configuration = _with_absolute_paths(configuration)
        settings, open_store = JobSettings.from_configuration(configuration, graph.slots), driver_store(configuration)
        dumps(graph)
        identity = identify(configuration, graph.name, lambda: JobID.generate().hex, open_store)
        check_place(graph, identity)
        available = is_available(configuration)
        if available:
            _check_one_job(graph, identity)
        if identity.is_over:
            return _ended(graph, identity)
        restored = check_fit(
            graph,
            identity,
            open_store,
            settings.ignore_unclaimed_state,
            settings.without_channel_state,
            settings.checkpointing,
            settings.adaptive is not None,
        )
        if identity.directory is not None:
            open_own(open_store, identity.directory)
        terminal, files = Terminal(), JobFiles()
        if available or configuration.get(StateRecoveryOptions.SAVEPOINT_PATH) == LATEST:
            terminal.tell(_how_it_starts(graph, identity, restored))
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
            job = SparkJob(graph, configuration, identity, substrate, terminal, files)
            try:
                if reads_frames:
                    terminal.show("writing the DataFrame's rows …")
                if not reads_frames or _leaves_places(substrate, graph.slots + spares):
                    job.start_slots(graph.slots + spares)
                files.prepare(graph, identity, substrate, restored, FrameOptions.of(configuration), terminal.tell)
                terminal.show("")
                return job.start()
            except BaseException:
                job.give_up()
                raise
        except BaseException:
            files.remove(keep=identity.resume)
            raise
        finally:
            terminal.show("")


_graphs_by_id: dict[str, tuple[str, ...]] = {}
"""The job's name and its operators that this program has submitted under each id that its next start resumes."""


def _check_one_job(graph: JobGraph, identity: JobIdentity) -> None:
    """Refuse a second job under the id of another one, whose log would be taken for its own. Raises `OptionError`."""
    described = (graph.name, *(operator.uid for vertex in graph.vertices for operator in vertex.operators))
    known = _graphs_by_id.setdefault(identity.job_id, described)
    if known != described:
        key = PipelineOptions.FIXED_JOB_ID.key
        raise OptionError(
            f"{key} {identity.job_id}: this program has run another job ({known[0]!r}) under this id, and "
            f"{HighAvailabilityOptions.HA_MODE.key} would take the log of that one for this one's ({graph.name!r}). "
            f"Leave {key} out, and give each job of the program a name of its own: env.execute(name)",
            key,
        )


def _ended(graph: JobGraph, identity: JobIdentity) -> EndedJobClient:
    """Report a job that is not run again. Its results can still be read."""
    assert identity.ended is not None and identity.directory is not None
    find_results(graph, identity.directory)
    state, what = identity.ended.state, f"job {identity.job_id} ({graph.name}) in {identity.directory}"
    again = f"To run it again, give another {PipelineOptions.FIXED_JOB_ID.key} or another job name"
    if identity.stopped_with is not None:
        message = (
            f"{what} was stopped before, with the savepoint {identity.stopped_with}, and is not run again. A new job "
            f"starts from it with -s {identity.stopped_with}, under another {PipelineOptions.FIXED_JOB_ID.key}"
        )
    elif state == "FINISHED":
        message = f"{what} has FINISHED before, and is not run again. {again}"
    else:
        resumed = f"resume it with -s {identity.directory}" if identity.ended.retained else "it has kept no checkpoint"
        message = f"{what} was CANCELED before, and is not run again: {resumed}. {again}"
    Terminal().tell(message)
    return EndedJobClient(JobID(identity.job_id), graph.name, state, message)


def _how_it_starts(graph: JobGraph, identity: JobIdentity, restored: FoundCheckpoint | None) -> str:
    what = f"job {identity.job_id} ({graph.name}) in {identity.directory}"
    chosen = "before its first checkpoint" if restored is None else f"chk-{restored.metadata.checkpoint_id}"
    if not identity.resume:
        origin = "" if identity.start_from is None else f", from {identity.start_from.path}"
        return f"starting {what}, which has no log yet{origin}"
    failed = "" if identity.ended is None else f". It had {identity.ended.state} before"
    return f"resuming {what}, {chosen}{failed}"


def _leaves_places(substrate: Substrate, slots: int) -> bool:
    """Return whether Spark can write while slots are already running. Slots hold their task places for the life of the
    job, so enough other places must remain; with none the write would deadlock.
    """
    places = substrate.fixed_places()
    return places is not None and places - places_taken(substrate) - slots >= (os.cpu_count() or 1)


def _with_absolute_paths(configuration: Configuration) -> Configuration:
    """Make paths absolute: executors may have another working directory than the program."""
    configuration = configuration.copy()
    for option in (
        CheckpointingOptions.CHECKPOINTS_DIRECTORY,
        CheckpointingOptions.SAVEPOINT_DIRECTORY,
        StateRecoveryOptions.SAVEPOINT_PATH,
    ):
        path = configuration.get(option)
        if path and path != LATEST and ":/" not in path:
            configuration.set(option, str(Path(path).absolute()))
    return configuration
