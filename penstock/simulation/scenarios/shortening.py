"""Tests section 11 for a log that is shortened. `PROTOCOL.md` has the rules (11.3 to 11.8)."""

from __future__ import annotations

from typing import Any

from penstock.simulation.scenarios.scenario import UNALIGNED, Scenario
from penstock.simulation.settings import Pace
from penstock.simulation.workload import WorkloadBuilder
from penstock.storage.layout import LOG_FOLDER, METADATA_NAME

KEPT = 2
"""As the small scale of scenarios has it."""


class _LongJob(Scenario):
    section = 11
    options = UNALIGNED
    pace = Pace(work_ms=0.5, slot_start_ms=10.0)

    def declare(self, job: WorkloadBuilder) -> None:
        slow = job.count(job.source(kind="sequence", rows=120, parallelism=2, cost_ms=0.1, keys=8), 3, cost_ms=2.0)
        job.sink(slow, 2)

    @property
    def is_shortened(self) -> bool:
        log = self.cluster.log
        return log is not None and log.base > 0


class DriverPausedAcrossAShortening(_LongJob):
    """A driver sleeps between the metadata of a checkpoint and its log entry. Its successor fences that position,
    publishes on, and deletes the fence with everything else below the base. The sleeper wakes up, and creates its entry
    at the free position: create-if-absent says that it is the first. It must not believe it."""

    def observe(self, what: str, who: Any, detail: Any) -> None:
        cluster = self.cluster
        if what != "create" or who is not cluster.drivers[0].process or self.count:
            return
        if detail.endswith(METADATA_NAME) and cluster.log is not None and cluster.log.published >= 2:
            self.count += 1
            cluster.fault_injector.inject_now("pause_driver", cluster.world.uniform(500, 2000))
            cluster.world.after(1.0, None, cluster.start_driver)

    def has_happened(self) -> bool:
        return self.cluster.log is not None and bool(self.cluster.log.void)


class DriverKilledBeforeItDeletes(_LongJob):
    """A driver dies between the entry that names a higher base and the deletion of what lies below it. Its successor
    takes over the log as the entry says, and deletes what was left."""

    def observe(self, what: str, who: Any, detail: Any) -> None:
        if what == "create" and detail.startswith(LOG_FOLDER) and self.is_shortened and self.count < 3:
            self.count += 1
            self.cluster.world.after(0.0, None, self.cluster.fault_injector.inject, "kill_driver")


class TakeoverWhileTheLogIsShortened(_LongJob):
    """A driver that resumes the job has listed the log and sleeps, while the running one publishes on and deletes what
    was listed. The position behind the end of that listing is free by now, and a fence there fences nobody."""

    def __init__(self) -> None:
        super().__init__()
        self._lists = 0

    def observe(self, what: str, who: Any, detail: Any) -> None:
        cluster, log = self.cluster, self.cluster.log
        assert log is not None
        if what == "create" and detail.startswith(LOG_FOLDER) and log.published == 2 and len(cluster.drivers) == 1:
            cluster.start_driver()
        elif len(cluster.drivers) == 2 and who is cluster.drivers[1].process and not self.count:
            is_listing = what == "list" and detail == LOG_FOLDER
            self._lists += is_listing
            # The first list is that of who starts the job; the fence follows the second one, and a look at the newest.
            if self._lists == 2 and (is_listing or what == "get"):
                pause_ms = cluster.world.uniform(0, 50) if is_listing else cluster.world.uniform(50, 500)
                cluster.fault_injector.inject_now("pause_driver", pause_ms)
                self.count += what == "get"

    def has_happened(self) -> bool:
        return self.cluster.log is not None and bool(self.cluster.log.void)


class ShorteningOnAFullDisk(_LongJob):
    """The disk is full again and again: entries are refused, and so is the deletion of older ones. The log stays
    readable, and what could not be deleted is deleted later."""

    def observe(self, what: str, who: Any, detail: Any) -> None:
        if what in ("create", "delete") and str(detail).startswith(LOG_FOLDER) and self.is_shortened:
            if self.count < 12 and self.cluster.world.chance() < 0.4:
                self.count += 1
                self.cluster.fail_next_store_call()


SCENARIOS: list[type[Scenario]] = [
    DriverPausedAcrossAShortening, DriverKilledBeforeItDeletes, TakeoverWhileTheLogIsShortened, ShorteningOnAFullDisk,
]  # fmt: skip
