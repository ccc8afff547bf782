"""Executes the coordinator's effects: triggers, publishes, commits, deletes, and notifies the slots.

A checkpoint goes: trigger -> acknowledged by all slots -> metadata and log entry (through the log's conversations) ->
canonical: slots are notified, sinks commit, what it subsumes is deleted. A checkpoint that collects only committables
(the end of a job without checkpoints) skips metadata and log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from penstock.common.job_execution import CheckpointFailed
from penstock.graph.compatibility import edge_shapes, vertex_shapes
from penstock.graph.job_graph import JobGraph
from penstock.jobmaster.commits import Commits
from penstock.jobmaster.current_job import CurrentJob, Driver, RestorePoint
from penstock.jobmaster.generations import EnumeratorFailed, FinalPositions, RunningGeneration
from penstock.jobmaster.job_directory import JobDirectory
from penstock.jobmaster.ports import CheckpointAnswer, MasterPorts
from penstock.jobmaster.reports import CheckpointHistory, FailedCheckpoints
from penstock.jobmaster.savepoints import Savepoints, last_checkpoint
from penstock.protocol.driver import driver_events as events
from penstock.protocol.driver.commit_order import Retried, committables_of, confirmed_id, without_committables
from penstock.protocol.driver.coverage import verify
from penstock.protocol.driver.driver_effects import (
    CheckpointAborted,
    PublishCheckpoint,
    StillDraining,
    StillPublishing,
    TriggerCheckpoint,
)
from penstock.protocol.driver.joined_acks import joined
from penstock.protocol.driver.published_checkpoints import Follow, PublishedKind
from penstock.protocol.driver.savepoint import Savepoint
from penstock.protocol.log.log_operations import Conversation
from penstock.protocol.log.publication import (
    IdTaken,
    NewCheckpoint,
    NotPublished,
    PublicationError,
    Published,
    Subsumed,
)
from penstock.protocol.values import messages
from penstock.protocol.values.elements import SnapshotKind
from penstock.protocol.values.messages import CheckpointEnded, EndSources
from penstock.protocol.values.metadata import FORMAT_VERSION, Committable, EnumeratorState, Metadata
from penstock.protocol.values.reasons import FailureReason
from penstock.storage.layout import metadata_path
from penstock.storage.metadata_file import encode_metadata, metadata_crc

_WHY_REFUSED = {
    FailureReason.NOT_ALL_TASKS_RUNNING: "the job is not running (it starts, or restarts); try again",
    FailureReason.STOP_PENDING: "the job is being stopped with a savepoint",
    FailureReason.JOB_ENDED: "the job has ended",
    FailureReason.PERIODIC_SCHEDULER_SHUTDOWN: "all data of the job is processed, and it ends",
    FailureReason.TOO_MANY_REQUESTS: "too many have been asked for already; try again when they are done",
    FailureReason.JOB_FAILOVER: "the job failed over; try again",
    FailureReason.RESCALE_PENDING: "the job is being rescaled, or restored at another parallelism; try again",
}


@dataclass(frozen=True)
class _Triggered:
    """Holds the facts of the job at a checkpoint's trigger. `graph`: a rescale may change it before the checkpoint is
    published; `draining`: the job still read rows of an earlier restore.
    """

    graph: JobGraph
    draining: bool
    enumerators: list[EnumeratorState]


class Checkpoints:
    """Executes the effects of one job's checkpoints."""

    def __init__(
        self,
        job: CurrentJob,
        driver: Driver,
        running: RunningGeneration,
        job_directory: JobDirectory,
        commits: Commits,
        history: CheckpointHistory,
        savepoints: Savepoints,
        positions: FinalPositions,
        ports: MasterPorts,
    ) -> None:
        self._positions = positions
        self._job = job
        self._driver = driver
        self._running = running
        self._job_directory = job_directory
        self._commits = commits
        self._history = history
        self._savepoints = savepoints
        self._clock = ports.clock
        self._console = ports.console
        self._failed = FailedCheckpoints(ports.console)
        self._triggered: dict[int, _Triggered] = {}
        self._published: dict[int, tuple[NewCheckpoint, Published]] = {}
        """The newest checkpoint in the log, for the steps that follow its publication."""
        self._saved: dict[int, Savepoint] = {}
        """Savepoints that are complete, or about to be the job's last checkpoint, until they are answered."""

    def request(self, answer: CheckpointAnswer) -> None:
        """Take a checkpoint for a user, or say why not."""
        refusal = self._driver.coordinator.why_no_checkpoint
        if refusal is not None:
            answer(CheckpointFailed(f"no checkpoint is triggered: {_WHY_REFUSED[refusal]}"))
        elif not self._job.settings.checkpointing:
            answer(CheckpointFailed("checkpointing is not enabled; set execution.checkpointing.interval"))
        else:
            self._driver.handle(events.CheckpointAsked())
            answer(None)

    # ---- effects ------------------------------------------------------------------------------------------------

    def refuse_savepoint(self, savepoint: Savepoint, reason: FailureReason) -> None:
        self._savepoints.failed(savepoint, _WHY_REFUSED.get(reason, reason))

    def drain_sources(self) -> None:
        if self._running.id is not None:
            self._running.broadcast(EndSources(self._running.id))

    def discard(self, paths: Sequence[str], directory: str | None) -> None:
        if directory is None:
            self._job_directory.delete(paths)
        else:
            self._savepoints.discard(directory, paths)

    def warn_of_draining(self, still: StillDraining) -> None:
        self._console.warning(
            f"the sources were ended {still.waited_ms / 1000:.0f} s ago to stop the job, and {still.ended} of "
            f"{still.subtasks} subtasks have processed what they have; no checkpoint is taken meanwhile. The job "
            f"stops when the others have, too; `penstock cancel {self._job.identity.job_id}` ends it before"
        )

    def warn_of_publishing(self, still: StillPublishing) -> None:
        self._console.warning(
            f"checkpoint {still.checkpoint_id} was triggered {still.waited_ms / 1000:.0f} s ago, and the checkpoint "
            "storage has not said yet whether it is published; no other one is published meanwhile"
        )

    def abort(self, aborted: CheckpointAborted) -> None:
        checkpoint_id, reason, detail = aborted.checkpoint_id, aborted.reason, aborted.detail
        self._triggered.pop(checkpoint_id, None)
        self._saved.pop(checkpoint_id, None)
        self._history.aborted(checkpoint_id, reason, detail)
        if aborted.savepoint is None and not aborted.fails_job:
            self._failed.failed(checkpoint_id, reason, detail)
        self._notify_slots(checkpoint_id, aborted=True)
        self._job_directory.unpin_predecessor(checkpoint_id)
        if aborted.savepoint is not None:
            self._savepoints.failed(aborted.savepoint, f"{reason}: {detail}" if detail else reason)

    def _notify_slots(self, checkpoint_id: int, aborted: bool, commits: bool = True, confirmed: int = 0) -> None:
        """Report the end of a checkpoint to all slots of the generation, if there is one."""
        # 11.13: `commits` is False for a savepoint.
        if self._running.id is not None:
            self._running.broadcast(CheckpointEnded(self._running.id, checkpoint_id, aborted, commits, confirmed))

    def trigger(self, effect: TriggerCheckpoint) -> None:
        """Trigger the checkpoint at every slot, unless its sources cannot take part."""
        barrier = effect.barrier
        assert self._running.id is not None and self._running.sources is not None
        now_ms, wall_ms = self._clock.monotonic_ms(), self._clock.wall_ms()
        self._history.triggered(
            barrier.checkpoint_id,
            now_ms,
            wall_ms,
            barrier.starts_unaligned,
            barrier.kind.is_savepoint,
            sum(vertex.parallelism for vertex in self._job.graph.vertices),
        )
        try:
            triggered = _Triggered(self._job.graph, self._running.is_draining, self._running.sources.snapshot())
            self._triggered[barrier.checkpoint_id] = triggered
        except EnumeratorFailed as error:
            self._driver.handle(events.TriggerFailed(barrier.checkpoint_id, str(error)))
            return
        barrier = self._job_directory.with_predecessor(barrier)
        directory = None if effect.savepoint is None else effect.savepoint.directory
        self._running.broadcast(messages.TriggerCheckpoint(self._running.id, barrier, directory))

    def publish(self, publish: PublishCheckpoint) -> None:
        checkpoint_id = publish.barrier.checkpoint_id
        triggered = self._triggered.pop(checkpoint_id)
        self._history.acknowledged(publish)
        if publish.savepoint is not None:
            self._write_savepoint(publish, triggered)
            return
        if publish.barrier.kind is SnapshotKind.COMMITS_ONLY:
            self._commit_at_end(publish, triggered)
            return
        assert self._job_directory.conversations is not None
        publication = self._publication_of(publish, triggered)
        self._job_directory.conversations.begin(publication, partial(self._on_published, checkpoint_id))

    def _publication_of(self, publish: PublishCheckpoint, triggered: _Triggered) -> Conversation[Any]:
        """Yield the conversation that publishes a checkpoint. The metadata is built when its turn has come: only then
        all older commits are in the queue.
        """
        assert self._job_directory.publication is not None
        try:
            checkpoint = self._assembled(publish, triggered)
        except NotCovered as error:
            return None, NotPublished(str(error))
        result = yield from self._job_directory.publication.publish(checkpoint)
        return checkpoint, result

    def _assembled(self, publish: PublishCheckpoint, triggered: _Triggered) -> NewCheckpoint:
        checkpoint_id = publish.barrier.checkpoint_id
        # 12.6: `triggered.graph` ran when the checkpoint was triggered.
        return assemble(
            triggered.graph,
            self._job.identity.job_id,
            triggered.graph.name,
            self._job.incarnation,
            publish,
            self._history.trigger_wall_ms(checkpoint_id),
            triggered.enumerators,
            self._commits.unconfirmed,
            triggered.draining,
            0 if self._job_directory.publication is None else self._job_directory.publication.newest_id,
            self._job_directory.may_be_named_by(checkpoint_id),
        )

    # ---- savepoints ---------------------------------------------------------------------------------------------

    def _write_savepoint(self, publish: PublishCheckpoint, triggered: _Triggered) -> None:
        savepoint, checkpoint_id = publish.savepoint, publish.barrier.checkpoint_id
        assert savepoint is not None
        try:
            metadata = self._assembled(publish, triggered).metadata
        except NotCovered as error:
            self._not_published(checkpoint_id, str(error))
            return

        def written(failure: str | None) -> None:
            if failure is not None:
                self._not_published(checkpoint_id, failure)
            elif savepoint.stops:
                self._driver.handle(events.SavepointWritten(checkpoint_id))
                self._stop_with(savepoint, metadata, publish, triggered)
            else:
                self._saved[checkpoint_id] = savepoint
                self._driver.handle(events.CheckpointPublished(checkpoint_id, PublishedKind.SAVED))

        self._savepoints.write(publish, metadata, written)

    def _stop_with(
        self, savepoint: Savepoint, metadata: Metadata, publish: PublishCheckpoint, triggered: _Triggered
    ) -> None:
        """Make the savepoint the job's last checkpoint. Once it is in the log it is the only way forward."""
        conversations, publication = self._job_directory.conversations, self._job_directory.publication
        if conversations is None or publication is None:
            self._commit_at_end(publish, triggered)
            self._savepoints.succeeded(savepoint)
            return

        def publish_last() -> Conversation[Any]:
            # Only now all older commits are in the queue.
            unconfirmed = msgspec.structs.replace(
                metadata,
                unconfirmed_commits=list(self._commits.unconfirmed),
                subtasks=without_committables(metadata.subtasks, publication.newest_id),
            )
            last = last_checkpoint(unconfirmed, savepoint.directory)
            result = yield from publication.publish(last)
            return last, result

        self._saved[metadata.checkpoint_id] = savepoint
        conversations.begin(publish_last(), partial(self._on_published, metadata.checkpoint_id))

    def _not_published(self, checkpoint_id: int, detail: str) -> None:
        self._driver.handle(events.CheckpointNotPublished(checkpoint_id, FailureReason.FINALIZE_FAILURE, detail))

    # ---- publishing ---------------------------------------------------------------------------------------------

    def _on_published(self, checkpoint_id: int, outcome: Any) -> None:
        if isinstance(outcome, PublicationError):
            self._driver.handle(events.LogLost(str(outcome)))
            return
        checkpoint, result = outcome
        match result:
            case Published():
                self._published = {checkpoint_id: (checkpoint, result)}
                kind = PublishedKind.FINAL if checkpoint.metadata.is_final else PublishedKind.CHECKPOINT
                if checkpoint.metadata.savepoint is not None:
                    kind = PublishedKind.STOPPED
                self._driver.handle(events.CheckpointPublished(checkpoint_id, kind))
            case IdTaken(detail, next_id):
                self._driver.handle(events.IdsUsed(next_id))
                self._driver.handle(events.CheckpointNotPublished(checkpoint_id, FailureReason.ID_TAKEN, detail))
            case NotPublished(detail):
                self._not_published(checkpoint_id, detail)
            case Subsumed():
                detail = "a newer one has completed"
                self._driver.handle(events.CheckpointNotPublished(checkpoint_id, FailureReason.SUBSUMED, detail))

    def follow(self, step: Follow, checkpoint_id: int) -> None:
        """Take one step for a checkpoint that is complete now."""
        match step:
            case Follow.NOTIFY_SLOTS_SAVED:
                self._notify_slots(checkpoint_id, aborted=False, commits=False)
            case Follow.ANSWER:
                self._savepoints.succeeded(self._saved.pop(checkpoint_id))
            case _:
                self._follow_entry(step, checkpoint_id)

    def _follow_entry(self, step: Follow, checkpoint_id: int) -> None:
        checkpoint, published = self._published[checkpoint_id]
        metadata = checkpoint.metadata
        match step:
            case Follow.RECORD:
                self._history.published(checkpoint, self._clock.monotonic_ms())
                self._failed.completed()
            case Follow.RESTORE_FROM:
                self._job.restore_point = RestorePoint(metadata, checkpoint.data)
            case Follow.NOTIFY_SLOTS:
                self._notify_slots(checkpoint_id, aborted=False, confirmed=confirmed_id(metadata))
            case Follow.REPORT_POSITIONS:
                if self._running.sources is not None and self._running.id is not None:
                    self._running.sources.checkpoint_completed(metadata.subtasks)
            case Follow.COMMIT:
                self._commits.add(_own_committables(metadata))
            case Follow.COMMIT_LAST:
                finish = partial(self._positions.report, metadata.enumerators, metadata.subtasks, self._driver.finish)
                self._commits.add(_own_committables(metadata), finish)
            case Follow.RETRY_COMMITS:
                self._driver.handle(Retried())
            case Follow.DELETE_UNNEEDED:
                self._job_directory.delete_unneeded(published)
            case Follow.RELEASE_PREDECESSOR:
                self._job_directory.unpin_predecessor(checkpoint_id)

    def _commit_at_end(self, publish: PublishCheckpoint, triggered: _Triggered) -> None:
        self._history.ended_without_entry(publish.barrier.checkpoint_id)
        self._driver.handle(events.Finishing())
        checkpoint_id = publish.barrier.checkpoint_id
        prepared = [c for ack in publish.acks for s in ack.subtasks for c in s.committables]
        committables = [msgspec.structs.replace(c, checkpoint_id=checkpoint_id) for c in prepared]
        subtasks = [subtask for ack in publish.acks for subtask in ack.subtasks]

        def finish() -> None:
            self._driver.handle(events.CheckpointPublished(checkpoint_id, PublishedKind.COMMITTED))
            self._driver.finish()

        self._commits.add(committables, partial(self._positions.report, triggered.enumerators, subtasks, finish))


def _own_committables(metadata: Metadata) -> list[Committable]:
    """Return the output that this checkpoint is the first to name."""
    return committables_of(metadata)[len(metadata.unconfirmed_commits) :]


VIOLATIONS_NAMED_MAX = 5


class NotCovered(Exception):
    """Signals that the stored elements do not cover the in-flight data, or name a segment that may be deleted: a bug of
    ours. Names the channels, or the segments.
    """


def assemble(
    graph: JobGraph,
    job_id: str,
    job_name: str,
    incarnation: str,
    publish: PublishCheckpoint,
    trigger_wall_ms: int,
    enumerators: Sequence[EnumeratorState],
    unconfirmed: Sequence[Committable],
    draining: bool = False,
    newest_id: int = 0,
    earlier: frozenset[str] = frozenset(),
) -> NewCheckpoint:
    """Build the metadata. `draining`: whether the job was draining when the checkpoint was triggered. `newest_id`: the
    newest canonical checkpoint, whose output is committed or among `unconfirmed`. `earlier`: the segments of its
    predecessor, which it may name besides its own. Raises `NotCovered`.
    """
    segments, subtasks = joined(publish.acks)
    own = frozenset[str]().union(*(ack.own for ack in publish.acks))
    if foreign := sorted({segment.path for segment in segments} - own - earlier):
        raise NotCovered(f"it names segments that nothing keeps for it: {', '.join(foreign[:VIOLATIONS_NAMED_MAX])}")
    violations = verify(graph.edges, subtasks, draining)
    if violations:
        more = len(violations) - VIOLATIONS_NAMED_MAX
        named = "; ".join(violations[:VIOLATIONS_NAMED_MAX]) + (f"; and {more} more" if more > 0 else "")
        raise NotCovered(f"in-flight data is incomplete: {named}")
    checkpoint_id = publish.barrier.checkpoint_id
    metadata = Metadata(
        FORMAT_VERSION,
        job_id,
        job_name,
        checkpoint_id,
        publish.generation.fence,
        publish.generation.counter,
        incarnation,
        trigger_wall_ms,
        draining,
        vertex_shapes(graph),
        edge_shapes(graph),
        segments,
        without_committables(subtasks, newest_id),
        list(enumerators),
        list(unconfirmed),
        publish.is_final,
    )
    data = encode_metadata(metadata)
    return NewCheckpoint(metadata, metadata_path(checkpoint_id), data, metadata_crc(data))
