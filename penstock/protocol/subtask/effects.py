"""Defines the local events of a `SubtaskMachine`, next to frames and messages, and its effects."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.protocol.subtask.cut import Cut
from penstock.protocol.values.elements import Barrier
from penstock.protocol.values.frames import CancelBarrier, UrgentBarrier
from penstock.protocol.values.reasons import FailureReason


class BarrierReached(msgspec.Struct, frozen=True):
    """Reports that everything before an aligned barrier has been applied. `channel`: the position of its input
    channel.
    """

    channel: int
    barrier: Barrier


class WindowsClosed(msgspec.Struct, frozen=True):
    """Reports that an element has closed windows of these checkpoints. `channel`: the position of its input channel."""

    channel: int
    checkpoints: Sequence[int]


class RowFinished(msgspec.Struct, frozen=True):
    """Reports that no function is in the middle of a row's output, and that all emitted rows are in the output
    queues.
    """


class OutputsSent(msgspec.Struct, frozen=True):
    """Reports that something may have left the output queues."""


class TimePassed(msgspec.Struct, frozen=True):
    """Reports that the machine's deadline may be over."""


class FinishRow(msgspec.Struct, frozen=True):
    """Finish the row in the chain, because a snapshot lies between two input rows, then report `RowFinished`. Until
    then the subtask works on nothing else.
    """


class SendFrame(msgspec.Struct, frozen=True):
    """Hand this frame to the connection, ahead of what waits in output queues."""

    frame: UrgentBarrier | CancelBarrier


class SendQueued(msgspec.Struct, frozen=True):
    """Send the sendable part of an output queue: a barrier is at its end, and it does not wait for a batch to fill."""

    output: int


class TakeSnapshot(msgspec.Struct, frozen=True):
    """Take the snapshot of the cut: state, timers, prepared commits. The barrier has left."""

    cut: Cut


class CloseCapture(msgspec.Struct, frozen=True):
    """Write the capture, which is complete, and acknowledge."""

    cut: Cut


class Decline(msgspec.Struct, frozen=True):
    """Decline to the coordinator. Consumers are notified by frames of their own."""

    checkpoint_id: int
    reason: FailureReason


class DropCapture(msgspec.Struct, frozen=True):
    """Drop the capture of a checkpoint that has ended here."""

    checkpoint_id: int


LocalEvent = BarrierReached | WindowsClosed | RowFinished | OutputsSent | TimePassed
Effect = FinishRow | SendFrame | SendQueued | TakeSnapshot | CloseCapture | Decline | DropCapture
