"""Executes what `protocol.driver.adaptive_scaling` decides: starts the job in fewer slots, and rescales it to more."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.common.job_execution import RescaleFailed
from penstock.common.options import JobManagerOptions
from penstock.graph.compatibility import IncompatibleGraph
from penstock.graph.job_graph import JobGraph
from penstock.graph.rescaled_graph import RescaleRefused, rescaled
from penstock.jobmaster.current_job import CurrentJob
from penstock.jobmaster.driver import Driver
from penstock.jobmaster.fit import Fit, fitted_in_steps
from penstock.jobmaster.master_ports import MasterPorts
from penstock.jobmaster.orders import RescaleOrder
from penstock.jobmaster.rescales import Rescales
from penstock.protocol.driver import driver_events as events
from penstock.protocol.driver.adaptive_scaling import (
    AdaptiveScaling,
    AdaptiveSettings,
    Effect,
    Lower,
    Lowered,
    Raise,
    Resources,
)
from penstock.protocol.driver.lifecycle import Phase

AT_THE_START, AFTER_A_LOSS, MORE_SLOTS = "too few slots at the start", "slots lost", "more slots available"
"""Reasons in the history of rescales."""


class AdaptiveScheduler:
    """Lets the parallelism follow the processes. `adopt` takes the job's graph at another parallelism, before anything
    is deployed.
    """

    def __init__(
        self,
        job: CurrentJob,
        driver: Driver,
        rescales: Rescales,
        adopt: Callable[[JobGraph], None],
        settings: AdaptiveSettings,
        ports: MasterPorts,
    ) -> None:
        self._job = job
        self._driver = driver
        self._rescales = rescales
        self._adopt = adopt
        self._ports = ports
        self._machine = AdaptiveScaling(settings)
        self._before = job.graph
        self._reason = ""
        driver.handle(events.SlotsKept(job.graph.slots))

    def next_deadline_ms(self) -> float | None:
        # `look` ignores a job that is over, so a deadline that has passed would be reported again and again.
        return None if self._driver.lifecycle.is_over else self._machine.next_deadline_ms()

    def look(self) -> None:
        """Let the job have other slots, if it is time. Call it after each event, and before the lifecycle's time."""
        life = self._driver.lifecycle
        if not life.is_over:
            self._execute(self._machine.look(self._resources(), self._now_ms()))
            self._driver.handle(events.SlotsShared(self._machine.may_share))

    def _now_ms(self) -> float:
        return self._ports.clock.monotonic_ms()

    def _resources(self) -> Resources:
        life, rescales, capacity = self._driver.lifecycle, self._rescales, self._ports.slots.capacity
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
                    self._rescales.report(self._reason, self._before, waited_ms, 0.0, restart_ms)
                case Raise(slots):
                    self._raise(slots)

    def _lower(self, slots: int, waited_ms: float) -> None:
        job, life, warn = self._job, self._driver.lifecycle, self._ports.console.warning
        before = job.graph
        try:
            fit = Fit(rescaled(before, self._rescales.wanted, slots))
            if job.restore_point is not None:
                settings, metadata = job.settings, job.restore_point.metadata
                fit = fitted_in_steps(fit.graph, metadata, settings.ignore_unclaimed_state, settings.checkpointing)
        except (RescaleRefused, IncompatibleGraph) as error:
            warn(f"the job cannot run in {slots} slot(s) now, so slots share processes. {error}")
            self._machine.on_not_lowered(self._now_ms())
            return
        if fit.then is not None:
            self._lower_in_steps(fit, slots)
            return
        missing = ", ".join(map(str, life.roster.missing))
        warn(
            f"the job runs in {slots} slot(s) instead of {before.slots}: no process has come for slot(s) {missing} in "
            f"{waited_ms / 1000:.1f} s ({JobManagerOptions.SUBMISSION_RESOURCE_STABILIZATION_TIMEOUT.key}). It gets "
            "more slots when Spark has more task places"
        )
        self._before, self._reason = before, AFTER_A_LOSS if life.has_run else AT_THE_START
        self._rescales.on_lowered(f"slots were lost for good, and the job restarts in {slots}")
        self._adopt(fit.graph)
        self._driver.handle(events.Resized(slots))

    def _lower_in_steps(self, fit: Fit, slots: int) -> None:
        """Let processes share the slots that are missing, until the job can run in fewer."""
        point = self._job.restore_point
        assert fit.then is not None and point is not None
        if self._rescales.is_idle:
            told = fit.text(point.metadata.checkpoint_id)
            self._ports.console.warning(
                f"the job cannot run in {slots} slot(s) at once, so slots share processes: {told}"
            )
            self._rescales.continue_as(fit.then, is_own=True)
            self._adopt(fit.graph)
            if fit.graph.slots != self._driver.lifecycle.roster.slots:
                self._driver.handle(events.Resized(fit.graph.slots))
        self._machine.on_not_lowered(self._now_ms())

    def _raise(self, slots: int) -> None:
        def answered(failed: RescaleFailed | None) -> None:
            if failed is not None:
                self._ports.console.warning(f"the job does not get {slots} slots: {failed}")
            self._machine.on_raised(failed is None, self._now_ms())

        self._rescales.order(RescaleOrder(slots, answered, MORE_SLOTS, is_own=True))
