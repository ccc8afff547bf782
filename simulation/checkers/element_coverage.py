"""Counts element by element what a checkpoint holds of each channel. It shares no code with the product's own check
(`penstock.protocol.driver.coverage`), which computes with intervals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from penstock.graph.job_graph import Edge
from penstock.protocol.values.metadata import ChannelCapture, LayerCut, SubtaskSnapshot


def uncovered(edges: Sequence[Edge], subtasks: Iterable[SubtaskSnapshot]) -> Iterator[str]:
    """Yield a line for each channel or layer of which an element in flight is not stored exactly once."""
    snapshots = {(s.vertex, s.subtask): s for s in subtasks}
    for edge in edges:
        emitted: dict[tuple[int, int], int] = {}
        applied: dict[tuple[int, int], int] = {}
        stored: dict[tuple[int, int], Counter[int]] = {}
        for (vertex, subtask), snapshot in snapshots.items():
            for sent in snapshot.outputs if vertex == edge.source else []:
                if sent.edge == edge.name:
                    consumers = edge.consumers_of(subtask)
                    emitted |= {(subtask, c): number for c, number in zip(consumers, sent.emitted, strict=True)}
                    for capture in sent.captures:
                        stored.setdefault((subtask, capture.peer), Counter()).update(_numbers(capture))
            for taken in snapshot.inputs if vertex == edge.target else []:
                if taken.edge == edge.name:
                    producers = edge.producers_of(subtask)
                    applied |= {(p, subtask): number for p, number in zip(producers, taken.applied, strict=True)}
                    for capture in taken.captures:
                        stored.setdefault((capture.peer, subtask), Counter()).update(_numbers(capture))
        if emitted.keys() != applied.keys():
            yield f"edge {edge.name}: the ends of its channels differ: {sorted(emitted.keys() ^ applied.keys())}"
        for channel in sorted(emitted.keys() & applied.keys()):
            where = f"channel {edge.name}{list(channel)}"
            if applied[channel] > emitted[channel]:
                yield f"{where}: the cut holds {applied[channel]} applied elements of {emitted[channel]} emitted ones"
            yield from _wrong(where, range(applied[channel], emitted[channel]), stored.get(channel, Counter()))
    for snapshot in snapshots.values():
        for layer in snapshot.layers:
            where = f"layer {layer.edge}[{layer.producer}, {layer.consumer}] of subtask {snapshot.subtask}"
            yield from _wrong(where, range(layer.first, layer.end), Counter(_numbers(layer)))


def _numbers(of: ChannelCapture | LayerCut) -> Iterator[int]:
    for piece in of.pieces:
        yield from range(piece.first, piece.first + piece.rows)
    for event in of.events:
        yield event.number


def _wrong(where: str, in_flight: range, stored: Counter[int]) -> Iterator[str]:
    missing = [number for number in in_flight if not stored[number]]
    if missing:
        yield f"{where}: the cut lacks elements {missing[:5]}"
    repeated = [number for number in in_flight if stored[number] > 1]
    if repeated:
        yield f"{where}: the cut holds elements {repeated[:5]} more than once"
