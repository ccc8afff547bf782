"""Implements a slot: one process's share of a job.

It builds its subtasks for each generation, routes what arrives to them, and releases them when the generation is over.
The process stays: a restart happens inside it.

The connections' thread delivers messages and frames, one after the other; they never wait here.
"""

from __future__ import annotations

import threading
from typing import Any, Callable

import cloudpickle

from penstock.common.clock import Clock
from penstock.common.concurrent_checkpoints import concurrent_checkpoints_max
from penstock.common.configuration import Configuration
from penstock.common.failures import describe, summary
from penstock.common.options import CheckpointingOptions, ExecutionOptions
from penstock.graph.deployment import DeploymentPlan
from penstock.protocol.values.elements import Generation, SubtaskId
from penstock.protocol.values.frames import CreditLimit, Frame
from penstock.protocol.values.messages import (
    Cancel,
    CheckpointEnded,
    Connected,
    Decline,
    Deploy,
    EndSources,
    Left,
    LimitWatermark,
    Message,
    PeerLost,
    ReleaseVertices,
    Restore,
    Restored,
    SlotStatus,
    SplitsAssigned,
    StartRun,
    StoreReply,
    SubtaskFailed,
    TriggerCheckpoint,
)
from penstock.protocol.values.metadata import Metadata
from penstock.protocol.values.reasons import FailureReason, SubtaskFailureReason
from penstock.runtime.checkpoint.master_store import MasterStore
from penstock.runtime.checkpoint.segment_uploads import SegmentUploads
from penstock.runtime.checkpoint.snapshot_writer import SavepointTarget, SnapshotWriter
from penstock.runtime.process.ports import DataLinks, MasterLink, Runner, StepScheduler
from penstock.runtime.process.reason_of import reason_of, text_of
from penstock.runtime.subtask.deployed_subtask import DeployedSubtask
from penstock.runtime.subtask.slot_resources import RowBackend, SlotResources
from penstock.runtime.subtask.subtask_factory import SubtaskFactory
from penstock.runtime.subtask.subtask_mail import Unpark
from penstock.runtime.subtask.subtask_runner import SubtaskRunner, WriterRunner
from penstock.state.choice import row_backend as configured_backend
from penstock.storage.layout import savepoint_segment_path, segment_path
from penstock.storage.metadata import decode_metadata
from penstock.storage.store import ObjectStore

OpenStore = Callable[[str, Configuration], ObjectStore]
"""(a job's directory, the job's options) -> its store"""


class _Deployment:
    """Holds a slot's resources of one generation. Everything is sent through here, so that nothing of a revoked
    generation leaves any more.
    """

    def __init__(self, message: Deploy, slot: "Slot") -> None:
        self.generation = Generation(*message.generation)
        self.message = message
        self.plan: DeploymentPlan = cloudpickle.loads(message.plan)
        self.metadata: Metadata | None = None
        self.revoked = False
        self._slot = slot
        self._restored = 0
        self._lock = threading.Lock()
        self.store, self.restore_store = self._open_stores()
        vertices = [v for v in self.plan.graph.vertices if slot.index < v.parallelism]
        self.writer = SnapshotWriter(
            self.generation,
            slot.index,
            len(vertices),
            self.store,
            self._segment_path,
            self._open_savepoint,
            self.send,
            self._unpark,
            slot.clock,
            SegmentUploads(concurrent_checkpoints_max(self.plan.configuration), slot.run_apart),
            self._codec,
        )
        resources = SlotResources(
            self.plan,
            self.generation,
            slot.index,
            slot.clock,
            self.writer,
            self._send_frame,
            self.send,
            self._decline,
            slot.row_backend,
        )
        factory = SubtaskFactory(resources)
        self._by_vertex = {vertex.index: self._runner(factory, factory.build(vertex)) for vertex in vertices}
        self.runners = list(self._by_vertex.values())
        self.writer_runner = WriterRunner(self.writer, self._writer_failed)
        self._edges = self.plan.graph.edges

    def _runner(self, factory: SubtaskFactory, deployed: DeployedSubtask) -> SubtaskRunner:
        """Return the runner of a subtask. It reads the metadata when it opens the subtask: only then is it known."""
        return SubtaskRunner(
            deployed,
            self.generation,
            self._slot.index,
            self._slot.clock,
            open=lambda: factory.open(deployed, self.metadata, self.restore_store),
            opened=self._one_restored,
            send=self.send,
        )

    def _open_stores(self) -> tuple[ObjectStore | None, ObjectStore | None]:
        plan, slot, root = self.plan, self._slot, self.message.restore_root
        if not plan.checkpointing:
            store: ObjectStore | None = None
        elif plan.storage_root is None:
            store = slot.master_store
        else:
            store = slot.open_store(plan.storage_root, plan.configuration)
        return store, (slot.open_store(root, plan.configuration) if root is not None else store)

    def _open_savepoint(self, checkpoint_id: int, directory: str) -> tuple[ObjectStore, str]:
        """Return a savepoint's store, and a name for the slot's segment in it."""
        name = savepoint_segment_path(self._slot.index, checkpoint_id, self._slot.new_random(), self._codec)
        return self._slot.open_store(directory, self.plan.configuration), name

    def _segment_path(self, checkpoint_id: int) -> str:
        return segment_path(
            self.generation,
            self.plan.incarnation,
            self._slot.index,
            checkpoint_id,
            self._slot.new_random(),
            self._codec,
        )

    @property
    def _codec(self) -> str:
        return self.plan.configuration.get(CheckpointingOptions.SNAPSHOT_COMPRESSION)

    # ---- what leaves --------------------------------------------------------------------------------------------

    def send(self, message: Message) -> None:
        if not self.revoked:
            self._slot.master.send(message)

    def _send_frame(self, slot: int, frame: Frame) -> None:
        if self.revoked:
            return
        if slot == self._slot.index:
            self.deliver(frame)
        else:
            self._slot.links.send(slot, frame)

    def _decline(self, subtask: SubtaskId, checkpoint_id: int, reason: FailureReason) -> None:
        self.send(Decline(self.generation, self._slot.index, checkpoint_id, subtask, reason))

    def _one_restored(self) -> None:
        with self._lock:
            self._restored += 1
            complete = self._restored == len(self.runners)
        if complete:
            layers = sum(len(runner.deployed.gate.layers) for runner in self.runners)
            self.send(Restored(self.generation, self._slot.index, layers))

    def _unpark(self, checkpoint_id: int) -> None:
        for runner in self.runners:
            runner.mailbox.post(Unpark(checkpoint_id))

    def _writer_failed(self, error: BaseException) -> None:
        first = self.runners[0].deployed
        text = f"the slot's snapshot writer failed: {type(error).__name__}: {error}"
        self.send(SubtaskFailed(self.generation, self._slot.index, first.id, first.vertex.name, text, describe(error)))

    # ---- what arrives -------------------------------------------------------------------------------------------

    def deliver(self, frame: Frame) -> None:
        edge = self._edges[frame.channel.edge]
        runner = self._by_vertex.get(edge.source if isinstance(frame, CreditLimit) else edge.target)
        if runner is not None:
            runner.mailbox.post(frame)

    def post(self, item: Any) -> None:
        for runner in self.runners:
            runner.mailbox.post(item)

    def post_to(self, subtask: SubtaskId, item: Any) -> None:
        self._by_vertex[subtask.vertex].mailbox.post(item)

    def release(self, message: ReleaseVertices) -> None:
        for vertex, runner in self._by_vertex.items():
            if message.is_last or vertex in message.vertices:
                runner.mailbox.post(message)

    def trigger(self, message: TriggerCheckpoint) -> None:
        if message.savepoint_directory is not None:
            self.writer.mailbox.post(SavepointTarget(message.barrier.checkpoint_id, message.savepoint_directory))
        self.post_to_sources(message)

    def limit(self, message: LimitWatermark) -> None:
        runner = self._by_vertex.get(message.vertex)
        if runner is not None:
            runner.mailbox.post(message)

    def post_to_sources(self, message: Message) -> None:
        for runner in self.runners:
            if runner.deployed.vertex.is_source:
                runner.mailbox.post(message)

    def restore(self) -> None:
        if self.message.restore is not None:
            self.metadata = decode_metadata(self.message.restore, "the checkpoint to restore from")
        for runner in self.runners:
            runner.may_restore()

    def restoring(self) -> list[str]:
        """Return the names of the subtasks that have not been restored yet."""
        return [runner.name for runner in self.runners if not runner.is_restored]

    def revoke(self) -> None:
        self.revoked = True
        for runner in self.runners:
            runner.revoke()
        self.writer_runner.revoke()


class Slot:
    """Implements a slot. `index` is the slot's number; a spare's changes when it takes another's place. `new_random`
    makes parts of object names that are used nowhere else. `row_backend`: see `SlotResources`.
    """

    def __init__(
        self,
        index: int,
        clock: Clock,
        master: MasterLink,
        links: DataLinks,
        scheduler: StepScheduler,
        open_store: OpenStore,
        new_random: Callable[[], str],
        row_backend: RowBackend = configured_backend,
    ) -> None:
        self.index = index
        self.clock = clock
        self.master = master
        self.links = links
        self.open_store = open_store
        self.new_random = new_random
        self.row_backend = row_backend
        self.master_store = MasterStore(index, master)
        self._scheduler = scheduler
        self.run_apart = scheduler.run_apart
        self._deployment: _Deployment | None = None
        self._letting_go: list[Any] = []

    # ---- from the JobMaster -------------------------------------------------------------------------------------

    def on_message(self, message: Message) -> None:
        """Handle a message. An error ends the generation. Without this: the connections' thread logs it, and the
        JobMaster waits for an answer.
        """
        deployment = self._deployment
        try:
            self._on_message(message)
        except Exception as error:
            if deployment is None:
                raise
            first = SubtaskId(0, self.index)
            what, reason = f"{text_of(error)} (slot {self.index}, on {type(message).__name__})", reason_of(error)
            deployment.send(
                SubtaskFailed(deployment.generation, self.index, first, "deployment", what, describe(error), reason)
            )

    def _on_message(self, message: Message) -> None:
        match message:
            case Deploy():
                self._deploy(message)
            case Restore(generation):
                if deployment := self._of(generation):
                    deployment.restore()
            case StartRun(generation):
                if deployment := self._of(generation):
                    deployment.post(message)
            case ReleaseVertices(generation):
                if deployment := self._of(generation):
                    deployment.release(message)
            case TriggerCheckpoint(generation):
                if deployment := self._of(generation):
                    deployment.trigger(message)
            case LimitWatermark(generation):
                if deployment := self._of(generation):
                    deployment.limit(message)
            case EndSources(generation):
                if deployment := self._of(generation):
                    deployment.post_to_sources(message)
            case CheckpointEnded(generation):
                if deployment := self._of(generation):
                    deployment.post(message)
            case SplitsAssigned(generation, subtask):
                if deployment := self._of(generation):
                    deployment.post_to(SubtaskId(*subtask), message)
            case Cancel(generation):
                self._cancel(Generation(*generation))
            case StoreReply():
                self.master_store.on_reply(message)
            case _:
                pass

    def _of(self, generation: Generation) -> _Deployment | None:
        """Return the deployment that a message belongs to; None for one of an older generation."""
        deployment = self._deployment
        return deployment if deployment is not None and deployment.generation == tuple(generation) else None

    def _deploy(self, message: Deploy) -> None:
        self._revoke()
        self.index = message.slot  # a spare's number, until now, is beyond the slots
        try:
            deployment = _Deployment(message, self)
        except Exception as error:
            first = SubtaskId(0, self.index)
            text = f"slot {self.index} cannot build its subtasks: {summary(error)}"
            permanent = SubtaskFailureReason.PERMANENT
            self.master.send(
                SubtaskFailed(message.generation, self.index, first, "deployment", text, describe(error), permanent)
            )
            return
        self._deployment = deployment
        runners: list[Runner] = [*deployment.runners, deployment.writer_runner]
        for runner in runners:
            self._scheduler.start(runner)
        self.links.connect(message.peers, deployment.generation)

    def _cancel(self, generation: Generation) -> None:
        """Release the generation, and report `Left` when none of its threads runs any more."""
        self._revoke()
        self.links.disconnect()
        self._when_left(lambda: self.master.send(Left(generation, self.index)))

    def _when_left(self, done: Callable[[], None]) -> None:
        """Call `done` once no thread of any generation runs here any more: of the last one, and of those before it,
        whose threads an earlier call may be waiting for still."""
        self._letting_go = [runner for runner in self._letting_go if not runner.done]
        self._scheduler.when_done(list(self._letting_go), self._cancellation_timeout_ms, done)

    _cancellation_timeout_ms = 180_000.0

    def _revoke(self) -> None:
        deployment, self._deployment = self._deployment, None
        if deployment is not None:
            timeout = deployment.plan.configuration.get(ExecutionOptions.TASK_CANCELLATION_TIMEOUT)
            self._cancellation_timeout_ms = timeout.ms
            deployment.revoke()
            self._letting_go += [*deployment.runners, deployment.writer_runner]

    # ---- from the connections -----------------------------------------------------------------------------------

    def on_frame(self, peer: int, frame: Frame) -> None:
        """Handle a frame from a peer of the current generation."""
        if self._deployment is not None:
            self._deployment.deliver(frame)

    def on_peers_connected(self, generation: Generation) -> None:
        if self._of(generation) is not None:
            self.master.send(Connected(generation, self.index))

    def on_peer_lost(self, peer: int, detail: str) -> None:
        deployment = self._deployment
        if deployment is not None:
            deployment.send(PeerLost(deployment.generation, self.index, peer, detail))

    # ---- what can be seen ---------------------------------------------------------------------------------------

    def status(self, rss_bytes: int) -> SlotStatus:
        deployment = self._deployment
        if deployment is None:
            return SlotStatus(Generation(0, 0), self.index, [], rss_bytes)
        statuses = [r.status() for r in deployment.runners]
        return SlotStatus(deployment.generation, self.index, statuses, rss_bytes, deployment.restoring())

    def on_master_lost(self, detail: str) -> None:
        """Stop everything: the connection to the JobMaster is lost, so nothing of ours may continue."""
        self._revoke()

    def close(self, done: Callable[[], None] = lambda: None) -> None:
        """Release everything; call `done` once no thread of a generation runs any more. The process ends after this."""
        self._revoke()
        self.links.disconnect()
        self._when_left(done)
