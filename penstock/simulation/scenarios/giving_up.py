"""Tests section 3: rows in flight that a user gives up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from penstock.operators.batches import as_batch, row_type, wire_schema
from penstock.protocol.values.elements import Active
from penstock.protocol.values.metadata import Capture, InflightRange, Metadata
from penstock.simulation.idle_branch import APART, scripted, slowly
from penstock.simulation.scenarios.rescaling import FULL, OFTEN, Rescaled
from penstock.simulation.scenarios.scenario import Scenario
from penstock.simulation.scripted import Script
from penstock.simulation.settings import Pace
from penstock.simulation.workload import WorkloadBuilder
from penstock.simulation.world_hooks import Row

GIVE_UP = "execution.state-recovery.without-channel-state.checkpoint-id"


class RowsInFlightAreGivenUp(Rescaled):
    """The job is killed, and the next driver, at other parallelisms, gives up the rows in flight: those are lost and no
    others."""

    resumes_max = 1
    edges: ClassVar[int] = 2

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="ranges", rows=60, parallelism=2, cost_ms=0.01, keys=4, timed="patient")
        delayed = job.delay(job.repartition(source, "rebalance", 2, cost_ms=0.5), 30, cost_ms=2.0)
        job.sink(delayed, delayed.parallelism)

    def is_right(self, metadata: Metadata) -> bool:
        # A seed may part the source from its map: there are numbers in flight then, and no rows.
        return len(metadata.edges) == self.edges and bool(self._in_flight(metadata))

    def has_happened(self) -> bool:
        return self.count > 0

    def _look(self) -> None:
        log, before = self.cluster.job.log, self.resumes
        newest = None if log is None else log.newest
        if newest is not None and not before:
            # Whoever resumes the job reads its options when it is started.
            self.cluster.workload.configuration.set(GIVE_UP, newest.checkpoint_id)
        super()._look()
        if newest is not None and self.resumes > before:
            lost = Counter(row[:4] for row in self._in_flight(newest))
            (sink, expected), *_ = self.cluster.workload.sinks.items()
            left = tuple(row for row in expected.rows if not lost[row[:4]])
            assert len(expected.rows) - len(left) == lost.total()
            self.cluster.workload.sinks[sink] = replace(expected, rows=left)

    def _in_flight(self, metadata: Metadata) -> list[Row]:
        """Return the rows between what producers have emitted and what consumers have applied. All are the source's."""
        applied = {(cut.edge, s.subtask): cut.applied for s in metadata.subtasks for cut in s.inputs}
        emitted = {(cut.edge, s.subtask): cut.emitted for s in metadata.subtasks for cut in s.outputs}
        edges = {edge.name: edge for edge in self.cluster.workload.graph.edges}
        rows: list[Row] = []
        for name, producer, consumer, capture in _captures(metadata):
            edge, first, end = edges[name], applied[name, consumer][producer], emitted[name, producer][consumer]
            for piece in capture.pieces:
                batch = as_batch(self._read(metadata, piece), wire_schema(edge))
                found = enumerate(row_type(edge.type).decode(batch), piece.first)
                rows += [tuple(row) for number, row in found if first <= number < end]
        return rows

    def _read(self, metadata: Metadata, piece: InflightRange) -> bytes:
        path = f"{self.cluster.job.directory}/{metadata.segments[piece.segment].path}"
        return bytes(self.cluster.shared.objects[path][piece.offset : piece.offset + piece.length_bytes])


def _captures(metadata: Metadata) -> Iterator[tuple[str, int, int, Capture]]:
    """Yield what was captured of each channel, with its edge, producer and consumer. All read from all."""
    for snapshot in metadata.subtasks:
        for cut in snapshot.inputs:
            for capture in cut.captures:
                yield cut.edge, capture.peer, snapshot.subtask, capture
        for out in snapshot.outputs:
            for capture in out.captures:
                yield out.edge, snapshot.subtask, capture.peer, capture


class APauseEndsAmongRowsThatAreGivenUp(RowsInFlightAreGivenUp):
    """A source comes back from a pause, and "active" is in flight, behind which rows are given up. It is not idle after
    that: if time advanced without it, its rows would be late."""

    options = FULL | OFTEN
    pace = Pace(work_ms=0.5)
    is_parallel = True
    edges = 1
    resumed_by = "kill_driver"

    def declare(self, job: WorkloadBuilder) -> None:
        scripts = (
            Script(0, 0, (*slowly(0, 50), *slowly(500, 60))),
            Script(1, APART, ((None, 60), *slowly(60, 120))),
        )
        delayed = job.delay(scripted(job, scripts, cost_ms=0.02, timeout_ms=20, at_source=True), 1, cost_ms=1.5)
        job.sink(delayed, delayed.parallelism)

    def is_right(self, metadata: Metadata) -> bool:
        if not super().is_right(metadata):
            return False
        events = [event.event for *_, capture in _captures(metadata) for event in capture.events]
        return any(isinstance(event, Active) for event in events)


SCENARIOS: list[type[Scenario]] = [RowsInFlightAreGivenUp, APauseEndsAmongRowsThatAreGivenUp]
