"""Tests section 12: jobs that run in as many slots as there are places for."""

from __future__ import annotations

from typing import Any

from penstock.jobmaster.rescales import AFTER_A_LOSS, AT_THE_START, MORE_SLOTS, RESTORED
from penstock.monitoring.report import RescaleReport
from penstock.protocol.driver.rescaling import RescalePhase
from penstock.protocol.restore.receivers import uneven_broadcasts
from penstock.protocol.values.messages import Deploy
from penstock.storage.layout import LOG_FOLDER
from simulation.faults.fault_plan import FaultPlan
from simulation.jobs.broadcast_branch import await_rules
from simulation.jobs.workload import WorkloadBuilder
from simulation.scenarios.scenario import UNALIGNED, Scenario
from simulation.world.pace import Pace
from simulation.world.places import PlacePlan

_KEY = "jobmanager.adaptive-scheduler."
ADAPTIVE: dict[str, Any] = UNALIGNED | {
    "jobmanager.scheduler": "adaptive",
    f"{_KEY}submission.resource-wait-timeout": "60 s",
    f"{_KEY}submission.resource-stabilization-timeout": "300 ms",
    f"{_KEY}executing.resource-stabilization-timeout": "400 ms",
    f"{_KEY}executing.cooldown-after-rescaling": "200 ms",
}


class AdaptiveJob(Scenario):
    """Runs a job of three slots."""

    section = 12
    options = ADAPTIVE
    pace = Pace(slot_start_ms=30.0)

    def __init__(self) -> None:
        super().__init__()
        self.is_shared = False

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="sequence", rows=240, parallelism=3, cost_ms=4.0, keys=8)
        job.sink(job.count(job.repartition(source, "rebalance", 3, cost_ms=6.0), 3, cost_ms=8.0), 2)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        if what == "down" and isinstance(detail, Deploy):
            processes = [p for driver in self.cluster.drivers for p in driver.keeper.processes]
            self.is_shared |= any(p.host is not None for p in processes)
            self.on_deploy(detail)

    def on_deploy(self, deploy: Deploy) -> None:
        """Look at a message by which a slot is deployed."""

    @property
    def rescales(self) -> list[RescaleReport]:
        masters = [driver.host.master for driver in self.cluster.drivers if driver.host.has_begun]
        return [rescale for master in masters for rescale in master.rescales.reports]

    def went(self, reason: str) -> list[tuple[int, int]]:
        """Return the slots before and after each change for this reason."""
        return [(max(r.before), max(r.after)) for r in self.rescales if r.reason == reason]

    def must(self, holds: bool, what: str) -> bool:
        if not holds and not self.cluster.world.violations:
            self.cluster.world.violate(f"{what}: {[(r.reason, r.before, r.after) for r in self.rescales]}")
        return holds


class AdaptiveJobStartsInFewerSlots(AdaptiveJob):
    """There is one place fewer than slots. The job begins in the others, and no process plays two. When there is a
    place for the third, it gets it while it runs."""

    rules = ("12.8a", "12.10a")
    options = ADAPTIVE | {"restart-strategy.fixed-delay.attempts": 0}
    places = PlacePlan(missing=1, changes=((1_500.0, 1),))

    def has_happened(self) -> bool:
        self.must(not self.is_shared, "a process plays two slots, although the job can run in fewer")
        self.must(self.went(AT_THE_START) == [(3, 2)], "the job does not begin in two slots")
        return self.must(self.went(MORE_SLOTS) == [(2, 3)], "the job does not get its third slot")


class AdaptiveJobLosesAPlaceForGood(AdaptiveJob):
    """A place vanishes while the job runs, and comes back a second later. The job restarts from its newest checkpoint
    in the slots that are left, and grows again."""

    rules = ("12.8a",)
    places = PlacePlan(changes=((500.0, -1), (1_500.0, 1)))

    def has_happened(self) -> bool:
        self.must(self.went(AFTER_A_LOSS) == [(3, 2)], "the job does not run in the slots that are left")
        return self.must(self.went(MORE_SLOTS) == [(2, 3)], "the job does not get its third slot again")


class AdaptiveJobWaitsForAProcessThatComesBack(AdaptiveJob):
    """A process dies, and Spark starts it again at once. The job waits for it, and keeps its parallelism."""

    rules = ("12.8b",)
    faults = FaultPlan(kinds=("kill_slot",), count=4, gap_ms=150.0)

    def has_happened(self) -> bool:
        return self.must(self.rescales == [], "the job is rescaled, although every process comes back")


class AdaptiveJobWaitsForItsLeastSlots(AdaptiveJob):
    """Two places of three go, and the job needs two slots at least. It does not run in the one that is left, and no
    process plays two. When one place comes back, it runs in two slots, and in three when the other one comes."""

    rules = ("12.8c",)
    options = ADAPTIVE | {f"{_KEY}min-parallelism": 2}
    places = PlacePlan(changes=((500.0, -2), (2_000.0, 1), (1_500.0, 1)))

    def has_happened(self) -> bool:
        self.must(not self.is_shared, "a process plays two slots, although the job waits for its least slots")
        self.must(self.went(AFTER_A_LOSS) == [(3, 2)], "the job does not run in its least slots")
        return self.must(self.went(MORE_SLOTS) == [(2, 3)], "the job does not get its third slot again")


class PlacesComeOneAfterTheOther(AdaptiveJob):
    """Two places go, and come back one after the other. One rescale takes both: the job waits for the second one."""

    rules = ("12.10b",)
    places = PlacePlan(changes=((500.0, -2), (1_500.0, 1), (250.0, 1)))

    def has_happened(self) -> bool:
        self.must(self.went(AFTER_A_LOSS) == [(3, 1)], "the job does not run in the slot that is left")
        return self.must(self.went(MORE_SLOTS) == [(1, 3)], "the job is rescaled for each place that comes")


class AdaptiveJobRestsBetweenRescales(AdaptiveJob):
    """Two places go, and come back so slowly that the job does not wait for the second one. It rests after the first
    rescale."""

    rules = ("12.10b",)
    options = ADAPTIVE | {f"{_KEY}executing.cooldown-after-rescaling": "2 s"}
    places = PlacePlan(changes=((500.0, -2), (1_500.0, 1), (1_800.0, 1)))

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="sequence", rows=600, parallelism=3, cost_ms=8.0, keys=8)
        job.sink(job.count(job.repartition(source, "rebalance", 3, cost_ms=8.0), 3, cost_ms=8.0), 2)

    def has_happened(self) -> bool:
        raised = [r.ended_wall_ms for r in self.rescales if r.reason == MORE_SLOTS]
        gaps = [later - earlier for earlier, later in zip(raised, raised[1:])]
        self.must(all(gap >= 2_000 for gap in gaps), f"the job does not rest between two rescales ({gaps} ms)")
        return self.must(self.went(MORE_SLOTS) == [(1, 2), (2, 3)], "the job does not grow step by step")


class SlotIsLostForGoodInTheRestartOfARescale(AdaptiveJob):
    """The user orders a third slot. In the restart of the rescale a place goes. The job runs in the slots that are
    left, and the user hears that it was not rescaled."""

    rules = ("12.11",)
    faults = FaultPlan(kinds=("rescale_live",), count=6, gap_ms=100.0)
    places = PlacePlan(changes=((9_000.0, 1),))

    def on_deploy(self, deploy: Deploy) -> None:
        machine = self.cluster.drivers[-1].host.master.machine.rescaling
        if machine.phase is RescalePhase.RESTARTING and len(deploy.peers) > 1 and not self.count:
            self.count += 1
            self.cluster.world.after(0.0, None, self.cluster.drivers[-1].keeper.places.change, -1)

    def has_happened(self) -> bool:
        return self.count > 0 and bool(self.went(AFTER_A_LOSS))


class CheckpointNeedsAllItsSlots(AdaptiveJob):
    """Loses a place for a slot while receivers of a broadcast have read different rows. What they have not read cannot
    go to fewer receivers: a living process plays the missing slot, too, until all have read the same rows. Then the job
    runs in the slots that are left."""

    rules = ("12.9",)
    places = PlacePlan(changes=((400.0, -1), (1_500.0, 1)))

    def declare(self, job: WorkloadBuilder) -> None:
        rows = job.source(kind="ranges", rows=200, parallelism=3, cost_ms=4.0, keys=8, timed=None)
        rules = job.source(1, kind="ranges", rows=60, parallelism=1, cost_ms=3.0, keys=8, timed=None)
        job.sink(await_rules(job, rows, rules, keyed=True, parallelism=3, cost_ms=8.0), 2)

    def has_happened(self) -> bool:
        return self.is_shared and (3, 2) in self.went(RESTORED)


class LoweredJobLosesItsDriver(AdaptiveJob):
    """Kills the driver while the job runs in fewer slots and receivers of a broadcast have read different rows. The
    next one wants all slots, but its receivers can only be as many as before: it begins in as many slots as the
    checkpoint has, and gets the others later."""

    rules = ("12.9",)
    places = PlacePlan(missing=1, changes=((1_500.0, 1),))

    def declare(self, job: WorkloadBuilder) -> None:
        rows = job.source(kind="ranges", rows=160, parallelism=3, cost_ms=4.0, keys=8, timed=None)
        rules = job.source(1, kind="ranges", rows=40, parallelism=1, cost_ms=3.0, keys=8, timed=None)
        job.sink(await_rules(job, rows, rules, keyed=True, parallelism=3, cost_ms=8.0), 2)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        log = self.cluster.job.log
        if what == "create":
            self.must(not self.cluster.statistics.refused, "the next driver refuses the checkpoint")
        if what == "create" and detail.startswith(LOG_FOLDER) and log is not None and log.newest is not None:
            slots = max(vertex.parallelism for vertex in log.newest.vertices)
            if slots == 2 and uneven_broadcasts(log.newest) and self.count < 3:
                self.count += 1
                self.cluster.world.after(0.0, None, self.cluster.fault_injector.inject, "kill_driver")

    def has_happened(self) -> bool:
        return self.count > 0


SCENARIOS: list[type[Scenario]] = [
    AdaptiveJobStartsInFewerSlots, AdaptiveJobLosesAPlaceForGood, AdaptiveJobWaitsForAProcessThatComesBack,
    AdaptiveJobWaitsForItsLeastSlots, PlacesComeOneAfterTheOther, AdaptiveJobRestsBetweenRescales,
    SlotIsLostForGoodInTheRestartOfARescale, CheckpointNeedsAllItsSlots, LoweredJobLosesItsDriver,
]  # fmt: skip
