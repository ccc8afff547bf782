"""Gives the world to user code of a run, and checks what its functions, sinks and committers do."""

from __future__ import annotations

from typing import Any

from penstock.runtime.process.slot_deployment import SlotDeployment
from simulation.cluster.process_watch import ProcessWatch
from simulation.faults.fault_injector import FaultInjector
from simulation.jobs.output import Output
from simulation.processes.present_job import PresentJob
from simulation.world.call_log import CallLog, CheckpointName
from simulation.world.faulty_store import SharedObjects
from simulation.world.transaction_broker import TransactionBroker
from simulation.world.world import World
from simulation.world.world_hooks import Pending


class UserCodeHooks:
    """Implements `simulation.world.world_hooks.WorldHooks`."""

    def __init__(
        self,
        world: World,
        job: PresentJob,
        output: Output,
        shared: SharedObjects,
        watch: ProcessWatch,
        fault_injector: FaultInjector,
    ) -> None:
        self._world = world
        self._job = job
        self._output = output
        self._shared = shared
        self._watch = watch
        self._fault_injector = fault_injector
        self._calls = CallLog()

    def pass_time(self, elapsed_ms: float) -> None:
        self._world.pass_time(elapsed_ms)

    def now_ms(self) -> float:
        return self._world.now_ms

    def violate(self, what: str) -> None:
        self._world.violate(what)

    def fail_now(self) -> bool:
        if self._fault_injector.failing_functions and self._world.chance() < 0.2:
            self._fault_injector.failing_functions -= 1
            return True
        return False

    def keep(self, handle: Any) -> None:
        if (slot := self._watch.running_slot()) is not None:
            slot.revocations.keep(handle)

    def on_timer(self, operator: str, timestamp_ms: int) -> None:
        if self._world.observer is not None:
            self._world.observer("timer", operator, timestamp_ms)

    def objects(self) -> dict[str, bytes]:
        return self._shared.objects

    def broker(self) -> TransactionBroker:
        return self._output.broker

    def calls(self) -> CallLog:
        return self._calls

    def incarnation(self) -> str:
        return self._deployment().plan.incarnation

    def restored_from(self) -> CheckpointName | None:
        metadata = self._deployment().metadata
        return None if metadata is None else (metadata.incarnation, metadata.checkpoint_id)

    def _deployment(self) -> SlotDeployment:
        slot = self._watch.running_slot()
        assert slot is not None and slot.runtime._deployment is not None
        return slot.runtime._deployment

    def prepare(self, name: str, pending: Pending) -> None:
        if name in self._output.pending:
            self._world.violate(f"pending output {name} is written a second time")
        self._output.pending[name] = pending

    def confirm(self, name: str) -> None:
        if name not in self._output.committed:
            self._world.violate(f"{name} is confirmed to its writer, but was never committed")
        self._output.confirmed.add(name)

    def commit(self, name: str) -> None:
        if self._world.observer is not None:
            self._world.observer("commit", self._world.running, name)
        if name in self._output.confirmed:
            self._world.violate(f"{name} is committed again after its writer was told that it never is")
        if self._job.log is not None and name.encode() not in self._job.log.committable:
            self._world.violate(f"{name} is committed, but no checkpoint in the log says so")
        if name not in self._output.pending:
            self._world.violate(f"{name} is committed, but was never prepared")
        if self._fault_injector.failing_commits:
            self._fault_injector.failing_commits -= 1
            if self._world.chance() < 0.5:
                raise OSError("simulated failure before a commit")
            self._make_visible(name)
            raise OSError("simulated failure after a commit")
        self._make_visible(name)

    def _make_visible(self, name: str) -> None:
        if (wrong := self._output.commit_transaction(name)) is not None:
            self._world.violate(wrong)
        if name in self._output.committed:
            self._output.repeated += 1
        else:
            self._output.committed[name] = None
            self._world.tell("output", f"committed {name}")
