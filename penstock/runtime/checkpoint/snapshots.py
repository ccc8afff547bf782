"""One subtask's part of a checkpoint, from its snapshot to the moment when all its windows are closed."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.graph.job_graph import Edge
from penstock.operators.event_time.clock import SubtaskClock
from penstock.protocol.channel.ends import Captured
from penstock.protocol.values.elements import Barrier, SubtaskId
from penstock.protocol.values.metadata import ChannelTime, Committable, GroupFloor, OperatorPart, StateRange
from penstock.runtime.input.layers import Layer
from penstock.state.backend import StateSnapshot


@dataclass(frozen=True)
class CapturedChannel:
    """Elements in flight on one channel. `peer` is the subtask at its other end."""

    edge: Edge
    peer: int
    captured: Captured


@dataclass(frozen=True)
class CapturedLayer:
    """What a gate had not read of an old channel: [first, end). `time`: of the virtual channel that it is."""

    layer: Layer
    first: int
    captured: Captured
    time: ChannelTime | None = None


@dataclass(frozen=True)
class TimeAtSnapshot:
    """`channels`: of all the gate's channels, in their order."""

    emitted_ms: int
    current_ms: int
    floors: list[GroupFloor]
    idle: bool
    channels: list[ChannelTime]

    @staticmethod
    def of(clock: SubtaskClock) -> TimeAtSnapshot:
        time = clock.time
        return TimeAtSnapshot(time.emitted_ms, time.current_ms, time.floors(), clock.said_idle, clock.valve.times())


@dataclass
class SubtaskCapture:
    """Built by the subtask's thread; belongs to the snapshot writer once it is closed.

    `applied[edge]` and `emitted[edge]` are in the order of the edge's producers and consumers. `windows_open`: input
    channels that are still captured. `barriers_missing`: until all barriers are in. `outputs_open`: an aligned barrier
    that may still turn stands in an output queue.
    """

    subtask: SubtaskId
    barrier: Barrier
    unaligned: bool
    taken_ms: float
    start_delay_ms: float
    applied: list[tuple[Edge, list[int]]]
    emitted: list[tuple[Edge, list[int]]]
    layers: list[CapturedLayer]
    time: TimeAtSnapshot
    finished: bool
    state: StateSnapshot | None
    parts: list[OperatorPart]
    committables: list[Committable]
    inputs: list[CapturedChannel] = field(default_factory=list)
    outputs: list[CapturedChannel] = field(default_factory=list)
    windows_open: set[int] = field(default_factory=set)
    barriers_missing: bool = True
    outputs_open: bool = False
    alignment_ms: float = 0.0
    sync_ms: float = 0.0
    keyed: list[StateRange] = field(default_factory=list)

    @property
    def checkpoint_id(self) -> int:
        return self.barrier.checkpoint_id

    @property
    def closed(self) -> bool:
        return not (self.windows_open or self.barriers_missing or self.outputs_open)
