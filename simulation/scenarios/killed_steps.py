"""Tests sections 9, 11 and 12: a process is killed at each step of an operation that has several."""

from __future__ import annotations

from typing import Any, ClassVar

from penstock.protocol.values.messages import (
    Cancel,
    CheckpointEnded,
    Connected,
    Deploy,
    EndSources,
    Left,
    ReachedEndOfData,
    Restore,
    Restored,
    SlotAck,
    StartRun,
    TriggerCheckpoint,
)
from simulation.jobs.workload import WorkloadBuilder
from simulation.processes.control_network import ControlLink
from simulation.scenarios.scenario import UNALIGNED, Scenario
from simulation.world.pace import SAVEPOINT_ROOT, Pace

_MESSAGES = (TriggerCheckpoint, SlotAck, CheckpointEnded)
_CALLS = ("create", "delete", "list")


class KilledAtEachStepOfAnIncrementalCheckpoint(Scenario):
    """A process is killed after it has taken the n-th step of a checkpoint, for n = 1, 2, ...: a slot that is
    asked for a checkpoint, has stored a segment or acknowledged it, a driver that has written metadata or a log entry,
    reported the end, or deleted what is not needed any more. Checkpoints name what their predecessors have stored. No
    retained one ever misses an object, and at the end nothing is left over."""

    section = 11
    rules = ("11.18a", "11.18d")
    options = UNALIGNED | {
        "execution.checkpointing.incremental": True,
        "execution.checkpointing.num-retained": 1,
        "execution.checkpointing.interval": "20 ms",
    }
    pace = Pace(work_ms=0.5, slot_start_ms=5.0)

    def __init__(self) -> None:
        super().__init__()
        self._checkpoint: int | None = None
        """The checkpoint whose steps are counted."""
        self._steps = self._named = 0
        self._rests_until = 0
        self._is_over = False

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="sequence", rows=400, parallelism=2, cost_ms=3.0, keys=60)
        job.sink(job.count(source, 3, cost_ms=0.2), 2)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        if what == "up" and isinstance(detail, SlotAck):
            self._named += bool(detail.earlier)
        if self._is_over or not self._is_step(what, detail):
            return
        log = self.cluster.job.log
        assert log is not None
        if isinstance(detail, TriggerCheckpoint) and detail.barrier.checkpoint_id != self._checkpoint:
            if log.published <= self._rests_until:
                return  # nothing has been published since the last kill, so there is nothing to name
            self._is_over = self._checkpoint is not None
            self._checkpoint, self._steps = detail.barrier.checkpoint_id, 0
        if self._checkpoint is None or self._is_over:
            return
        self._steps += 1
        if self._steps > self.count:
            self.count += 1
            self._checkpoint, self._rests_until = None, log.published
            is_driver = what == "up" or (not isinstance(who, ControlLink) and "s" not in who.name)
            name = who.process.name if isinstance(who, ControlLink) else who.name
            self.cluster.world.after(0.0, None, self._kill, None if is_driver else name)

    @staticmethod
    def _is_step(what: str, detail: Any) -> bool:
        return what in _CALLS or (what in ("up", "down") and isinstance(detail, _MESSAGES))

    def _kill(self, slot: str | None) -> None:
        """Kill a slot by its name; None: the driver."""
        if slot is None:
            self.cluster.fault_injector.inject("kill_driver")
        elif (process := self.cluster.watch.process_named(slot)) is not None:
            self.cluster.statistics.faults.append("kill_slot")
            process.kill()

    def has_happened(self) -> bool:
        return self._is_over and self.count > 10 and self._named > 0


class KilledAtEachStepOnDisk(KilledAtEachStepOfAnIncrementalCheckpoint):
    """Kill the driver or a slot behind each step of an incremental checkpoint, as above, with state in RocksDB."""

    rules = ("11.18a", "11.18d")
    options = KilledAtEachStepOfAnIncrementalCheckpoint.options | {"state.backend.type": "rocksdb"}


class _KilledAtEachStep(Scenario):
    """Orders an operation from the running job, again and again, and kills a process after its n-th step, for n = 1, 2,
    ..., until it has no further step: first the driver, then a slot. In between the job makes progress."""

    options = UNALIGNED | {"execution.checkpointing.interval": "30 ms"}
    pace = Pace(work_ms=0.5, slot_start_ms=5.0)
    rows: ClassVar[int] = 2000
    messages: ClassVar[tuple[type, ...]]
    """The messages that are steps; so is each object that is created, each commit and each directory that is opened."""

    def __init__(self) -> None:
        super().__init__()
        self._victims = ["kill_driver", "kill_slot"]
        self._kill_at = 1
        self._steps: int | None = None
        """The steps of what is ordered; None: nothing is."""
        self._is_ordering = False
        self._killed = ""
        self._job, self._rests_until = "", 0
        self.resumed = self.done = 0
        """The number of kills after which the job continued as it was, or as it was told."""

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="sequence", rows=self.rows, parallelism=2, cost_ms=3.0, keys=20)
        job.sink(job.count(source, 3, cost_ms=0.2), 2)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        if not self._victims or self.cluster.job.log is None:
            return
        if self._is_ordering:
            return
        if self._steps is None:
            self._order_if_rested()
        elif (is_done := self.is_done()) or (self._killed and self.is_resumed()):
            self._on_outcome(is_done)
        elif what in ("create", "commit", "open") or (what in ("up", "down") and isinstance(detail, self.messages)):
            self._step()

    def _order_if_rested(self) -> None:
        cluster = self.cluster
        assert cluster.job.log is not None
        if cluster.job.log.published > self._rests_until and cluster.job.log.newest_continues:
            self._job, self._is_ordering, self._killed = cluster.job.directory, True, ""
            cluster.world.after(0.0, None, self._order)

    def _order(self) -> None:
        self._is_ordering, self._steps = False, 0
        self.order()
        self._step()

    def _step(self) -> None:
        assert self._steps is not None and self.cluster.job.log is not None
        self._steps += 1
        if self._steps == self._kill_at and not self._killed:
            self.count += 1
            self._killed, self._rests_until = self._victims[0], self.cluster.job.log.published
            self.on_kill()
            self.cluster.world.after(0.0, None, self.cluster.fault_injector.inject, self._killed)

    def _on_outcome(self, is_done: bool) -> None:
        assert self.cluster.job.log is not None
        self.resumed += bool(self._killed) and not is_done
        self.done += bool(self._killed) and is_done
        self._kill_at += 1
        if not self._killed:
            self._victims.pop(0)
            self._kill_at = 1
        self._steps, self._rests_until = None, self.cluster.job.log.published

    def order(self) -> None:
        """Order the operation to be interrupted."""
        raise NotImplementedError

    def on_kill(self) -> None:
        """Record the objects that exist before a kill."""

    def is_done(self) -> bool:
        """Return whether the order is executed."""
        raise NotImplementedError

    def is_resumed(self) -> bool:
        """Return whether the job continues without it."""
        log = self.cluster.job.log
        return log is not None and log.published > self._rests_until and log.newest_continues

    def has_happened(self) -> bool:
        return not self._victims and self.resumed > 3 and self.done > 3


class KilledAtEachStepOfAStop(_KilledAtEachStep):
    """The driver, or a slot, is killed behind the n-th step of a stop with a savepoint: the order, the directory, a
    trigger, a segment, an acknowledgement, the metadata, the log's entry, a commit, the end. Either the job continues,
    and a driver that lives leaves nothing of the savepoint; or it has ended with the savepoint, and a new job starts
    from it. No row is lost or comes twice."""

    section = 11
    rules = ("11.14a",)
    messages: ClassVar[tuple[type, ...]] = (TriggerCheckpoint, SlotAck, CheckpointEnded)
    kind: ClassVar[str] = "stop_with_savepoint"

    def __init__(self) -> None:
        super().__init__()
        self._orphaned: set[str] = set()
        """Directories that a driver wrote to when it was killed."""

    def order(self) -> None:
        self.cluster.fault_injector.inject(self.kind)

    def on_kill(self) -> None:
        host = self.cluster.drivers[-1].host
        if self._killed == "kill_driver" and host.has_begun:
            self._orphaned.update(host.master.savepoints.pending)

    def is_done(self) -> bool:
        return self.cluster.job.directory != self._job

    def has_happened(self) -> bool:
        cluster = self.cluster
        known = tuple(f"{directory}/" for directory in self._orphaned | cluster.fault_injector.orders.taken)
        left = [n for n in cluster.shared.objects if n.startswith(SAVEPOINT_ROOT) and not n.startswith(known)]
        if left:
            cluster.world.violate(f"savepoints that have failed left {sorted(left)}")
        return super().has_happened()


class KilledAtEachStepOfADrain(KilledAtEachStepOfAStop):
    """The driver, or a slot, is killed behind the n-th step of a stop that ends the sources first, and processes all
    that they have emitted. The outcome is one of the same two."""

    section = 9
    rules = ("9.5",)
    messages = (TriggerCheckpoint, SlotAck, CheckpointEnded, EndSources, ReachedEndOfData)
    kind = "drain_with_savepoint"


class KilledAtEachStepOfARescale(_KilledAtEachStep):
    """The driver, or a slot, is killed behind the n-th step of a rescale: the order, a trigger, a segment, an
    acknowledgement, the metadata, the log's entry, and each message of the restart. Either the job continues as it was,
    or it runs at the parallelism that was ordered. No row is lost or comes twice."""

    section = 12
    rules = ("12.5b",)
    rows = 3000
    messages = (
        TriggerCheckpoint,
        SlotAck,
        CheckpointEnded,
        Cancel,
        Left,
        Deploy,
        Connected,
        Restore,
        Restored,
        StartRun,
    )

    def __init__(self) -> None:
        super().__init__()
        self._rescales = 0
        """The number of rescales that had been done when the present one was ordered."""

    def order(self) -> None:
        self._rescales = self.cluster.statistics.rescales
        self.cluster.fault_injector.inject("rescale_live")

    def is_done(self) -> bool:
        return self.cluster.statistics.rescales > self._rescales and super().is_resumed()

    def is_resumed(self) -> bool:
        driver = self.cluster.drivers[-1]
        return super().is_resumed() and not self.cluster.fault_injector.rescale_orders.unanswered(driver)


SCENARIOS: list[type[Scenario]] = [
    KilledAtEachStepOfAnIncrementalCheckpoint, KilledAtEachStepOnDisk, KilledAtEachStepOfAStop,
    KilledAtEachStepOfADrain, KilledAtEachStepOfARescale,
]  # fmt: skip
