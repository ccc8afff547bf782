"""Defines the messages between a slot and the JobMaster, on one connection per slot, in order.

Encoded as tagged msgpack by msgspec. Bytes that only the far end's Python may open (pickles) are `bytes` fields,
opened after the connection has proved the job's secret.
"""

from __future__ import annotations

import msgspec

from penstock.protocol.values.elements import Barrier, Generation, SubtaskId
from penstock.protocol.values.metadata import Segment, SubtaskSnapshot
from penstock.protocol.values.reasons import FailureReason, SubtaskFailureReason


class Message(msgspec.Struct, frozen=True, tag=True):
    """Goes between a slot and the JobMaster, encoded with its class's name."""


# ---- slot to JobMaster ------------------------------------------------------------------------------------------


class Register(Message):
    """Introduces a slot; it is the first message on its connection. `slot` is the number under which its Spark job was
    submitted: a slot's, or beyond them a spare's. `submission` counts how often the driver has submitted that job;
    `attempt` is Spark's attempt number within it. `process` is a random id of this process. `relieves`: it was
    submitted to take the place of a process that lives, but whose executor is about to be removed. `hosted`: it runs in
    the process of another slot, because Spark has no place for a process of its own.
    """

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
    """Reports that a slot is connected with all others of its generation."""

    generation: Generation
    slot: int


class Restored(Message):
    """Reports that a slot has restored all its subtasks. `layers`: how many layers of recovered in-flight data wait at
    their gates.
    """

    generation: Generation
    slot: int
    layers: int = 0


class SlotAck(Message):
    """Acknowledges a checkpoint: all subtasks of the slot have written their part, and the segment is durable.

    `earlier`: segments of the checkpoint's predecessor that the snapshots name, too. In them, a range with `segment` 0
    lies in the new segment, one with `segment` n in `earlier[n - 1]`. `consolidated`: the paths of those in `earlier`
    that are not the predecessor's: the slot has stored a state whole in each, next to earlier checkpoints. They belong
    to this checkpoint as its new segment does.
    """

    generation: Generation
    slot: int
    checkpoint_id: int
    segment: Segment | None
    subtasks: list[SubtaskSnapshot]
    earlier: list[Segment] = []
    consolidated: list[str] = []

    @property
    def own(self) -> frozenset[str]:
        """Return the paths of the segments that belong to the checkpoint: nothing keeps them if it is aborted."""
        return frozenset(self.consolidated if self.segment is None else (*self.consolidated, self.segment.path))


class Decline(Message):
    """Reports that a slot cannot add its part to a checkpoint."""

    generation: Generation
    slot: int
    checkpoint_id: int
    subtask: SubtaskId
    reason: FailureReason
    detail: str = ""


class SubtaskFailed(Message):
    """Reports a failed subtask. `traceback` is the user's traceback as text, without our frames; `operator` is a name.
    The job's next step follows from `reason` alone.
    """

    generation: Generation
    slot: int
    subtask: SubtaskId
    operator: str
    error: str
    traceback: str
    reason: SubtaskFailureReason = SubtaskFailureReason.FUNCTION


class PeerLost(Message):
    """Reports that a slot's data connection to another ended in the middle of a generation."""

    generation: Generation
    slot: int
    peer: int
    detail: str


class SplitsRequested(Message):
    """Asks for splits: a reader has nothing left to read. `SplitsAssigned` answers when there is one."""

    generation: Generation
    slot: int
    subtask: SubtaskId


class WatermarkReport(Message):
    """Reports a source subtask's watermark to its alignment group. None: it is idle."""

    generation: Generation
    slot: int
    subtask: SubtaskId
    watermark_ms: int | None


class DrainReport(Message):
    """Reports that a subtask that was released while the job drains has run empty. The report with the largest
    `sequence` counts.

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
    """Counts a subtask's work since the generation started; shares are of the time since the previous status, in [0,
    1].
    """

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
    """The number of layers of recovered in-flight data that are left to read."""
    lag_rows: int | None = None
    """Counts what a source has not read yet; None if it does not know."""
    watermark_ms: int | None = None
    """The last watermark that was sent downstream; None: none yet."""
    metrics: dict[str, int | float | str] = {}
    """Figures of the state backend's own, by Flink's names, and of user functions."""
    accumulators: dict[str, int] = {}
    """The counters of user functions, by name."""


class ReachedEndOfData(Message):
    """Reports that a subtask has finished."""

    generation: Generation
    slot: int
    subtask: SubtaskId
    status: SubtaskStatus | None = None
    """The subtask's last counts."""


class SlotStatus(Message):
    """Carries a slot's heartbeat. `restoring` names the subtasks whose state is not restored yet."""

    generation: Generation
    slot: int
    subtasks: list[SubtaskStatus]
    rss_bytes: int
    restoring: list[str] = []


class Printed(Message):
    """Carries output of user code or of the print sink: whole lines, without line ends."""

    slot: int
    subtask: int
    lines: list[str]
    is_error: bool = False


class Left(Message):
    """Reports that a slot has released all its subtasks and connections of a generation (after `Cancel`), or leaves for
    good.
    """

    generation: Generation
    slot: int


class StoreRequest(Message):
    """Asks for checkpoint storage in the driver's memory: put (with `data`) or get (a range; length -1 is the rest)."""

    slot: int
    request: int
    path: str
    data: bytes | None = None
    offset: int = 0
    length_bytes: int = -1


# ---- JobMaster to slot ------------------------------------------------------------------------------------------


class Peer(msgspec.Struct, frozen=True):
    """Names the process that plays a slot, and where it accepts data connections."""

    slot: int
    host: str
    data_port: int
    process: str


class BecomeSpare(Message):
    """Makes the process a spare: another process plays every slot, so wait without returning or raising."""


class Host(Message):
    """Makes the process play this slot, too, with connections of its own: it registers with `hosted`, under the given
    submission. `relieves`: as in `Register`.
    """

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
    """Starts the restore, once every slot is connected: read state and in-flight data."""

    generation: Generation


class StartRun(Message):
    """Lets the subtasks of a slot work: all slots have restored theirs."""

    generation: Generation


class ReleaseVertices(Message):
    """Releases these vertices while the job drains. Each subtask starts to work when every checkpoint of `checkpoints`
    (triggered, and not ended when the release was decided) has ended there. `is_last`: nothing recovered is left, and
    draining is over, for all vertices.
    """

    generation: Generation
    vertices: list[int]
    checkpoints: list[int]
    is_last: bool


class TriggerCheckpoint(Message):
    """Starts a checkpoint: it goes to every slot, and the slot's source subtasks inject the barrier.
    `savepoint_directory`: where a savepoint's segments are written.
    """

    generation: Generation
    barrier: Barrier
    savepoint_directory: str | None = None


class LimitWatermark(Message):
    """Limits the source subtasks of a vertex to rows up to this watermark, so that they wait for the slower sources of
    their alignment group."""

    generation: Generation
    vertex: int
    watermark_max_ms: int


class EndSources(Message):
    """Ends all sources at their present positions: the job processes everything, and stops with a savepoint."""

    generation: Generation


class CheckpointEnded(Message):
    """Ends a checkpoint: it has completed (`aborted` False) or has failed. `commits`: it is canonical, so its output is
    committed. A savepoint of a job that continues is not: what its writers had prepared waits for the next checkpoint.
    `confirmed`: what was prepared for this checkpoint and earlier ones is committed, and no restore commits it again.
    """

    generation: Generation
    checkpoint_id: int
    aborted: bool
    commits: bool = True
    confirmed: int = 0


class SplitsAssigned(Message):
    """Gives splits to a source's subtask. `no_more`: no other ones follow. Without splits and without `no_more` it says
    that there are none for this subtask now; the request stands.
    """

    generation: Generation
    subtask: SubtaskId
    splits: list[bytes]
    no_more: bool


class Cancel(Message):
    """Release this generation's subtasks; `Left` answers."""

    generation: Generation


class Leave(Message):
    """Close everything and end the process. `message` is why, for the log."""

    message: str


class StoreReply(Message):
    """Answers a `StoreRequest`: with the bytes that were read, with none after a put, or with an error."""

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
    | WatermarkReport
    | SlotStatus
    | Printed
    | Left
    | StoreRequest
)
Downward = (
    BecomeSpare
    | Host
    | Deploy
    | Restore
    | StartRun
    | ReleaseVertices
    | TriggerCheckpoint
    | EndSources
    | LimitWatermark
    | CheckpointEnded
    | SplitsAssigned
    | Cancel
    | Leave
    | StoreReply
)
