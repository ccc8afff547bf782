"""Holds the capture of a subtask: its part of a checkpoint, from its snapshot until all its windows are closed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.graph.job_graph import Edge
from penstock.operators.event_time.subtask_clock import SubtaskClock
from penstock.protocol.channel.captured import Captured
from penstock.protocol.subtask.cut import Cut
from penstock.protocol.values.elements import SubtaskId
from penstock.protocol.values.metadata import (
    ChannelTime,
    Committable,
    GroupFloor,
    LayerCut,
    OperatorPart,
    StateRange,
)
from penstock.state.backend import StateSnapshot


@dataclass(frozen=True)
class TimeAtSnapshot:
    """Holds event time at the snapshot. `channels`: the times of all the gate's channels, in their order."""

    emitted_ms: int
    current_ms: int
    floors: list[GroupFloor]
    idle: bool
    pauses: dict[int, int]
    channels: list[ChannelTime]

    @staticmethod
    def of(clock: SubtaskClock) -> TimeAtSnapshot:
        # 5.1: time is part of the cut.
        time = clock.time
        said, channels = (clock.said_idle, dict(clock.said_pauses)), clock.valve.times()
        return TimeAtSnapshot(time.emitted_ms, time.current_ms, time.floors(), *said, channels)


@dataclass
class Capture:
    """Holds a subtask's cut together with what the protocol does not see. Built by the subtask's thread; belongs to the
    snapshot writer once its cut is closed.

    `edges`: the edges of the subtask, by their indices. `layers`: the layers of the gate that have unread elements.
    """

    subtask: SubtaskId
    cut: Cut
    edges: Mapping[int, Edge]
    layers: list[tuple[LayerCut, Captured]]
    time: TimeAtSnapshot
    finished: bool
    state: StateSnapshot | None = None
    parts: list[OperatorPart] = field(default_factory=list)
    committables: list[Committable] = field(default_factory=list)
    sync_ms: float = 0.0
    keyed: list[StateRange] = field(default_factory=list)
    checkpoint_id: int = field(init=False)

    def __post_init__(self) -> None:
        self.checkpoint_id = self.cut.checkpoint_id
