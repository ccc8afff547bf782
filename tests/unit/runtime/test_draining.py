"""A subtask's side of draining: when it follows a release, and what it reports."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.protocol.channel.ends import InputChannel
from penstock.protocol.values.elements import ChannelId, Generation, SubtaskId
from penstock.runtime.input.drain_gate import SubtaskDraining


@dataclass
class Edge:
    index: int


class Gate:
    def __init__(self) -> None:
        self.channels = [InputChannel(ChannelId(3, producer, 0), 100) for producer in range(2)]
        self.edge_of = [Edge(3), Edge(3)]
        self.layers: list = []


@dataclass
class Partition:
    edge: Edge
    emitted: list[int]


def held() -> SubtaskDraining:
    draining = SubtaskDraining(SubtaskId(1, 0), Generation(1, 1), 0)
    draining.hold()
    return draining


def test_who_is_not_told_to_hold_works_and_reports_nothing() -> None:
    draining = SubtaskDraining(SubtaskId(1, 0), Generation(1, 1), 0)
    assert draining.is_over and not draining.held
    draining.on_release(False, [])
    assert draining.is_over and draining.report(Gate(), [], True) is None


def test_a_release_waits_for_the_checkpoints_that_it_names() -> None:
    draining = held()
    draining.on_checkpoint_ended(4)
    draining.on_release(False, [4, 5, 6])
    draining.on_checkpoint_ended(6)
    assert draining.held
    draining.on_checkpoint_ended(5)
    assert not draining.held and not draining.is_over


def test_the_last_release_waits_its_turn_behind_the_first() -> None:
    draining = held()
    draining.on_release(False, [7])
    draining.on_release(True, [])
    assert draining.held, "what the first waits for has not ended"
    draining.on_checkpoint_ended(7)
    assert draining.is_over


def test_it_reports_sums_by_edge_once_for_each_change() -> None:
    draining, gate, partition = held(), Gate(), Partition(Edge(5), [2, 1])
    assert draining.report(gate, [partition], True) is None, "held: nobody asks"
    draining.on_release(False, [])
    first = draining.report(gate, [partition], True)
    assert first is not None and (first.sequence, first.applied, first.emitted) == (1, {3: 0}, {5: 3})
    assert draining.report(gate, [partition], True) is None
    gate.channels[1].applied = 4
    second = draining.report(gate, [partition], False)
    assert second is not None and (second.sequence, second.applied, second.idle) == (2, {3: 4}, False)
    draining.on_release(True, [])
    gate.channels[0].applied = 9
    assert draining.report(gate, [partition], True) is None, "draining is over"
