"""Builds the subtasks of a slot from the plan of a generation, and restores them."""

from __future__ import annotations

import zlib
from typing import Callable

from penstock.common.clock import Clock
from penstock.common.failures import USER_ERRORS, OperatorFailure
from penstock.datastream.connectors.base import ReaderContext, WriterContext
from penstock.graph.deployment import DeploymentPlan
from penstock.graph.job_graph import Edge, Operator, Vertex
from penstock.graph.logical import OperatorKind
from penstock.operators.batches import row_type
from penstock.operators.columns.columnar_chain import ColumnarChain
from penstock.operators.columns.columnar_functions import columnar_operators
from penstock.operators.event_time.generation import WatermarkGeneration
from penstock.operators.event_time.timers import Timers
from penstock.operators.rows.chain import Chain
from penstock.operators.rows.creation import create_row_operator
from penstock.operators.rows.element import CurrentElement
from penstock.operators.rows.runtime_context import SubtaskRuntimeContext
from penstock.protocol.values.elements import Generation, SubtaskId
from penstock.protocol.values.frames import Frame
from penstock.protocol.values.keys import key_group_range
from penstock.protocol.values.messages import Message, Printed
from penstock.protocol.values.metadata import Metadata
from penstock.protocol.values.reasons import FailureReason
from penstock.runtime.checkpoint.snapshot_writer import Closed, Ended, SnapshotWriter, Taken
from penstock.runtime.checkpoint.subtask_checkpoints import SubtaskCheckpoints
from penstock.runtime.checkpoint.subtask_restore import SubtaskRestore
from penstock.runtime.input.input_gate import InputGate, channel_share
from penstock.runtime.output.result_partition import ResultPartition
from penstock.runtime.output.routing import create_router
from penstock.runtime.subtask.subtask import Subtask
from penstock.runtime.subtask.subtask_settings import NEVER_MS, SubtaskSettings
from penstock.state.columnar.backend import ColumnarStateBackend
from penstock.state.heap.hash_map import HashMapStateBackend
from penstock.storage.store import ObjectStore

_ENDS = (OperatorKind.SOURCE, OperatorKind.TIMESTAMPS, OperatorKind.SINK)


class SubtaskFactory:
    """`send_frame(slot, frame)` and `send(message)` drop what a revoked generation sends."""

    def __init__(
        self,
        plan: DeploymentPlan,
        generation: Generation,
        slot: int,
        clock: Clock,
        writer: SnapshotWriter,
        send_frame: Callable[[int, Frame], None],
        send: Callable[[Message], None],
        decline: Callable[[SubtaskId, int, FailureReason], None],
    ) -> None:
        self._plan = plan
        self._generation = generation
        self._slot = slot
        self._clock = clock
        self._writer = writer
        self._send_frame = send_frame
        self._send = send
        self._decline = decline
        self._settings = SubtaskSettings.of(plan.configuration)

    def build(self, vertex: Vertex) -> Subtask:
        """The slot's subtask of a vertex, ready to receive frames; `open` makes it ready to work."""
        graph, index = self._plan.graph, self._slot
        gate = InputGate(list(graph.inputs_of(vertex.index)), index, self._settings.window_sizer())
        partitions = [self._partition(edge, vertex) for edge in graph.outputs_of(vertex.index)]
        subtask = Subtask(
            SubtaskId(vertex.index, index),
            vertex,
            self._generation,
            self._slot,
            self._settings,
            self._clock,
            gate,
            partitions,
            self._send_frame,
            self._send,
            key_group_range(vertex.max_parallelism, vertex.parallelism, index),
        )
        mail = self._writer.mailbox
        subtask.checkpoints = SubtaskCheckpoints(
            subtask.id,
            subtask.machine,
            subtask,
            gate,
            partitions,
            self._clock,
            taken=lambda capture: mail.post(Taken(capture)),
            closed=lambda capture: mail.post(Closed(capture)),
            ended=lambda checkpoint_id: mail.post(Ended(checkpoint_id)),
            declined=lambda checkpoint_id, reason: self._decline(subtask.id, checkpoint_id, reason),
            send_frame=self._send_frame,
        )
        return subtask

    def _partition(self, edge: Edge, vertex: Vertex) -> ResultPartition:
        target = self._plan.graph.vertices[edge.target]
        operator = vertex.operators[-1].name
        seed = zlib.crc32(f"{edge.name}/{self._slot}/{self._generation}".encode())
        router = create_router(edge, self._slot, target.max_parallelism, operator, seed)
        credits = [self._initial_credit(target, consumer) for consumer in edge.consumers_of(self._slot)]
        buffer_timeout_ms = self._settings.buffer_timeout_ms
        if edge.buffer_timeout_ms is not None:
            buffer_timeout_ms = edge.buffer_timeout_ms if edge.buffer_timeout_ms >= 0 else NEVER_MS
        return ResultPartition(
            edge,
            self._slot,
            router,
            self._slot,
            self._send_frame,
            self._settings.output_queue_sizer(),
            credits,
            buffer_timeout_ms,
            self._clock.monotonic_ms,
        )

    def _initial_credit(self, target: Vertex, consumer: int) -> int:
        """A channel's share of the consumer's window, as both ends know it before anything is said."""
        channels = sum(len(e.producers_of(consumer)) for e in self._plan.graph.inputs_of(target.index))
        return channel_share(self._settings.window_sizer().bound_bytes, channels)

    def open(self, subtask: Subtask, metadata: Metadata | None, store: ObjectStore | None) -> None:
        """In the subtask's thread: reads what it had, then opens user code. Raises `OperatorFailure`."""
        vertex = subtask.vertex
        restore = SubtaskRestore(self._plan, subtask, metadata, store)
        restore.in_flight()
        restore.time(subtask)
        if (clock := vertex.clock) is not None:
            subtask.clock.generation = self._generation_of(clock, vertex)
        if vertex.columnar:
            self._build_columnar(subtask, restore)
        else:
            self._build_rows(subtask, restore)
        self._open_ends(subtask, vertex, restore)
        self._restore_generation(subtask, restore)
        subtask.chain.open()

    def _generation_of(self, clock: Operator, vertex: Vertex) -> WatermarkGeneration:
        rows = clock.output_type if clock.kind is OperatorKind.SOURCE else clock.input_type
        return WatermarkGeneration(
            clock, row_type(rows), self._settings.watermark_interval_ms, self._clock.monotonic_ms
        )

    @staticmethod
    def _restore_generation(subtask: Subtask, restore: SubtaskRestore) -> None:
        """When the reader has its splits: what is known of a split goes with it."""
        generation, reader = subtask.clock.generation, subtask.reader
        if generation is not None:
            uid = generation.operator.uid
            in_hand = reader.splits_in_hand() if reader is not None else []
            splits = in_hand if restore.is_dealt_out(uid) else None
            items = restore.part(uid, "watermarks")
            generation.restore(items, subtask.clock.time.emitted_ms, splits)
            if reader is not None:
                subtask.clock.on_splits(reader)

    def _build_rows(self, subtask: Subtask, restore: SubtaskRestore) -> None:
        vertex, head = subtask.vertex, subtask.vertex.operators[0]
        backend, timers, element = None, None, CurrentElement()
        if head.kind.keyed:
            backend = HashMapStateBackend(vertex.max_parallelism, {o.uid: o.name for o in vertex.operators})
            restore.keyed_state(backend)
            timers = Timers(head.uid, backend, subtask.clock.time, self._clock.wall_ms)
        subtask.backend = backend
        context = SubtaskRuntimeContext(
            vertex,
            subtask.id.subtask,
            self._plan,
            backend,
            self._generation.counter,
            subtask.clock.time,
            element,
            self._clock.wall_ms,
            timers,
        )
        functions = [create_row_operator(o, context.for_operator(o)) for o in vertex.operators if o.kind not in _ENDS]
        subtask.chain = Chain(
            vertex,
            functions,
            subtask.output.emit,
            subtask.output.has_room,
            subtask.output.may_overdraw,
            backend.set_current_key if backend is not None else None,
            self._settings.object_reuse,
            self._clock.monotonic_ms,
            element,
            timers,
            side_types={p.edge.side_output: p.edge.type for p in subtask.partitions if p.edge.side_output is not None},
            stamps=functions[-1].operator.timestamped and bool(subtask.partitions),
        )

    def _build_columnar(self, subtask: Subtask, restore: SubtaskRestore) -> None:
        """Also a bare source, a bare sink, or both."""
        vertex, backend = subtask.vertex, None
        if any(o.kind.columnar and o.kind.keyed for o in vertex.operators):
            backend = ColumnarStateBackend({o.uid: o.name for o in vertex.operators})
            restore.keyed_state(backend)
        subtask.backend = backend
        subtask.chain = chain = ColumnarChain(vertex, columnar_operators(vertex, backend), self._clock.monotonic_ms)
        chain.set_time(subtask.clock.time.current_ms, subtask.clock.time.floors())

    def _open_ends(self, subtask: Subtask, vertex: Vertex, restore: SubtaskRestore) -> None:
        head, tail = vertex.operators[0], vertex.operators[-1]
        index = subtask.id.subtask
        if head.kind is OperatorKind.SOURCE and not restore.was_finished:
            reader = self._guarded(
                head, lambda: head.function.create_reader(ReaderContext(index, vertex.parallelism, head.name))
            )
            if splits := restore.part(head.uid, "splits"):
                self._guarded(head, lambda: reader.add_splits(splits))
            subtask.reader = reader
        if tail.kind is OperatorKind.SINK:
            context = WriterContext(
                subtask=index,
                parallelism=vertex.parallelism,
                operator_name=tail.name,
                operator_uid=tail.uid,
                incarnation=f"{self._plan.incarnation}{self._generation.counter}",
                checkpointing=self._plan.checkpointing,
                input_type=tail.input_type,
                job_id=self._plan.job_id if self._plan.storage_root is not None else "",
                generation=(self._generation.fence, self._generation.counter),
                emit=lambda lines: self._send(Printed(self._slot, index, list(lines))),
            )
            items = restore.part(tail.uid, "writer")
            subtask.output.writer = self._guarded(tail, lambda: tail.function.create_writer(context, items))

    @staticmethod
    def _guarded(operator: Operator, call):  # type: ignore[no-untyped-def]
        try:
            return call()
        except USER_ERRORS as error:
            raise OperatorFailure(operator.name, error) from error
