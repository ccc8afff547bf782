"""Tests section 5 for timers of processing time, which nothing fires at the end of input. All slots have one wall
clock.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from penstock.common.types import Types
from penstock.protocol.restore.rescale import edges_in_flight
from penstock.protocol.values.messages import Register, ReleaseVertices, SlotAck
from penstock.protocol.values.metadata import Metadata
from simulation.jobs import simulated_functions as f
from simulation.jobs import timed_functions as t
from simulation.jobs.idle_branch import scripted
from simulation.jobs.scripted import Script
from simulation.jobs.workload import WorkloadBuilder
from simulation.scenarios.idleness import splits_of
from simulation.scenarios.rescaling import FULL, Rescaled
from simulation.scenarios.scenario import Scenario
from simulation.world.pace import Pace

_APART = 1000
_NAPPING = 60
"""Rows with numbers below wait for a timer. Those behind them keep the sources going until all timers have fired."""


class ProcessingTimersOverRestarts(Rescaled):
    """Timers of processing time are registered; before they are due the job is restarted and rescaled. Each fires once,
    though the function never asks again, and nothing fires them at the end of input."""

    section = 5
    rules = ("5.5a",)
    options = FULL | {"execution.checkpointing.interval": "10 ms"}
    pace = Pace(slot_start_ms=5.0, work_ms=0.5)
    nap_ms, cost_ms = 250, 0.05

    def __init__(self) -> None:
        super().__init__()
        self.restarts = 0

    def declare(self, job: WorkloadBuilder) -> None:
        awake = [step for i in range(_NAPPING, 200) for step in ((i, 1), (None, 2))]
        scripts = tuple(
            Script(owner, owner * _APART, ((0, _NAPPING), *awake, (None, 2000), (200, 1))) for owner in range(2)
        )
        source = scripted(job, scripts, cost_ms=0.1, timeout_ms=10**6, at_source=True)
        nap = t.NapOnce("nap", self.nap_ms, _NAPPING, self.cost_ms)
        after = source.stream.key_by(f.key_of, Types.LONG()).process(nap, f.ROW_TYPE)
        expected = replace(source.expected, ordered=False, clock=None, patient=False)
        job.sink(job.finish(after, 2, expected, "nap", True, [source], "keyed"), 2)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        super().observe(what, who, detail)
        if what == "up" and isinstance(detail, Register):
            for driver in self.cluster.drivers:
                for slot in driver.keeper.processes:
                    slot.process.wall_skew_ms = 0

    @staticmethod
    def sleeps(metadata: Metadata) -> bool:
        """Return whether rows wait for timers, and none is to come that would ask for one."""
        kept = [state for s in metadata.subtasks for state in s.keyed]
        steps = [split["step"] for s in metadata.subtasks for split in splits_of(s)]
        return any(state.name == "held" for state in kept) and min(steps, default=0) > 10

    def is_right(self, metadata: Metadata) -> bool:
        if self.restarts == 4 or not self.sleeps(metadata):
            return False
        self.restarts += 1
        if self.restarts % 2:
            self.cluster.fault_injector.inject("kill_slot")
            return False
        return True

    def has_happened(self) -> bool:
        return self.restarts > 1


class ProcessingTimersWaitForTheEndOfDraining(ProcessingTimersOverRestarts):
    """Timers of processing time are due when the job is resumed with rows in flight. None fires before the job has
    drained; then each does, once."""

    rules = ("5.5b",)

    nap_ms, cost_ms = 30, 2.0
    resumes_max = 2

    def __init__(self) -> None:
        super().__init__()
        self.is_draining = False

    def observe(self, what: str, who: Any, detail: Any) -> None:
        super().observe(what, who, detail)
        if what == "down" and isinstance(detail, ReleaseVertices) and detail.is_last:
            self.is_draining = False
        elif what == "timer" and self.is_draining:
            self.cluster.world.violate(f"{who}: the timer of {detail} fired while the job drained")

    def is_right(self, metadata: Metadata) -> bool:
        found = any(state.name == "held" for s in metadata.subtasks for state in s.keyed)
        self.is_draining = found and bool(edges_in_flight(metadata)) and not metadata.draining
        return self.is_draining

    def has_happened(self) -> bool:
        return self.count > 0 and self.cluster.statistics.rescales > 0


class ProcessingTimersThatAreAlwaysDue(Scenario):
    """A timer of processing time is due again before it has ended. The rows and the barriers behind it are taken all
    the same, so that the job comes to its end, and a checkpoint to its own."""

    section = 5
    rules = ("5.5c",)
    options = FULL | {"execution.checkpointing.interval": "10 ms"}
    pace = Pace(slot_start_ms=5.0, work_ms=0.5)

    def __init__(self) -> None:
        super().__init__()
        self.published = 0

    def declare(self, job: WorkloadBuilder) -> None:
        source = job.source(kind="sequence", rows=40, parallelism=2, cost_ms=0.1, keys=3)
        after = source.stream.key_by(f.key_of, Types.LONG()).process(t.PollsTooOften("polls", 3.0), f.ROW_TYPE)
        expected = replace(source.expected, ordered=False, clock=None, patient=False)
        job.sink(job.finish(after, 2, expected, "polls", True, [source], "keyed"), 2)

    def observe(self, what: str, who: Any, detail: Any) -> None:
        self.count += what == "timer"
        self.published += what == "up" and isinstance(detail, SlotAck) and self.count > 0

    def has_happened(self) -> bool:
        return self.count > 10 and self.published > 2


SCENARIOS: list[type[Scenario]] = [
    ProcessingTimersOverRestarts,
    ProcessingTimersWaitForTheEndOfDraining,
    ProcessingTimersThatAreAlwaysDue,
]
