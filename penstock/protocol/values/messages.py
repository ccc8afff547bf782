"""What a slot and the JobMaster say to each other, on one connection per slot, in order.

Encoded as tagged msgpack by msgspec. Bytes that only the far end's Python may open (pickles) are `bytes` fields,
opened after the connection has proved the job's secret.
"""

from __future__ import annotations

import msgspec

from penstock.protocol.values.elements import Barrier, Generation, SubtaskId
from penstock.protocol.values.metadata import Segment, SubtaskSnapshot
from penstock.protocol.values.reasons import FailureReason, SubtaskFailureReason


class Message(msgspec.Struct, frozen=True, tag=True):
    pass


# ---- slot -> JobMaster ------------------------------------------------------------------------------------------


class Register(Message):
    """First message of a slot. `slot` is the number under which its Spark job was submitted: a slot's, or beyond them
    a spare's. `submission` counts how often the driver has submitted that job; `attempt` is Spark's attempt number
    within it. `process` is a random id of this process. `relieves`: it was submitted to take the place of one that
    lives, but whose executor is about to go. `hosted`: it is played in the process of another slot, for want of a place
    of its own."""

    slot: int
    submission: int
    attempt: int
    process: str
    pid: int
    host: str
    data_port: int
    python: str
    penstock: str
    relieves: bool = False
    hosted: bool = False


class Connected(Message):
    generation: Generation
    slot: int


class Restored(Message):
    """`layers`: of recovered in-flight data, at the gates of the slot's subtasks."""

    generation: Generation
    slot: int
    layers: int = 0


class SlotAck(Message):
    """All subtasks of a slot have written their part of a checkpoint, and the segment is durable."""

    generation: Generation
    slot: int
    checkpoint_id: int
    segment: Segment | None
    subtasks: list[SubtaskSnapshot]


class Decline(Message):
    """A slot cannot add its part to a checkpoint."""

    generation: Generation
    slot: int
    checkpoint_id: int
    subtask: SubtaskId
    reason: FailureReason
    detail: str = ""


class SubtaskFailed(Message):
    """`traceback` is the user's traceback as text, ours cut off; `operator` is a name. What becomes of the job follows
    from `reason` alone."""

    generation: Generation
    slot: int
    subtask: SubtaskId
    operator: str
    error: str
    traceback: str
    reason: SubtaskFailureReason = SubtaskFailureReason.FUNCTION


class PeerLost(Message):
    """A slot's data connection to another ended in the middle of a generation."""

    generation: Generation
    slot: int
    peer: int
    detail: str


class SplitsRequested(Message):
    """A reader has nothing left to read. Answered by `SplitsAssigned` when there is something."""

    generation: Generation
    slot: int
    subtask: SubtaskId


class DrainReport(Message):
    """A subtask that was released while the job drains has run empty. The report with the largest `sequence` counts.

    `layers_read`: everything recovered has been consumed. `idle`: nothing is left to do here but what comes in.
    `applied` and `emitted`: elements of this generation, summed by edge number over the subtask's channels.
    """

    generation: Generation
    slot: int
    subtask: SubtaskId
    sequence: int
    layers_read: bool
    idle: bool
    applied: dict[int, int]
    emitted: dict[int, int]


class SubtaskStatus(msgspec.Struct, frozen=True):
    """Counters since the generation started; shares are of the time since the previous status, in [0, 1]."""

    vertex: int
    subtask: int
    rows_in: int
    rows_out: int
    bytes_in: int
    bytes_out: int
    busy_share: float
    backpressured_share: float
    queued_bytes: int
    overdraft_bytes: int = 0
    step_ms_max: float = 0.0
    late_rows: int = 0
    skipped_rows: int = 0
    layers: int = 0
    """Of recovered in-flight data, that are left to read."""


class ReachedEndOfData(Message):
    generation: Generation
    slot: int
    subtask: SubtaskId
    status: SubtaskStatus | None = None
    """Its last counts."""


class SlotStatus(Message):
    """The heartbeat. `restoring` names the subtasks whose state is not restored yet."""

    generation: Generation
    slot: int
    subtasks: list[SubtaskStatus]
    rss_bytes: int
    restoring: list[str] = []


class Printed(Message):
    """Output of user code or of the print sink: whole lines, without line ends."""

    slot: int
    subtask: int
    lines: list[str]
    is_error: bool = False


class Left(Message):
    """A slot has let go of all its subtasks and connections of a generation (after `Cancel`), or leaves for good."""

    generation: Generation
    slot: int


class StoreRequest(Message):
    """Checkpoint storage in the driver's memory: put (with `data`) or get (a range; length -1 is the rest)."""

    slot: int
    request: int
    path: str
    data: bytes | None = None
    offset: int = 0
    length_bytes: int = -1


# ---- JobMaster -> slot ------------------------------------------------------------------------------------------


class Peer(msgspec.Struct, frozen=True):
    slot: int
    host: str
    data_port: int
    process: str


class StandBy(Message):
    """Every slot is played by somebody else: wait, neither return nor raise."""


class Host(Message):
    """Play this slot, too, in the same process, with connections of its own: it registers with `hosted`, under the
    given submission. `relieves`: as in `Register`."""

    slot: int
    submission: int
    relieves: bool = False


class Deploy(Message):
    """Build this generation's subtasks, connect to peers, restore. `plan` is a cloudpickled
    `penstock.graph.deployment.DeploymentPlan`; `restore` an encoded `Metadata`, or None. `restore_root`: the job
    directory that its segments lie in, where that is another than the job's own."""

    generation: Generation
    slot: int
    peers: list[Peer]
    plan: bytes
    restore: bytes | None
    restore_root: str | None = None


class Restore(Message):
    """Every slot is connected: read state and in-flight data."""

    generation: Generation


class Run(Message):
    generation: Generation


class Release(Message):
    """While the job drains: these vertices may work. A subtask follows when every one of `checkpoints`, which had been
    triggered and had not ended, has ended there. `is_last`: nothing recovered is left, and draining is over, for all
    vertices."""

    generation: Generation
    vertices: list[int]
    checkpoints: list[int]
    is_last: bool


class Trigger(Message):
    """Sent to every slot; its source subtasks inject the barrier."""

    generation: Generation
    barrier: Barrier


class CheckpointEnded(Message):
    """A checkpoint has completed (`aborted` False: it is canonical) or was given up."""

    generation: Generation
    checkpoint_id: int
    aborted: bool


class SplitsAssigned(Message):
    generation: Generation
    subtask: SubtaskId
    splits: list[bytes]
    no_more: bool


class Cancel(Message):
    """Let go of this generation's subtasks; answered by `Left`."""

    generation: Generation


class Leave(Message):
    """Close everything and end the process. `message` is why, for the log."""

    message: str


class StoreReply(Message):
    request: int
    data: bytes | None
    error: str | None = None


Upward = (
    Register
    | Connected
    | Restored
    | SlotAck
    | Decline
    | SubtaskFailed
    | PeerLost
    | ReachedEndOfData
    | SplitsRequested
    | DrainReport
    | SlotStatus
    | Printed
    | Left
    | StoreRequest
)
Downward = (
    StandBy
    | Host
    | Deploy
    | Restore
    | Run
    | Release
    | Trigger
    | CheckpointEnded
    | SplitsAssigned
    | Cancel
    | Leave
    | StoreReply
)
