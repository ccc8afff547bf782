"""Tests section 11: somebody is killed at each step of an incremental checkpoint, one after the other."""

from __future__ import annotations

from typing import Any

from penstock.protocol.values.messages import CheckpointEnded, SlotAck, TriggerCheckpoint
from penstock.simulation.control_network import ControlLink
from penstock.simulation.scenarios.scenario import UNALIGNED, Scenario
from penstock.simulation.settings import Pace
from penstock.simulation.workload import WorkloadBuilder

_MESSAGES = (TriggerCheckpoint, SlotAck, CheckpointEnded)
_CALLS = ("create", "delete", "list")


class KilledAtEachStepOfAnIncrementalCheckpoint(Scenario):
    """A process is killed behind the n-th step of a checkpoint, which it has taken, for n = 1, 2, ...: a slot that is
    asked for a checkpoint, has stored a segment or acknowledged it, a driver that has written metadata or a log entry,
    reported the end, or deleted what is not needed any more. Checkpoints name what their predecessors have stored. No
    retained one ever misses an object, and at the end nothing is left over."""

    section = 11
    options = UNALIGNED | {
        "execution.checkpointing.incremental": True,
        "execution.checkpointing.num-retained": 1,
        "execution.checkpointing.interval": "20 ms",
    }
    pace = Pace(work_ms=0.5, slot_start_ms=5.0)

    def __init__(self) -> None:
        super().__init__()
        self._checkpoint: int | None = None
        """The one whose steps are counted."""
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
        log = self.cluster.log
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
        elif (process := self.cluster._process_named(slot)) is not None:
            self.cluster.statistics.faults.append("kill_slot")
            process.kill()

    def has_happened(self) -> bool:
        return self._is_over and self.count > 10 and self._named > 0


class KilledAtEachStepOnDisk(KilledAtEachStepOfAnIncrementalCheckpoint):
    """Kill the driver or a slot behind each step of an incremental checkpoint, as above, with state in RocksDB."""

    options = KilledAtEachStepOfAnIncrementalCheckpoint.options | {"state.backend.type": "rocksdb"}


SCENARIOS: list[type[Scenario]] = [KilledAtEachStepOfAnIncrementalCheckpoint, KilledAtEachStepOnDisk]
