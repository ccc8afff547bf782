"""Checks whether a checkpoint fits the program: before anything is started, and again when the JobMaster owns the log.

The first check costs the user no start of Spark. It writes nothing. If it cannot read something for any reason other
than its content (another driver may be deleting what it lists), the JobMaster reads it again when it owns the log.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.common.options import PipelineOptions, StateRecoveryOptions
from penstock.graph.compatibility import IncompatibleGraph, check, edge_shapes, vertex_shapes, with_max_parallelism
from penstock.graph.job_graph import JobGraph
from penstock.graph.rescaled_graph import as_taken, rescaled
from penstock.graph.states import state_problems, unclaimed_problems
from penstock.jobmaster.identity import CheckpointToStartFrom, JobIdentity, OpenStore, RestoreSourceError
from penstock.jobmaster.restore import read_start, without_channel_state
from penstock.protocol.log.publication import LOG_EXISTS, unrestorable
from penstock.protocol.restore.given_up import NOTHING, RowsToGiveUp
from penstock.protocol.restore.receivers import changed_receivers, uneven_broadcasts
from penstock.protocol.restore.rescale import edges_in_flight
from penstock.protocol.values.log_entries import CheckpointEntry, Ended, Fence
from penstock.protocol.values.metadata import Metadata
from penstock.storage.damage import DAMAGE
from penstock.storage.log import Entry, log_length, look_at_log
from penstock.storage.metadata_file import read_metadata
from penstock.storage.sealed import DamagedObject, NewerFormat
from penstock.storage.store import DirectoryMissing, ObjectStore, StoreAway, StoreError


@dataclass(frozen=True)
class FoundCheckpoint:
    """Names a checkpoint and the directory of the job that took it."""

    metadata: Metadata
    directory: str


@dataclass(frozen=True)
class Fit:
    """Describes the restore of a checkpoint: as `graph`. `then`: the graph as which the job continues in a second step,
    as soon as the receivers of the broadcasts `edges` have read the same rows; None: there is one step.
    """

    graph: JobGraph
    then: JobGraph | None = None
    edges: frozenset[str] = frozenset()

    def text(self, checkpoint_id: int) -> str:
        """Return a message that says why there are two steps."""
        assert self.then is not None
        vertices = self.graph.vertices
        edge = next(edge for edge in self.graph.edges if edge.name in self.edges)
        source, target = vertices[edge.source].operators[-1].name, vertices[edge.target].operators[0].name
        return (
            f"restoring checkpoint {checkpoint_id} at parallelism {vertices[edge.target].parallelism} first, because "
            f"some subtasks of '{target}' had read rows of the broadcast from '{source}' that others had not. The "
            "sources emit nothing until all have read the same rows. Then the job continues at parallelism "
            f"{self.then.vertices[edge.target].parallelism}"
        )


def fitted(graph: JobGraph, metadata: Metadata, ignore_unclaimed_state: bool) -> JobGraph:
    """Return the graph, with what it takes over from the checkpoint. Raises `IncompatibleGraph`."""
    graph = with_max_parallelism(graph, metadata.vertices)
    _check(graph, metadata, ignore_unclaimed_state, uneven_broadcasts(metadata))
    return graph


def fitted_in_steps(
    graph: JobGraph, metadata: Metadata, ignore_unclaimed_state: bool, checkpointing: bool, may_lower: bool = False
) -> Fit:
    """Return the graph, with what it takes over from the checkpoint, and another one to run before it, if receivers of
    a broadcast have to read the same rows first. `checkpointing`: a second step begins with a checkpoint. `may_lower`:
    the job may run in the checkpoint's number of slots instead, for it gets more when they come. Raises
    `IncompatibleGraph`.
    """
    graph, uneven = with_max_parallelism(graph, metadata.vertices), uneven_broadcasts(metadata)
    changed = _changed(graph, metadata, uneven)
    if not changed or not checkpointing:
        _check(graph, metadata, ignore_unclaimed_state, uneven)
        return Fit(graph)
    _check(graph, metadata, ignore_unclaimed_state, frozenset())
    slots = max(vertex.parallelism for vertex in metadata.vertices)
    lower = rescaled(graph, graph, slots) if may_lower and slots < graph.slots else graph
    if not _changed(lower, metadata, uneven):
        return Fit(lower)
    first = as_taken(graph, metadata.vertices, changed)
    _check(first, metadata, ignore_unclaimed_state, uneven)
    return Fit(first, graph, changed)


def _changed(graph: JobGraph, metadata: Metadata, uneven: frozenset[str]) -> frozenset[str]:
    return changed_receivers(metadata, uneven, vertex_shapes(graph), edge_shapes(graph)) if uneven else uneven


def _check(graph: JobGraph, metadata: Metadata, ignore_unclaimed_state: bool, uneven: frozenset[str]) -> None:
    try:
        in_flight = edges_in_flight(metadata)
        states = [*state_problems(metadata, graph), *unclaimed_problems(metadata, graph)]
        check(metadata.vertices, metadata.edges, graph, ignore_unclaimed_state, in_flight, uneven, states)
    except IncompatibleGraph as error:
        raise IncompatibleGraph(f"checkpoint {metadata.checkpoint_id}: {error}", error.with_rows) from None


def refusal(error: IncompatibleGraph, checkpoint_id: int, give_up: RowsToGiveUp) -> str:
    """Return the message of a checkpoint that does not fit, with the values of the options that give up those rows that
    are in the way. `give_up`: what the options say now."""
    if not error.with_rows:
        return str(error)
    option, edges = StateRecoveryOptions, ",".join(give_up.with_edges(checkpoint_id, error.with_rows))
    return (
        f"{error}\n  To give up the rows in flight that are in the way, and no others, set "
        f"{option.WITHOUT_CHANNEL_STATE.key}={checkpoint_id} and {option.WITHOUT_CHANNEL_STATE_OF_CHANNELS.key}={edges}"
    )


def check_fit(
    graph: JobGraph,
    identity: JobIdentity,
    open_store: OpenStore,
    ignore_unclaimed_state: bool,
    give_up: RowsToGiveUp = NOTHING,
    checkpointing: bool = True,
    may_lower: bool = False,
) -> FoundCheckpoint | None:
    """Return the checkpoint that the job will be restored from, as far as it can be seen now. `checkpointing` and
    `may_lower`: as `fitted_in_steps`.

    Raises `RestoreSourceError` where it would be refused, or where a new job's directory has a log already."""
    if not identity.resume and identity.directory is not None and _has_log(identity.directory, open_store):
        raise RestoreSourceError(f"{PipelineOptions.FIXED_JOB_ID.key} {identity.job_id}: {LOG_EXISTS}")
    found = checkpoint_to_restore(identity, open_store, give_up)
    if found is not None:
        try:
            metadata, _ = without_channel_state(found.metadata, give_up)
            fitted_in_steps(graph, metadata, ignore_unclaimed_state, checkpointing, may_lower)
        except IncompatibleGraph as error:
            raise _refused(refusal(error, found.metadata.checkpoint_id, give_up)) from None
    return found


def nothing_to_resume(job_id: str, state: str, savepoint: str | None = None) -> str:
    """Return the message for a job that has ended. `savepoint`: what it was stopped with."""
    if savepoint is not None:
        return (
            f"job {job_id} has ended ({state}): it was stopped with the savepoint {savepoint}. Start a new job from "
            f"that (-s {savepoint}), under another id"
        )
    return (
        f"job {job_id} has ended ({state}) and kept no checkpoint, so there is nothing to resume. Start it afresh, "
        "without execution.state-recovery.path (-s) and under another id"
    )


def _has_log(directory: str, open_store: OpenStore) -> bool:
    try:
        return log_length(open_store(directory, False)) > 0
    except DirectoryMissing:
        return False
    except (*DAMAGE, NewerFormat):
        return True


def checkpoint_to_restore(
    identity: JobIdentity, open_store: OpenStore, give_up: RowsToGiveUp = NOTHING
) -> FoundCheckpoint | None:
    """Return the checkpoint to restore, or None if there is none or the JobMaster is to say why not. Raises
    `RestoreSourceError` where it would be refused, and `StoreAway`."""
    directory, start = identity.directory, identity.start_from
    if identity.resume and directory is not None:

        def look(log: list[Entry]) -> FoundCheckpoint | CheckpointToStartFrom | None:
            newest, ended, start = _newest(log)
            if ended is not None and (newest is None or newest.path not in ended.retained):
                if ended.state == "FINISHED" or newest is not None:
                    savepoint = None if newest is None else newest.savepoint
                    raise _refused(nothing_to_resume(identity.job_id, ended.state, savepoint))
            elif newest is not None:
                return FoundCheckpoint(_read(store, newest, directory), directory)
            return start

        try:
            store = open_store(directory, False)
            found = look_at_log(store, look)
        except StoreAway:
            raise
        except StoreError:
            return None
        if isinstance(found, FoundCheckpoint):
            return found
        start = found
    return None if start is None else FoundCheckpoint(read_start(open_store, start, give_up).metadata, start.directory)


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
