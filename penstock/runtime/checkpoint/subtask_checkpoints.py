"""Executes the effects of the `SubtaskMachine`: sends barriers, takes snapshots, hands closed captures on."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from penstock.protocol.channel.captured import Captured
from penstock.protocol.subtask.cut import Cut
from penstock.protocol.subtask.effects import (
    CloseCapture,
    Decline,
    DropCapture,
    Effect,
    FinishRow,
    LocalEvent,
    OutputsSent,
    RowFinished,
    SendFrame,
    SendQueued,
    TakeSnapshot,
    TimePassed,
)
from penstock.protocol.subtask.subtask_machine import Received
from penstock.protocol.values.elements import SnapshotKind
from penstock.protocol.values.metadata import LayerCut
from penstock.runtime.checkpoint.capture import Capture, TimeAtSnapshot
from penstock.runtime.checkpoint.snapshot_writer import Closed, Taken
from penstock.runtime.subtask.deployed_subtask import DeployedSubtask
from penstock.runtime.subtask.parking import Parking
from penstock.runtime.subtask.slot_resources import SlotResources
from penstock.runtime.subtask.snapshot_source import SnapshotSource


class SubtaskCheckpoints:
    """Connects a subtask's machine with its channels, its state (`source`) and the slot's snapshot writer."""

    def __init__(
        self, subtask: DeployedSubtask, source: SnapshotSource, parking: Parking, shared: SlotResources
    ) -> None:
        self._subtask = subtask.id
        self._machine = subtask.machine
        self._source = source
        self._gate = subtask.gate
        self._valve = subtask.valve
        self._edges = {edge.index: edge for edge in (*subtask.gate.edge_of, *(p.edge for p in subtask.partitions))}
        self._outputs = [(p, position) for p in subtask.partitions for position in range(len(p.channels))]
        self._parking = parking
        self._writer, self._clock = shared.writer, shared.clock
        self._send_frame, self._decline = shared.send_frame, shared.decline
        self._captures: dict[int, Capture] = {}

    def handle(self, event: Received | LocalEvent) -> None:
        """Pass an event to the machine, and execute what it decides."""
        effects = self._machine.handle(event, self._clock.monotonic_ms())
        if effects:
            self._execute(effects)

    def on_time(self, now_ms: float) -> None:
        self._execute(self._machine.handle(TimePassed(), now_ms))

    @property
    def waiting_for_row(self) -> bool:
        """Return whether a snapshot waits for the rest of a row's output."""
        return self._machine.waits_for_row

    def resume(self) -> None:
        """Continue the rest of the row that a snapshot waits for, if there is room again."""
        self._execute([FinishRow()])

    def look_at_outputs(self) -> None:
        """Check whether aligned barriers have left the output queues."""
        if self._captures:
            self.handle(OutputsSent())

    # ---- effects ------------------------------------------------------------------------------------------------

    def _execute(self, effects: Iterable[Effect]) -> None:
        waiting = deque(effects)
        while waiting:
            effect = waiting.popleft()
            match effect:
                case FinishRow():
                    if self._source.finish_row():
                        waiting.extend(self._machine.handle(RowFinished(), self._clock.monotonic_ms()))
                case SendFrame(frame):
                    self._send_frame(frame.channel.consumer, frame)
                case SendQueued(output):
                    partition, position = self._outputs[output]
                    partition.send_queued(position)
                case TakeSnapshot(cut):
                    self._take(cut)
                case CloseCapture(cut):
                    self._writer.mailbox.post(Closed(self._captures.pop(cut.checkpoint_id)))
                case DropCapture(checkpoint_id):
                    self._captures.pop(checkpoint_id, None)
                    self._writer.on_ended(checkpoint_id)
                case Decline(checkpoint_id, reason):
                    self._decline(self._subtask, checkpoint_id, reason)

    def _take(self, cut: Cut) -> None:
        source = self._source
        capture = Capture(
            self._subtask,
            cut,
            self._edges,
            self._unread_layers() if cut.stores else [],
            TimeAtSnapshot.of(source.event_time),
            source.finished,
        )
        self._captures[cut.checkpoint_id] = capture
        capture.committables = source.prepare_commit(cut.checkpoint_id, cut.barrier.kind is SnapshotKind.STOP)
        if cut.stores:
            capture.state = source.state_snapshot(cut.checkpoint_id, cut.barrier.predecessor_id)
            capture.parts = source.operator_parts(cut.checkpoint_id)
        else:
            capture.parts = source.feed.parts()  # a source reports the end of its input with these commits
        capture.sync_ms = self._clock.monotonic_ms() - cut.taken_ms
        if cut.unaligned:
            self._parking.on_snapshot(cut.checkpoint_id)
        self._writer.mailbox.post(Taken(capture))

    def _unread_layers(self) -> list[tuple[LayerCut, Captured]]:
        # 3.1: a snapshot contains the unread part of each layer.
        unread = []
        for layer in self._gate.layers:
            if not layer.read:
                time = None if layer.virtual is None else self._valve.virtual_time(layer.virtual)
                ends = (layer.edge, layer.producer, layer.consumer)
                unread.append((LayerCut(*ends, layer.applied, layer.end, [], [], time), layer.unread()))
        return unread
