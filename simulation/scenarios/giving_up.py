"""Tests section 3: rows in flight that a user gives up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

from penstock.operators.batches import as_batch, row_type, wire_schema
from penstock.protocol.restore.receivers import uneven_broadcasts
from penstock.protocol.restore.rescale import edges_in_flight
from penstock.protocol.values.elements import Active
from penstock.protocol.values.metadata import ChannelCapture, InflightRange, Metadata
from simulation.jobs.broadcast_branch import await_rules
from simulation.jobs.idle_branch import APART, scripted, slowly
from simulation.jobs.scripted import Script
from simulation.jobs.workload import WorkloadBuilder
from simulation.scenarios.rescaling import FULL, OFTEN, Rescaled
from simulation.scenarios.scenario import Scenario
from simulation.world.pace import Pace
from simulation.world.world_hooks import Row

GIVE_UP = "execution.state-recovery.without-channel-state.checkpoint-id"
CHANNELS = "penstock.state-recovery.without-channel-state.channels"
RULES = 8


class RowsInFlightAreGivenUp(Rescaled):
    """The job is killed, and the next driver, at other parallelisms, gives up the rows in flight: those are lost and no
    others."""

    rules: ClassVar[tuple[str, ...]] = ("3.12c",)
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
            for key, value in self.options_of(newest).items():
                self.cluster.workload.configuration.set(key, value)
        super()._look()
        if newest is not None and self.resumes > before:
            (sink, expected), *_ = self.cluster.workload.sinks.items()
            left = self.left_of(expected.rows, newest)
            if left is not None:
                self.cluster.workload.sinks[sink] = replace(expected, rows=left)

    def options_of(self, metadata: Metadata) -> dict[str, Any]:
        """Return the options that give up the rows in flight of a checkpoint."""
        return {GIVE_UP: metadata.checkpoint_id}

    def left_of(self, rows: tuple[Row, ...], metadata: Metadata) -> tuple[Row, ...] | None:
        """Return the results of these rows if those in flight are given up; None if nothing is lost now."""
        lost = Counter(row[:4] for row in self._in_flight(metadata))
        left = tuple(row for row in rows if not lost[row[:4]])
        assert len(rows) - len(left) == lost.total()
        return left

    def _in_flight(self, metadata: Metadata) -> list[Row]:
        return [row for _, _, of_one in self.in_flight_by_channel(metadata) for row in of_one]

    def in_flight_by_channel(self, metadata: Metadata) -> Iterator[tuple[str, int, list[Row]]]:
        """Yield the rows between what producers have emitted and what consumers have applied, with their edge and
        consumer. All are sources'."""
        applied = {(cut.edge, s.subtask): cut.applied for s in metadata.subtasks for cut in s.inputs}
        emitted = {(cut.edge, s.subtask): cut.emitted for s in metadata.subtasks for cut in s.outputs}
        edges = {edge.name: edge for edge in self.cluster.workload.graph.edges}
        for name, producer, consumer, capture in _captures(metadata):
            edge, first, end = edges[name], applied[name, consumer][producer], emitted[name, producer][consumer]
            for piece in capture.pieces:
                batch = as_batch(self._read(metadata, piece), wire_schema(edge))
                found = enumerate(row_type(edge.type).decode(batch), piece.first)
                yield name, consumer, [tuple(row) for number, row in found if first <= number < end]

    def _read(self, metadata: Metadata, piece: InflightRange) -> bytes:
        path = f"{self.cluster.job.directory}/{metadata.segments[piece.segment].path}"
        return bytes(self.cluster.shared.objects[path][piece.offset : piece.offset + piece.length_bytes])


def _captures(metadata: Metadata) -> Iterator[tuple[str, int, int, ChannelCapture]]:
    """Yield the capture of each channel, with its edge, producer and consumer. All read from all."""
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

    rules = ("3.12a", "3.12b")
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


class ReceiversDifferWhenRowsAreGivenUp(RowsInFlightAreGivenUp):
    """Some receivers of a broadcast have read rules that are in flight to others, and the rows of this edge are given
    up. Nobody misses a rule for ever that one of them had read: not as many receivers, and not more or less of them,
    now or after further rescales. The first row that needs a rule comes after that."""

    rules = ("3.12d",)
    resumes_max = 3
    is_parallel = True

    def declare(self, job: WorkloadBuilder) -> None:
        late = Script(0, 0, ((None, 10_000), *slowly(0, 80)))
        rows = scripted(job, (late,), cost_ms=0.1, timeout_ms=20_000, at_source=True)
        rules = job.source(1, kind="ranges", rows=RULES, parallelism=1, cost_ms=1.5, keys=8, timed=None)
        job.sink(await_rules(job, rows, rules, keyed=True, parallelism=3, cost_ms=3.0), 2)

    def is_right(self, metadata: Metadata) -> bool:
        if self.resumes:
            return bool(edges_in_flight(metadata))
        uneven = uneven_broadcasts(metadata)
        return bool(uneven) and edges_in_flight(metadata) == uneven

    def options_of(self, metadata: Metadata) -> dict[str, Any]:
        (edge, *_) = uneven_broadcasts(metadata) or ("",)
        return super().options_of(metadata) | {CHANNELS: edge} if edge else {}

    def left_of(self, rows: tuple[Row, ...], metadata: Metadata) -> tuple[Row, ...] | None:
        if self.resumes > 1:
            return None
        receivers = {
            s.subtask for s in metadata.subtasks for cut in s.inputs if cut.edge in uneven_broadcasts(metadata)
        }
        unread: dict[int, set[int]] = {receiver: set() for receiver in receivers}
        for _, receiver, rules in self.in_flight_by_channel(metadata):
            unread[receiver].update(rule[1] for rule in rules)
        lost = set.intersection(*unread.values())
        return tuple(row for row in rows if row[2] % RULES not in lost)


SCENARIOS: list[type[Scenario]] = [
    RowsInFlightAreGivenUp, APauseEndsAmongRowsThatAreGivenUp, ReceiversDifferWhenRowsAreGivenUp,
]  # fmt: skip
