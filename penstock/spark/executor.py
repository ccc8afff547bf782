"""Implements `execution.target = spark`: runs job graphs in slots on Spark."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark import SparkContext
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
from penstock.jobmaster.current_job import JobSettings
from penstock.jobmaster.identity import (
    LATEST,
    JobIdentity,
    RestoreSourceError,
    identify,
    is_available,
    look_whether_over,
)
from penstock.jobmaster.job_recovery import FoundCheckpoint, check_fit
from penstock.protocol.driver.row_folders import Release
from penstock.spark.cluster.job_files import with_files
from penstock.spark.cluster.spark_watch import why_gone
from penstock.spark.cluster.submission import ship_modules
from penstock.spark.cluster.versions import check_pyspark
from penstock.spark.driver.ended_job import EndedJobClient, how_it_ended
from penstock.spark.driver.spark_job import SparkJob, driver_store
from penstock.spark.driver.storage_wait import look_at_storage
from penstock.spark.driver.terminal import Terminal
from penstock.spark.frames.data_frames import (
    DataFrames,
    FrameOptions,
    JobFiles,
    check_place,
    find_results,
    gives_frames,
    has_frames,
)
from penstock.spark.session import SessionError, Substrate, is_running, open_session
from penstock.spark.slots.spark_slots import places_taken
from penstock.storage.opening import OpenStore, open_own

check_pyspark(PYSPARK_VERSION, sys.version_info[:2])


class SparkExecutor:
    """Implements `penstock.datastream._streams.execution.Executor`. `data_frames`: what knows Spark's DataFrames."""

    data_frames = DataFrames()

    def find_ended(self, graph: JobGraph, configuration: Configuration) -> JobClient | None:
        """Return the client of a job that has ended for good, asking neither Spark nor sources; else None."""
        configuration = _with_absolute_paths(configuration)
        identity = look_whether_over(graph.name, configuration, driver_store(configuration))
        if identity is None:
            return None
        check_place(graph, identity)
        _check_one_job(graph, identity)
        return _ended(graph, identity)

    def submit(self, graph: JobGraph, configuration: Configuration) -> JobClient:
        """Start Spark, if none is active, and the job. What can be checked without Spark is checked before it starts.

        Raises `OptionError`, `RestoreSourceError`, `StoreError`, `UnpicklableFunction`, `PortError`, `JavaMissing`,
        `SessionError`, `SourceError`, `SinkError`.
        """
        configuration = _with_absolute_paths(configuration)
        settings, open_store = JobSettings.from_configuration(configuration, graph.slots), driver_store(configuration)
        dumps(graph)
        available = is_available(configuration)
        limit_s = configuration.get(CheckpointingOptions.CHECKPOINTING_TIMEOUT).seconds if available else 0.0
        found = look_at_storage(
            lambda: _found(graph, configuration, settings, open_store), Terminal(graph.name).tell, limit_s
        )
        identity, restored = found
        if identity.is_over:
            return _ended(graph, identity)
        terminal, files = Terminal(graph.name), JobFiles()
        if available or configuration.get(StateRecoveryOptions.SAVEPOINT_PATH) == LATEST:
            terminal.tell(_how_it_starts(graph, identity, restored))
        if not is_running():
            terminal.tell("starting Spark …")
        job: SparkJob | None = None
        try:
            reads_frames = has_frames(graph)
            spares = configuration.get(ResourceManagerOptions.REDUNDANT_TASK_MANAGER_NUM)
            needed = graph.slots + spares
            substrate = open_session(graph.name, needed, keep=reads_frames, queries=gives_frames(graph))
            places = substrate.fixed_places()
            if spares and places is not None and places < needed:
                terminal.tell(
                    f"{min(spares, needed - places)} of {spares} spare slots cannot stand by: the "
                    f"session (master {substrate.master}) runs {places} tasks at once"
                )
            ship_modules(substrate, configuration)
            substrate = with_files(substrate, configuration)
            job = SparkJob(graph, configuration, identity, substrate, terminal, files)
            try:
                if reads_frames:
                    terminal.show("writing the DataFrame's rows …")
                if not reads_frames or _leaves_places(substrate, needed):
                    job.start_slots(needed)
                files.prepare(graph, identity, substrate, restored, FrameOptions.of(configuration), terminal.tell)
                terminal.show("")
                return job.start()
            except BaseException:
                job.give_up()
                raise
        except BaseException as error:
            if job is None or not job.has_begun:
                files.remove(Release.OWN, owns_log=False)
            active = SparkContext._active_spark_context
            if isinstance(error, Exception) and active is not None and (why := why_gone(active)) is not None:
                raise SessionError(why) from error  # whatever it was that failed for want of Spark
            raise
        finally:
            terminal.show("")


def _found(
    graph: JobGraph, configuration: Configuration, settings: JobSettings, open_store: OpenStore
) -> tuple[JobIdentity, FoundCheckpoint | None]:
    """Return the job's identity and the checkpoint to restore. Makes its directory. Raises as `submit`."""
    identity = identify(configuration, graph.name, lambda: JobID.generate().hex, open_store)
    check_place(graph, identity)
    if is_available(configuration):
        _check_one_job(graph, identity)
    if identity.is_over:
        return identity, None
    try:
        restored = check_fit(
            graph,
            identity,
            open_store,
            settings.ignore_unclaimed_state,
            settings.without_channel_state,
            settings.checkpointing,
            settings.adaptive is not None,
        )
    except RestoreSourceError:
        now = look_whether_over(graph.name, configuration, open_store)
        if now is None:
            raise
        return now, None  # another driver has ended it while it was looked at
    if identity.directory is not None:
        open_own(open_store, identity.directory)
    return identity, restored


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
    message = how_it_ended(graph.name, identity)
    Terminal(graph.name).tell(message)
    return EndedJobClient(JobID(identity.job_id), graph.name, identity.ended.state, message)


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
