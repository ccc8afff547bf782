"""Tests a restore in two steps: what is held until when, and that the second step is never forgotten."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.graph.compatibility import IncompatibleGraph, edge_shapes, vertex_shapes
from penstock.graph.fit import fitted_in_steps
from penstock.graph.job_graph import JobGraph
from penstock.graph.logical import Partitioner, PartitionerKind
from penstock.graph.rescaled_graph import as_taken
from penstock.protocol.driver.rescaling import (
    NotRescaled,
    ProvideSlots,
    Rescale,
    Rescaled,
    RescalePhase,
    Rescaling,
    RestartWith,
    RestoreAgain,
    Situation,
    TakeCheckpoint,
)
from penstock.protocol.restore.drain_phases import Draining, ReleaseVertices
from penstock.protocol.values.elements import Generation
from penstock.protocol.values.messages import DrainReport
from penstock.protocol.values.metadata import (
    ChannelCapture,
    InflightRange,
    InputCut,
    Metadata,
    OutputCut,
    SubtaskSnapshot,
)
from tests.unit.jobmaster.master_world import two_vertices

GATHERED = Situation(generation=None, must_drain=False, slots=2, processes=3)
HELD = replace(GATHERED, generation=1, must_drain=True)
READ = replace(HELD, must_drain=False)
RESTORE, ORDERED = Rescale(1, 3, is_restore=True), Rescale(2, 4)


# ---- the order of the steps -----------------------------------------------------------------------------------------


def begun() -> Rescaling:
    machine = Rescaling(lambda rescale: False)
    assert machine.on_ordered(RESTORE, GATHERED, 0.0) == [ProvideSlots(3)]
    return machine


def checkpointing() -> Rescaling:
    machine = begun()
    assert machine.look(HELD, 10.0) == [], "rows are in flight"
    assert machine.look(READ, 20.0) == [TakeCheckpoint()]
    machine.on_triggered(20.0)
    return machine


def test_the_second_step_follows_when_everything_is_read() -> None:
    machine = checkpointing()
    assert machine.on_published(25.0) == [RestartWith(RESTORE)]
    (done,) = machine.look(replace(READ, generation=2, slots=3), 40.0)
    assert isinstance(done, Rescaled) and done.rescale is RESTORE


def test_a_failover_in_the_first_step_begins_it_again() -> None:
    machine = checkpointing()
    assert machine.on_not_taken("it failed over", True, GATHERED, 22.0) == []
    assert machine.look(replace(HELD, generation=2), 30.0) == []
    assert machine.look(replace(READ, generation=2), 35.0) == [TakeCheckpoint()]


def test_a_checkpoint_that_fails_fails_the_job_over_and_is_taken_again() -> None:
    machine = checkpointing()
    assert machine.on_not_taken("it has expired", False, READ, 22.0) == [RestoreAgain("it has expired")]
    assert machine.phase is RescalePhase.WAITING and machine.current is RESTORE
    assert machine.look(replace(READ, generation=2), 35.0) == [TakeCheckpoint()]


def test_what_a_user_has_ordered_comes_after_it() -> None:
    machine = Rescaling(lambda rescale: False)
    machine.on_ordered(ORDERED, replace(GATHERED, processes=4), 0.0)
    machine.on_ordered(RESTORE, GATHERED, 1.0)
    assert machine.current is RESTORE and machine.queued == 1


def test_too_few_processes_do_not_end_it() -> None:
    """An adaptive job is lowered then, in the restart."""
    machine = Rescaling(lambda rescale: False)
    few = replace(GATHERED, processes=2, may_come=False, may_share=False)
    machine.on_ordered(RESTORE, few, 0.0)
    assert machine.current is RESTORE and machine.phase is RescalePhase.WAITING


def test_it_is_given_up_if_the_job_restarts_in_fewer_slots_before() -> None:
    machine = begun()
    assert machine.on_refused("slots were lost", GATHERED, 5.0) == [NotRescaled(RESTORE, "slots were lost")]
    ordered = Rescaling(lambda rescale: False)
    ordered.on_ordered(ORDERED, replace(GATHERED, processes=4), 0.0)
    assert ordered.on_refused("slots were lost", GATHERED, 5.0) == [], "an order of a user waits"


# ---- what is held ---------------------------------------------------------------------------------------------------


def read(vertex: int, sequence: int, emitted: int, applied: int) -> DrainReport:
    generation = Generation(1, 1)
    return DrainReport(generation, 0, (vertex, 0), sequence, True, True, {1: emitted}, {1: applied})  # type: ignore[arg-type]


def test_sources_are_never_released() -> None:
    draining = Draining([1, 1, 1], [(0, 1), (1, 2)], holds_sources=True)
    assert draining.start() == ReleaseVertices((2,), False)
    assert draining.on_report(read(2, 1, 0, 0)) == ReleaseVertices((1,), False)
    assert draining.on_report(DrainReport(Generation(1, 1), 0, (1, 0), 1, True, True, {1: 4}, {})) is None  # type: ignore[arg-type]
    assert not draining.is_drained, "its consumer has not read what it has emitted"
    assert draining.on_report(DrainReport(Generation(1, 1), 0, (2, 0), 2, True, True, {}, {1: 4})) is None  # type: ignore[arg-type]
    assert draining.is_drained and not draining.is_over


# ---- which restores take two steps ----------------------------------------------------------------------------------


def broadcast(parallelism: int) -> JobGraph:
    graph = two_vertices(parallelism)
    edge = replace(graph.edges[0], partitioner=Partitioner(PartitionerKind.BROADCAST))
    return replace(graph, edges=(edge,))


def taken(graph: JobGraph, *unread: int) -> Metadata:
    """A checkpoint: how many rows of the first producer are in flight to each receiver."""
    edge, producers = graph.edges[0].name, graph.vertices[0].parallelism
    snapshots = []
    for producer in range(producers):
        emitted = [n if producer == 0 else 0 for n in unread]
        snapshots.append(SubtaskSnapshot(0, producer, [], [OutputCut(edge, emitted, [])], [], [], [], [], []))
    for receiver, n in enumerate(unread):
        captures = [ChannelCapture(0, [InflightRange(0, n, 0, 0, 0, 0)], [])] if n else []
        cut = InputCut(edge, [0] * producers, captures)
        snapshots.append(SubtaskSnapshot(1, receiver, [cut], [], [], [], [], [], []))
    return Metadata(
        2, "", "", 7, 0, 0, "", 0, False, vertex_shapes(graph), edge_shapes(graph), [], snapshots, [], []
    )  # fmt: skip


def steps(graph: JobGraph, metadata: Metadata, may_lower: bool = False) -> tuple[int, ...]:
    """Return how many receivers there are in each step."""
    fit = fitted_in_steps(graph, metadata, False, checkpointing=True, may_lower=may_lower)
    return tuple(g.vertices[1].parallelism for g in (fit.graph, fit.then) if g is not None)


def test_receivers_that_have_read_different_rows_begin_as_many_as_they_were() -> None:
    uneven = taken(broadcast(2), 0, 4)
    assert steps(broadcast(3), uneven) == (2, 3) and steps(broadcast(1), uneven) == (2, 1)
    assert fitted_in_steps(broadcast(3), uneven, False, checkpointing=True).text(7) == (
        "restoring checkpoint 7 at parallelism 2 first, because some subtasks of 'list' had read rows of the broadcast "
        "from 'numbers' that others had not. The sources emit nothing until all have read the same rows. Then the job "
        "continues at parallelism 3"
    )


def test_one_step_is_enough_if_they_have_read_the_same_or_stay_as_many() -> None:
    assert steps(broadcast(3), taken(broadcast(2), 4, 4)) == (3,)
    assert steps(broadcast(2), taken(broadcast(2), 0, 4)) == (2,)


def test_an_adaptive_job_may_run_in_the_slots_of_its_checkpoint() -> None:
    uneven = taken(broadcast(2), 0, 4)
    assert steps(broadcast(3), uneven, may_lower=True) == (2,)
    assert steps(broadcast(1), uneven, may_lower=True) == (2, 1)


def test_without_checkpoints_there_is_no_second_step() -> None:
    with pytest.raises(
        IncompatibleGraph, match=r"(?s)is a broadcast from 2 to 2.*set execution.checkpointing.interval"
    ):
        fitted_in_steps(broadcast(3), taken(broadcast(2), 0, 4), False, checkpointing=False)


def test_what_else_does_not_fit_is_refused_before_the_first_step() -> None:
    graph = broadcast(200)
    limited = replace(graph, vertices=tuple(replace(v, max_parallelism_given=True) for v in graph.vertices))
    with pytest.raises(IncompatibleGraph, match="its max parallelism 128"):
        fitted_in_steps(limited, taken(broadcast(2), 0, 4), False, checkpointing=True)


def test_operators_that_the_checkpoint_does_not_know_stay_as_they_are() -> None:
    known = vertex_shapes(broadcast(2))[1:]
    found = as_taken(broadcast(3), known, {"a-b-0-0"})
    assert [vertex.parallelism for vertex in found.vertices] == [3, 2]
    assert (found.edges[0].source_parallelism, found.edges[0].target_parallelism) == (3, 2)
