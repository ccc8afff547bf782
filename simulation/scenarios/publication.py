"""Tests section 11: publication, commits, fencing."""

from __future__ import annotations

from typing import Any

from penstock.protocol.values.log_entries import Ended
from penstock.protocol.values.reasons import FailureReason
from penstock.storage.layout import LOG_FOLDER, METADATA_NAME
from simulation.faults.fault_plan import FaultPlan
from simulation.jobs.workload import WorkloadBuilder
from simulation.scenarios.scenario import UNALIGNED, Scenario
from simulation.world.pace import Pace


class PausedDriverPublishesLate(Scenario):
    """Create-if-absent of `chk-12` is no fence: a paused driver publishes 12 or 13 after another one has restored 11,
    and both commit. It is paused between its metadata and its log entry, and again after its entry, before the
    commit; it wakes up while the driver runs that has taken over."""

    section = 11
    rules = ("11.1a",)
    options = UNALIGNED
    pace = Pace(work_ms=1.0)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        cluster = self.cluster
        if what != "create" or who is not cluster.drivers[-1].process or self.count >= 3:
            return
        wanted = detail.endswith(METADATA_NAME) if self.count % 2 == 0 else detail.startswith("log/")
        log = cluster.job.log
        if wanted and log is not None and log.published >= 1 + self.count:
            self.count += 1
            cluster.fault_injector.inject_now("pause_driver", cluster.world.uniform(500, 4000))
            cluster.world.after(1.0, None, cluster.start_driver)


class ReplyOfTheLogIsLost(Scenario):
    """A reply is lost and the retry is refused, so a driver would take its own entry for another's, and delete its
    checkpoint. Every second creation in the log, and some of the metadata's, is carried out and reported as failed;
    others fail without being carried out."""

    section = 11
    rules = ("11.1b",)
    options = UNALIGNED

    def observe(self, what: str, who: Any, detail: Any) -> None:
        if what == "create" and (detail.startswith("log/") or detail.endswith(METADATA_NAME)):
            drawn = self.cluster.world.chance()
            if drawn < 0.6:
                self.count += 1
                self.cluster.fail_next_store_call(is_carried_out=drawn < 0.4)


class DriverKilledBeforeCommit(Scenario):
    """The driver dies after the log entry was written, and before it has committed anything. The next driver commits
    from the metadata, and commits nothing twice. Without this: a committable in flight is lost, or committed a
    checkpoint late."""

    section = 11
    rules = ("11.10a", "11.10b", "11.20")
    options = {"execution.checkpointing.interval": "20 ms"}
    pace = Pace(work_ms=0.5)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        log = self.cluster.job.log
        if what == "create" and detail.startswith("log/") and log is not None and self.count < 4:
            if len(log.entries) % 3 == 2:
                self.count += 1
                self.cluster.world.after(0.0, None, self.cluster.fault_injector.inject, "kill_driver")


class TransactionalIdsAreUsedAgain(Scenario):
    """A writer uses the id of a committed transaction again, and the driver dies: the next one repeats the commits of
    the checkpoint that it restores. Under an id that is in use again it would commit a part of a later transaction, or
    find its own one aborted."""

    section = 11
    rules = ("11.20",)
    options = {"execution.checkpointing.interval": "15 ms"}
    pace = Pace(work_ms=10.0)
    faults = FaultPlan(kinds=("kill_driver", "commit_failure"), count=10, gap_ms=80.0)

    def declare(self, job: WorkloadBuilder) -> None:
        slow = job.count(job.source(kind="sequence", rows=300, parallelism=2, cost_ms=0.1, keys=8), 3, cost_ms=2.0)
        job.sink(slow, 2, held_rows_max=0, is_transactional=True)

    def has_happened(self) -> bool:
        return self.cluster.output.broker.starts_again > 0 and self.cluster.output.repeated > 0


class CommitFailsBeforeTheFinalCheckpoint(Scenario):
    """The commit of a checkpoint fails while the final one is being published: the restart that it asks for does not
    happen any more, and the last commits would wait for ever. (Found by a random seed.)"""

    section = 11
    rules = ("11.10a",)
    options = {"execution.checkpointing.interval": "15 ms"}
    pace = Pace(work_ms=30.0, data_ms=0.1, control_ms=0.1)
    faults = FaultPlan(kinds=("commit_failure",), count=6, gap_ms=40.0)

    def has_happened(self) -> bool:
        return "commit_failure" in self.cluster.statistics.faults


class TwoDriversTakeOverAtOnce(Scenario):
    """Two drivers resume the same directory while the first one lives: the one that appends its fence last owns the
    job, the others stop and delete nothing.
    """

    section = 11
    rules = ("11.1a",)
    options = UNALIGNED

    def observe(self, what: str, who: Any, detail: Any) -> None:
        log = self.cluster.job.log
        if what == "create" and detail.startswith("log/") and not self.count and log is not None and log.published:
            self.count += 1
            for delay_ms in (0.5, 0.5):
                self.cluster.world.after(delay_ms, None, self.cluster.start_driver)


class OldDriverPublishesBeforeTheFence(Scenario):
    """A driver that takes over has listed the log, and sleeps. The old driver publishes a checkpoint and commits its
    output before the fence is there. What is restored is read behind the fence: the newest checkpoint of that list
    would be restored below output that is committed."""

    section = 11
    rules = ("11.2",)
    options = UNALIGNED | {"execution.checkpointing.num-retained": 3}
    pace = Pace(work_ms=0.5, slot_start_ms=10.0)

    def __init__(self) -> None:
        super().__init__()
        self._lists = 0

    def observe(self, what: str, who: Any, detail: Any) -> None:
        cluster, log = self.cluster, self.cluster.job.log
        if log is None or what not in ("create", "list") or not detail.startswith(LOG_FOLDER):
            return
        if len(cluster.drivers) == 1:
            if log.published == 2:
                cluster.start_driver()
        elif what == "list" and who is cluster.drivers[1].process:
            self._lists += 1
            if self._lists == 2:  # the first list is part of the start of the job
                cluster.fault_injector.inject_now("pause_driver", cluster.world.uniform(10, 30))
        elif what == "create" and who is cluster.drivers[0].process and self._lists == 2:
            self.count += log.owner == cluster.drivers[0].host.incarnation


class FencedDriverHasUsedTheNextId(Scenario):
    """A driver sleeps with all acknowledgements of a checkpoint in its inbox. Its successor has looked which ids are
    used when it wakes up and writes the metadata of the very id that the successor will use first. That checkpoint is
    given up, which is no failure: the job, which tolerates none, does not restart."""

    section = 11
    rules = ("11.9",)
    options = UNALIGNED | {"execution.checkpointing.tolerable-failed-checkpoints": 0}
    pace = Pace(work_ms=0.5, slot_start_ms=10.0)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        cluster, log = self.cluster, self.cluster.job.log
        if what == "create" and "/g" in detail and log is not None and log.published >= 2 and not self.count:
            self.count += 1
            cluster.fault_injector.inject_now("pause_driver", cluster.world.uniform(10, 40))
            cluster.world.after(0.0, None, cluster.start_driver)

    def has_happened(self) -> bool:
        is_taken = FailureReason.ID_TAKEN in self.cluster.statistics.aborted
        restarts = [d.host.master.lifecycle.restarts.count for d in self.cluster.drivers if d.host.has_begun]
        if any(restarts):
            self.cluster.world.violate(f"drivers restarted {restarts} times, and nothing has failed")
        return is_taken


class FailedJobIsResumed(Scenario):
    """No restart is allowed: the job fails with its first lost slot, keeps its newest checkpoint, releases everything
    and is resumed by a new driver, three times. Each end is an entry of the log, and each resume a fence after it."""

    section = 11
    rules = ("11.12",)
    options = UNALIGNED | {
        "restart-strategy.type": "none",
        "restart-strategy.fixed-delay.attempts": None,
        "restart-strategy.fixed-delay.delay": None,
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
    }
    faults = FaultPlan(kinds=("kill_slot",), count=3, gap_ms=80.0, rescale_share=0.5)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        self.cluster.job.is_resumed_after_failure = True

    def has_happened(self) -> bool:
        log = self.cluster.job.log
        assert log is not None
        self.count = sum(isinstance(e, Ended) and e.state == "FAILED" for e in log.entries)
        return self.count > 0


SCENARIOS: list[type[Scenario]] = [
    PausedDriverPublishesLate, ReplyOfTheLogIsLost, DriverKilledBeforeCommit, CommitFailsBeforeTheFinalCheckpoint,
    TransactionalIdsAreUsedAgain, TwoDriversTakeOverAtOnce, OldDriverPublishesBeforeTheFence,
    FencedDriverHasUsedTheNextId, FailedJobIsResumed,
]  # fmt: skip
