"""Tests section 11 for a log that is shortened. `PROTOCOL.md` has the rules (11.3 to 11.8)."""

from __future__ import annotations

from typing import Any

from penstock.protocol.values.messages import Deploy
from penstock.storage.layout import LOG_FOLDER, METADATA_NAME
from simulation.jobs.workload import WorkloadBuilder
from simulation.scenarios.scenario import UNALIGNED, Scenario
from simulation.world.pace import Pace

KEPT = 2
"""The number of entries that the small scale of scenarios keeps."""


class _LongJob(Scenario):
    section = 11
    options = UNALIGNED
    pace = Pace(work_ms=0.5, slot_start_ms=10.0)

    def declare(self, job: WorkloadBuilder) -> None:
        slow = job.count(job.source(kind="sequence", rows=120, parallelism=2, cost_ms=0.1, keys=8), 3, cost_ms=2.0)
        job.sink(slow, 2)

    @property
    def is_shortened(self) -> bool:
        log = self.cluster.job.log
        return log is not None and log.base > 0


class DriverPausedAcrossAShortening(_LongJob):
    """A driver sleeps between the metadata of a checkpoint and its log entry. Its successor fences that position,
    publishes on, and deletes the fence with everything else below the base. The sleeper wakes up, and creates its entry
    at the free position: create-if-absent says that it is the first. It must not believe it."""

    rules = ("11.5a",)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        cluster = self.cluster
        if what != "create" or who is not cluster.drivers[0].process or self.count:
            return
        if detail.endswith(METADATA_NAME) and cluster.job.log is not None and cluster.job.log.published >= 2:
            self.count += 1
            cluster.fault_injector.inject_now("pause_driver", cluster.world.uniform(500, 2000))
            cluster.world.after(1.0, None, cluster.start_driver)

    def has_happened(self) -> bool:
        return self.cluster.job.log is not None and bool(self.cluster.job.log.void)


class TwoFreshStarts(_LongJob):
    """Two drivers start one job afresh. The first one has listed the log, which is empty, and sleeps. The second one
    puts its fence at position 0, publishes on, and deletes what lies below the base. The sleeper wakes up, and creates
    its fence at position 0, which is free again. It is refused: the job has a log, and nothing is deployed."""

    rules = ("11.5c",)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        cluster, first = self.cluster, self.cluster.drivers[0]
        if what == "list" and detail == LOG_FOLDER and not self.count:
            self.count += 1
            cluster.fault_injector.inject_now("pause_driver", cluster.world.uniform(1000, 3000))
            cluster.world.after(1.0, None, cluster.start_driver)
        elif what == "down" and isinstance(detail, Deploy) and any(slot.link is who for slot in first.keeper.processes):
            cluster.world.violate(f"{first.process.name} deploys a job whose log it has not got")

    def has_happened(self) -> bool:
        log = self.cluster.job.log
        return log is not None and [position for position, _ in log.void] == [0]


class ListLacksTheNewestEntry(DriverPausedAcrossAShortening):
    """A driver sleeps across a shortening, as above, and its list after a creation is the one from before, because a
    client has cached it. Such a list lacks the driver's own entry, so it proves nothing about the position, and the
    driver lists again."""

    rules = ("11.6",)
    LACKING_MAX = 2

    def __init__(self) -> None:
        super().__init__()
        self._listed: dict[str, list[str]] = {}
        """The entries of the log that each process was shown last."""
        self._lacking: dict[str, int] = {}
        """The number of lists that are still to lack the entry which a process has created last."""
        self._lacked_void_entry = False

    def observe(self, what: str, who: Any, detail: Any) -> None:
        super().observe(what, who, detail)
        if what == "create" and detail.startswith(f"{LOG_FOLDER}/"):
            log, world = self.cluster.job.log, self.cluster.world
            self.cluster.shared.on_listed = self._listed_before
            is_void = log is not None and self.count > 0 and who is self.cluster.drivers[0].process
            self._lacking[who.name] = self.LACKING_MAX if is_void else world.random.choice((0, 0, self.LACKING_MAX))

    def _listed_before(self, process: str, prefix: str, found: list[str]) -> list[str]:
        if prefix != LOG_FOLDER:
            return found
        before = self._listed.get(process)
        if before is not None and self._lacking.get(process):
            self._lacking[process] -= 1
            log = self.cluster.job.log
            self._lacked_void_entry |= log is not None and bool(log.void)
            return before
        self._listed[process] = found
        return found

    def has_happened(self) -> bool:
        return super().has_happened() and self._lacked_void_entry


class DriverIsFencedWhileItReadsTheLog(_LongJob):
    """A driver that resumes the job has put its fence, and sleeps before it reads what lies below. Another one takes
    over, publishes on, and deletes what the sleeper is about to read. It lists the log, and stops as one that has lost
    the job: nothing is damaged."""

    rules = ("11.7",)

    def __init__(self) -> None:
        super().__init__()
        self._has_slept = False

    def observe(self, what: str, who: Any, detail: Any) -> None:
        cluster, log = self.cluster, self.cluster.job.log
        assert log is not None
        if what == "create" and detail.startswith(LOG_FOLDER) and log.published == 3 and len(cluster.drivers) == 1:
            cluster.start_driver()
        if len(cluster.drivers) < 2 or who is not cluster.drivers[1].process:
            return
        if what == "list" and detail == LOG_FOLDER and not self._has_slept:
            if log.owner == cluster.drivers[1].host.incarnation:
                self._has_slept = True
                cluster.fault_injector.inject_now("pause_driver", cluster.world.uniform(1000, 4000))
                cluster.world.after(1.0, None, cluster.start_driver)
        elif what == "get" and detail.startswith(LOG_FOLDER):
            self.count += f"{cluster.job.directory}/{detail}" not in cluster.shared.objects


class DriverKilledBeforeItDeletes(_LongJob):
    """A driver dies between the entry that names a higher base and the deletion of what lies below it. Its successor
    takes over the log as the entry says, and deletes what was left."""

    rules = ("11.3b", "11.8")

    def observe(self, what: str, who: Any, detail: Any) -> None:
        if what == "create" and detail.startswith(LOG_FOLDER) and self.is_shortened and self.count < 3:
            self.count += 1
            self.cluster.world.after(0.0, None, self.cluster.fault_injector.inject, "kill_driver")


class TakeoverWhileTheLogIsShortened(_LongJob):
    """A driver that resumes the job has listed the log and sleeps, while the running one publishes on and deletes what
    was listed. The position behind the end of that listing is free by now, and a fence there fences nobody."""

    rules = ("11.3a", "11.5b")

    def __init__(self) -> None:
        super().__init__()
        self._lists = 0

    def observe(self, what: str, who: Any, detail: Any) -> None:
        cluster, log = self.cluster, self.cluster.job.log
        assert log is not None
        if what == "create" and detail.startswith(LOG_FOLDER) and log.published == 2 and len(cluster.drivers) == 1:
            cluster.start_driver()
        elif len(cluster.drivers) == 2 and who is cluster.drivers[1].process and not self.count:
            is_listing = what == "list" and detail == LOG_FOLDER
            self._lists += is_listing
            # The start of the job lists first. The fence follows the second list, and a read of the newest entry.
            if self._lists == 2 and (is_listing or what == "get"):
                pause_ms = cluster.world.uniform(0, 50) if is_listing else cluster.world.uniform(50, 500)
                cluster.fault_injector.inject_now("pause_driver", pause_ms)
                self.count += what == "get"

    def has_happened(self) -> bool:
        return self.cluster.job.log is not None and bool(self.cluster.job.log.void)


class ShorteningOnAFullDisk(_LongJob):
    """The disk is full again and again: entries are refused, and so is the deletion of older ones. The log stays
    readable, and entries that could not be deleted are deleted later."""

    rules = ("11.4",)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        if what in ("create", "delete") and str(detail).startswith(LOG_FOLDER) and self.is_shortened:
            if self.count < 12 and self.cluster.world.chance() < 0.4:
                self.count += 1
                self.cluster.fail_next_store_call()


SCENARIOS: list[type[Scenario]] = [
    DriverPausedAcrossAShortening, TwoFreshStarts, ListLacksTheNewestEntry, DriverIsFencedWhileItReadsTheLog,
    DriverKilledBeforeItDeletes, TakeoverWhileTheLogIsShortened, ShorteningOnAFullDisk,
]  # fmt: skip
