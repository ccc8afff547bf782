"""What a subtask's snapshot consists of, as it travels in an acknowledgement and stands in `_metadata`.

All offsets are in the segment file of the slot that wrote it. Checksums are CRC-32 (zlib.crc32) of the range's bytes.
"""

from __future__ import annotations

import msgspec

from penstock.protocol.values.elements import InBandEvent


class Segment(msgspec.Struct, frozen=True):
    """A slot's file of one checkpoint. `path` is relative to the job's directory."""

    path: str
    length_bytes: int


class Piece(msgspec.Struct, frozen=True):
    """Rows [first, first + rows) of a channel: one Arrow IPC record-batch message in a segment.

    `segment` is an index into the list of segments of the acknowledgement or metadata that holds this.
    """

    first: int
    rows: int
    segment: int
    offset: int
    length_bytes: int
    crc: int


class NumberedEvent(msgspec.Struct, frozen=True):
    number: int
    event: InBandEvent


class Capture(msgspec.Struct, frozen=True):
    """Elements of one channel that were in flight. `peer` is the other end's subtask."""

    peer: int
    pieces: list[Piece]
    events: list[NumberedEvent]


class ChannelTime(msgspec.Struct, frozen=True):
    """How far the consumer had read the time of a channel: its watermark, and whether it was idle or ended."""

    watermark_ms: int
    idle: bool = False
    ended: bool = False


class InputCut(msgspec.Struct, frozen=True):
    """One input edge at the snapshot. `applied[i]` and `times[i]` belong to the i-th producer of
    `Edge.producers_of(subtask)`; a channel without capture stored nothing.
    """

    edge: str
    applied: list[int]
    captures: list[Capture]
    times: list[ChannelTime] = []


class OutputCut(msgspec.Struct, frozen=True):
    """One output edge at the snapshot. `emitted[i]` belongs to the i-th consumer of `Edge.consumers_of(subtask)`."""

    edge: str
    emitted: list[int]
    captures: list[Capture]


class LayerCut(msgspec.Struct, frozen=True):
    """Recovered elements [first, end) of an old channel that this gate has not read yet.

    The old channel is named by its edge and both its old ends. Layers of one channel stand oldest first. `time`: of
    the virtual channel that the layer is to the watermark valve where parallelism had changed; None: its events belong
    to the live channel that took its place.
    """

    edge: str
    producer: int
    consumer: int
    first: int
    end: int
    pieces: list[Piece]
    events: list[NumberedEvent]
    time: ChannelTime | None = None


class GroupFloor(msgspec.Struct, frozen=True):
    """Key groups [first, end) whose former owner had reached this watermark: their time never falls below it."""

    first: int
    end: int
    watermark_ms: int


class StateRange(msgspec.Struct, frozen=True):
    """Entries of one keyed state of one operator: an Arrow IPC stream in a segment (see `penstock.state`)."""

    operator: str
    name: str
    segment: int
    offset: int
    length_bytes: int
    crc: int
    entries: int


class StateSchema(msgspec.Struct, frozen=True):
    """How a keyed state was declared: checked by name when it is restored. `kind`: value, list, map, reducing."""

    operator: str
    name: str
    kind: str
    codec: str


class OperatorPart(msgspec.Struct, frozen=True):
    """Small state of one operator of the chain, inline: a reader's splits, a sink writer's state, and so on.

    `name`: "splits" (one item per split, encoded by the source), "writer" (a sink's `SinkWriter.snapshot()`),
    "watermarks" (a watermark generator's state: one item per split).
    """

    operator: str
    name: str
    items: list[bytes]


class Committable(msgspec.Struct, frozen=True):
    operator: str
    data: bytes


class SubtaskSnapshot(msgspec.Struct, frozen=True):
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
    """What has been sent downstream."""
    current_ms: int | None = None
    """The event time that operators see. Above `watermark_ms` while the timers up to it are firing."""
    floors: list[GroupFloor] = []
    idle: bool = False
    """Whether the last that was sent downstream about time is that there is none (`Idle`)."""
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


class VertexShape(msgspec.Struct, frozen=True):
    """What of a vertex a restore must find again: checked by name before the job starts."""

    index: int
    name: str
    operators: list[str]
    """Operator uids, head first."""
    operator_names: list[str]
    parallelism: int
    max_parallelism: int
    windows: str = ""
    """Those of its head, as text: what is kept of a window says only where it starts. Empty: it has none."""


class EdgeShape(msgspec.Struct, frozen=True):
    name: str
    source: int
    target: int
    partitioner: str
    pointwise: bool
    columns: str = ""
    """The columns of its batches, as text: in-flight data can only be read by an edge with the same ones."""
    input_index: int = 0


class EnumeratorState(msgspec.Struct, frozen=True):
    operator: str
    data: bytes


FORMAT_VERSION = 2
"""Version 1 knew no event time: what was added since has defaults, so it can still be restored."""


class Metadata(msgspec.Struct, frozen=True):
    """The content of `chk-<n>/_metadata`. Names only what lies in the job's directory, or what is stated with its
    size and modification mark in a split."""

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
