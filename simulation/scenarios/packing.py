"""Tests section 12: slots that share a process, because there are fewer task places than slots."""

from __future__ import annotations

from typing import Any

from penstock.protocol.values.messages import Deploy, Leave
from simulation.jobs.workload import WorkloadBuilder
from simulation.processes.slot_process import SlotProcess
from simulation.scenarios.scenario import OPTIONS, UNALIGNED, Scenario
from simulation.world.pace import Pace
from simulation.world.places import PlacePlan


class PackedSlotGetsAPlace(Scenario):
    """There is one place fewer than slots: the slot without one is played by a process that plays another. When there
    is a place for it, its own process takes it over by a restart that is no failure, and the other one continues."""

    section = 12
    rules = ("12.4",)
    options = UNALIGNED | {"restart-strategy.fixed-delay.attempts": 0}
    pace = Pace(slot_start_ms=30.0)
    places = PlacePlan(missing=1, changes=((2_000.0, 1),))

    def __init__(self) -> None:
        super().__init__()
        self.was_packed = False

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="sequence", rows=240, parallelism=3, cost_ms=2.0, keys=8)
        job.sink(job.count(job.repartition(source, "rebalance", 3, cost_ms=4.0), 3, cost_ms=6.0), 2)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        if what == "down" and isinstance(detail, Deploy):
            self.was_packed |= any(p.host is not None for p in self._processes)
            if not self.was_packed and not self.cluster.world.violations:
                self.cluster.world.violate("the job waits for a place for each slot, and no process plays two")
        self.count += what == "down" and isinstance(detail, Leave) and "place of its own" in detail.message

    @property
    def _processes(self) -> list[SlotProcess]:
        return [p for driver in self.cluster.drivers for p in driver.keeper.processes]

    def has_happened(self) -> bool:
        if self.was_packed and not self.count and self.cluster.world.now_ms > 3_000:
            self.cluster.world.violate("a slot shares a process to the end, though there is a place for it")
        return self.was_packed and self.count > 0


class PackedSlotsAreLost(PackedSlotGetsAPlace):
    """Places go and come: a process is killed with all the slots that it plays, and those that remain play them."""

    rules = ("12.4",)
    options = UNALIGNED
    places = PlacePlan(missing=1, changes=((1_500.0, -1), (1_500.0, 2), (600.0, -1), (1_000.0, 1)))

    def has_happened(self) -> bool:
        return self.was_packed


class PackedSlotIsLostBeforeTheFirstRun(PackedSlotGetsAPlace):
    """Without checkpoints nobody is submitted for a slot that was packed. The process that plays it is killed before
    the job has run for the first time, and there are places enough by then: the slot is packed again all the same."""

    rules = ("12.4",)
    options = {name: None for name in OPTIONS if name.startswith("execution.checkpointing.")}
    places = PlacePlan(missing=1)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        hosts = {p.host for p in self._processes if p.host is not None}
        if what == "down" and isinstance(detail, Deploy) and hosts and not self.was_packed:
            self.was_packed = True
            self.cluster.world.after(0.0, None, self._inject, hosts)

    def _inject(self, hosts: set[SlotProcess]) -> None:
        self.cluster.drivers[-1].keeper.places.change(8)
        self.cluster.statistics.faults.append("kill_host")
        for host in hosts:
            host.kill()

    def has_happened(self) -> bool:
        return self.was_packed


SCENARIOS: list[type[Scenario]] = [PackedSlotGetsAPlace, PackedSlotsAreLost, PackedSlotIsLostBeforeTheFirstRun]
