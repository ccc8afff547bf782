"""Aims failures at moments that random ones rarely hit. Sections 3 and 11."""

from __future__ import annotations

from typing import Any

from penstock.protocol.driver.lifecycle import Phase
from penstock.protocol.values.messages import Restored, SubtaskFailed
from penstock.protocol.values.reasons import SubtaskFailureReason
from penstock.storage.layout import LOG_FOLDER
from simulation.jobs.workload import WorkloadBuilder
from simulation.scenarios.local_copies import RestoredWhileItRuns
from simulation.scenarios.scenario import UNALIGNED, Scenario
from simulation.world.pace import Bounds, Pace


class FailureAfterTheSweep(Scenario):
    """Checkpoints are rarer than the sweep that follows a restart. When it comes, the newest checkpoint still lies in
    segments of a generation that is gone; a sweep that deletes by generation alone takes them away, and the next
    failure finds nothing to restore."""

    section = 11
    rules = ("11.11a",)
    options = UNALIGNED | {"heartbeat.timeout": "2 s", "execution.checkpointing.interval": "1 h"}
    options |= {"execution.checkpointing.min-pause": "30 s"}
    pace = Pace(slot_start_ms=10.0)

    def declare(self, job: WorkloadBuilder) -> None:
        slow = job.count(job.source(kind="sequence", rows=160, parallelism=2, cost_ms=0.1, keys=8), 2, cost_ms=80.0)
        job.sink(slow, 2)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        log, fault_injector = self.cluster.job.log, self.cluster.fault_injector
        assert log is not None
        if what == "up" and isinstance(detail, Restored) and not self.count:
            self.count = 1
            self.cluster.world.after(200.0, None, fault_injector.inject, "request_checkpoint")
        elif what == "create" and detail.startswith(LOG_FOLDER) and self.count == 1:
            self.count = 2
            self.cluster.world.after(200.0, None, fault_injector.inject, "kill_slot")
        elif what == "list" and detail == "" and 2 <= self.count < 5 and log.published == 1:
            # The first sweep is that of the first generation, which spares what this generation has written.
            self.count += 1
            self.cluster.world.after(200.0, None, fault_injector.inject, "kill_slot")

    def has_happened(self) -> bool:
        return self.count > 3


class FailureRightAfterARestore(Scenario):
    """A slot dies as soon as the first checkpoint after a restore is published, and again after the next restore. What
    was recovered is in that checkpoint as unread layers, or not at all."""

    section = 3
    rules = ("3.1",)
    options = UNALIGNED
    pace = Pace(slot_start_ms=10.0)

    def __init__(self) -> None:
        super().__init__()
        self._published = 0
        self._waits = False

    def observe(self, what: str, who: Any, detail: Any) -> None:
        log = self.cluster.job.log
        assert log is not None
        if what == "up" and isinstance(detail, Restored):
            self._waits, self._published = True, log.published
        elif what == "create" and detail.startswith(LOG_FOLDER) and self._waits and log.published > self._published:
            self._waits = False
            if self.count < 4:
                self.count += 1
                self.cluster.world.after(0.0, None, self.cluster.fault_injector.inject, "kill_slot")

    def has_happened(self) -> bool:
        return self.count > 1


class AnyBitFlips(Scenario):
    """One bit of a retained checkpoint flips, anywhere in its metadata or a segment, and a slot dies. The job fails and
    names the object, or nobody reads the bit. The damaged data is never used."""

    section = 3
    rules = ("3.6a",)
    options = UNALIGNED

    def observe(self, what: str, who: Any, detail: Any) -> None:
        log = self.cluster.job.log
        assert log is not None
        if what == "create" and detail.startswith(LOG_FOLDER) and log.published == 2 and not self.count:
            self.cluster.world.after(0.0, None, self._flip)

    def _flip(self) -> None:
        cluster, random = self.cluster, self.cluster.world.random
        assert cluster.job.log is not None and cluster.job.log.newest is not None
        newest = cluster.job.log.entries[-1].path
        path = random.choice([newest, *(s.path for s in cluster.job.log.newest.segments)])
        name = f"{cluster.job.directory}/{path}"
        data = bytearray(cluster.shared.objects[name])
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        cluster.shared.objects[name] = bytes(data)
        self.count += 1
        cluster.job.expected_failure = cluster.job.log.damaged = path
        cluster.fault_injector.stop_checkpoints()
        cluster.fault_injector.inject("kill_slot")


class DamageIsFoundWhileTheJobRuns(AnyBitFlips):
    """A bit flips in state that is loaded while the job runs, so a row, or the load in the background, finds the
    damage. The job fails for good, because each restart would find it again."""

    rules = ("3.6b",)
    options = RestoredWhileItRuns.options
    bounds = Bounds(events_max=10_000)  # it has a tenth of them; a job that restarts for ever takes minutes for more
    is_found = False

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="sequence", rows=1200, parallelism=2, cost_ms=2.0, keys=100)
        job.sink(job.count(source, 3, cost_ms=0.2), 2)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        if what == "up" and isinstance(detail, SubtaskFailed) and detail.reason is SubtaskFailureReason.DAMAGED_RANGE:
            self.is_found |= self.cluster.drivers[-1].host.master.lifecycle.phase is Phase.RUNNING
        super().observe(what, who, detail)

    def has_happened(self) -> bool:
        return self.is_found


SCENARIOS: list[type[Scenario]] = [
    FailureAfterTheSweep,
    FailureRightAfterARestore,
    AnyBitFlips,
    DamageIsFoundWhileTheJobRuns,
]
