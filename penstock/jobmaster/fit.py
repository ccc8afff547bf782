"""Checks whether a checkpoint fits the program: before anything is started, and again when the JobMaster owns the log.

The first check costs the user no start of Spark. It writes nothing. If it cannot read something for any reason other
than its content (another driver may be deleting what it lists), the JobMaster reads it again when it owns the log.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.common.options import PipelineOptions, StateRecoveryOptions
from penstock.graph.compatibility import IncompatibleGraph, check, with_max_parallelism
from penstock.graph.job_graph import JobGraph
from penstock.graph.rescaling import rescaled
from penstock.jobmaster.identity import CheckpointToStartFrom, JobIdentity, OpenStore, RestoreSourceError
from penstock.jobmaster.restore import read_start, without_channel_state
from penstock.protocol.log.publication import LOG_EXISTS, unrestorable
from penstock.protocol.restore.receivers import uneven_broadcasts
from penstock.protocol.restore.rescale import edges_in_flight
from penstock.protocol.values.log_entries import CheckpointEntry, Ended, Fence
from penstock.protocol.values.metadata import Metadata
from penstock.storage.log import Entry, log_length, look_at_log
from penstock.storage.metadata import read_metadata
from penstock.storage.sealed import DamagedObject, NewerFormat
from penstock.storage.store import ObjectStore, StoreError


@dataclass(frozen=True)
class FoundCheckpoint:
    """Names a checkpoint and the directory of the job that took it."""

    metadata: Metadata
    directory: str


def fitted(graph: JobGraph, metadata: Metadata, ignore_unclaimed_state: bool, may_lower: bool = False) -> JobGraph:
    """Return the graph, with what it takes over from the checkpoint. `may_lower`: in the checkpoint's number of slots,
    if receivers of a broadcast cannot be more. Raises `IncompatibleGraph`.
    """
    graph, uneven = with_max_parallelism(graph, metadata.vertices), uneven_broadcasts(metadata)
    slots = max((vertex.parallelism for vertex in metadata.vertices), default=graph.slots)
    if may_lower and uneven and slots < graph.slots:
        _check(graph, metadata, ignore_unclaimed_state, frozenset())
        graph = rescaled(graph, graph, slots)
    _check(graph, metadata, ignore_unclaimed_state, uneven)
    return graph


def _check(graph: JobGraph, metadata: Metadata, ignore_unclaimed_state: bool, uneven: frozenset[str]) -> None:
    try:
        check(metadata.vertices, metadata.edges, graph, ignore_unclaimed_state, edges_in_flight(metadata), uneven)
    except IncompatibleGraph as error:
        raise IncompatibleGraph(f"checkpoint {metadata.checkpoint_id}: {error}") from None


def check_fit(
    graph: JobGraph,
    identity: JobIdentity,
    open_store: OpenStore,
    ignore_unclaimed_state: bool,
    without_channel_state_of: int = -1,
    may_lower: bool = False,
) -> FoundCheckpoint | None:
    """Return the checkpoint that the job will be restored from, as far as it can be seen now. `may_lower`: as `fitted`.

    Raises `RestoreSourceError` where it would be refused, or where a new job's directory has a log already."""
    if not identity.resume and identity.directory is not None and _has_log(identity.directory, open_store):
        raise RestoreSourceError(f"{PipelineOptions.FIXED_JOB_ID.key} {identity.job_id}: {LOG_EXISTS}")
    found = _to_restore(identity, open_store)
    if found is not None:
        try:
            metadata, _ = without_channel_state(found.metadata, without_channel_state_of)
            fitted(graph, metadata, ignore_unclaimed_state, may_lower)
        except IncompatibleGraph as error:
            raise _refused(str(error)) from None
    return found


def nothing_to_resume(job_id: str, state: str) -> str:
    return (
        f"job {job_id} has ended ({state}) and kept no checkpoint, so there is nothing to resume. Start it afresh, "
        "without execution.state-recovery.path (-s) and under another id"
    )


def _has_log(directory: str, open_store: OpenStore) -> bool:
    try:
        return log_length(open_store(directory, False)) > 0
    except StoreError:  # usually there is no such directory; the JobMaster meets any other error again
        return False


def _to_restore(identity: JobIdentity, open_store: OpenStore) -> FoundCheckpoint | None:
    """Return the metadata of the checkpoint to restore, or None if there is none or it cannot be read yet."""
    directory, start = identity.directory, identity.start_from
    if identity.resume and directory is not None:

        def look(log: list[Entry]) -> FoundCheckpoint | CheckpointToStartFrom | None:
            newest, ended, start = _newest(log)
            if ended is not None and (newest is None or newest.path not in ended.retained):
                if ended.state == "FINISHED" or newest is not None:
                    raise _refused(nothing_to_resume(identity.job_id, ended.state))
            elif newest is not None:
                return FoundCheckpoint(_read(store, newest, directory), directory)
            return start

        try:
            store = open_store(directory, False)
            found = look_at_log(store, look)
        except StoreError:
            return None
        if isinstance(found, FoundCheckpoint):
            return found
        start = found
    return None if start is None else FoundCheckpoint(read_start(open_store, start).metadata, start.directory)


def _read(store: ObjectStore, newest: CheckpointEntry, directory: str) -> Metadata:
    try:
        return read_metadata(store, newest.path, newest.metadata_crc)
    except (NewerFormat, DamagedObject) as error:
        told = unrestorable(newest.checkpoint_id, str(error), newest.path, newest.retained, directory)
        raise _refused(told) from None


def _refused(text: str) -> RestoreSourceError:
    return RestoreSourceError(f"{StateRecoveryOptions.SAVEPOINT_PATH.key}: {text}")


def _newest(log: list[Entry]) -> tuple[CheckpointEntry | None, Ended | None, CheckpointToStartFrom | None]:
    """Return a job's newest checkpoint, its end after that, and, without a checkpoint, what it started from."""
    ended = start = None
    for entry in reversed(log):
        if isinstance(entry, CheckpointEntry):
            return entry, ended, None
        if isinstance(entry, Ended):
            ended = ended or entry
        elif isinstance(entry, Fence) and start is None and entry.restored_from is not None:
            start = CheckpointToStartFrom.parse(entry.restored_from)
    return None, ended, start
