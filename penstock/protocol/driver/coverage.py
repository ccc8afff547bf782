"""Verifies, before metadata is published, that what was stored covers every channel's [applied, emitted), and nothing
twice.

This finds most capture bugs in production, not only in tests.
"""

from __future__ import annotations

from typing import Iterable, Protocol, Sequence

from penstock.protocol.values.metadata import ChannelCapture, InputCut, LayerCut, OutputCut, SubtaskSnapshot


class EdgeTopology(Protocol):
    """Declares the used part of `penstock.graph.job_graph.Edge`."""

    @property
    def name(self) -> str: ...
    @property
    def source(self) -> int: ...
    @property
    def target(self) -> int: ...
    @property
    def source_parallelism(self) -> int: ...
    @property
    def target_parallelism(self) -> int: ...
    def consumers_of(self, producer: int) -> range: ...
    def producers_of(self, consumer: int) -> range: ...


Interval = tuple[int, int]


def verify(edges: Sequence[EdgeTopology], subtasks: Iterable[SubtaskSnapshot], draining: bool = False) -> list[str]:
    """Return one line per violation, naming the channel; an empty list if the cut is whole. Unread layers are checked
    the same way. While the job drains, a subtask that has unread layers must have no rows in flight on its channels:
    they are younger, and a restore may give them to another subtask.
    """
    # 1.4: without complete intervals there is no metadata.
    by_subtask = {(s.vertex, s.subtask): s for s in subtasks}
    violations: list[str] = []
    for edge in edges:
        taken_by = {s: _Input(edge, s, by_subtask.get((edge.target, s))) for s in range(edge.target_parallelism)}
        for producer in range(edge.source_parallelism):
            sent = _output_cut(by_subtask.get((edge.source, producer)), edge.name)
            sent_stored = _intervals(sent.captures) if sent is not None else {}
            for position, consumer in enumerate(edge.consumers_of(producer)):
                where = f"channel {edge.name}[{producer} -> {consumer}]"
                taken = taken_by[consumer]
                if sent is None or taken.cut is None:
                    violations.append(f"{where}: no snapshot of its {'producer' if sent is None else 'consumer'}")
                    continue
                emitted = sent.emitted[position]
                applied = taken.cut.applied[producer - taken.first_producer]
                if applied > emitted:
                    violations.append(f"{where}: {applied} elements applied, but only {emitted} emitted")
                elif applied < emitted:
                    if draining and taken.has_layers and _has_rows(taken, producer, sent, consumer):
                        violations.append(f"{where}: rows came before its consumer had read what was recovered")
                    stored = taken.stored.get(producer, []) + sent_stored.get(consumer, [])
                    violations += _gaps(where, sorted(stored), applied, emitted)
    for snapshot in by_subtask.values():
        for layer in snapshot.layers:
            where = f"layer of channel {layer.edge}[{layer.producer} -> {layer.consumer}] at subtask "
            where += f"{snapshot.subtask} of vertex {snapshot.vertex}"
            violations += _gaps(where, sorted(_stored(layer)), layer.first, layer.end)
    return violations


class _Input:
    """Holds one consumer's side of an edge."""

    def __init__(self, edge: EdgeTopology, consumer: int, snapshot: SubtaskSnapshot | None) -> None:
        cuts = snapshot.inputs if snapshot is not None else []
        self.cut: InputCut | None = next((i for i in cuts if i.edge == edge.name), None)
        self.first_producer = edge.producers_of(consumer).start
        self.stored = _intervals(self.cut.captures) if self.cut is not None else {}
        self.has_layers = snapshot is not None and bool(snapshot.layers)


def _has_rows(taken: _Input, producer: int, sent: OutputCut, consumer: int) -> bool:
    captures = [c for c in taken.cut.captures if c.peer == producer] if taken.cut is not None else []
    return any(c.pieces for c in [*captures, *(c for c in sent.captures if c.peer == consumer)])


def _output_cut(snapshot: SubtaskSnapshot | None, edge: str) -> OutputCut | None:
    return next((o for o in snapshot.outputs if o.edge == edge), None) if snapshot else None


def _intervals(captures: list[ChannelCapture]) -> dict[int, list[Interval]]:
    """Return the intervals by the subtask at the other end of the channel."""
    found: dict[int, list[Interval]] = {}
    for capture in captures:
        found.setdefault(capture.peer, []).extend(_stored(capture))
    return found


def _stored(of: ChannelCapture | LayerCut) -> list[Interval]:
    return [(p.first, p.first + p.rows) for p in of.pieces] + [(e.number, e.number + 1) for e in of.events]


def _gaps(where: str, stored: list[Interval], applied: int, emitted: int) -> list[str]:
    """Return the gaps and overlaps inside [applied, emitted). Storing too much at either end is harmless, because a
    restore trims.
    """
    at = applied
    for first, end in stored:
        if end <= applied or first >= emitted:
            continue
        if first > at:
            return [f"{where}: elements [{at}, {first}) of [{applied}, {emitted}) were not stored"]
        if max(first, applied) < at:
            return [f"{where}: elements [{max(first, applied)}, {min(end, at)}) were stored twice"]
        at = min(end, emitted)
    if at < emitted:
        return [f"{where}: elements [{at}, {emitted}) of [{applied}, {emitted}) were not stored"]
    return []
