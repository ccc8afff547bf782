"""Tests section 12: slots and generations."""

from __future__ import annotations

from typing import Any

from penstock.protocol.driver.lifecycle import Phase
from penstock.protocol.values.messages import BecomeSpare, Cancel, CheckpointEnded, Deploy, Leave, PeerLost
from penstock.storage.layout import LOG_FOLDER
from simulation.faults.fault_injector import SUSPENSIONS_MS
from simulation.faults.fault_plan import FaultPlan
from simulation.jobs.workload import WorkloadBuilder
from simulation.scenarios.scenario import UNALIGNED, Scenario
from simulation.world.faulty_store import StoreFaults
from simulation.world.pace import Pace


class SpeculativeCopies(Scenario):
    """A speculative copy that returns makes Spark kill the good one; one that replaces it restarts the job again and
    again. Each slot has a copy, which is a spare, and takes over only when the first one is lost."""

    section = 12
    rules = ("12.1a", "12.1b")
    options = UNALIGNED
    pace = Pace(slot_start_ms=30.0)
    faults = FaultPlan(kinds=("kill_slot",), count=3, gap_ms=100.0, speculation_share=1.0)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        self.count += isinstance(detail, BecomeSpare)
        if what == "down" and isinstance(detail, Leave) and self.cluster.drivers[-1].host.has_begun:
            self._check_leaves(who)
        for driver in self.cluster.drivers:
            lifecycle = driver.host.master.lifecycle
            if lifecycle.restarts.count > len(self.cluster.statistics.faults) * 2:
                self.cluster.world.violate(
                    f"{lifecycle.restarts.count} restarts after {len(self.cluster.statistics.faults)} kills"
                )

    def _check_leaves(self, link: Any) -> None:
        """Check that no copy is asked to return while the job runs: Spark would kill the other one."""
        driver = self.cluster.drivers[-1]
        if driver.host.master.lifecycle.phase in (Phase.ENDING, Phase.ENDED):
            return
        places = [(p.slot, p.submission) for p in driver.keeper.processes]
        leaving = next((p for p in driver.keeper.processes if p.link is link), None)
        if leaving is not None and places.count((leaving.slot, leaving.submission)) > 1:
            self.cluster.world.violate(f"{link.process.name} is to return, and Spark kills the other one with it")


class SlotThatTheDriverGaveUpLivesOn(Scenario):
    """The driver loses a slot whose process lives on: its copy plays it, and whatever the old one still sends or
    writes carries an old generation, and counts for nothing."""

    section = 12
    rules = ("12.1",)
    options = UNALIGNED
    faults = FaultPlan(kinds=("break_control_link",), count=3, gap_ms=80.0, speculation_share=1.0)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        """Count new deployments while an older process of some slot is alive."""
        if what == "down" and isinstance(detail, Deploy):
            slots = [p.slot for d in self.cluster.drivers for p in d.keeper.processes]
            self.count += len(slots) > len(set(slots))


class SlotsOutliveTheirDriver(Scenario):
    """The driver is killed, and its slots do not notice for seconds: they continue next to those of the driver that has
    resumed the job, in the same directory."""

    section = 12
    rules = ("12.1",)
    options = UNALIGNED
    faults = FaultPlan(kinds=("kill_driver_unnoticed",), count=2, gap_ms=100.0)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        if what == "down" and isinstance(detail, Deploy):
            others = [p for d in self.cluster.drivers[:-1] for p in d.keeper.processes]
            self.count += len(self.cluster.drivers) > 1 and bool(others)


class ConnectionsBreakWhileProcessesLive(Scenario):
    """Data connections end in the middle of a generation though both processes live: each end says so, and one
    generation follows, not one for each."""

    section = 12
    rules = ("12.2",)
    options = UNALIGNED
    faults = FaultPlan(kinds=("break_data_link",), count=3, gap_ms=100.0)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        self.count += what == "up" and isinstance(detail, PeerLost)
        restarts = self.cluster.drivers[-1].host.master.lifecycle.restarts.count
        if restarts > len(self.cluster.statistics.faults):
            self.cluster.world.violate(f"{restarts} restarts after {len(self.cluster.statistics.faults)} faults")


class SlotHangsDuringARelease(Scenario):
    """User code does not return within task.cancellation.timeout: its process ends hard, and the job continues with
    a new one, instead of waiting for ever.
    """

    section = 12
    rules = ("12.3",)
    options = UNALIGNED | {"task.cancellation.timeout": "2 s", "heartbeat.timeout": "60 s"}
    faults = FaultPlan(kinds=("kill_slot_with_a_stuck_one",), count=1, gap_ms=60.0)

    def has_happened(self) -> bool:
        return self.cluster.world.now_ms > 2000 and bool(self.cluster.statistics.faults)


class GenerationEndsInsideAStep(Scenario):
    """The end of a generation reaches a slot while user code is in the middle of a slice, and its writer in the middle
    of a segment. The step comes to its end, and nothing of it gets out: no frame, no message, no segment; then nothing
    of the generation runs any more, and its handles of state are of no use."""

    section = 12
    rules = ("12.2",)
    options = UNALIGNED | {"penstock.slice.target": "20 ms", "penstock.parking.enabled": False}
    interleaves = True
    pace = Pace(slot_start_ms=5.0, control_ms=10.0, data_ms=0.5)
    faults = FaultPlan(
        kinds=("kill_slot", "kill_slot", "user_failure"), count=6, gap_ms=60.0, store=StoreFaults(late_ms=40.0)
    )

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="sequence", rows=80, parallelism=3, cost_ms=0.2, keys=8)
        counted = job.count(job.expand(source, (2, 3), cost_ms=0.5), 3, cost_ms=0.5)
        job.sink(job.repartition(counted, "rebalance", 3, cost_ms=0.2), 2)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        self.count += what == "down" and isinstance(detail, Cancel) and self.cluster.world.is_let_in


class SlotLeavesDuringARelease(Scenario):
    """A generation is cancelled, and before its threads have ended the driver, which somebody has fenced, tells the
    slot to leave. The slot says that it has left when the cancelled threads have ended, too: what runs on would be
    killed in the middle, and Spark would report a crash."""

    section = 12
    rules = ("12.2",)
    options = GenerationEndsInsideAStep.options
    interleaves = True
    pace = GenerationEndsInsideAStep.pace
    faults = FaultPlan(kinds=("user_failure", "kill_slot"), count=4, gap_ms=60.0)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        if what == "down" and isinstance(detail, Cancel) and self.count < 3:
            self.count += 1
            self.cluster.world.after(0.01, who.process, who.on_message, Leave("another driver owns the job"))


class DriverIsSuspended(Scenario):
    """The driver is suspended for longer than all its limits, while a checkpoint is committed, and then continues.
    Heartbeats and the answer of the commit have arrived meanwhile, and wait for it. Only the driver itself was silent,
    so it gives up nobody."""

    section = 12
    rules = ("12.12a", "12.12b", "12.12c")
    options = UNALIGNED
    pace = Pace(work_ms=30.0)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        if what == "create" and detail.startswith(LOG_FOLDER) and self.count < 4:
            self.count += 1
            world = self.cluster.world
            suspend = self.cluster.fault_injector.inject_now
            world.after(world.chance() * 60, None, suspend, "suspend_driver", SUSPENSIONS_MS[-1])

    def has_happened(self) -> bool:
        restarts = [driver.host.master.lifecycle.restarts.count for driver in self.cluster.drivers]
        if any(restarts) and not self.cluster.world.violations:
            self.cluster.world.violate(f"{sum(restarts)} restarts, although only the driver was suspended")
        return self.count > 0


class StorageIsAwayDuringARestart(Scenario):
    """A slot is lost while the storage answers nothing, for longer than several delays of the restart strategy. Each
    restart fails while it is prepared. Prepared at once, it would fail again and again in an instant, and use up all
    attempts before the storage is back."""

    section = 12
    rules = ("12.13",)
    options = UNALIGNED | {"restart-strategy.fixed-delay.delay": "300 ms", "execution.checkpointing.interval": "50 ms"}

    def observe(self, what: str, who: Any, detail: Any) -> None:
        log, is_over = self.cluster.job.log, isinstance(detail, CheckpointEnded) and not detail.aborted
        if what == "down" and is_over and log is not None and log.published == 2 and not self.count:
            self.count += 1
            self.cluster.world.after(0.0, None, self._go_away)

    def _go_away(self) -> None:
        injector = self.cluster.fault_injector
        injector.store_faults = StoreFaults(refused=1.0)
        injector.inject("kill_slot")
        self.cluster.world.after(self.cluster.world.uniform(1_500, 3_000), None, injector._end_outage)

    def has_happened(self) -> bool:
        return max(driver.host.restarts.failures for driver in self.cluster.drivers) > 3


SCENARIOS: list[type[Scenario]] = [
    SpeculativeCopies, SlotThatTheDriverGaveUpLivesOn, SlotsOutliveTheirDriver, ConnectionsBreakWhileProcessesLive,
    SlotHangsDuringARelease, GenerationEndsInsideAStep, SlotLeavesDuringARelease,
    DriverIsSuspended, StorageIsAwayDuringARestart,
]  # fmt: skip
