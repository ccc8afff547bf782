"""A subtask: a step function over a mailbox.

`step(now)` handles all mail, then does one bounded piece of work, and says when it wants to be called again. Control
waits for one slice, never for a buffer; a slice never waits for output space. A thread drives the steps in a slot,
and a scheduler drives them, in any order, in the simulation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable

import pyarrow as pa

from penstock.common.typeinfo import KEY_GROUP_COLUMN
from penstock.datastream.connectors.base import NotReady, SinkWriter, SourceReader
from penstock.graph.job_graph import Vertex
from penstock.protocol.elements import WATERMARK_MAX_MS, Barrier, EndOfData, Generation, SubtaskId, Watermark
from penstock.protocol.frames import AlignedBarrier, CancelBarrier, CreditLimit, Data, Event, Frame, UrgentBarrier
from penstock.protocol.messages import Message, ReachedEndOfData, SplitsRequested, SubtaskStatus
from penstock.protocol.snapshot import ChannelTime, Committable, OperatorPart
from penstock.protocol.watermark_valve import WatermarkValve
from penstock.runtime.batches import row_type
from penstock.runtime.draining import DrainReleased, SubtaskDraining
from penstock.runtime.failures import OperatorFailure
from penstock.runtime.input_gate import GateBarrier, GateEvent, GateLayerRead, InputGate, OpenBatch
from penstock.runtime.layers import Layer
from penstock.runtime.mailbox import Mailbox
from penstock.runtime.operators.chain import Chain, Slice
from penstock.runtime.ports import Clock
from penstock.runtime.result_partition import ResultPartition
from penstock.runtime.slice_budget import SliceBudget
from penstock.runtime.subtask_checkpoints import SubtaskCheckpoints
from penstock.runtime.subtask_settings import SubtaskSettings
from penstock.state.backend import KeyedStateBackend, StateSnapshot


@dataclass(frozen=True)
class Triggered:
    barrier: Barrier


@dataclass(frozen=True)
class CheckpointOver:
    """`aborted` False: it is canonical."""

    checkpoint_id: int
    aborted: bool


@dataclass(frozen=True)
class Splits:
    splits: list[bytes]
    no_more: bool


@dataclass(frozen=True)
class Released:
    """The generation runs: user code may be called."""


@dataclass(frozen=True)
class Unpark:
    checkpoint_id: int


@dataclass(frozen=True)
class StepResult:
    """`wait_ms`: call again after that long, or when there is mail; 0 at once, None only when there is mail."""

    worked: bool
    wait_ms: float | None
    backpressured: bool


@dataclass(slots=True)
class _RunningSlice:
    """A slice inside the chain, from its first row until it is through."""

    piece: Slice
    origin: OpenBatch | None
    emitted_before: int
    busy_ms: float = 0.0


class Subtask:
    """`writer` and `reader` are its chain's ends, where it has them; `checkpoints` is given after construction,
    because both need each other."""

    checkpoints: SubtaskCheckpoints

    def __init__(
        self, id: SubtaskId, vertex: Vertex, generation: Generation, slot: int, settings: SubtaskSettings, clock: Clock,
        gate: InputGate, partitions: list[ResultPartition], send_frame: Callable[[int, Frame], None],
        send_message: Callable[[Message], None], key_groups: range,
    ) -> None:  # fmt: skip
        self.id = id
        self.vertex = vertex
        self.mailbox = Mailbox()
        self.gate = gate
        self.partitions = partitions
        self._generation = generation
        self._slot = slot
        self._settings = settings
        self._clock = clock
        self._send_frame = send_frame
        self._send_message = send_message
        self.key_groups = key_groups
        self.valve = WatermarkValve(len(gate.channels))
        self.draining = SubtaskDraining(id, generation, slot)
        self.backend: KeyedStateBackend | None = None
        self.chain: Chain
        self.writer: SinkWriter | None = None
        self.reader: SourceReader | None = None
        self.source_type = row_type(vertex.operators[0].output_type)
        self._budget = SliceBudget(settings.slice_ms)
        self._running_slice: _RunningSlice | None = None
        self._running = False
        self._splits_requested = False
        self._ended = False
        self._unpublished: list[tuple[int, Committable]] = []
        self._parked_until_ms = 0.0
        self._parked_for: int | None = None
        self._emitted_bytes = 0
        self._resize_at_ms = 0.0
        self.rows_in = self.rows_out = self.bytes_in = self.overdraft_bytes = 0

    # ---- the step -----------------------------------------------------------------------------------------------

    def step(self, now_ms: float) -> StepResult:
        self._take_mail()
        deadline_ms = self.checkpoints.next_deadline_ms()
        if deadline_ms is not None and now_ms >= deadline_ms:
            self.checkpoints.on_time(now_ms)
        if now_ms >= self._resize_at_ms:
            self._resize(now_ms)
        self._park()
        if self._parked(now_ms):
            return self._rest(now_ms)
        ready_in_ms = self._work()
        worked = ready_in_ms == 0
        had_room = self.has_room()
        flush_at_ms = self._flush(self._clock.monotonic_ms(), idle=not worked)
        self.checkpoints.look_at_outputs()
        if worked:
            return StepResult(True, 0, False)
        self._tell_empty()
        has_room = self.has_room()
        if has_room and not had_room:
            return StepResult(False, 0, False)
        now_ms = self._clock.monotonic_ms()
        waits = [at_ms - now_ms for at_ms in (flush_at_ms, self.checkpoints.next_deadline_ms()) if at_ms is not None]
        if ready_in_ms is not None:
            waits.append(ready_in_ms)
        return StepResult(False, max(0.0, min(waits)) if waits else None, self._running and not has_room)

    def _take_mail(self) -> None:
        gate, checkpoints = self.gate, self.checkpoints
        while self.mailbox:
            match self.mailbox.take():
                case (Data() | Event()) as element:
                    checkpoints.on_element(gate.index_of[element.channel], element)
                    if isinstance(element, Data):
                        self.bytes_in += element.size_bytes
                case CreditLimit(channel, limit_bytes):
                    self._partition_of(channel.edge).grant(channel, limit_bytes)
                case UrgentBarrier() as frame:
                    checkpoints.on_urgent_barrier(gate.index_of[frame.channel], frame)
                case AlignedBarrier() as frame:
                    checkpoints.on_aligned_barrier(gate.index_of[frame.channel], frame)
                case CancelBarrier(channel, checkpoint_id):
                    checkpoints.on_cancel(gate.index_of[channel], checkpoint_id)
                case Triggered(barrier):
                    checkpoints.on_trigger(barrier)
                case CheckpointOver(checkpoint_id, aborted):
                    checkpoints.on_ended(checkpoint_id)
                    if not aborted:
                        self._unpublished = [c for c in self._unpublished if c[0] > checkpoint_id]
                    self._unpark(checkpoint_id)
                case Unpark(checkpoint_id):
                    self._unpark(checkpoint_id)
                case Splits(splits, no_more):
                    self._take_splits(splits, no_more)
                case Released():
                    self._running = True
                case DrainReleased(is_last, pending):
                    self.draining.on_release(is_last, pending)

    def _partition_of(self, edge: int) -> ResultPartition:
        return next(p for p in self.partitions if p.edge.index == edge)

    def _park(self) -> None:
        """A hint for latency: after its snapshot a subtask leaves the interpreter to the threads that write it."""
        taken = self.checkpoints.snapshot_taken
        if taken is not None:
            self.checkpoints.snapshot_taken = None
            self._parked_for = taken
            self._parked_until_ms = self._clock.monotonic_ms() + self._settings.parking_ms_max

    def _rest(self, now_ms: float) -> StepResult:
        """No user code for a moment; what is due leaves all the same."""
        flush_at_ms = self._flush(now_ms, idle=False)
        self.checkpoints.look_at_outputs()
        due_ms = (self._parked_until_ms, flush_at_ms, self.checkpoints.next_deadline_ms())
        return StepResult(False, max(0.1, min(at_ms for at_ms in due_ms if at_ms is not None) - now_ms), False)

    def _parked(self, now_ms: float) -> bool:
        if self._parked_for is None:
            return False
        if now_ms >= self._parked_until_ms:
            self._parked_for = None
        return self._parked_for is not None

    def _unpark(self, checkpoint_id: int) -> None:
        if self._parked_for is not None and self._parked_for <= checkpoint_id:
            self._parked_for = None
        taken = self.checkpoints.snapshot_taken
        if taken is not None and taken <= checkpoint_id:
            self.checkpoints.snapshot_taken = None  # written before we came to rest for it

    def _resize(self, now_ms: float) -> None:
        self._resize_at_ms = now_ms + max(self._settings.bound_target_ms, 1.0)
        self.gate.resize(now_ms)
        for partition in self.partitions:
            partition.resize(now_ms)

    def _flush(self, now_ms: float, idle: bool) -> float | None:
        next_ms: float | None = None
        for partition in self.partitions:
            at_ms = partition.flush(now_ms, idle)
            if at_ms is not None and (next_ms is None or at_ms < next_ms):
                next_ms = at_ms
        return next_ms

    # ---- work ---------------------------------------------------------------------------------------------------

    def has_room(self) -> bool:
        return all(p.has_room for p in self.partitions)

    def may_overdraw(self) -> bool:
        self.overdraft_bytes = max(self.overdraft_bytes, sum(p.queued_bytes for p in self.partitions))
        return all(p.queued_bytes < self._settings.overdraft_bytes_max for p in self.partitions)

    def _room_bytes(self) -> int:
        return min((p.room_bytes for p in self.partitions), default=1 << 30)

    def _work(self) -> float | None:
        """One piece of work. Returns 0 after it, else in how many ms there may be some (None: only after mail)."""
        if not self._running:
            return None
        if self.draining.held:
            return 0 if self._take_barrier(past_layers=True) else None
        if self.chain.unfinished:
            if self.checkpoints.waiting_for_row:
                self.checkpoints.resume()
            if self.chain.unfinished and self.has_room():
                self._push(lambda: self.chain.resume(drain=False))
            return 0 if self.has_room() or not self.chain.unfinished else None
        if self._ended or not self.has_room():
            return 0 if self._take_barrier() else None
        if self.vertex.is_source:
            return self._read()
        return 0 if self._take_input() else None

    def _read(self) -> float | None:
        if self.reader is None:
            self._finish()  # restored from a snapshot that was taken after the end of its data
            return 0
        started_ms = self._clock.monotonic_ms()
        try:
            got = self.reader.read(self._budget.rows(self._room_bytes()))
        except Exception as error:
            raise OperatorFailure(self.vertex.operators[0].name, error) from error
        if got is None:
            self._finish()
            return 0
        if isinstance(got, NotReady):
            if got.wait_ms is None and not self._splits_requested:
                self._splits_requested = True
                self._send_message(SplitsRequested(self._generation, self._slot, self.id))
            return got.wait_ms
        if self.chain.passes_batches:
            self._pass(got, None, started_ms)
            return 0
        rows = self.source_type.decode(got)
        self._run(Slice(rows, None, None, 0, len(rows), 0.0, whole=True), None)
        return 0

    def _tell_empty(self) -> None:
        """While the job drains, the JobMaster hears of each time that there is nothing left to do here."""
        outputs = [(p.edge.index, p) for p in self.partitions]
        inputs = [edge.index for edge in self.gate.edge_of]
        report = self.draining.report(self.gate, inputs, outputs, idle=not self.chain.unfinished)
        if report is not None:
            self._send_message(report)

    def _take_barrier(self, past_layers: bool = False) -> bool:
        """Barriers need no room, and go on after the end of data."""
        found = self.gate.poll_barrier(past_layers)
        if found is not None:
            self.checkpoints.on_barrier_reached(found.channel, found.frame.barrier)
        return found is not None

    def _take_input(self) -> bool:
        found = self.gate.poll()
        if found is None:
            return False
        if isinstance(found, GateBarrier):
            self.checkpoints.on_barrier_reached(found.channel, found.frame.barrier)
        elif isinstance(found, GateEvent):
            self._on_event(found)
        elif isinstance(found, GateLayerRead):
            self._on_watermark(self.valve.end_virtual(found.virtual))
        else:
            rows = min(self._budget.rows(self._room_bytes()), found.remaining)
            if found.start == 0 and self.chain.keyed:
                self._check_key_groups(found)
            now_ms = self._clock.monotonic_ms()
            if self.chain.passes_batches:
                self._pass(found.batch.slice(found.start, rows), found, now_ms)
            else:
                keyed = self.chain.keyed
                keys, key_groups = (found.keys, found.key_groups) if keyed else (None, None)
                deadline_ms = now_ms + 2 * self._settings.slice_ms
                end = found.start + rows
                self._run(Slice(found.rows, keys, key_groups, found.start, end, deadline_ms), found)
        return True

    def _run(self, piece: Slice, origin: OpenBatch | None) -> None:
        self._running_slice = _RunningSlice(piece, origin, self._emitted_bytes)
        self._push(lambda: self.chain.run(piece))

    def _push(self, go: Callable[[], bool]) -> bool:
        """Runs a slice, or goes on with it. Once it is through, its rows count as applied. What it waits for room in
        between is not its cost."""
        running = self._running_slice
        assert running is not None
        started_ms = self._clock.monotonic_ms()
        if not go():
            running.busy_ms += self._clock.monotonic_ms() - started_ms
            return False
        self._running_slice = None
        if taken := running.piece.taken:
            busy_ms = running.busy_ms + self._clock.monotonic_ms() - started_ms
            self._count(taken, running.origin, busy_ms, self._emitted_bytes - running.emitted_before)
        return True

    def _pass(self, batch: pa.RecordBatch, origin: OpenBatch | None, started_ms: float) -> None:
        """A batch goes through untouched, but for the columns that belong to the edge it came on."""
        before = self._emitted_bytes
        if origin is not None:
            wanted = len(row_type(origin.edge.type).schema)
            if batch.num_columns > wanted:
                batch = batch.select(list(range(wanted)))
        self.emit(batch, None)
        self._count(batch.num_rows, origin, self._clock.monotonic_ms() - started_ms, self._emitted_bytes - before)

    def _count(self, rows: int, origin: OpenBatch | None, busy_ms: float, output_bytes: int) -> None:
        self.rows_in += rows
        self._budget.measured(rows, busy_ms, output_bytes)
        if origin is None:
            return
        credit = self.gate.applied(origin, rows)
        if credit is not None:
            self._send_frame(credit.channel.producer, credit)

    def emit(self, batch: pa.RecordBatch, rows: list[Any] | None) -> None:
        """Output of the chain: to the sink's writer, or to all output edges."""
        self.rows_out += batch.num_rows
        if self.writer is not None:
            try:
                self.writer.write(batch)
            except Exception as error:
                raise OperatorFailure(self.vertex.operators[-1].name, error) from error
        if self.partitions:
            self._emitted_bytes += batch.nbytes
            now_ms = self._clock.monotonic_ms()
            for partition in self.partitions:
                partition.emit(batch, rows, now_ms)

    def _check_key_groups(self, opened: OpenBatch) -> None:
        groups = opened.batch.column(KEY_GROUP_COLUMN).to_numpy()
        low, high = int(groups.min()), int(groups.max())
        if low not in self.key_groups or high not in self.key_groups:
            raise OperatorFailure(
                self.vertex.name,
                RuntimeError(
                    f"subtask {self.id.subtask} of '{self.vertex.name}' owns key groups {self.key_groups.start} to "
                    f"{self.key_groups.stop - 1}, but a row of group {high if high not in self.key_groups else low} "
                    "arrived: the key selector of this key_by is not deterministic"
                ),
                ours=True,
            )

    # ---- events and the end --------------------------------------------------------------------------------------

    def _on_event(self, found: GateEvent) -> None:
        if found.virtual is not None:
            self._on_watermark(self.valve.on_virtual(found.virtual, found.event))
            return
        if found.recovered and isinstance(found.event, EndOfData):
            return  # its producer was restored, too, and says so itself on the live channel
        self._on_watermark(self.valve.on_event(found.channel, found.event))
        if self.valve.all_ended:
            self._finish()

    def _on_watermark(self, watermark_ms: int | None) -> None:
        if watermark_ms is not None and watermark_ms < WATERMARK_MAX_MS:
            for partition in self.partitions:
                partition.emit_event(Watermark(watermark_ms))

    def _finish(self) -> None:
        """End of data: the last that user code sees of this subtask. It goes on answering barriers."""
        self.chain.close()
        if self.writer is not None:
            try:
                self.writer.finish()
            except Exception as error:
                raise OperatorFailure(self.vertex.operators[-1].name, error) from error
        self._ended = True
        for partition in self.partitions:
            partition.emit_event(Watermark(WATERMARK_MAX_MS))
            partition.emit_event(EndOfData())
        self._send_message(ReachedEndOfData(self._generation, self._slot, self.id))

    def _take_splits(self, splits: list[bytes], no_more: bool) -> None:
        if self.reader is None:
            return
        self._splits_requested = False
        self.reader.add_splits(splits)
        if no_more:
            self.reader.no_more_splits()

    # ---- what a snapshot asks for (SnapshotSource) ---------------------------------------------------------------

    def finish_row(self) -> bool:
        return not self.chain.unfinished or self._push(lambda: self.chain.resume(drain=True))

    def prepare_commit(self, checkpoint_id: int) -> list[Committable]:
        """What has been written since the last call, and what was prepared for checkpoints that were given up: the
        next one that is published commits it."""
        if self.writer is None:
            return []
        operator = self.vertex.operators[-1]
        try:
            prepared = self.writer.prepare_commit(checkpoint_id)
        except Exception as error:
            raise OperatorFailure(operator.name, error) from error
        self._unpublished += [(checkpoint_id, Committable(operator.uid, data)) for data in prepared]
        return [committable for _, committable in self._unpublished]

    def operator_parts(self) -> list[OperatorPart]:
        parts = []
        if self.reader is not None:
            parts.append(OperatorPart(self.vertex.operators[0].uid, "splits", self.reader.snapshot()))
        if self.writer is not None and (items := self.writer.snapshot()):
            parts.append(OperatorPart(self.vertex.operators[-1].uid, "writer", items))
        return parts

    def layer_time(self, layer: Layer) -> ChannelTime | None:
        return None if layer.virtual is None else self.valve.virtual_time(layer.virtual)

    def state_snapshot(self) -> StateSnapshot | None:
        return self.backend.snapshot() if self.backend is not None else None

    @property
    def finished(self) -> bool:
        """At its end of data, now or when the snapshot that it was restored from was taken (then it has no reader)."""
        return self._ended or (self.vertex.is_source and self.reader is None)

    @property
    def watermark_ms(self) -> int:
        return self.valve.current_ms

    # ---- what can be seen ---------------------------------------------------------------------------------------

    def status(self, busy_share: float, backpressured_share: float, step_ms_max: float) -> SubtaskStatus:
        """From any thread: counters are read as they are."""
        return SubtaskStatus(
            vertex=self.id.vertex, subtask=self.id.subtask, rows_in=self.rows_in, rows_out=self.rows_out,
            bytes_in=self.bytes_in, bytes_out=sum(p.bytes_out for p in self.partitions), busy_share=busy_share,
            backpressured_share=backpressured_share,
            queued_bytes=self.gate.queued_bytes + sum(p.queued_bytes for p in self.partitions),
            overdraft_bytes=self.overdraft_bytes, step_ms_max=step_ms_max,
        )  # fmt: skip

    def close(self) -> None:
        """Lets go of user code's resources. After this the subtask is not stepped again."""
        try:
            self.chain.close()
        finally:
            if self.backend is not None:
                self.backend.revoke()
            if self.reader is not None:
                self.reader.close()
            if self.writer is not None:
                self.writer.close()
