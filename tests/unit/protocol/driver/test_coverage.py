"""Stands between a capture bug and a published checkpoint: each channel's [applied, emitted) is stored exactly once."""

from __future__ import annotations

from typing import Any, Iterator

import pytest

from penstock.graph.job_graph import Edge
from penstock.graph.logical import Partitioner, PartitionerKind
from penstock.protocol.driver.coverage import verify
from penstock.protocol.values.elements import Idle
from penstock.protocol.values.metadata import (
    ChannelCapture,
    InflightRange,
    InputCut,
    LayerCut,
    NumberedEvent,
    OutputCut,
    SubtaskSnapshot,
)


def edge(kind: PartitionerKind = PartitionerKind.HASH, sources: int = 1, targets: int = 1) -> Edge:
    return Edge(0, "a-b-0-0", 0, 1, 0, Partitioner(kind), None, sources, targets)


def pieces(*intervals: tuple[int, int]) -> list[InflightRange]:
    return [InflightRange(first, end - first, 0, 0, 10, 0) for first, end in intervals]


def events(*numbers: int) -> list[NumberedEvent]:
    return [NumberedEvent(n, Idle()) for n in numbers]


def capture(peer: int, stored: str) -> ChannelCapture:
    """ "3-7 9 10-12": rows [3, 7), event 9, rows [10, 12)."""
    rows = [tuple(map(int, w.split("-"))) for w in stored.split() if "-" in w]
    return ChannelCapture(peer, pieces(*rows), events(*(int(w) for w in stored.split() if "-" not in w)))  # type: ignore[arg-type]


def consumer(
    applied: list[int], captures: list[ChannelCapture], subtask: int = 0, **more: list[LayerCut]
) -> SubtaskSnapshot:
    inputs = [InputCut("a-b-0-0", applied, captures)]
    return SubtaskSnapshot(1, subtask, inputs, [], more.get("layers", []), [], [], [], [])


def producer(emitted: list[int], captures: list[ChannelCapture], subtask: int = 0) -> SubtaskSnapshot:
    return SubtaskSnapshot(0, subtask, [], [OutputCut("a-b-0-0", emitted, captures)], [], [], [], [], [])


@pytest.mark.parametrize(
    ("applied", "emitted", "at_consumer", "at_producer", "violation"),
    [
        (0, 0, "", "", ""),
        (7, 7, "", "", ""),
        (3, 10, "3-7", "7-10", ""),
        (3, 10, "3-5 5 6-7", "7 8 9-10", ""),
        (3, 10, "0-7", "7-15", ""),
        (3, 10, "", "3-10", ""),
        (3, 10, "3-10", "", ""),
        (3, 10, "5-7 3-5", "7-10", ""),
        (8, 7, "", "", "8 elements applied, but only 7 emitted"),
        (3, 10, "", "", "elements [3, 10) of [3, 10) were not stored"),
        (3, 10, "4-7", "7-10", "elements [3, 4) of [3, 10) were not stored"),
        (3, 10, "3-7", "8-10", "elements [7, 8) of [3, 10) were not stored"),
        (3, 10, "3-7", "7-9", "elements [9, 10) of [3, 10) were not stored"),
        (3, 10, "3-8", "7-10", "elements [7, 8) were stored twice"),
        (3, 10, "3-10", "3-10", "elements [3, 10) were stored twice"),
        (3, 10, "3-7 5", "7-10", "elements [5, 6) were stored twice"),
        (3, 10, "0-3", "10-12", "elements [3, 10) of [3, 10) were not stored"),
    ],
)
def test_one_channel(applied: int, emitted: int, at_consumer: str, at_producer: str, violation: str) -> None:
    subtasks = [
        consumer([applied], [capture(0, at_consumer)] if at_consumer else []),
        producer([emitted], [capture(0, at_producer)] if at_producer else []),
    ]
    expected = [f"channel a-b-0-0[0 -> 0]: {violation}"] if violation else []
    assert verify([edge()], subtasks) == expected


def test_what_two_captures_of_one_channel_stored_counts_together() -> None:
    """A barrier that was turned and one that overtook it may leave two captures for one peer."""
    found = verify([edge()], [consumer([0], [capture(0, "0-2"), capture(0, "2-4")]), producer([5], [capture(0, "4")])])
    assert found == []


def test_the_right_ends_belong_together() -> None:
    two_by_two = edge(sources=2, targets=2)
    good = [
        producer([5, 2], [capture(0, "3-5")], 0), producer([4, 9], [capture(1, "8")], 1),
        consumer([3, 4], [], 0), consumer([1, 8], [capture(0, "1-2")], 1),
    ]  # fmt: skip
    assert verify([two_by_two], good) == []
    swapped = [good[1], good[0], consumer([4, 3], [], 0), good[3]]
    assert verify([two_by_two], swapped) == ["channel a-b-0-0[1 -> 0]: elements [3, 4) of [3, 4) were not stored"]


def test_pointwise_edges_have_only_their_own_channels() -> None:
    forward = edge(PartitionerKind.FORWARD, 2, 2)
    subtasks = [producer([5], [], 0), producer([7], [], 1), consumer([5], [], 0), consumer([7], [], 1)]
    assert verify([forward], subtasks) == []
    assert verify([forward], [*subtasks[:3], consumer([6], [], 1)]) == [
        "channel a-b-0-0[1 -> 1]: elements [6, 7) of [6, 7) were not stored"
    ]
    rescale = edge(PartitionerKind.RESCALE, 2, 4)
    many = [producer([1, 2], [], 0), producer([3, 4], [], 1), *(consumer([n], [], n - 1) for n in (1, 2, 3, 4))]
    assert verify([rescale], many) == []


def test_a_missing_snapshot_is_named_by_its_end() -> None:
    assert verify([edge()], [producer([0], [])]) == ["channel a-b-0-0[0 -> 0]: no snapshot of its consumer"]
    assert verify([edge()], [consumer([0], [])]) == ["channel a-b-0-0[0 -> 0]: no snapshot of its producer"]


@pytest.mark.parametrize(
    ("stored", "violation"),
    [
        ("4-8 8 9-12", ""),
        ("4-8 9-12", "elements [8, 9) of [4, 12) were not stored"),
        ("4-8 7-12", "elements [7, 8) were stored twice"),
        ("", "elements [4, 12) of [4, 12) were not stored"),
    ],
)
def test_an_unread_layer_is_stored_whole(stored: str, violation: str) -> None:
    part = capture(0, stored)
    layer = LayerCut("old-edge", 3, 5, 4, 12, part.pieces, part.events)
    expected = [f"layer of channel old-edge[3 -> 5] at subtask 0 of vertex 1: {violation}"] if violation else []
    assert verify([edge()], [producer([0], []), consumer([0], [], layers=[layer])]) == expected


class Counted(list):  # type: ignore[type-arg]
    """Counts how often a list was gone through."""

    times = 0

    def __iter__(self) -> Iterator[Any]:
        Counted.times += 1
        return super().__iter__()


def test_each_list_of_captures_is_gone_through_once() -> None:
    """Gone through for every channel, 200 by 200 of them were 16 million steps for each checkpoint."""
    width = 20
    all_to_all = edge(sources=width, targets=width)
    subtasks = [producer([4] * width, Counted(capture(c, "2-4") for c in range(width)), p) for p in range(width)]
    subtasks += [consumer([0] * width, Counted(capture(p, "0-2") for p in range(width)), c) for c in range(width)]
    Counted.times = 0
    assert verify([all_to_all], subtasks) == []
    assert Counted.times == 2 * width


def test_while_the_job_drains_nobody_has_recovered_rows_and_younger_ones() -> None:
    unread = LayerCut("a-b-0-0", 0, 0, 0, 4, pieces((0, 4)), [])
    sent = producer([7], [])
    younger = consumer([5], [capture(0, "5-7")], layers=[unread])
    assert verify([edge()], [sent, younger]) == []
    found = verify([edge()], [sent, younger], draining=True)
    assert found == ["channel a-b-0-0[0 -> 0]: rows came before its consumer had read what was recovered"]
    only_events = consumer([5], [capture(0, "5 6")], layers=[unread])
    assert verify([edge()], [sent, only_events], draining=True) == []
    assert verify([edge()], [sent, consumer([5], [capture(0, "5-7")])], draining=True) == []
