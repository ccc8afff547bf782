"""Checks whether a checkpoint fits a program: its vertices and edges against the new job graph.

Any parallelism fits up to the max parallelism of the checkpoint, which is kept if the program sets none itself. State
belongs to operators, so they may be chained in another way, and operators may be inserted. What cannot be restored is
refused by name, before the job starts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Container, Sequence

from penstock.common.types import PICKLED, Types
from penstock.graph.declared_columns import WindowAggregateSpec
from penstock.graph.declared_functions import AnyWindowSpec
from penstock.graph.job_graph import Edge, JobGraph, Vertex
from penstock.graph.logical import PartitionerKind
from penstock.graph.states import key_type
from penstock.protocol.restore.rescale import ANY_CONSUMER, BROADCAST
from penstock.protocol.values.metadata import EdgeShape, VertexShape, WindowsShape

_WITHOUT_ROWS = (
    "resume the old program, stop it with an aligned savepoint (stop_with_savepoint(aligned=True)) and start from "
    "that; or give the rows up (execution.state-recovery.without-channel-state.checkpoint-id)"
)
"""An aligned savepoint holds no rows in flight, unless the job was still reading those of the one before."""


class IncompatibleGraph(ValueError):
    """Signals differences between checkpoint and program. The message has one line for each, and the way out.
    `with_rows`: the names of the edges whose rows in flight cannot be read; without them those lines would be less."""

    def __init__(self, text: str, with_rows: Sequence[str] = ()) -> None:
        super().__init__(text)
        self.with_rows = tuple(with_rows)


def vertex_shapes(graph: JobGraph) -> list[VertexShape]:
    """Return the vertices as a checkpoint's metadata describe them."""
    return [
        VertexShape(
            index=v.index,
            name=v.name,
            operators=[o.uid for o in v.operators],
            operator_names=[o.name for o in v.operators],
            parallelism=v.parallelism,
            max_parallelism=v.max_parallelism,
            windows=_windows(v),
            user_uids=[o.user_uid or "" for o in v.operators],
            key_type=key_type(graph, v) if v.keyed else "",
        )
        for v in graph.vertices
    ]


def _windows(vertex: Vertex) -> WindowsShape | None:
    spec = vertex.operators[0].function
    return spec.shape if isinstance(spec, AnyWindowSpec | WindowAggregateSpec) else None


def _described(windows: WindowsShape) -> str:
    settings = ", ".join(f"{name} {ms} ms" for name, ms in windows.settings_ms.items())
    return f"{windows.kind} windows" + (f" ({settings})" if settings else "")


def edge_shapes(graph: JobGraph) -> list[EdgeShape]:
    """Return the edges as a checkpoint's metadata describe them."""
    return [
        EdgeShape(
            e.name, e.source, e.target, e.partitioner.kind.value, e.partitioner.pointwise, _columns(e), e.input_index
        )
        for e in graph.edges
    ]


def _columns(edge: Edge) -> str:
    schema = (PICKLED if edge.type is None else edge.type).schema
    told = [f"{field.name}: {field.type}" for field in schema]
    if edge.timestamped:
        told.append("event time")
    partitioner = edge.partitioner
    if partitioner.partial is not None:
        told.append("partial aggregates")
    if partitioner.key_columns is not None:
        told.append(f"key group of ({', '.join(partitioner.key_columns)})")
    elif partitioner.kind is PartitionerKind.HASH:
        told.append(f"key: {partitioner.key_type if partitioner.key_type in (Types.LONG(), Types.STRING()) else 'any'}")
    elif partitioner.kind is PartitionerKind.CUSTOM:
        told.append("key: any")
    return ", ".join(told)


def with_max_parallelism(graph: JobGraph, vertices: Sequence[VertexShape]) -> JobGraph:
    """Return the graph with the max parallelism of the checkpoint's vertices, unless the program sets one itself."""
    kept = {uid: v.max_parallelism for v in vertices for uid in v.operators}

    def adopted(vertex: Vertex) -> Vertex:
        found = kept.get(vertex.uid, vertex.max_parallelism)
        if vertex.max_parallelism_given or found == vertex.max_parallelism:
            return vertex
        return replace(vertex, max_parallelism=found)

    changed = tuple(adopted(v) for v in graph.vertices)
    return graph if changed == graph.vertices else replace(graph, vertices=changed)


def check(
    vertices: Sequence[VertexShape],
    edges: Sequence[EdgeShape],
    graph: JobGraph,
    ignore_unclaimed_state: bool = False,
    in_flight: Container[str] | None = None,
    uneven: Container[str] | None = None,
    further: Sequence[str] = (),
) -> None:
    """Raise `IncompatibleGraph` if the checkpoint cannot be restored into `graph`.

    Operators may be chained in another way, edges may be new, and an edge may vanish if the checkpoint holds no rows of
    it. With `ignore_unclaimed_state` (`execution.state-recovery.ignore-unclaimed-state`) operators may vanish with
    their state, but never with rows that were on their way to them. `in_flight`: the names of the edges that have rows
    in flight in the checkpoint; `uneven`: the names of the broadcasts whose receivers had read different rows; None:
    unknown, so every edge may be one of them. `further`: problems that were found already, with its state."""
    problems, with_rows = [*further], list[str]()
    operators_now = {o.uid: v for v in graph.vertices for o in v.operators}
    vanished = {uid for v in vertices for uid in v.operators if uid not in operators_now}
    on_their_way = _ends_with_rows(edges, vertices, in_flight)
    for old in vertices:
        _check_vertex(old, operators_now, vanished, ignore_unclaimed_state, on_their_way, problems)
    _check_edges(edges, vertices, graph, operators_now, in_flight, uneven, problems, with_rows)
    if problems:
        raise IncompatibleGraph("the checkpoint does not fit the program:\n  " + "\n  ".join(problems), with_rows)


def _ends_with_rows(
    edges: Sequence[EdgeShape], vertices: Sequence[VertexShape], in_flight: Container[str] | None
) -> set[str]:
    """Return the operators at both ends of edges that are known to have rows."""
    by_index = {v.index: v for v in vertices}
    with_rows = [e for e in edges if in_flight is not None and e.name in in_flight]
    return {uid for e in with_rows for uid in (by_index[e.source].operators[-1], by_index[e.target].operators[0])}


def _check_vertex(
    old: VertexShape,
    operators_now: dict[str, Vertex],
    vanished: set[str],
    may_vanish: bool,
    with_rows: set[str],
    problems: list[str],
) -> None:
    names = dict(zip(old.operators, _with_uids(old)))
    gone = [uid for uid in old.operators if uid in vanished]
    if gone and not may_vanish:
        way_out = "or drop their state with execution.state-recovery.ignore-unclaimed-state=true"
        if with_rows.intersection(gone):
            way_out = f"or {_WITHOUT_ROWS}, then remove them: rows are in flight to them or from them"
        problems.append(
            f"vertex '{old.name}': the program has no operator {', '.join(names[uid] for uid in gone)} any more (give "
            f"operators a uid() so that they are found again, {way_out})"
        )
    # Key groups and windows belong to the head of a vertex. The other operators of a chain have no keyed state.
    heads = [operators_now[uid] for uid in old.operators if uid not in vanished and operators_now[uid].uid == uid]
    for now in heads:
        name = now.name if len(heads) > 1 else old.name
        if now.parallelism > old.max_parallelism:
            problems.append(
                f"vertex '{name}' has parallelism {now.parallelism} now, but its state is split by its max parallelism "
                f"{old.max_parallelism} for ever; run it with at most {old.max_parallelism}"
            )
        elif now.max_parallelism != old.max_parallelism:
            problems.append(
                f"vertex '{name}' had max parallelism {old.max_parallelism}, now {now.max_parallelism}, and its state "
                f"is split by it for ever; set it to {old.max_parallelism} (pipeline.max-parallelism)"
            )
        windows = _windows(now)
        if old.windows and windows and old.windows != windows and old.operators[0] == now.uid:
            problems.append(
                f"operator '{old.operator_names[0]}' had {_described(old.windows)}, now {_described(windows)}, and the "
                "checkpoint holds windows that have not ended: declare them as before, or give the operator another "
                "uid, which begins with empty windows "
                "(execution.state-recovery.ignore-unclaimed-state=true drops the old ones)"
            )


def _check_edges(
    edges: Sequence[EdgeShape],
    vertices: Sequence[VertexShape],
    graph: JobGraph,
    operators_now: dict[str, Vertex],
    in_flight: Container[str] | None,
    uneven: Container[str] | None,
    problems: list[str],
    with_rows: list[str],
) -> None:
    """Append the edges' problems to `problems`, and the names of edges with rows in the way to `with_rows`."""
    by_index = {v.index: v for v in vertices}
    edges_now: dict[str, Edge] = {e.name: e for e in graph.edges}
    for old in edges:
        source, target = by_index[old.source], by_index[old.target]
        label = f"the edge from '{source.operator_names[-1]}' to '{target.operator_names[0]}'"
        has_rows = in_flight is None or old.name in in_flight
        now = edges_now.get(old.name)
        if now is None:
            if has_rows:
                problems.append(_lost_rows(label, source, target, operators_now, is_known=in_flight is not None))
                with_rows.append(old.name)
            consumer = operators_now.get(target.operators[0])
            if old.partitioner == "hash" and consumer is not None and not _is_keyed(consumer, target.operators[0]):
                problems.append(
                    f"operator '{target.operator_names[0]}' read a keyed stream, and does not any more, so its keyed "
                    "state would be lost: keep the key_by(), or give the operator another uid"
                )
            continue
        kind = now.partitioner.kind.value
        if kind != old.partitioner and not (kind in ANY_CONSUMER and old.partitioner in ANY_CONSUMER):
            problems.append(
                f"{label} was partitioned by {old.partitioner}, now by {kind}; restoring across a changed partitioning "
                "comes with a later release"
            )
        elif has_rows:
            is_uneven = uneven is None or old.name in uneven
            found = _check_rows(old, now, label, (source.parallelism, target.parallelism), is_uneven)
            problems += found
            with_rows += [old.name] if found else []


def _is_keyed(vertex: Vertex, operator: str) -> bool:
    return vertex.uid == operator and vertex.keyed


def _lost_rows(
    label: str, source: VertexShape, target: VertexShape, operators_now: dict[str, Vertex], is_known: bool
) -> str:
    """Say which rows nobody would read, why, and how to get a checkpoint without them."""
    ends = ((source.operators[-1], _with_uids(source)[-1]), (target.operators[0], _with_uids(target)[0]))
    removed = [name for uid, name in ends if uid not in operators_now]
    if removed:
        why = f"the program has no operator {', '.join(removed)} any more"
        then = "ignore-unclaimed-state drops state, never rows"
    else:
        why, then = "the two are connected in another way, or chained", "there they would never be read"
    holds = "holds" if is_known else "may hold"
    return (
        f"{label} is gone ({why}), and the checkpoint {holds} rows that were on it ({then}); {_WITHOUT_ROWS}, then "
        "change it"
    )


def _check_rows(old: EdgeShape, now: Edge, label: str, parallelism: tuple[int, int], is_uneven: bool) -> list[str]:
    """Return why rows in flight on an edge cannot be read, or have no consumer. `is_uneven`: the edge is a broadcast,
    and some of its receivers have read rows that others have not.
    """
    columns, problems = _columns(now), list[str]()
    if old.columns and old.columns != columns:
        problems.append(
            f"{label} carried rows of ({old.columns}), now ({columns}), and the checkpoint holds rows that were on it; "
            f"{_WITHOUT_ROWS}, then change them"
        )
    if old.partitioner == BROADCAST and is_uneven and parallelism[1] != now.target_parallelism:
        problems.append(
            f"{label} is a broadcast from {parallelism[0]} to {parallelism[1]} subtasks, and some of these had read "
            "rows that others had not, so the number of its receivers cannot change now; set "
            f"execution.checkpointing.interval, and the job lets all read the same rows first; or {_WITHOUT_ROWS}"
        )
    return problems


def _with_uids(vertex: VertexShape) -> list[str]:
    """Return the names of a vertex's operators in messages: their names, and the uids that the program gives them."""
    uids = vertex.user_uids or [""] * len(vertex.operators)
    return [f"'{name}'" + (f" (uid '{uid}')" if uid else "") for name, uid in zip(vertex.operator_names, uids)]
