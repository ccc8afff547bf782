"""Tests sections 3 and 6: restoring at another parallelism, and draining."""

from __future__ import annotations

from typing import Any, ClassVar

from penstock.protocol.restore.rescale import edges_in_flight
from penstock.protocol.values.messages import ReleaseVertices
from penstock.protocol.values.metadata import Metadata
from penstock.storage.layout import LOG_FOLDER, METADATA_NAME
from simulation.faults.fault_plan import FaultPlan
from simulation.jobs.broadcast_branch import await_rules
from simulation.jobs.workload import WorkloadBuilder
from simulation.scenarios.scenario import UNALIGNED, Scenario
from simulation.world.pace import Pace

FULL: dict[str, Any] = UNALIGNED | {
    "penstock.network.window-bytes": 20_000,
    "penstock.network.output-queue-bytes": 20_000,
}
OFTEN: dict[str, Any] = {"pipeline.auto-watermark-interval": "1 ms"}


class Rescaled(Scenario):
    """The job is killed after a checkpoint of the right kind, and resumed at other parallelisms, several times in a
    row."""

    section = 3
    options = FULL
    resumes_max: ClassVar[int] = 3
    resumed_by: ClassVar[str] = "rescale"

    def __init__(self) -> None:
        super().__init__()
        self.resumes = 0
        self._looked_at: Metadata | None = None

    def is_right(self, metadata: Metadata) -> bool:
        """Return whether the newest checkpoint is one to resume from."""
        return bool(edges_in_flight(metadata))

    def observe(self, what: str, who: Any, detail: Any) -> None:
        if what == "create" and detail.startswith(LOG_FOLDER):
            self.cluster.world.after(0.0, None, self._look)

    def _look(self) -> None:
        log = self.cluster.job.log
        assert log is not None
        metadata = log.newest
        if metadata is None or metadata is self._looked_at or metadata.is_final or self.cluster.is_over:
            return
        self._looked_at = metadata
        if self.resumes < self.resumes_max and self.is_right(metadata):
            self.resumes += 1
            self.count += 1
            self.cluster.fault_injector.inject(self.resumed_by)

    def has_happened(self) -> bool:
        return self.count > 0 and self.cluster.statistics.rescales > 0


class RowsAreOvertakenOnTheWayToTheirKey(Rescaled):
    """Rows of a split wait on a forward edge at map 1; the split's new reader feeds map 2, which overtakes them on the
    way to the same key. Unless the job drains in phases, nearest to the sinks first."""

    rules = ("3.3a",)

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="ranges", rows=120, parallelism=3, cost_ms=0.02, keys=4, timed=None)
        first = job.repartition(source, "forward", cost_ms=1.0)
        first.stream.start_new_chain()
        job.sink(job.count(job.repartition(first, "custom", 2, cost_ms=0.5), 3, cost_ms=0.5), 2)


class SeveralRescalesInARow(Rescaled):
    """Each resume comes before the rows of the one before have been read: layers of layers, filtered again and
    again."""

    rules = ("3.2",)
    resumes_max = 6
    pace = Pace(work_ms=0.5)

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="ranges", rows=120, parallelism=2, cost_ms=0.01, keys=8, timed=None)
        job.sink(job.count(job.repartition(source, "custom", 3, cost_ms=1.0), 3, cost_ms=3.0), 2)

    def has_happened(self) -> bool:
        log = self.cluster.job.log
        return log is not None and log.layers > 0 and self.cluster.statistics.rescales >= 3


class ResumedInTheMiddleOfDraining(Rescaled):
    """The checkpoint was triggered while the job drained: a restore from it drains again, at any parallelism, and so
    does one at the same parallelism."""

    rules = ("3.5",)
    resumes_max = 4
    pace = Pace(control_ms=3.0, work_ms=0.5)
    options = FULL | {"execution.checkpointing.interval": "10 ms"}

    def __init__(self) -> None:
        super().__init__()
        self.drained = 0

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="ranges", rows=120, parallelism=2, cost_ms=0.01, keys=8, timed=None)
        job.sink(job.count(job.repartition(source, "forward", cost_ms=1.0), 3, cost_ms=3.0), 2)

    def is_right(self, metadata: Metadata) -> bool:
        if metadata.draining:
            self.drained += 1
            if self.drained % 2 == 0:
                self.cluster.fault_injector.inject("kill_slot")
                return False
        return metadata.draining or (not self.resumes and super().is_right(metadata))

    def has_happened(self) -> bool:
        return self.drained > 0 and self.cluster.statistics.rescales > 0


class ReleasedWhileACheckpointIsPending(Rescaled):
    """K snapshots N with a row unread, then reads it; the level above is released; a subtask there, which N's barrier
    has not reached, reads, sends to K, then snapshots: restored, K reads the younger row first. A release names the
    checkpoints that are pending, and is followed when they have ended at the subtask."""

    rules = ("3.4a",)
    resumes_max = 5
    options = FULL | {"execution.checkpointing.interval": "10 ms"}
    pace = Pace(data_ms=30.0, control_ms=0.3, work_ms=0.5, step_ms=0.05)

    def __init__(self) -> None:
        super().__init__()
        self.pending = 0

    def declare(self, job: WorkloadBuilder) -> None:
        # The barrier is at once where the source is, and comes late to the other slots.
        source = job.source(kind="collection", rows=150, cost_ms=0.02, keys=8, timed=None)
        first = job.repartition(source, "custom", 3, cost_ms=0.6)
        job.sink(job.count(first, 3, cost_ms=0.6), 2)

    def is_right(self, metadata: Metadata) -> bool:
        return metadata.draining or (self.resumes < 2 and super().is_right(metadata))

    def observe(self, what: str, who: Any, detail: Any) -> None:
        super().observe(what, who, detail)
        self.pending += what == "down" and isinstance(detail, ReleaseVertices) and bool(detail.checkpoints)

    def has_happened(self) -> bool:
        return self.pending > 0


class FaultsWhileTheJobDrains(Rescaled):
    """A slot is killed, a checkpoint is given up, or somebody else takes the job over, right after a release."""

    rules = ("3.4a",)
    resumes_max = 2
    faults = FaultPlan(rescale_share=0.5)

    def __init__(self) -> None:
        super().__init__()
        self.struck: set[str] = set()

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="ranges", rows=120, parallelism=2, cost_ms=0.02, keys=8)
        job.sink(job.count(job.repartition(source, "forward", cost_ms=1.0), 3, cost_ms=2.0), 2)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        super().observe(what, who, detail)
        world = self.cluster.world
        if what == "down" and isinstance(detail, ReleaseVertices) and len(self.struck) < 6 and world.chance() < 0.4:
            kind = world.random.choice(("kill_slot", "take_over", "expire_checkpoint", "break_data_link"))
            self.struck.add(f"{kind} {len(self.struck)}")
            world.after(world.chance() * 5, None, self.cluster.fault_injector.inject, kind)

    def has_happened(self) -> bool:
        return bool(self.struck)


class ASavepointOutlivesItsGeneration(Rescaled):
    """A slot is killed while a savepoint is written, and the next generation drains. Its subtasks never hear of the
    savepoint, so no release waits for it."""

    rules = ("3.4b",)
    pace = Pace(work_ms=60.0)
    resumes_max = 3

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="ranges", rows=120, parallelism=2, cost_ms=0.02, keys=8)
        job.sink(job.count(job.repartition(source, "forward", cost_ms=1.0), 3, cost_ms=2.0), 2)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        super().observe(what, who, detail)
        world, faults = self.cluster.world, self.cluster.fault_injector
        if what == "down" and isinstance(detail, ReleaseVertices) and world.chance() < 0.2:
            world.after(0.0, None, faults.inject, "savepoint")
        elif what == "create" and detail == METADATA_NAME and self.outlived < 4:
            self.outlived += 1
            world.after(0.0, None, faults.inject, "kill_slot")

    def __init__(self) -> None:
        super().__init__()
        self.outlived = 0

    def has_happened(self) -> bool:
        return self.outlived > 0 and super().has_happened()


class CancelledAndResumed(Scenario):
    """A job is cancelled with rows in flight, keeps its newest checkpoint, and is resumed at other parallelisms, again
    and again: the output before and after is the output of one run."""

    section = 3
    rules = ("3.2",)
    options = (
        FULL
        | OFTEN
        | {
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        }
    )

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="ranges", rows=120, parallelism=2, cost_ms=0.05, keys=8, timed="patient")
        job.sink(job.count(job.delay(source, 30, cost_ms=0.5), 3, cost_ms=1.0), 2)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        log = self.cluster.job.log
        if what == "create" and detail.startswith(LOG_FOLDER) and log is not None and log.newest is not None:
            is_resumed = len(self.cluster.drivers) > self.count
            if is_resumed and self.count < 3 and edges_in_flight(log.newest) and not log.newest.is_final:
                self.count += 1
                self.cluster.job.is_resumed_after_cancel = True
                self.cluster.world.after(0.0, None, self.cluster.fault_injector.inject, "cancel")

    def has_happened(self) -> bool:
        return self.count > 1 and self.cluster.statistics.rescales > 0


class BroadcastsAtAnotherParallelism(Rescaled):
    """All receivers of a broadcast have read the same rows: each new receiver gets the unread ones, and the broadcast
    state of subtask 0. If receivers have read different rows, they read the same ones first."""

    section = 6
    rules = ("6.1",)
    resumes_max = 5
    is_keyed: ClassVar[bool] = True
    all_get_all: ClassVar[bool] = False

    def declare(self, job: WorkloadBuilder) -> None:
        rows = job.source(kind="ranges", rows=80, parallelism=2, cost_ms=0.5, keys=8, timed=None)
        rules = job.source(1, kind="ranges", rows=12, parallelism=1, cost_ms=3.0, keys=8, timed=None)
        how = {"keyed": self.is_keyed, "all_get_all": self.all_get_all}
        job.sink(await_rules(job, rows, rules, parallelism=2, cost_ms=1.0, **how), 2)

    def is_right(self, metadata: Metadata) -> bool:
        broadcasts = {e.name for e in metadata.edges if e.partitioner == "broadcast"}
        return bool(edges_in_flight(metadata) & broadcasts)

    def has_happened(self) -> bool:
        return self.count > 0 and self.cluster.statistics.rescales > 0 and not self.cluster.statistics.refused


class BroadcastsAndOperatorStateAtAnotherParallelism(BroadcastsAtAnotherParallelism):
    """Repeats the schedule above with rows that wait in operator state, which is dealt out: a row waits where its rule
    is not known."""

    rules = ("6.2",)
    is_keyed = False


class UnionListsAtAnotherParallelism(BroadcastsAndOperatorStateAtAnotherParallelism):
    """Repeats the schedule above with a list that every subtask gets whole: it takes the rows that are its own now, and
    stores those."""

    rules = ("6.2",)
    all_get_all = True


SCENARIOS: list[type[Scenario]] = [
    RowsAreOvertakenOnTheWayToTheirKey, SeveralRescalesInARow, ResumedInTheMiddleOfDraining,
    ReleasedWhileACheckpointIsPending, FaultsWhileTheJobDrains, ASavepointOutlivesItsGeneration, CancelledAndResumed,
    BroadcastsAtAnotherParallelism, BroadcastsAndOperatorStateAtAnotherParallelism,
    UnionListsAtAnotherParallelism,
]  # fmt: skip
