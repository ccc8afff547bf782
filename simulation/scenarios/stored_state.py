"""Tests section 11 for checkpoints that name segments of earlier ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from penstock.protocol.values.elements import Generation
from penstock.protocol.values.messages import SlotAck
from penstock.protocol.values.metadata import Metadata
from penstock.storage.layout import SegmentName, parse
from simulation.faults.fault_plan import FaultPlan
from simulation.jobs.workload import WorkloadBuilder
from simulation.scenarios.rescaling import Rescaled
from simulation.scenarios.scenario import UNALIGNED, Scenario
from simulation.scenarios.sweeping import WithLeftovers
from simulation.world.pace import Pace
from simulation.world.small_limits import SMALL

SEVERAL = UNALIGNED | {
    "execution.checkpointing.interval": "10 ms",
    "execution.checkpointing.max-concurrent-checkpoints": 4,
    "execution.checkpointing.num-retained": 1,
}


def declare_many_keys(job: WorkloadBuilder) -> None:
    """Declare a count of so many keys that most of them stay as they are from one checkpoint to the next."""
    source = job.source(kind="sequence", rows=160, parallelism=2, cost_ms=1.0, keys=60)
    job.sink(job.count(source, 3, cost_ms=0.2), 2)


class StatesAreStoredWholeNextToCheckpoints(Scenario):
    """Chains become long, and states are stored whole while checkpoints name the chains. Slots are killed before, while
    and after a checkpoint names what was stored; some of these checkpoints expire, and what they were the first to name
    is deleted with them. Named again later, it is missing; kept, it stays for ever."""

    section = 11
    rules: ClassVar[tuple[str, ...]] = ("11.22b", "11.22d")
    options = UNALIGNED | {
        "execution.checkpointing.interval": "10 ms",
        "execution.checkpointing.incremental": True,
        "execution.checkpointing.num-retained": 1,
    }
    pace = Pace(scale=replace(SMALL, consolidated_bytes=0))
    faults = FaultPlan(kinds=("kill_slot", "expire_checkpoint", "kill_driver", "expire_checkpoint"), count=8, gap_ms=80)

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="sequence", rows=900, parallelism=2, cost_ms=1.0, keys=40)
        job.sink(job.count(source, 3, cost_ms=0.2), 2)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        self.count += what == "up" and isinstance(detail, SlotAck) and bool(detail.consolidated)


class StatesAreStoredWholeNextToSeveralCheckpoints(StatesAreStoredWholeNextToCheckpoints):
    """Repeats the schedule above with RocksDB, and with several checkpoints at once: only one of them is the first to
    name a state."""

    rules = ("11.22b",)
    options = StatesAreStoredWholeNextToCheckpoints.options | {
        "execution.checkpointing.max-concurrent-checkpoints": 4,
        "state.backend.type": "rocksdb",
        "penstock.state.rocksdb.range-size": "60 b",
        "penstock.state.rocksdb.object-cache-size": "20 kb",
    }
    pace = Pace(scale=replace(SMALL, consolidated_bytes=0), upload_ms=(0.0, 30.0))


class LargeStatesAreStoredNextToCheckpoints(StatesAreStoredWholeNextToCheckpoints):
    """Large states change all the time, and their chains become long again and again. A checkpoint that begins a chain
    again takes as long as the state is large; so most of the time that happens next to checkpoints."""

    rules = ("11.22a",)
    faults = FaultPlan()

    def __init__(self) -> None:
        super().__init__()
        self._begun: set[tuple[int, int, str, str]] = set()
        """The states that have a chain: vertex, subtask, operator and name."""
        self._begun_again = 0
        """Counts the times that a checkpoint has stored a state whole that had a chain."""

    def observe(self, what: str, who: Any, detail: Any) -> None:
        if what != "up" or not isinstance(detail, SlotAck):
            return
        self.count += len(detail.consolidated)
        for snapshot in detail.subtasks:
            firsts = {(run.operator, run.name): run.segment for run in reversed(snapshot.keyed)}
            of_own = {(snapshot.vertex, snapshot.subtask, *name) for name, segment in firsts.items() if segment == 0}
            self._begun_again += len(of_own & self._begun)
            self._begun |= of_own

    def has_happened(self) -> bool:
        if self._begun_again > self.count:
            self.cluster.world.violate(f"checkpoints have stored {self._begun_again} large states whole")
        return self.count > 0


class PredecessorIsSubsumed(WithLeftovers):
    """Checkpoint 3 is pending, and names a segment of 1. Checkpoint 2 completes, does not need that segment, and 1 is
    not retained any more: deleted now, it is missing when 3 is restored. It stays until 3 has ended, and not longer."""

    rules = ("11.17",)
    names_stored_state = True
    options = SEVERAL
    pace = Pace(work_ms=5.0, upload_ms=(0.0, 40.0))
    faults = FaultPlan(kinds=("expire_checkpoint",), count=3, gap_ms=40.0)

    def declare(self, job: WorkloadBuilder) -> None:
        declare_many_keys(job)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        cluster = self.cluster
        if what == "up" and isinstance(detail, SlotAck):
            publication = cluster.drivers[-1].host.master.job_directory.publication
            assert publication is not None
            retention = publication.retention
            predecessor, retained = retention.predecessor_of(detail.checkpoint_id), retention.retained
            is_gone = predecessor is not None and predecessor not in retained
            needed = {path for checkpoint in retained for path in checkpoint.segments or ()}
            self.count += is_gone and any(segment.path not in needed for segment in detail.earlier)
        elif what == "list" and self.has_ended() and (left := self.leftovers()):
            cluster.world.violate(f"nobody needs {sorted(left)}, and only the last sweep deletes them")


class StateOutlivesItsCheckpoint(Scenario):
    """A key does not change for several checkpoints and restarts, so the newest one names a segment of a checkpoint and
    of a generation that ended long ago. Deleted with that checkpoint, or by the sweep for its generation, the state is
    lost."""

    section = 11
    rules = ("11.18a",)
    names_stored_state = True
    options = UNALIGNED
    faults = FaultPlan(kinds=("kill_slot", "kill_driver", "kill_slot"), count=6, gap_ms=40.0)

    def declare(self, job: WorkloadBuilder) -> None:
        declare_many_keys(job)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        if what != "up" or not isinstance(detail, SlotAck):
            return
        names = [parse(segment.path) for segment in detail.earlier]
        self.count += any(
            isinstance(name, SegmentName)
            and name.checkpoint_id < detail.checkpoint_id - 1
            and name.generation < Generation(*detail.generation)
            for name in names
        )


class StoredStateIsDealtOutAgain(Rescaled):
    """Resumes the job at other parallelisms while checkpoints reference the runs of earlier ones. A range of which two
    subtasks have restored parts is named by neither: a third one would later restore it twice."""

    section = 11
    rules = ("11.18b",)
    options = UNALIGNED | {"execution.checkpointing.incremental": True}

    def __init__(self) -> None:
        super().__init__()
        self._named = 0

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="sequence", rows=300, parallelism=2, cost_ms=1.0, keys=60)
        job.sink(job.count(source, 3, cost_ms=0.2), 2)

    def is_right(self, metadata: Metadata) -> bool:
        return self._named > 0

    def observe(self, what: str, who: Any, detail: Any) -> None:
        super().observe(what, who, detail)
        if what == "up" and isinstance(detail, SlotAck) and detail.earlier:
            self._named = self.cluster.statistics.rescales + 1

    def has_happened(self) -> bool:
        return super().has_happened() and self._named > 1


class StorageStaysWithinTwiceOfWhatLives(Scenario):
    """Each checkpoint stores a few large states that change all the time, and some keys that never change again. If the
    unchanged keys kept their segments for ever, storage would grow with the number of checkpoints. So a slot names at
    least half of the bytes of the earlier segments that it keeps. The state of this job only grows."""

    section = 11
    rules = ("11.18c",)
    names_stored_state = is_parallel = True

    def declare(self, job: WorkloadBuilder) -> None:
        changing = job.source(0, kind="sequence", rows=600, parallelism=2, cost_ms=0.5, keys=12)
        lasting = job.source(1, kind="sequence", rows=100, parallelism=1, cost_ms=15.0, keys=100)
        job.sink(job.count(changing, 3, cost_ms=0.1), 2)
        job.sink(job.count(lasting, 3, cost_ms=0.1), 2)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        if what != "up" or not isinstance(detail, SlotAck):
            return
        kept_bytes = sum(segment.length_bytes for segment in detail.earlier)
        lives_bytes = sum(state.length_bytes for snapshot in detail.subtasks for state in snapshot.keyed)
        self.count += bool(detail.earlier)
        if kept_bytes > 2 * lives_bytes:
            self.cluster.world.violate(f"slot {detail.slot} keeps {kept_bytes} bytes for {lives_bytes} that live")


class SavepointsNameNothing(Scenario):
    """A savepoint names a segment in the job's directory, is moved elsewhere, and the job deletes the segment. So a
    savepoint has no predecessor: it stores the runs that the checkpoints around it only name."""

    section = 11
    rules = ("11.19",)
    names_stored_state = True
    options = UNALIGNED
    faults = FaultPlan(kinds=("savepoint", "savepoint", "kill_slot"), count=8, gap_ms=15.0)

    def __init__(self) -> None:
        super().__init__()
        self._named = 0

    def declare(self, job: WorkloadBuilder) -> None:
        declare_many_keys(job)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        self._named += what == "up" and isinstance(detail, SlotAck) and bool(detail.earlier)

    def has_happened(self) -> bool:
        log = self.cluster.job.log
        return self._named > 0 and log is not None and log.savepoints > 0


SCENARIOS: list[type[Scenario]] = [
    StatesAreStoredWholeNextToCheckpoints, StatesAreStoredWholeNextToSeveralCheckpoints,
    LargeStatesAreStoredNextToCheckpoints, PredecessorIsSubsumed,
    StateOutlivesItsCheckpoint, StoredStateIsDealtOutAgain, StorageStaysWithinTwiceOfWhatLives, SavepointsNameNothing,
]  # fmt: skip
