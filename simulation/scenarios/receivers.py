"""Tests section 6: restores at another parallelism, where receivers of a broadcast have read different rows."""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

from penstock.jobmaster.rescales import RESTORED
from penstock.protocol.restore.receivers import uneven_broadcasts
from penstock.protocol.values.elements import SnapshotKind
from penstock.protocol.values.frames import Data
from penstock.protocol.values.messages import Deploy, ReleaseVertices, Restore, TriggerCheckpoint
from penstock.protocol.values.metadata import Metadata
from simulation.jobs.broadcast_branch import await_rules
from simulation.jobs.workload import WorkloadBuilder
from simulation.scenarios.rescaling import Rescaled
from simulation.scenarios.scenario import UNALIGNED, Scenario
from simulation.world.pace import Pace
from simulation.world.places import PlacePlan


class ReceiversReadTheSameRowsFirst(Rescaled):
    """Some receivers of a broadcast have read rows that others have not, and the job is resumed with another number of
    them. It begins with as many as it had, and its sources emit nothing until all have read the same rows."""

    section = 6
    rules: ClassVar[tuple[str, ...]] = ("6.3a", "6.3b")
    resumes_max = 4

    def declare(self, job: WorkloadBuilder) -> None:
        rows = job.source(kind="ranges", rows=80, parallelism=2, cost_ms=0.5, keys=8, timed=None)
        rules = job.source(1, kind="ranges", rows=24, parallelism=1, cost_ms=1.0, keys=8, timed=None)
        job.sink(await_rules(job, rows, rules, keyed=True, parallelism=3, cost_ms=2.0), 2)

    def is_right(self, metadata: Metadata) -> bool:
        return bool(uneven_broadcasts(metadata))

    @property
    def restored(self) -> int:
        """Return the number of times that the job has continued at the parallelism that it was resumed at."""
        masters = [driver.host.master for driver in self.cluster.drivers if driver.host.has_begun]
        return sum(report.reason == RESTORED for master in masters for report in master.rescales.reports)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        super().observe(what, who, detail)
        if what == "frame" and isinstance(detail, Data):
            deployment = who.listener._deployment
            if deployment is None or not deployment.plan.holds_sources:
                return
            edge = deployment.plan.graph.edges[detail.channel.edge]
            if deployment.plan.graph.vertices[edge.source].is_source and not self.cluster.world.violations:
                self.cluster.world.violate("a source emits rows before all receivers have read the same ones")

    def has_happened(self) -> bool:
        return self.count > 0 and self.restored > 0


class FaultsWhileReceiversReadTheSameRows(ReceiversReadTheSameRowsFirst):
    """Slots and drivers die at each step of such a restore, its checkpoint expires, and a user asks for savepoints and
    for yet another parallelism. Whatever has been reached, both steps are taken again if they are still needed."""

    rules = ("6.3a",)
    pace = Pace(work_ms=4.0)

    def __init__(self) -> None:
        super().__init__()
        self.struck: Counter[str] = Counter()

    def observe(self, what: str, who: Any, detail: Any) -> None:
        super().observe(what, who, detail)
        driver, world = self.cluster.drivers[-1], self.cluster.world
        is_held = driver.host.has_begun and driver.host.master.job.holds_sources
        if what != "down" or not is_held or not isinstance(
            detail, (Deploy, Restore, ReleaseVertices, TriggerCheckpoint)
        ):  # fmt: skip
            return
        step = type(detail).__name__
        if isinstance(detail, TriggerCheckpoint) and detail.barrier.kind is SnapshotKind.RESCALE:
            step = "the checkpoint"
        if self.struck[step] < 2 and world.chance() < 0.4:
            self.struck[step] += 1
            kind = world.random.choice(
                ("kill_slot", "kill_slot", "kill_driver", "kill_driver", "take_over", "expire_checkpoint", "savepoint",
                 "stop_with_savepoint", "drain_with_savepoint", "rescale_live")
            )  # fmt: skip
            world.after(world.chance() * 6, None, self.cluster.fault_injector.inject, kind)

    def has_happened(self) -> bool:
        return super().has_happened() and bool(self.struck)


class CheckpointBetweenTheStepsExpires(ReceiversReadTheSameRowsFirst):
    """All receivers have read the same rows, and the checkpoint with which the second step begins expires. The job
    does not stay as it is: its sources would emit nothing for ever."""

    rules = ("6.3c",)

    def __init__(self) -> None:
        super().__init__()
        self.expired = 0

    def observe(self, what: str, who: Any, detail: Any) -> None:
        super().observe(what, who, detail)
        driver = self.cluster.drivers[-1]
        is_taken = isinstance(detail, TriggerCheckpoint) and detail.barrier.kind is SnapshotKind.RESCALE
        if what == "down" and is_taken and driver.host.master.job.holds_sources and self.expired < 3:
            self.expired += 1
            self.cluster.world.after(0.0, None, self.cluster.fault_injector.inject, "expire_checkpoint")

    def has_happened(self) -> bool:
        return super().has_happened() and self.expired > 0


class DrainIsOrderedWhileSourcesAreHeld(ReceiversReadTheSameRowsFirst):
    """A user stops the job, and wants its sources to end before, while they are held. He is refused, and may ask again:
    the sources cannot end before the second step, and that would wait for the stop."""

    rules = ("6.3d",)

    def __init__(self) -> None:
        super().__init__()
        self.ordered = 0

    def observe(self, what: str, who: Any, detail: Any) -> None:
        super().observe(what, who, detail)
        is_held = self.cluster.drivers[-1].host.has_begun and self.cluster.drivers[-1].host.master.job.holds_sources
        if what == "down" and isinstance(detail, ReleaseVertices) and is_held and self.ordered < 3:
            self.ordered += 1
            self.cluster.world.after(0.0, None, self.cluster.fault_injector.inject, "drain_with_savepoint")

    def has_happened(self) -> bool:
        return super().has_happened() and self.ordered > 0


class ReceiversShareProcesses(ReceiversReadTheSameRowsFirst):
    """There are fewer places than the first step needs: processes play several slots until the second one."""

    rules = ("6.3a",)
    options = UNALIGNED | ReceiversReadTheSameRowsFirst.options
    places = PlacePlan(missing=2)

    def __init__(self) -> None:
        super().__init__()
        self.is_shared = False

    def observe(self, what: str, who: Any, detail: Any) -> None:
        super().observe(what, who, detail)
        if what == "down" and isinstance(detail, Deploy) and self.cluster.drivers[-1].host.master.job.holds_sources:
            self.is_shared |= any(p.host is not None for p in self.cluster.drivers[-1].keeper.processes)

    def has_happened(self) -> bool:
        return super().has_happened() and self.is_shared


SCENARIOS: list[type[Scenario]] = [
    ReceiversReadTheSameRowsFirst, FaultsWhileReceiversReadTheSameRows, CheckpointBetweenTheStepsExpires,
    DrainIsOrderedWhileSourcesAreHeld, ReceiversShareProcesses,
]  # fmt: skip
