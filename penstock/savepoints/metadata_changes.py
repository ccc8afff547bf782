"""Changes the metadata of a savepoint: operators that are renamed, removed and added."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.protocol.values.metadata import EdgeShape, Metadata, SubtaskSnapshot, VertexShape


class InFlightError(ValueError):
    """Signals an operator that cannot be removed, because rows were on their way to it or from it."""


def renamed(metadata: Metadata, ids: Mapping[str, tuple[str, str | None]]) -> Metadata:
    """Return the metadata with operators of other ids. `ids`: old id -> (new id, the operator's uid in the program)."""
    if not ids:
        return metadata

    def operator(part: Any) -> Any:
        return msgspec.structs.replace(part, operator=ids[part.operator][0]) if part.operator in ids else part

    def edge(name: str) -> str:
        for old, (new, _) in ids.items():
            name = name.replace(old, new)
        return name

    def vertex(shape: VertexShape) -> VertexShape:
        uids = shape.user_uids or [""] * len(shape.operators)
        told = [ids[id][1] or "" if id in ids else uid for id, uid in zip(shape.operators, uids)]
        operators = [ids[id][0] if id in ids else id for id in shape.operators]
        return msgspec.structs.replace(shape, operators=operators, user_uids=told)

    def subtask(snapshot: SubtaskSnapshot) -> SubtaskSnapshot:
        return msgspec.structs.replace(
            snapshot,
            inputs=[msgspec.structs.replace(cut, edge=edge(cut.edge)) for cut in snapshot.inputs],
            outputs=[msgspec.structs.replace(cut, edge=edge(cut.edge)) for cut in snapshot.outputs],
            layers=[msgspec.structs.replace(layer, edge=edge(layer.edge)) for layer in snapshot.layers],
            keyed=list(map(operator, snapshot.keyed)),
            schemas=list(map(operator, snapshot.schemas)),
            parts=list(map(operator, snapshot.parts)),
            committables=list(map(operator, snapshot.committables)),
        )

    return msgspec.structs.replace(
        metadata,
        vertices=list(map(vertex, metadata.vertices)),
        edges=[msgspec.structs.replace(shape, name=edge(shape.name)) for shape in metadata.edges],
        subtasks=list(map(subtask, metadata.subtasks)),
        enumerators=list(map(operator, metadata.enumerators)),
        unconfirmed_commits=list(map(operator, metadata.unconfirmed_commits)),
    )


def without_operators(metadata: Metadata, ids: frozenset[str]) -> Metadata:
    """Return the metadata without operators, their state, and the edges that end at them. Raises `InFlightError`."""
    if not ids:
        return metadata
    vertices = [_without(vertex, ids) for vertex in metadata.vertices]
    by_index = {vertex.index: vertex for vertex in metadata.vertices}
    gone = {
        edge.name
        for edge in metadata.edges
        if by_index[edge.source].operators[-1] in ids or by_index[edge.target].operators[0] in ids
    }
    for snapshot in metadata.subtasks:
        _check_in_flight(snapshot, gone, metadata, by_index)
    kept = [vertex for vertex in vertices if vertex.operators]
    indexes = {vertex.index for vertex in kept}

    def stays(part: Any) -> bool:
        return part.operator not in ids

    def subtask(snapshot: SubtaskSnapshot) -> SubtaskSnapshot:
        return msgspec.structs.replace(
            snapshot,
            inputs=[cut for cut in snapshot.inputs if cut.edge not in gone],
            outputs=[cut for cut in snapshot.outputs if cut.edge not in gone],
            layers=[layer for layer in snapshot.layers if layer.edge not in gone],
            keyed=list(filter(stays, snapshot.keyed)),
            schemas=list(filter(stays, snapshot.schemas)),
            parts=list(filter(stays, snapshot.parts)),
            committables=list(filter(stays, snapshot.committables)),
        )

    return msgspec.structs.replace(
        metadata,
        vertices=kept,
        edges=[edge for edge in metadata.edges if edge.name not in gone],
        subtasks=[subtask(snapshot) for snapshot in metadata.subtasks if snapshot.vertex in indexes],
        enumerators=list(filter(stays, metadata.enumerators)),
        unconfirmed_commits=list(filter(stays, metadata.unconfirmed_commits)),
    )


def _without(vertex: VertexShape, ids: frozenset[str]) -> VertexShape:
    uids = vertex.user_uids or [""] * len(vertex.operators)
    kept = [(id, name, uid) for id, name, uid in zip(vertex.operators, vertex.operator_names, uids) if id not in ids]
    is_headless = bool(kept) and vertex.operators[0] in ids
    return msgspec.structs.replace(
        vertex,
        operators=[id for id, _, _ in kept],
        operator_names=[name for _, name, _ in kept],
        user_uids=[uid for _, _, uid in kept],
        windows=None if is_headless else vertex.windows,
    )


def _check_in_flight(
    snapshot: SubtaskSnapshot, gone: set[str], metadata: Metadata, by_index: Mapping[int, VertexShape]
) -> None:
    captures = [(cut.edge, capture.pieces) for cut in snapshot.inputs for capture in cut.captures]
    captures += [(cut.edge, capture.pieces) for cut in snapshot.outputs for capture in cut.captures]
    captures += [(layer.edge, layer.pieces) for layer in snapshot.layers]
    for edge, pieces in captures:
        if edge in gone and any(piece.rows for piece in pieces):
            shape: EdgeShape = next(e for e in metadata.edges if e.name == edge)
            ends = by_index[shape.source].operator_names[-1], by_index[shape.target].operator_names[0]
            raise InFlightError(
                f"rows were in flight from '{ends[0]}' to '{ends[1]}', and without these operators nobody would read "
                "them: take an aligned savepoint (penstock savepoint --aligned), and change that"
            )
