"""Gives up rows that were in flight: the way past a damaged range, or past an edge that is gone.

Flink's `execution.state-recovery.without-channel-state.checkpoint-id` gives up those of all channels, unless some are
named. Events between the rows stay (PROTOCOL 3.12): without the end of a pause among them, for instance, time would
advance without a producer that is active again.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import msgspec

from penstock.protocol.restore.rescale import OldEdge
from penstock.protocol.values.metadata import (
    ChannelCapture,
    InflightRange,
    InputCut,
    Metadata,
    NumberedEvent,
    OutputCut,
)


@dataclass(frozen=True)
class GivenUp:
    """Describes the rows that one channel loses. `edge` is named as in the metadata; the others are subtask numbers."""

    edge: str
    producer: int
    consumer: int
    rows: int
    bytes: int

    @property
    def channel(self) -> str:
        return channel_name(self.edge, self.producer, self.consumer)

    def __str__(self) -> str:
        return f"{self.channel}: {self.rows} rows, {self.bytes} bytes"


@dataclass(frozen=True)
class RowsToGiveUp:
    """Names the rows in flight that a user gives up: all rows of a checkpoint, or the rows of the named channels. -1:
    none."""

    checkpoint_id: int = -1
    channels: tuple[str, ...] = ()

    @classmethod
    def parse(cls, checkpoint_id: int, names: Iterable[str]) -> RowsToGiveUp:
        """Parse names of edges, and of channels as a report prints them; white space in them does not count."""
        return cls(checkpoint_id, tuple(_CHANNEL.sub(r"\1[\2 -> \3]", name.strip()) for name in names))

    def with_edges(self, checkpoint_id: int, edges: Iterable[str]) -> tuple[str, ...]:
        """Return the names that have to be given to give up the rows of these edges of a checkpoint, too."""
        return tuple(dict.fromkeys((*(self.channels if checkpoint_id == self.checkpoint_id else ()), *edges)))


NOTHING = RowsToGiveUp()
"""No rows are given up."""

_CHANNEL = re.compile(r"(\S+)\s*\[\s*(\d+)\s*->\s*(\d+)\s*\]")


def channel_name(edge: str, producer: int, consumer: int) -> str:
    """Return the name of a channel in reports and options."""
    return f"{edge}[{producer} -> {consumer}]"


def unknown_channels(metadata: Metadata, names: Iterable[str]) -> list[str]:
    """Return those names that are neither an edge nor a channel of the checkpoint."""
    known: set[str] = set()
    for shape in metadata.edges:
        edge = OldEdge.find(metadata, shape.name)
        assert edge is not None
        known.add(shape.name)
        for consumer in range(edge.target_parallelism):
            known.update(channel_name(shape.name, producer, consumer) for producer in edge.producers_of(consumer))
    for snapshot in metadata.subtasks:
        for layer in snapshot.layers:
            known |= {layer.edge, channel_name(layer.edge, layer.producer, layer.consumer)}
    return [name for name in names if name not in known]


@dataclass(frozen=True)
class _Chosen:
    """Says which channels lose their rows. `names`: the names of edges and channels; None: all do."""

    names: Collection[str] | None

    def has(self, edge: str, producer: int, consumer: int) -> bool:
        names = self.names
        return names is None or edge in names or channel_name(edge, producer, consumer) in names


def without_rows_in_flight(
    metadata: Metadata, channels: Collection[str] | None = None
) -> tuple[Metadata, list[GivenUp]]:
    """Return the metadata without the rows in flight of these edges and channels (None: of all), and the loss of each
    channel.

    The elements of a channel are numbered again from 0, so that a restore finds nothing missing."""
    chosen = _Chosen(channels)
    given_up: list[GivenUp] = []
    inputs: dict[tuple[int, int], dict[str, InputCut]] = {}
    outputs: dict[tuple[int, int], dict[str, OutputCut]] = {}
    for snapshot in metadata.subtasks:
        inputs[snapshot.vertex, snapshot.subtask] = {cut.edge: cut for cut in snapshot.inputs}
        outputs[snapshot.vertex, snapshot.subtask] = {cut.edge: cut for cut in snapshot.outputs}
    for shape in metadata.edges:
        edge = OldEdge.find(metadata, shape.name)
        if edge is None:
            continue
        for consumer in range(edge.target_parallelism):
            _give_up_channels(edge, consumer, inputs, outputs, chosen, given_up)
    subtasks = []
    for snapshot in metadata.subtasks:
        layers = []
        for layer in snapshot.layers:
            if not chosen.has(layer.edge, layer.producer, layer.consumer):
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
    chosen: _Chosen,
    given_up: list[GivenUp],
) -> None:
    """Remove the rows of the chosen channels of an edge that lead to one consumer."""
    name, target = edge.shape.name, (edge.shape.target, consumer)
    cut = inputs.get(target, {}).get(name)
    if cut is None:
        return
    applied = list(cut.applied)
    captures = [capture for capture in cut.captures if not chosen.has(name, capture.peer, consumer)]
    for position, producer in enumerate(edge.producers_of(consumer)):
        source = (edge.shape.source, producer)
        sent = outputs.get(source, {}).get(name)
        if sent is None or not chosen.has(name, producer, consumer):
            continue
        at = consumer - edge.consumers_of(producer).start
        held = [c for c in cut.captures if c.peer == producer] + [c for c in sent.captures if c.peer == consumer]
        first, end = applied[position], sent.emitted[at]
        _note(given_up, name, producer, consumer, [piece for c in held for piece in c.pieces], first, end)
        events = _numbered([event for c in held for event in c.events], first, end)
        if events:
            captures.append(ChannelCapture(producer, [], events))
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
    # 3.12b: the events that stay are numbered from 0.
    kept = sorted((e for e in events if first <= e.number < end), key=lambda e: e.number)
    return [NumberedEvent(number, event.event) for number, event in enumerate(kept)]
