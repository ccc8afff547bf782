"""Names what a `SubtaskMachine` is told beside frames and messages, and what it asks for."""

from __future__ import annotations

import msgspec

from penstock.protocol.subtask.capture import Capture
from penstock.protocol.values.elements import Barrier
from penstock.protocol.values.frames import CancelBarrier, CreditLimit, UrgentBarrier
from penstock.protocol.values.reasons import FailureReason


class BarrierReached(msgspec.Struct, frozen=True):
    """Everything before an aligned barrier has been applied. `channel`: the position of its input channel."""

    channel: int
    barrier: Barrier


class RowFinished(msgspec.Struct, frozen=True):
    """No function is in the middle of a row's output, and all rows put out stand in the output queues."""


class OutputsSent(msgspec.Struct, frozen=True):
    """Something may have left the output queues."""


class TimePassed(msgspec.Struct, frozen=True):
    """The machine's deadline may be over."""


class FinishRow(msgspec.Struct, frozen=True):
    """A snapshot lies between two input rows: push the row in the chain through, then tell `RowFinished`. Until then
    the subtask works on nothing else."""


class SendFrame(msgspec.Struct, frozen=True):
    """Hand this to the connection, ahead of what waits in output queues. Credit goes to the channel's producer, all
    else to its consumer."""

    frame: UrgentBarrier | CancelBarrier | CreditLimit


class SendQueued(msgspec.Struct, frozen=True):
    """Send what may leave of an output queue: a barrier stands at its end, which waits for no batch to fill."""

    output: int


class TakeSnapshot(msgspec.Struct, frozen=True):
    """Take what belongs to the cut: state, timers, prepared commits. The barrier has left."""

    capture: Capture


class CloseCapture(msgspec.Struct, frozen=True):
    """Nothing more comes: write it, and acknowledge."""

    capture: Capture


class Decline(msgspec.Struct, frozen=True):
    """Tell the coordinator. Consumers are told by frames of their own."""

    checkpoint_id: int
    reason: FailureReason


class DropCapture(msgspec.Struct, frozen=True):
    """The checkpoint is over here: what was taken of it is of no use."""

    checkpoint_id: int


LocalEvent = BarrierReached | RowFinished | OutputsSent | TimePassed
Effect = FinishRow | SendFrame | SendQueued | TakeSnapshot | CloseCapture | Decline | DropCapture
