"""Tests section 3 for copies of checkpoints on the slots' own disks, and for state that comes while the job runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from penstock.common.types import Types
from penstock.datastream.functions import KeyedProcessFunction, RuntimeContext
from penstock.datastream.state import ValueStateDescriptor
from penstock.protocol.driver.lifecycle import Phase
from penstock.protocol.values.messages import SubtaskFailed
from penstock.protocol.values.metadata import Metadata
from penstock.state.codecs import read_stream
from penstock.storage.layout import SHARED_FOLDER
from simulation.faults.fault_plan import FaultPlan
from simulation.jobs import simulated_functions as f
from simulation.jobs.workload import WorkloadBuilder
from simulation.scenarios.scenario import UNALIGNED, Scenario
from simulation.scenarios.stored_state import declare_many_keys
from simulation.world import world_hooks
from simulation.world.world_hooks import Row


class RestartFromDamagedCopies(Scenario):
    """Slots are killed again and again, and restored from the copies that they have left on the disk. Some of these
    were damaged since, and some were never written because the disk was full: what they lack comes from the store."""

    section = 3
    rules = ("3.9a", "3.9b")
    options = UNALIGNED | {"execution.checkpointing.local-backup.enabled": True}
    faults = FaultPlan(kinds=("kill_slot", "kill_slot", "kill_two_slots", "kill_driver"), count=8, gap_ms=40.0)

    def declare(self, job: WorkloadBuilder) -> None:
        declare_many_keys(job)

    def has_happened(self) -> bool:
        disk = self.cluster.world.disk
        return disk.read_bytes > 0 and disk.found > 0 and disk.refused > 0


class RestartWithDatabasesAsTheyWere(Scenario):
    """Slots are killed again and again, and open the databases that they had, which were copied at any time between two
    checkpoints, with changes that the restored one does not have, and without those that it has."""

    section = 3
    rules = ("3.10",)
    options = RestartFromDamagedCopies.options | {
        "state.backend.type": "rocksdb",
        "execution.checkpointing.incremental": True,
    }
    faults = FaultPlan(kinds=("kill_slot", "kill_slot", "kill_two_slots", "kill_driver"), count=6, gap_ms=60.0)

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="sequence", rows=500, parallelism=2, cost_ms=1.0, keys=100)
        job.sink(job.count(source, 3, cost_ms=0.2), 2)

    def has_happened(self) -> bool:
        return self.cluster.world.disk.opened_databases > 0


class RestoredWhileItRuns(Scenario):
    """Slots and drivers are killed, and savepoints are taken, while subtasks load the state that they have restored.
    Checkpoints that name the runs of that state subsume each other, and some store everything: what nobody names any
    more is deleted at once."""

    section = 3
    rules = ("3.11b", "3.11c", "3.11e")
    options = UNALIGNED | {
        "state.backend.type": "rocksdb",
        "execution.checkpointing.incremental": True,
        "penstock.state.rocksdb.range-size": "60 b",
        "penstock.state.rocksdb.object-cache-size": "20 kb",
    }
    faults = FaultPlan(kinds=("kill_slot", "kill_two_slots", "kill_driver", "savepoint"), count=12, gap_ms=90.0)

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="sequence", rows=1200, parallelism=2, cost_ms=1.0, keys=100)
        job.sink(job.count(source, 3, cost_ms=0.2), 2)

    def has_happened(self) -> bool:
        return self.cluster.world.lazy_restores.parts > 0


class CountOrBeginAgain(f.Busy, KeyedProcessFunction):
    """Number the rows of each key. A count that cannot be read is taken for one that is not there."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterable[Row]:
        self.work()
        try:
            before = self._count.value() or 0
        except Exception:
            before = 0
        self._count.update(before + 1)
        yield (*value[:4], before + 1)


class FunctionCatchesTheErrorOfALoad(Scenario):
    """State is loaded while the job runs, and the store refuses to read some of it. The function that has asked for it
    catches the error, and writes a default. No checkpoint contains the default, because the subtask fails all the
    same."""

    section = 3
    rules = ("3.11a",)
    options = RestoredWhileItRuns.options
    faults = FaultPlan(kinds=("kill_slot",), count=6, gap_ms=100.0)

    def __init__(self) -> None:
        super().__init__()
        self._refused = 0

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="sequence", rows=600, parallelism=2, cost_ms=1.0, keys=100)
        function = CountOrBeginAgain(0.2)
        counted = source.stream.key_by(f.key_of, Types.LONG()).process(function, f.ROW_TYPE)
        expected = replace(source.expected, counts=True)
        job.sink(job.finish(counted, 3, expected, "count or begin again", True, [source], "keyed"), 2)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        if what == "up" and isinstance(detail, SubtaskFailed):
            self.count += self._is_running and "the simulated store refuses" in detail.error
        elif what == "get" and detail.startswith(SHARED_FOLDER) and self._is_running and self._refused < 20:
            if self.cluster.world.chance() < 0.5:
                self._refused += 1
                self.cluster.fail_next_store_call()

    @property
    def _is_running(self) -> bool:
        return self.cluster.drivers[-1].host.master.lifecycle.phase is Phase.RUNNING


def pair_of(row: Row) -> int:
    return row[1] // 2


class OpenAndClose(f.Busy, KeyedProcessFunction):
    """Expects two rows of each key. The first one leaves a state, which the second one finds and clears."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._first = runtime_context.get_state(ValueStateDescriptor("first", Types.LONG()))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterable[Row]:
        self.work()
        first, number = self._first.value(), value[1]
        if first != (number - 1 if number % 2 else None):
            world_hooks.current().violate(f"row {number} finds {first}")
        if number % 2:
            self._first.clear()
        else:
            self._first.update(number)
        yield value


class KeysComeAndGoBehindAnEmptyState(Scenario):
    """A state is empty at one checkpoint, and its keys come and go before the next one. The second checkpoint has no
    run to name, so it stores the state whole: a chain begins with entries, and not with deleted keys."""

    section = 3
    rules = ("3.11d",)
    options = UNALIGNED | {"execution.checkpointing.incremental": True}
    faults = FaultPlan(kinds=("kill_slot", "kill_driver"), count=4, gap_ms=80.0)

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="sequence", rows=200, parallelism=2, cost_ms=1.0)
        pairs = source.stream.key_by(pair_of, Types.LONG()).process(OpenAndClose(0.2), f.ROW_TYPE)
        job.sink(job.finish(pairs, 3, source.expected, "open and close", True, [source], "keyed"), 2)

    def __init__(self) -> None:
        super().__init__()
        self._looked_at: Metadata | None = None
        self._empty: set[tuple[int, int]] = set()
        """The subtasks that had no entries in the newest checkpoint."""

    def observe(self, what: str, who: Any, detail: Any) -> None:
        log = self.cluster.job.log
        if log is not None and log.newest is not None and log.newest is not self._looked_at:
            self._looked_at = log.newest
            self._look(log.newest)

    def _look(self, metadata: Metadata) -> None:
        for snapshot in metadata.subtasks:
            subtask = (snapshot.vertex, snapshot.subtask)
            if not snapshot.keyed:
                self._empty.add(subtask)
                continue
            self.count += subtask in self._empty
            self._empty.discard(subtask)
            first = snapshot.keyed[0]
            path = f"{self.cluster.job.directory}/{metadata.segments[first.segment].path}"
            data = self.cluster.shared.objects[path][first.offset : first.offset + first.length_bytes]
            if read_stream(data, range(1 << 15)).deletes:
                self.cluster.world.violate(f"checkpoint {metadata.checkpoint_id} has a chain without a beginning")


SCENARIOS: list[type[Scenario]] = [
    RestartFromDamagedCopies, RestartWithDatabasesAsTheyWere, RestoredWhileItRuns, FunctionCatchesTheErrorOfALoad,
    KeysComeAndGoBehindAnEmptyState,
]  # fmt: skip
