"""Any whole cut passes the check before publication; any hole or overlap in it is found, and its channel is named."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.graph.job_graph import Edge
from penstock.graph.logical import Partitioner, PartitionerKind
from penstock.protocol.driver.coverage import verify
from penstock.protocol.values.elements import Idle
from penstock.protocol.values.metadata import (
    ChannelCapture,
    InflightRange,
    InputCut,
    NumberedEvent,
    OutputCut,
    SubtaskSnapshot,
)

KINDS = [PartitionerKind.HASH, PartitionerKind.RESCALE, PartitionerKind.BROADCAST, PartitionerKind.FORWARD]
Pair = tuple[int, int]


@st.composite
def topologies(draw: st.DrawFn) -> Edge:
    kind = draw(st.sampled_from(KINDS))
    sources = draw(st.integers(1, 4))
    targets = sources if kind is PartitionerKind.FORWARD else draw(st.integers(1, 4))
    return Edge(0, "edge", 0, 1, 0, Partitioner(kind), None, sources, targets)


class WholeCut:
    """Numbers and stored elements per channel: `at_consumer` and `at_producer` hold (first, rows), an event is
    (number, 0)."""

    def __init__(self, data: st.DataObject, edge: Edge) -> None:
        self.edge = edge
        self.channels = [(p, c) for p in range(edge.source_parallelism) for c in edge.consumers_of(p)]
        self.applied = {ch: data.draw(st.integers(0, 20)) for ch in self.channels}
        self.emitted = {ch: self.applied[ch] + data.draw(st.integers(0, 12)) for ch in self.channels}
        self.at_consumer: dict[Pair, list[Pair]] = {}
        self.at_producer: dict[Pair, list[Pair]] = {}
        for channel in self.channels:
            elements = self._cut_up(data, self.applied[channel], self.emitted[channel])
            split = data.draw(st.integers(0, len(elements)))
            self.at_consumer[channel] = data.draw(st.permutations(elements[:split]))
            self.at_producer[channel] = elements[split:]

    @staticmethod
    def _cut_up(data: st.DataObject, at: int, end: int) -> list[Pair]:
        found = []
        while at < end:
            rows = data.draw(st.integers(0, end - at))
            found.append((at, rows))
            at += max(rows, 1)
        return found

    def snapshots(self) -> list[SubtaskSnapshot]:
        found = []
        for producer in range(self.edge.source_parallelism):
            consumers = self.edge.consumers_of(producer)
            emitted = [self.emitted[producer, c] for c in consumers]
            captures = [_capture(c, self.at_producer[producer, c]) for c in consumers]
            cut = OutputCut("edge", emitted, captures)
            found.append(SubtaskSnapshot(0, producer, [], [cut], [], [], [], [], []))
        for consumer in range(self.edge.target_parallelism):
            producers = self.edge.producers_of(consumer)
            applied = [self.applied[p, consumer] for p in producers]
            taken = InputCut("edge", applied, [_capture(p, self.at_consumer[p, consumer]) for p in producers])
            found.append(SubtaskSnapshot(1, consumer, [taken], [], [], [], [], [], []))
        return found


def _capture(peer: int, elements: list[Pair]) -> ChannelCapture:
    pieces = [InflightRange(first, rows, 0, 0, 1, 0) for first, rows in elements if rows]
    return ChannelCapture(peer, pieces, [NumberedEvent(number, Idle()) for number, rows in elements if not rows])


@given(st.data(), topologies())
@settings(max_examples=60, deadline=None)
def test_a_whole_cut_passes(data: st.DataObject, edge: Edge) -> None:
    assert verify([edge], WholeCut(data, edge).snapshots()) == []


@given(st.data(), topologies(), st.sampled_from(["lost", "shorter", "twice", "longer", "applied", "emitted"]))
@settings(max_examples=150, deadline=None)
def test_every_hole_and_overlap_is_found(data: st.DataObject, edge: Edge, injury: str) -> None:
    cut = WholeCut(data, edge)
    channel = data.draw(st.sampled_from(cut.channels))
    stored = [s for s in (cut.at_consumer[channel], cut.at_producer[channel]) if s]
    if injury == "applied":
        cut.applied[channel] = cut.emitted[channel] + 1
    elif injury == "emitted":
        cut.emitted[channel] += 1
    elif not stored:
        return
    else:
        elements = data.draw(st.sampled_from(stored))
        place = data.draw(st.integers(0, len(elements) - 1))
        first, rows = elements[place]
        if injury == "lost":
            del elements[place]
        elif injury == "twice":
            elements.append(elements[place])
        elif injury == "shorter" and rows > 1:
            elements[place] = (first, rows - 1)
        elif injury == "longer" and first + max(rows, 1) < cut.emitted[channel]:
            elements[place] = (first, max(rows, 1) + 1)
        else:
            return
    found = verify([edge], cut.snapshots())
    assert len(found) == 1 and found[0].startswith(f"channel edge[{channel[0]} -> {channel[1]}]: ")
