"""Tests section 11: folders of rows that are written before their driver owns the log, as those of DataFrames."""

from __future__ import annotations

from typing import Any

from penstock.jobmaster.ports import CancelRequested
from penstock.storage.layout import FRAMES_FOLDER, LOG_FOLDER
from simulation.jobs.workload import WorkloadBuilder
from simulation.scenarios.scenario import UNALIGNED, Scenario
from simulation.world.pace import Pace


class _StoredRows(Scenario):
    """A job whose source reads a folder of its directory."""

    section = 11
    options = UNALIGNED
    pace = Pace(work_ms=2.0)

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="ranges", rows=120, parallelism=2, cost_ms=0.1, keys=8, timed=None, stored=True)
        job.sink(job.count(source, 3, cost_ms=1.0), 2)


class StorageFailsBeforeTheLogIsOwned(_StoredRows):
    """A driver resumes the job, and its storage takes nothing new (a full disk) before its fence is there. It gives up.
    A checkpoint that it has not restored names the folder, which the next driver reads."""

    rules = ("11.23a",)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        cluster, log = self.cluster, self.cluster.job.log
        if log is None or what != "create":
            return
        if len(cluster.drivers) == 1 and detail.startswith(LOG_FOLDER) and log.published == 2 and not self.count:
            self.count = 1
            cluster.world.after(0.0, None, cluster.fault_injector.inject, "kill_driver")
        elif self.count and len(cluster.drivers) == 2 and who is cluster.drivers[1].process:
            self.count = 2
            cluster.fail_next_store_call()

    def has_happened(self) -> bool:
        return self.count == 2


class SuspendedBeforeTheLogIsOwned(_StoredRows):
    """A driver resumes the job, and its user suspends it before its fence is there. It deletes no rows."""

    rules = ("11.23a",)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        cluster, log = self.cluster, self.cluster.job.log
        if log is None or what not in ("create", "size", "delete", "get", "list"):
            return
        if len(cluster.drivers) == 1:
            if what == "create" and detail.startswith(LOG_FOLDER) and log.published == 2 and not self.count:
                self.count = 1
                cluster.world.after(0.0, None, cluster.fault_injector.inject, "kill_driver")
        elif self.count == 1 and detail.startswith("probe/") and who is cluster.drivers[1].process:
            self.count = 2
            cluster.world.after(0.0, who, cluster.drivers[1].host.handle, CancelRequested(suspends=True))

    def has_happened(self) -> bool:
        return self.count == 2


class TwoStartsWriteTheRows(_StoredRows):
    """Two drivers start the job at once, and each writes a folder. One of them loses the job, and ends while the other
    one's slots read theirs. Or it wakes up behind checkpoints of the other one."""

    rules = ("11.23b",)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        cluster = self.cluster
        if what == "create" and detail.startswith(FRAMES_FOLDER) and self.count == 0:
            self.count = 1
            cluster.world.after(cluster.world.chance() * 3, None, cluster.start_driver)
        elif what == "list" and detail == LOG_FOLDER and self.count == 1 and len(cluster.drivers) == 2:
            self.count = 2
            if cluster.world.chance() < 0.5 and who is cluster.drivers[-1].process:
                cluster.fault_injector.inject_now("pause_driver", cluster.world.uniform(10, 1000))

    def has_happened(self) -> bool:
        return self.count == 2


class FencedDriverHasWrittenTheRows(_StoredRows):
    """A driver has written the folder and published checkpoints that name it. Another one takes the job over, and reads
    the folder; the first one ends."""

    rules = ("11.23c",)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        log = self.cluster.job.log
        if what == "create" and detail.startswith(LOG_FOLDER) and log is not None and log.published == 2:
            if not self.count:
                self.count = 1
                self.cluster.world.after(0.5, None, self.cluster.start_driver)


SCENARIOS = (
    StorageFailsBeforeTheLogIsOwned,
    SuspendedBeforeTheLogIsOwned,
    TwoStartsWriteTheRows,
    FencedDriverHasWrittenTheRows,
)
