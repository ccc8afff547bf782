"""Before metadata is published: does what was stored cover every channel's [applied, emitted), and nothing twice?

This finds most capture bugs in production, not only in tests.
"""

from __future__ import annotations

from typing import Iterable, Protocol, Sequence

from penstock.protocol.snapshot import Capture, InputCut, OutputCut, SubtaskSnapshot


class EdgeTopology(Protocol):
    """`penstock.graph.job_graph.Edge`, as far as it matters here."""

    @property
    def name(self) -> str: ...
    @property
    def source(self) -> int: ...
    @property
    def target(self) -> int: ...
    @property
    def source_parallelism(self) -> int: ...
    def consumers_of(self, producer: int) -> range: ...
    def producers_of(self, consumer: int) -> range: ...


def verify(edges: Sequence[EdgeTopology], subtasks: Iterable[SubtaskSnapshot]) -> list[str]:
    """One line per violation, naming the channel; an empty list if the cut is whole."""
    by_subtask = {(s.vertex, s.subtask): s for s in subtasks}
    violations: list[str] = []
    for edge in edges:
        for producer in range(edge.source_parallelism):
            sent = _output_cut(by_subtask.get((edge.source, producer)), edge.name)
            for position, consumer in enumerate(edge.consumers_of(producer)):
                where = f"channel {edge.name}[{producer} -> {consumer}]"
                taken = _input_cut(by_subtask.get((edge.target, consumer)), edge.name)
                if sent is None or taken is None:
                    violations.append(f"{where}: no snapshot of its {'producer' if sent is None else 'consumer'}")
                    continue
                emitted = sent.emitted[position]
                applied = taken.applied[producer - edge.producers_of(consumer).start]
                if applied > emitted:
                    violations.append(f"{where}: {applied} elements applied, but only {emitted} emitted")
                    continue
                stored = _intervals(taken.captures, producer) + _intervals(sent.captures, consumer)
                violations += _gaps(where, sorted(stored), applied, emitted)
    return violations


def _output_cut(snapshot: SubtaskSnapshot | None, edge: str) -> OutputCut | None:
    return next((o for o in snapshot.outputs if o.edge == edge), None) if snapshot else None


def _input_cut(snapshot: SubtaskSnapshot | None, edge: str) -> InputCut | None:
    return next((i for i in snapshot.inputs if i.edge == edge), None) if snapshot else None


def _intervals(captures: list[Capture], peer: int) -> list[tuple[int, int]]:
    found = []
    for capture in captures:
        if capture.peer == peer:
            found += [(p.first, p.first + p.rows) for p in capture.pieces]
            found += [(e.number, e.number + 1) for e in capture.events]
    return found


def _gaps(where: str, stored: list[tuple[int, int]], applied: int, emitted: int) -> list[str]:
    """Storing too much at either end is harmless, a restore trims; a gap or an overlap inside is not."""
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
