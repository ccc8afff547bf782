"""Checks whether a checkpoint fits the program: all of it, or without the rows in flight that a user gives up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.common.options import StateRecoveryOptions
from penstock.graph.compatibility import IncompatibleGraph, check, edge_shapes, vertex_shapes, with_max_parallelism
from penstock.graph.job_graph import JobGraph
from penstock.graph.rescaled_graph import as_taken, rescaled
from penstock.graph.states import state_problems, unclaimed_problems
from penstock.protocol.restore.given_up import GivenUp, RowsToGiveUp, unknown_channels, without_rows_in_flight
from penstock.protocol.restore.given_up_broadcasts import UnequalReceivers, unequal_receivers, with_state_of_one
from penstock.protocol.restore.receivers import changed_receivers, uneven_broadcasts
from penstock.protocol.restore.rescale import edges_in_flight
from penstock.protocol.values.metadata import EdgeShape, Metadata

_LISTED_MAX = 20
"""The number of channels that a message lists."""


@dataclass(frozen=True)
class Fit:
    """Describes the restore of a checkpoint. `graph`: the graph to restore. `then`: the graph with which the job
    continues in a second step, as soon as the receivers of the broadcasts `edges` have read the same rows; None: there
    is one step.
    """

    graph: JobGraph
    then: JobGraph | None = None
    edges: frozenset[str] = frozenset()

    def text(self, checkpoint_id: int) -> str:
        """Return a message that says why there are two steps."""
        assert self.then is not None
        vertices = self.graph.vertices
        edge = next(edge for edge in self.graph.edges if edge.name in self.edges)
        source, target = vertices[edge.source].operators[-1].name, vertices[edge.target].operators[0].name
        return (
            f"restoring checkpoint {checkpoint_id} at parallelism {vertices[edge.target].parallelism} first, because "
            f"some subtasks of '{target}' had read rows of the broadcast from '{source}' that others had not. The "
            "sources emit nothing until all have read the same rows. Then the job continues at parallelism "
            f"{self.then.vertices[edge.target].parallelism}"
        )


def fitted(graph: JobGraph, metadata: Metadata, ignore_unclaimed_state: bool) -> JobGraph:
    """Return the graph, with what it takes over from the checkpoint. Raises `IncompatibleGraph`."""
    graph = with_max_parallelism(graph, metadata.vertices)
    _check(graph, metadata, ignore_unclaimed_state, uneven_broadcasts(metadata))
    return graph


def fitted_in_steps(
    graph: JobGraph, metadata: Metadata, ignore_unclaimed_state: bool, checkpointing: bool, may_lower: bool = False
) -> Fit:
    """Return the graph, with what it takes over from the checkpoint, and another one to run before it, if receivers of
    a broadcast have to read the same rows first. `checkpointing`: a second step begins with a checkpoint. `may_lower`:
    the job may run in the checkpoint's number of slots instead, for it gets more when they come. Raises
    `IncompatibleGraph`.
    """
    graph, uneven = with_max_parallelism(graph, metadata.vertices), uneven_broadcasts(metadata)
    changed = _changed(graph, metadata, uneven)
    if not changed or not checkpointing:
        _check(graph, metadata, ignore_unclaimed_state, uneven)
        return Fit(graph)
    _check(graph, metadata, ignore_unclaimed_state, frozenset())
    slots = max(vertex.parallelism for vertex in metadata.vertices)
    lower = rescaled(graph, graph, slots) if may_lower and slots < graph.slots else graph
    # 12.9: fewer slots if they can restore the checkpoint, else all.
    if not _changed(lower, metadata, uneven):
        return Fit(lower)
    # 6.3: receivers that have read different rows read the same ones first, at the old parallelism.
    first = as_taken(graph, metadata.vertices, changed)
    _check(first, metadata, ignore_unclaimed_state, uneven)
    return Fit(first, graph, changed)


def _changed(graph: JobGraph, metadata: Metadata, uneven: frozenset[str]) -> frozenset[str]:
    return changed_receivers(metadata, uneven, vertex_shapes(graph), edge_shapes(graph)) if uneven else uneven


def _check(graph: JobGraph, metadata: Metadata, ignore_unclaimed_state: bool, uneven: frozenset[str]) -> None:
    try:
        in_flight = edges_in_flight(metadata)
        states = [*state_problems(metadata, graph), *unclaimed_problems(metadata, graph)]
        check(metadata.vertices, metadata.edges, graph, ignore_unclaimed_state, in_flight, uneven, states)
    except IncompatibleGraph as error:
        raise IncompatibleGraph(f"checkpoint {metadata.checkpoint_id}: {error}", error.with_rows) from None


def refusal(error: IncompatibleGraph, checkpoint_id: int, give_up: RowsToGiveUp) -> str:
    """Return the message of a checkpoint that does not fit, with the values of the options that give up those rows that
    are in the way. `give_up`: what the options say now."""
    if not error.with_rows:
        return str(error)
    option, edges = StateRecoveryOptions, ",".join(give_up.with_edges(checkpoint_id, error.with_rows))
    return (
        f"{error}\n  To give up the rows in flight that are in the way, and no others, set "
        f"{option.WITHOUT_CHANNEL_STATE.key}={checkpoint_id} and {option.WITHOUT_CHANNEL_STATE_OF_CHANNELS.key}={edges}"
    )


def without_channel_state(metadata: Metadata, give_up: RowsToGiveUp) -> tuple[Metadata, str | None]:
    """Return the metadata without the rows in flight that a user gives up, and a description of the loss. The metadata
    of other checkpoints stay as they are. Raises `IncompatibleGraph` if the checkpoint has no such channel, or if
    receivers of a broadcast would read different rows.
    """
    if metadata.checkpoint_id != give_up.checkpoint_id:
        return metadata, None
    if unknown := unknown_channels(metadata, give_up.channels):
        raise IncompatibleGraph(_no_such_channel(metadata, unknown[0]))
    left, given_up = left_of(metadata, give_up)
    unequal = unequal_receivers(metadata, left, {channel.edge for channel in given_up})
    if in_the_way := [edge for of_one in unequal for edge in of_one.in_the_way]:
        raise IncompatibleGraph(
            f"checkpoint {metadata.checkpoint_id}: receivers of {_broadcasts(metadata, in_the_way)} would read "
            "different rows, because some of those in flight to them are given up, and others are not",
            [edge.name for edge in in_the_way],
        )
    rows = sum(channel.rows for channel in given_up)
    differ = "".join(
        f"\n  some receivers of {_broadcasts(metadata, of_one.edges)} had read rows that others lose now"
        f"{_state_of_one(of_one) if of_one.have_state else ''}"
        for of_one in unequal
    )
    return with_state_of_one(left, unequal), (
        f"{rows} rows that were in flight in checkpoint {give_up.checkpoint_id} are given up, as "
        f"{StateRecoveryOptions.WITHOUT_CHANNEL_STATE.key} says{_listed(given_up)}{differ}"
    )


def _state_of_one(unequal: UnequalReceivers) -> str:
    return (
        f": all get the broadcast state of subtask {unequal.receiver}, which had read most; what only others had read "
        "is not in it. What it did for these rows to its own keys and lists is not done in the others"
    )


def _broadcasts(metadata: Metadata, edges: Sequence[EdgeShape]) -> str:
    vertices = {vertex.index: vertex.operator_names for vertex in metadata.vertices}
    ends = [f"from '{vertices[edge.source][-1]}' to '{vertices[edge.target][0]}'" for edge in edges]
    return f"the broadcast{'s' if len(ends) > 1 else ''} {' and '.join(ends)}"


def left_of(metadata: Metadata, give_up: RowsToGiveUp) -> tuple[Metadata, list[GivenUp]]:
    if metadata.checkpoint_id != give_up.checkpoint_id:
        return metadata, []
    return without_rows_in_flight(metadata, give_up.channels or None)


def _no_such_channel(metadata: Metadata, name: str) -> str:
    _, in_flight = without_rows_in_flight(metadata)
    key = StateRecoveryOptions.WITHOUT_CHANNEL_STATE_OF_CHANNELS.key
    has = f"holds rows in flight of these{_listed(in_flight[:_LISTED_MAX])}" if in_flight else "holds no rows in flight"
    more = f"\n  and {len(in_flight) - _LISTED_MAX} more" if len(in_flight) > _LISTED_MAX else ""
    return (
        f"{key}: checkpoint {metadata.checkpoint_id} has no edge or channel {name!r}. Name an edge, or a channel as "
        f"edge[producer -> consumer]. The checkpoint {has}{more}"
    )


def _listed(channels: Sequence[GivenUp]) -> str:
    return "".join([":" if channels else "", *(f"\n  {channel}" for channel in channels)])
