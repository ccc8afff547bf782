"""Finds out whether all receivers of a broadcast have read the same rows, from what a checkpoint stores."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.protocol.restore.receivers import uneven_broadcasts
from penstock.protocol.values.elements import Watermark
from penstock.protocol.values.metadata import (
    ChannelCapture,
    EdgeShape,
    InflightRange,
    InputCut,
    LayerCut,
    Metadata,
    NumberedEvent,
    OutputCut,
    SubtaskSnapshot,
    VertexShape,
)

EDGE = "rules"


def rows(first: int, count: int) -> list[InflightRange]:
    return [InflightRange(first, count, 0, 0, 0, 0)] if count else []


def metadata(snapshots: list[SubtaskSnapshot], producers: int, receivers: int, partitioner: str) -> Metadata:
    vertices = [VertexShape(i, "", [str(i)], [""], p, 128) for i, p in enumerate((producers, receivers))]
    edges = [EdgeShape(EDGE, 0, 1, partitioner, False)]
    return Metadata(2, "", "", 1, 0, 0, "", 0, False, vertices, edges, [], snapshots, [], [])


@st.composite
def checkpoints(draw: st.DrawFn) -> tuple[Metadata, bool]:
    """Return a checkpoint, and whether some receiver has read other rows than another. How many watermarks lie among
    the rows, who has stored which of them, and what is stored that was applied already are different everywhere."""
    producers, receivers = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    one = st.lists(st.integers(0, 3), min_size=producers, max_size=producers)
    unread = draw(st.one_of(one.map(lambda u: [u] * receivers), st.lists(one, min_size=receivers, max_size=receivers)))
    emitted = [[0] * receivers for _ in range(producers)]
    sent: list[list[ChannelCapture]] = [[] for _ in range(producers)]
    snapshots = []
    for receiver in range(receivers):
        applied, captures, layers = [], [], []
        for producer in range(producers):
            count = unread[receiver][producer]
            in_layer = draw(st.integers(0, count))
            at, events = draw(st.integers(5, 9)), draw(st.integers(0, 2))
            if in_layer:
                before = draw(st.integers(0, 2))
                layer = rows(at - before, in_layer + before)
                layers.append(LayerCut(EDGE, producer, 0, at, at + in_layer, layer, []))
            live = count - in_layer
            by_receiver, already = draw(st.integers(0, live)), draw(st.integers(0, 3))
            captures.append(ChannelCapture(producer, rows(at - already, by_receiver + already), []))
            said = [NumberedEvent(at + live + i, Watermark(i)) for i in range(events)]
            sent[producer].append(ChannelCapture(receiver, rows(at + by_receiver, live - by_receiver), said))
            applied.append(at)
            emitted[producer][receiver] = at + live + events
        snapshots.append(SubtaskSnapshot(1, receiver, [InputCut(EDGE, applied, captures)], [], layers, [], [], [], []))
    for producer in range(producers):
        output = OutputCut(EDGE, emitted[producer], sent[producer])
        snapshots.append(SubtaskSnapshot(0, producer, [], [output], [], [], [], [], []))
    return metadata(snapshots, producers, receivers, "broadcast"), any(u != unread[0] for u in unread)


@settings(deadline=None)
@given(checkpoints())
def test_receivers_have_read_the_same_rows_if_each_has_as_many_left_of_each_producer(
    drawn: tuple[Metadata, bool],
) -> None:
    checkpoint, is_uneven = drawn
    assert uneven_broadcasts(checkpoint) == (frozenset({EDGE}) if is_uneven else frozenset())


def test_other_edges_are_never_uneven() -> None:
    cuts = [InputCut(EDGE, [applied], []) for applied in (0, 5)]
    consumers = [SubtaskSnapshot(1, i, [cut], [], [], [], [], [], []) for i, cut in enumerate(cuts)]
    producer = SubtaskSnapshot(
        0, 0, [], [OutputCut(EDGE, [5, 5], [ChannelCapture(0, rows(0, 5), [])])], [], [], [], [], []
    )
    for partitioner, found in (("rebalance", frozenset()), ("broadcast", {EDGE})):
        assert uneven_broadcasts(metadata([producer, *consumers], 1, 2, partitioner)) == found
