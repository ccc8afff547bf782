"""Checks the state that a checkpoint holds against what the program's graph declares of it.

Declarations in `open()` are known in the slots only. A slot checks them while it restores, before a row is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.common.row_types.columns import ColumnType
from penstock.common.row_types.composite_types import ListType, MapType, TupleType
from penstock.common.row_types.scalar_types import BIG_INT, BYTE, INT, LONG, PICKLED, SHORT
from penstock.common.row_types.type_evolution import WAY_OUT, IncompatibleType, evolution
from penstock.common.row_types.type_texts import parse_type
from penstock.common.typeinfo import TypeInformation
from penstock.graph.declared_functions import AnyWindowSpec, BroadcastSpec, TriggeredWindowSpec
from penstock.graph.job_graph import Edge, JobGraph, Operator, Vertex
from penstock.graph.logical import OperatorKind, PartitionerKind
from penstock.protocol.values.metadata import CALLS_PART, Metadata, VertexShape

REDUCED_STATE = "_reduced"
WINDOW_CONTENTS_STATE = "_window_contents"
WINDOW_ENDS_STATE = "_window_ends"
WINDOW_SET_STATE = "_window_set"
WINDOW_EVENT_TIMERS_STATE = "_window_event_timers"
WINDOW_PROCESSING_TIMERS_STATE = "_window_processing_timers"
_WHOLE = (BYTE, SHORT, INT, LONG, BIG_INT)


def kept_of_window(spec: AnyWindowSpec) -> ColumnType | TypeInformation:
    """Return the type of a window's state: the folded value, or the list of rows."""
    if isinstance(spec, TriggeredWindowSpec) and spec.evictor is not None:
        rows = spec.row_type
        return ListType(TupleType((LONG, rows))) if isinstance(rows, ColumnType) and rows != PICKLED else PICKLED
    kept = spec.element_type or PICKLED
    if spec.reduce is None and spec.aggregate is None and isinstance(spec.element_type, ColumnType):
        return ListType(spec.element_type)
    return kept


def key_type(graph: JobGraph, vertex: Vertex) -> str:
    """Return the type of the keys of a vertex, as text; "" if the program says none."""
    told = {text for edge in graph.inputs_of(vertex.index) if (text := _key_type(edge))}
    return told.pop() if len(told) == 1 else ""


def _key_type(edge: Edge) -> str:
    partitioner = edge.partitioner
    if partitioner.kind is not PartitionerKind.HASH:
        return ""
    if partitioner.key_columns is None:
        return "" if partitioner.key_type is None else partitioner.key_type.text
    names = getattr(edge.type, "field_names", None)
    types: tuple[ColumnType, ...] = getattr(edge.type, "field_types", ())
    if names is None:
        return "" if edge.type is None else edge.type.text
    found = tuple(types[names.index(name)] for name in partitioner.key_columns)
    return (found[0] if len(found) == 1 else TupleType(found)).text


@dataclass(frozen=True)
class _Declared:
    """Describes a state that the graph declares. `told`: what messages call it."""

    operator: Operator
    name: str
    kind: str
    type: TypeInformation
    told: str


def _declared(graph: JobGraph) -> Iterator[_Declared]:
    for operator in (operator for vertex in graph.vertices for operator in vertex.operators):
        spec = operator.function
        if isinstance(spec, BroadcastSpec):
            for descriptor in spec.descriptors:
                map_type = MapType(descriptor.key_type_info or PICKLED, descriptor.type_info or PICKLED)
                name = descriptor.get_name()
                yield _Declared(operator, name, "broadcast", map_type, f"broadcast state '{name}'")
        elif isinstance(spec, AnyWindowSpec):
            kept = kept_of_window(spec)
            if isinstance(kept, ColumnType):
                yield _Declared(
                    operator, WINDOW_CONTENTS_STATE, "map", MapType(spec.key_type, kept), "what its windows keep"
                )
        elif operator.kind is OperatorKind.REDUCE:
            told = "what it keeps for each key"
            yield _Declared(operator, REDUCED_STATE, "value", operator.output_type or PICKLED, told)


def state_problems(metadata: Metadata, graph: JobGraph) -> list[str]:
    """Return the misfits of stored state and of its keys: a line for each, with the way out."""
    stored: dict[tuple[str, str, str], str] = {}
    with_keys: set[str] = set()
    for snapshot in metadata.subtasks:
        for schema in snapshot.schemas:
            stored[schema.operator, schema.name, schema.kind] = schema.codec
        for part in snapshot.parts:
            if part.kind:
                stored[part.operator, part.name, part.kind] = part.codec
        with_keys.update(kept.operator for kept in snapshot.keyed if kept.entries)
    found = [
        problem
        for declared in _declared(graph)
        if (text := stored.get((declared.operator.uid, declared.name, declared.kind))) is not None
        and (problem := _problem(declared, text)) is not None
    ]
    heads = {vertex.uid: vertex for vertex in graph.vertices if vertex.keyed}
    for old in metadata.vertices:
        now = heads.get(old.operators[0]) if old.operators else None
        if now is not None and now.uid in with_keys and (problem := _key_problem(old, now, key_type(graph, now))):
            found.append(problem)
    return found


def unclaimed_problems(metadata: Metadata, graph: JobGraph) -> list[str]:
    """Return the contents of the checkpoint that nobody may drop and no operator takes: output that waits to be
    committed, rows that wait for an answer, and the splits of an operator that is no source any more. A line for each,
    with the way out.
    """
    now = {operator.uid: operator for vertex in graph.vertices for operator in vertex.operators}
    named = _names(metadata)
    waiting = [c.operator for s in metadata.subtasks for c in s.committables]
    found = []
    for uid in dict.fromkeys([*waiting, *(c.operator for c in metadata.unconfirmed_commits)]):
        if uid not in now or now[uid].kind is not OperatorKind.SINK:
            found.append(
                f"sink {named.get(uid, uid)}: the program has no such sink any more, and the checkpoint holds output "
                "of it that waits to be committed: put the sink back, under its uid, until the next checkpoint has "
                "completed; or stop the old program with a savepoint, which commits all output; or give the output up "
                "with SavepointWriter.remove_operator()"
            )
    waiting_rows = {
        part.operator: part for s in metadata.subtasks for part in s.parts if part.name == CALLS_PART and not part.kind
    }
    for uid in waiting_rows:
        if uid not in now or now[uid].kind is not OperatorKind.ASYNC_WAIT:
            found.append(
                f"operator {named.get(uid, uid)}: the program has no such async function any more, and the checkpoint "
                "holds rows that wait for its answers: put it back, under its uid, until they have been answered; or "
                "stop the old program with drain; or give the rows up with SavepointWriter.remove_operator()"
            )
    for state in metadata.enumerators:
        if state.operator in now and now[state.operator].kind is not OperatorKind.SOURCE:
            found.append(
                f"source {named.get(state.operator, state.operator)}: the program has an operator of this uid that is "
                "no source, so the position in its input would be lost: give the operator another uid"
            )
    return found


def _names(metadata: Metadata) -> dict[str, str]:
    """Return the names of the checkpoint's operators in messages, by their ids."""
    found = {}
    for vertex in metadata.vertices:
        uids = vertex.user_uids or [""] * len(vertex.operators)
        for id, name, uid in zip(vertex.operators, vertex.operator_names, uids):
            found[id] = f"'{name}'" + (f" (uid '{uid}')" if uid else "")
    return found


def _problem(declared: _Declared, stored: str) -> str | None:
    if stored == declared.type.text:
        return None
    told = f"{_named(declared.operator)}: {declared.told} was {stored}, now {declared.type}"
    before = parse_type(stored)
    if before is None or not isinstance(declared.type, ColumnType):
        return None  # slots refuse it
    try:
        evolution(before, declared.type)
    except IncompatibleType as error:
        return f"{told}: {error}; {WAY_OUT}"
    return None


def _key_problem(old: VertexShape, now: Vertex, text: str) -> str | None:
    if not old.key_type or not text or are_same_keys(parse_type(old.key_type), parse_type(text)):
        return None
    return (
        f"{_named(now.operators[0])} was keyed by {old.key_type}, now by {text}, and its state belongs to keys of the "
        "former type, so it would never be found: declare the key as before, or give the operator another uid"
    )


def are_same_keys(stored: ColumnType | None, declared: ColumnType | None) -> bool:
    """Return whether equal values of both types are the same key. A type that is None is unknown, so they may be."""
    if stored is None or declared is None or stored == declared:
        return True
    if isinstance(stored, TupleType) and isinstance(declared, TupleType):
        pairs = zip(stored.field_types, declared.field_types)
        return len(stored.field_types) == len(declared.field_types) and all(are_same_keys(*pair) for pair in pairs)
    return stored in _WHOLE and declared in _WHOLE


def _named(operator: Operator) -> str:
    uid = f" (uid '{operator.user_uid}')" if operator.user_uid else ""
    return f"operator '{operator.name}'{uid}"
