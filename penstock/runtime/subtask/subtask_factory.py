"""Builds the subtasks of a slot from the plan of a generation."""

from __future__ import annotations

import zlib

from penstock.graph.job_graph import Edge, Vertex
from penstock.protocol.channel.credit_pool import reserved_window
from penstock.protocol.values.metadata import Metadata
from penstock.runtime.checkpoint.subtask_restore import SubtaskRestore
from penstock.runtime.input.input_gate import InputGate
from penstock.runtime.output.result_partition import ResultPartition
from penstock.runtime.output.routing import create_router
from penstock.runtime.subtask.deployed_subtask import DeployedSubtask
from penstock.runtime.subtask.slot_resources import SlotResources
from penstock.runtime.subtask.subtask import Subtask
from penstock.runtime.subtask.subtask_opening import SubtaskOpening
from penstock.runtime.subtask.subtask_settings import NEVER_MS
from penstock.storage.store import ObjectStore


class SubtaskFactory:
    """Builds and opens subtasks. `shared`: what all subtasks of the slot have in common."""

    def __init__(self, shared: SlotResources) -> None:
        self._shared = shared
        self._plan = shared.plan
        self._generation = shared.generation
        self._slot = shared.slot
        self._clock = shared.clock
        self._send_frame = shared.send_frame
        self._settings = shared.settings

    def build(self, vertex: Vertex) -> DeployedSubtask:
        """Return the slot's subtask of a vertex, ready to receive frames."""
        graph = self._plan.graph
        sizer = self._settings.window_sizer()
        gate = InputGate(list(graph.inputs_of(vertex.index)), self._slot, sizer, self._send_frame, self._shared.limits)
        partitions = [self._partition(edge, vertex) for edge in graph.outputs_of(vertex.index)]
        return DeployedSubtask(vertex, self._slot, self._generation, gate, partitions)

    def open(self, deployed: DeployedSubtask, metadata: Metadata | None, store: ObjectStore | None) -> Subtask:
        """Restore the subtask and open its user code. Called in the subtask's thread. Raises `OperatorFailure`."""
        shared = self._shared
        restore = SubtaskRestore(
            self._plan, deployed, metadata, store, shared.backup, shared.run_apart, shared.limits.recovered_bytes
        )
        return SubtaskOpening(shared, deployed, restore).open()

    def _partition(self, edge: Edge, vertex: Vertex) -> ResultPartition:
        target = self._plan.graph.vertices[edge.target]
        operator = vertex.operators[-1].name
        seed = zlib.crc32(f"{edge.name}/{self._slot}/{self._generation}".encode())
        router = create_router(edge, self._slot, target.max_parallelism, operator, seed, self._shared.limits)
        consumers = edge.consumers_of(self._slot)
        credits = [self._initial_credit(target, consumer) for consumer in consumers]
        buffer_timeout_ms = self._settings.buffer_timeout_ms
        if edge.buffer_timeout_ms is not None:
            buffer_timeout_ms = edge.buffer_timeout_ms if edge.buffer_timeout_ms >= 0 else NEVER_MS
        return ResultPartition(
            edge,
            self._slot,
            router,
            self._slot,
            self._send_frame,
            self._settings.output_queue_sizer(len(consumers)),
            credits,
            buffer_timeout_ms,
            self._clock.monotonic_ms,
            self._shared.limits,
        )

    def _initial_credit(self, target: Vertex, consumer: int) -> int:
        """Return the window that each of the consumer's channels has from the start. Both ends compute it before a
        message is sent.
        """
        channels = sum(len(e.producers_of(consumer)) for e in self._plan.graph.inputs_of(target.index))
        return reserved_window(self._settings.window_sizer().bound_bytes, channels)
