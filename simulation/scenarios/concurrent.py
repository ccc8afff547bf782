"""Tests several checkpoints in progress at once: sections 2, 9, 11 and 12."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from penstock.protocol.driver.coordinator import CheckpointCoordinator, CoordinatorPhase
from penstock.protocol.driver.pending_checkpoints import CheckpointState
from penstock.protocol.values.frames import UrgentBarrier
from penstock.protocol.values.messages import CheckpointEnded, SlotAck
from penstock.storage.layout import SegmentName, parse
from simulation.faults.fault_plan import FaultPlan
from simulation.jobs.workload import WorkloadBuilder
from simulation.scenarios.scenario import UNALIGNED, Scenario
from simulation.world.pace import Pace
from simulation.world.small_limits import SMALL

FOUR = {"execution.checkpointing.max-concurrent-checkpoints": 4}
KILLS = FaultPlan(kinds=("kill_slot", "kill_slot", "kill_driver"), count=4, gap_ms=60.0)
INTERVAL_MS, SEGMENT_MS, LATE_MS = 500, 2_000.0, 100.0
TIMEOUT_MS, EXPIRED_MAX = 2_000, 16


class SlowStoreWithConcurrentCheckpoints(Scenario):
    """A store takes 2 s for a segment, and checkpoints are due each 500 ms. They overlap, and one completes each 500
    ms; written one after the other, one would complete each 2 s."""

    section = 2
    rules = ("2.7",)
    is_parallel = True
    options = UNALIGNED | {
        "execution.checkpointing.interval": f"{INTERVAL_MS} ms",
        "execution.checkpointing.max-concurrent-checkpoints": 6,
    }
    pace = Pace(upload_ms=(SEGMENT_MS, SEGMENT_MS))

    def __init__(self) -> None:
        super().__init__()
        self._completed: dict[int, float] = {}

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="sequence", rows=700, parallelism=2, cost_ms=20.0, keys=8)
        job.sink(job.count(source, 3, cost_ms=0.1), 2)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        if what != "down" or not isinstance(detail, CheckpointEnded) or detail.checkpoint_id in self._completed:
            return
        world, number = self.cluster.world, detail.checkpoint_id
        if _coordinator(self).phase is not CoordinatorPhase.RUNNING:
            return
        if detail.aborted:
            world.violate(f"checkpoint {number} was given up, and nothing has gone wrong")
        elif not self._completed and world.now_ms < SEGMENT_MS:
            world.violate(f"checkpoint {number} completes before its segments can be stored")
        elif self._completed:
            self.count += 1
            gap_ms = world.now_ms - max(self._completed.values())
            if gap_ms > INTERVAL_MS + LATE_MS:
                world.violate(f"checkpoint {number} completes {gap_ms:.0f} ms after the one before")
        self._completed[number] = world.now_ms

    def has_happened(self) -> bool:
        return self.count >= 6


class OlderCheckpointIsAcknowledgedLast(Scenario):
    """Checkpoint 5 is acknowledged before 4, and 4 while 5 is being published. Checkpoint 4 is subsumed. If it were
    published after 5, it would be the newest in the log, and a restart would go back behind committed output."""

    section = 11
    rules = ("11.15",)
    options = UNALIGNED | FOUR
    pace = Pace(work_ms=20.0, upload_ms=(0.0, 60.0))
    faults = KILLS

    def observe(self, what: str, who: Any, detail: Any) -> None:
        if what != "up" or not isinstance(detail, SlotAck):
            return
        pending = _coordinator(self).pending
        publishing = [p.checkpoint_id for p in pending if p.state is CheckpointState.PUBLISHING]
        is_last = any(p.missing == [detail.slot] for p in pending if p.checkpoint_id == detail.checkpoint_id)
        self.count += is_last and any(newer > detail.checkpoint_id for newer in publishing)


class OutputNamedByTwoCheckpoints(Scenario):
    """A writer has prepared output for 4, and does not know yet that 4 is in the log when 5 comes: 5 names it again.
    Committed again with 5, after its user has moved it away, it counts as lost, and the job fails for good."""

    section = 11
    rules = ("11.16",)
    options = FOUR
    pace = Pace(upload_ms=(5.0, 40.0))
    faults = KILLS

    def observe(self, what: str, who: Any, detail: Any) -> None:
        if what == "up" and isinstance(detail, SlotAck):
            log = self.cluster.job.log
            newest_id = 0 if log is None or log.newest is None else log.newest.checkpoint_id
            prepared = [c.prepared_for for snapshot in detail.subtasks for c in snapshot.committables]
            self.count += newest_id < detail.checkpoint_id and any(number <= newest_id for number in prepared)


class NewerBarrierTurnsOlderOnes(Scenario):
    """An aligned barrier of 4 waits in a queue, and 5 turns unaligned there: it passes the queue. It turns 4 first;
    otherwise 4 is snapshotted behind 5, or declined each time."""

    section = 2
    rules = ("2.1",)
    options = (
        FOUR
        | UNALIGNED
        | {
            "execution.checkpointing.aligned-checkpoint-timeout": "25 ms",
            "penstock.network.output-queue-bytes": 20_000,
        }
    )
    pace = Pace(data_ms=4.0, upload_ms=(0.0, 5.0))
    faults = KILLS

    def __init__(self) -> None:
        super().__init__()
        self._turned: dict[Any, int] = {}

    def observe(self, what: str, who: Any, detail: Any) -> None:
        if what == "frame" and isinstance(detail, UrgentBarrier):
            place, number = (who.process.name, detail.channel, detail.handed), detail.barrier.checkpoint_id
            self.count += self._turned.get(place, number) < number
            self._turned[place] = number


class TwoCheckpointsAreFinal(Scenario):
    """The sources end while rows are queued, and several checkpoints are triggered behind the ends: all subtasks have
    finished in each of them, so each is final. The first one in the log ends the job: it contains the committables of
    the others already."""

    section = 9
    rules = ("9.4a",)
    options = FOUR | {"penstock.network.window-bytes": 100_000, "penstock.network.output-queue-bytes": 100_000}
    pace = Pace(work_ms=8.0, upload_ms=(0.0, 20.0))
    faults = FaultPlan(kinds=("kill_slot",), count=2, gap_ms=60.0)

    def declare(self, job: WorkloadBuilder) -> None:
        slow = job.count(job.source(kind="sequence", rows=120, parallelism=2, cost_ms=0.1, keys=8), 3, cost_ms=2.0)
        job.sink(slow, 2)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        if self.cluster.drivers and self.cluster.drivers[-1].host.has_begun:
            publishing = [p for p in _coordinator(self).pending if p.state is CheckpointState.PUBLISHING]
            final = [p for p in publishing if all(s.finished for ack in p.acks.values() for s in ack.subtasks)]
            self.count += len(final) > 1


class GenerationEndsWhileSegmentsAreStored(Scenario):
    """A slot is lost while the others store segments of several checkpoints. They have left the generation only when
    none of these is stored any more: a sweep for what older generations have left would miss what comes later."""

    section = 12
    rules = ("12.2",)
    options = UNALIGNED | FOUR
    pace = Pace(upload_ms=(20.0, 200.0))
    faults = FaultPlan(kinds=("kill_slot",), count=6, gap_ms=80.0)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        if what != "create" or not isinstance(found := parse(detail), SegmentName):
            return
        slot = self.cluster.watch.process_named(who.name)
        self.count += slot is not None and found.generation <= slot.revocations.revoked


class CheckpointsThatHoldEachOtherUp(Scenario):
    """A slot writes its segments more slowly than eight checkpoints allow; half of the runs have such a slot. Each of
    them expires, and the next eight do the same. One at a time completes, well within the timeout, and then several are
    tried again."""

    section = 2
    rules = ("2.8a", "2.8b")
    is_parallel = True
    options = UNALIGNED | {
        "execution.checkpointing.interval": "10 ms",
        "execution.checkpointing.max-concurrent-checkpoints": 8,
        "execution.checkpointing.timeout": f"{TIMEOUT_MS} ms",
    }
    pace = Pace(step_ms=2.0, scale=replace(SMALL, state_range_bytes=1, state_entries_per_batch=1))

    def __init__(self) -> None:
        super().__init__()
        self._expired_in_a_row = 0
        self._seen: set[int] = set()

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="sequence", rows=2500, parallelism=1, cost_ms=2.0, keys=120)
        job.sink(job.count(source, 4, cost_ms=0.1), 1)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        if what != "down" or not isinstance(detail, CheckpointEnded) or detail.checkpoint_id in self._seen:
            return
        self._seen.add(detail.checkpoint_id)
        if detail.aborted:
            self._expired_in_a_row += 1
            if self._expired_in_a_row > EXPIRED_MAX:
                self.cluster.world.violate(f"{self._expired_in_a_row} checkpoints expired, one behind the other")
        else:
            self.count += self._expired_in_a_row > 0
            self._expired_in_a_row = 0


def _coordinator(scenario: Scenario) -> CheckpointCoordinator:
    coordinator: CheckpointCoordinator = scenario.cluster.drivers[-1].host.master.coordinator
    return coordinator


SCENARIOS: list[type[Scenario]] = [
    SlowStoreWithConcurrentCheckpoints, OlderCheckpointIsAcknowledgedLast, OutputNamedByTwoCheckpoints,
    NewerBarrierTurnsOlderOnes, TwoCheckpointsAreFinal, GenerationEndsWhileSegmentsAreStored,
    CheckpointsThatHoldEachOtherUp,
]  # fmt: skip
