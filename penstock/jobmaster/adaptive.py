"""Executes what `protocol.job.adaptive_scaling` decides: starts the job in fewer slots, and rescales it to more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from penstock.common.clock import Clock
from penstock.common.job_execution import RescaleFailed
from penstock.common.options import JobManagerOptions
from penstock.graph.compatibility import IncompatibleGraph
from penstock.graph.job_graph import JobGraph
from penstock.graph.rescaling import RescaleRefused, rescaled
from penstock.jobmaster.console import Console
from penstock.jobmaster.fit import Fit, fitted_in_steps
from penstock.jobmaster.orders import RescaleOrder
from penstock.jobmaster.ports import SlotSubmitter
from penstock.jobmaster.rescales import Rescales
from penstock.jobmaster.restore import RestorePoint
from penstock.jobmaster.settings import JobSettings
from penstock.protocol.job import lifecycle_effects
from penstock.protocol.job.adaptive_scaling import (
    AdaptiveScaling,
    AdaptiveSettings,
    Effect,
    Lower,
    Lowered,
    Raise,
    Resources,
)
from penstock.protocol.job.lifecycle import Lifecycle
from penstock.protocol.job.lifecycle_table import Phase

AT_THE_START, AFTER_A_LOSS, MORE_SLOTS = "too few slots at the start", "slots lost", "more slots available"
"""Reasons in the history of rescales."""


class Master(Protocol):
    """Declares what the adaptive scheduler needs of the JobMaster."""

    graph: JobGraph
    settings: JobSettings
    clock: Clock
    console: Console
    lifecycle: Lifecycle
    rescales: Rescales
    restore_point: RestorePoint | None

    def execute(self, decided: Sequence[lifecycle_effects.Effect]) -> None: ...

    def adopt(self, graph: JobGraph) -> None:
        """Take the same job's graph at another parallelism, before anything is deployed."""


class AdaptiveScheduler:
    def __init__(self, master: Master, slots: SlotSubmitter, settings: AdaptiveSettings) -> None:
        self._master = master
        self._slots = slots
        self._machine = AdaptiveScaling(settings)
        self._before = master.graph
        self._reason = ""
        master.lifecycle.roster.kept_slots = master.graph.slots

    def next_deadline_ms(self) -> float | None:
        # A job that is over is not looked at: a time that has passed then would come again and again.
        return None if self._master.lifecycle.is_over else self._machine.next_deadline_ms()

    def look(self) -> None:
        """Let the job have other slots, if it is time. Call it after each event, and before the lifecycle's time."""
        master = self._master
        if not master.lifecycle.is_over:
            self._execute(self._machine.look(self._resources(), master.clock.monotonic_ms()))
            master.lifecycle.shares_slots = self._machine.may_share

    def _resources(self) -> Resources:
        life, rescales, capacity = self._master.lifecycle, self._master.rescales, self._slots.capacity
        is_running = life.generation is not None and life.phase is Phase.RUNNING and not life.is_finishing
        processes = life.roster.own_processes
        return Resources(
            life.generation.counter if is_running and life.generation is not None else None,
            life.is_short,
            life.is_prepared,
            life.roster.slots,
            rescales.wanted.slots,
            processes,
            may_come=capacity is None or processes < capacity,
            gather_by_ms=life.gather_by_ms,
            is_rescaled=not rescales.is_idle,
        )

    def _execute(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Lower(slots, waited_ms):
                    self._lower(slots, waited_ms)
                case Lowered(waited_ms, restart_ms):
                    self._master.rescales.report(self._reason, self._before, waited_ms, 0.0, restart_ms)
                case Raise(slots):
                    self._raise(slots)

    def _lower(self, slots: int, waited_ms: float) -> None:
        master, life, point = self._master, self._master.lifecycle, self._master.restore_point
        now_ms, before = master.clock.monotonic_ms(), master.graph
        try:
            fit = Fit(rescaled(before, master.rescales.wanted, slots))
            if point is not None:
                ignores = master.settings.ignore_unclaimed_state
                fit = fitted_in_steps(fit.graph, point.metadata, ignores, master.settings.checkpointing)
        except (RescaleRefused, IncompatibleGraph) as error:
            master.console.warning(f"the job cannot run in {slots} slot(s) now, so slots share processes. {error}")
            self._machine.on_not_lowered(now_ms)
            return
        if fit.then is not None:
            self._lower_in_steps(fit, slots)
            return
        missing = ", ".join(map(str, life.roster.missing))
        master.console.warning(
            f"the job runs in {slots} slot(s) instead of {before.slots}: no process has come for slot(s) {missing} in "
            f"{waited_ms / 1000:.1f} s ({JobManagerOptions.SUBMISSION_RESOURCE_STABILIZATION_TIMEOUT.key}). It gets "
            "more slots when Spark has more task places"
        )
        self._before, self._reason = before, AFTER_A_LOSS if life.has_run else AT_THE_START
        master.rescales.on_lowered(f"slots were lost for good, and the job restarts in {slots}")
        master.adopt(fit.graph)
        master.execute(life.resize(slots, now_ms))

    def _lower_in_steps(self, fit: Fit, slots: int) -> None:
        """Let processes share the slots that are missing, until the job can run in fewer."""
        master = self._master
        assert fit.then is not None and master.restore_point is not None
        if master.rescales.is_idle:
            told = fit.text(master.restore_point.metadata.checkpoint_id)
            master.console.warning(f"the job cannot run in {slots} slot(s) at once, so slots share processes: {told}")
            master.rescales.continue_as(fit.then, is_own=True)
            master.adopt(fit.graph)
            if fit.graph.slots != master.lifecycle.roster.slots:
                master.execute(master.lifecycle.resize(fit.graph.slots, master.clock.monotonic_ms()))
        self._machine.on_not_lowered(master.clock.monotonic_ms())

    def _raise(self, slots: int) -> None:
        def answered(failed: RescaleFailed | None) -> None:
            if failed is not None:
                self._master.console.warning(f"the job does not get {slots} slots: {failed}")
            self._machine.on_raised(failed is None, self._master.clock.monotonic_ms())

        self._master.rescales.order(RescaleOrder(slots, answered, MORE_SLOTS, is_own=True))
