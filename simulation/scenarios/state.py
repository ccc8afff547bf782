"""Tests sections 7 and 8: slices, chains and outputs; state and user objects."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from penstock.protocol.values.frames import UrgentBarrier
from penstock.runtime.checkpoint.snapshot_writer import Taken
from penstock.state.heap.tables import KeptEntries
from simulation.faults.fault_plan import FaultPlan
from simulation.jobs import simulated_functions as f
from simulation.jobs.workload import Expected, WorkloadBuilder
from simulation.scenarios.scenario import TIMEOUT, UNALIGNED, Scenario
from simulation.world.pace import Pace
from simulation.world.small_limits import SMALL

KILLS = FaultPlan(kinds=("kill_slot",), count=3, gap_ms=60.0)


class OneListYieldedAgainAndAgain(Scenario):
    """`acc.append(x); yield acc` over a slice: a hundred references to one list. Every row that is yielded is one
    list, changed in place; between chained functions and until they are encoded they must not be the same."""

    section = 7
    rules = ("7.2",)
    options = UNALIGNED
    faults = KILLS

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="sequence", rows=60, parallelism=2, cost_ms=0.1, keys=8)
        recycle = f.Recycle(3, 0.2)
        rows = tuple(made for row in source.expected.rows for made in recycle.made_of(row))
        stream = source.stream.flat_map(recycle).set_parallelism(2)
        stream = stream.map(f.Pass(0.01)).set_parallelism(2)
        expected = Expected(rows, ordered=True)
        job.sink(job.count(replace(source, stream=stream, expected=expected, typed=False), 3, cost_ms=0.5), 2)

    def has_happened(self) -> bool:
        return True


class BarrierWaitsForAGenerator(Scenario):
    """A function emits far more for one row than the overdraft takes: the barrier waits for the rest of that row,
    and nothing else of the subtask runs meanwhile; a snapshot never lies inside a row."""

    section = 7
    rules = ("7.1",)
    options = UNALIGNED | {"penstock.network.overdraft-bytes-max": 0, "penstock.network.output-queue-bytes": 900}
    faults = KILLS

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="sequence", rows=8, parallelism=2, cost_ms=0.1, keys=8)
        burst = job.expand(job.repartition(source, "rebalance", 2, cost_ms=0.1), (100, 300), cost_ms=0.2)
        job.sink(job.count(burst, 2, cost_ms=1.0), 2)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        if what == "frame":
            deployment = who.listener._deployment
            self.count += any(r.deployed.machine.waits_for_row for r in deployment.runners)


class ParkedWithASlowNeighbour(Scenario):
    """Parked until all is captured waits for remote user code. A subtask rests for 20 ms at the most after its
    snapshot, whatever others do, and gets up when its slot's data is written."""

    section = 7
    rules = ("7.3",)
    options = UNALIGNED | {"penstock.parking.enabled": True}
    pace = Pace(step_ms=0.5)
    faults = KILLS

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="sequence", rows=40, parallelism=3, cost_ms=0.1, keys=8)
        job.sink(job.count(source, 3, cost_ms=40.0), 2)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        for driver in self.cluster.drivers:
            for slot in driver.keeper.processes:
                deployment = slot.runtime._deployment
                for runner in deployment.runners if deployment is not None else ():
                    subtask = runner.opened
                    if subtask is None:
                        continue
                    left_ms = subtask.parking.left_ms(slot.runtime.clock.monotonic_ms())
                    if left_ms is not None:
                        self.count += 1
                        if left_ms > 20.0:
                            self.cluster.world.violate(f"{subtask.id} is parked for {left_ms:.0f} ms")


class StateChangedBehindTheBarrier(Scenario):
    """`l = state.value(); l.append(x)` after the barrier changes what the asynchronous writer sees. The writer is slow
    here, and every row changes its key's lists in place."""

    section = 8
    rules = ("8.1",)
    options = TIMEOUT | {"penstock.parking.enabled": False}
    pace = Pace(step_ms=4.0)
    faults = FaultPlan(kinds=("kill_slot",), count=5, gap_ms=120.0)

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="sequence", rows=100, parallelism=2, cost_ms=0.1, keys=3)
        job.sink(job.count(source, 3, cost_ms=0.5), 2)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        if what == "frame" and not isinstance(detail, UrgentBarrier):
            mail = who.listener._deployment.writer.mailbox.mail
            self.count += any(isinstance(m, Taken) and m.capture.state is not None for m in mail)


class StateChangedBetweenRanges(Scenario):
    """A row changes state of which the writer has written some ranges and not the others: the dict of a key group that
    is half written, a list in an entry that comes later. What is written is what was there at the barrier."""

    section = 8
    rules = ("8.1",)
    options = TIMEOUT | {"penstock.parking.enabled": False, "pipeline.max-parallelism": 4}
    pace = Pace(step_ms=2.0, scale=replace(SMALL, state_entries_per_batch=1, state_range_bytes=1))
    faults = FaultPlan(kinds=("kill_slot",), count=5, gap_ms=120.0)

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="sequence", rows=120, parallelism=2, cost_ms=0.1, keys=24)
        job.sink(job.count(source, 3, cost_ms=0.5), 2)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        if what == "frame" and not isinstance(detail, UrgentBarrier):
            encoding = who.listener._deployment.writer._encoding
            self.count += encoding is not None and bool(encoding.capture.keyed)


class ColumnsChangedBetweenBlocks(StateChangedBetweenRanges):
    """A slice changes slots of a table of which the writer has copied some blocks and not the others. What was there
    before is in the log of the snapshot's view by then, so that the block holds what was there at the barrier."""

    rules = ("8.1",)
    pace = Pace(step_ms=2.0, scale=replace(SMALL, columnar_range_bytes=1))

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="sequence", rows=160, parallelism=2, cost_ms=0.5, keys=24)
        job.sink(job.roll(source), 2)


class EntriesChangedBeforeTheirChangesAreWritten(StateChangedBetweenRanges):
    """A row changes an entry that has changed before the barrier, too, of which a checkpoint stores only the changes:
    before the writer reads the entry, or while its object waits to be pickled. The entry is kept as it was, the object
    is copied, and an entry that did not exist is not there."""

    rules = ("8.1",)
    options = StateChangedBetweenRanges.options | {"execution.checkpointing.incremental": True}

    def observe(self, what: str, who: Any, detail: Any) -> None:
        if what == "frame" and not isinstance(detail, UrgentBarrier):
            deployment = who.listener._deployment
            encoding = deployment.writer._encoding
            waiting = [m.capture for m in deployment.writer.mailbox.mail if isinstance(m, Taken)]
            captures = [*waiting, *([encoding.capture] if encoding is not None else [])]
            self.count += any(_has_kept_entries(capture.state) for capture in captures)


def _has_kept_entries(snapshot: Any) -> bool:
    tables = getattr(snapshot, "_tables", ())
    return any(isinstance(table.entries, KeptEntries) and table.entries.kept for table in tables)


SCENARIOS: list[type[Scenario]] = [
    OneListYieldedAgainAndAgain, BarrierWaitsForAGenerator, ParkedWithASlowNeighbour, StateChangedBehindTheBarrier,
    StateChangedBetweenRanges, ColumnsChangedBetweenBlocks, EntriesChangedBeforeTheirChangesAreWritten,
]  # fmt: skip
