"""Holds a slot's part of one generation: its subtasks, and the writer of its segments."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, Callable

import cloudpickle

from penstock.common.clock import Clock
from penstock.common.configuration import Configuration
from penstock.common.limits import Limits
from penstock.common.options import CheckpointingOptions
from penstock.common.program.failures import describe
from penstock.common.settings.checkpoint_settings import concurrent_checkpoints_max
from penstock.graph.deployment import DeploymentPlan
from penstock.operators.calls.call_runner import NewCallRunner
from penstock.protocol.values.elements import Generation, SubtaskId
from penstock.protocol.values.frames import CreditLimit, Frame
from penstock.protocol.values.messages import (
    CheckpointEnded,
    Decline,
    Deploy,
    LimitWatermark,
    Message,
    ReleaseVertices,
    Restored,
    SubtaskFailed,
    TriggerCheckpoint,
)
from penstock.protocol.values.metadata import Metadata
from penstock.protocol.values.reasons import FailureReason
from penstock.runtime.checkpoint.consolidations import Consolidations
from penstock.runtime.checkpoint.master_store import MasterStore
from penstock.runtime.checkpoint.segment_uploads import SegmentUploads
from penstock.runtime.checkpoint.snapshot_writer import SavepointTarget, SnapshotWriter
from penstock.runtime.process.backup import OpenBackup
from penstock.runtime.process.slot_ports import DataLinks, MasterLink
from penstock.runtime.subtask.deployed_subtask import DeployedSubtask
from penstock.runtime.subtask.parking import Unpark
from penstock.runtime.subtask.slot_resources import RowBackend, SlotResources
from penstock.runtime.subtask.subtask_factory import SubtaskFactory
from penstock.runtime.subtask.subtask_runner import SubtaskRunner, WriterRunner
from penstock.storage.backed_up import BackedUpStore
from penstock.storage.layout import savepoint_segment_path, segment_path
from penstock.storage.metadata_file import decode_metadata
from penstock.storage.store import ObjectStore

OpenStore = Callable[[str, Configuration], ObjectStore]
"""(a job's directory, the job's options) -> its store"""


@dataclass(frozen=True)
class SlotPorts:
    """Holds a slot's ports to the world. `new_random` makes parts of object names that are used nowhere else.
    `row_backend` and `new_calls`: see `SlotResources`. `run_apart` runs work in a thread of its own.
    """

    clock: Clock
    master: MasterLink
    links: DataLinks
    open_store: OpenStore
    new_random: Callable[[], str]
    row_backend: RowBackend
    master_store: MasterStore
    run_apart: Callable[[Callable[[], None]], None]
    limits: Limits
    new_calls: NewCallRunner


class SlotDeployment:
    """Holds a slot's resources of one generation. Everything is sent through here, so that nothing of a revoked
    generation leaves any more. `backup_of`: returns where the slot keeps copies of its segments.
    """

    def __init__(self, message: Deploy, ports: SlotPorts, backup_of: OpenBackup) -> None:
        self.generation = Generation(*message.generation)
        self.message = message
        # 8.3: functions of a generation are unpickled afresh.
        self.plan: DeploymentPlan = cloudpickle.loads(message.plan)
        self.metadata: Metadata | None = None
        self.revoked = False
        self._slot = message.slot
        self._ports = ports
        self._backup = backup = backup_of(self.plan)
        self._restored = 0
        self._lock = threading.Lock()
        self.store, self.restore_store = self._open_stores()
        vertices = [v for v in self.plan.graph.vertices if self._slot < v.parallelism]
        in_memory = ports.limits.columnar_range_bytes
        self.writer = SnapshotWriter(
            self.generation,
            self._slot,
            len(vertices),
            self.store if self.store is None or backup is None else BackedUpStore(self.store, backup),
            self._segment_path,
            self._open_savepoint,
            self.send,
            self._unpark,
            ports.clock,
            SegmentUploads(concurrent_checkpoints_max(self.plan.configuration), ports.run_apart),
            self._codec,
            backup,
            # Without local copies: those that no checkpoint names are deleted, and consolidations are named later.
            Consolidations(self.store, self._segment_path, ports.clock, ports.run_apart, self._codec, in_memory),
            in_memory,
        )
        resources = SlotResources(
            self.plan,
            self.generation,
            self._slot,
            ports.clock,
            self.writer,
            self._send_frame,
            self.send,
            self._decline,
            ports.row_backend,
            backup,
            ports.run_apart,
            ports.limits,
            ports.new_calls,
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
            self._slot,
            self._ports.clock,
            open=lambda: factory.open(deployed, self.metadata, self.restore_store),
            opened=self._one_restored,
            send=self.send,
        )

    def _open_stores(self) -> tuple[ObjectStore | None, ObjectStore | None]:
        plan, ports, root = self.plan, self._ports, self.message.restore_root
        if not plan.checkpointing:
            store: ObjectStore | None = None
        elif plan.storage_root is None:
            store = ports.master_store
        else:
            store = ports.open_store(plan.storage_root, plan.configuration)
        return store, (ports.open_store(root, plan.configuration) if root is not None else store)

    def _open_savepoint(self, checkpoint_id: int, directory: str) -> tuple[ObjectStore, str]:
        """Return a savepoint's store, and a name for the slot's segment in it."""
        name = savepoint_segment_path(self._slot, checkpoint_id, self._ports.new_random(), self._codec)
        return self._ports.open_store(directory, self.plan.configuration), name

    def _segment_path(self, checkpoint_id: int) -> str:
        return segment_path(
            self.generation,
            self.plan.incarnation,
            self._slot,
            checkpoint_id,
            self._ports.new_random(),
            self._codec,
        )

    @property
    def _codec(self) -> str:
        return self.plan.configuration.get(CheckpointingOptions.SNAPSHOT_COMPRESSION)

    # ---- what leaves --------------------------------------------------------------------------------------------

    def send(self, message: Message) -> None:
        # 12.2: nothing of a revoked generation leaves.
        if not self.revoked:
            self._ports.master.send(message)

    def _send_frame(self, slot: int, frame: Frame) -> None:
        if self.revoked:
            return
        if slot == self._slot:
            self.deliver(frame)
        else:
            self._ports.links.send(slot, frame)

    def _decline(self, subtask: SubtaskId, checkpoint_id: int, reason: FailureReason) -> None:
        self.send(Decline(self.generation, self._slot, checkpoint_id, subtask, reason))

    def _one_restored(self) -> None:
        with self._lock:
            self._restored += 1
            complete = self._restored == len(self.runners)
        if complete:
            if self._backup is not None:
                self._backup.log_restored(self._slot)
            layers = sum(len(runner.deployed.gate.layers) for runner in self.runners)
            self.send(Restored(self.generation, self._slot, layers))

    def _unpark(self, checkpoint_id: int) -> None:
        for runner in self.runners:
            runner.mailbox.post(Unpark(checkpoint_id))

    def _writer_failed(self, error: BaseException) -> None:
        first = self.runners[0].deployed
        text = f"the slot's snapshot writer failed: {type(error).__name__}: {error}"
        self.send(SubtaskFailed(self.generation, self._slot, first.id, first.vertex.name, text, describe(error)))

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

    def on_checkpoint_ended(self, message: CheckpointEnded) -> None:
        self.post(message)
        if self._backup is not None:
            self.writer.mailbox.post(message)

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
        if self._backup is not None:
            self._backup.begin_generation()
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
