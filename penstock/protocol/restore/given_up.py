"""Gives up rows that were in flight: the way past a damaged range, or past an edge that is gone.

Flink's `execution.state-recovery.without-channel-state.checkpoint-id`. Events between the rows stay: without the end of
data among them the job would never end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import msgspec

from penstock.protocol.restore.rescale import OldEdge
from penstock.protocol.values.metadata import Capture, InflightRange, InputCut, Metadata, NumberedEvent, OutputCut


@dataclass(frozen=True)
class GivenUp:
    """Describes what one channel loses. `edge` is named as in the metadata; the others are subtask numbers."""

    edge: str
    producer: int
    consumer: int
    rows: int
    bytes: int

    def __str__(self) -> str:
        return f"{self.edge}[{self.producer} -> {self.consumer}]: {self.rows} rows, {self.bytes} bytes"


def without_rows_in_flight(metadata: Metadata, edges: Collection[str] | None = None) -> tuple[Metadata, list[GivenUp]]:
    """Return the metadata without the rows in flight of these edges (None: of all), and what each channel loses.

    The elements of a channel are numbered again from 0, so that a restore finds nothing missing."""
    given_up: list[GivenUp] = []
    inputs: dict[tuple[int, int], dict[str, InputCut]] = {}
    outputs: dict[tuple[int, int], dict[str, OutputCut]] = {}
    for snapshot in metadata.subtasks:
        inputs[snapshot.vertex, snapshot.subtask] = {cut.edge: cut for cut in snapshot.inputs}
        outputs[snapshot.vertex, snapshot.subtask] = {cut.edge: cut for cut in snapshot.outputs}
    for shape in metadata.edges:
        edge = OldEdge.find(metadata, shape.name)
        if edge is None or (edges is not None and shape.name not in edges):
            continue
        for consumer in range(edge.target_parallelism):
            _give_up_channels(edge, consumer, inputs, outputs, given_up)
    subtasks = []
    for snapshot in metadata.subtasks:
        layers = []
        for layer in snapshot.layers:
            if edges is not None and layer.edge not in edges:
                layers.append(layer)
                continue
            _note(given_up, layer.edge, layer.producer, layer.consumer, layer.pieces, layer.first, layer.end)
            events = _numbered(layer.events, layer.first, layer.end)
            layers.append(msgspec.structs.replace(layer, first=0, end=len(events), pieces=[], events=events))
        key = (snapshot.vertex, snapshot.subtask)
        cuts = (list(inputs[key].values()), list(outputs[key].values()))
        subtasks.append(msgspec.structs.replace(snapshot, inputs=cuts[0], outputs=cuts[1], layers=layers))
    return msgspec.structs.replace(metadata, subtasks=subtasks), given_up


def _give_up_channels(
    edge: OldEdge,
    consumer: int,
    inputs: dict[tuple[int, int], dict[str, InputCut]],
    outputs: dict[tuple[int, int], dict[str, OutputCut]],
    given_up: list[GivenUp],
) -> None:
    """Remove the rows of all channels of an edge that lead to one consumer."""
    name, target = edge.shape.name, (edge.shape.target, consumer)
    cut = inputs.get(target, {}).get(name)
    if cut is None:
        return
    applied, captures = list(cut.applied), []
    for position, producer in enumerate(edge.producers_of(consumer)):
        source = (edge.shape.source, producer)
        sent = outputs.get(source, {}).get(name)
        if sent is None:
            continue
        at = consumer - edge.consumers_of(producer).start
        held = [c for c in cut.captures if c.peer == producer] + [c for c in sent.captures if c.peer == consumer]
        first, end = applied[position], sent.emitted[at]
        _note(given_up, name, producer, consumer, [piece for c in held for piece in c.pieces], first, end)
        events = _numbered([event for c in held for event in c.events], first, end)
        if events:
            captures.append(Capture(producer, [], events))
        applied[position] = 0
        emitted = [len(events) if i == at else number for i, number in enumerate(sent.emitted)]
        left = [c for c in sent.captures if c.peer != consumer]
        outputs[source][name] = msgspec.structs.replace(sent, emitted=emitted, captures=left)
    inputs[target][name] = msgspec.structs.replace(cut, applied=applied, captures=captures)


def _note(
    given_up: list[GivenUp],
    edge: str,
    producer: int,
    consumer: int,
    pieces: Iterable[InflightRange],
    first: int,
    end: int,
) -> None:
    lost = [(min(p.first + p.rows, end) - max(p.first, first), p.length_bytes) for p in pieces]
    rows = sum(number for number, _ in lost if number > 0)
    if rows:
        given_up.append(GivenUp(edge, producer, consumer, rows, sum(size for number, size in lost if number > 0)))


def _numbered(events: Iterable[NumberedEvent], first: int, end: int) -> list[NumberedEvent]:
    kept = sorted((e for e in events if first <= e.number < end), key=lambda e: e.number)
    return [NumberedEvent(number, event.event) for number, event in enumerate(kept)]
