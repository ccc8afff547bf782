"""A subtask: a step function over a mailbox.

`step(now)` handles all mail, then does one bounded piece of work, and says when it wants to be called again. Control
waits for one slice, never for a buffer; a slice never waits for output space. A thread drives the steps in a slot,
and a scheduler drives them, in any order, in the simulation.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Callable, Iterator

import pyarrow as pa

from penstock.common.clock import Clock
from penstock.common.failures import OperatorFailure
from penstock.common.typeinfo import TIMESTAMP_COLUMN, TypeInformation
from penstock.datastream.connectors.base import NotReady, SourceReader
from penstock.graph.job_graph import Vertex
from penstock.operators.batches import row_type, with_timestamps
from penstock.operators.columns.columnar_chain import ColumnarChain, Output
from penstock.operators.event_time.clock import SubtaskClock
from penstock.operators.rows.chain import Chain, Slice, TakeTimer
from penstock.protocol.channel.watermark_valve import WatermarkValve
from penstock.protocol.subtask.drain_gate import DrainGate
from penstock.protocol.subtask.effects import BarrierReached
from penstock.protocol.subtask.subtask_machine import SubtaskMachine
from penstock.protocol.values.elements import WATERMARK_MAX_MS, EndOfData, Generation, InBandEvent, SubtaskId, Watermark
from penstock.protocol.values.frames import CreditLimit, Data, Frame
from penstock.protocol.values.messages import (
    CheckpointEnded,
    Message,
    ReachedEndOfData,
    Run,
    SplitsAssigned,
    SplitsRequested,
    SubtaskStatus,
)
from penstock.protocol.values.metadata import ChannelTime, Committable, OperatorPart
from penstock.runtime.checkpoint.subtask_checkpoints import SubtaskCheckpoints
from penstock.runtime.input.input_gate import GateBarrier, GateEvent, GateLayerRead, InputGate, OpenBatch
from penstock.runtime.input.key_ownership import check_owner
from penstock.runtime.input.layers import Layer
from penstock.runtime.output.chain_output import ChainOutput
from penstock.runtime.output.result_partition import ResultPartition
from penstock.runtime.process.compute_turn import COMPUTE_TURN
from penstock.runtime.process.mailbox import Mailbox
from penstock.runtime.subtask.active_clock import ActiveClock
from penstock.runtime.subtask.parking import Parking
from penstock.runtime.subtask.running_slice import RunningSlice
from penstock.runtime.subtask.slice_budget import SliceBudget
from penstock.runtime.subtask.subtask_mail import StepResult, Unpark
from penstock.runtime.subtask.subtask_settings import SubtaskSettings
from penstock.state.backend import StateBackend, StateSnapshot


class Subtask:
    """`checkpoints` is set after construction, because both need each other."""

    checkpoints: SubtaskCheckpoints

    def __init__(
        self,
        id: SubtaskId,
        vertex: Vertex,
        generation: Generation,
        slot: int,
        settings: SubtaskSettings,
        clock: Clock,
        gate: InputGate,
        partitions: list[ResultPartition],
        send_frame: Callable[[int, Frame], None],
        send_message: Callable[[Message], None],
        key_groups: range,
    ) -> None:
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
        tail = vertex.operators[-1]
        self.output = ChainOutput(tail, partitions, settings.overdraft_bytes_max, clock)
        self.clock = SubtaskClock(self.valve, tail.timestamped, self._emit_event, clock.monotonic_ms)
        self.draining = DrainGate(id, generation, slot)
        self.machine = SubtaskMachine(gate.channels, [c for p in partitions for c in p.channels], self.draining)
        self.backend: StateBackend | None = None
        self.chain: Chain | ColumnarChain = ColumnarChain(vertex, [], clock.monotonic_ms)  # until it is opened
        self.reader: SourceReader | None = None
        self.source_type = row_type(vertex.operators[0].output_type)
        self._budget = SliceBudget(settings.slice_ms)
        self._running_slice: RunningSlice | None = None
        self._turn = COMPUTE_TURN.held() if vertex.columnar else nullcontext()
        self._is_source = vertex.is_source
        self._running = self._splits_requested = self._input_ended = self._ended = False
        self._firing: Iterator[Output] | None = None
        self.parking = Parking(settings.parking_ms_max)
        self._pace = ActiveClock(clock)
        self._resize_at_ms = 0.0
        self.rows_in = self.bytes_in = 0

    # ---- the step -----------------------------------------------------------------------------------------------

    def step(self, now_ms: float) -> StepResult:
        checkpoints, output = self.checkpoints, self.output
        self._pace.resume()
        self._take_mail()
        if (deadline_ms := checkpoints.next_deadline_ms()) is not None and now_ms >= deadline_ms:
            checkpoints.on_time(now_ms)
        if now_ms >= self._resize_at_ms:
            self._resize(now_ms)
        if checkpoints.snapshot_taken is not None:
            self.parking.begin(checkpoints, self._clock.monotonic_ms())
        if self.parking.lasts(now_ms):
            return self._rest(now_ms)
        with self._turn:
            ready_in_ms = self._work()
        worked = ready_in_ms == 0
        had_room = worked or output.has_room()
        flush_at_ms = output.flush(self._clock.monotonic_ms(), idle=not worked)
        checkpoints.look_at_outputs()
        if worked:
            return StepResult(True, 0, False)
        self._tell_empty()
        if not (has_room := output.has_room()):
            self.clock.pause()
        elif not had_room:
            return StepResult(False, 0, False)
        now_ms = self._clock.monotonic_ms()
        wait_ms = ready_in_ms
        for at_ms in (flush_at_ms, checkpoints.next_deadline_ms()):
            if at_ms is not None and (wait_ms is None or at_ms - now_ms < wait_ms):
                wait_ms = max(0.0, at_ms - now_ms)
        if not (backpressured := self._running and not has_room):
            self._pace.pause()
        return StepResult(False, wait_ms, backpressured)

    def _take_mail(self) -> None:
        checkpoints, mailbox = self.checkpoints, self.mailbox
        while mailbox:
            match mailbox.take():
                case Data() as element:
                    checkpoints.handle(element)
                    self.bytes_in += element.size_bytes
                case CreditLimit(channel, limit_bytes):
                    self._partition_of(channel.edge).grant(channel, limit_bytes)
                case CheckpointEnded(_, checkpoint_id, aborted) as ended:
                    checkpoints.handle(ended)
                    if not aborted:
                        self.output.on_published(checkpoint_id)
                    self.parking.end(checkpoint_id, self.checkpoints)
                case Unpark(checkpoint_id):
                    self.parking.end(checkpoint_id, self.checkpoints)
                case SplitsAssigned(_, _, splits, no_more):
                    self._take_splits(splits, no_more)
                case Run():
                    self._running = True
                case decided:  # barriers, triggers, releases, events
                    checkpoints.handle(decided)

    def _partition_of(self, edge: int) -> ResultPartition:
        return next(p for p in self.partitions if p.edge.index == edge)

    def _rest(self, now_ms: float) -> StepResult:
        """No user code for a moment; what is due leaves all the same."""
        self._pace.pause()
        self.clock.pause()
        flush_at_ms = self.output.flush(now_ms, idle=False)
        self.checkpoints.look_at_outputs()
        due_ms = (self.parking.until_ms, flush_at_ms, self.checkpoints.next_deadline_ms())
        return StepResult(False, max(0.1, min(at_ms for at_ms in due_ms if at_ms is not None) - now_ms), False)

    def _resize(self, now_ms: float) -> None:
        # What has just grown is likely too small still: a fast stream has its bounds in a quarter of the time.
        active_ms = self._pace.now_ms()
        grown = self.gate.resize(active_ms) | self.output.resize(active_ms)
        self._resize_at_ms = now_ms + max(self._settings.bound_target_ms / (4 if grown else 1), 1.0)

    # ---- work ---------------------------------------------------------------------------------------------------

    def _work(self) -> float | None:
        """One piece of work. Returns 0 after it, else in how many ms there may be some (None: only after mail)."""
        if not self._running:
            return None
        if self.draining.held:
            return 0 if self._take_barrier(past_layers=True) else None
        if self.chain.unfinished:
            if self.checkpoints.waiting_for_row:
                self.checkpoints.resume()
            if self.chain.unfinished and self.output.has_room():
                self._push(lambda: self._rows_chain.resume(drain=False))
            return 0 if self.output.has_room() or not self.chain.unfinished else None
        if self._ended or not self.output.has_room():
            return 0 if self._take_barrier() else None
        if self.clock.time.behind or self._resumes_firing():
            return self._advance_time()
        if self._input_ended:
            self._finish()
            return 0
        if self.chain.due_in_ms == 0:
            self._emit_held()
            return 0
        if self.draining.is_over and (self.clock.tick() or self._fire_processing_timers()):
            return 0
        ready_in_ms = self._read() if self._is_source else self._take_input()
        if ready_in_ms == 0:
            return 0
        return self._with_deadlines(ready_in_ms)

    def _read(self) -> float | None:
        if self.reader is None:
            return self._end_input()  # restored from a snapshot that was taken after the end of its data
        started_ms = self._clock.undisturbed_ms()
        try:
            got = self.reader.read(self._slice_rows())
            rejected, finished = self.reader.take_rejected(), self.reader.finished_splits()
        except Exception as error:
            raise OperatorFailure(self.vertex.operators[0].name, error) from error
        if rejected is not None:
            self.output.emit_rejected(rejected, self.vertex.operators[0].function.rejected_tag_id)
        if got is None or isinstance(got, NotReady):
            if self.clock.generation is not None:
                self.clock.generation.on_finished(finished)
            if got is None:
                return self._end_input()
            if got.wait_ms is None and not self._splits_requested:
                self._splits_requested = True
                self._send_message(SplitsRequested(self._generation, self._slot, self.id))
            return got.wait_ms
        split = self.reader.current_split
        if isinstance(self.chain, ColumnarChain):
            self._run_batch(got, self.source_type, None, 0, started_ms, split, finished)
            return 0
        rows = self.source_type.decode(got)
        stamps = self.clock.generation.of_rows(rows, got) if self.clock.generation is not None else None
        piece = Slice(rows, None, None, 0, len(rows), 0.0, whole=True, timestamps=stamps)
        self._running_slice = RunningSlice(piece, None, self.output.emitted_bytes, split, finished)
        self._push(lambda: self._rows_chain.run(piece))
        return 0

    def _end_input(self) -> float:
        self._input_ended = True
        self.clock.end()
        return 0

    def _tell_empty(self) -> None:
        """While the job drains, the JobMaster hears of each time that nothing is left to do here or in an output."""
        if self.draining.is_over:
            return
        self._emit_held()
        for partition in self.partitions:
            partition.settle()
        idle = not (self.chain.unfinished or self.clock.time.behind)
        emitted = {partition.edge.index: sum(partition.emitted) for partition in self.partitions}
        report = self.draining.report(self.gate.applied_by_edge(), emitted, self.gate.layers_are_read, idle)
        if report is not None:
            self._send_message(report)

    def _take_barrier(self, past_layers: bool = False) -> bool:
        """Barriers need no room, and go on after the end of data."""
        found = self.gate.poll_barrier(past_layers)
        if found is not None:
            self.checkpoints.handle(BarrierReached(found.channel, found.frame.barrier))
        return found is not None

    def _take_input(self) -> float | None:
        found = self.gate.poll()
        if found is None:
            return None
        if isinstance(found, GateBarrier):
            self.checkpoints.handle(BarrierReached(found.channel, found.frame.barrier))
        elif isinstance(found, GateEvent):
            self._on_event(found)
        elif isinstance(found, GateLayerRead):
            self.clock.on_inputs(self.valve.end_virtual(found.virtual))
        else:
            self._take_rows(found)
        return 0

    def _take_rows(self, found: OpenBatch) -> None:
        rows = min(self._slice_rows(), found.remaining)
        if found.start == 0 and self.chain.keyed:
            check_owner(found, self.key_groups, self.vertex.name, self.id.subtask)
        now_ms, input_index = self._clock.monotonic_ms(), found.edge.input_index
        if isinstance(self.chain, ColumnarChain):
            batch, started_ms = found.batch.slice(found.start, rows), self._clock.undisturbed_ms()
            self._run_batch(batch, row_type(found.edge.type), found, input_index, started_ms, "", [])
            return
        keyed = self.chain.keyed
        keys, key_groups = (found.keys, found.key_groups) if keyed else (None, None)
        generation = self.clock.generation
        if found.timestamps is None and generation is not None:
            found.timestamps = generation.of_rows(found.rows, found.batch)
        elif found.timestamps is None and found.edge.timestamped:
            found.timestamps = found.batch.column(TIMESTAMP_COLUMN).to_pylist()
        deadline_ms = now_ms + 2 * self._settings.slice_ms
        end = found.start + rows
        piece = Slice(
            found.rows,
            keys,
            key_groups,
            found.start,
            end,
            deadline_ms,
            timestamps=found.timestamps,
            input_index=input_index,
        )
        self._running_slice = RunningSlice(piece, found, self.output.emitted_bytes)
        self._push(lambda: self._rows_chain.run(piece))

    def _slice_rows(self) -> int:
        """Return the size of the next slice: what a user's batch still lacks, else what the budget says."""
        return self.chain.slice_rows(self._budget.rows(self.output.room_bytes))

    def _emit_held(self) -> None:
        """Emit what rows held for a user's batch become: before whatever follows them, and before a snapshot."""
        if isinstance(self.chain, ColumnarChain) and self.chain.holds:
            self.output.emit_all(self.chain.settle())

    @property
    def _rows_chain(self) -> Chain:
        assert isinstance(self.chain, Chain)
        return self.chain

    def _push(self, go: Callable[[], bool]) -> bool:
        """Runs a slice, or goes on with it. Once it is through, its rows count as applied. What it waits for room in
        between is not its cost."""
        running = self._running_slice
        assert running is not None
        started_ms = self._clock.undisturbed_ms()
        if not go():
            running.busy_ms += self._clock.undisturbed_ms() - started_ms
            return False
        self._running_slice = None
        taken, piece = running.piece.taken, running.piece
        if taken and not running.timers:
            if self.clock.generation is not None and piece.timestamps is not None:
                start, end = piece.start, piece.start + taken
                stamps = piece.timestamps[start:end]
                self.clock.generation.on_rows(running.split, lambda: piece.rows[start:end], stamps)
                self.clock.generation.on_finished(running.finished_splits)
            busy_ms = running.busy_ms + self._clock.undisturbed_ms() - started_ms
            self._count(taken, running.origin, busy_ms, self.output.emitted_bytes - running.emitted_before)
        return True

    def _run_batch(
        self,
        batch: pa.RecordBatch,
        type_info: TypeInformation,
        origin: OpenBatch | None,
        input_index: int,
        started_ms: float,
        split: str,
        finished: list[str],
    ) -> None:
        """A slice goes through a columnar chain, whole."""
        assert isinstance(self.chain, ColumnarChain)
        before = self.output.emitted_bytes
        if self.clock.generation is not None:
            stamps = self.clock.generation.of_batch(batch)
            batch = with_timestamps(batch.select(list(range(len(type_info.schema)))), stamps)
        self.output.emit_all(self.chain.run(batch))
        if self.clock.generation is not None:
            self.clock.generation.on_rows(split, lambda: type_info.decode(batch), stamps)
            self.clock.generation.on_finished(finished)
        busy_ms = self._clock.undisturbed_ms() - started_ms
        self._count(batch.num_rows, origin, busy_ms, self.output.emitted_bytes - before)

    def _count(self, rows: int, origin: OpenBatch | None, busy_ms: float, output_bytes: int) -> None:
        self.rows_in += rows
        self._budget.measured(rows, busy_ms, output_bytes)
        if origin is None:
            return
        credit = self.gate.applied(origin, rows)
        if credit is not None:
            self._send_frame(credit.channel.producer, credit)

    # ---- events and the end --------------------------------------------------------------------------------------

    def _emit_event(self, event: InBandEvent) -> None:
        self._emit_held()
        self.output.emit_event(event)

    def _on_event(self, found: GateEvent) -> None:
        if found.virtual is not None:
            self.clock.on_inputs(self.valve.on_virtual(found.virtual, found.event))
            return
        if found.recovered and isinstance(found.event, EndOfData):
            return  # its producer was restored, too, and says so itself on the live channel
        self.clock.on_inputs(self.valve.on_event(found.channel, found.event))
        self._input_ended = self._input_ended or self.valve.all_ended

    def _resumes_firing(self) -> bool:
        """Whether the snapshot that we were restored from was taken while timers were firing."""
        timers = self.chain.timers
        return timers is not None and timers.resumes_firing

    def _advance_time(self) -> float:
        """Fires what is due in bounded groups, with nothing but control between them; then says the watermark."""
        if self._take_barrier():
            return 0
        if isinstance(self.chain, ColumnarChain):
            if self._firing is None:
                self._firing = self.chain.on_watermark(self.clock.time.current_ms)
            output = next(self._firing, None)
            if output is not None:
                self.output.emit_all([output])
                return 0
            self._firing = None
        elif self.chain.timers is not None and self.chain.timers.event_due:
            self._fire(self.chain.timers.take_event, event_time=True)
            return 0
        self.clock.say_watermark()
        return 0

    def _fire(self, take: TakeTimer, event_time: bool) -> None:
        deadline_ms = self._clock.monotonic_ms() + self._settings.slice_ms
        piece = Slice((), None, None, 0, 0, deadline_ms)
        self._running_slice = RunningSlice(piece, None, self.output.emitted_bytes, timers=True)
        self._push(lambda: self._rows_chain.fire(piece, take, event_time))

    def _fire_processing_timers(self) -> bool:
        timers = self.chain.timers
        due_in_ms = None if timers is None else timers.processing_due_in_ms()
        if timers is None or due_in_ms is None or due_in_ms > 0:
            return False
        self._fire(timers.take_processing, event_time=False)
        return True

    def _with_deadlines(self, ready_in_ms: float | None) -> float | None:
        """Nothing to do now: when timers or generators want to be asked, at the latest."""
        timers = self.chain.timers
        due_in_ms = None if timers is None else timers.processing_due_in_ms()
        due = (ready_in_ms, due_in_ms, self.chain.due_in_ms, self.clock.on_quiet())
        waits = [wait_ms for wait_ms in due if wait_ms is not None]
        return max(0.1, min(waits)) if waits else None

    def _finish(self) -> None:
        """End of data: the last that user code sees of this subtask. It goes on answering barriers."""
        self._emit_held()
        self.chain.close()
        self.output.finish()
        self._ended = True
        self.output.emit_event(Watermark(WATERMARK_MAX_MS))
        self.output.emit_event(EndOfData())
        last_counts = self.status(busy_share=0.0, backpressured_share=0.0, step_ms_max=0.0)
        self._send_message(ReachedEndOfData(self._generation, self._slot, self.id, last_counts))

    def _take_splits(self, splits: list[bytes], no_more: bool) -> None:
        if self.reader is None:
            return
        self._splits_requested = False
        self.reader.add_splits(splits)
        self.clock.on_splits(self.reader)
        if no_more:
            self.reader.no_more_splits()

    # ---- what a snapshot asks for (SnapshotSource) ---------------------------------------------------------------

    def finish_row(self) -> bool:
        self._emit_held()
        return not self.chain.unfinished or self._push(lambda: self._rows_chain.resume(drain=True))

    def prepare_commit(self, checkpoint_id: int) -> list[Committable]:
        return self.output.prepare_commit(checkpoint_id)

    def operator_parts(self) -> list[OperatorPart]:
        parts = []
        writer, generation = self.output.writer, self.clock.generation
        if self.reader is not None:
            parts.append(OperatorPart(self.vertex.operators[0].uid, "splits", self.reader.snapshot()))
        if writer is not None and (items := writer.snapshot()):
            parts.append(OperatorPart(self.vertex.operators[-1].uid, "writer", items))
        if generation is not None:
            parts.append(OperatorPart(generation.operator.uid, "watermarks", generation.snapshot()))
        return parts

    def layer_time(self, layer: Layer) -> ChannelTime | None:
        return None if layer.virtual is None else self.valve.virtual_time(layer.virtual)

    def state_snapshot(self) -> StateSnapshot | None:
        return self.backend.snapshot() if self.backend is not None else None

    @property
    def finished(self) -> bool:
        """At its end of data, now or when the snapshot that it was restored from was taken (then it has no reader)."""
        return self._ended or (self._is_source and self.reader is None)

    @property
    def watermark_ms(self) -> int:
        return self.valve.current_ms

    # ---- what can be seen ---------------------------------------------------------------------------------------

    def status(self, busy_share: float, backpressured_share: float, step_ms_max: float) -> SubtaskStatus:
        """From any thread: counters are read as they are."""
        return SubtaskStatus(
            vertex=self.id.vertex,
            subtask=self.id.subtask,
            rows_in=self.rows_in,
            rows_out=self.output.rows,
            bytes_in=self.bytes_in,
            bytes_out=self.output.bytes_out,
            busy_share=busy_share,
            backpressured_share=backpressured_share,
            queued_bytes=self.gate.queued_bytes + self.output.queued_bytes,
            overdraft_bytes=self.output.overdraft_bytes,
            step_ms_max=step_ms_max,
            late_rows=self.chain.late_rows,
            skipped_rows=self.reader.skipped_rows if self.reader is not None else 0,
            layers=len(self.gate.layers),
        )

    def close(self) -> None:
        """Lets go of user code's resources. After this the subtask is not stepped again."""
        try:
            self.chain.close()
        finally:
            if self.backend is not None:
                self.backend.revoke()
            if self.reader is not None:
                self.reader.close()
            if self.output.writer is not None:
                self.output.writer.close()
