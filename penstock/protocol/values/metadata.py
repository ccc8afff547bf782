"""Defines a subtask's part of a checkpoint, as acknowledgements carry it and `_metadata` stores it.

All offsets are in the segment file of the slot that wrote it. Checksums are CRC-32 (zlib.crc32) of the range's bytes.
"""

from __future__ import annotations

import msgspec

from penstock.protocol.values.elements import InBandEvent


class Segment(msgspec.Struct, frozen=True):
    """Describes a slot's file of one checkpoint. `path` is relative to the job's directory."""

    path: str
    length_bytes: int


class InflightRange(msgspec.Struct, frozen=True):
    """Locates rows [first, first + rows) of a channel: one Arrow IPC record-batch message in a segment.

    `segment` is an index into the list of segments of the acknowledgement or metadata that holds this.
    """

    first: int
    rows: int
    segment: int
    offset: int
    length_bytes: int
    crc: int


class NumberedEvent(msgspec.Struct, frozen=True):
    """Holds an in-band event that was in flight, with its number on its channel."""

    number: int
    event: InBandEvent


class ChannelCapture(msgspec.Struct, frozen=True):
    """Lists elements of one channel that were in flight. `peer` is the other end's subtask."""

    peer: int
    pieces: list[InflightRange]
    events: list[NumberedEvent]


class ChannelTime(msgspec.Struct, frozen=True, omit_defaults=True):
    """Records the time of a channel as its consumer had read it: its watermark, and whether it was idle or ended.
    `before_last_ms`: the watermark before the last one, once that has come. `other_pauses`: for each clock whose ended
    pauses are not those of `SubtaskSnapshot.pauses` on this channel, their count here; -1: it has said nothing here.
    """

    watermark_ms: int
    idle: bool = False
    ended: bool = False
    before_last_ms: int = -(2**63)
    other_pauses: dict[int, int] = {}


class InputCut(msgspec.Struct, frozen=True):
    """Records one input edge at the snapshot. `applied[i]` and `times[i]` belong to the i-th producer of
    `Edge.producers_of(subtask)`; a channel without capture stored nothing.
    """

    edge: str
    applied: list[int]
    captures: list[ChannelCapture]
    times: list[ChannelTime] = []


class OutputCut(msgspec.Struct, frozen=True):
    """Records one output edge at the snapshot. `emitted[i]` belongs to the i-th consumer of
    `Edge.consumers_of(subtask)`.
    """

    edge: str
    emitted: list[int]
    captures: list[ChannelCapture]


class LayerCut(msgspec.Struct, frozen=True):
    """Locates recovered elements [first, end) of an old channel that this gate has not read yet.

    The old channel is named by its edge and both its old ends. Layers of one channel are listed oldest first. `time`:
    if the parallelism had changed, the layer is a virtual channel of the watermark valve, and this is its time. None:
    the layer's events belong to the live channel that continues it.
    """

    edge: str
    producer: int
    consumer: int
    first: int
    end: int
    pieces: list[InflightRange]
    events: list[NumberedEvent]
    time: ChannelTime | None = None


class GroupFloor(msgspec.Struct, frozen=True):
    """Keeps the watermark that the former owner of key groups [first, end) had reached: their time never falls below
    it.
    """

    first: int
    end: int
    watermark_ms: int


class RunBounds(msgspec.Struct, frozen=True):
    """Says which key groups a run of sorted entries has, the last one included, and its first and last key, in the
    form of the backend that has sorted them.
    """

    first_group: int
    last_group: int
    first: bytes
    last: bytes

    def has_some_of(self, key_groups: range) -> bool:
        """Return whether the run may have entries of these key groups."""
        return self.first_group < key_groups.stop and key_groups.start <= self.last_group


class StateRange(msgspec.Struct, frozen=True, omit_defaults=True):
    """Locates the entries of one keyed state of one operator: an Arrow IPC stream in a segment (see
    `penstock.state`). `bounds`: None if the entries are not sorted.
    """

    operator: str
    name: str
    segment: int
    offset: int
    length_bytes: int
    crc: int
    entries: int
    bounds: RunBounds | None = None

    def has_some_of(self, key_groups: range) -> bool:
        """Return whether the range may have entries of these key groups."""
        return self.bounds is None or self.bounds.has_some_of(key_groups)


class StateSchema(msgspec.Struct, frozen=True):
    """Describes the declaration of a keyed state; a restore checks it by name. `kind`: value, list, map, reducing.
    `expires`: its entries have a time to live, so the times of their last use are stored, too.
    """

    operator: str
    name: str
    kind: str
    codec: str
    expires: bool = False


CALLS_PART = "calls"
"""The name of the part that holds the rows of an operator that wait for an answer, with the answers that have come."""


class OperatorPart(msgspec.Struct, frozen=True):
    """Holds small state of one operator of the chain, inline: a reader's splits, a sink writer's state, and so on.

    `name`: "splits" (one item per split, encoded by the source), "writer" (a sink's `SinkWriter.snapshot()`),
    "watermarks" (a watermark generator's state: one item per split), "calls" (one item).

    With a `kind` it is operator state of a user's function: "split", "union" or "broadcast". Then `name` is the user's,
    `codec` the type of the values, and each item is an Arrow IPC stream, whose rows are the elements of a list, or one
    map.
    """

    operator: str
    name: str
    items: list[bytes]
    kind: str = ""
    codec: str = ""


class Committable(msgspec.Struct, frozen=True):
    """Holds prepared output. `prepared_for`: the checkpoint at whose snapshot the writer prepared it. Later ones name
    it as well, until the writer hears that one of them is canonical. `checkpoint_id`: the first canonical checkpoint
    that named it, once there is one.
    """

    operator: str
    data: bytes
    prepared_for: int = 0
    checkpoint_id: int = 0


class SubtaskSnapshot(msgspec.Struct, frozen=True):
    """Holds one subtask's part of a checkpoint: its cut, and where its state and in-flight data are."""

    vertex: int
    subtask: int
    inputs: list[InputCut]
    outputs: list[OutputCut]
    layers: list[LayerCut]
    keyed: list[StateRange]
    schemas: list[StateSchema]
    parts: list[OperatorPart]
    committables: list[Committable]
    watermark_ms: int | None = None
    """The watermark that has been sent downstream."""
    current_ms: int | None = None
    """The event time that operators see. Above `watermark_ms` while the timers up to it are firing."""
    floors: list[GroupFloor] = []
    idle: bool = False
    """True if `Idle` was the last element about time that was sent downstream."""
    pauses: dict[int, int] = {}
    """The ended pauses of each clock, its own included, that had been passed on downstream."""
    finished: bool = False
    """True once the subtask had sent its end of data."""
    unaligned: bool = False
    persisted_bytes: int = 0
    """Bytes of in-flight data (rows) that this subtask wrote."""
    state_bytes: int = 0
    start_delay_ms: float = 0.0
    alignment_ms: float = 0.0
    sync_ms: float = 0.0
    async_ms: float = 0.0


class WindowsShape(msgspec.Struct, frozen=True):
    """Describes the windows of an operator. State names a window by its start."""

    kind: str
    """The name of this kind of window, for messages."""
    length_ms: int | None
    """The time from each window's start to its end. None: windows differ in length."""
    settings_ms: dict[str, int]
    """The settings that tell these windows from others of their kind, in ms, by their names in messages."""


class VertexShape(msgspec.Struct, frozen=True):
    """Describes the facts of a vertex that a restore must find again; they are checked by name
    before the job starts."""

    index: int
    name: str
    operators: list[str]
    """Operator uids, head first."""
    operator_names: list[str]
    parallelism: int
    max_parallelism: int
    windows: WindowsShape | None = None
    """The windows of its head. None: it has none."""
    user_uids: list[str] = []
    """The program's names of its operators, head first; "" for one without a uid of the user's."""
    key_type: str = ""
    """The declared type of the keys that its head reads, as text. Empty: none was declared."""


class EdgeShape(msgspec.Struct, frozen=True):
    """Describes an edge, as far as a restore has to know what it was."""

    name: str
    source: int
    target: int
    partitioner: str
    pointwise: bool
    columns: str = ""
    """The columns of its batches, as text: in-flight data can only be read by an edge with the same ones."""
    input_index: int = 0


class EnumeratorState(msgspec.Struct, frozen=True):
    """Holds the state of a source's enumerator at the trigger."""

    operator: str
    data: bytes


FORMAT_VERSION = 1
"""Counts the changes of the format. A change that adds a field gives it a default, so that older metadata can be read.
"""


class Metadata(msgspec.Struct, frozen=True):
    """Holds the content of `chk-<n>/_metadata`. Its paths lie in the job's directory; a split may refer to a file
    elsewhere, with its size and modification mark.
    """

    format_version: int
    job_id: str
    job_name: str
    checkpoint_id: int
    fence: int
    counter: int
    incarnation: str
    trigger_wall_ms: int
    draining: bool
    vertices: list[VertexShape]
    edges: list[EdgeShape]
    segments: list[Segment]
    subtasks: list[SubtaskSnapshot]
    enumerators: list[EnumeratorState]
    unconfirmed_commits: list[Committable]
    """Committables of earlier checkpoints whose commit had not been confirmed when this one was published."""
    is_final: bool = False
    drained: bool = False
    """A savepoint before which all sources were ended: whoever restores it reads on, from the start of event time."""
    savepoint: str | None = None
    """The directory of the savepoint that this job was stopped with: everything but the output to commit is there."""
