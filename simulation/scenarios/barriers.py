"""Tests sections 2 and 4: barriers, and frames that are larger than their credit."""

from __future__ import annotations

from typing import Any

from penstock.protocol.values.frames import AlignedBarrier, CancelBarrier, Data, UrgentBarrier
from penstock.protocol.values.messages import CheckpointEnded, Decline
from simulation.faults.fault_plan import FaultPlan
from simulation.faults.user_orders import Patience
from simulation.jobs.workload import WorkloadBuilder
from simulation.scenarios.scenario import TIMEOUT, UNALIGNED, Scenario
from simulation.world.pace import Pace


class NewerBarrierMeetsAnExpiredOne(Scenario):
    """A newer checkpoint overtakes a queued aligned barrier: N is snapshotted after N+1, or always declined. One
    checkpoint is triggered at a time, so N has expired by then; its barriers are still on the wire and in queues, and
    ids are handled in growing order all the same (the sink's writer checks it)."""

    section = 2
    rules = ("2.1",)
    options = TIMEOUT | {
        "execution.checkpointing.timeout": "40 ms",
        "execution.checkpointing.aligned-checkpoint-timeout": "15 ms",
    }
    pace = Pace(data_ms=8.0, control_ms=0.5, work_ms=0.5)

    def __init__(self) -> None:
        super().__init__()
        self._newest: dict[tuple[str, Any], int] = {}
        self._expired: set[int] = set()

    def observe(self, what: str, who: Any, detail: Any) -> None:
        if what == "down" and isinstance(detail, CheckpointEnded) and detail.aborted:
            self._expired.add(detail.checkpoint_id)
            # The slots have succeeded once: from here on there is time enough, or the job would never end.
            if len(self._expired) >= 8:
                for driver in self.cluster.drivers:
                    coordinator = driver.host.master.coordinator
                    coordinator.settings = type(coordinator.settings)(
                        coordinator.settings.interval_ms,
                        coordinator.settings.min_pause_ms,
                        60_000.0,
                        coordinator.settings.concurrent_max,
                        coordinator.settings.alignment_timeout_ms,
                        coordinator.settings.tolerable_failures_max,
                    )
        elif what == "frame" and isinstance(detail, (AlignedBarrier, UrgentBarrier)):
            self.count += detail.barrier.checkpoint_id in self._expired


class BarriersTurnAtBothEnds(Scenario):
    """The alignment timeout passes while an aligned barrier waits in an output queue, and while others wait in input
    queues: each end turns its own, and a barrier is never seen twice."""

    section = 2
    rules = ("1.4", "2.2")
    options = TIMEOUT | {"penstock.network.window-bytes": 700}
    pace = Pace(data_ms=1.0)
    faults = FaultPlan(kinds=("kill_slot",), count=2, gap_ms=80.0)

    def __init__(self) -> None:
        super().__init__()
        self._aligned: set[int] = set()
        self._urgent: set[int] = set()

    def observe(self, what: str, who: Any, detail: Any) -> None:
        if what == "frame" and isinstance(detail, AlignedBarrier):
            self._aligned.add(detail.barrier.checkpoint_id)
        elif what == "frame" and isinstance(detail, UrgentBarrier):
            self._urgent.add(detail.barrier.checkpoint_id)

    def has_happened(self) -> bool:
        return bool(self._aligned & self._urgent)


class CancelOvertakesAlignedBarriers(Scenario):
    """A subtask in the middle declines: its cancel frames pass rows and meet aligned barriers of the same checkpoint
    that have come, wait in queues or are still on their way. Everyone declines once, and the next checkpoint works."""

    section = 2
    rules = ("2.3a",)
    options = {"execution.checkpointing.timeout": "60 s"}
    pace = Pace(data_ms=3.0)

    def __init__(self) -> None:
        super().__init__()
        self._declined = 0

    def observe(self, what: str, who: Any, detail: Any) -> None:
        if what == "frame" and isinstance(detail, CancelBarrier):
            self.count += 1
        elif what == "frame" and isinstance(detail, AlignedBarrier) and self._declined < 4:
            if self.cluster.world.chance() < 0.5:
                self._declined += 1
                self.cluster.world.after(0.0, who.process, self._decline, who, detail)

    @staticmethod
    def _decline(endpoint: Any, frame: AlignedBarrier) -> None:
        """Take back the producer's last element: the subtask declines, and notifies its own consumers."""
        deployment = endpoint.listener._deployment
        if deployment is not None:
            deployment.deliver(CancelBarrier(frame.channel, frame.barrier.checkpoint_id))


class BarriersComeLongAfterTheirCheckpoints(Scenario):
    """A producer's process sleeps while hundreds of checkpoints expire, and their barriers come when it wakes up. The
    consumer has taken its snapshots at the barriers of the other producer, and knows that all have ended. If it had
    forgotten old checkpoints, it would take their barriers for late ones, and decline each to all consumers."""

    section = 2
    rules = ("2.3b",)
    options = UNALIGNED
    pace = Pace(data_ms=0.2, control_ms=0.2)
    SLEEP_MS = 2_000.0
    BEHIND_MS = 1_000.0
    """A checkpoint that ended so long before has ended long ago."""

    def __init__(self) -> None:
        super().__init__()
        self._awake_ms: float | None = None
        self._ended_ms: dict[tuple[str, int], float] = {}
        """When each process learned that a checkpoint had ended."""

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="sequence", rows=80, parallelism=2, cost_ms=0.5, keys=8)
        job.sink(job.count(source, 1, cost_ms=0.1), 2)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        world, log = self.cluster.world, self.cluster.job.log
        if what == "create" and log is not None and log.published and self._awake_ms is None:
            self._awake_ms = world.now_ms + self.SLEEP_MS
            world.after(0.0, None, self._put_to_sleep)
        if what == "down" and isinstance(detail, CheckpointEnded):
            self._ended_ms[who.process.name, detail.checkpoint_id] = world.now_ms
        elif what == "frame" and isinstance(detail, UrgentBarrier):
            self.count += self._is_long_over(who.process.name, detail.barrier.checkpoint_id)
        elif (
            what == "up" and isinstance(detail, Decline) and self._is_long_over(who.process.name, detail.checkpoint_id)
        ):
            world.violate(f"{who.process.name} declines {detail.checkpoint_id}, which ended long ago")

    def _is_long_over(self, process: str, checkpoint_id: int) -> bool:
        ended_ms = self._ended_ms.get((process, checkpoint_id))
        return ended_ms is not None and self.cluster.world.now_ms - ended_ms > self.BEHIND_MS

    def _put_to_sleep(self) -> None:
        assert self._awake_ms is not None
        self.cluster.patience = Patience(lambda timeout: None)  # nobody gives checkpoints more time
        slot = next(p for p in self.cluster.drivers[-1].keeper.processes if p.slot == 1)
        slot.process.pause_until(self._awake_ms)
        self._expire()

    def _expire(self) -> None:
        world = self.cluster.world
        if self._awake_ms is not None and world.now_ms < self._awake_ms:
            self.cluster.fault_injector.inject("expire_checkpoint")
            world.after(4.0, None, self._expire)

    def has_happened(self) -> bool:
        return self.count > 100


class RowsBehindAnAlignedBarrier(Scenario):
    """One producer's barrier has come, and rows behind it wait, while the other producer is slow. Read before the
    snapshot, they are applied again after a restore."""

    section = 2
    rules = ("2.6",)
    pace = Pace(data_ms=0.5)
    faults = FaultPlan(kinds=("kill_slot",), count=3, gap_ms=60.0)

    def declare(self, job: WorkloadBuilder) -> None:
        fast = job.source(kind="sequence", rows=80, parallelism=2, cost_ms=0.1, keys=8)
        slow = job.source(kind="sequence", rows=60, parallelism=1, cost_ms=3.0, keys=8)
        job.sink(job.count(job.union(fast, slow), 2, cost_ms=0.2), 2)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        if what != "frame" or not isinstance(detail, Data):
            return
        for runner in who.listener._deployment.runners:
            self.count += any(c.id == detail.channel and c.blocked for c in runner.deployed.gate.channels)


class FramesLargerThanTheirCredit(Scenario):
    """A frame is larger than the window of its channel. Held back until there is credit for all of it, it never leaves;
    one frame leaves whenever any credit is left."""

    section = 4
    rules = ("4.1",)
    options = {
        "penstock.network.window-bytes": 700,
        "penstock.network.bound-bytes-min": 600,
        "penstock.network.overdraft-bytes-max": 100_000,
    }

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="sequence", rows=20, parallelism=2, cost_ms=0.1, keys=8)
        job.sink(job.count(job.expand(source, (40, 60), cost_ms=0.01), 2, cost_ms=0.05), 2)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        if what == "frame" and isinstance(detail, Data):
            self.count += detail.size_bytes > 700


class SegmentCannotBeWritten(Scenario):
    """The store refuses some slots' segments, or has written them and says that it has not: the checkpoint ends with a
    decline by that slot, whatever the others have done, and the next one works."""

    section = 2
    rules = ("2.4",)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        if what == "create" and detail.startswith("shared/") and self.count < 5 and self.cluster.world.chance() < 0.4:
            self.count += 1
            self.cluster.fail_next_store_call(is_carried_out=self.cluster.world.chance() < 0.5)


SCENARIOS: list[type[Scenario]] = [
    NewerBarrierMeetsAnExpiredOne, RowsBehindAnAlignedBarrier, BarriersTurnAtBothEnds, CancelOvertakesAlignedBarriers,
    BarriersComeLongAfterTheirCheckpoints, FramesLargerThanTheirCredit, SegmentCannotBeWritten,
]  # fmt: skip
