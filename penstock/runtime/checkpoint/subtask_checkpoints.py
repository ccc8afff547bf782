"""How a subtask takes part in checkpoints: carries out what the barrier handler decides.

Effects are carried out in order, and a snapshot lies between two input rows: while a function is in the middle of a
row's output, the effects wait, and nothing else of the subtask runs.
"""

from __future__ import annotations

from collections import deque
from typing import Callable, Protocol

from penstock.common.clock import Clock
from penstock.graph.job_graph import Edge
from penstock.operators.event_time.clock import SubtaskClock
from penstock.protocol.subtask.barrier_handler import (
    AllBarriersIn,
    BarrierHandler,
    Block,
    Declined,
    Discard,
    Effect,
    LimitWindow,
    Snapshot,
    TakeOut,
    Unblock,
)
from penstock.protocol.values.elements import Barrier, SubtaskId
from penstock.protocol.values.frames import AlignedBarrier, CreditLimit, Data, Event, UrgentBarrier
from penstock.protocol.values.metadata import ChannelTime, Committable, OperatorPart
from penstock.runtime.checkpoint.snapshots import CapturedChannel, CapturedLayer, SubtaskCapture, TimeAtSnapshot
from penstock.runtime.input.drain_gate import SubtaskDraining
from penstock.runtime.input.input_gate import InputGate
from penstock.runtime.input.layers import Layer
from penstock.runtime.output.result_partition import Overtaking, ResultPartition
from penstock.state.backend import StateSnapshot


class SnapshotSource(Protocol):
    """The subtask, as far as snapshots need it."""

    def finish_row(self) -> bool:
        """Pushes the row that the chain is in the middle of through. False: the overdraft is used up, try later."""

    def prepare_commit(self, checkpoint_id: int) -> list[Committable]: ...

    def operator_parts(self) -> list[OperatorPart]: ...

    def state_snapshot(self) -> StateSnapshot | None: ...

    def layer_time(self, layer: Layer) -> ChannelTime | None: ...

    @property
    def draining(self) -> SubtaskDraining: ...

    @property
    def clock(self) -> SubtaskClock: ...

    @property
    def finished(self) -> bool: ...


class SubtaskCheckpoints:
    """`taken`, `closed` and `ended` hand captures to the slot's writer; `declined` tells the JobMaster, and
    `granted` a producer."""

    def __init__(
        self, subtask: SubtaskId, source: SnapshotSource, gate: InputGate, partitions: list[ResultPartition],
        clock: Clock, taken: Callable[[SubtaskCapture], None], closed: Callable[[SubtaskCapture], None],
        ended: Callable[[int], None], declined: Callable[[int, str], None], granted: Callable[[CreditLimit], None],
    ) -> None:  # fmt: skip
        self._subtask = subtask
        self._source = source
        self._gate = gate
        self._partitions = partitions
        self._clock = clock
        self._taken = taken
        self._closed = closed
        self._ended = ended
        self._declined = declined
        self._granted = granted
        self._handler = BarrierHandler(len(gate.channels))
        self._captures: dict[int, SubtaskCapture] = {}
        self._output_deadlines: dict[int, float] = {}
        self._waiting: deque[Effect] = deque()
        self.snapshot_taken: int | None = None
        """The newest checkpoint that went unaligned here; the owner resets it."""

    # ---- what arrives -------------------------------------------------------------------------------------------

    def on_trigger(self, barrier: Barrier) -> None:
        self._carry_out(self._handler.on_trigger(barrier, self._clock.monotonic_ms()))

    def on_element(self, channel: int, element: Data | Event) -> None:
        for checkpoint_id in self._gate.channels[channel].receive(element):
            self._window_closed(channel, checkpoint_id)

    def on_aligned_barrier(self, channel: int, frame: AlignedBarrier) -> None:
        self._gate.channels[channel].receive_barrier(frame)
        now_ms = self._clock.monotonic_ms()
        self._carry_out(self._handler.on_barrier_queued(channel, frame.barrier, frame.position, now_ms))

    def on_urgent_barrier(self, channel: int, frame: UrgentBarrier) -> None:
        now_ms = self._clock.monotonic_ms()
        self._carry_out(self._handler.on_urgent_barrier(channel, frame.barrier, frame.handed, now_ms))

    def on_cancel(self, channel: int, checkpoint_id: int) -> None:
        self._carry_out(self._handler.on_cancel(channel, checkpoint_id))

    def on_ended(self, checkpoint_id: int) -> None:
        self._carry_out(self._handler.on_ended(checkpoint_id))

    def on_barrier_reached(self, channel: int, barrier: Barrier) -> None:
        self._carry_out(self._handler.on_barrier_reached(channel, barrier, self._clock.monotonic_ms()))

    def on_time(self, now_ms: float) -> None:
        """Alignment timeouts, at both ends of our channels."""
        self._carry_out(self._handler.on_time(now_ms))
        for checkpoint_id in [i for i, at_ms in self._output_deadlines.items() if at_ms <= now_ms]:
            del self._output_deadlines[checkpoint_id]
            for partition in self._partitions:
                self._keep_overtaken(partition, partition.turn(checkpoint_id))
        self.look_at_outputs()

    def next_deadline_ms(self) -> float | None:
        alignment_ms = self._handler.next_deadline_ms()
        if not self._output_deadlines:
            return alignment_ms
        outputs_ms = min(self._output_deadlines.values())
        return outputs_ms if alignment_ms is None else min(outputs_ms, alignment_ms)

    @property
    def waiting_for_row(self) -> bool:
        """Whether a snapshot waits for the rest of a row's output."""
        return bool(self._waiting)

    def resume(self) -> None:
        """There may be room again for the rest of the row that a snapshot waits for."""
        self._carry_out([])

    def look_at_outputs(self) -> None:
        """Aligned barriers that have left our queues close their checkpoint's outputs."""
        if not self._captures:
            return
        for capture in [c for c in self._captures.values() if c.outputs_open]:
            if not any(p.holds_barrier(capture.checkpoint_id) for p in self._partitions):
                capture.outputs_open = False
                self._output_deadlines.pop(capture.checkpoint_id, None)
                self._close_if_complete(capture)

    # ---- effects ------------------------------------------------------------------------------------------------

    def _carry_out(self, effects: list[Effect]) -> None:
        self._waiting.extend(effects)
        while self._waiting:
            effect = self._waiting[0]
            if isinstance(effect, Snapshot) and not self._source.finish_row():
                return
            self._waiting.popleft()
            match effect:
                case Block(channel, checkpoint_id):
                    self._gate.channels[channel].blocked_by.add(checkpoint_id)
                    if (limit_bytes := self._gate.channels[channel].widen()) is not None:
                        self._granted(CreditLimit(self._gate.channels[channel].id, limit_bytes))
                case Unblock(channel, checkpoint_id):
                    self._gate.channels[channel].blocked_by.discard(checkpoint_id)
                case TakeOut(channel, checkpoint_id):
                    self._gate.channels[channel].take_out_barrier(checkpoint_id)
                case Snapshot():
                    self._snapshot(effect)
                    self._source.draining.on_checkpoint_ended(effect.barrier.checkpoint_id)
                case LimitWindow(channel, checkpoint_id, until):
                    if checkpoint_id in self._captures:
                        if self._gate.channels[channel].limit_window(checkpoint_id, until):
                            self._window_closed(channel, checkpoint_id)
                case AllBarriersIn(checkpoint_id, alignment_ms):
                    if capture := self._captures.get(checkpoint_id):
                        capture.barriers_missing = False
                        capture.alignment_ms = alignment_ms
                        self._close_if_complete(capture)
                case Declined(checkpoint_id, reason):
                    self._drop(checkpoint_id)
                    for partition in self._partitions:
                        partition.cancel(checkpoint_id)
                    self._declined(checkpoint_id, reason)
                    self._source.draining.on_checkpoint_ended(checkpoint_id)
                case Discard(checkpoint_id):
                    self._drop(checkpoint_id)
                    for partition in self._partitions:
                        partition.drop_barrier(checkpoint_id)
                    self._source.draining.on_checkpoint_ended(checkpoint_id)

    def _snapshot(self, effect: Snapshot) -> None:
        """The barrier leaves first, so that the consumers start while we are still busy with our own part."""
        barrier, started_ms = effect.barrier, self._clock.monotonic_ms()
        stores = not barrier.commits_only
        for partition in self._partitions:
            partition.settle()
        capture = SubtaskCapture(
            subtask=self._subtask, barrier=barrier, unaligned=effect.unaligned, taken_ms=started_ms,
            start_delay_ms=effect.start_delay_ms,
            applied=self._applied(), emitted=[(p.edge, p.emitted) for p in self._partitions],
            layers=self._unread_layers() if stores else [],
            time=TimeAtSnapshot.of(self._source.clock), finished=self._source.finished,
            state=None, parts=[], committables=[],
        )  # fmt: skip
        self._captures[barrier.checkpoint_id] = capture
        self._send_barrier(barrier, effect.unaligned, capture)
        capture.committables = self._source.prepare_commit(barrier.checkpoint_id)
        if stores:
            capture.state = self._source.state_snapshot()
            capture.parts = self._source.operator_parts()
        for channel, until in effect.windows:
            capture.windows_open.add(channel)
            if self._gate.channels[channel].open_window(barrier.checkpoint_id, until):
                self._window_closed(channel, barrier.checkpoint_id)
        capture.sync_ms = self._clock.monotonic_ms() - started_ms
        if effect.unaligned:
            self.snapshot_taken = barrier.checkpoint_id
        self._taken(capture)
        self._close_if_complete(capture)

    def _send_barrier(self, barrier: Barrier, unaligned: bool, capture: SubtaskCapture) -> None:
        if unaligned:
            for partition in self._partitions:
                self._keep_overtaken(partition, partition.send_urgent(barrier))
            return
        for partition in self._partitions:
            partition.send_aligned(barrier)
        if barrier.alignment_timeout_ms is not None:
            capture.outputs_open = any(p.holds_barrier(barrier.checkpoint_id) for p in self._partitions)
            if capture.outputs_open:
                left_ms = max(0.0, barrier.alignment_timeout_ms - barrier.age_ms)
                self._output_deadlines[barrier.checkpoint_id] = self._clock.monotonic_ms() + left_ms

    def _keep_overtaken(self, partition: ResultPartition, overtaken: list[Overtaking]) -> None:
        for checkpoint_id, consumer, elements in overtaken:
            capture = self._captures.get(checkpoint_id)
            if capture is not None and elements and not capture.barrier.commits_only:
                capture.outputs.append(CapturedChannel(partition.edge, consumer, elements))

    def _applied(self) -> list[tuple[Edge, list[int]]]:
        applied: dict[str, tuple[Edge, list[int]]] = {}
        for edge, channel in zip(self._gate.edge_of, self._gate.channels):
            applied.setdefault(edge.name, (edge, []))[1].append(channel.applied)
        return list(applied.values())

    def _unread_layers(self) -> list[CapturedLayer]:
        unread = (x for x in self._gate.layers if not x.read)
        return [CapturedLayer(x, x.applied, x.unread(), self._source.layer_time(x)) for x in unread]

    def _window_closed(self, channel: int, checkpoint_id: int) -> None:
        captured = self._gate.channels[channel].take_window(checkpoint_id)
        capture = self._captures.get(checkpoint_id)
        if capture is None:
            return
        capture.windows_open.discard(channel)
        if captured and not capture.barrier.commits_only:
            producer = self._gate.channels[channel].id.producer
            capture.inputs.append(CapturedChannel(self._gate.edge_of[channel], producer, captured))
        self._close_if_complete(capture)

    def _close_if_complete(self, capture: SubtaskCapture) -> None:
        if capture.closed and self._captures.pop(capture.checkpoint_id, None) is not None:
            self._closed(capture)

    def _drop(self, checkpoint_id: int) -> None:
        self._captures.pop(checkpoint_id, None)
        self._output_deadlines.pop(checkpoint_id, None)
        for channel in self._gate.channels:
            channel.discard_window(checkpoint_id)
        self._ended(checkpoint_id)
